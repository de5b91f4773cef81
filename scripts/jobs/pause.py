"""Stopping the agent for the time of a copy, and starting it again if it ran before.

Run by memory-pause.service, as root without a capability: ``stop UNIT`` at its start, ``start UNIT`` at its end.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import job


def systemctl(*words: str) -> subprocess.CompletedProcess[str]:
    """Run systemctl to its end."""
    return subprocess.run(
        ["systemctl", *words], env=job.SYSTEMD, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )


def stop(unit: str, note: str) -> int:
    """Stop the unit where it runs, and note that it did."""
    if systemctl("is-active", "--quiet", "--", unit).returncode:
        job.say(f"pause: {unit} does not run, so there is nothing to stop")
        return job.DONE
    # First, so that it is started again even when this is killed now. It lies in /run: after a reboot it is gone.
    with open(note, "w", encoding="utf-8") as file:
        file.write(f"{unit}\n")
    done = systemctl("stop", "--", unit)
    if done.returncode:
        job.say(f"pause: {unit} could not be stopped: {done.stderr.strip()}", error=True)
        return job.FAILED
    job.say(f"pause: {unit} stopped for the copy")
    return job.DONE


def start(unit: str, note: str) -> int:
    """Start the unit if it ran before."""
    if not os.path.exists(note):
        return job.DONE
    # Waited for: an agent that stays down after its backup must not look like success.
    done = systemctl("start", "--", unit)
    if done.returncode:
        job.say(f"pause: {unit} could not be started again: {done.stderr.strip()}", error=True)
        return job.FAILED
    with contextlib.suppress(FileNotFoundError):
        os.unlink(note)
    job.say(f"pause: {unit} started again")
    return job.DONE


def main() -> int:
    """Read the command line and do it."""
    parser = argparse.ArgumentParser(description="Stop a unit for a copy, or start it again.")
    parser.add_argument("what", choices=("stop", "start"))
    parser.add_argument("unit")
    parser.add_argument("--note", required=True, help="the file that says that the unit ran")
    options = parser.parse_args()
    return stop(options.unit, options.note) if options.what == "stop" else start(options.unit, options.note)


if __name__ == "__main__":
    sys.exit(main())
