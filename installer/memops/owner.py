"""Doing something with a store as its owner, who alone may open it.

Root opening a WAL store leaves files that lock its owner out. So root starts the system's python3 as the owner, with
the store's directory bound to the same place as for the nightly jobs, and their walls around it.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from memops import assets, host
from memops.errors import MemopsError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from memops.settings import Store

LOADER = """
import json, sys, types
given = json.load(sys.stdin)
for name, text in given["modules"].items():
    module = sys.modules[name] = types.ModuleType(name)
    module.__file__ = f"/usr/local/lib/memops/{name}.py"
    exec(compile(text, module.__file__, "exec"), module.__dict__)
"""
"""The beginning of a program that loads the modules which ``given`` brings: the library need not be installed yet, nor
need the owner be able to read where this package lies. The last one is in ``module``."""

_ANSWER = """
import sqlite3
try:
    answer = {"value": getattr(module, given["function"])(*given["arguments"])}
except (sqlite3.Error, OSError, sys.modules["store"].StoreError) as error:
    answer = {"error": str(error)}
print(json.dumps(answer))
"""


def given(names: Iterable[str], **more: Any) -> str:
    """The standard input for ``LOADER``: the library's modules of these names, in the order of their need, and more."""
    jobs = assets.jobs()
    return json.dumps({"modules": {name: jobs[f"{name}.py"] for name in names}, **more})


DENIED = (
    *("NoNewPrivileges=yes", "RestrictSUIDSGID=yes", "UMask=0077", "IPAddressDeny=any", "DevicePolicy=closed"),
    *("ProtectClock=yes", "RestrictNamespaces=yes", "RestrictRealtime=yes", "LockPersonality=yes"),
    *("MemoryDenyWriteExecute=yes", "KeyringMode=private", "SystemCallArchitectures=native"),
    # No socket: systemd-run does not know RestrictAddressFamilies=none.
    *("SystemCallFilter=@system-service", "SystemCallFilter=~@privileged @resources @keyring @network-io"),
    "SystemCallFilter=~io_uring_setup io_uring_enter io_uring_register userfaultfd process_vm_readv process_vm_writev",
    "SystemCallFilter=~kill tkill tgkill rt_sigqueueinfo rt_tgsigqueueinfo pidfd_send_signal",
    "SystemCallErrorNumber=EPERM",
)
"""What every job is denied, and does not need namespaces. See units/sandbox.j2 for the reasons."""

ROOM = (
    *("ProtectSystem=strict", "ProtectHome=yes", "PrivateTmp=yes", "PrivateDevices=yes", "PrivateNetwork=yes"),
    *("PrivateIPC=yes", "ProtectProc=ptraceable", "ProcSubset=pid", "ProtectHostname=yes", "ProtectKernelLogs=yes"),
    *("ProtectKernelModules=yes", "ProtectKernelTunables=yes", "ProtectControlGroups=yes"),
    "InaccessiblePaths=-/etc/shadow -/etc/shadow- -/etc/gshadow -/etc/gshadow-",
    "InaccessiblePaths=-/etc/ssl/private -/var/backups -/dev/shm",
    # Or the mount points would stay on the machine, which is only looked at here.
    "TemporaryFileSystem=/run",
)
"""What of it needs namespaces."""

WALLS = (*ROOM, "PrivateUsers=yes")
"""The same for a user."""

_PROBE = """
import os, sys
bound = os.path.isdir("/run/memops/probe/bin")
walled = os.statvfs("/etc").f_flag & os.ST_RDONLY
sys.exit(0 if bound and walled else 1)
"""


def has_namespaces() -> bool:
    """Whether systemd can give a service namespaces of its own here, seen from inside one.

    Its exit code alone proves nothing: with some of these settings systemd starts the job unprotected and green.
    """
    properties = ("User=nobody", "BindPaths=/usr:/run/memops/probe", *WALLS)
    ran = transient(properties, ("/usr/bin/python3", "-I", "-c", _PROBE))
    return ran.code == 0


def call(store: Store, function: str, *arguments: str, timeout: float = 120) -> Any:
    """Call a function of shape.py with the database's path and ``arguments``, and return its answer.

    Raises MemopsError with the reason when the function or the start of the process fails.
    """
    words = given(("store", "shape"), function=function, arguments=[store.seen_db, *arguments])
    ran = run(store, "/usr/bin/python3", "-I", "-c", LOADER + _ANSWER, stdin=words, timeout=timeout)
    try:
        answer = json.loads(ran.out)
    except ValueError:
        raise MemopsError(f"{store.db} could not be opened as user {store.user}: {ran.said}") from None
    if "error" in answer:
        raise MemopsError(f"{store.db}: {answer['error']}")
    return answer["value"]


def run(store: Store, *command: str, stdin: str = "", timeout: float = 120) -> host.Ran:
    """Run a command as the store's owner in a unit of its own, which sees the store at ``store.seen_db``."""
    return transient(*as_owner(store, command), stdin=stdin, timeout=timeout)


def as_owner(store: Store, command: tuple[str, ...], more: Iterable[str] = ()) -> tuple[list[str], tuple[str, ...]]:
    """The properties of a unit that runs a command as the store's owner, and the command as it is given to the unit.

    more: further properties, which come last and so decide.
    """
    properties = [*DENIED]
    if store.strict:
        properties += [f'BindPaths="{store.directory}":/run/memops/store', *WALLS]
    identity, command = as_user(store.user, command)
    return [*properties, *identity, *more], command


def as_user(user: str, command: tuple[str, ...]) -> tuple[list[str], tuple[str, ...]]:
    """The properties of a unit that make it run a command as a user, by name or by number, and that command."""
    if user.isdigit():
        # systemd runs nothing as a user without a name, so setpriv takes the step, out of the reach of PrivateUsers=.
        identity = (f"--reuid={user}", f"--regid={user}", "--clear-groups")
        rights = ["CapabilityBoundingSet=CAP_SETUID CAP_SETGID", "SystemCallFilter=@setuid capset", "PrivateUsers=no"]
        return rights, ("setpriv", *identity, *command)
    return [f"User={user}", "CapabilityBoundingSet="], command


def transient(properties: Iterable[str], command: tuple[str, ...], stdin: str = "", timeout: float = 120) -> host.Ran:
    """Run a command in a transient unit with these properties and wait for its end."""
    return host.run(*transient_words(properties, command, timeout), stdin=stdin, timeout=timeout, ok=None)


def transient_words(
    properties: Iterable[str], command: tuple[str, ...], timeout: float, unit: str = ""
) -> tuple[str, ...]:
    """The command line that does so; ``unit`` is the name that the unit has then."""
    # systemd ends it even when whoever asked is gone.
    properties = (*properties, f"RuntimeMaxSec={timeout:.0f}")
    return (
        *("systemd-run", "--quiet", "--pipe", "--wait", "--collect"),
        *((f"--unit={unit}",) if unit else ()),
        *(f"--property={text}" for text in properties),
        "--",
        # The manager expands variables in a command line.
        *(word.replace("$", "$$") for word in command),
    )
