"""What each unit can do of all that ``attempts.py`` tries, and what each setting of a unit is there to deny.

One table for both profiles: strict, and the one for machines where systemd gives services no namespaces.
"""

from __future__ import annotations

ROOTS = {"read a key of root's"}
"""Root's own files, which a job of root's can read and has nobody to tell."""

SETS = {*ROOTS, "read the sets", "read another store's sets"}
OWNERS = {"read the store", "write the store"}
"""Readers of a database, too, make -wal and -shm beside it."""

CAPABLE = {"have a capability", "gain a capability"}
NETWORK = {"make an internet socket", "reach the loopback"}
SYSTEMD = {"make a local socket", "reach a local socket"}

STRICT: dict[str, set[str]] = {
    # Jobs of the store's user.
    "memory-prune.service": {*OWNERS, "write its records"},
    "memory-digest.service": {*OWNERS, "write its records"},
    "memory-review.service": {*OWNERS, "write its records"},
    # Its copies are for the group of the incoming directory.
    "memory-snapshot.service": {*OWNERS, "write its records", "leave its files open to others"},
    # The one job of the user's that has a network.
    "memory-remote.service": {
        *(NETWORK | SYSTEMD), "reach an abstract socket", "read the store", "write its records",
        "leave its files open to others",
    },
    # Jobs of root's, without a capability but for reading.
    "memory-backup.service": {*SETS, "write the sets", "write root's records"},
    "memory-drill.service": {*SETS, *CAPABLE, "write the sets", "write root's records", "read another store's records"},
    "memory-offsite.service": {*SETS, *NETWORK, *SYSTEMD, "reach an abstract socket", "write root's records"},
    "memory-alert@.service": {*ROOTS, *CAPABLE, "read another store's records"},
    "memory-metrics.service": {
        *(ROOTS | CAPABLE | SYSTEMD), "read another store's records", "leave its files open to others",
    },
    "memory-pause.service": {*ROOTS, *SYSTEMD, "write in /run/memops"},
    # Nobody's.
    "memory-ping@.service": NETWORK,
    # Open as far as mail programs need it.
    "memory-mail@.service": {
        *(ROOTS | CAPABLE | NETWORK | SYSTEMD), "change its priority", "give a file to somebody",
        "write memory that all share",
        "make a kernel socket", "make a program that runs as its owner", "reach an abstract socket", "read a home",
        "read another store's records", "read of the machine in /proc", "read root's home", "share memory",
        "write and run memory", "write in /run/memops", "write in /srv", "write in /var",
    },
    # What commands start as the store's user.
    "shape.py": OWNERS,
    "desk.py": {*OWNERS, "write its records"},
    "scan.py": OWNERS,
    "erase.py": {*OWNERS, "write its records"},
    "comparison.py list": OWNERS,
    "restore.py prepare": {*OWNERS, "give a file to somebody"},
    "restore.py settle": {*OWNERS, "give a file to somebody"},
    "notes.py": {"read the store"},
    # And as root.
    "erase_sets.py": SETS,
    "setdir.py list": SETS,
    "setdir.py verify": {*SETS, "write root's records"},
    "comparison.py compare": SETS,
    "setcopy.py send": SETS,
}  # fmt: skip

# Without namespaces: what the user that a job runs as could do anyway.

ANYBODY = {
    "write memory that all share",
    "read a home", "read of the machine in /proc", "read root's home", "see a device", "see other users' processes",
    "see the temporary files of others", "share memory", "write in /etc", "write in /srv", "write in /usr",
    "write in /var",
}  # fmt: skip
"""Where rights and owners let anybody."""

OWNER = {*OWNERS, "write its records"}
ROOT = {*SETS, "read passwords", "write in /run/memops", "write root's records", "write the sets"}


def _reduced(name: str, strict: set[str]) -> set[str]:
    if name == "memory-ping@.service":  # setpriv takes the step to nobody, and has the capabilities for that
        return {*strict, *ANYBODY, "gain a capability"}
    if not strict & ROOTS:
        return {*strict, *ANYBODY, *OWNER}
    more = {"read the store", "read another store's records"} if "have a capability" in strict else set()
    if name in ("memory-mail@.service", "memory-metrics.service"):  # which may write whose file it is
        more |= OWNER
    if "make a local socket" in strict:
        more.add("reach an abstract socket")
    return {*strict, *ANYBODY, *ROOT, *more}


REDUCED = {name: _reduced(name, strict) for name, strict in STRICT.items()}

DENIES: dict[str, dict[str, set[str]]] = {
    "memory-prune.service": {
        "CapabilityBoundingSet": {"gain a capability"},
        "LockPersonality": {"take another personality"},
        "MemoryDenyWriteExecute": {"write and run memory"},
        "PrivateDevices": {"see a device"},
        "InaccessiblePaths": {"write memory that all share"},
        "PrivateIPC": {"share memory"},
        "PrivateTmp": {"see the temporary files of others"},
        "ProcSubset": {"read of the machine in /proc"},
        "ProtectHome": {"read a home", "read root's home"},
        "ProtectProc": {"see other users' processes"},
        "ProtectSystem": {"write in /etc", "write in /srv", "write in /usr", "write in /var"},
        "RestrictAddressFamilies": {"make an internet socket", "make a local socket", "make a kernel socket"},
        "RestrictNamespaces": {"make a user namespace"},
        "RestrictSUIDSGID": {"make a program that runs as its owner"},
        "SystemCallFilter": {"change its priority", "give a file to somebody", "trace"},
        "UMask": {"leave its files open to others"},
    },
    "memory-backup.service": {
        "InaccessiblePaths": {"read passwords"},
        "CapabilityBoundingSet": {"have a capability", "read another store's records", "see other users' processes"},
        "ProtectControlGroups": {"change a control group"},
        "ReadOnlyPaths": {"write in /run/memops"},
    },
    "memory-metrics.service": {
        "InaccessiblePaths": {"read the sets", "read another store's sets", "read the store"},
        "PrivateNetwork": {"reach an abstract socket"},
    },
}
"""Unit → setting → what comes through in that unit without it, and with all other settings."""

SECOND = {
    "NoNewPrivileges": "systemd sets it for every unit of a user's that has a filter of system calls",
    "PrivateUsers": "rights and owners deny the same; it hides who they are",
    "IPAddressDeny": "no socket is made, and none leads out of the network of its own",
    "DevicePolicy": "no device but these is in /dev",
    "ProtectClock": "no capability, and the filter of system calls",
    "RestrictRealtime": "no capability, and no limit above zero",
    "SystemCallArchitectures": "the filter has the calls of each architecture; a test has no program of another one",
    "SystemCallErrorNumber": "what a refused call ends with, instead of the job",
    "KeyringMode": "a system service has no session's keyring to begin with",
    "ProtectHostname": "no capability, and the filter of system calls",
    "ProtectKernelLogs": "no capability, and no device",
    "ProtectKernelModules": "no capability, and the filter of system calls",
    "ProtectKernelTunables": "a container has these read-only, and so has a user without rights",
    "BindPaths": "opens", "BindReadOnlyPaths": "opens", "ReadWritePaths": "opens", "TemporaryFileSystem": "opens",
    "IPAddressAllow": "opens", "LoadCredential": "opens",
    "EnvironmentFile": "opens", "StandardInput": "opens", "DynamicUser": "opens",
    "MemoryMax": "a limit, seen in systemctl show", "Nice": "courtesy", "IOSchedulingClass": "courtesy",
    "LogLevelMax": "courtesy", "Slice": "tidiness", "KillMode": "what is told to stop",
    "TimeoutStopSec": "what is told to stop",
}  # fmt: skip
"""Settings that nothing can be told from by leaving out only them: what denies the same, or what they are for."""
