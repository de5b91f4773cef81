"""What every job and every unit that a command starts is denied: one list, for unit files and for systemd-run.

Where a machine gives services no namespaces, ``ROOM`` is left out: systemd would either refuse to start the job, or run
it as if nothing had been asked.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Wall:
    """Settings of one purpose as a unit file has them, and what they are for."""

    why: str
    settings: tuple[str, ...]


DENIED = (
    Wall("No capability, and no way to gain one.", ("CapabilityBoundingSet=", "NoNewPrivileges=yes")),
    Wall("No file that runs with its owner's rights is made.", ("RestrictSUIDSGID=yes",)),
    Wall("No socket of any kind, and no packet.", ("RestrictAddressFamilies=none", "IPAddressDeny=any")),
    Wall(
        "No device but null, zero, full, random and terminals; no clock is set.",
        ("DevicePolicy=closed", "ProtectClock=yes"),
    ),
    Wall("No new namespace, in which it would be root.", ("RestrictNamespaces=yes",)),
    Wall("No time slice that nobody else gets.", ("RestrictRealtime=yes",)),
    Wall("No other kernel's or machine's system calls.", ("LockPersonality=yes", "SystemCallArchitectures=native")),
    Wall("No memory that is written and run.", ("MemoryDenyWriteExecute=yes",)),
    Wall("No key of anybody's keyring.", ("KeyringMode=private",)),
    Wall(
        "No system call that a job has no use for: mounts, tracing, modules, other users, limits. It gets EPERM.",
        (
            "SystemCallFilter=@system-service",
            "SystemCallFilter=~@privileged @resources @keyring",
            "SystemCallFilter=~io_uring_setup io_uring_enter io_uring_register process_vm_readv process_vm_writev",
            "SystemCallErrorNumber=EPERM",
        ),
    ),
)
"""What needs no namespaces."""

ROOM = (
    Wall(
        "All of the file system is read-only, but for what is named here; strict alone may leave /run to root.",
        ("ProtectSystem=strict", "ReadOnlyPaths=/run"),
    ),
    Wall(
        "Root's own secrets are out of sight, and memory that any process may share.",
        (
            "InaccessiblePaths=-/etc/shadow -/etc/shadow- -/etc/gshadow -/etc/gshadow-",
            "InaccessiblePaths=-/etc/ssl/private -/var/backups -/dev/shm",
        ),
    ),
    Wall("/home, /root and /run/user are empty.", ("ProtectHome=yes",)),
    Wall("Temporary files are its own, and go with it.", ("PrivateTmp=yes",)),
    Wall("/dev has the pseudo devices only.", ("PrivateDevices=yes",)),
    Wall("The network is one of its own, with nothing on it.", ("PrivateNetwork=yes",)),
    Wall(
        "Of /proc it sees its own processes only; invisible would show all of them to the group root.",
        ("ProtectProc=ptraceable", "ProcSubset=pid"),
    ),
    Wall("No message queue or memory is shared with others.", ("PrivateIPC=yes",)),
    Wall("The host's name stays.", ("ProtectHostname=yes",)),
    Wall(
        "The kernel: its log, modules, settings and groups of processes.",
        ("ProtectKernelLogs=yes", "ProtectKernelModules=yes", "ProtectKernelTunables=yes", "ProtectControlGroups=yes"),
    ),
)
"""What needs them."""

LIMIT = Wall("What the agent can write must not make a job eat the machine's memory.", ("MemoryMax=1G",))
BEHIND = Wall("The agent comes first.", ("Nice=10", "IOSchedulingClass=idle"))

NO_SOCKET = ("RestrictAddressFamilies=none", "SystemCallFilter=~@network-io")
"""systemd-run does not know the first; the second is as good, after what the filter lets through."""


def properties(*, strict: bool) -> list[str]:
    """The same as properties of a transient unit. strict: the machine has namespaces."""
    given = [each for wall in (*DENIED, *(ROOM if strict else ()), LIMIT) for each in wall.settings]
    given.remove(NO_SOCKET[0])
    if strict:
        # Or the mount points would stay on the machine; beside the other setting systemd leaves this one out.
        given.remove("ReadOnlyPaths=/run")
        given.append("TemporaryFileSystem=/run:ro")
    return [*given, NO_SOCKET[1], "UMask=0077"]
