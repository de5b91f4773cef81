"""The shell in which a test's person types: starts the command that it is given in the foreground of its terminal.

Says when the command is stopped, goes on with it, and says at the end how it left the terminal.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import termios


def run(words: list[str]) -> None:
    """Run the command to its end."""
    os.close(os.open(os.ttyname(0), os.O_RDWR))  # a session without a terminal takes the first one that it opens
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    before = termios.tcgetattr(0)
    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)
        os.tcsetpgrp(0, os.getpid())
        signal.signal(signal.SIGTTOU, signal.SIG_DFL)
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        print("RUNS", os.getpid(), flush=True)
        os.execvp(words[0], words)  # noqa: S606 - it is the command under test
    while True:
        _, status = os.waitpid(child, os.WUNTRACED)
        if not os.WIFSTOPPED(status):
            break
        os.tcsetpgrp(0, os.getpid())
        print("\nSTOPPED", "as it was" if termios.tcgetattr(0) == before else "changed", flush=True)
        # Another shell may leave it in another way, which the command must not rely on.
        os.tcsetpgrp(0, child)
        os.kill(child, signal.SIGCONT)
    with contextlib.suppress(OSError, termios.error):
        os.tcsetpgrp(0, os.getpid())
        kept = termios.tcgetattr(0) == before
        print("\nENDED", os.waitstatus_to_exitcode(status), "as it was" if kept else "changed", flush=True)


if __name__ == "__main__":
    run(sys.argv[1:])
