from __future__ import annotations

import pytest

import pairs


def compared(**found: tuple[str, str]) -> tuple[list[str], list[str], list[str]] | None:
    """Paired parts of facts, ghosts and orphans; each part is a role and ids, a letter each."""
    result = pairs.compare({name: (role, set(ids)) for name, (role, ids) in found.items()})
    if result is None:
        return None
    assert all(result[side]["count"] == len(result[side]["ids"]) for side in ("ghosts", "orphans"))
    return result["facts"], result["ghosts"]["ids"], result["orphans"]["ids"]


def test_one_half_has_no_other() -> None:
    assert pairs.compare({}) is None
    assert compared(memory=("facts", "ab"), history=("facts", "cd")) is None
    assert compared(qdrant=("vectors", "ab"), chroma=("vectors", "b")) is None


@pytest.mark.parametrize(
    ("facts", "vectors", "ghosts", "orphans"),
    [
        ("ab", "ab", "", ""),
        ("ab", "abc", "c", ""),
        ("abc", "ab", "", "c"),
        ("ab", "bc", "c", "a"),
        ("ab", "", "", "ab"),
    ],
)
def test_what_is_on_one_side_only_is_named(facts, vectors, ghosts, orphans) -> None:
    assert compared(history=("facts", facts), qdrant=("vectors", vectors)) == (["history"], list(ghosts), list(orphans))


def test_a_store_with_facts_of_its_own_is_no_half() -> None:
    found = {"memory.db": ("facts", {"x", "y"}), "history": ("facts", {"a"}), "qdrant": ("vectors", {"a"})}
    assert pairs.compare(found)["facts"] == ["history"]
    # Nor when the vectors are all lost: the history is the half that is left.
    found["qdrant"] = ("vectors", set())
    result = pairs.compare(found)
    assert (result["facts"], result["orphans"]["ids"]) == (["history"], ["a"])
    # But the store is, where its facts have vectors.
    found["qdrant"] = ("vectors", {"a", "x"})
    result = pairs.compare(found)
    assert (result["facts"], result["orphans"]["ids"]) == (["history", "memory.db"], ["y"])


def test_vectors_of_several_parts_are_one_half() -> None:
    assert compared(memory=("facts", "abc"), one=("vectors", "a"), two=("vectors", "b")) == (["memory"], [], ["c"])


def test_a_manifest_names_the_first_thousand_and_counts_all() -> None:
    result = pairs.compare({"memory.db": ("facts", {f"{n:05}" for n in range(5000)}), "qdrant": ("vectors", set())})
    assert (result["orphans"]["count"], len(result["orphans"]["ids"])) == (5000, 1000)
    assert result["orphans"]["ids"][:2] == ["00000", "00001"]
    assert pairs.words(result) == ", 5,000 orphans"
    assert pairs.words(None) == ""
