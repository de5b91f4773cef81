"""What a job tries from inside its own unit: prints JSON, attempt → whether it came through.

Standard library only: it runs in the place of each job, with the system's Python, behind that unit's own walls. What
is tried at is laid out by test_profiles.py.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

PORT = 47811
KEY = 0x6D656D
_libc = ctypes.CDLL(None, use_errno=True)


def called(result: int) -> bool:
    if result < 0:
        raise OSError(ctypes.get_errno(), "refused")
    return True


def reads(path: str) -> Callable[[], object]:
    return lambda: bool(open(path, "rb").read(1))


def lists(path: str) -> Callable[[], object]:
    return lambda: bool(os.listdir(path))


def writes(directory: str) -> Callable[[], object]:
    def attempt() -> bool:
        path = f"{directory}/attempt-{os.getpid()}"
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_EXCL))
        os.unlink(path)
        return True

    return attempt


def makes_socket(family: int, kind: int = socket.SOCK_STREAM) -> Callable[[], object]:
    def attempt() -> bool:
        socket.socket(family, kind).close()
        return True

    return attempt


def connects(family: int, address: tuple[str, int] | str) -> Callable[[], object]:
    def attempt() -> bool:
        with socket.socket(family) as connection:
            connection.settimeout(2)
            connection.connect(address)
        return True

    return attempt


def sees_others() -> bool:
    with open("/etc/open/pid") as file:
        return os.path.exists(f"/proc/{file.read()}/status")


def writes_and_runs() -> bool:
    mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC).close()
    return True


def in_own_file(change: Callable[[str], object]) -> Callable[[], object]:
    """Something that anybody may do to a file of their own, in the first place that can be written to."""

    def attempt() -> bool:
        for directory in ("/tmp", "/run/memops/store"):
            path = f"{directory}/own-{os.getpid()}"
            try:
                os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))
            except OSError:
                continue
            try:
                change(path)
            finally:
                os.unlink(path)
            return True
        return False

    return attempt


def sets_user_bit(path: str) -> None:
    os.chmod(path, 0o4700)
    if not os.stat(path).st_mode & 0o4000:
        raise PermissionError(path)


def open_to_others(path: str) -> None:
    os.unlink(path)
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o666))
    if not os.stat(path).st_mode & 0o044:
        raise PermissionError(path)


def capabilities(field: str) -> Callable[[], object]:
    def attempt() -> bool:
        with open("/proc/self/status") as file:
            return any(line.startswith(field) and int(line.split()[1], 16) for line in file)

    return attempt


def rises() -> bool:
    """Whether a program that belongs to root and says so runs as root."""
    found = subprocess.run(["/usr/local/bin/attempt-id", "-u"], capture_output=True, check=True, timeout=10)
    return os.getuid() != 0 and found.stdout.strip() == b"0"


def opens_for_writing(path: str) -> Callable[[], object]:
    def attempt() -> bool:
        os.close(os.open(path, os.O_WRONLY))
        return True

    return attempt


def own_group() -> str:
    with open("/proc/self/cgroup") as file:
        return "/sys/fs/cgroup" + file.read().strip().rpartition(":")[2] + "/cgroup.procs"


ATTEMPTS: dict[str, Callable[[], object]] = {
    # What is somebody else's.
    "read a home": reads("/home/other/secret"),
    "read root's home": reads("/root/secret"),
    "see the temporary files of others": reads("/tmp/secret"),
    "see other users' processes": sees_others,
    "read of the machine in /proc": reads("/proc/meminfo"),
    "read the store": lambda: any(
        reads(path)() for path in existing("/srv/agent/memory.db", "/run/memops/store/memory.db")
    ),
    "read another store's records": lists("/var/lib/memops/second"),
    "read the sets": lambda: any(lists(path)() for path in existing("/srv/backup/default", "/run/memops/sets")),
    "read another store's sets": lists("/srv/backup/second"),
    "read a key of root's": reads("/etc/memops/key"),
    "read passwords": reads("/etc/shadow"),
    "write memory that all share": writes("/dev/shm"),
    "share memory": lambda: called(_libc.shmget(KEY, 0, 0)),
    # Places where anybody may write.
    "write in /srv": writes("/srv/open"),
    "write in /var": writes("/var/open"),
    "write in /etc": writes("/etc/open"),
    "write in /usr": writes("/usr/local/open"),
    "write the store": lambda: any(writes(path)() for path in existing("/run/memops/store", "/srv/agent")),
    "write its records": writes("/var/lib/memops/default"),
    "write root's records": writes("/var/lib/memops"),
    "write the sets": lambda: any(writes(path)() for path in existing("/run/memops/sets", "/srv/backup/default")),
    "write in /run/memops": writes("/run/memops"),
    # The network, and what listens here.
    "make an internet socket": makes_socket(socket.AF_INET),
    "make a local socket": makes_socket(socket.AF_UNIX),
    "make a kernel socket": makes_socket(socket.AF_NETLINK, socket.SOCK_RAW),
    "reach the loopback": connects(socket.AF_INET, ("127.0.0.1", PORT)),
    "reach a local socket": connects(socket.AF_UNIX, "/run/open.sock"),
    "reach an abstract socket": connects(socket.AF_UNIX, "\0attempt"),
    # More rights.
    "have a capability": capabilities("CapEff"),
    "gain a capability": capabilities("CapBnd"),
    "rise by a program of root's": rises,
    "make a program that runs as its owner": in_own_file(sets_user_bit),
    "give a file to somebody": in_own_file(lambda path: os.chown(path, os.getuid(), -1)),
    "make a user namespace": lambda: called(_libc.unshare(0x10000000)),
    "mount": lambda: called(_libc.mount(b"none", b"/tmp", b"tmpfs", 0, None)),
    # The kernel and the machine.
    "write and run memory": writes_and_runs,
    "take another personality": lambda: called(_libc.personality(0x0008)),
    "trace": lambda: called(_libc.ptrace(0, 0, 0, 0)),
    "be first in the queue": lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1)),
    "change its priority": lambda: os.setpriority(os.PRIO_PROCESS, 0, os.getpriority(os.PRIO_PROCESS, 0)),
    "see a device": lambda: os.path.exists("/dev/attempt"),
    "make a device": lambda: os.mknod("/tmp/attempt", 0o020600, os.makedev(1, 7)),
    "set the clock": lambda: called(_libc.adjtimex(ctypes.byref((ctypes.c_uint * 64)(1)))),
    "name the host": lambda: called(_libc.sethostname(b"attempt", 7)),
    "read the kernel's log": lambda: called(_libc.klogctl(10, None, 0)),
    "set the kernel": opens_for_writing("/proc/sys/kernel/core_pattern"),
    "change a control group": lambda: os.close(os.open(own_group(), os.O_WRONLY)),
    "leave its files open to others": in_own_file(open_to_others),
}


def existing(*paths: str) -> list[str]:
    """The first of the paths that is there; raises where none is. An empty mount point of another unit's is none."""
    found = [path for path in paths if os.path.exists(path)]
    found = [path for path in found if not path.startswith("/run/") or os.path.ismount("/".join(path.split("/")[:4]))]
    if not found:
        raise FileNotFoundError(paths)
    return found[:1]


def main() -> None:
    found: dict[str, bool] = {}
    for name, attempt in ATTEMPTS.items():
        try:
            found[name] = attempt() is not False
        except (OSError, subprocess.SubprocessError, ValueError):
            found[name] = False
    print(json.dumps({"unit": sys.argv[1], "found": [name for name, through in found.items() if through]}), flush=True)


main()
