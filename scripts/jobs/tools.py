"""Run the programs that hand sets over, restic and rclone: what they get, how they end, what is shown of them."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import signal
import subprocess
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, urlsplit

import store

import job

if TYPE_CHECKING:
    from collections.abc import Mapping

    import census

GRACE: Final = 15.0
"""Seconds that a tool gets to end when it is told to."""

_NOT_SECRET: Final = re.compile(
    r"PATH|LANG|LC_\w+|TZ|HOME|USER|LOGNAME|SHELL|INVOCATION_ID|JOURNAL_STREAM|SYSTEMD_\w+|TRIGGER_\w+|MONITOR_\w+"
    r"|MEMORY_PRESSURE_\w+|\w+_(TYPE|PROVIDER|REGION)"
)
"""What systemd sets, and what only says how a place is spoken to."""


@dataclasses.dataclass(frozen=True)
class Ran:
    """A program that ended."""

    code: int
    out: str
    err: str


class Tool:
    """Runs one program: the environment that it gets, and the words that it ends with."""

    def __init__(self, name: str, directory: str, limit: census.Limit, environment: Mapping[str, str]) -> None:
        """``directory`` is a private one for whatever the program wants to write."""
        self.name, self._limit = name, limit
        self._secrets = secrets(environment)
        self._environment = {
            # rclone keeps its configuration in memory then, unless root's file names another one.
            "RCLONE_CONFIG": os.devnull,
            **environment,
            "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "LC_ALL": "C.UTF-8",
            "TZ": "UTC",
            "HOME": directory,
            "XDG_CACHE_HOME": directory,
            "XDG_CONFIG_HOME": directory,
            "TMPDIR": directory,
            "RESTIC_CACHE_DIR": f"{directory}/restic",
            "RESTIC_PROGRESS_FPS": "0.01",
        }

    def run(self, *arguments: str, cwd: str | None = None) -> Ran:
        """Run the program with ``arguments`` to its end, which is near when the time is over. Raises JobError."""
        try:
            process = subprocess.Popen(
                [self.name, *arguments],
                cwd=cwd,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                start_new_session=True,
            )
        except FileNotFoundError:
            raise job.JobError(
                f"the program {self.name} is not on this machine; install the Debian package {self.name}:"
                f" sudo apt-get install {self.name}"
            ) from None
        with process:
            try:
                while True:
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        out, err = process.communicate(timeout=0.2)
                        break
                    self._limit.check()
            except BaseException:
                end(process)
                raise
        if process.returncode:
            # Who tells this job to stop may have told the program as well, which then says nothing of use.
            self._limit.check()
        return Ran(process.returncode, out, err)

    def done(self, *arguments: str, what: str, cwd: str | None = None) -> str:
        """As ``run``, and return what the program printed. Raises JobError with ``what`` and its words if it failed."""
        ran = self.run(*arguments, cwd=cwd)
        if ran.code:
            raise self.failed(what, ran)
        return ran.out

    def failed(self, what: str, ran: Ran) -> job.JobError:
        """The error of a program that failed at ``what``, without any secret."""
        words = scrub(last_words(ran), self._secrets)
        return job.JobError(f"{what}{'' if what.endswith('?') else ':'} {self.name} says: {words}")


def end(process: subprocess.Popen[str]) -> None:
    """End a program with all that it started."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=GRACE)
            return


def secrets(environment: Mapping[str, str]) -> list[str]:
    """What must not be shown of an environment: its values, the longest first, and passwords in addresses."""
    found = {value for key, value in environment.items() if not _NOT_SECRET.fullmatch(key)}
    for value in tuple(found):
        with contextlib.suppress(ValueError):
            found.add(urlsplit(value.partition(":")[2] if "://" in value.partition(":")[2] else value).password or "")
    found |= {quote(value, safe="") for value in found} | {store.printable(value, len(value) * 10) for value in found}
    return sorted((value for value in found if len(value) > 2), key=len, reverse=True)


def scrub(text: str, hidden: list[str]) -> str:
    """A tool's words as they may be shown: without secrets, without control characters, not too long."""
    for secret in hidden:
        text = text.replace(secret, "***")
    return store.printable(text, 300)


def last_words(ran: Ran) -> str:
    """The line that says why a program failed."""
    lines = []
    for line in ran.err.splitlines():
        text = re.sub(r"^\d{4}/\d\d/\d\d \d\d:\d\d:\d\d (NOTICE: |ERROR : )?", "", line.strip())
        with contextlib.suppress(ValueError, TypeError, AttributeError):  # restic's messages are JSON where --json is
            text = str(json.loads(text).get("message") or text).strip().partition("\n")[0]
        lines += [text] * bool(text)
    fatal = [line for line in lines if line.startswith("Fatal: ")]
    return (fatal or lines or [f"exit code {ran.code}"])[-1].removeprefix("Fatal: ")
