"""Every directive of the units that is a wall → what it alone denies, and which other walls deny the same."""

from __future__ import annotations

from typing import NamedTuple


class Wall(NamedTuple):
    """What shows that a directive does something.

    attempt: what can be done when it is taken down, by its name in system/attempts.py. off: how it is taken down.
    job: where. others: directives that deny the same, which are taken down both times.
    """

    attempt: str
    off: str
    job: str = "backup"
    others: tuple[str, ...] = ()


WALLS = {
    "User": Wall("read root's keys", "User=root", "prune"),
    "DynamicUser": Wall("read root's keys", "DynamicUser=no", "ping"),
    "CapabilityBoundingSet": Wall("read another's private file in /var", "CapabilityBoundingSet=~"),
    "NoNewPrivileges": Wall("setuid program", "NoNewPrivileges=no"),
    "RestrictSUIDSGID": Wall("make a setuid file", "RestrictSUIDSGID=no"),
    "UMask": Wall("make a file for all", "UMask=0022"),
    "RestrictAddressFamilies": Wall("IPv4", "RestrictAddressFamilies="),
    "PrivateNetwork": Wall(
        "connect to this machine", "PrivateNetwork=no", others=("RestrictAddressFamilies", "IPAddressDeny")
    ),
    "ProtectSystem": Wall("write to /etc", "ProtectSystem=no"),
    "ReadOnlyPaths": Wall("write to /run", "ReadOnlyPaths="),
    "ProtectHome": Wall("read a home", "ProtectHome=no"),
    "PrivateTmp": Wall("read another's /tmp", "PrivateTmp=no"),
    "InaccessiblePaths": Wall("read /etc/shadow", "InaccessiblePaths="),
    "PrivateDevices": Wall("open a device", "PrivateDevices=no", others=("DevicePolicy",)),
    "ProtectProc": Wall("see root's process", "ProtectProc=default"),
    "ProcSubset": Wall("see the machine's load", "ProcSubset=all"),
    "PrivateUsers": Wall("read memory of the agent's process", "PrivateUsers=no", "prune"),
    "PrivateIPC": Wall("shared memory", "PrivateIPC=no"),
    "ProtectHostname": Wall(
        "set the host's name", "ProtectHostname=no", others=("CapabilityBoundingSet", "SystemCallFilter")
    ),
    "ProtectKernelModules": Wall("see kernel modules", "ProtectKernelModules=no"),
    "ProtectControlGroups": Wall("write to a control group", "ProtectControlGroups=no"),
    "RestrictNamespaces": Wall("new user namespace", "RestrictNamespaces=no"),
    "RestrictRealtime": Wall("real-time", "RestrictRealtime=no", others=("CapabilityBoundingSet", "SystemCallFilter")),
    "LockPersonality": Wall("personality", "LockPersonality=no"),
    "MemoryDenyWriteExecute": Wall("write and execute memory", "MemoryDenyWriteExecute=no"),
    "SystemCallArchitectures": Wall("i386 system call", "SystemCallArchitectures="),
    "SystemCallFilter": Wall("signal root's process", "SystemCallFilter="),
    "BindReadOnlyPaths": Wall(
        "write sets", "BindReadOnlyPaths=\nBindPaths=/srv/backup/default:/run/memops/sets", "offsite"
    ),
    "Nice": Wall("go before the agent", "Nice=0"),
    "IOSchedulingClass": Wall("read and write before the agent", "IOSchedulingClass=best-effort"),
}

UNPROVEN = {
    "IPAddressDeny": "the servers of the tests may not load what it works by",
    "DevicePolicy": "the same",
    "ProtectClock": "they may not set their machine's clock",
    "ProtectKernelLogs": "they may not read their machine's log",
    "ProtectKernelTunables": "all of /proc/sys is read-only on them",
    "KeyringMode": "they are refused the system calls",
    "MemoryMax": "they have no limits of their own",
    "SystemCallErrorNumber": "it denies nothing; that an attempt says why is due to it",
}
"""Directives that no attempt on a server of the tests can show, and why. systemd-analyze looks at most of them."""

NO_WALLS = {
    *(
        "Type",
        "ExecStart",
        "ExecStop",
        "RemainAfterExit",
        "TimeoutStartSec",
        "TimeoutStopSec",
        "TimeoutSec",
        "KillMode",
    ),
    *("Slice", "LogLevelMax", "StandardInput", "EnvironmentFile", "LoadCredential"),
    # What a job may reach: in system/test_profiles.py.
    *("BindPaths", "ReadWritePaths", "TemporaryFileSystem"),
}
"""Directives that deny nothing."""
