"""A file of verdicts: what is refused and how it is said, and what the right ones become."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from memops import verdict_file
from memops.errors import UsageError

NOW = datetime(2026, 12, 1, 12, 0, tzinfo=UTC)
CONFIRM = {"id": "m_1", "seen": "abc", "verdict": "confirm"}
REPLACE = {"id": "m_2", "seen": "abc", "verdict": "replace", "fact": "Uses Zed", "source": "chat 2026-12-01"}


def text(*verdicts: object, **around: object) -> str:
    return json.dumps({"version": 1, "by": "checker", "verdicts": list(verdicts), **around})


def test_right_verdicts_become_what_the_desk_takes():
    batch = verdict_file.read(
        text(
            CONFIRM,
            {**CONFIRM, "id": "m_3", "for": "7d"},
            {**CONFIRM, "id": "m_4", "until": "2027-01-31"},
            {**CONFIRM, "id": "m_5", "until": "never"},
            {**REPLACE, "fact": "  Uses Zed "},
            {**CONFIRM, "id": "m_6", "verdict": "forget"},
            {**CONFIRM, "id": "m_7", "verdict": "skip"},
            {**REPLACE, "id": "m_8", "allow_secret": "an order"},
            by=" a checker ",
        ),
        NOW,
    )
    assert batch.by == "a checker"
    assert batch.verdicts == [
        CONFIRM,
        {**CONFIRM, "id": "m_3", "expires_at": "2026-12-08 12:00:00"},
        {**CONFIRM, "id": "m_4", "expires_at": "2027-02-01 00:00:00"},
        {**CONFIRM, "id": "m_5", "expires_at": None},
        {**REPLACE, "fact": "  Uses Zed "},
        {**CONFIRM, "id": "m_6", "verdict": "forget"},
        {**CONFIRM, "id": "m_7", "verdict": "skip"},
        {**REPLACE, "id": "m_8", "allow_secret": "an order"},
    ]
    assert verdict_file.read(text()).verdicts == []


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("", "no JSON"),
        ("{", "no JSON"),
        ("[]", "no JSON object"),
        ("\ufeff{}", "no JSON"),
        ("[" * 100_000, "nested too deeply"),
        ('{"version": 1' + "0" * 5000 + "}", "no JSON"),
        ('{"version": 1, "version": 1, "by": "x", "verdicts": []}', "same key twice"),
        (text(version=2), "version must be 1"),
        (text(version=True), "version must be 1"),
        (text(version=1.0), "version must be 1"),
        (text(by=""), "by must say"),
        (text(by="a\x1b[31m"), "by must say"),
        (text(by="a" * 101), "by must say"),
        (text(by=None), "by must say"),
        (text(verdicts={}), "must be a list"),
        (text(verdicts=[CONFIRM] * 1001), "1000 is the most"),
        (text(reason="none"), "“reason” is no key"),
        (text("m_1"), "verdict 1: it is no object"),
        (text({**CONFIRM, "id": 1}), "verdict 1: id is missing or no text"),
        (text({**CONFIRM, "id": ""}), "id is missing"),
        (text({**CONFIRM, "id": "\ud800"}), "id is missing"),
        (text({"id": "m_1", "verdict": "confirm"}), "verdict 1 (m_1): seen is missing or no text"),
        (text({**CONFIRM, "seen": None}), "seen is missing"),
        (text({**CONFIRM, "verdict": "delete"}), "confirm, replace, forget or skip"),
        (text({**CONFIRM, "verdict": ["confirm"]}), "confirm, replace, forget or skip"),
        (text({**CONFIRM, "fact": "x"}), "“fact” has no meaning with confirm"),
        (text({**CONFIRM, "expires_at": None}), "“expires_at” has no meaning"),
        (text({**CONFIRM, "verdict": "forget", "until": "never"}), "“until” has no meaning with forget"),
        (text({**CONFIRM, "until": None}), "until must be a date"),
        (text({**CONFIRM, "for": 7}), "for must be a date or a length"),
        (text({**CONFIRM, "until": "never", "for": "7d"}), "leave one out"),
        (text({**CONFIRM, "until": "2020-01-01"}), "is over"),
        (text({**CONFIRM, "until": "03/04/2027"}), "one way only"),
        (text({**CONFIRM, "for": "0d"}), "is not a length of time"),
        (text({**CONFIRM, "for": "99999y"}), "verdict 1"),
        (text({k: v for k, v in REPLACE.items() if k != "fact"}), "the fact is empty"),
        (text({**REPLACE, "fact": "x" * 10_001}), "10,000 is the most"),
        (text({**REPLACE, "fact": "a\0b"}), "which is no text"),
        (text({**REPLACE, "fact": "\ud800"}), "which is no text"),
        (text({**REPLACE, "source": "unknown"}), "does not say where"),
        (text({**REPLACE, "source": 5}), "the source is empty"),
        (text({**REPLACE, "allow_secret": True}), "allow_secret must say, as text"),
        (text({**CONFIRM, "allow_secret": "it is none"}), "“allow_secret” has no meaning with confirm"),
        (text(CONFIRM, CONFIRM), "verdict 2 (m_1): verdict 1 is about the same fact"),
    ],
)
def test_wrong_files_are_refused_with_the_reason(wrong, said):
    with pytest.raises(UsageError) as caught:
        verdict_file.read(wrong, NOW)
    assert said in caught.value.message
    assert '"version": 1' in caught.value.hint


def test_every_mistake_is_named_with_its_number_and_id_and_nothing_a_terminal_obeys():
    bad = {"id": "m\x1b[2J", "seen": "s", "verdict": "confirm", "wh\x07at": 1, "for": "never"}
    with pytest.raises(UsageError) as caught:
        verdict_file.read(text(CONFIRM, bad, {**REPLACE, "source": "-"}, by=""), NOW)
    lines = caught.value.message.splitlines()
    assert lines[0] == "The file has 3 mistakes, so nothing was applied:"
    assert lines[1].startswith("  by must say who checked")
    assert lines[2] == "  verdict 2 (m\\x1b[2J): “wh\\x07at” has no meaning with confirm"
    assert lines[3].startswith("  verdict 3 (m_2): the source '-' does not say where")


def test_of_many_mistakes_the_first_are_named():
    with pytest.raises(UsageError) as caught:
        verdict_file.read(text(*[{}] * 500), NOW)
    assert len(caught.value.message.splitlines()) == verdict_file.MISTAKES + 2
    assert caught.value.message.endswith("and 1460 more")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)
KEYS = st.sampled_from(["id", "seen", "verdict", "until", "for", "fact", "source", "only"])
VALUES = JSON | st.sampled_from(
    ["confirm", "replace", "forget", "skip", "7d", "never", "friday", "m_1", "31 feb", "9999y"]
)
NEAR = st.fixed_dictionaries(
    {},
    optional={
        "version": st.just(1) | JSON,
        "by": st.just("x") | JSON,
        "verdicts": st.lists(st.dictionaries(KEYS, VALUES, max_size=7) | JSON, max_size=4) | JSON,
    },
)


@given(JSON | NEAR)
@example({"version": 1, "by": "x", "verdicts": [{"id": [], "seen": {}, "verdict": {}}]})
@example(
    {"version": 1, "by": "x", "verdicts": [{"id": "a", "seen": "b", "verdict": "confirm", "until": "99999-01-01"}]}
)
@example({"version": 1, "by": "x", "verdicts": [{"id": "a", "seen": "b", "verdict": "confirm", "until": "9999-12-31"}]})
def test_any_json_is_either_valid_or_a_usage_error(data):
    refused = ""
    verdicts = []
    try:
        verdicts = verdict_file.read(json.dumps(data), NOW).verdicts
    except UsageError as error:
        refused = error.message
    assert all(line.isprintable() for line in refused.splitlines())
    for verdict in verdicts:
        assert {"id", "seen", "verdict"} <= set(verdict) <= {"id", "seen", "verdict", "expires_at", "fact", "source"}


@given(st.text(max_size=60))
def test_any_text_is_either_valid_or_a_usage_error(data):
    with pytest.raises(UsageError):
        verdict_file.read(data, NOW)
