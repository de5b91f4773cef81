"""How long the command takes to start and to look, on a throwaway server with a large store.

Goals: ``memops --help`` at most 1.3 times an empty typer program with as many commands, ``memops status`` at most 2.5
times; a second ``memops install``, which finds nothing to do, under 2 s. Needs root, as scripts/test does.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from system import images  # noqa: E402 - the servers of the tests
from system.server import Server  # noqa: E402

EMPTY = """
import typer
app = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False)
for number in range(COMMANDS):
    def command(option: int = 1) -> None: "Do it."
    app.command(f"command{number}")(command)
app()
"""

FILL = """
import sqlite3
c = sqlite3.connect("/srv/agent/memory.db")
c.execute("INSERT INTO memory (id, subject, fact, source)"
          " WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < ROWS)"
          " SELECT 'm' || i, 'subject', printf('%.300c', 'x'), 'chat' FROM n")
c.commit()
c.close()
"""

TIME = """
import json, statistics, subprocess, sys, time
def run(command):
    start = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - start
commands = json.loads(sys.argv[1])
times = {name: [] for name in commands}
for _ in range(int(sys.argv[2])):
    for name, command in commands.items():  # in turn, so that the machine's moods meet all alike
        times[name].append(run(command))
print(json.dumps({name: statistics.median(found) for name, found in times.items()}))
"""


def main() -> int:
    """Measure in one server and print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--suite", default="debian13")
    arguments = parser.parse_args()
    with Server(arguments.suite, images.with_command(arguments.suite)) as server:
        python = server.sh("head -1 $(readlink -f /usr/local/bin/memops) | cut -c3-").stdout.strip()
        words = server.run("memops", "--help").stdout.partition("Commands:")[2].partition("Exit codes")[0]
        commands = sum(line.startswith("  ") and line[2:3].isalpha() for line in words.splitlines())
        server.write("/root/empty.py", EMPTY.replace("COMMANDS", str(commands)))
        server.run("memops", "install", timeout=600)
        server.run("python3", "-c", FILL.replace("ROWS", str(arguments.rows)), user="agent", timeout=1200)
        server.run("systemctl", "start", "memory-prune.service", timeout=1200)
        measured = {
            "empty": [python, "/root/empty.py", "--help"],
            "help": ["memops", "--help"],
            "status": ["memops", "status"],
            "install": ["memops", "install"],
        }
        ran = server.run("python3", "-c", TIME, json.dumps(measured), str(arguments.rounds), timeout=1200)
    seconds = json.loads(ran.stdout)
    print(f"start-up on {arguments.suite}, {arguments.rows} rows, {commands} commands, medians of {arguments.rounds}")
    print("  " + ", ".join(f"{name} {value:.2f} s" for name, value in seconds.items()))
    goals = {
        f"--help takes {seconds['help'] / seconds['empty']:.2f} times an empty program (1.3)": seconds["help"]
        / seconds["empty"]
        <= 1.3,
        f"status takes {seconds['status'] / seconds['empty']:.2f} times (2.5)": seconds["status"] / seconds["empty"]
        <= 2.5,
        f"a second install takes {seconds['install']:.2f} s (2 s)": seconds["install"] < 2,
    }
    for text, held in goals.items():
        print(f"  {'ok    ' if held else 'MISSED'}  {text}")
    return 0 if all(goals.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
