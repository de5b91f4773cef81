"""The ledger beside a product: reconciled, pruned through the hand, and believed only where the product says so too."""

from __future__ import annotations

import json
import shutil
import time
from typing import TYPE_CHECKING, Any

import pytest
import store
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import handing
import job
import reconcile
from handing import Listing, Memory
from unit.ledger_case import Product, processes

if TYPE_CHECKING:
    from pathlib import Path

PAST, FUTURE, LATER = "2020-01-01 00:00:00", "2199-01-01 00:00:00", "2199-12-31 00:00:00"


@pytest.fixture
def own_lib(tmp_path: Path, lib: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The installed jobs in a copy of the test's own, and the hands are looked for there."""
    copy = tmp_path / "lib"
    shutil.copytree(lib, copy)
    monkeypatch.setattr(handing, "__file__", str(copy / "handing.py"))
    return copy


@pytest.fixture
def product(tmp_path: Path, own_lib: Path) -> Product:
    (tmp_path / "p").mkdir()
    return Product(tmp_path / "p", own_lib)


@pytest.fixture
def observed(tmp_path: Path, own_lib: Path) -> Product:
    (tmp_path / "o").mkdir()
    return Product(tmp_path / "o", own_lib, "observe")


def test_what_is_new_comes_in_with_the_products_dates(product: Product) -> None:
    product.put("a", "likes tea", created="2026-01-02 03:04:05", updated="2026-02-02 00:00:00", source="mem0, user ada")
    product.put("b", "is in Rome", created="2026-01-02 03:04:05", expires=FUTURE)
    product.put("c", "has no dates", created="soon")
    outcome = product.run()
    assert outcome.result == "done"
    assert outcome.message.startswith("3 memories (3 new); 0 expired and deleted in the product; 3 rows, 3 live")
    rows = product.rows()
    assert rows["a"] == ("likes tea", "2026-02-02 00:00:00", None)
    assert rows["b"] == ("is in Rome", "2026-01-02 03:04:05", FUTURE)
    assert store.moment_of(rows["c"][1]) is not None
    assert product.sql_("SELECT source, subject FROM memory WHERE id = 'a'") == [("mem0, user ada", "")]


def test_what_has_ended_is_deleted_by_the_product_and_its_remainder_named(product: Product) -> None:
    product.put("a", expires=PAST)
    product.put("b", expires=FUTURE)
    outcome = product.run()
    assert "1 expired and deleted in the product; their text remains in history (1); 1 rows, 1 live" in outcome.message
    assert (outcome.counts["expired"], outcome.counts["dead"], outcome.counts["rows"]) == (1, 0, 1)
    assert set(product.held()) == set(product.rows()) == {"b"}
    assert product.sql_("SELECT id FROM ledger") == [("b",)]


def test_a_date_that_somebody_set_here_holds_against_the_products(product: Product) -> None:
    product.put("a", expires=FUTURE)
    product.put("b", expires=FUTURE)
    product.run()
    product.sql_("UPDATE memory SET expires_at = ?, confirmed_at = ? WHERE id = 'a'", LATER, "2026-11-11 00:00:00")
    for name in "ab":
        product.put(name, expires=PAST)
    outcome = product.run()
    assert (outcome.counts["expired"], set(product.held())) == (1, {"a"})
    assert product.rows()["a"] == ("f", "2026-11-11 00:00:00", LATER)


def test_a_text_that_changed_is_confirmed_by_whoever_changed_it_and_never_moved_back(product: Product) -> None:
    product.put("a", "one", created="2026-01-01 00:00:00")
    product.put("b", "one", created="2026-01-01 00:00:00")
    product.run()
    product.sql_("UPDATE memory SET confirmed_at = '2026-11-11 00:00:00' WHERE id = 'b'")
    for name in "ab":
        product.put(name, "two", created="2026-01-01 00:00:00", updated="2026-03-03 00:00:00", source="other")
    assert "(2 changed)" in product.run().message
    assert product.rows() == {"a": ("two", "2026-03-03 00:00:00", None), "b": ("two", "2026-11-11 00:00:00", None)}
    # Nothing is confirmed by being read, however often.
    before = product.rows()
    assert "(" not in product.run().message.partition(";")[0]
    assert product.rows() == before


def test_what_vanished_from_the_product_leaves_the_ledger_and_what_cannot_be_read_now_stays(product: Product) -> None:
    for name in ("notes.md#1", "notes.md#2", "notes.md.old#1"):
        product.put(name)
    product.run()
    product.drop("notes.md#1", "notes.md#2", "notes.md.old#1")
    product.how('["notes.md#"]')
    assert "0 memories" not in (said := product.run().message)
    assert "(1 gone, 2 not readable now)" in said
    assert set(product.rows()) == {"notes.md#1", "notes.md#2"}
    product.how("[]")
    product.run()
    assert product.rows() == {}


def test_more_than_half_vanished_is_asked_about_first(product: Product) -> None:
    product.save({f"m{n}": {"id": f"m{n}", "text": "f"} for n in range(201)})
    product.run()
    product.drop(*(f"m{n}" for n in range(101)))
    with pytest.raises(job.JobError, match="nothing changed: 101 of 201 memories are not in the product") as raised:
        product.run()
    assert raised.value.exit_code == job.GUARD
    assert len(product.rows()) == 201
    assert "101 gone" in product.run("allow-large").message
    assert len(product.rows()) == 100


def test_the_guard_of_the_prune_holds_here_as_well(product: Product) -> None:
    product.save({f"m{n}": {"id": f"m{n}", "text": "f", "expires": PAST} for n in range(101)})
    with pytest.raises(job.JobError, match="nothing deleted: 101 of 101 rows would go") as raised:
        product.run()
    assert (raised.value.exit_code, raised.value.counts["dead"], len(product.held())) == (job.GUARD, 101, 101)
    assert product.run("allow-large").counts["expired"] == 101
    assert product.held() == {}


def test_a_report_and_a_sync_delete_nothing(product: Product) -> None:
    product.put("a", expires=PAST)
    product.put("b")
    for word in ("sync", "report"):
        outcome = product.run(word)
        assert (outcome.result, outcome.counts["expired"], set(product.held())) == ("report", 1, {"a", "b"})
    assert "1 of 2 would be deleted" in outcome.message


def test_observe_says_what_has_ended_and_leaves_it(observed: Product) -> None:
    observed.put("a", expires=PAST)
    outcome = observed.run()
    assert (outcome.result, outcome.counts["dead"]) == ("done", 1)
    assert "1 past their end, not deleted: files that people and agents write are theirs to change" in outcome.message
    assert set(observed.held()) == {"a"}
    assert "1 are past their end" in observed.run("report").message
    for op, more in (("forget", {"ids": ["a"], "only": False}), ("forget_all", {"subject": "", "user": None})):
        refused = observed.request(op, token=None, by="t", terminal=False, **more)
        assert (refused["exit"], "nothing is deleted here" in refused["error"]) == (3, True)
    given = [{"id": "a", "verdict": "forget"}]
    assert observed.request("apply", given=given, by="t", terminal=False, rehearse=True)["exit"] == 3


# The hand is the agent's word


def test_a_hand_that_lies_is_not_believed(product: Product) -> None:
    product.put("a", expires=PAST)
    product.how("lies []")
    with pytest.raises(job.JobError, match=r"not deleted: a \(the product lists it still\)") as raised:
        product.run()
    assert (raised.value.exit_code, raised.value.counts["dead"]) == (job.FAILED, 1)
    assert set(product.rows()) == {"a"}


def test_what_the_product_keeps_stays_in_the_ledger_and_the_rest_goes(product: Product) -> None:
    for name in "abc":
        product.put(name, expires=PAST)
    product.how("most:1 []")
    with pytest.raises(job.JobError, match=r"not deleted: b \(the product keeps it\) and 1 more; 3 memories") as raised:
        product.run()
    assert (raised.value.counts["expired"], raised.value.counts["dead"]) == (1, 2)
    assert set(product.rows()) == set(product.held()) == {"b", "c"}


def test_a_hand_that_breaks_on_its_way_leaves_a_ledger_that_is_right(product: Product) -> None:
    for name in "abc":
        product.put(name, expires=PAST)
    product.how("most:2 delete:late []")
    with pytest.raises(job.JobError, match=r"^it broke on its way; .* 2 expired and deleted"):
        product.run()
    assert set(product.rows()) == set(product.held()) == {"c"}


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("list []", r"^the product is ill\. Heal it: --name work$"),
        ("list:crash []", r"the hand pretended gave no answer: ValueError: password: \[masked\]$"),
    ],
)
def test_a_hand_that_fails_changes_nothing_and_its_words_are_masked(product: Product, how: str, words: str) -> None:
    product.put("a")
    product.run()
    before = product.rows()
    product.drop("a")
    product.how(how)
    with pytest.raises(job.JobError, match=words):
        product.run()
    assert product.rows() == before


def test_a_hand_that_hangs_is_ended_with_all_that_it_started(product: Product) -> None:
    product.how("list:hang []")
    with pytest.raises(handing.HandError, match=r"gave no answer within 1 s"):
        product.hand(seconds=1.0).listing()
    # Killed, but perhaps not dead yet.
    end = time.monotonic() + 30
    while left := processes(str(product.lib / "hands/pretended.py")):
        assert time.monotonic() < end, left
        time.sleep(0.05)
    with pytest.raises(handing.HandError) as raised:
        product.hand(stop=lambda: True).listing()
    assert raised.value.why == "stopped"


def test_a_python_that_is_not_there(product: Product) -> None:
    hand = handing.Hand("pretended", "/nowhere/python3", {}, store="work")
    with pytest.raises(handing.HandError, match="/nowhere/python3 cannot be started") as raised:
        hand.listing()
    assert "--name work --python PYTHON" in raised.value.hint


@pytest.mark.parametrize(
    "answer",
    [
        "[]", "nonsense", "{}", '{"value": []}', '{"value": {}}', '{"value": {"facts": {}}}', "[" * 100_000,
        '{"value": {"facts": [], "unread": [1]}}', '{"value": {"facts": [1]}}', '{"value": {"facts": [{"id": 1}]}}',
        '{"value": {"facts": [{"id": "", "text": "x"}]}}', '{"value": {"facts": [{"id": "\\ud800", "text": "x"}]}}',
        '{"value": {"facts": [{"id": "a", "text": "x"}, {"id": "a", "text": "y"}]}}',
        json.dumps({"value": {"facts": [{"id": "a" * 1001, "text": "x"}]}}),
    ],
)  # fmt: skip
def test_an_answer_that_cannot_be_right_is_none(product: Product, answer: str) -> None:
    (product.lib / "hands/pretended.py").write_text(f"print({answer!r})")
    with pytest.raises(handing.HandError, match="gave"):
        product.hand().listing()


def test_too_much_is_no_answer(product: Product, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handing, "LARGEST", 1 << 20)
    (product.lib / "hands/pretended.py").write_text("import sys\nwhile True: sys.stderr.write('x' * 65536)")
    with pytest.raises(handing.HandError, match="answered more than 1 MB"):
        product.hand().listing()
    monkeypatch.setattr(handing, "MOST", 1)
    facts = [{"id": name, "text": "x"} for name in "ab"]
    (product.lib / "hands/pretended.py").write_text(f"print({json.dumps({'value': {'facts': facts}})!r})")
    with pytest.raises(handing.HandError, match="lists more than 1 memories"):
        product.hand().listing()


def test_texts_of_any_kind_come_in_as_texts(product: Product) -> None:
    product.put("a", "lone \ud800 surrogate\0and NUL", subject="x" * 1000, source=5, expires="9999-99-99", created=3)
    product.run()
    (row,) = product.sql_("SELECT fact, length(subject), source, expires_at FROM memory")
    assert row == ("lone ? surrogate\0and NUL", store.LONGEST["subject"], "", None)


def test_what_strangers_did_to_the_ledger_takes_nothing_along(product: Product) -> None:
    for name in "abc":
        product.put(name)
    product.run()
    product.sql_("UPDATE memory SET superseded_by = 'a', created_at = '2020-01-01 00:00:00' WHERE id = 'b'")
    product.sql_("INSERT INTO memory (id, subject, fact, source) VALUES ('stray', 's', 'f', 'x')")
    product.sql_("DELETE FROM memory WHERE id = 'c'")
    product.drop("a")
    product.run()
    assert set(product.rows()) == set(product.held()) == {"b", "c"}


# What people ask for


def test_forgetting_goes_through_the_hand(product: Product) -> None:
    for name in "ab":
        product.put(name)
    product.run()
    done = product.request("forget", ids=["a"], only=False, token=None, by="ada", terminal=True)
    assert done == {"value": {"gone": ["a"], "back": [], "remains": {"a": ["history: 2 rows"]}}}
    assert set(product.rows()) == set(product.held()) == {"b"}
    (line,) = job.read_lines(str(product.state), "verdicts.jsonl")
    assert (line["id"], line["verdict"], line["by"]) == ("a", "forget", "ada")
    product.how("lies []")
    failed = product.request("forget", ids=["b"], only=False, token=None, by="ada", terminal=True)
    assert (failed["exit"], "1 of 1 not deleted: b (the product lists it still)" in failed["error"]) == (1, True)
    assert set(product.rows()) == {"b"}
    product.how("delete []")
    failed = product.request("forget", ids=["b"], only=False, token=None, by="ada", terminal=True)
    assert (failed["error"], failed["hint"]) == ("the product is ill", "Heal it: --name work")


def test_verdicts_of_a_review_are_tried_first_and_then_done_all(product: Product) -> None:
    for name in "abc":
        product.put(name, created="2026-01-01 00:00:00")
    product.run()
    given = [{"id": "a", "verdict": "confirm"}, {"id": "b", "verdict": "forget"}, {"id": "c", "verdict": "skip"}]
    refused = product.request("apply", given=[*given, {"id": "x", "verdict": "confirm"}], by="t", terminal=False)
    assert (refused["exit"], set(product.held())) == (3, {"a", "b", "c"})
    done = product.request("apply", given=given, by="t", terminal=False)["value"]
    assert [(each["id"], each["gone"]) for each in done] == [("a", []), ("b", ["b"]), ("c", [])]
    assert set(product.held()) == set(product.rows()) == {"a", "c"}
    assert product.rows()["a"][1] > "2026-06"


@pytest.mark.parametrize("verdict", [True, False])
def test_nothing_new_is_written_here(product: Product, verdict: bool) -> None:
    product.put("a")
    product.run()
    if verdict:
        given = [{"id": "a", "verdict": "replace", "fact": "x", "source": "chat 1"}]
        refused = product.request("apply", given=given, by="t", terminal=False)
    else:
        texts = {"subject": "s", "fact": "f", "source": "chat 1", "expires_at": None, "replaces": None}
        refused = product.request("remember", **texts, terminal=False, by="t")
    assert refused["exit"] == 3
    assert "written by the agent's own program" in refused["error"]
    assert len(product.rows()) == 1


# Against a model


NAMES = st.sampled_from("abcdefgh")
DATES = st.sampled_from([None, PAST, FUTURE])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), NAMES, st.sampled_from(["one", "two"]), DATES),
        st.tuples(st.just("drop"), NAMES),
        st.tuples(st.just("confirm"), NAMES),
        st.tuples(st.just("until"), NAMES, st.sampled_from([None, FUTURE, LATER])),
        st.tuples(st.just("meddle"), NAMES, NAMES),
        st.tuples(st.just("run"), st.sampled_from(["", "list fails", "lies", "keeps", "breaks"])),
    ),
    max_size=25,
)


Rows = dict[str, tuple[Any, ...]]


class Pretended:
    """A hand in this process, over a dictionary."""

    def __init__(self) -> None:
        self.held: dict[str, Memory] = {}
        self.how = ""

    def listing(self) -> Listing:
        if self.how == "list fails":
            raise handing.HandError("no list")
        return Listing(dict(self.held))

    def delete(self, ids: list[str]) -> handing.Deleted:
        kept = {"lies": len(ids), "keeps": len(ids), "breaks": len(ids) // 2}.get(self.how, 0)
        for name in ids[kept:]:
            self.held.pop(name, None)
        if self.how == "breaks":
            raise handing.HandError("broken")
        return handing.Deleted(dict.fromkeys(ids[:kept], "kept") if self.how == "keeps" else {})

    def stop(self) -> bool:
        return False


class Model:
    """A ledger and a product, and what must be so of them after every run: the slow and simple one."""

    def __init__(self, case: Product, hand: Pretended) -> None:
        self.case, self.hand = case, hand
        self.confirmed: dict[str, str] = {}  # when somebody said here that a memory is so, while it was there
        self.ends: dict[str, str | None] = {}  # and until when
        self.listed: set[str] = set()

    def put(self, at: str, name: str, text: str, expires: str | None) -> None:
        self.hand.held[name] = Memory(name, text, "2020-02-02 00:00:00", at, expires)

    def drop(self, _at: str, name: str) -> None:
        self.hand.held.pop(name, None)

    def meddle(self, _at: str, by: str, name: str) -> None:
        value = by if by in self.listed else None
        self.case.sql_("UPDATE memory SET superseded_by = ? WHERE id = ?", value, name)

    def confirm(self, at: str, name: str) -> None:
        if name in self.listed:
            self.confirmed[name] = at = at.replace("2026-", "2027-")
            self.case.sql_("UPDATE memory SET confirmed_at = ? WHERE id = ?", at, name)

    def until(self, at: str, name: str, end: str | None) -> None:
        if name in self.listed:
            self.confirm(at, name)
            self.ends[name] = end
            self.case.sql_("UPDATE memory SET expires_at = ? WHERE id = ?", end, name)

    def run(self, _at: str, how: str) -> None:
        self.hand.how, before, held = how, self.case.rows(), dict(self.hand.held)
        assert self._succeeds() or how, "only a hand that fails, or that leaves something, makes a run fail"
        rows = self.case.rows()
        if how == "list fails":
            assert rows == before
            return
        self.agree(rows, before, held)
        if not how:
            assert all(row[2] is None or row[2] > "2027" for row in rows.values())
        self.listed = set(rows)

    def _succeeds(self) -> bool:
        try:
            self.case.run()
        except job.JobError:
            return False
        return True

    def agree(self, rows: Rows, before: Rows, held: dict[str, Memory]) -> None:
        # Nothing comes back, and nothing is missing that the product has.
        assert {name: row[0] for name, row in rows.items()} == {n: m.text for n, m in self.hand.held.items()}
        for name in {*self.confirmed} - (held.keys() & before.keys()):
            del self.confirmed[name]
            self.ends.pop(name, None)
        # What was deleted had ended, by the date that held for it.
        for name in held.keys() - self.hand.held.keys():
            assert self.ends.get(name, held[name].expires) == PAST or (name in before and before[name][2] == PAST)
        for name, at in self.confirmed.items():
            if name in rows:
                assert rows[name][1] >= at


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_whatever_happens_the_ledger_says_what_the_product_holds_and_loses_no_date(
    tmp_path_factory: pytest.TempPathFactory, lib: Path, steps: list[tuple[str, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    hand = Pretended()
    monkeypatch.setattr(handing, "Hand", lambda *_, **__: hand)
    model = Model(Product(tmp_path_factory.mktemp("model"), lib), hand)
    for number, (what, *rest) in enumerate(steps):
        getattr(model, what)(f"2026-{number // 28 + 1:02}-{number % 28 + 1:02} 00:00:00", *rest)


def test_words_for_what_was_done() -> None:
    assert reconcile.Change().words() == ""
    assert reconcile.Change(1, 2000, 0, 3).words() == "1 new, 2,000 changed, 3 not readable now"


def test_a_timers_run_wants_a_backup_as_every_prune(product: Product, monkeypatch: pytest.MonkeyPatch) -> None:
    product.put("a", expires=PAST)
    product.arguments.sets_record = str(product.place / "work.sets.json")
    monkeypatch.setattr(job, "scheduled", lambda *_: True)
    with pytest.raises(job.JobError, match="there is no verified backup") as raised:
        product.run()
    assert (raised.value.exit_code, product.rows()) == (job.NO_BACKUP, {})
    monkeypatch.setattr(job, "scheduled", lambda *_: False)
    assert "there is no verified backup" in product.run().message
