"""Settings: what cannot be right is refused, and memops.toml brings back what was put in."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memops import render, settings
from memops.errors import MemopsError, UsageError
from memops.settings import Store

# What a path may hold: anything printable but quotes and the backslash.
ALLOWED = st.text(
    st.characters(exclude_characters="\"'\\/", exclude_categories=("Cc", "Cs", "Cf", "Zl", "Zp", "Co", "Cn", "Zs"))
    | st.just(" "),
    min_size=1,
    max_size=30,
).filter(lambda name: name not in (".", ".."))


@pytest.mark.parametrize(("text", "days"), [("180d", 180), ("180", 180), ("1 day", 1), ("30 days", 30)])
def test_days(text: str, days: int) -> None:
    assert settings.days(text) == days


@pytest.mark.parametrize("text", ["", "0", "-1", "180h", "soon", "1.5d", "9999999"])
def test_what_is_no_number_of_days(text: str) -> None:
    with pytest.raises(UsageError):
        settings.days(text)


@pytest.mark.parametrize(
    "store",
    [
        Store(name="Work"),
        Store(name="incoming"),
        Store(name="a" * 32),
        Store(name="../x"),
        Store(user="a b"),
        Store(user="-x"),
        Store(user="a\nRoot=1"),
        Store(db="memory.db"),
        Store(db="/srv/a\nb/m.db"),
        Store(db="/srv/a\x00b/m.db"),
        Store(db='/srv/a"b/m.db'),
        Store(db="/srv/a'b/m.db"),
        Store(db="/srv/a\\b/m.db"),
        Store(db="/srv/\udc80/m.db"),
        Store(backup_dir="/srv/\x1b[31m"),
        Store(journal_mode="delete"),
        Store(history_from="birth"),
        Store(prune_at="daily\n[Service]"),
        Store(prune_at=" "),
    ],
)
def test_what_cannot_be_right(store: Store) -> None:
    with pytest.raises(UsageError) as caught:
        settings.check(store)
    assert caught.value.hint


@given(name=ALLOWED, folder=ALLOWED, days=st.integers(1, 9999))
def test_memops_toml_brings_back_what_was_put_in(name: str, folder: str, days: int) -> None:
    store = Store(db=f"/srv/{folder}/{name}", backup_dir=f"/b/{folder}", keep_superseded=days)
    settings.check(store)
    text = render.settings_file({"default": store}).text
    assert settings.parse(text) == {"default": store}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "version = 2",
        "version = 1\n[store.default]\nprune_on = 'daily'",
        "version = 1\n[store.default]\ndb = 'x'",
        "nonsense",
        "version = 1\nstore = 3",
        "version = 1\n[store.default]\ndb = 5",
        "version = 1\n[store.default]\nprune_at = [1]",
        "version = 1\n[store.default]\nkeep_superseded = true",
    ],
)
def test_a_file_that_memops_did_not_write(text: str, tmp_path) -> None:
    path = tmp_path / "memops.toml"
    path.write_text(text)
    with pytest.raises(MemopsError, match="is not what memops wrote"):
        settings.load(path)


def test_no_file_is_no_store(tmp_path) -> None:
    assert settings.load(tmp_path / "memops.toml") == {}


def test_names_of_units_and_places() -> None:
    first, work = Store(), Store(name="work")
    assert first.unit("prune") == "memory-prune.service"
    assert work.unit("prune", "timer") == "memory-prune-work.timer"
    assert (first.sets, work.incoming) == ("/srv/backup/default", "/srv/backup/incoming/work")
    assert work.state == "/var/lib/memops/work"
    assert work.sets_record == "/var/lib/memops/work.sets.json"
    assert first.jobs == ("snapshot", "backup", "prune", "digest", "drill", "review")
    assert work.timers == tuple(f"memory-{job}-work.timer" for job in ("backup", "prune", "drill", "review"))
