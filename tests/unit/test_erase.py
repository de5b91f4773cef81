"""Words that are to go: planted in every place, found there, and in no byte of any file afterwards."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
from pathlib import Path

import hypothesis
import pytest
import store
from hypothesis import strategies as st

import backup_case
import blanking
import erase
import erase_sets
import traces
from memops import erasing, render, searching
from memops.settings import Store
from unit.fact_store import Case

WORD = "Xylophone 7731"
LONG = "The harbour of Kälmunz has " + " ".join(f"{number} boats" for number in range(2000)) + "."


class Place:
    """A store with everything beside it that the owner's half looks at."""

    def __init__(self, directory, *, full_text=False):
        (directory / "agent").mkdir()
        self.case = Case(directory / "agent")
        self.directory, self.state = directory / "agent", self.case.state
        if full_text:
            with contextlib.closing(sqlite3.connect(self.case.path)) as connection:
                connection.executescript(render.sql("full_text", Store()))
        self.databases = [self.case.path]
        self.parts = []

    def other(self, name, script):
        """A further database of the agent's."""
        path = str(self.directory / name)
        with contextlib.closing(sqlite3.connect(path)) as connection:
            connection.executescript(script)
        self.databases.append(path)
        return path

    def ask(self, op, **given):
        task = {
            "state": str(self.state),
            "databases": [(path, path) for path in self.databases],
            "parts": [(path, path) for path in self.parts],
            "beside": [(str(self.directory), str(self.directory))],
            "incoming": [(str(self.directory.parent / "incoming"), "/in")],
        }
        found = erase.answer({"op": op, "task": task, "given": given})
        assert "error" not in found, found
        # As it comes through the pipe.
        return json.loads(json.dumps(found["value"]))

    def kinds(self, *texts):
        return {each["kind"] for each in self.ask("search", texts=texts)["places"]}

    def erase(self, **given):
        looked = self.ask("look", **given)
        done = self.ask("delete", **{**given, "texts": looked["texts"], "seen": looked["seen"], "by": "test"})
        assert done["left"] == []
        assert self.ask("settle")["left"] == []
        return looked, done

    def bytes(self):
        """Every byte of every file, one after the other; a file's end is no beginning of the next one."""
        return b"\0\0".join(Path(path).read_bytes() for path in traces.files_below(str(self.directory)))

    def nothing_of(self, *texts):
        found = self.ask("search", texts=texts)
        assert (found["places"], found["unread"]) == ([], [])
        everything = self.bytes()
        for text in texts:
            for encoding in ("utf-8", "utf-16-le", "utf-16-be"):
                assert text.encode(encoding) not in everything


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path)


@pytest.mark.parametrize(
    "data",
    [
        WORD.encode(),
        WORD.encode("utf-16-le"),
        WORD.encode("utf-16-be"),
        json.dumps({"a": f"x{WORD}"}).encode(),
        b"\0" * (traces.CHUNK - 5) + WORD.encode(),  # over the border of what is read at once
    ],
)
def test_the_words_are_found_in_the_bytes_of_a_file(tmp_path, data):
    file = tmp_path / "file"
    file.write_bytes(data)
    words = traces.Words([WORD])
    assert traces.in_file(str(file), words) == "whole"
    file.write_bytes(data.replace(b"7", b"8"))
    assert traces.in_file(str(file), words) == ""


@pytest.mark.parametrize(("text", "stored"), [("Kälmunz", "Ka\u0308lmunz"), ("Ka\u0308lmunz", "Kälmunz")])
def test_forms_of_one_text_are_the_same_words(text, stored):
    words = traces.Words([text])
    assert words.of(stored.encode()) == "whole"
    assert words.of(json.dumps(stored).encode()) == "whole"
    assert "lmunz" not in words.without(f"in {stored}, {json.dumps(stored)}", "[]")


def test_too_short_a_text_is_refused():
    with pytest.raises(store.Refused):
        traces.Words(["ab "])


@pytest.mark.parametrize("page", [512, 4096, 65536])
def test_a_text_longer_than_a_page_is_found_in_pages_that_no_row_has(tmp_path, page):
    path = str(tmp_path / "a.db")
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.executescript(f"PRAGMA page_size = {page}; PRAGMA secure_delete = OFF; CREATE TABLE t (x)")
        connection.execute("INSERT INTO t VALUES (?)", (LONG,))
        connection.execute("INSERT INTO t VALUES ('stays')")
        connection.commit()
        words = traces.Words([LONG])
        assert [hit.table for hit in traces.in_database(connection, words)] == ["t"]
        assert traces.in_file(path, words) == "part" if page < len(LONG) else "whole"
        connection.execute("DELETE FROM t WHERE rowid = 1")
        connection.commit()
        assert traces.in_database(connection, words) == []
        assert traces.in_file(path, words) != ""
        assert erase.write_anew(connection) == ""
    assert traces.in_file(path, words) == ""


@pytest.mark.parametrize("encoding", ["UTF-8", "UTF-16le", "UTF-16be"])
@pytest.mark.parametrize("mode", ["wal", "delete", "persist", "truncate"])
def test_rows_free_pages_and_the_wal_are_rid_of_it_in_any_encoding(tmp_path, encoding, mode):
    path = str(tmp_path / "a.db")
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.executescript(
            f"PRAGMA encoding = '{encoding}'; PRAGMA journal_mode = {mode}; PRAGMA secure_delete = OFF;"
            "CREATE TABLE t (id INTEGER PRIMARY KEY, x TEXT, y TEXT); CREATE INDEX i ON t(x);"
            "CREATE TABLE k (x TEXT PRIMARY KEY, y) WITHOUT ROWID"
        )
        connection.executemany("INSERT INTO t (x) VALUES (?)", [(f"{WORD} {number}",) for number in range(300)])
        connection.execute("INSERT INTO k VALUES (?, 1)", (f"key {WORD}",))
        connection.execute("DELETE FROM t WHERE id > 10")
        connection.commit()
        words = traces.Words([WORD])
        assert {hit.table for hit in traces.in_database(connection, words)} == {"t", "k"}
        if mode == "wal":
            assert traces.in_file(f"{path}-wal", words) == "whole"
        done, problems = blanking.blank(connection, words, "[erased]", ())
        assert (done, problems) == (11, [])
        assert erase.write_anew(connection) == ""
        assert connection.execute("SELECT x FROM t WHERE id = 1").fetchone() == ("[erased] 0",)
        for file in traces.files_below(str(tmp_path)):
            assert traces.in_file(file, words) == ""


def test_everything_that_is_planted_is_found_and_gone(tmp_path):
    place = Place(tmp_path, full_text=True)
    case = place.case
    old = case.remember(f"Lives beside {WORD}")
    case.remember("Lives elsewhere", replaces=old)
    case.remember(LONG[:9000] + WORD)
    stays = case.remember("Uses Helix")
    gone = case.remember(f"Was here: {WORD}")
    case.forget(gone)
    history = place.other(
        "history.db",
        "PRAGMA secure_delete = OFF; CREATE TABLE history (id INTEGER PRIMARY KEY, old_memory, new_memory);"
        "CREATE VIRTUAL TABLE own USING fts5(a, b); CREATE VIRTUAL TABLE four USING fts4(a);"
        f"INSERT INTO history VALUES (1, '{WORD}', '{json.dumps({'v': WORD})}'), (2, 'stays', NULL);"
        f"INSERT INTO own VALUES ('xylophone', 'a {WORD}'); INSERT INTO four VALUES ('{WORD}');",
    )
    (place.state / "digests.jsonl").write_text(
        json.dumps({"new": 2, "facts": [{"id": "m_x", "fact": WORD}, {"id": stays, "fact": "Uses Helix"}]})
        + "\n"
        + json.dumps({"new": 1, "facts": [{"id": old, "fact": "Lives beside…"}]})
        + "\n"
    )
    (place.state / "review.json").write_text(json.dumps({"facts": [{"id": old, "fact": "cut"}]}) + "\n")
    (place.state / "runs.jsonl").write_text(
        f'{{"job": "prune", "message": "{WORD}"}}\nno JSON {WORD}\n{{"job": "a"}}\n'
    )
    (place.state / "digests.jsonl.new").write_text(WORD)
    (place.directory / "before-restore-2026").mkdir()
    (place.directory / "before-restore-2026" / "memory.db").write_bytes(b"\0" + WORD.encode("utf-16-le"))
    (place.directory / "before-restore-2025").mkdir()
    (place.directory / "before-restore-2025" / "memory.db").write_text("nothing of it")

    looked, done = place.erase(texts=[WORD], matching=True)
    assert {each["kind"] for each in looked["places"]} >= {"fact", "row", "record", "copy"}
    assert WORD not in json.dumps(looked["places"] + looked["going"])
    assert old in done["gone"]
    assert case.run("SELECT count(*) FROM memory") == [(2,)]
    place.nothing_of(WORD)
    with contextlib.closing(sqlite3.connect(history)) as connection:
        rows = connection.execute("SELECT * FROM history").fetchall()
        assert rows == [(1, "[erased]", '{"v": "[erased]"}'), (2, "stays", None)]
        assert connection.execute("SELECT b FROM own WHERE own MATCH 'xylophone'").fetchall() == [("a [erased]",)]
        assert connection.execute("SELECT count(*) FROM four WHERE four MATCH '7731'").fetchone() == (0,)
    digests = [json.loads(line) for line in (place.state / "digests.jsonl").read_text().splitlines()]
    assert digests[1]["facts"] == []
    assert digests[0]["facts"][1] == {"id": stays, "fact": "Uses Helix"}
    assert (place.state / "runs.jsonl").read_text() == '{"job": "prune", "message": "[erased]"}\n{"job": "a"}\n'
    assert [path.name for path in place.directory.glob("before*")] == ["before-restore-2025"]
    assert {line["id"] for line in erase.verdicts.about(str(place.state), [old])} == {old}


def test_the_terms_of_a_full_text_index_go_too(tmp_path):
    place = Place(tmp_path, full_text=True)
    doomed = place.case.remember("Zanzibar quokka")
    for number in range(50):
        place.case.remember(f"Fact number {number}")
    assert b"quokka" in place.bytes()
    place.erase(ids=[doomed])
    assert b"quokka" not in place.bytes()
    assert b"zanzibar" not in place.bytes()
    with contextlib.closing(sqlite3.connect(place.case.path)) as connection:
        assert traces.segments(connection, "memory_text") == 1
        connection.execute("INSERT INTO memory_text(memory_text, rank) VALUES ('integrity-check', 1)")
    assert len(place.case.ask("recall", query="number", subject=None, limit=60, max_chars=None)["facts"]) == 50


def test_by_id_the_chain_behind_goes_and_other_facts_with_the_words_are_named(place):
    first = place.case.remember("Uses Emacs on the old laptop")
    second = place.case.remember("Uses Vim on the old laptop", replaces=first)
    other = place.case.remember("Somebody says: Uses Vim on the old laptop, and more")
    looked, done = place.erase(ids=[second])
    assert set(done["gone"]) == {first, second}
    assert looked["ids"] == [second, first]
    left = place.ask("search", texts=looked["texts"])["places"]
    assert [each["id"] for each in left] == [other]


def test_a_fact_that_changed_since_it_was_looked_at_is_not_touched(place):
    name = place.case.remember("Uses Vim on the old laptop")
    looked = place.ask("look", ids=[name])
    place.case.run("UPDATE memory SET fact = 'Something else' WHERE id = ?", name)
    task = {"state": str(place.state), "databases": [(place.case.path,) * 2]}
    given = {"texts": looked["texts"], "seen": looked["seen"], "ids": [name]}
    assert erase.answer({"op": "delete", "task": task, "given": given})["exit"] == 3
    assert place.case.ids() == {name}


def test_redacting_takes_the_value_out_everywhere_and_leaves_the_fact(tmp_path):
    place = Place(tmp_path, full_text=True)
    value = "ghp_" + "Q7w8E9r0T1y2" * 3
    given = {"allow_secret": "made up"}
    old = place.case.remember(f"The token was {value} in May", **given)
    name = place.case.remember(f"The token is {value} now", replaces=old, **given)
    place.other("log.db", f"CREATE TABLE log (what); INSERT INTO log VALUES ('set {value}')")
    before = place.case.run("SELECT created_at, confirmed_at, superseded_by FROM memory ORDER BY id")
    looked, done = place.erase(redact=name)
    assert done["gone"] == []
    facts = dict(place.case.run("SELECT id, fact FROM memory"))
    assert facts[name].startswith("The token is ")
    assert facts[name].endswith("[…] now")
    assert value not in facts[old]
    assert place.case.run("SELECT created_at, confirmed_at, superseded_by FROM memory ORDER BY id") == before
    place.nothing_of(*looked["texts"])
    assert value[4:] not in place.bytes().decode(errors="replace")
    assert place.case.ask("show", id=name)["fact"]["secrets"] == []


def test_what_cannot_be_taken_out_is_left_and_named(place):
    place.other("blob.db", f"CREATE TABLE t (x); INSERT INTO t VALUES (CAST('{WORD}' AS BLOB))")
    (place.directory / "notes.txt").write_text(WORD)
    done = place.ask("delete", texts=[WORD], matching=True)
    assert "no text" in done["left"][0]
    assert place.kinds(WORD) == {"row", "file"}


def test_beside_somebody_who_reads_the_wal_stays_and_is_said(place):
    name = place.case.remember(f"Lives beside {WORD}")
    with contextlib.closing(sqlite3.connect(place.case.path, isolation_level=None)) as reader:
        reader.execute("PRAGMA journal_mode = wal")
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM memory").fetchone()
        place.ask("delete", texts=[WORD], matching=True, by="test")
        held = place.ask("settle", held={place.case.path: "process 7 has it open"})["left"]
        assert held == [f"{place.case.path} was not written anew: process 7 has it open"]
        assert place.kinds(WORD) == {"pages"}
    assert name not in place.case.ids()
    assert place.ask("settle")["left"] == []
    place.nothing_of(WORD)


def test_the_receipt_has_no_word_of_it(place):
    path = place.ask("receipt", texts=[WORD], receipt={"by": "test", "left": [f"at {WORD}"]})["path"]
    text = Path(path).read_text()
    assert WORD not in text
    assert json.loads(text)["left"] == ["at "]
    assert Path(path).stat().st_mode & 0o777 == 0o600


def test_a_link_or_a_pipe_is_neither_followed_nor_waited_for(place, tmp_path):
    (tmp_path / "roots").write_text(WORD)
    (place.directory / "link").symlink_to(tmp_path / "roots")
    (place.state / "digests.jsonl").symlink_to(tmp_path / "roots")
    os.mkfifo(place.directory / "pipe")
    os.mkfifo(place.state / "runs.jsonl")
    assert place.kinds(WORD) == set()
    place.ask("delete", texts=[WORD], matching=True)
    assert (tmp_path / "roots").read_text() == WORD


def test_what_waits_for_a_set_is_searched_as_its_owner(place):
    incoming = place.directory.parent / "incoming"
    assert place.kinds(WORD) == set()
    incoming.mkdir()
    with contextlib.closing(sqlite3.connect(incoming / "memory.db")) as connection:
        connection.execute("CREATE TABLE memory (fact)")
        connection.execute("INSERT INTO memory VALUES (?)", (WORD,))
        connection.commit()
    found = place.ask("search", texts=[WORD])
    assert [(each["kind"], each["where"]) for each in found["places"]] == [("incoming", "/in/memory.db")]


TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=12, max_size=1500).filter(
    lambda text: len(text.strip()) >= 12 and len(set(text)) > 6
)


@hypothesis.settings(max_examples=15)
@hypothesis.given(
    text=TEXT,
    column=st.sampled_from(["subject", "fact", "source", "origin"]),
    secure=st.booleans(),
    before=st.text(max_size=5),
    full_text=st.booleans(),
)
def test_whatever_was_planted_in_whatever_column_is_in_no_byte_afterwards(
    tmp_path_factory, text, column, secure, before, full_text
):
    place = Place(tmp_path_factory.mktemp("place"), full_text=full_text)
    # A word of the schema itself stays, and is told (hypothesis finds such words in our sources).
    hypothesis.assume(text.lower() not in str(place.case.run("SELECT sql FROM sqlite_schema")).lower())
    names = [place.case.remember(f"fact {number}") for number in range(3)]
    log = place.other("log.db", "CREATE TABLE log (a, b)")
    with contextlib.closing(sqlite3.connect(log)) as connection, connection:
        connection.execute("INSERT INTO log VALUES (?, ?)", (before + text, json.dumps([text])))
    with contextlib.closing(sqlite3.connect(place.case.path)) as connection, connection:
        connection.execute(f"PRAGMA secure_delete = {secure:d}")
        connection.execute(f"UPDATE memory SET {column} = ? WHERE id = ?", (before + text, names[0]))
        connection.execute(f"UPDATE memory SET {column} = ? WHERE id = ?", (before + text, names[1]))
        connection.execute(f"UPDATE memory SET {column} = 'rewritten' WHERE id = ?", (names[1],))
    (place.state / "digests.jsonl").write_text(json.dumps({"facts": [{"id": "x", column: text}]}) + "\n")
    _, done = place.erase(texts=[text], matching=True)
    assert done["gone"] == [names[0]]
    place.nothing_of(text)


# Sets


def sets_answer(op, directory, **given):
    given = {
        "sets": str(directory / "sets"),
        "record": str(directory / "r"),
        **given,
    }
    found = erase_sets.answer({"op": op, "given": given})
    assert "error" not in found, found
    return found["value"]


def make_set(directory, name, text, *, pinned=False):
    """A set as far as erasing has to do with it: a directory with a manifest and a database that VACUUM INTO wrote."""
    place = directory / "sets" / name
    place.mkdir(parents=True)
    with contextlib.closing(sqlite3.connect(directory / "source.db")) as connection:
        connection.executescript("DROP TABLE IF EXISTS memory; CREATE TABLE memory (id, fact)")
        connection.execute("INSERT INTO memory VALUES ('m_1', ?)", (text,))
        connection.commit()
        connection.execute("VACUUM INTO ?", (str(place / "memory.db"),))
    if pinned:
        (directory / "sets" / f"{name}.pinned").touch()


OLD, PINNED, NEW = "2026-11-01T000000Z", "2026-11-02T000000Z", "2026-11-30T000000Z"


@pytest.fixture
def backups(tmp_path):
    """Three sets, two of which hold the words; none has a manifest."""
    make_set(tmp_path, OLD, LONG)
    make_set(tmp_path, PINNED, f"and {WORD}", pinned=True)
    make_set(tmp_path, NEW, "stays")
    return tmp_path


def test_sets_that_have_the_words_are_named_and_what_a_kill_left(backups):
    (backups / "sets" / ".partial-1").mkdir()
    (backups / "sets" / ".partial-1" / "memory.db").write_text(WORD)
    found = sets_answer("look", backups, texts=[WORD, LONG])
    assert {each["name"]: each["holds"] for each in found["sets"]} == {OLD: "part", PINNED: "whole", NEW: ""}
    assert [each["how"] for each in found["other"]] == ["whole"]
    assert [each["name"] for each in found["sets"] if each["pinned"]] == [PINNED]
    assert found["unread"] == []


def test_no_set_goes_without_a_newer_good_one(backups):
    # These have no manifest, so none of them is good.
    done = sets_answer("remove", backups, names=[OLD], stays=NEW, texts=[WORD])
    assert done == {"removed": [], "left": [f"the set {OLD} stays: there is no newer good one"]}
    assert (backups / "sets" / OLD).is_dir()


def test_sets_go_once_there_is_a_newer_good_one_and_pinned_ones_only_when_asked(lib):
    with backup_case.case(lib) as case:
        case.fill(5, more=f"UPDATE memory SET fact = 'beside {WORD}'")
        for _ in range(2):
            assert (case.snapshot().returncode, case.seal().returncode) == (0, 0)
        case.source.unlink()
        case.fill(6)
        assert (case.snapshot().returncode, case.seal().returncode) == (0, 0)
        first, second, new = sorted(case.whole_sets(), key=erase_sets.setdir.order)
        (case.sets / f"{second}.pinned").touch()
        places = {"sets": str(case.sets), "record": str(case.state_file)}

        def ask(op, **given):
            return erase_sets.answer({"op": op, "given": {**places, **given}})["value"]

        looked = ask("look", texts=[WORD])["sets"]
        assert [(each["name"], each["holds"]) for each in looked if each["holds"]] == [
            (first, "whole"),
            (second, "whole"),
        ]
        assert [each["name"] for each in looked if each["latest"]] == [new]
        assert ask("remove", names=[new], stays=new)["removed"] == []
        done = ask("remove", names=[first, second], stays=new)
        assert done["removed"] == [first]
        assert "pinned" in done["left"][0]
        assert ask("remove", names=[second], stays=new, pinned=True) == {"removed": [second], "left": []}
        assert case.whole_sets() == [new]
        assert ask("look", texts=[WORD])["sets"][0]["holds"] == ""


@pytest.mark.parametrize(
    ("offsite", "words"),
    [
        (
            "restic=/mnt/disk",
            "restic -r /mnt/disk snapshots --tag memops,store:default, then restic -r /mnt/disk",
        ),
        ("restic=", "restic snapshots --tag memops,store:default, then restic forget --prune SNAPSHOT…"),
        ("rclone=cold:agent", "rclone purge cold:agent/default/SET"),
        ("rclone=/mnt/disk/", "rclone purge /mnt/disk/default/SET"),
    ],
)
def test_copies_away_are_named_with_the_command_and_never_called_gone(offsite, words):
    (left,) = searching.away(Store(offsite=offsite))
    assert words in left
    assert "were not looked at" in left
    lines = "\n".join(erasing.conclude(Store(), erasing.Done(False, 1, ["m_1"], [left], [])))
    assert lines.startswith("Facts deleted: 1.\nNot gone, or not shown to be:")
    assert "Gone: " not in lines
    (left,) = searching.away(Store(parts=("postgres=postgresql://db/mem",)))
    assert left == "the part postgres was not looked at: postgresql://db/mem keeps it"
