"""What a restore would change: facts compared without holding them, and what a hostile owner prints instead."""

from __future__ import annotations

import contextlib
import io
import sqlite3
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import census
import comparison
from restore_case import COLUMNS

if TYPE_CHECKING:
    from pathlib import Path


def make(path: Path, rows: dict[Any, str], schema: str = COLUMNS, more: str = "") -> Path:
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.executescript(f"{more}; CREATE TABLE memory ({schema})")
        connection.executemany("INSERT INTO memory (id, fact) VALUES (?, ?)", rows.items())
    return path


def listed(path: Path, *, content: bool = True) -> bytes:
    out = io.BytesIO()
    comparison.write(str(path), out, content=content)
    return out.getvalue()


def against(present: bytes, chosen: Path, most: int = 10, *, content: bool = True) -> dict[str, Any]:
    return comparison.set_against(str(chosen), io.BytesIO(present), most, census.Limit(60), content=content)


IDS = st.one_of(st.text(st.characters(codec="utf-8"), max_size=5), st.binary(max_size=3), st.integers(-9, 9))
ROWS = st.dictionaries(IDS, st.sampled_from(["one", "two"]), max_size=8)


@given(now=ROWS, then=ROWS, content=st.booleans())
def test_it_says_what_a_comparison_of_sets_says(
    tmp_path_factory: pytest.TempPathFactory, now: dict[Any, str], then: dict[Any, str], content: bool
) -> None:
    top = tmp_path_factory.mktemp("facts")

    def as_stored(rows: dict[Any, str]) -> dict[bytes, str]:  # TEXT makes text of numbers
        return {each if isinstance(each, bytes) else str(each).encode(): fact for each, fact in rows.items()}

    here, there = as_stored(now), as_stored(then)
    if len(here) < len(now) or len(there) < len(then):
        return
    found = against(listed(make(top / "now", now), content=content), make(top / "then", then), content=content)
    expected = {
        "lost": sorted(here.keys() - there.keys()),
        "back": sorted(there.keys() - here.keys()),
        "differ": sorted(each for each in here.keys() & there.keys() if content and here[each] != there[each]),
    }
    for word, ids in expected.items():
        assert found[word] == {"count": len(ids), "ids": [each.decode(errors="backslashreplace") for each in ids[:10]]}
    assert found["chosen"] == len(there)


def test_only_the_first_are_named(tmp_path: Path) -> None:
    present = listed(make(tmp_path / "now", {f"m{n:02}": "f" for n in range(30)}))
    found = against(present, make(tmp_path / "then", {}), most=2)
    assert found["lost"] == {"count": 30, "ids": ["m00", "m01"]}


def test_a_store_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    chosen = make(tmp_path / "then", {"a": "f", "b": "f"})
    damaged = make(tmp_path / "now", {f"m{n}": "f" * 900 for n in range(50)})
    content = bytearray(damaged.read_bytes())
    content[4096:] = b"\xff" * (len(content) - 4096)
    damaged.write_bytes(content)
    found = against(listed(damaged), chosen)
    assert found["trouble"].startswith("the store is damaged")
    assert found["chosen"] == 2
    assert against(listed(tmp_path / "nothing"), chosen) == {"trouble": "missing", "chosen": 2}
    (tmp_path / "text").write_text("no database at all, but long enough" * 30)
    assert "not a SQLite database" in against(listed(tmp_path / "text"), chosen)["trouble"]


@pytest.mark.parametrize(
    "printed",
    [b"", b"61\n", b"62\n61\n.\n", b"zz\n.\n", b"61" * 5000 + b"\n.\n", b"\xff\xfe\n.\n", b"61 00000000\n61"],
)
def test_what_the_owner_printed_is_not_trusted(tmp_path: Path, printed: bytes) -> None:
    chosen = make(tmp_path / "then", {"b": "f"})
    assert against(printed, chosen) == {"trouble": "its facts cannot be listed", "chosen": 1}


def test_an_endless_line_is_not_held(tmp_path: Path) -> None:
    class Endless(io.RawIOBase):
        read_so_far = 0

        def readable(self) -> bool:
            return True

        def readinto(self, buffer: Any) -> int:
            self.read_so_far += len(buffer)
            assert self.read_so_far < 1 << 20
            buffer[:] = b"6" * len(buffer)
            return len(buffer)

    chosen = make(tmp_path / "then", {"b": "f"})
    found = comparison.set_against(str(chosen), io.BufferedReader(Endless()), 10, census.Limit(60), content=False)
    assert found["trouble"] == "its facts cannot be listed"


def test_words_of_the_owners_are_made_printable(tmp_path: Path) -> None:
    chosen = make(tmp_path / "then", {"b": "f"})
    assert against(b"!\x1b[31mred\n", chosen)["trouble"] == "\\x1b[31mred"


def test_other_encodings_and_ids_without_text(tmp_path: Path) -> None:
    utf16 = "PRAGMA encoding = 'UTF-16le'"
    now, then = ({"\u00e9": "f", "a": "f"}, {"a": "f", "\u4e00": "f"})
    present = listed(make(tmp_path / "now", now, more=utf16))
    found = against(present, make(tmp_path / "then", then, more=utf16))
    assert (found["lost"]["count"], found["back"]["count"], found["chosen"]) == (1, 1, 2)
    schema = COLUMNS.replace("id TEXT PRIMARY KEY", "id")
    several = make(tmp_path / "nulls", {None: "f"}, schema)
    with contextlib.closing(sqlite3.connect(several, isolation_level=None)) as connection:
        connection.execute("INSERT INTO memory (fact) VALUES ('another'), ('a third')")
    assert against(listed(several), several)["differ"]["count"] == 0
