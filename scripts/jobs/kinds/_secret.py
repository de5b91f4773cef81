"""The secret of a server that keeps a part: a file that only the unit that needs it can read."""

from __future__ import annotations

import os


def path() -> str | None:
    """The file: MEMOPS_SECRETS, else systemd's credential named as the part (MEMOPS_PART); None where there is none."""
    found = os.environ.get("MEMOPS_SECRETS", "")
    if not found and (directory := os.environ.get("CREDENTIALS_DIRECTORY")) and (part := os.environ.get("MEMOPS_PART")):
        found = os.path.join(directory, part)
    return found if found and os.path.isfile(found) else None
