"""A person's review: the real command at a pseudo-terminal, with the real desk on a real store."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sqlite3
import time

import pytest

from review_case import FACTS, OLD, Person, Store, fresh, make_store, sql


@pytest.fixture
def store(tmp_path, lib) -> Store:
    return make_store(tmp_path, lib)


def test_a_whole_review_with_every_key(store):
    with Person(store, "review") as ada:
        ada.press("?")
        ada.read("What was decided so far is done")
        ada.press("x")
        ada.press("\n")
        ada.press("y")
        ada.read("m_1: confirmed, without an end")

        ada.read("NOT A PERSON (web): https://example.org/page")
        ada.press("y")
        ada.read("https://example.org/page")
        ada.press("n", "y/n ")
        ada.press("y")
        ada.press("y", "Have you checked that it is true? y/n ")
        ada.read("m_2: confirmed")

        ada.press("r")
        ada.press("\n", "empty goes back) ")
        ada.press("r")
        ada.press("Postgres 17\n", "empty goes back) ")
        ada.press("unknown\n", "[ada at a terminal, ")
        ada.read("does not say where the fact is from")
        ada.press("\n", "] ")
        new = ada.read("m_3: replaced by ", "\n")

        ada.press("u")
        ada.press("31/12/2030\n", "goes back) ")
        ada.read("not a date that can be read in one way only")
        ada.press("2030-12-31\n", "goes back) ")
        ada.read("m_4: confirmed, until 2031-01-01 00:00 UTC")

        ada.press("h")
        ada.read("└ m_0  2025-01-01  Prefers npm  (chat 2025-01-01)")
        ada.press("f")
        ada.read("m_0  Prefers npm")
        ada.press("n", "Delete all 2 for good? y/n ")
        ada.press("f")
        ada.press("y", "Delete all 2 for good? y/n ")
        ada.read("m_5: forgotten, with m_0 behind it")

        ada.read("6 of 6")
        ada.press("s")
        ada.read("Done: 3 confirmed, 1 replaced, 1 forgotten, 1 skipped.")
        ada.read("1 fact is left in the queue: one week at 20 a week.")
        assert ada.end() == (0, "as it was")

    today = time.strftime("%Y-%m-%d")
    assert sql(store, f"SELECT fact, source FROM memory WHERE id = '{new}'") == [
        ("Postgres 17", f"ada at a terminal, {today}")
    ]
    assert sql(store, "SELECT id, superseded_by FROM memory ORDER BY created_at") == [
        ("m_1", None),
        ("m_2", None),
        ("m_3", new),
        ("m_4", None),
        ("m_6", None),
        ("m_new", None),
        (new, None),
    ]
    assert fresh(store) == {"m_1", "m_2", "m_4", new}
    records = [json.loads(line) for line in (store.state / "verdicts.jsonl").read_text().splitlines()]
    assert [(r["id"], r["verdict"], r["by"], r["terminal"]) for r in records] == [
        ("m_1", "confirm", "ada", True),
        ("m_2", "confirm", "ada", True),
        ("m_3", "replace", "ada", True),
        ("m_4", "confirm", "ada", True),
        ("m_5", "forget", "ada", True),
    ]


# What is typed at the second fact, and the question that it leads to, up to the one that is interrupted.
STEPS = {
    "the verdict": [],
    "the source": [("y", "y/n ")],
    "the end": [("u", "y/n "), ("y", "goes back) ")],
    "the fact": [("r", "goes back) ")],
    "the new source": [("r", "goes back) "), ("Is not true\n", "] ")],
    "the deletion": [("f", "y/n ")],
}


@pytest.mark.parametrize(
    ("way", "step"),
    [*(("\x03", step) for step in STEPS), ("\x1c", "the fact")]
    + [(signal.SIGTERM, step) for step in ("the verdict", "the new source", "the deletion")],
)
def test_an_interruption_at_any_question_loses_nothing_and_leaves_the_terminal_as_it_was(store, way, step):
    with Person(store, "review") as ada:
        ada.press("y")
        ada.read("m_1: confirmed")
        ada.read("? help: ")
        for typed, asked in STEPS[step]:
            ada.type(typed)
            ada.read(asked)
        if isinstance(way, str):
            ada.type(way)
        else:
            os.kill(ada.pid, way)
        if way == "\x03":
            ada.read("Interrupted. Done: 1 confirmed.")
            ada.read("5 facts are left")
        expected = {"\x03": 1, signal.SIGTERM: 143, "\x1c": 131}[way]
        assert ada.end() == (expected, "as it was")
    assert fresh(store) == {"m_1"} | OLD
    assert len(sql(store, "SELECT id FROM memory")) == len(FACTS) + 1
    assert "Traceback" not in ada.seen


@pytest.mark.parametrize("step", ["the verdict", "the fact"])
def test_stopped_and_continued(store, step):
    with Person(store, "review") as ada:
        if step == "the fact":
            ada.press("r")
            ada.read("goes back) ")
        else:
            ada.read("? help: ")
        ada.type("\x1a")
        ada.read("STOPPED as it was")
        if step == "the fact":
            ada.type("Uses Zed\n")
            ada.press("\n", "] ")
            ada.read("m_1: replaced by")
        else:
            ada.press("y")  # asked again
            ada.read("m_1: confirmed")
        ada.press("q")
        assert ada.end() == (0, "as it was")


def test_ctrl_c_while_a_verdict_is_carried_out_waits_until_it_is_done(store):
    with contextlib.closing(sqlite3.connect(store.db, isolation_level=None)) as agent, Person(store, "review") as ada:
        ada.read("? help: ")
        agent.execute("BEGIN IMMEDIATE")
        ada.type("y")
        ada.wait_for_desk()
        ada.type("\x03")
        agent.execute("COMMIT")
        ada.read("Interrupted. Done: 1 confirmed.")
        assert ada.end() == (1, "as it was")
    assert fresh(store) == {"m_1"} | OLD


def test_a_fact_that_changed_or_went_meanwhile_is_said_and_skipped(store):
    with Person(store, "review") as ada:
        ada.read("? help: ")
        sql(store, "UPDATE memory SET fact = 'Uses Emacs' WHERE id = 'm_1'")
        ada.type("y")
        ada.read("not any more what it was")
        ada.read("It changed meanwhile, so it is skipped.")
        ada.read("m_2")
        ada.read("? help: ")
        sql(store, "DELETE FROM memory WHERE id = 'm_2'")
        ada.type("f")
        ada.read("so it is skipped")
        ada.press("y")
        ada.read("m_3: confirmed")
        ada.press("q")
        ada.read("Done: 1 confirmed, 2 skipped.")
        assert ada.end() == (0, "as it was")
    assert fresh(store) == {"m_3"} | OLD


def test_an_error_is_shown_and_the_fact_is_asked_about_again(store):
    sql(store, "CREATE TRIGGER no BEFORE UPDATE ON memory WHEN OLD.id = 'm_1' BEGIN SELECT raise(ABORT, 'no'); END")
    with Person(store, "review") as ada:
        ada.press("y")
        ada.read("A trigger or another rule of the store forbids it")
        ada.press("s")
        ada.press("q")
        ada.read("Done: 1 skipped.")
        assert ada.end() == (0, "as it was")


def test_keys_that_were_not_meant_decide_nothing(store):
    with Person(store, "review") as ada:
        ada.type("yyyy")  # before anything is there to decide on
        for key in ("\x1b[A", "\x1bOR", "\x1by", "é", "\x00", "\t"):
            ada.press(key)
        ada.press("\x04")
        ada.read("Done: nothing.")
        assert ada.end() == (0, "as it was")
    assert fresh(store) == OLD


def test_a_terminal_that_goes_away_ends_it(store):
    with Person(store, "review") as ada:
        ada.press("y")
        ada.read("m_1: confirmed")
        ada.read("? help: ")
        ada.hang_up()
    assert fresh(store) == {"m_1"} | OLD


def test_nothing_of_the_agents_reaches_the_terminal_unescaped_and_facts_are_whole(store):
    long = "x" * 500 + " \x1b]0;owned\x07 " + "word " * 3000 + "the end"
    with contextlib.closing(sqlite3.connect(store.db)) as connection, connection:
        connection.execute("DELETE FROM memory WHERE id <> 'm_1'")
        connection.execute("UPDATE memory SET fact = ?, subject = 'a\x1b[2Jb', source = 'chat\n\x1b[31m'", (long,))
    with Person(store, "review") as ada:
        ada.read("the end")
        ada.press("h")
        ada.press("f")
        ada.press("n", "y/n ")
        ada.press("q")
        assert ada.end() == (0, "as it was")
    assert "\x1b" not in ada.seen
    assert "\x07" not in ada.seen
    assert "\\x1b]0;owned\\x07" in ada.seen
    assert ada.seen.count("word") >= 3000


def test_a_terminal_that_knows_few_characters(store):
    sql(store, "UPDATE memory SET fact = 'Caf\u00e9 \u2603' WHERE id = 'm_5'")
    store.environment["PYTHONIOENCODING"] = "ascii"
    with Person(store, "review", "--older-than", "119", "--limit", "5") as ada:
        for _ in range(4):
            ada.press("s")
        ada.read("Caf\\xe9 \\u2603")
        ada.press("h")
        ada.read("m_0")
        ada.press("q")
        assert ada.end() == (0, "as it was")


def test_limit_and_unused_and_an_empty_queue(store):
    with Person(store, "review", "--limit", "2", "--older-than", "110") as ada:
        ada.read("1 of 2 (5 in the queue)")
        ada.press("y")
        ada.press("s")
        ada.read("4 facts are left in the queue: 2 weeks at 2 a week.")
    sql(store, "UPDATE memory SET last_used_at = datetime('now') WHERE id <> 'm_2'")
    with Person(store, "review", "--unused") as ada:
        ada.read("1 of 1")
        ada.read("m_2")
        ada.press("q")
    sql(store, "UPDATE memory SET confirmed_at = datetime('now')")
    with Person(store, "review") as ada:
        ada.read("Nothing to review: each of the 7 live facts was confirmed in the last 90 days.")
        assert ada.end() == (0, "as it was")


def test_off_a_terminal_it_says_what_to_use(store):
    ran = store.run("review")
    assert ran.returncode == 2
    assert "--json" in ran.stderr
    assert "--apply" in ran.stderr


def test_a_credential_is_masked_and_not_taken(store):
    sql(store, "UPDATE memory SET fact = 'password: Xk3pQ9vLw2' WHERE id = 'm_1'")
    with Person(store, "review") as ada:
        ada.read("password: [masked]")
        ada.press("h")
        ada.press("r")
        ada.press("token is Zu7eN2qLp9Xw\n", "empty goes back) ")
        ada.read("That cannot be stored: the fact holds what looks like a credential (secret value)")
        ada.press("\n", "empty goes back) ")
        ada.press("q")
        assert ada.end()[0] == 0
        assert "Xk3pQ9vLw2" not in ada.seen
    assert sql(store, "SELECT count(*) FROM memory") == [(len(FACTS) + 1,)]
