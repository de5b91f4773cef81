"""A place on this machine in which one throwaway server lives, and of which nothing stays when its owner dies.

The server runs in a mount and a PID namespace of its own: with the first process of the PID namespace the kernel ends
every other one, and with the last process the overlay is unmounted. That first process is killed when the process
that started it ends, however it ends. What is left then, a directory and empty cgroups, the next run removes.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import IO, Final

# Each server needs a cgroup of its own: with --keep-unit nspawn makes "payload" below the cgroup it was started in,
# and two systemd that share it take each other's services for their own.
_JOIN: Final = 'for f in $CGROUPS; do echo $$ >"$f/cgroup.procs"; done; unset CGROUPS; exec "$@"'

_MOUNT: Final = 'mount -t overlay -o "$1" overlay "$2" && shift 2 && exec "$@"'

_NSPAWN: Final = (
    "--quiet", "--register=no", "--keep-unit", "--settings=no", "--link-journal=no", "--timezone=off",
    "--resolv-conf=replace-host", "--console=pipe",
    # Without it systemd cannot give a service a network namespace of its own, and goes on without.
    "--capability=CAP_NET_ADMIN",
)  # fmt: skip

_number = itertools.count(1)


def cache() -> Path:
    """The directory for everything that outlives a test, made if need be."""
    default = Path(os.environ.get("XDG_CACHE_HOME", "/var/cache")) / "memops-tests"
    path = Path(os.environ.get("MEMOPS_TEST_CACHE", default))
    path.mkdir(parents=True, exist_ok=True)
    return path


class Sandbox:
    """Directories ``root``, ``upper`` and ``work`` for an overlay on ``lower`` (lowest first), and cgroups."""

    def __init__(self, lower: tuple[Path, ...]) -> None:
        """Make it; ``remove`` takes it away again."""
        self.lower = lower
        self.name = f"memops-{os.getpid()}-{next(_number)}"
        self.path = cache() / "run" / self.name
        self.root, self.upper, self.work = (self.path / name for name in ("root", "upper", "work"))
        self.path.mkdir(parents=True)
        (self.path / "owner").write_text(f"{os.getpid()} {_start_time(os.getpid())}")
        for directory in (self.root, self.upper, self.work):
            directory.mkdir()
        self._cgroups = [hierarchy / self.name for hierarchy in hierarchies()]

    def start(self, *arguments: str, output: IO[bytes] | int) -> subprocess.Popen[bytes]:
        """Start nspawn with ``arguments`` on the overlay. It gets SIGKILL when the thread that started it ends."""
        for cgroup in self._cgroups:
            cgroup.mkdir(exist_ok=True)
        overlay = f"lowerdir={':'.join(map(str, reversed(self.lower)))},upperdir={self.upper},workdir={self.work}"
        return subprocess.Popen(
            [
                "setpriv", "--pdeathsig=KILL", "sh", "-c", _JOIN, "sh",
                "unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", _MOUNT, "sh",
                overlay, str(self.root),
                "systemd-nspawn", *_NSPAWN, f"--directory={self.root}", f"--machine={self.name}", *arguments,
            ],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            # A server has the one cgroup tree of a real Debian, also where this machine still has the older ones.
            env={
                "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
                "CGROUPS": " ".join(map(str, self._cgroups)),
                "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1",
            },
        )  # fmt: skip

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        """End everything in it at once, as a power cut would."""
        for pid in children(process.pid) or [process.pid]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait(timeout=30)

    def remove(self) -> None:
        """Delete it."""
        _remove(self.path, self._cgroups)


def children(pid: int) -> list[int]:
    """The children of a process's main thread; none when it is gone."""
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []


def clean_up() -> None:
    """Remove the sandboxes whose owner is dead."""
    for path in (cache() / "run").glob("memops-*"):
        try:
            pid, start_time = (path / "owner").read_text().split()
        except (FileNotFoundError, ValueError):
            continue  # being made, or being removed by somebody else
        if _start_time(int(pid)) != start_time:
            _remove(path, [hierarchy / path.name for hierarchy in hierarchies()])


def _remove(path: Path, cgroups: list[Path]) -> None:
    for cgroup in cgroups:
        with contextlib.suppress(OSError):  # gone, or of version 1, which has no such file
            (cgroup / "cgroup.kill").write_text("1")
        end = time.monotonic() + 10  # a process that was killed may take a moment to be gone
        while cgroup.exists() and time.monotonic() < end:
            for directory, _, _ in os.walk(cgroup, topdown=False):
                _rmdir(Path(directory))
            time.sleep(0.01)
    _rmdir(Path("/run/systemd/nspawn/propagate", path.name))
    shutil.rmtree(path, ignore_errors=True)


def _rmdir(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.rmdir()


def _start_time(pid: int) -> str:
    """When a process started, in the kernel's ticks; nothing when there is none or only a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return ""
    return "" if fields[0] in "ZX" else fields[19]


def hierarchies() -> list[Path]:
    """This process's cgroup in the trees that systemd uses: the one of cgroup v2, and systemd's own of v1."""
    own = {}
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        own[controllers] = path.lstrip("/")
    found = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        mount_point, (kind, _, options) = Path(before.split()[4]), after.split(" ", 2)
        if kind == "cgroup2" and "" in own:
            found.append(mount_point / own[""])
        elif kind == "cgroup" and "name=systemd" in options.split(",") and "name=systemd" in own:
            found.append(mount_point / own["name=systemd"])
    return found
