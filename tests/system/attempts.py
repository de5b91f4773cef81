"""Tries, from inside a unit, all that a job might be able to do, and prints in JSON: attempt → why not.

An empty text says that it could. It runs in place of a job's own program (see profiles.py), with the server's python3
and nothing else. Each attempt, or each that is named, has a process of its own. It returns when it could, and raises
when it could not; also to be killed is not to be able to.

The places it tries are in a file beside it, ``attempts.json``, which is a dictionary of names to paths and numbers.
"""

import contextlib
import ctypes
import ctypes.util
import json
import mmap
import os
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from typing import Any

PLACES: dict[str, Any] = {}
LIBC = ctypes.CDLL(None, use_errno=True)
SYSTEM_CALLS: dict[str, tuple[int, int]] = {  # x86-64, aarch64
    "ptrace": (101, 117), "bpf": (321, 280), "perf_event_open": (298, 241), "keyctl": (250, 219),
    "reboot": (169, 142), "swapoff": (168, 225), "init_module": (175, 105), "process_vm_readv": (310, 270),
    "io_uring_setup": (425, 425), "userfaultfd": (323, 282), "open_by_handle_at": (304, 265), "acct": (163, 89),
    "kcmp": (312, 272), "quotactl": (179, 60), "ioperm": (173, -1),
}  # fmt: skip
NEWNS, NEWUSER, NEWNET = 0x00020000, 0x10000000, 0x40000000


def call(name: str, *arguments: Any) -> None:
    """A function of libc. Raises OSError."""
    if getattr(LIBC, name)(*arguments) == -1:
        raise OSError(ctypes.get_errno(), name)


def system_call(name: str, *arguments: int) -> None:
    """A system call by its number. Raises OSError."""
    number = SYSTEM_CALLS[name][os.uname().machine != "x86_64"]
    if LIBC.syscall(ctypes.c_long(number), *(ctypes.c_long(each) for each in arguments)) == -1:
        raise OSError(ctypes.get_errno(), name)


def there(name: str, *arguments: int) -> None:
    """Make a system call whose arguments are wrong: any error but "not permitted" means that it is open."""
    try:
        system_call(name, *arguments)
    except PermissionError:
        raise
    except OSError as error:
        if error.errno == 38:  # this kernel does not have it
            raise


def read(path: str) -> None:
    """Read a file or list a directory; nothing in it counts as nothing seen."""
    if os.path.isdir(path):
        if not os.listdir(path):
            raise FileNotFoundError(path)
        return
    with open(path, "rb") as file:
        if not file.read(1):
            raise FileNotFoundError(path)


def write(directory: str) -> None:
    """Make a file in a directory that is there for everybody, so that its content stays."""
    with tempfile.TemporaryFile(dir=directory) as file:
        file.write(b"x")
    if not os.path.exists(os.path.join(directory, ".marked")):
        raise FileNotFoundError(f"another {directory} than the machine's")


def same_namespace(kind: str) -> None:
    """Be in the machine's own namespace."""
    if os.readlink(f"/proc/self/ns/{kind}") != PLACES["namespaces"][kind]:
        raise PermissionError(kind)


def see_process(pid: int) -> None:
    read(f"/proc/{pid}/cmdline")


def connect(address: Any) -> None:
    kind = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
    with socket.socket(kind, socket.SOCK_STREAM) as opened:
        opened.settimeout(2)
        opened.connect(address if isinstance(address, str) else tuple(address))


def open_socket(family: int, kind: int = socket.SOCK_STREAM) -> None:
    socket.socket(family, kind).close()


def exec_setuid() -> None:
    done = subprocess.run([PLACES["setuid"], "-u"], capture_output=True, text=True, check=True)
    if done.stdout.strip() != PLACES["setuid_is"]:
        raise PermissionError(done.stdout)


def write_and_execute() -> None:
    mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC).close()


def old_system_call() -> None:
    """getpid as an i386 program calls it."""
    file = os.memfd_create("code")
    os.write(file, b"\xb8\x14\x00\x00\x00\xcd\x80\xc3".ljust(4096, b"\xc3"))
    LIBC.mmap.restype = ctypes.c_void_p
    code = LIBC.mmap(None, 4096, mmap.PROT_READ | mmap.PROT_EXEC, mmap.MAP_PRIVATE, file, 0)
    if code in (None, ctypes.c_void_p(-1).value) or os.uname().machine != "x86_64":
        raise OSError("no such code")
    if ctypes.CFUNCTYPE(ctypes.c_int)(code)() <= 0:
        raise PermissionError("refused")


def make_setuid() -> None:
    file = os.memfd_create("file")
    os.fchmod(file, 0o4755)
    if not os.fstat(file).st_mode & stat.S_ISUID:
        raise PermissionError("not kept")


def make_for_all() -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "file")
        with open(path, "w", encoding="utf-8"):
            pass
        if not os.stat(path).st_mode & 0o007:
            raise PermissionError("mode")


def make_device() -> None:
    with tempfile.TemporaryDirectory() as directory:
        os.mknod(os.path.join(directory, "null"), stat.S_IFCHR | 0o600, os.makedev(1, 3))


def give_away() -> None:
    file = os.memfd_create("file")
    os.fchown(file, 12345, 12345)


def join_namespace() -> None:
    file = os.open("/proc/self/ns/uts", os.O_RDONLY)
    call("setns", file, 0x04000000)


def mount() -> None:
    call("mount", b"tmpfs", b"/mnt", b"tmpfs", 0, None)
    call("umount", b"/mnt")


def set_clock() -> None:
    time.clock_settime(time.CLOCK_REALTIME, time.clock_gettime(time.CLOCK_REALTIME))


def real_time() -> None:
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))


def open_for_writing(path: str) -> None:
    os.close(os.open(path, os.O_WRONLY))


def own_group() -> str:
    with open("/proc/self/cgroup", encoding="utf-8") as file:
        path = next(line.strip().partition("::")[2] for line in file if line.startswith("0::"))
    return f"/sys/fs/cgroup{path}"


def make_group() -> None:
    path = f"{own_group()}/x"
    os.mkdir(path)
    os.rmdir(path)


def read_and_write_first() -> None:
    """Be of another class than idle, which is 3."""
    if LIBC.syscall(ctypes.c_long(252 if os.uname().machine == "x86_64" else 31), 1, 0) >> 13 == 3:
        raise PermissionError("idle")


def capabilities(kind: str) -> None:
    with open("/proc/self/status", encoding="utf-8") as file:
        found = next(line.split()[1] for line in file if line.startswith(kind))
    if not int(found, 16):
        raise PermissionError("none")


def eat_memory() -> None:
    """More memory than a job may have: what is asked of the kernel is how much that is."""
    with open(f"{own_group()}/memory.max", encoding="ascii") as file:
        most = file.read().strip()
    if most != "max" and int(most) <= 1 << 30:
        raise MemoryError(most)


def be_first() -> None:
    if os.getpriority(os.PRIO_PROCESS, 0) >= 10:
        raise PermissionError("nice")


def shared_memory() -> None:
    call("shmget", PLACES["shm_key"], 0, 0)


ATTEMPTS: dict[str, Any] = {
    # What is others': files.
    "read a home": lambda: read(PLACES["home"]),
    "read root's home": lambda: read(PLACES["root"]),
    "read /etc/shadow": lambda: read("/etc/shadow"),
    "read root's keys": lambda: read(PLACES["key"]),
    "read the offsite keys": lambda: read(PLACES["offsite_key"]),
    "read another's private file": lambda: read(PLACES["private"]),
    "read another's private file in /var": lambda: read(PLACES["private_var"]),
    "read another's /tmp": lambda: read("/tmp/.marked"),
    "read another store": lambda: read(PLACES["other_store"]),
    "read another store's sets": lambda: read(PLACES["other_sets"]),
    "read another store's records": lambda: read(PLACES["other_records"]),
    "read the store where it is": lambda: read(PLACES["real_store"]),
    "read the sets where they are": lambda: read(PLACES["real_sets"]),
    "write to /etc": lambda: write("/etc/open"),
    "write to /usr": lambda: write("/usr/local/open"),
    "write to /var": lambda: write("/var/lib/open"),
    "write to /srv": lambda: write("/srv/open"),
    "write to /home": lambda: write("/home/open"),
    "write to /run": lambda: write("/run/open"),
    "write to /tmp": lambda: write("/tmp"),
    "write to /dev/shm": lambda: write("/dev/shm"),
    "write root's records": lambda: write("/var/lib/memops"),
    "write another store's records": lambda: write(PLACES["other_state"]),
    # What is its own.
    "read the store": lambda: read(PLACES["store"]),
    "write to the store": lambda: write(PLACES["store_directory"]),
    "write records": lambda: write(PLACES["state"]),
    "read the sets": lambda: read(PLACES["sets"]),
    "write sets": lambda: write(PLACES["sets"]),
    "write to incoming": lambda: write(PLACES["incoming"]),
    "read the SQL": lambda: read(PLACES["sql"]),
    "read a part": lambda: read(PLACES["part"]),
    "read the notes": lambda: read(PLACES["notes"]),
    "write the figures": lambda: write(PLACES["figures"]),
    # Sockets.
    "IPv4": lambda: open_socket(socket.AF_INET),
    "IPv6": lambda: open_socket(socket.AF_INET6),
    "UNIX socket": lambda: open_socket(socket.AF_UNIX),
    "netlink": lambda: open_socket(socket.AF_NETLINK, socket.SOCK_RAW),
    "packets": lambda: open_socket(socket.AF_PACKET, socket.SOCK_RAW),
    "connect to this machine": lambda: connect(PLACES["listening"]),
    "connect to systemd": lambda: connect("/run/systemd/private"),
    "connect to D-Bus": lambda: connect("/run/dbus/system_bus_socket"),
    # Processes.
    "see another's process": lambda: see_process(PLACES["process_other"]),
    "see root's process": lambda: see_process(PLACES["process_root"]),
    "see the agent's process": lambda: see_process(PLACES["process_agent"]),
    "signal another's process": lambda: os.kill(PLACES["process_other"], 0),
    "signal root's process": lambda: os.kill(PLACES["process_root"], 0),
    "signal the agent's process": lambda: os.kill(PLACES["process_agent"], 0),
    "read memory of the agent's process": lambda: open_for_writing(f"/proc/{PLACES['process_agent']}/mem"),
    "read memory of root's process": lambda: open_for_writing(f"/proc/{PLACES['process_root']}/mem"),
    "process_vm_readv": lambda: there("process_vm_readv", os.getpid(), 0, 0, 0, 0, 0),
    "ptrace": lambda: system_call("ptrace", 0, 0, 0, 0),
    "shared memory": shared_memory,
    "see the machine's load": lambda: read("/proc/loadavg"),
    # Rights.
    "have a capability": lambda: capabilities("CapEff"),
    "gain a capability": lambda: capabilities("CapBnd"),
    "setuid program": exec_setuid,
    "make a setuid file": make_setuid,
    "become another user": lambda: os.setresuid(12345, 12345, 12345),
    "become root": lambda: os.setresuid(0, 0, 0) if os.getuid() else os.setgroups([0, 1]),
    "give a file away": give_away,
    "make a device": make_device,
    "make a file for all": make_for_all,
    "chroot": lambda: os.chroot("/"),
    "new user namespace": lambda: call("unshare", NEWUSER),
    "new mount namespace": lambda: call("unshare", NEWNS),
    "new network": lambda: call("unshare", NEWNET),
    "join a namespace": join_namespace,
    "mount": mount,
    "machine's network namespace": lambda: same_namespace("net"),
    "machine's user namespace": lambda: same_namespace("user"),
    "machine's IPC namespace": lambda: same_namespace("ipc"),
    # Memory and processor.
    "write and execute memory": write_and_execute,
    "i386 system call": old_system_call,
    "personality": lambda: call("personality", 0x0040000),
    "real-time": real_time,
    "set a priority": lambda: os.setpriority(os.PRIO_PROCESS, 0, os.getpriority(os.PRIO_PROCESS, 0)),
    "more than 1 GiB of memory": eat_memory,
    "go before the agent": be_first,
    "read and write before the agent": read_and_write_first,
    # The kernel.
    "set the clock": set_clock,
    "set the host's name": lambda: socket.sethostname(socket.gethostname()),
    "read the kernel's log": lambda: call("klogctl", 3, ctypes.create_string_buffer(64), 64),
    "open /dev/kmsg": lambda: os.close(os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)),
    "open a device": lambda: os.close(os.open("/dev/net/tun", os.O_RDWR)),
    "see kernel modules": lambda: read("/usr/lib/modules/marked"),
    "load a module": lambda: there("init_module", 0, 0, 0),
    "write a kernel setting": lambda: open_for_writing(PLACES["tunable"]),
    "write to a control group": make_group,
    "bpf": lambda: there("bpf", 99, 0, 0),
    "perf": lambda: there("perf_event_open", 0, 0, 0, 0, 0),
    "keyring": lambda: system_call("keyctl", 0, -4, 0, 0, 0),
    "reboot": lambda: there("reboot", 0, 0, 0, 0),
    "swap": lambda: there("swapoff", 0),
    "raw I/O": lambda: there("ioperm", 0, 0, 0),
    "io_uring": lambda: there("io_uring_setup", 0, 0),
    "userfaultfd": lambda: there("userfaultfd", 0xFFFF),
    "accounting": lambda: there("acct", 1),
    "file handles": lambda: there("open_by_handle_at", -1, 0, 0),
}


def could(attempt: Any) -> str:
    """Nothing when it returns, in a process of its own and within ten seconds; else why not."""
    seen, told = os.pipe()
    child = os.fork()
    if not child:
        os.close(seen)
        signal.alarm(10)
        try:
            attempt()
        except BaseException as error:
            with contextlib.suppress(OSError):
                os.write(told, f"{type(error).__name__}: {error}"[:200].encode())
            os._exit(1)
        os._exit(0)
    os.close(told)
    with os.fdopen(seen, "rb") as file:
        why = file.read().decode(errors="replace")
    status = os.waitpid(child, 0)[1]
    return "" if status == 0 else why or f"status {status}"


if __name__ == "__main__":
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "attempts.json"), encoding="utf-8") as places:
        PLACES.update(json.load(places))
    outcome = {name: could(ATTEMPTS[name]) for name in sys.argv[1:] or ATTEMPTS}
    print(json.dumps(outcome))
    sys.stdout.flush()
