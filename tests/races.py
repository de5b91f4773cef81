"""Somebody who lets names in a directory of theirs change places all the time, while root works there.

The swapper is a process of another user's, as a hostile agent would have it, with the one system call that exchanges
two names at once. What must never be reached lies outside, in a ``Canary``.
"""

from __future__ import annotations

import contextlib
import os
import stat
import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

AGENT = 65533
TIMES = 10 if os.environ.get("MEMOPS_LONG") else 1
SECRET = "what nobody but root may read"  # noqa: S105 - a word to look for

_SWAPPER = """
import ctypes, itertools, os, sys
one, *others = (os.fsencode(word) for word in sys.argv[1:])
exchange = ctypes.CDLL(None, use_errno=True).renameat2
print("begin", flush=True)
for other in itertools.cycle(others):
    # There and back, so that the genuine thing is at its place half of the time.
    for pair in ((one, other), (other, one)):
        exchange(-100, pair[0], -100, pair[1], 2)
        os.sched_yield()
"""


@contextlib.contextmanager
def swapping(one: Path, *others: Path) -> Iterator[None]:
    """Exchange ``one`` with each of ``others`` in turn and back, all the time, as another user."""
    command = ["setpriv", f"--reuid={AGENT}", f"--regid={AGENT}", "--clear-groups", "/usr/bin/python3", "-I", "-c"]
    with subprocess.Popen([*command, _SWAPPER, *map(str, (one, *others))], stdout=subprocess.PIPE) as swapper:
        try:
            assert swapper.stdout is not None
            assert swapper.stdout.readline() == b"begin\n"
            yield
            assert swapper.poll() is None
        finally:
            swapper.kill()


class Canary:
    """A file and a directory of root's outside, and what they are to be like for good."""

    def __init__(self, top: Path) -> None:
        self.top, self.file, self.directory = top, top / "secret", top / "tree"
        self.inner = self.directory / "inner" / "secret"
        self.inner.parent.mkdir(parents=True)
        for file in (self.file, self.inner):
            file.write_text(SECRET)
            file.chmod(0o600)
        self._before = self._state()

    def _state(self) -> dict[str, tuple[object, ...]]:
        found: dict[str, tuple[object, ...]] = {}
        for path in (self.top, *sorted(self.top.rglob("*"))):
            status = path.lstat()
            text = path.read_bytes() if stat.S_ISREG(status.st_mode) else b""
            whose = (status.st_mode, status.st_uid, status.st_gid, status.st_nlink)
            found[str(path)] = (*whose, status.st_mtime_ns, status.st_ctime_ns, text)
        return found

    def assert_untouched(self) -> None:
        """Nothing came, went or changed, and nobody's rights."""
        assert self._state() == self._before


def give(top: Path) -> None:
    """Let the agent own ``top`` and all that is below it, whatever it moves meanwhile."""
    for path in (top, *top.rglob("*")):
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            os.chown(path, AGENT, AGENT, follow_symlinks=False)
