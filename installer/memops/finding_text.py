"""Words that findings share: paths as a shell takes them, who uses a store, the commands of a mend. Pure."""

from __future__ import annotations

import shlex
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from memops import products

if TYPE_CHECKING:
    from memops.found import Found, Holder, Part


def quoted(text: str) -> str:
    """A path or another word for a command line, all of it printable: the agent may have named the file."""
    if text.isprintable():
        return shlex.quote(text)
    escaped = "".join(
        (f"\\{c}" if c in "\\'" else c)
        if c.isprintable()
        else "".join(f"\\x{byte:02x}" for byte in c.encode("utf-8", "surrogateescape"))
        for c in text
    )
    return f"$'{escaped}'"


def title(product: str) -> str:
    """What people say for a product."""
    known = products.known().get(product)
    return known.title if known else "The agent"


def user_of(part: Part) -> str:
    """The owner's name; the number of one without a name."""
    return part.owner or str(part.uid)


def as_owner(part: Part) -> str:
    """How a command is run as the owner."""
    owner = user_of(part)
    return "sudo -u " + (quoted(f"#{owner}") if owner.isdigit() else quoted(owner))


def units(found: Found) -> list[str]:
    """The services that use a store."""
    return sorted({holder.unit for holder in found.holders if holder.unit.endswith(".service")})


def who(holder: Holder) -> str:
    """A process in a few words."""
    return f"process {holder.pid} ({quoted(holder.command or '?')}, user {holder.user})"


def stop(found: Found) -> list[str]:
    """The lines that stop whatever uses a store."""
    lines = [f"sudo systemctl stop {quoted(unit)}" for unit in units(found)]
    others = [holder for holder in found.holders if not holder.unit.endswith(".service")]
    lines += [f"# Stop {who(holder)}." for holder in others]
    return lines or ["# Stop the agent, if it runs."]


def start(found: Found) -> list[str]:
    """The lines that start it again."""
    return [f"sudo systemctl start {quoted(unit)}" for unit in units(found)] or ["# Start the agent again."]


def doctor_fix(code: str, path: str) -> str:
    """The command that mends a finding."""
    return f"sudo memops doctor --fix {code}" + (f" {quoted(path)}" if path else "")


def parent(path: str) -> str:
    """The directory that a path is in."""
    return str(PurePosixPath(path).parent)


def listed(texts: list[str], most: int = 3) -> str:
    """A few of them, and how many more there are."""
    shown = ", ".join(texts[:most])
    return shown if len(texts) <= most else f"{shown} and {len(texts) - most:,} more"


def counted(number: int, one: str, several: str = "") -> str:
    """``1 row``, ``2,000 rows``."""
    return f"{number:,} {one if number == 1 else several or one + 's'}"
