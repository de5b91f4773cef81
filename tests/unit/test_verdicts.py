"""The life of a fact at the desk: remember, confirm, replace, forget, and what is refused."""

from __future__ import annotations

import json
import re
import sqlite3
import tempfile
import threading
from pathlib import Path

import pytest
import store
from hypothesis import given, settings
from hypothesis import strategies as st

from unit.fact_store import FUTURE, PAST, Case


def test_a_life(case: Case) -> None:
    first = case.remember("Uses Helix", "editor")
    (done,) = case.apply({"id": first, "verdict": "replace", "fact": "Uses Zed", "source": "chat 2026-12-01"})
    new = done["new"]["id"]
    assert (done["new"]["subject"], done["new"]["expires_at"], done["new"]["state"]) == ("editor", None, "live")
    assert case.live() == {new}
    assert case.run("SELECT superseded_by, superseded_at IS NOT NULL FROM memory WHERE id = ?", first) == [(new, 1)]
    shown = case.ask("show", id=first)
    assert [(each["fact"]["id"], each["depth"]) for each in shown["chain"]] == [(new, 0), (first, 1)]
    assert [(line["verdict"], line["by"]) for line in shown["verdicts"]] == [("replace", "test")]
    assert case.ask("going", ids=[new], only=False, subject=None, user=None)["count"] == 2
    assert case.forget(new) == {"gone": [new, first], "back": []}
    assert case.ids() == set()


def test_each_field_of_a_fact_is_documented(case: Case) -> None:
    page = (Path(__file__).parents[2] / "docs/facts.md").read_text().partition("## As data")[2].partition("\n## ")[0]
    documented = {
        name
        for line in page.splitlines()
        if line.startswith("| `")
        for name in re.findall(r"`(\w+)`", line.split("|")[1])
    }
    shown = case.ask("show", id=case.remember())["fact"]
    assert documented - {"allowed"} == set(shown)


def test_only_lets_the_older_fact_live_again(case: Case) -> None:
    a = case.remember("a")
    b = case.remember("b", replaces=a)
    c = case.remember("c", replaces=b)
    assert [fact["id"] for fact in case.ask("going", ids=[c], only=True, subject=None, user=None)["back"]] == [b]
    assert case.forget(b, only=True) == {"gone": [b], "back": []}
    assert case.run("SELECT superseded_by FROM memory WHERE id = ?", a) == [(c,)]
    assert case.forget(c, only=True) == {"gone": [c], "back": [a]}
    assert case.live() == {a}
    assert case.run("SELECT superseded_at FROM memory") == [(None,)]


def test_facts_that_are_gone_together_do_not_come_back(case: Case) -> None:
    a = case.remember("a")
    b = case.remember("b", replaces=a)
    assert case.forget(b, a, only=True)["back"] == []
    assert case.ids() == set()


def test_what_is_refused_says_why(case: Case) -> None:
    old, temporary = case.remember("old"), case.remember("away", expires_at=FUTURE)
    new = case.remember("new", replaces=old)
    over = case.remember("over")
    case.run("UPDATE memory SET expires_at = ? WHERE id = ?", PAST, over)

    def verdict(word: str, name: str, **more: object) -> str:
        return case.refused("apply", given=[{"id": name, "verdict": word, **more}], by="t", terminal=False)

    def remember(**more: object) -> str:
        given = {"subject": "s", "fact": "f", "source": "chat 1", "expires_at": None, "replaces": None}
        return case.refused("remember", **{**given, "terminal": False, "by": "t", **more})

    assert f"was replaced already, by {new}" in verdict("replace", old, fact="x", source="chat 1")
    assert f"Confirm that one: {new}" in verdict("confirm", old)
    assert "expired at" in verdict("replace", over, fact="x", source="chat 1")
    assert "--until" in verdict("confirm", over)
    assert "has no end" in verdict("replace", new, fact="x", source="chat 1", expires_at=FUTURE)
    # Its own end would take the permanent fact behind it along as well.
    assert "has no end" in verdict("confirm", new, expires_at=FUTURE)
    assert "has no end" in remember(replaces=new, expires_at=FUTURE)
    assert "says exactly that already" in verdict("replace", new, fact="new", source="chat 1")
    assert "not a time to come" in verdict("confirm", temporary, expires_at=PAST)
    assert "not a time to come" in verdict("confirm", temporary, expires_at="tomorrow")
    assert new in verdict("confirm", new[:-1] + ("a" if new[-1] != "a" else "b"))
    assert "there is no fact nothing | See the ids" in verdict("confirm", "nothing")
    assert "the source" in verdict("replace", new, fact="x", source="n/a")
    assert "the subject is empty" in remember(subject="  ")
    assert "1,000,000" in remember(fact="x" * 1_000_000)
    assert r"\x00" in remember(fact="a\0b")
    assert r"\x1b" in remember(subject="\x1b[31m")
    assert r"\n" in remember(source="chat\n1")
    assert "is not any more what it was" in verdict("confirm", new, seen="0" * 12)


def test_a_temporary_fact_stays_so_when_it_is_replaced(case: Case) -> None:
    away = case.remember("away until friday", expires_at=FUTURE)
    (done,) = case.apply({"id": away, "verdict": "replace", "fact": "away until monday", "source": "chat 1"})
    assert done["new"]["expires_at"] == FUTURE
    (done,) = case.apply(
        {"id": done["new"]["id"], "verdict": "replace", "fact": "moved", "source": "chat 1", "expires_at": None}
    )
    assert done["new"]["expires_at"] is None


def test_confirming_moves_one_date_only(case: Case) -> None:
    name = case.remember("f", expires_at=FUTURE)
    case.run("UPDATE memory SET confirmed_at = ?, created_at = ?", PAST, PAST)
    (before,) = case.rows()
    (done,) = case.apply({"id": name, "verdict": "confirm"})
    (after,) = case.rows()
    assert [i for i, pair in enumerate(zip(before, after, strict=True)) if pair[0] != pair[1]] == [5]
    assert 0 <= done["new"]["age"] < 60
    case.apply({"id": name, "verdict": "confirm", "expires_at": None})
    assert case.run("SELECT expires_at FROM memory") == [(None,)]


def test_reading_confirms_nothing(case: Case) -> None:
    name = case.remember("f")
    case.run("UPDATE memory SET confirmed_at = ?", PAST)
    before = case.rows()
    for op, arguments in (
        ("recall", {"query": "f", "subject": None, "limit": 5, "max_chars": None}),
        ("list", {"which": "all", "subject": None, "source_class": None, "limit": 5}),
        ("show", {"id": name}),
        ("queue", {"older_than": 90, "limit": 20, "unused": False}),
    ):
        case.ask(op, **arguments)
    assert case.rows() == before


def test_verdicts_are_all_or_none(case: Case) -> None:
    a, b = case.remember("a"), case.remember("b")
    before = case.rows()
    found = case.answer(
        "apply",
        given=[{"id": a, "verdict": "forget"}, {"id": b, "verdict": "replace", "fact": "", "source": "chat 1"}],
        by="t",
        terminal=False,
    )
    assert found["exit"] == 3
    assert case.rows() == before
    assert not (case.state / "verdicts.jsonl").exists()


@pytest.mark.parametrize("shape", ["line", "circle", "itself", "into nothing"])
def test_chains_of_any_length_and_form_go(case: Case, shape: str) -> None:
    count = 3000 if shape in ("line", "circle") else 1
    rows = [(f"m{i:04d}", f"m{i + 1:04d}" if i + 1 < count else None) for i in range(count)]
    if shape != "line":
        rows[-1] = (rows[-1][0], "gone" if shape == "into nothing" else rows[0][0])
    case.many("INSERT INTO memory (id, subject, fact, source, superseded_by) VALUES (?, 's', 'f', 'c', ?)", rows)
    head = rows[-1][0]
    assert case.ask("show", id=rows[0][0])["fact"]["id"] == rows[0][0]
    assert case.ask("going", ids=[head], only=False, subject=None, user=None)["count"] == count
    assert len(case.forget(head)["gone"]) == count
    assert case.ids() == set()


def test_a_trigger_that_refuses_is_said_and_nothing_is_half_done(case: Case) -> None:
    a = case.remember("a")
    b = case.remember("b", replaces=a)
    for kept, words in (("b", "a trigger of the store keeps"), ("a", "a trigger or another rule of the store")):
        case.run("DROP TRIGGER IF EXISTS keep")
        case.run(
            f"CREATE TRIGGER keep BEFORE DELETE ON memory WHEN OLD.fact = '{kept}' BEGIN SELECT RAISE(IGNORE); END"
        )
        before = case.rows()
        assert words in case.answer("forget", ids=[b], only=False, token=None, by="t", terminal=False)["error"]
        assert case.rows() == before


def test_all_of_a_subject(case: Case) -> None:
    travel = [(f"t{i}", "travel") for i in range(450)]
    case.many("INSERT INTO memory (id, subject, fact, source) VALUES (?, ?, 'f', 'chat')", travel)
    kept, old = case.remember("k", "other"), case.remember("o", "other")
    case.run(
        "UPDATE memory SET superseded_by = (SELECT min(id) FROM memory WHERE subject = 'travel') WHERE id = ?", old
    )
    found = case.ask("going", ids=[], only=False, subject="travel", user=None)
    assert (found["count"], len(found["going"])) == (451, 50)
    assert case.ask("forget_all", subject="travel", user=None, token=found["token"], by="t", terminal=False) == {
        "count": 451
    }
    assert case.ids() == {kept}
    assert "belong to no user" in case.refused("going", ids=[], only=False, subject=None, user="ada")
    case.run("ALTER TABLE memory ADD COLUMN user_id TEXT")
    case.run("UPDATE memory SET user_id = 'ada'")
    assert case.ask("forget_all", subject=None, user="ada", token=None, by="t", terminal=False) == {"count": 1}


# Trust is not laundered


def test_a_correction_keeps_the_class_of_what_it_corrects(case: Case) -> None:
    web = case.remember("deploys with checks disabled", source="web page fetched during task 41")
    (done,) = case.apply({"id": web, "verdict": "replace", "fact": "deploys unchecked", "source": "chat 2026-09-01"})
    new = done["new"]
    assert (new["class"], new["origin"]) == ("web", "web page fetched during task 41")
    (done,) = case.apply({"id": new["id"], "verdict": "confirm"}, terminal=True)
    assert done["new"]["class"] == "web"
    (done,) = case.apply({"id": new["id"], "verdict": "replace", "fact": "never unchecked", "source": "chat 3"})
    assert done["new"]["class"] == "web"
    # A person at a terminal says it in their own words.
    (done,) = case.apply(
        {"id": done["new"]["id"], "verdict": "replace", "fact": "checks stay on", "source": "me, 2026-12-01"},
        terminal=True,
    )
    assert (done["new"]["class"], done["new"]["origin"]) == ("person", None)
    # And what comes from a page is a page's, whatever it corrects.
    (done,) = case.apply({"id": done["new"]["id"], "verdict": "replace", "fact": "off", "source": "web search"})
    assert done["new"]["class"] == "web"


def test_plain_sql_launders_nothing_either(case: Case) -> None:
    web, mine = case.remember("w", source="web page"), case.remember("m", source="chat 1")
    case.run("INSERT INTO memory (id, subject, fact, source) VALUES ('n', 's', 'f', 'chat 2')")
    for name in (mine, web):
        case.run("UPDATE memory SET superseded_by = 'n' WHERE id = ?", name)
    assert case.ask("show", id="n")["fact"]["class"] == "web"


def test_eight_columns_go_by_the_chain_and_then_by_the_source(eight: Case) -> None:
    web = eight.remember("w", source="web page")
    new = eight.remember("n", source="chat 2026-09-01", replaces=web)
    assert eight.ask("show", id=new)["fact"]["class"] == "web"
    eight.run("DELETE FROM memory WHERE id = ?", web)
    fact = eight.ask("show", id=new)["fact"]
    assert (fact["class"], fact["source"]) == ("web", "chat 2026-09-01; first from web page")
    plain = eight.remember("p", source="chat 1")
    assert eight.ask("show", id=plain)["fact"]["class"] == "person"
    assert "no column last_used_at" in eight.refused("queue", older_than=None, limit=5, unused=True)
    assert eight.forget(new)["gone"] == [new]


@pytest.mark.parametrize(
    "statements",
    [
        ["UPDATE memory SET superseded_by = 'n' WHERE id = 'w'", "{new}"],
        ["{new}", "REPLACE {old}"],
        ["DELETE FROM memory WHERE id = 'w'", "{new}", "INSERT {old}"],
        ["UPDATE memory SET superseded_by = 'other' WHERE id = 'w'", "{new}",
         "UPDATE memory SET superseded_by = 'n' WHERE id = 'w'", "DELETE FROM memory WHERE id = 'other'"],
        ["{new}", "UPDATE memory SET source = 'chat about my blog', superseded_by = 'n' WHERE id = 'p'",
         "UPDATE memory SET source = 'log', superseded_by = 'n' WHERE id = 'w'"],
        ["{new}", "UPDATE memory SET source = 'chat ' || printf('%.995c', 'x'), superseded_by = 'n' WHERE id = 'p'",
         "UPDATE memory SET superseded_by = 'n' WHERE id = 'w'"],
        ["{new}", "UPDATE memory SET source = 'chat ' || printf('%.5995c', 'x'), superseded_by = 'n' WHERE id = 'p'"],
    ],
)  # fmt: skip
def test_no_order_of_statements_launders(case: Case, statements: list[str]) -> None:
    insert = "INSERT INTO memory (id, subject, fact, source) VALUES (?, 's', 'f', ?)"
    case.many(insert, [("w", "http://evil"), ("p", "chat 1"), ("other", "chat 2")])
    new = "INSERT INTO memory (id, subject, fact, source) VALUES ('n', 's', 'f', 'chat 3')"
    old = "INTO memory (id, subject, fact, source, superseded_by) VALUES ('w', 's', 'f', 'http://evil', 'n')"
    for statement in statements:
        case.run(statement.format(new=new, old=old))
    assert case.ask("show", id="n")["fact"]["class"] != "person"


# What was shown, and nothing else


def test_forgetting_takes_what_was_shown_or_nothing(case: Case) -> None:
    a, p = case.remember("a"), case.remember("p")
    shown = case.ask("going", ids=[a], only=False, subject=None, user=None)
    case.run("UPDATE memory SET superseded_by = ? WHERE id = ?", a, p)
    given = {"only": False, "token": shown["token"], "by": "t", "terminal": False}
    assert "is not any more what was shown" in case.refused("forget", ids=[a], **given)
    verdict = {"id": a, "verdict": "forget", "going": shown["token"]}
    assert "is not any more" in case.refused("apply", given=[verdict], by="t", terminal=False)
    shown = case.ask("going", ids=[], only=False, subject="s", user=None)
    late = case.remember("late")
    assert "is not any more" in case.refused(
        "forget_all", subject="s", user=None, token=shown["token"], by="t", terminal=False
    )
    assert case.ids() == {a, p, late}


def test_what_lives_again_is_told_whole(case: Case) -> None:
    c = case.remember("c")
    b = case.remember("b", replaces=c)
    a = case.remember("a", replaces=b)
    for order in ([a, b], [b, a]):
        found = case.ask("going", ids=order, only=True, subject=None, user=None)
        assert [fact["id"] for fact in found["back"]] == [c]
    assert case.forget(a, b, only=True)["back"] == [c]
    assert case.live() == {c}


def test_out_of_a_circle_a_fact_comes_free(case: Case) -> None:
    case.many(
        "INSERT INTO memory (id, subject, fact, source, superseded_by) VALUES (?, 's', 'f', 'c', ?)",
        [("a", "b"), ("b", "a")],
    )
    assert case.forget("a", only=True)["back"] == ["b"]
    assert case.live() == {"b"}


def test_a_change_that_a_trigger_ignores_is_no_change(case: Case) -> None:
    name = case.remember("f")
    for what in ("UPDATE OF confirmed_at", "UPDATE OF superseded_by", "INSERT"):
        case.run("DROP TRIGGER IF EXISTS ignore")
        case.run(f"CREATE TRIGGER ignore BEFORE {what} ON memory BEGIN SELECT RAISE(IGNORE); END")
        word = "confirm" if "confirmed" in what else "replace"
        verdict = {"id": name, "verdict": word, "fact": "g", "source": "chat 2"}
        assert "ignores that change" in case.refused("apply", given=[verdict], by="t", terminal=False)


def test_what_is_forgotten_leaves_the_digest_and_the_reminder(case: Case) -> None:
    gone, stays = case.remember("ZEBRA"), case.remember("other")
    facts = [{"id": name, "fact": text} for name, text in ((gone, "ZEBRA"), (stays, "other"))]
    for name in ("digests.jsonl", "review.json"):
        odd = [{"facts": 7}, {"facts": [7, {"id": ["x"]}]}, [], {}]
        (case.state / name).write_text("".join(json.dumps(line) + "\n" for line in [*odd, {"facts": facts}]))
    case.forget(gone)
    for name in ("digests.jsonl", "review.json"):
        assert json.loads((case.state / name).read_text().splitlines()[-1])["facts"] == facts[1:]
        assert "ZEBRA" not in (case.state / name).read_text()
        assert (case.state / name).stat().st_mode & 0o777 == 0o600


# Beside others


def test_ten_writers_at_once(case: Case) -> None:
    case.run("PRAGMA journal_mode = WAL")
    made: list[str] = []
    threads = [
        threading.Thread(target=lambda: made.extend(case.remember(f"f{i}") for i in range(20))) for _ in range(10)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == len(set(made)) == 200
    assert case.ids() == set(made)


def test_a_locked_store_and_a_read_only_one(case: Case, monkeypatch) -> None:
    monkeypatch.setattr("desk.WAIT", 0.1)
    name = case.remember("f")
    holder = sqlite3.connect(case.path, isolation_level=None)
    try:
        holder.execute("BEGIN IMMEDIATE")
        found = case.answer("apply", given=[{"id": name, "verdict": "confirm"}], by="t", terminal=False)
        assert found["exit"] == 5
        assert "lock" in found["error"]
        assert case.ask("show", id=name)["fact"]["id"] == name
    finally:
        holder.close()
    case.run("DROP VIEW live_memory")
    assert case.answer("recall", query="", subject=None, limit=5, max_chars=None)["exit"] == 1
    Path(case.path).write_bytes(b"no database at all, but long enough to be looked at")
    assert "not a SQLite database" in case.answer("show", id=name)["error"]


ODD = st.text(st.characters(codec="utf-8"), min_size=1, max_size=40)


@settings(max_examples=60, deadline=None)
@given(ODD, ODD, ODD, st.sampled_from(["confirm", "replace", "forget", "skip"]))
def test_no_text_breaks_the_desk(subject: str, fact: str, source: str, word: str) -> None:
    with tempfile.TemporaryDirectory() as directory:
        case = Case(Path(directory))
        given = {"expires_at": None, "replaces": None, "terminal": False, "by": source}
        found = case.answer("remember", subject=subject, fact=fact, source=source, **given)
        assert json.loads(json.dumps(found)) == found
        if "error" in found:
            assert found["exit"] == 3
            assert case.ids() == set()
            return
        fact_ = found["value"]
        assert (fact_["subject"], fact_["fact"]) == (subject.strip(), fact.strip())
        assert case.run("SELECT fact FROM memory") == [(fact.strip(),)]
        verdict = {"id": fact_["id"], "verdict": word, "fact": source, "source": subject}
        assert case.answer("apply", given=[verdict], by=fact, terminal=False).get("exit", 3) == 3
        assert case.answer("show", id=subject).get("exit", 3) == 3


MOVES = st.lists(st.tuples(st.sampled_from(["new", "replace", "forget", "only"]), st.integers(0, 9)), max_size=25)


@settings(max_examples=40, deadline=None)
@given(MOVES)
def test_chains_stay_a_forest(moves: list[tuple[str, int]]) -> None:
    """Against an obvious model: who was replaced by whom, in a dict."""
    with tempfile.TemporaryDirectory() as directory:
        case, model = Case(Path(directory)), {}
        for move, pick in moves:
            names = sorted(model)
            name = names[pick % len(names)] if names else None
            if move == "new" or name is None:
                model[case.remember(f"f{len(model)}")] = None
            elif move == "replace":
                if model[name] is None:
                    new = case.remember("next", replaces=name)
                    model |= {new: None, name: new}
            elif move == "only":
                case.forget(name, only=True)
                newer = model.pop(name)
                model |= {older: newer for older, at in model.items() if at == name}
            else:
                case.forget(name)
                doomed = {name}
                while more := {older for older, newer in model.items() if newer in doomed} - doomed:
                    doomed |= more
                model = {each: newer for each, newer in model.items() if each not in doomed}
            assert dict(case.run("SELECT id, superseded_by FROM memory")) == model
        assert case.run("PRAGMA foreign_key_check") == []
        assert case.run("PRAGMA integrity_check") == [("ok",)]


def test_ids_sort_by_time() -> None:
    made = [store.new_id() for _ in range(3000)]
    assert made == sorted(set(made))
    assert all(len(name) == 12 for name in made)
