"""What still holds where systemd gives services no namespaces, tried from inside as in test_profiles.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from system import profiles
from system.test_profiles import COMMANDS, JOBS, could

if TYPE_CHECKING:
    from system.server import Server

ALTERNATE = True  # each test on one Debian, all on both in the long form

ALL = {
    # Nobody is in a room of its own,
    *("machine's network namespace", "machine's user namespace", "machine's IPC namespace", "shared memory"),
    *("see another's process", "see root's process", "see the agent's process", "see the machine's load"),
    # so everybody reads and writes what is open to all.
    *("read a home", "read another's /tmp", "read the SQL", "see kernel modules", "write to /etc", "write to /usr"),
    *("write to /var", "write to /srv", "write to /home", "write to /run", "write to /tmp", "write to /dev/shm"),
}
AGENT = {
    # All that is the agent's.
    *("read the store", "write to the store", "write records", "write to incoming", "read a part", "read the notes"),
    "read memory of the agent's process",
}
ROOT = {
    # All that is root's.
    *(
        "read root's home",
        "read /etc/shadow",
        "read root's keys",
        "read the offsite keys",
        "read another store's sets",
        "write root's records",
    ),
    *("read the sets", "write sets", "write to incoming", "write the figures", "open a device"),
    "write to a control group",
}
READS_ALL = {
    *("read another's private file", "read another's private file in /var", "read another store", "read the store"),
    *("read another store's records", "read a part", "read the notes"),
}
WRITES_ALL = {"write another store's records", "write to the store", "write records"}
OPEN = {
    "remote": AGENT | {"connect to D-Bus"},
    "restore-servers": AGENT | {"connect to D-Bus"},
    "ping": set(),
    "drill": ROOT | READS_ALL,
    "alert": ROOT | READS_ALL,
    "fetch": ROOT | READS_ALL,
    "offsite": ROOT | {"connect to systemd", "connect to D-Bus"},
    "mail": ROOT | READS_ALL | WRITES_ALL | {"connect to systemd", "connect to D-Bus"},
    "metrics": ROOT | READS_ALL | WRITES_ALL,
}
"""Word → what stands open besides, where that is not all of the agent's or of root's."""
OF_ROOT = ("backup", "pause", "verify", "erase-sets", "remove-sets")
STRICT_ONLY = {"read the store where it is", "read the sets where they are"}


def test_what_holds_without_namespaces(without_namespaces: Server) -> None:
    server = without_namespaces
    store = profiles.prepare(server)
    assert not store.strict
    found = could({**profiles.run(server, profiles.units(store)), **profiles.run_commands(server)})
    for word, strict in {**JOBS, **COMMANDS}.items():
        more = OPEN.get(word, ROOT if word in OF_ROOT else AGENT)
        assert found[word] == (strict - STRICT_ONLY) | ALL | more, word
