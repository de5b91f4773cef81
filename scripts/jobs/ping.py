"""Tell a monitoring service (healthchecks.io and its kin) that a job started, succeeded or failed.

``memory-ping@JOB:EVENT.service`` runs it. The URL comes on standard input, from root's own file that systemd opens, so
that it stands in no unit, command line or journal. ``{job}`` in it is replaced; ``/start`` and ``/fail`` are added.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import urllib.error
import urllib.request
from http.client import HTTPException
from typing import Final
from urllib.parse import urlsplit, urlunsplit

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import store

import job

EVENTS: Final = {"start": "/start", "success": "", "fail": "/fail"}
TIMEOUT: Final = 10.0
PAUSES: Final = (2.0, 4.0, 8.0)
"""Seconds between the tries. The start is tried once: the job waits for it."""


def make_address(url: str, name: str, event: str) -> str:
    """The URL of a job's event. Raises ValueError."""
    parts = urlsplit(url.strip().replace("{job}", name))
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("not a web address")
    return urlunsplit(parts._replace(path=parts.path.rstrip("/") + EVENTS[event]))


def ask(address: str) -> str:
    """Ask once. Returns why it failed, in words without the URL; empty when the service took it."""
    request = urllib.request.Request(address, headers={"User-Agent": "memops"})  # noqa: S310 - http and https only
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:  # noqa: S310
            answer.read(1000)
    except urllib.error.HTTPError as error:
        error.close()
        return f"the service answered {error.code}"
    except urllib.error.URLError as error:
        return store.printable(error.reason, 100)
    except OSError as error:
        return store.printable(error, 100)
    except (HTTPException, ValueError) as error:
        return f"no answer of a web server ({type(error).__name__})"
    return ""


def ask_in_time(address: str) -> str:
    """As ``ask``, but looking up a name, which knows no time limit, counts as well."""
    answers: list[str] = []
    thread = threading.Thread(target=lambda: answers.append(ask(address)), daemon=True)
    thread.start()
    thread.join(TIMEOUT)
    return answers[0] if answers else f"no answer within {TIMEOUT:g} s"


def ping(address: str, pauses: tuple[float, ...]) -> str:
    """Ask until it works, once more after each pause. Returns the last reason, or an empty string."""
    reason = ask_in_time(address)
    for pause in pauses:
        if not reason:
            break
        time.sleep(pause)
        reason = ask_in_time(address)
    return reason


def main(argv: list[str]) -> int:
    """``ping.py JOB:EVENT``, the URL on standard input. Returns the exit code."""
    name, _, event = argv[0].partition(":") if len(argv) == 1 else ("", "", "")
    if not name.isalpha() or event not in EVENTS:
        print("usage: ping.py JOB:start|success|fail <FILE-WITH-THE-URL", file=sys.stderr)
        return job.USAGE
    try:
        address = make_address(sys.stdin.read(4096), name, event)
    except ValueError:
        job.say("ping: the file with the URL does not hold a web address", error=True)
        return job.FAILED
    if reason := ping(address, () if event == "start" else PAUSES):
        job.say(f"ping: {event} of the {name} was not taken: {reason}", error=True)
        return job.FAILED
    job.say(f"ping: {event} of the {name} was taken")
    return job.DONE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
