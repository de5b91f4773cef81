"""The digest of new facts, the figures that are counted with it, and the weekly reminder."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import time
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import digest
from memops import digest as digests
from memops import letters, render, vitals
from memops.settings import Store
from memops.store import printable

if TYPE_CHECKING:
    from unit.fact_store import Case

KEY = "ghp_aB3dE5fG7hI9jK1lM3nO5pQ7"


@pytest.fixture(params=["case", "eight"])
def any_case(request: pytest.FixtureRequest) -> Case:
    """A store of ours, and one of eight columns."""
    return request.getfixturevalue(request.param)


def add(case: Case, *rows: dict[str, Any]) -> None:
    """Put rows into the store as an agent could, past every check."""
    with closing(sqlite3.connect(case.path, isolation_level=None)) as connection:
        for row in rows:
            values = {"subject": "s", "fact": "f", "source": "chat", **row}
            columns = ", ".join(values)
            marks = ", ".join("?" * len(values))
            connection.execute(f"INSERT INTO memory ({columns}) VALUES ({marks})", tuple(values.values()))


def ago(days: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(time.time() - days * 86400))


def run(
    lib: Path, case: Case, script: str = "digest.py", *more: str, invocation: str = ""
) -> subprocess.CompletedProcess:
    """Run a job as its unit does."""
    for name in render.STORE_SQL:
        (case.sql / f"{name}.sql").write_text(render.sql(name, Store()))
    words = ["/usr/bin/python3", "-I", str(lib / script), "--store", case.path, "--sql", str(case.sql)]
    if "--count" not in more:
        words += ["--state", str(case.state)]
    return subprocess.run(
        [*words, *more], env={"PATH": "/usr/bin:/bin", "INVOCATION_ID": invocation}, capture_output=True, text=True
    )


def ran(lib: Path, case: Case, *more: str, **options: str) -> str:
    """The journal's line of a good run."""
    done = run(lib, case, *more, **options)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout.strip()


def kept(case: Case) -> list[dict[str, Any]]:
    path = case.state / "digests.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def ids(found: dict[str, Any]) -> list[str]:
    return [fact["id"] for fact in found["facts"]]


def counts(case: Case) -> dict[str, int]:
    """The counts in the newest run record."""
    return json.loads((case.state / "runs.jsonl").read_text().splitlines()[-1])["counts"]


def test_a_row_is_listed_once_and_ids_alone_go_to_the_journal(lib, any_case) -> None:
    case = any_case
    add(case, {"id": "m_old", "created_at": ago(2)}, {"id": "m_1"}, {"id": "m_2", "source": "web page of task 41"})
    line = ran(lib, case, invocation="a" * 32)
    assert "digest: 2 new since 20" in line
    assert "1 not from a person: m_2 (web), m_1;" in line
    (first,) = kept(case)
    assert ids(first) == ["m_2", "m_1"]
    assert first["facts"][0] | {"created_at": ""} == {
        "id": "m_2", "subject": "s", "fact": "f", "source": "web page of task 41", "class": "web", "created_at": "",
    }  # fmt: skip
    assert (first["new"], first["marked"], first["left"], first["invocation"]) == (2, 1, 0, "a" * 32)
    assert (case.state / "digests.jsonl").stat().st_mode & 0o777 == 0o600
    assert (case.state / "digest.json").stat().st_mode & 0o777 == 0o600

    # Nothing new, and nothing is kept for that.
    assert "digest: 0 new since" in ran(lib, case)
    assert len(kept(case)) == 1
    add(case, {"id": "m_3"})
    assert "1 new since" in ran(lib, case)
    assert ids(kept(case)[-1]) == ["m_3"]
    record = (case.state / "runs.jsonl").read_text()
    assert "task 41" not in record


def test_no_date_hides_a_row(lib, case) -> None:
    add(case, {"id": "m_first"})
    assert ran(lib, case)
    odd = {"yesterday": "no date", "2026-02-31 00:00:00": "no such day", "2199-01-01 00:00:00": "ahead", "": "empty",
           "2020-01-01 00:00:00": "an import of old ones"}  # fmt: skip
    add(case, *({"id": f"m_{number}", "created_at": text} for number, text in enumerate(odd)))
    line = ran(lib, case)
    assert "5 new since" in line
    assert "; 4 with no real date of creation" in line
    assert ids(kept(case)[-1]) == [f"m_{number}" for number in range(5)]
    assert "0 new since" in ran(lib, case)
    assert counts(case)["odd"] == 4

    # The place of a row may be used again when the last ones are gone.
    with closing(sqlite3.connect(case.path, isolation_level=None)) as connection:
        connection.execute("DELETE FROM memory WHERE id <> 'm_first'")
    time.sleep(1.1)  # dates are whole seconds
    add(case, {"id": "m_again"})
    assert "1 new since" in ran(lib, case)
    assert ids(kept(case)[-1]) == ["m_again"]


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"since": "soon", "row": 1}', '{"since": "2026-11-30 00:00:00", "row": "x"}']
)
def test_a_spoilt_mark_counts_as_none(lib, case, text: str) -> None:
    (case.state / "digest.json").write_text(text)
    (case.state / "digests.jsonl").write_text("5\n{\n[]\n" + "[" * 100_000)
    add(case, {"id": "m_old", "created_at": ago(2)}, {"id": "m_1"})
    assert "1 new since" in ran(lib, case)
    assert [ids(each) for each in kept(case)] == [["m_1"]]


def test_what_is_written_down_is_escaped_and_masked(lib, case) -> None:
    hard = "\x1b[2J\n\u202e\x9b" + f" {KEY} "
    add(
        case,
        {"id": hard, "subject": hard, "fact": hard + "x" * 3_000_000, "source": f"web {hard}", "created_at": ago(0.1)},
    )
    add(case, {"id": "m_blob", "fact": b"\xff\x00", "subject": 5, "source": b"\x80"})
    line = ran(lib, case)
    assert line.isprintable()
    (found,) = kept(case)
    fact = found["facts"][0]
    assert all(str(value).isprintable() for each in found["facts"] for value in each.values())
    assert fact["subject"] == "\\x1b[2J\\n\\u202e\\x9b ghp_[masked] "
    assert len(fact["fact"]) == 500
    assert KEY not in fact["fact"] + fact["source"]
    assert all(line.isprintable() for line in letters.digest_lines(found, "default", printable))


def test_a_digest_is_bounded_and_says_how_many_more(lib, case) -> None:
    add(case, *({"id": f"m_{n:04}", "fact": "é\\" * 400} for n in range(300)), {"id": "m_web", "source": "web"})
    line = ran(lib, case)
    assert f"and {301 - digest.NAMED} more" in line
    assert len(line) < 1000
    (found,) = kept(case)
    assert ids(found)[0] == "m_web"
    assert found["left"] == 301 - len(found["facts"]) > 200
    assert f"... and {found['left']} more" in "\n".join(letters.digest_lines(found, "default", printable))
    assert (case.state / "digests.jsonl").stat().st_size < 60_000
    # Together they stay below what root reads.
    for n in range(digest.KEPT + 2):
        digest.keep(str(case.state), {**found, "n": n})
    assert [each["n"] for each in kept(case)] == list(range(2, digest.KEPT + 2))
    assert (case.state / "digests.jsonl").stat().st_size < 1_000_000


def test_a_replaced_fact_keeps_the_class_of_its_origin(lib, any_case) -> None:
    case = any_case
    web = case.remember("f", source="web page of task 41")
    case.remember("g", source="chat 2026-08-08", replaces=web)
    found = case.ask("digest", since=ago(1))
    assert [fact["class"] for fact in found["facts"]] == ["web", "web"]
    assert found["marked"] == 2


def test_one_on_demand_leaves_the_nightly_one_alone(lib, case) -> None:
    add(case, {"id": "m_old", "created_at": ago(5)}, {"id": "m_1"})
    ran(lib, case)
    before = {path.name: path.read_text() for path in case.state.iterdir()}
    assert ids(case.ask("digest", since=ago(7))) == ["m_old", "m_1"]
    assert ids(case.ask("digest", since=ago(1))) == ["m_1"]
    assert case.ask("digest", since=ago(0))["facts"] in ([], case.ask("digest", since=ago(1))["facts"])
    assert {path.name: path.read_text() for path in case.state.iterdir()} == before


def test_the_newest_one_that_is_kept(case, monkeypatch) -> None:
    monkeypatch.setattr(Store, "state", property(lambda _: str(case.state)))
    assert digests.newest(Store()) is None
    (case.state / "digests.jsonl").write_text('{"facts": [], "n": 1}\n{"facts": [], "n": 2}\n{"facts": 5}\nx\n')
    assert digests.newest(Store()) == {"facts": [], "n": 2}
    (case.state / "digests.jsonl").unlink()
    (case.state / "digests.jsonl").symlink_to("/etc/passwd")
    assert digests.newest(Store()) is None


def test_the_figures(lib, any_case) -> None:
    case = any_case
    dates = {1: 2, 29: 1, 31: 1, 89: 1, 91: 3, 181: 1, 366: 1}
    add(
        case,
        *({"id": f"m_{days}_{n}", "confirmed_at": ago(days)} for days, count in dates.items() for n in range(count)),
    )
    add(case, *({"id": f"m_odd_{n}", "confirmed_at": text} for n, text in enumerate(
        ["2026-02-31 00:00:00", "x", "", "2199-01-01 00:00:00", "2026-01-01T00:00:00Z"])))  # fmt: skip
    add(case, {"id": "m_gone", "expires_at": ago(1)}, {"id": "m_web", "source": "web"}, {"id": "m_head"})
    add(case, {"id": "m_replaced", "superseded_by": "m_head", "created_at": ago(200)})
    add(case, {"id": "m_behind", "superseded_by": "m_gone"})
    found = json.loads(ran(lib, case, "digest.py", "--count"))
    assert not list(case.state.iterdir())
    assert found["counts"]["rows"] == 20
    figures = vitals.make(found["health"], "x", 0)
    assert figures["dead"] == {"expired": 1, "superseded": 1, "chain": 1}
    assert figures["confirmed"] == {"month": 5, "quarter": 2, "half": 3, "year": 1, "older": 1, "never": 5}
    assert figures["sources"] == {"person": 16, "web": 1}
    assert (figures["waiting"], figures["weeks"]) == (10, 1)
    assert figures["waiting"] == case.ask("queue", older_than=90, limit=20, unused=False)["waiting"]
    ran(lib, case)
    assert {key: counts(case)[key] for key in found["health"]} == found["health"]


def test_a_store_that_cannot_be_read_fails_in_words(lib, case) -> None:
    Path(case.path).unlink()
    done = run(lib, case)
    assert done.returncode == 1
    assert "the store is not there" in done.stderr
    assert "the store is not there" in run(lib, case, "digest.py", "--count").stderr
    assert not (case.state / "digest.json").exists()


def opened_by(pid: int) -> list[str]:
    """The files that a process has open, as far as they stay so while one looks."""
    found = []
    for number in range(64):
        with suppress(OSError):
            found.append(str(Path(f"/proc/{pid}/fd/{number}").readlink()))
    return found


def test_told_to_stop_it_leaves_the_mark_where_it_was(lib, case) -> None:
    add(case, {"id": "m_1"})
    with closing(sqlite3.connect(case.path)) as connection:
        connection.execute(
            "WITH RECURSIVE n (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 300000)"
            " INSERT INTO memory (id, subject, fact, source) SELECT 'n' || x, 's', 'f', 'chat' FROM n"
        )
        connection.commit()
    run(lib, case, "digest.py", "--count")  # writes the SQL
    words = ["/usr/bin/python3", "-I", str(lib / "digest.py"), "--store", case.path, "--sql", str(case.sql),
             "--state", str(case.state)]  # fmt: skip
    # As systemd stops it, and while it is at work: it has opened the store.
    with subprocess.Popen(words, env={}, stdout=subprocess.PIPE, text=True) as process:
        while case.path not in opened_by(process.pid):
            assert process.poll() is None
        process.terminate()
        said, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "told to stop before its end" in said
    assert not (case.state / "digest.json").exists()


def test_the_reminder(lib, case) -> None:
    add(case, *({"id": f"m_{n}", "confirmed_at": ago(100 + n), "fact": f"f\n{KEY}"} for n in range(25)))
    add(case, {"id": "m_web", "source": "web", "confirmed_at": "no date"}, {"id": "m_new"})
    line = ran(lib, case, "review.py", "--name", "work", invocation="b" * 32)
    assert line.startswith(
        "review: 26 of 27 live facts wait for review (memops review --name work); the next: m_web (web), m_24,"
    )
    assert line.count("m_") == 20
    path = case.state / "review.json"
    assert path.stat().st_mode & 0o777 == 0o600
    left = json.loads(path.read_text())
    assert (left["waiting"], left["live"], left["invocation"]) == (26, 27, "b" * 32)
    assert left["facts"][1]["fact"] == "f\\nghp_[masked]"
    letter = letters.review(left, "work", printable)
    assert letter.subject == "26 facts of work to review"
    assert letter.lines[0].startswith("26 of 27 live facts wait")
    assert letter.lines[-1] == "What to type: memops review --name work"
    assert letter.lines[2] == "! m_web  [web] s"

    with closing(sqlite3.connect(case.path, isolation_level=None)) as connection:
        connection.execute("UPDATE memory SET confirmed_at = datetime('now')")
    assert ran(lib, case, "review.py", "--name", "default") == "review: none of 27 live facts waits for review"
    assert json.loads(path.read_text())["facts"] == []


def test_a_store_that_was_empty_shows_its_first_facts_whatever_their_dates(lib: Path, any_case: Case) -> None:
    ran(lib, any_case)
    add(any_case, {"id": "old", "created_at": ago(400)}, {"id": "odd", "created_at": "never"})
    ran(lib, any_case)
    assert ids(kept(any_case)[-1]) == ["old", "odd"]
