"""The digest of new facts, the health of a store and the weekly reminder, on real servers."""

from __future__ import annotations

import email
import json
from email import policy
from typing import TYPE_CHECKING, Any

from system.machine import DB, add_facts, memops, status

if TYPE_CHECKING:
    from collections.abc import Callable
    from email.message import EmailMessage

    from system.server import Server

ALTERNATE = True  # each test on one Debian, all on both in the long form

PRUNE, DIGEST, REVIEW = "memory-prune.service", "memory-digest.service", "memory-review.service"
STATE = "/var/lib/memops/default"
KEY = "ghp_aB3dE5fG7hI9jK1lM3nO5pQ7"
PAST, OLD = "2021-05-05 05:05:05", "2020-01-01 00:00:00"

SENDMAIL = """#!/bin/sh
[ "$#" = 2 ] && [ "$1" = -i ] || { echo "unknown arguments: $*" >&2; exit 64; }
cat >/var/mail/taken.new
mv /var/mail/taken.new /var/mail/taken
"""


def remember(server: Server, name: str, fact: str, source: str = "chat 2026-11-30", confirmed: str = "") -> None:
    """Put a fact into the store, as an agent does that knows nothing of memops."""
    server.sql(
        DB,
        "INSERT INTO memory (id, subject, fact, source, confirmed_at)"
        " VALUES (?, 's', ?, ?, ifnull(nullif(?, ''), datetime('now')))",
        many=[(name, fact, source, confirmed)],
    )


def ended(server: Server, unit: str) -> str:
    """How the last run of a job ended, once it has."""
    server.wait_until(lambda: server.show(unit, "Job").get("Job", "") in ("", "0"))
    return server.show(unit, "Result")["Result"]


def night(server: Server, *, fails: bool = False) -> dict[str, Any]:
    """Start the prune as its timer does, and wait for the digest; its run record."""
    before = len(server.read(f"{STATE}/runs.jsonl").splitlines())
    assert (server.run("systemctl", "start", PRUNE, check=False).code != 0) == fails
    assert ended(server, DIGEST) == "success"
    records = [json.loads(line) for line in server.read(f"{STATE}/runs.jsonl").splitlines()[before:]]
    assert [record["job"] for record in records] == ["prune", "digest"]
    record: dict[str, Any] = records[1]
    return record


def test_a_digest_after_every_prune_good_or_not(memops_server: Server) -> None:
    server = memops_server
    installed = memops(server, "install").stdout
    assert "digest: 0 new since" in installed
    assert "No digest has had a new fact" in memops(server, "digest").stdout
    remember(server, "m_person", "likes tea")
    remember(server, "m_web", f"tell\x1b[2J\nnobody {KEY}", "web page of task 41")
    assert night(server)["counts"]["new"] == 2

    # Texts are in one file of the owner's, and nowhere else.
    assert (
        server.run("stat", "-c", "%a %U", f"{STATE}/digests.jsonl", f"{STATE}/digest.json").stdout == "600 agent\n" * 2
    )
    journal = server.journal()
    assert "1 not from a person: m_web (web), m_person;" in journal
    for text in ("likes tea", "nobody", "task 41", KEY):
        assert text not in journal
        assert server.run("grep", "-rlF", text, "/var/lib/memops", check=False).stdout in (
            "",
            f"{STATE}/digests.jsonl\n",
        )
    assert KEY not in server.read(f"{STATE}/digests.jsonl")
    for user in (None, "agent"):
        said = memops(server, "digest", user=user).stdout
        assert said.index("! m_web  [web] s") < said.index("  m_person  [person] s")
        assert "tell\\x1b[2J\\nnobody ghp_[masked]" in said
    assert "sudo" in memops(server, "digest", user="nobody", code=4).stderr
    assert "sudo" in memops(server, "digest", "--since", "1d", user="nobody", code=4).stderr
    assert "not a date" in memops(server, "digest", "--since", "lately", code=2).stderr

    # One made now moves nothing.
    remember(server, "m_later", "f")
    for user in (None, "agent"):
        made = json.loads(memops(server, "digest", "--since", "7d", "--db", DB, "--json", user=user).stdout)
        assert [fact["id"] for fact in made["digest"]["facts"]] == ["m_web", "m_person", "m_later"]
    assert night(server)["counts"]["new"] == 1
    assert [f["id"] for f in json.loads(memops(server, "digest", "--json").stdout)["digest"]["facts"]] == ["m_later"]

    # The guard holds the prune: the digest comes all the same, and tells what is dead.
    add_facts(server, [(f"dead{n}", PAST, None, OLD) for n in range(150)])
    counts = night(server, fails=True)["counts"]
    assert (counts["new"], counts["dead_expired"], counts["confirmed_month"]) == (150, 150, 3)
    memops(server, "prune", "--allow-large", "--yes")
    assert ended(server, DIGEST) == "success"

    # The health of the facts, in status.
    remember(server, "m_old", "f", confirmed="2026-01-01 00:00:00")
    remember(server, "m_never", "f", confirmed="a while ago")
    night(server)
    kept = status(server)
    assert kept["problems"] == []
    assert kept["health"] | {"at": "", "age": 0} == {
        "dead": {"expired": 0, "superseded": 0, "chain": 0},
        "confirmed": {"month": 3, "quarter": 0, "half": 0, "year": 1, "older": 0, "never": 1},
        "sources": {"person": 4, "web": 1},
        "waiting": 2, "weeks": 1, "at": "", "age": 0,
    }  # fmt: skip
    remember(server, "m_now", "f")
    assert status(server, "--fresh")["health"]["confirmed"]["month"] == 4
    assert status(server)["health"]["confirmed"]["month"] == 3
    lines = memops(server, "status", env={"COLUMNS": "80"}).stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert "  sources      4 person, 1 web" in lines
    assert any(line.startswith("  confirmed    under 30 days      ████") for line in lines)
    plain = memops(server, "status", env={"PYTHONIOENCODING": "ascii"}).stdout
    assert "  confirmed    under 30 days      ####" in plain

    # A digest that fails is a warning; so are the units that an earlier version did not have.
    server.run("mv", "/etc/memops/default/health.sql", "/root/health.sql")
    server.run("systemctl", "start", DIGEST, check=False)
    assert "default warning: digest failed" in memops(server, "check", code=1).stdout
    assert status(server)["problems"][0]["level"] == "warning"
    server.run("mv", "/root/health.sql", "/etc/memops/default/health.sql")
    server.run("systemctl", "start", DIGEST)
    server.sh("cd /etc/systemd/system; rm memory-digest.service memory-review.service")
    server.run("systemctl", "daemon-reload")
    line = memops(server, "check", code=1).stdout
    assert "there is no digest yet: the units are of an earlier version" in line
    assert "there is no review yet" in line
    memops(server, "install")
    memops(server, "check")


def test_what_a_night_and_a_week_leave_is_mailed(memops_server: Server) -> None:
    server = memops_server
    server.write("/usr/sbin/sendmail", SENDMAIL, 0o755)
    memops(server, "install", "--mail-to", "ops@example.org")

    def letter(unit: str) -> EmailMessage:
        """The mail about this run of a job, which is taken away."""
        server.wait_until(lambda: server.exists("/var/mail/taken"))
        assert ended(server, f"memory-mail@{unit}.service") == "success"
        text = server.read("/var/mail/taken")
        server.run("rm", "/var/mail/taken")
        found = email.message_from_string(text, policy=policy.default)
        assert found["To"] == "ops@example.org"
        return found

    def none(unit: str, start: Callable[[], object]) -> None:
        """Start something that leads to no mail about this job, but to a line that says why."""
        mail = f"memory-mail@{unit}:left.service"
        ended(server, mail)
        before = server.journal(mail).count("it left nothing to tell")
        start()
        server.wait_until(lambda: server.journal(mail).count("it left nothing to tell") > before)
        assert ended(server, mail) == "success"
        assert not server.exists("/var/mail/taken")

    none(DIGEST, lambda: night(server))
    remember(server, "m_person", "likes tea", confirmed=OLD)
    remember(server, "m_web", f"tell\x1b[2J\nnobody {KEY}", "web page of task 41")
    night(server)
    mail = letter(f"{DIGEST}:left")
    assert mail["Subject"].endswith(": 2 new facts, 1 not from a person")
    body = mail.get_content()
    assert "! m_web  [web] s\n    tell\\x1b[2J\\nnobody ghp_[masked]\n    source: web page of task 41\n" in body
    assert "    likes tea\n" in body
    # How a person tries it out: once more what the last run left.
    server.run("systemctl", "start", f"memory-mail@{DIGEST}:left.service")
    assert letter(f"{DIGEST}:left").get_content() == body
    none(DIGEST, lambda: night(server))

    # A digest that failed is mailed as any other failure, though an earlier one left facts.
    server.run("mv", "/etc/memops/default/digest.sql", "/root/digest.sql")
    server.run("systemctl", "start", DIGEST, check=False)
    mail = letter(DIGEST)
    assert mail["Subject"].endswith(f": {DIGEST} failed")
    assert "so nobody was shown the new facts" in mail.get_content()
    server.run("mv", "/root/digest.sql", "/etc/memops/default/digest.sql")
    none(DIGEST, lambda: server.run("systemctl", "start", DIGEST))
    # The reminder.
    server.run("systemctl", "start", REVIEW)
    assert "1 of 2 live facts wait for review (memops review); the next: m_person" in server.journal(REVIEW)
    assert server.run("stat", "-c", "%a %U", f"{STATE}/review.json").stdout == "600 agent\n"
    mail = letter(f"{REVIEW}:left")
    assert mail["Subject"].endswith(": 1 fact to review")
    assert "    likes tea\n" in mail.get_content()
    assert "likes tea" not in server.journal()
    server.sql(DB, "UPDATE memory SET confirmed_at = datetime('now')")
    none(REVIEW, lambda: server.run("systemctl", "start", REVIEW))
    timer = server.show("memory-review.timer", "UnitFileState", "TimersCalendar", "Persistent")
    assert (timer["UnitFileState"], timer["Persistent"]) == ("enabled", "yes")
    assert "Mon *-*-* 00:00:00" in timer["TimersCalendar"]

    # Both are within the store's owner's walls.
    for unit in (DIGEST, REVIEW):
        assert server.show(unit, "User")["User"] == "agent"
        said = server.run("systemd-analyze", "security", "--no-pager", unit).stdout
        assert float(said.rpartition("Overall exposure level for")[2].split()[1]) <= 0.2

    memops(server, "install", "--mail-to", "")
    assert "memory-mail" not in server.read(f"/etc/systemd/system/{DIGEST}")
    memops(server, "uninstall")
    assert server.run("systemctl", "list-units", "--all", "--no-legend", "memory-*").stdout.strip() == ""
    assert server.sh("ls /etc/systemd/system | grep memory- || true").stdout == ""
    assert not server.exists("/var/lib/memops")
