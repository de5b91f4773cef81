"""Write how some stores are into a file for node_exporter's textfile collector; see docs/metrics.md.

Run by memory-metrics.service, as root, who may read every run record. It asks and judges as memops check does.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import exposition
import health
import records
import survey

import job


def run(*words: str) -> str:
    """Run a program of systemd's and return its output. Raises OSError and SubprocessError."""
    return subprocess.run(
        words, env=job.SYSTEMD, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True, timeout=60
    ).stdout


def figures(names: list[str]) -> str:
    """The text of the file. Raises OSError and SubprocessError when systemd does not answer."""
    stores = []
    for name in names:
        # Words are left out: nothing but numbers goes into the file.
        found = survey.look(name, run, time.time(), records.read_files(name, lambda text, _: str(text)[:20]))
        stores.append(({**found, "problems": health.problems(found, rows=False)}, health.state(found)))
    return exposition.text(stores)


def main() -> int:
    """Parse the command line, write the file, and return the exit code."""
    parser = argparse.ArgumentParser(description="Write the figures of stores for node_exporter.")
    parser.add_argument("--file", required=True, help="the file, which must end in .prom")
    parser.add_argument("names", nargs="+", help="the stores' names")
    options = parser.parse_args()
    code = job.DONE
    try:
        text = figures(options.names)
    except (OSError, subprocess.SubprocessError) as error:
        job.say(f"metrics: systemd did not answer: {error}", error=True)
        text, code = exposition.text([], up=False), job.FAILED
    try:
        job.replace_file(options.file, text, 0o644)
    except OSError as error:
        job.say(f"metrics: {options.file} cannot be written: {error.strerror}", error=True)
        code = job.FAILED
    return code


if __name__ == "__main__":
    sys.exit(main())
