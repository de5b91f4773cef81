"""Handing a letter to the system's mail program."""

from __future__ import annotations

import socket
import subprocess
import tomllib
from email.message import EmailMessage
from typing import TYPE_CHECKING

from store import printable

if TYPE_CHECKING:
    from letters import Letter


def address_of(settings: str, store: str) -> str:
    """Where this store's mails go; empty where nothing is set or the settings cannot be read."""
    try:
        with open(settings, "rb") as file:
            return str(tomllib.load(file)["store"][store].get("mail_to", ""))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return ""


def send(letter: Letter, address: str, sendmail: str) -> str:
    """Hand a letter to ``sendmail``. Returns why that failed; empty when it was taken."""
    message = EmailMessage()
    message["To"] = address
    message["Subject"] = f"{socket.gethostname()}: {letter.subject}"
    message["Auto-Submitted"] = "auto-generated"
    message.set_content("\n".join(letter.lines) + "\n", cte="8bit")
    try:
        ran = subprocess.run(
            [sendmail, "-i", address], input=bytes(message), capture_output=True, timeout=60, check=False
        )
    except FileNotFoundError:
        return f"this machine has no {sendmail}"
    except (OSError, subprocess.TimeoutExpired) as error:
        return printable(error, 200)
    said = (ran.stderr + ran.stdout).decode(errors="replace").strip().splitlines()
    return "" if ran.returncode == 0 else printable(said[-1] if said else f"exit code {ran.returncode}", 200)
