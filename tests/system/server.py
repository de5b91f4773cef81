"""Throwaway Debian servers: real systemd, real timers, a real journal.

``with Server("debian12") as server: server.run("systemctl", "--failed")``
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar

from system import images, sandbox

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

T = TypeVar("T")

PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

_SQL: Final = """
import json, sqlite3, sys
given = json.load(sys.stdin)
connection = sqlite3.connect(given["db"], timeout=10)
connection.execute("PRAGMA foreign_keys = ON")
if given["many"] is not None:
    with connection:
        rows = connection.executemany(given["sql"], given["many"]).fetchall()
elif given["script"]:
    rows = connection.executescript(given["sql"]).fetchall()
else:
    with connection:
        rows = connection.execute(given["sql"]).fetchall()
connection.close()
json.dump(rows, sys.stdout)
"""


@dataclass(frozen=True)
class Result:
    """What a command said and how it ended."""

    stdout: str
    stderr: str
    code: int


class CommandError(AssertionError):
    """A command on a server failed; ``result`` is what it said."""

    def __init__(self, command: Sequence[str], result: Result) -> None:
        super().__init__(f"{shlex.join(command)} ended with {result.code}\n{result.stdout}{result.stderr}")
        self.result = result


class Server:
    """A Debian server, from ``start`` to ``close``; its disk lasts as long.

    suite: ``debian12`` or ``debian13``.
    layers: directories of the disk, lowest first (see ``images``); a fresh VPS when not given.
    nspawn: further options of systemd-nspawn, such as ``--system-call-filter=~unshare``.
    """

    running: ClassVar[list[Server]] = []
    """The servers that run at the moment."""

    def __init__(self, suite: str, layers: tuple[Path, ...] = (), nspawn: Sequence[str] = ()) -> None:
        self.suite = suite
        self._nspawn = tuple(nspawn)
        self._sandbox = sandbox.Sandbox(layers or (images.base(suite),))
        self._log = self._sandbox.path / "console"
        self._process: subprocess.Popen[bytes] | None = None
        self._pid = 0
        self._capabilities = ""

    def __enter__(self) -> Server:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Boot, and wait until systemd has started everything."""
        with self._log.open("ab") as output:
            self._process = self._sandbox.start("--boot", *self._nspawn, output=output)
        try:
            self._pid = self.wait_until(self._find_systemd)
        except AssertionError:
            raise AssertionError(f"{self.suite} did not boot:\n{self._log.read_text(errors='replace')}") from None
        status = Path(f"/proc/{self._pid}/status").read_text()
        bounding = int(status.partition("CapBnd:")[2].split()[0], 16)
        last = int(Path("/proc/sys/kernel/cap_last_cap").read_text())
        # A command started from outside would otherwise have rights that nothing in a server has: to set this
        # machine's clock, for one.
        self._capabilities = ",".join(f"-cap_{number}" for number in range(last + 1) if not bounding >> number & 1)
        Server.running.append(self)
        state = self.run("systemctl", "is-system-running", "--wait", check=False).stdout.strip()
        # With options that take something away from it, a server cannot start everything.
        if state != "running" and not (self._nspawn and state == "degraded"):
            raise AssertionError(f"{self.suite} is {state}:\n{self.run('systemctl', '--failed', '--no-pager').stdout}")

    def _find_systemd(self) -> int:
        assert self._process is not None
        if self._process.poll() is not None:
            raise AssertionError("nspawn ended")
        for nspawn in sandbox.children(self._process.pid):
            for pid in sandbox.children(nspawn):
                if Path(f"/proc/{pid}/root/run/systemd/private").exists():
                    return pid
        return 0

    def stop(self) -> None:
        """Shut down in order, as ``poweroff`` does. ``start`` boots the same disk again."""
        os.kill(self._pid, signal.SIGRTMIN + 4)
        self._wait_for_the_end()

    def reboot(self) -> None:
        """Reboot in order."""
        self.run("systemctl", "reboot", check=False)
        self._wait_for_the_end()
        self.start()

    def _wait_for_the_end(self) -> None:
        assert self._process is not None
        self._process.wait(timeout=120)
        self._forget()

    def cut_power(self) -> None:
        """End everything on it at once. ``start`` boots the same disk again."""
        if self._process is not None:
            self._sandbox.kill(self._process)
            self._forget()

    def _forget(self) -> None:
        self._process = None
        self._pid = 0
        with contextlib.suppress(ValueError):
            Server.running.remove(self)

    def close(self) -> None:
        """End it and delete its disk."""
        self.cut_power()
        self._sandbox.remove()

    def run(
        self,
        *command: str,
        input: str | None = None,  # noqa: A002  (its name in subprocess)
        check: bool = True,
        user: str | None = None,
        tty: bool = False,
        env: dict[str, str] | None = None,
        timeout: float = 120,
    ) -> Result:
        """Run a command on the server, in / with a short clean environment.

        input: its standard input, which is empty otherwise. check: raise CommandError when it fails.
        user: a name or a number; root when not given. env: added to the environment.
        tty: give it a terminal; what was typed (``input``) and all output are in ``stdout`` then.
        timeout: seconds, after which subprocess.TimeoutExpired is raised.
        """
        process = self.popen(*command, user=user, tty=tty, env=env, empty_input=input is None)
        try:
            stdout, stderr = process.communicate(input, timeout=timeout)
        except BaseException:
            # Its children may hold the pipes open, so there is no waiting for the end of the output.
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout, process.stderr):
                if pipe is not None:
                    pipe.close()
            raise
        result = Result(stdout.replace("\r\n", "\n") if tty else stdout, stderr, process.returncode)
        if check and result.code:
            raise CommandError(command, result)
        return result

    def popen(
        self,
        *command: str,
        user: str | None = None,
        tty: bool = False,
        env: dict[str, str] | None = None,
        empty_input: bool = True,
    ) -> subprocess.Popen[str]:
        """Start a command as ``run`` does, without waiting for it."""
        if tty:
            command = ("script", "--quiet", "--return", "--command", shlex.join(command), "/dev/null")
        home, identity = ("/root", ()) if user is None else self._identity(user)
        variables = {"PATH": PATH, "LANG": "C.UTF-8", "TERM": "dumb", "HOME": home, "USER": user or "root"} | (
            env or {}
        )
        return subprocess.Popen(
            [
                "nsenter", f"--target={self._pid}", "--all", "env", "--ignore-environment",
                *(f"{name}={value}" for name, value in variables.items()),
                "setpriv", f"--bounding-set={self._capabilities}", *identity, *command,
            ],
            stdin=subprocess.DEVNULL if empty_input else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="replace",
        )  # fmt: skip

    def _identity(self, user: str) -> tuple[str, tuple[str, ...]]:
        entry = self.run("getent", "passwd", user, check=not user.isdecimal()).stdout.strip().split(":")
        if len(entry) < 7:
            return "/", (f"--reuid={user}", f"--regid={user}", "--clear-groups")
        return entry[5], (f"--reuid={entry[2]}", f"--regid={entry[3]}", "--init-groups")

    def sh(self, script: str, **options: Any) -> Result:
        """Run a shell script that ends at the first error; ``options`` are those of ``run``."""
        return self.run("sh", "-euc", script, **options)

    def read(self, path: str) -> str:
        """The text of a file."""
        return self.run("cat", "--", path).stdout

    def write(self, path: str, text: str, mode: int = 0o644, owner: str = "root") -> None:
        """Write a file anew."""
        script = 'rm -f -- "$1"; (umask 077; cat >"$1"); chown "$3" -- "$1"; chmod "$2" -- "$1"'
        self.run("sh", "-euc", script, "sh", path, f"{mode:o}", owner, input=text)

    def exists(self, path: str) -> bool:
        """Whether something is there, if only a dangling link."""
        return self.run("sh", "-c", '[ -e "$1" ] || [ -L "$1" ]', "sh", path, check=False).code == 0

    def copy_in(self, local: Path, remote: str) -> None:
        """Copy a file or a directory of this machine to ``remote``, which it becomes; owned by root."""
        self.run("mkdir", "--parents", "--", remote if local.is_dir() else str(Path(remote).parent))
        if local.is_dir():
            self._feed(
                ["tar", "--directory", str(local), "--exclude=__pycache__", "--owner=0", "--group=0", "-cf-", "."],
                ["tar", "--directory", remote, "-xf-"],
            )
        else:
            self._feed(["cat", "--", str(local)], ["sh", "-c", 'cat >"$1"', "sh", remote])
            self.run("chmod", f"{local.stat().st_mode & 0o777:o}", "--", remote)

    def _feed(self, source: list[str], target: list[str]) -> None:
        with subprocess.Popen(source, stdout=subprocess.PIPE) as producer:
            subprocess.run(
                ["nsenter", f"--target={self._pid}", "--all", *target], stdin=producer.stdout, check=True, timeout=120
            )
        if producer.returncode:
            raise CommandError(source, Result("", "", producer.returncode))

    def sql(
        self,
        db: str,
        statement: str,
        *,
        user: str = "agent",
        many: Sequence[Sequence[Any]] | None = None,
        script: bool = False,
    ) -> list[list[Any]]:
        """Run one statement on a database as ``user`` and return its rows.

        many: run it once for each of these parameter lists, in one transaction. script: it is several statements.
        """
        given = json.dumps({"db": db, "sql": statement, "many": many, "script": script})
        rows: list[list[Any]] = json.loads(self.run("python3", "-Ic", _SQL, input=given, user=user).stdout)
        return rows

    def show(self, unit: str, *properties: str) -> dict[str, str]:
        """Properties of a unit, as systemd has them."""
        lines = self.run("systemctl", "show", f"--property={','.join(properties)}", "--", unit).stdout.splitlines()
        return dict(line.split("=", 1) for line in lines)

    def journal(self, unit: str | None = None) -> str:
        """The messages of the journal, of one unit or of all, oldest first."""
        chosen = [f"--unit={unit}"] if unit else []
        return self.run("journalctl", "--no-pager", "--quiet", "--output=cat", *chosen).stdout

    def wait_until(self, predicate: Callable[[], T], timeout: float = 30) -> T:
        """Ask until the answer is true, and return it; AssertionError when it never is."""
        end = time.monotonic() + timeout
        while not (answer := predicate()):
            if time.monotonic() > end:
                raise AssertionError(f"still not so after {timeout:g} s")
            time.sleep(0.05)
        return answer

    def report(self) -> str:
        """The end of its journal since it had booted, for the report of a failed test."""
        lines = self.run("journalctl", "--no-pager", "--quiet", check=False, timeout=20).stdout
        return "\n".join(lines.rpartition("Startup finished in")[2].splitlines()[-80:])


def install_command(server: Server) -> None:
    """Copy the checkout to /root/memops and let its scripts/install put the command on PATH, from local wheels."""
    copy_checkout(server)
    server.copy_in(images.wheelhouse(), "/root/wheels")
    server.run("/root/memops/scripts/install", "--command-only", env=OFFLINE, timeout=300)


OFFLINE: Final = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "/root/wheels"}
"""The environment in which pip takes wheels from where ``install_command`` puts them, and from nowhere else."""


def copy_checkout(server: Server, remote: str = "/root/memops") -> None:
    """Copy what a clean clone holds of the product to the server."""
    for name in images.SOURCES:
        if (images.ROOT / name).exists():
            server.copy_in(images.ROOT / name, f"{remote}/{name}")
