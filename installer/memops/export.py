"""``memops render``: every file of the bundle below a directory of one's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memops import render
from memops.errors import Refused
from memops.settings import DEFAULT_USER, check

if TYPE_CHECKING:
    from pathlib import Path

    from memops.settings import Store


def write(directory: Path, store: Store) -> list[str]:
    """Write the bundle for ``store`` below ``directory`` and return the files, each at its place on a server.

    Raises UsageError for settings that cannot be right, Refused when the directory holds something.
    """
    check(store)
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise Refused(f"{directory} is there and not empty.", "Give a new directory.")
    written = []
    for path, file in render.all_files(
        {store.name: store}, {DEFAULT_USER: "-"} if store.user == DEFAULT_USER else {}
    ).items():
        target = directory / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(file.text, encoding="utf-8")
        target.chmod(file.mode)
        written.append(str(target))
    return written
