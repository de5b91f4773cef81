"""A person at a terminal: one key without Enter, a line, and a terminal that is always left as it was."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import shutil
import signal
import sys
import termios
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from collections.abc import Iterator

END = ""
"""The key that means that no more will come: Ctrl-D, or a terminal that is gone."""

_ENDING = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_ALL = (*_ENDING, signal.SIGINT, signal.SIGTSTP)
_ESCAPE = b"\x1b"
_REST_SECONDS = 0.05
"""How long the rest of what one key sends may take, over a slow line say."""


class Terminal:
    """The terminal at standard input and output, from ``with`` on; only in the main thread.

    Reading a key changes its settings. They are put back after each key and before the program is stopped (Ctrl-Z) or
    ends by a signal, and changed again when it goes on. SIGTERM and SIGHUP become SystemExit, Ctrl-C stays
    KeyboardInterrupt.
    """

    def __init__(self) -> None:
        self._in = sys.stdin.fileno()
        self._usual: list[Any] = termios.tcgetattr(self._in)
        self._prompt = ""
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Terminal:
        handlers: dict[int, Any] = dict.fromkeys(_ENDING, self._end)
        handlers |= {signal.SIGTSTP: self._stop, signal.SIGCONT: self._go_on}
        self._before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
        return self

    def __exit__(self, *_: object) -> None:
        self._set(self._usual)
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @property
    def width(self) -> int:
        """Columns for text, at most 100: longer lines are hard to read."""
        return max(20, min(shutil.get_terminal_size((80, 24)).columns, 100))

    def say(self, text: str = "") -> None:
        """Print lines."""
        print(text, flush=True)

    def key(self, prompt: str) -> str:
        """The next key, in lower case; END when there is none any more, ``"escape"`` for a key that is no character.

        What was typed before ``prompt`` was there is thrown away: it was meant for something else.
        """
        self._prompt = prompt
        try:
            self._set(self._single())
            self._write(prompt)
            typed = self._read()
        finally:
            self._prompt = ""
            self._set(self._usual)
        key = END if typed in (b"", b"\x04") else "escape" if len(typed) > 1 else typed.decode(errors="replace").lower()
        self._write(f"{key}\n" if key.isprintable() and key != "escape" else "\n")
        return key

    def line(self, prompt: str) -> str:
        """A line, without blanks around it; empty also when there is none any more."""
        with contextlib.suppress(ImportError):
            import readline  # noqa: F401 - input() can be edited then, and is not cut at 4096 bytes
        try:
            return input(prompt).strip()
        except EOFError:
            self.say()
            return ""

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Let signals wait until a piece of work is done. What it starts does not get them at all."""
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _ALL)
        try:
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def _read(self) -> bytes:
        """What one key sends."""
        try:
            typed = os.read(self._in, 1)
            # Arrows and the like send several characters, and some of them are keys of their own.
            while typed[:1] == _ESCAPE or typed > b"\x7f":
                if not select.select([self._in], [], [], _REST_SECONDS)[0] or not (more := os.read(self._in, 64)):
                    break
                typed += more
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            return b""  # the terminal is gone
        return typed

    def _single(self) -> list[Any]:
        """Settings in which a key is there at once and not shown; Ctrl-C and Ctrl-Z still work."""
        settings = termios.tcgetattr(self._in)
        settings[3] &= ~(termios.ICANON | termios.ECHO)
        settings[6] = list(settings[6])
        settings[6][termios.VMIN], settings[6][termios.VTIME] = 1, 0
        return settings

    def _set(self, settings: list[Any]) -> None:
        when = termios.TCSANOW if settings is self._usual else termios.TCSAFLUSH
        while True:
            try:
                termios.tcsetattr(self._in, when, settings)
            except termios.error as error:
                if error.args[0] == errno.EINTR:
                    continue
                if error.args[0] != errno.EIO:
                    raise
            return

    def _write(self, text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()

    def _end(self, number: int, _frame: object) -> NoReturn:
        raise SystemExit(128 + number)

    def _stop(self, _number: int, _frame: object) -> None:
        settings = termios.tcgetattr(self._in)
        self._set(self._usual)
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTSTP)
        # Here it goes on.
        signal.signal(signal.SIGTSTP, self._stop)
        self._set(settings)

    def _go_on(self, _number: int, _frame: object) -> None:
        # Whoever stopped it, the shell may have set the terminal its own way meanwhile.
        if self._prompt:
            self._set(self._single())
            self._write(self._prompt)
