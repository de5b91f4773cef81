"""A small plot for a terminal: one bar a line."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

BLOCKS = " ▏▎▍▌▋▊▉█"
"""From nothing to a whole character, by eighths."""


def bars(rows: Sequence[tuple[str, int]], width: int, encoding: str | None) -> list[str]:
    """A line for each name and number: name, bar, number. Pure.

    width: the most characters of a line. encoding: the terminal's; where it has no blocks, bars are of ``#``.
    """
    names, numbers = max(len(name) for name, _ in rows), max(len(f"{number:,}") for _, number in rows)
    room = max(1, min(40, width - names - numbers - 2))
    most = max(number for _, number in rows) or 1
    draw = _blocks if _can_show(BLOCKS, encoding) else _signs
    return [f"{name:<{names}} {draw(number / most * room):<{room}} {number:>{numbers},}" for name, number in rows]


def _can_show(text: str, encoding: str | None) -> bool:
    try:
        text.encode(encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def _blocks(length: float) -> str:
    eighths = max(round(length * 8), 1 if length else 0)
    return BLOCKS[8] * (eighths // 8) + BLOCKS[eighths % 8].strip()


def _signs(length: float) -> str:
    return "#" * max(round(length), 1 if length else 0)
