"""``memops --help`` by group: each command says in ``rich_help_panel`` which one it belongs to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from typer.core import TyperGroup

if TYPE_CHECKING:
    from typer._click import Context, HelpFormatter

SET_UP = "Set up"
SEE = "See how it is"
FACTS = "Facts"
REVIEW = "Review"
UPKEEP = "Upkeep and backups"


class Grouped(TyperGroup):
    """Commands listed under the names of their groups, in the order of these constants."""

    def format_commands(self, ctx: Context, formatter: HelpFormatter) -> None:
        """Write the sections of the help."""
        commands = [(name, command) for name in self.list_commands(ctx) if (command := self.get_command(ctx, name))]
        wide = max(len(name) for name, _ in commands)
        for panel in (SET_UP, SEE, FACTS, REVIEW, UPKEEP):
            rows = [
                (name.ljust(wide), command.get_short_help_str(formatter.width - 6 - wide))
                for name, command in commands
                if getattr(command, "rich_help_panel", None) == panel
            ]
            if rows:
                with formatter.section(panel):
                    formatter.write_dl(rows)
