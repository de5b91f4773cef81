"""Where the templates and the jobs' scripts are: beside the modules in a wheel, at the top of a checkout."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent

SHARED = ("exposition.py", "health.py", "letters.py", "records.py", "store.py", "survey.py", "trees.py")
"""Modules of this package that the jobs import too; standard library only."""


def folder(name: str) -> Path:
    """The directory of ``units``, ``sql`` or ``jobs``. Raises FileNotFoundError when this copy is incomplete."""
    checkout = _PACKAGE.parents[1]
    places = (_PACKAGE / name, checkout / name, checkout / "scripts" / name)
    for place in places:
        if place.is_dir():
            return place
    raise FileNotFoundError(f"{name} is missing from this copy of memops ({_PACKAGE})")


def jobs() -> dict[str, str]:
    """Every file that goes to /usr/local/lib/memops: path from there → text."""
    jobs = folder("jobs")
    sources = {str(path.relative_to(jobs)): path for path in jobs.rglob("*.py")} | {n: _PACKAGE / n for n in SHARED}
    return {name: path.read_text(encoding="utf-8") for name, path in sorted(sources.items())}
