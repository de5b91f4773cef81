"""Starting a job's program, with a fault that strikes it; strike.c does that from inside."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from faulting.world import AGENT, PYTHON

if TYPE_CHECKING:
    from collections.abc import Callable

    from faulting.world import World

PATIENCE: Final = 60.0
"""Seconds after which a run counts as hanging."""

ERRNOS: Final = {"full": errno.ENOSPC, "io": errno.EIO}


@dataclass(frozen=True)
class Command:
    """A program of the bundle: its script and arguments, and as whom the unit runs it."""

    script: str
    arguments: tuple[str, ...]
    agent: bool = True
    stdin: bytes = b""
    umask: int = 0o077


@dataclass(frozen=True)
class Ran:
    """How it ended: the exit code (negative: the signal), both outputs, and whether the fault struck."""

    code: int
    out: bytes
    err: str
    struck: bool = False
    seconds: float = 0.0
    calls: str = ""
    """A letter for each call, where it was not recorded."""


@dataclass(frozen=True)
class Strike:
    """What befalls the program; see strike.c for the settings. ``meanwhile`` happens while it is stopped.

    ``after``: seconds after the stop at which it is killed. ``record``: where the record of its calls is copied to.
    """

    settings: dict[str, str] = field(default_factory=dict)
    meanwhile: Callable[[], None] | None = None
    after: float | None = None
    record: Path | None = None


def build(shared: Path) -> None:
    """Build the library. Raises SystemExit where there is no compiler."""
    source, target = Path(__file__).with_name("strike.c"), shared / "strike.so"
    command = ["cc", "-O1", "-shared", "-fPIC", "-nostdlib", "-fno-builtin", "-o", str(target), str(source)]
    try:
        subprocess.run(command, check=True)
    except FileNotFoundError:
        raise SystemExit("Error: There is no C compiler.\nType: sudo apt-get install gcc") from None
    target.chmod(0o755)


def start(world: World, command: Command, strike: Strike | None = None) -> Ran:
    """Run a program to its end, of whatever kind."""
    words = [PYTHON, "-I", str(world.lib / command.script), *command.arguments]
    environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8"}
    with tempfile.TemporaryDirectory(prefix="faults-run-") as name:
        log = Path(name, "log")
        if strike is not None:
            settings = {"STRIKE_ROOT": str(world.top), "STRIKE_LOG": str(log), **strike.settings}
            preload = {"LD_PRELOAD": str(world.lib.parent / "strike.so"), **settings}
            # Not before: a program that only changes the user is none of those that are struck.
            words = ["env", *(f"{key}={value}" for key, value in preload.items()), *words]
            log.touch()
            log.chmod(0o666)
            Path(name).chmod(0o755)
        user: dict[str, object] = {}
        if os.geteuid() == 0 and command.agent:
            user = {"user": AGENT, "group": AGENT, "extra_groups": []}
        elif os.geteuid() == 0:
            words = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", "--clear-groups", *words]
        with tempfile.TemporaryFile() as stdin, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            stdin.write(command.stdin)
            stdin.seek(0)
            clock = time.monotonic()
            process = subprocess.Popen(
                words, env=environment, stdin=stdin, stdout=out, stderr=err, cwd="/", umask=command.umask, **user
            )  # type: ignore[call-overload]
            code, seconds = _wait(process, clock, strike or Strike())
            out.seek(0)
            err.seek(0)
            calls = log.read_bytes() if strike is not None else b""
            if strike is not None and strike.record is not None:
                strike.record.write_bytes(calls)
                calls = b""
            said = err.read().decode(errors="replace")
            return Ran(code, out.read(), said, b"!" in calls, seconds, calls.decode().replace("!", ""))


def _wait(process: subprocess.Popen[bytes], clock: float, strike: Strike) -> tuple[int, float]:
    """Wait for the end; returns the exit code and the seconds since the start, or since the stop."""
    begun, kill_at = clock, float("inf")
    with contextlib.ExitStack() as stack:
        stack.callback(_end, process)
        while True:
            found, status = os.waitpid(process.pid, os.WNOHANG | os.WUNTRACED)
            if found and not os.WIFSTOPPED(status):
                process.returncode = os.waitstatus_to_exitcode(status)
                return process.returncode, time.monotonic() - begun
            if found:
                if strike.meanwhile is not None:
                    strike.meanwhile()
                begun = time.monotonic()
                if strike.after is not None:
                    kill_at = begun + strike.after
                os.kill(process.pid, signal.SIGCONT)
            now = time.monotonic()
            if now >= kill_at or now > clock + PATIENCE:
                os.kill(process.pid, signal.SIGKILL)
                if now > clock + PATIENCE:
                    os.waitpid(process.pid, 0)
                    process.returncode = HUNG
                    return HUNG, PATIENCE
                kill_at = float("inf")
            time.sleep(0.001)


HUNG: Final = -999
"""The exit code of what did not come to its end."""


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.returncode is None:
        process.kill()
        process.wait()
