"""review --json and --apply, for an agent that can look at how things are: the real command and desk on a store."""

from __future__ import annotations

import json

import pytest

from review_case import FACTS, OLD, Store, fresh, make_store, sql


@pytest.fixture
def store(tmp_path, lib) -> Store:
    return make_store(tmp_path, lib)


def listed(found) -> dict[str, dict]:
    ran = found.run("review", "--json")
    assert ran.returncode == 0, ran.stderr
    queue = json.loads(ran.stdout)
    assert (queue["version"], queue["store"], queue["waiting"], queue["live"]) == (1, "default", 6, 7)
    assert [fact["id"] for fact in queue["facts"]] == ["m_1", "m_2", "m_3", "m_4", "m_5", "m_6"]
    assert [fact["class"] for fact in queue["facts"]][:2] == ["person", "web"]
    return {fact["id"]: fact for fact in queue["facts"]}


def verdicts(facts: dict[str, dict], *given: dict) -> str:
    return json.dumps(
        {"version": 1, "by": "checker 1.0", "verdicts": [{"seen": facts[each["id"]]["seen"], **each} for each in given]}
    )


def test_the_queue_as_json_and_verdicts_on_it_in_one_transaction(store, tmp_path):
    facts = listed(store)
    file = tmp_path / "verdicts.json"
    file.write_text(
        verdicts(
            facts,
            {"id": "m_1", "verdict": "confirm"},
            {"id": "m_2", "verdict": "replace", "fact": "Deploys with checks on", "source": "ci.yaml at 1a2b3c"},
            {"id": "m_4", "verdict": "confirm", "for": "90d"},
            {"id": "m_5", "verdict": "forget"},
            {"id": "m_6", "verdict": "skip"},
        )
    )
    before = sql(store, "SELECT * FROM memory ORDER BY id")
    ran = store.run("review", "--apply", str(file), "--dry-run")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.splitlines()[0] == "m_1: would be confirmed, without an end"
    assert "m_5: would be forgotten, with m_0 behind it" in ran.stdout
    assert ran.stdout.endswith("Would be done, and was not: 2 confirmed, 1 replaced, 1 forgotten, 1 skipped.\n")
    assert sql(store, "SELECT * FROM memory ORDER BY id") == before
    assert list(store.state.iterdir()) == []

    ran = store.run("review", "--apply", str(file))
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.endswith("Done: 2 confirmed, 1 replaced, 1 forgotten, 1 skipped.\n")
    ((new, origin, source),) = sql(store, "SELECT id, origin, source FROM memory WHERE fact = 'Deploys with checks on'")
    assert f"m_2: replaced by {new}\n" in ran.stdout
    # A page's fact stays a page's fact, whoever corrected it.
    assert (origin, source) == ("https://example.org/page", "ci.yaml at 1a2b3c")
    assert {row[0] for row in sql(store, "SELECT id FROM memory")} == {"m_1", "m_2", "m_3", "m_4", "m_6", "m_new", new}
    assert sql(store, "SELECT id FROM memory WHERE expires_at > datetime('now', '+89 days')") == [("m_4",)]
    records = [json.loads(line) for line in (store.state / "verdicts.jsonl").read_text().splitlines()]
    assert {(record["by"], record["terminal"]) for record in records} == {("checker 1.0", False)}
    assert [record["id"] for record in records] == ["m_1", "m_2", "m_4", "m_5"]

    # The same file again: those facts are not what they were.
    ran = store.run("review", "--apply", str(file))
    assert ran.returncode == 3
    assert ran.stdout == ""


def test_all_is_refused_where_one_fact_changed_since_it_was_listed(store):
    facts = listed(store)
    sql(store, "UPDATE memory SET fact = 'Works at Initech' WHERE id = 'm_4'")
    given = verdicts(facts, {"id": "m_1", "verdict": "confirm"}, {"id": "m_4", "verdict": "confirm"})
    ran = store.run("review", "--apply", "-", stdin=given)
    assert ran.returncode == 3
    assert "_4 is not any more what it was" in ran.stderr
    assert fresh(store) == OLD
    assert len(sql(store, "SELECT 1 FROM memory")) == len(FACTS) + 1

    ran = store.run("review", "--apply", "-", "--json", stdin=verdicts(facts, {"id": "m_1", "verdict": "confirm"}))
    done = json.loads(ran.stdout)
    assert (done["by"], done["dry_run"], done["done"][0]["new"]["id"]) == ("checker 1.0", False, "m_1")
    assert fresh(store) == {"m_1"} | OLD


def test_wrong_files_and_options_change_nothing_and_say_why(store, tmp_path):
    (tmp_path / "large").write_bytes(b" " * (5 << 20))
    (tmp_path / "latin").write_bytes(b'{"by": "\xe9"}')
    (tmp_path / "wrong").write_text(json.dumps({"version": 1, "verdicts": [{"id": "m_1", "verdict": "kill"}]}))
    (tmp_path / "none").write_text(json.dumps({"version": 1, "by": "x", "verdicts": []}))
    for arguments, code, said in [
        (["--apply", str(tmp_path / "missing")], 2, "No such file"),
        (["--apply", str(tmp_path)], 2, "Is a directory"),
        (["--apply", str(tmp_path / "large")], 2, "larger than 4 MB"),
        (["--apply", str(tmp_path / "latin")], 2, "UTF-8"),
        (["--apply", str(tmp_path / "wrong")], 2, "verdict 1 (m_1): seen is missing"),
        (["--apply", str(tmp_path / "wrong"), "--unused"], 2, "Leave out"),
        (["--dry-run"], 2, "--apply"),
        (["--json", "--older-than", "soon"], 2, "--older-than 180d"),
        (["--apply", str(tmp_path / "none")], 0, ""),
    ]:
        ran = store.run("review", *arguments)
        assert ran.returncode == code, (arguments, ran)
        assert said in ran.stderr, (arguments, ran)
    assert fresh(store) == OLD


def test_a_store_that_does_not_know_what_is_used(store):
    sql(store, "ALTER TABLE memory DROP COLUMN last_used_at")
    ran = store.run("review", "--unused", "--json")
    assert ran.returncode == 3
    assert "no column last_used_at" in ran.stderr


def test_a_bundle_without_review_sql_says_how_to_get_it(store):
    (store.sql / "review.sql").unlink()
    ran = store.run("review", "--json")
    assert ran.returncode == 1
    assert "review.sql" in ran.stderr
    assert "memops install" in ran.stderr
