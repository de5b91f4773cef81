"""What each job, and each unit by which a command of root's works, can do, tried from inside; and nothing else.

The long form takes each wall down, too, and sees that the attempt it is for succeeds then.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from system import profiles
from walls import WALLS

if TYPE_CHECKING:
    from system.server import Server

# fmt: off
JOBS: dict[str, set[str]] = {
    # Job → all that it can do of what is tried. A signal: it ends the programs that it starts, so it may end others of
    # its user's. The agent's jobs see what their user sees, and change their own files only. Mail is open: see its unit
    "snapshot": {
        "read the store where it is", "read the store", "write to the store", "write records", "write to incoming",
        "read the SQL", "read a part",
    },
    "backup": {
        "write root's records", "read the sets", "write sets", "write to incoming", "machine's user namespace",
    },
    "prune": {
        "read the store where it is", "read the store", "write to the store", "write records", "read the SQL",
    },
    "digest": {
        "read the store where it is", "read the store", "write to the store", "write records", "read the SQL",
    },
    "drill": {
        "read another's private file in /var", "read another store's records", "write root's records", "read the sets",
        "write sets", "have a capability", "gain a capability", "machine's user namespace",
    },
    "review": {
        "read the store where it is", "read the store", "write to the store", "write records", "read the SQL",
        "read the notes", "signal the agent's process",
    },
    "remote": {
        "read the store where it is", "write records", "write to incoming", "read the SQL", "IPv4", "IPv6",
        "UNIX socket", "connect to this machine", "signal the agent's process", "machine's network namespace",
    },
    "pause": {
        "UNIX socket", "connect to systemd", "connect to D-Bus", "machine's user namespace",
    },
    "offsite": {
        "write root's records", "read the sets", "read the SQL", "IPv4", "IPv6", "UNIX socket",
        "connect to this machine", "signal root's process", "machine's network namespace", "machine's user namespace",
    },
    "alert": {
        "read another's private file in /var", "read another store's records", "read the SQL", "signal root's process",
        "have a capability", "gain a capability", "machine's user namespace",
    },
    "mail": {
        "read a home", "read root's home", "read another's private file", "read another's private file in /var",
        "read another store", "read another store's records", "read the store where it is", "write to /var",
        "write to /srv", "write to /run", "write root's records", "write another store's records", "write records",
        "read the SQL", "IPv4", "IPv6", "UNIX socket", "netlink", "connect to this machine", "signal root's process",
        "see the machine's load", "have a capability", "gain a capability", "setuid program", "make a setuid file",
        "become another user", "become root", "give a file away", "machine's network namespace",
        "machine's user namespace", "write and execute memory", "set a priority", "go before the agent",
        "read and write before the agent",
    },
    "ping": {
        "read the SQL", "IPv4", "IPv6", "connect to this machine", "machine's network namespace",
    },
    "metrics": {
        "read another's private file in /var", "read another store's records", "read the SQL", "write the figures",
        "UNIX socket", "connect to systemd", "connect to D-Bus", "signal root's process", "have a capability",
        "gain a capability", "make a file for all", "machine's user namespace",
    },
}
COMMANDS: dict[str, set[str]] = {
    # The same for the commands, by what they do.
    "desk": {
        "read the store where it is", "read the store", "write to the store", "write records", "read the SQL",
        "go before the agent", "read and write before the agent",
    },
    "erase": {
        "read the store where it is", "read the store", "write to the store", "write records", "read the SQL",
        "read a part", "read the notes", "go before the agent", "read and write before the agent",
    },
    "reading": {
        "read the store where it is", "read the store", "write to the store", "read the SQL", "go before the agent",
        "read and write before the agent",
    },
    "restore-servers": {
        "read the store where it is", "read the store", "write to the store", "read the SQL", "IPv4", "IPv6",
        "UNIX socket", "connect to this machine", "see the agent's process", "signal the agent's process",
        "read memory of the agent's process", "machine's network namespace", "machine's user namespace",
        "go before the agent", "read and write before the agent",
    },
    "restore": {
        "read the store where it is", "read the store", "write to the store", "read the SQL", "see the agent's process",
        "read memory of the agent's process", "machine's user namespace", "go before the agent",
        "read and write before the agent",
    },
    "scan": {
        "read the store where it is", "read the store", "write to the store", "read the SQL", "read the notes",
        "read and write before the agent",
    },
    "notes": {
        "read the store where it is", "read the SQL", "read the notes", "signal the agent's process",
        "read and write before the agent",
    },
    "number": {
        "read the store where it is", "read the store", "write to the store", "read the SQL", "see the agent's process",
        "read memory of the agent's process", "gain a capability", "machine's user namespace", "go before the agent",
        "read and write before the agent",
    },
    "fetch": {
        "read another's private file in /var", "read another store's records", "write root's records", "read the sets",
        "write sets", "have a capability", "gain a capability", "machine's user namespace",
    },
    "verify": {
        "write root's records", "read the sets", "machine's user namespace",
    },
    "erase-sets": {
        "write root's records", "read the sets", "machine's user namespace",
    },
    "remove-sets": {
        "write root's records", "read the sets", "write sets", "machine's user namespace",
    },
}
# fmt: on
NOT_HERE = {
    "set the clock": "these servers may not set their machine's",
    "read the kernel's log": "nor read its kernel's log",
    "open /dev/kmsg": "which is not there",
    "load a module": "these servers may not load a module",
    "write a kernel setting": "all of /proc/sys is read-only on them",
    "bpf": "these servers are refused it",
    "perf": "these servers are refused it",
    "keyring": "these servers are refused it",
    "swap": "these servers are refused it",
    "raw I/O": "these servers are refused it",
    "accounting": "these servers are refused it",
    "file handles": "these servers are refused it",
    "more than 1 GiB of memory": "these servers have no such limits",
}
"""What even root without any walls cannot do on a server of the tests, and so nothing here can show."""


OFF = {"IPAddressDeny": "IPAddressDeny=", "DevicePolicy": "DevicePolicy=auto"}
"""How to take down what has no attempt of its own."""


def could(found: dict[str, dict[str, str]]) -> dict[str, set[str]]:
    """Word → the attempts that came to something."""
    return {word: {name for name, why in outcome.items() if not why} for word, outcome in found.items()}


def test_nothing_can_do_more_than_it_must(memops_server: Server) -> None:
    server = memops_server
    store = profiles.prepare(server)
    bare = could(profiles.bare(server))
    found = profiles.run(server, profiles.units(store))
    assert could(found) == JOBS
    commands = profiles.run_commands(server)
    assert could(commands) == COMMANDS
    # What is denied is denied by the walls: without them it can be done here.
    attempts = set(found["prune"])
    own = set.union(*JOBS.values(), *COMMANDS.values())
    assert attempts - bare["bare-root"] - bare["bare-agent"] - own == NOT_HERE.keys()
    # A call that is not allowed fails, and does not end the program.
    assert "PermissionError" in found["prune"]["ptrace"]

    if os.environ.get("MEMOPS_LONG"):
        tried = profiles.run_without(server, store, WALLS, OFF)
        assert {name for name, (with_it, _) in tried.items() if not with_it} == set(), "denied by no wall"
        assert {name: why for name, (_, why) in tried.items() if why} == {}, "denied by another wall, too"
