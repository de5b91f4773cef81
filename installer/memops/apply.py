"""Running the steps of a plan, and taking them back in reverse when one fails or the run is interrupted."""

from __future__ import annotations

import contextlib
import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING

from memops import host
from memops.errors import MemopsError
from memops.render import UNIT_DIRECTORY
from memops.steps import EnableTimers, WriteFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from memops.steps import Step


class Interrupted(MemopsError):  # noqa: N818 - what happened, not an error
    """A signal asked to stop."""


@contextmanager
def signals_raise() -> Iterator[None]:
    """Within, a first SIGINT, SIGTERM or SIGHUP raises Interrupted; further ones do not cut the undoing short."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def interrupt(number: int, _frame: object) -> None:
        for each in numbers:
            signal.signal(each, signal.SIG_IGN)
        raise Interrupted(f"Stopped by {signal.Signals(number).name}.")

    before = {number: signal.signal(number, interrupt) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def apply(steps: Sequence[Step], say: Callable[[str], None]) -> list[str]:
    """Do the steps in order and return their remarks.

    On any failure or signal, what was done is undone, last first, unless the timers were enabled already. Then raises
    MemopsError with the reason and, where something could not be taken back, what is left.
    """
    undo: list[tuple[str, Callable[[], object]]] = []
    remarks: list[str] = []

    def remember(title: str, action: Callable[[], object]) -> None:
        undo.append((title, action))

    with signals_raise():
        try:
            if any(isinstance(step, WriteFile) and step.path.startswith(UNIT_DIRECTORY) for step in steps):
                # First in, so last out: systemd reads the units again once the files are as before.
                remember("systemctl daemon-reload", lambda: host.run("systemctl", "daemon-reload"))
            for step in steps:
                say(step.title)
                if remark := step.do(remember):
                    remarks.append(remark)
                if isinstance(step, EnableTimers):
                    undo.clear()
        except Exception as error:
            left = _take_back(undo, say)
            raise _failure(error, step.title, bool(undo), left) from error
    return remarks


def _take_back(undo: list[tuple[str, Callable[[], object]]], say: Callable[[str], None]) -> list[str]:
    left = []
    for title, action in reversed(undo):
        with contextlib.suppress(OSError):  # the terminal or the reader of the pipe may be gone
            say(f"undo: {title}")
        try:
            if action() is False:
                left.append(f"could not {title}")
        except Exception as error:  # the others are still to be undone
            left.append(f"could not {title}: {error}")
    return left


def _failure(error: Exception, title: str, undone: bool, left: list[str]) -> MemopsError:
    reason = error.message if isinstance(error, MemopsError) else f"{error!r}."
    if isinstance(error, OSError) and error.strerror:
        reason = f"{error.strerror} ({error.filename})." if error.filename else f"{error.strerror}."
    reason = reason.rstrip(".") + "."
    hint = error.hint if isinstance(error, MemopsError) else ""
    state = "Everything was undone." if undone and not left else ""
    if left:
        state = "Undone, except: " + "; ".join(left) + "."
    return MemopsError(" ".join(part for part in (f"Could not {title}: {reason}", state) if part), hint)
