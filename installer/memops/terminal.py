"""A person at a terminal: one key without Enter, a line, and a terminal that is always left as it was."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import select
import shutil
import signal
import sys
import termios
from typing import TYPE_CHECKING, Any, NoReturn

from memops.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

END = ""
"""The key that means that no more will come: Ctrl-D, or a terminal that is gone."""

LONGEST_LINE = 4000
"""Bytes of a line; the kernel drops what comes after 4095."""

_ENDING = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_ALL = (*_ENDING, signal.SIGINT, signal.SIGTSTP)
_REST_SECONDS = 0.05
"""How long the rest of what one key sends may take, over a slow line say."""


class Terminal:
    """The terminal at standard input and output, from ``with`` on; only in the main thread.

    Its settings are changed only while a key is waited for. They are put back after each, and before the program is
    stopped (Ctrl-Z) or ends by a signal. SIGTERM, SIGHUP and SIGQUIT become SystemExit; Ctrl-C stays KeyboardInterrupt.
    """

    def __init__(self) -> None:
        self._in, self._out = sys.stdin.fileno(), sys.stdout.fileno()
        self._usual: list[Any] = termios.tcgetattr(self._in)
        self._prompt = ""
        self._single = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Terminal:
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="backslashreplace")  # a terminal may know fewer characters than a fact
        # A signal that comes just before a read would otherwise be noticed only after it.
        self._woken, self._waker = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._last_waker = signal.set_wakeup_fd(self._waker, warn_on_full_buffer=False)
        handlers: dict[int, Any] = dict.fromkeys(_ENDING, self._end)
        handlers |= {signal.SIGTSTP: self._stop, signal.SIGCONT: self._go_on}
        self._before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
        return self

    def __exit__(self, *_: object) -> None:
        self._set_usual()
        for number, handler in self._before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._last_waker)
        os.close(self._woken)
        os.close(self._waker)

    @property
    def width(self) -> int:
        """Columns for text, at most 100: longer lines are hard to read."""
        return max(20, min(shutil.get_terminal_size((80, 24)).columns, 100))

    def say(self, text: str = "") -> None:
        """Print lines."""
        print(text, flush=True)

    def key(self, prompt: str) -> str:
        """The next key, in lower case; END when there is none any more, ``escape`` for a key that is no character.

        What was typed before ``prompt`` was there is thrown away: it was meant for something else.
        """
        try:
            self._set_single()
            typed = self._ask(prompt, 1)
            # Arrows and the like send several characters, some of which are keys of their own.
            while typed[:1] == b"\x1b" or typed > b"\x7f":
                if not select.select([self._in], [], [], _REST_SECONDS)[0] or not (more := self._read(64)):
                    break
                typed += more
        finally:
            self._set_usual()
        key = END if typed in (b"", b"\x04") else "escape" if len(typed) > 1 else typed.decode(errors="replace").lower()
        self.say(key if key.isprintable() and key != "escape" else "")
        return key

    def line(self, prompt: str) -> str:
        """A line, without blanks around it; empty also when there is none any more. Raises UsageError if too long.

        The terminal's own line is used, which needs no other settings: Backspace, Ctrl-W and Ctrl-U work in it.
        """
        typed = b""
        while not typed.endswith(b"\n"):
            more = self._ask(prompt if not typed else "", LONGEST_LINE + 200)
            if not more:
                self.say()
                break
            typed += more
        if len(typed) > LONGEST_LINE:
            raise UsageError(
                f"That is longer than the {LONGEST_LINE:,} bytes that a terminal takes as one line.",
                "A fact is a sentence or two; a longer one is for: memops replace",
            )
        return typed.decode(errors="replace").strip()

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Let signals wait until a piece of work is done. What it starts does not get them at all."""
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _ALL)
        try:
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def _ask(self, prompt: str, most: int) -> bytes:
        """What is typed after a prompt."""
        try:
            self._prompt = prompt
            self._write(prompt)
            while True:
                ready, _, _ = select.select([self._in, self._woken], [], [])
                with contextlib.suppress(BlockingIOError):
                    os.read(self._woken, 4096)
                if self._in in ready:
                    return self._read(most)
        finally:
            self._prompt = ""

    def _read(self, most: int) -> bytes:
        try:
            return os.read(self._in, most)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            return b""  # the terminal is gone

    def _write(self, text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()

    def _set_single(self, when: int = termios.TCSAFLUSH) -> None:
        """A key is there at once and not shown; Ctrl-C and Ctrl-Z still work. TCSAFLUSH drops what is typed already."""
        settings = [*self._usual[:6], list(self._usual[6])]
        settings[3] &= ~(termios.ICANON | termios.ECHO)
        settings[6][termios.VMIN], settings[6][termios.VTIME] = 1, 0
        self._single = True
        self._set(settings, when)

    def _set_usual(self) -> None:
        self._set(self._usual, termios.TCSANOW)
        self._single = False

    def _set(self, settings: list[Any], when: int) -> None:
        while True:
            try:
                termios.tcsetattr(self._in, when, settings)
            except termios.error as error:
                if error.args[0] == errno.EINTR:
                    continue
                if error.args[0] != errno.EIO:  # the terminal is gone
                    raise
            return

    def _end(self, number: int, _frame: object) -> NoReturn:
        raise SystemExit(128 + number)

    def _stop(self, _number: int, _frame: object) -> None:
        single = self._single
        self._set_usual()
        self._single = single
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTSTP)
        signal.signal(signal.SIGTSTP, self._stop)
        if single:
            self._set_single(termios.TCSANOW)  # for when it did not stop, since nobody could make it go on

    def _go_on(self, _number: int, _frame: object) -> None:
        # Whoever stopped it, a shell may have set the terminal its own way meanwhile.
        if self._single:
            self._set_single()
        # Not through sys.stdout, which may be what the signal interrupted.
        with contextlib.suppress(OSError):
            os.write(self._out, self._prompt.encode(errors="replace"))
