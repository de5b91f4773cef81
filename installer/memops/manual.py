"""The man page, made from the same declarations as ``--help``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import typer

from memops import __version__
from memops.cli import app

if TYPE_CHECKING:
    from collections.abc import Iterator

FILES = {
    "/etc/memops/memops.toml": "what was decided at install, one table a store",
    "/etc/memops/STORE/prune.sql": "the whole policy; runs by hand in the sqlite3 shell too",
    "/etc/systemd/system/memory-*": "the units",
    "/usr/local/lib/memops/": "what the units run, and uninstall for when the command is broken",
    "/srv/backup/STORE/": "the sets",
    "/var/lib/memops/": "records of the jobs' runs",
}


def page() -> str:
    """memops(8) in the man macros (man 7 man)."""
    group: Any = typer.main.get_command(app)
    lines = [
        rf".\" Written by memops {__version__} from the same text as --help.",
        f'.TH MEMOPS 8 "" "memops {__version__}" "System administration"',
        ".SH NAME",
        r"memops \- look after the memory of AI agents",
        ".SH SYNOPSIS",
        r"\fBmemops\fR \fICOMMAND\fR [\fIOPTIONS\fR]",
        ".SH DESCRIPTION",
        *_paragraphs(group.help),
        ".SH COMMANDS",
    ]
    for name, command in sorted(group.commands.items()):
        for words, each in ((name, command), *_below(name, command)):
            lines += [f".SS {_bold('memops ' + words)}", *_paragraphs(each.help), *_options(each)]
    lines += [".SH FILES"]
    for path, what in FILES.items():
        lines += [".TP", f"\\fI{_escape(path)}\\fR", _escape(what)]
    lines += [".SH EXIT STATUS", *_paragraphs(group.epilog), ".SH SEE ALSO"]
    lines += [r"\fBsystemctl\fR(1), \fBjournalctl\fR(1), \fBsystemd.timer\fR(5), \fBsqlite3\fR(1)"]
    return "\n".join(lines) + "\n"


def _below(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    for word, each in sorted(getattr(command, "commands", {}).items()):
        yield f"{name} {word}", each


def _options(command: Any) -> Iterator[str]:
    for parameter in command.params:
        if getattr(parameter, "hidden", False):
            continue
        names = ", ".join(_bold(name) for name in getattr(parameter, "opts", []) if name.startswith("-"))
        value = (
            ""
            if getattr(parameter, "is_flag", False)
            else f"\\fI{_escape(parameter.metavar or parameter.name.upper())}\\fR"
        )
        yield from (
            ".TP",
            " ".join(part for part in (names, value) if part),
            _escape(getattr(parameter, "help", None) or ""),
        )


def _paragraphs(text: str | None) -> Iterator[str]:
    """Help text as paragraphs; one that begins with ``\\b`` keeps its lines, as in ``--help``."""
    for number, block in enumerate(re.split(r"\n\s*\n", (text or "").strip())):
        if number:
            yield ".PP"
        if block.startswith("\b"):
            yield from (".nf", *(_escape(line) for line in block.splitlines()[1:]), ".fi")
        else:
            yield _escape(" ".join(block.split()))


def _bold(text: str) -> str:
    return f"\\fB{_escape(text)}\\fR"


def _escape(text: str) -> str:
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    return "\\&" + escaped if escaped.startswith((".", "'")) else escaped
