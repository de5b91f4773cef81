"""The server in these tests is the fake; tests/stores shows that Qdrant's own client speaks to it."""

from __future__ import annotations

import json
import tarfile

import pytest

import job
from fake_qdrant import Fake
from kinds import _qdrant_http, _qdrant_server, qdrant

KEY = "k-4a7d"


@pytest.fixture
def server(tmp_path, monkeypatch):
    (tmp_path / "key").write_text(f"{KEY}\n")
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    monkeypatch.setenv("MEMOPS_PART", "key")
    monkeypatch.delenv("MEMOPS_SECRETS", raising=False)
    monkeypatch.setattr(_qdrant_server, "PAGE", 100)
    with Fake(key=KEY) as fake:
        put(fake, "memories", 1203)
        put(fake, "möbel & co", 3)
        put(fake, "memories_entities", 1)
        fake.aliases["current"] = "memories"
        yield fake


def put(fake, name, count, first=1):
    fake.configurations[name] = {"vectors": {"size": 1, "distance": "Dot"}}
    points = fake.collections.setdefault(name, {})
    points.update({n: {"id": n, "vector": [n], "payload": {"n": n}} for n in range(first, first + count)})


def left(fake):
    """Snapshots that stay on the server."""
    return [name for each in fake.snapshots.values() for name in each]


def test_a_snapshot_of_every_collection_is_fetched_and_none_stays_there(server, target, limit):
    claim = qdrant.snapshot(server.url, str(target), limit)
    assert claim["exact"] is True
    assert claim["counts"] == {"memories": 1203, "memories_entities": 1, "möbel & co": 3}
    names = [f"{name}.{kind}" for name in claim["counts"] for kind in ("ids", "snapshot")]
    assert {path.name for path in target.iterdir()} == {"index.json", *names}
    with tarfile.open(target / "memories.snapshot") as tar:
        assert tar.getnames() == ["0/segments/all.json"]
    assert left(server) == []
    entry = qdrant.verify(str(target), json.loads(json.dumps(claim)), limit)
    assert qdrant.verify(str(target), entry, limit) == entry
    role, ids = qdrant.ids(str(target))
    assert (role, ids) == ("vectors", {str(n) for n in range(1, 1204)})


def test_it_goes_back_into_another_server_and_leaves_what_is_not_in_the_set(server, target, limit, capsys):
    qdrant.snapshot(server.url, str(target), limit)
    with Fake(key=KEY) as other:
        put(other, "memories", 5, first=9000)
        put(other, "unknown", 2)
        other.aliases["current"] = "unknown"
        qdrant.restore(str(target), other.url, limit)
        assert other.collections == server.collections | {"unknown": other.collections["unknown"]}
        assert len(other.collections["unknown"]) == 2
        assert other.aliases == {"current": "memories"}
        assert left(other) == []
        assert capsys.readouterr().out == "not in the set, and left as they are: unknown\n"
        qdrant.restore(str(target), other.url, limit)
        assert other.aliases == {"current": "memories"}


def test_points_added_while_the_snapshot_is_made_are_told(server, target, limit):
    """Once: it is made again, and then exact. At every try: the claim says that it is not."""
    calls = []

    def once():
        if not calls:
            put(server, "memories", 1, first=5000)
        calls.append(1)

    server.between = once
    claim = qdrant.snapshot(server.url, str(target), limit)
    assert (claim["exact"], claim["counts"]["memories"]) == (True, 1204)
    qdrant.verify(str(target), claim, limit)

    for path in target.iterdir():
        path.unlink()
    server.between = lambda: put(server, "memories", 1, first=6000 + len(server.asked))
    claim = qdrant.snapshot(server.url, str(target), limit)
    assert claim["exact"] is False
    assert qdrant.verify(str(target), claim, limit)["exact"] is False
    assert left(server) == []
    server.between = lambda: None
    with Fake(key=KEY) as other:
        qdrant.restore(str(target), other.url, limit)
        assert len(other.collections["memories"]) == claim["counts"]["memories"] - 1


@pytest.mark.parametrize(
    ("misbehaviour", "words"),
    [
        ("redirect", "answers with a redirection, which is not followed"),
        ("cut", "the snapshot (broke off|has not the)"),
        ("checksum", "the snapshot of memories has not the checksum that Qdrant said"),
        ("cluster", "runs as a cluster, where a snapshot holds the data of one node only"),
        ("undeletable", "answers DELETE .* with HTTP 500: .*Service internal error"),
    ],
)
def test_a_server_that_misbehaves_is_an_error_that_leaves_no_snapshot_there(misbehaviour, words, server, target, limit):
    server.misbehave.add(misbehaviour)
    with pytest.raises(job.JobError, match=words):
        qdrant.snapshot(server.url, str(target), limit)
    assert left(server) == [] or misbehaviour == "undeletable"


def test_a_disk_that_is_full_leaves_no_snapshot_on_the_server(server, target, limit, monkeypatch):
    monkeypatch.setattr(_qdrant_server.census, "free_bytes", lambda _: 5000)
    with pytest.raises(job.JobError, match="no room for the copy"):
        qdrant.snapshot(server.url, str(target), limit)
    assert left(server) == []
    monkeypatch.setattr(_qdrant_server.census, "free_bytes", lambda _: 1 << 30)
    (target / "memories.snapshot").symlink_to("/dev/full")
    monkeypatch.setattr(_qdrant_server, "_new", lambda *_: open("/dev/full", "wb"))  # noqa: SIM115, PTH123
    with pytest.raises(job.JobError, match="the disk of the backups is full"):
        qdrant.snapshot(server.url, str(target), limit)
    assert left(server) == []


def test_a_wrong_key_is_said_and_the_key_is_not(server, target, limit, tmp_path):
    (tmp_path / "key").write_text("another-key")
    with pytest.raises(job.JobError, match=r"refuses the key \(HTTP 401\)") as said:
        qdrant.snapshot(server.url, str(target), limit)
    assert "another-key" not in str(said.value)
    (tmp_path / "key").write_text("one\nmore")
    with pytest.raises(job.JobError, match="holds more than one line"):
        qdrant.snapshot(server.url, str(target), limit)


def test_a_key_of_its_own_file_comes_first(server, target, limit, tmp_path, monkeypatch):
    (tmp_path / "key").write_text("wrong")
    (tmp_path / "own").write_text(KEY)
    monkeypatch.setenv("MEMOPS_SECRETS", str(tmp_path / "own"))
    assert qdrant.snapshot(server.url, str(target), limit)["counts"]["memories"] == 1203


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://user:pw@127.0.0.1:1", "holds a secret"),
        ("http://127.0.0.1:1?api-key=x", "is no address of a Qdrant server"),
        ("http://", "is no address of a Qdrant server"),
        ("http://127.0.0.1:1", "127.0.0.1:1 does not answer"),
        ("http://127.0.0.1:99999", "is no address of a Qdrant server"),
    ],
)
def test_an_address_that_is_none_is_refused(url, words, target, limit):
    with pytest.raises(job.JobError, match=words):
        qdrant.snapshot(url, str(target), limit)


def test_a_server_without_collections_is_one_in_which_nothing_was_put_yet(target, limit):
    with Fake() as empty:
        claim = qdrant.snapshot(empty.url, str(target), limit)
        assert claim["counts"] == {}
        assert qdrant.verify(str(target), claim, limit)["counts"] == {}
        assert qdrant.ids(str(target)) == ("vectors", set())
        qdrant.restore(str(target), empty.url, limit)


@pytest.mark.parametrize("name", ["../../etc", "a/b", ".hidden", "a\nb"])
def test_a_collection_whose_name_is_a_path_is_refused(name, server, target, limit):
    put(server, name, 1)
    with pytest.raises(job.JobError, match=r"cannot be kept under its name|holds a control character"):
        qdrant.snapshot(server.url, str(target), limit)
    assert left(server) == []


def test_an_answer_without_an_end_is_cut_off(server, target, limit, monkeypatch):
    monkeypatch.setattr(_qdrant_http, "ANSWER", 1000)
    with pytest.raises(job.JobError, match="cannot be read: the answer has no end"):
        qdrant.snapshot(server.url, str(target), limit)


def test_a_scroll_without_an_end_is_cut_off(server, target, limit, monkeypatch):
    page = {"points": [{"id": 1}], "next_page_offset": 1}
    monkeypatch.setattr(server, "scroll", lambda *_: page)
    with pytest.raises(job.JobError, match="the ids of memories are not such as Qdrant gives them"):
        qdrant.snapshot(server.url, str(target), limit)


@pytest.mark.parametrize("answer", [None, [], {}, {"points": None}, {"points": [{}]}, {"points": [3]}])
def test_an_answer_of_another_form_is_an_error(answer, server, target, limit, monkeypatch):
    monkeypatch.setattr(server, "scroll", lambda *_: answer)
    with pytest.raises(job.JobError, match="the ids of memories cannot be read"):
        qdrant.snapshot(server.url, str(target), limit)


@pytest.mark.parametrize("answer", [None, 3, {}, {"name": "x", "size": "y"}])
def test_an_answer_about_a_snapshot_of_another_form_is_an_error(answer, server, target, limit, monkeypatch):
    monkeypatch.setattr(server, "make", lambda _: answer)
    with pytest.raises(job.JobError, match="answer about a snapshot cannot be read"):
        qdrant.snapshot(server.url, str(target), limit)


def flip(path, place):
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda top: flip(top / "memories.snapshot", 5000), "the snapshot of memories is not the one that was fetched"),
        (lambda top: (top / "memories.snapshot").write_bytes(b""), "is not the one that was fetched"),
        (lambda top: (top / "memories.ids").write_text("1\n2\n"), "2 ids of memories, where there were 1,203"),
        (lambda top: (top / "memories.ids").unlink(), "memories.ids is missing"),
        (lambda top: (top / "more").touch(), "more is missing, or does not belong"),
        (lambda top: (top / "index.json").write_text("{"), "index.json cannot be read"),
        (lambda top: (top / "index.json").unlink(), "the claim cannot be read|index.json"),
    ],
)
def test_a_copy_that_is_not_the_one_that_was_made_is_refused(spoil, words, server, target, limit):
    claim = qdrant.snapshot(server.url, str(target), limit)
    spoil(target)
    with pytest.raises(job.JobError, match=words):
        qdrant.verify(str(target), claim, limit)


@pytest.mark.parametrize("name", ["../../etc/passwd", "/etc/passwd", ".", ""])
def test_an_index_cannot_lead_out_of_the_copy(name, server, target, limit):
    claim = qdrant.snapshot(server.url, str(target), limit)
    index = json.loads((target / "index.json").read_text())
    index["collections"][name] = index["collections"]["memories"]
    (target / "index.json").write_text(json.dumps(index))
    claim["counts"][name] = 1203
    for call in (lambda: qdrant.verify(str(target), claim, limit), lambda: qdrant.ids(str(target))):
        with pytest.raises(job.JobError, match="a collection's name is not one"):
            call()


def test_a_snapshot_that_is_no_archive_is_found(server, target, limit):
    server.misbehave.add("no tar")
    claim = qdrant.snapshot(server.url, str(target), limit)
    with pytest.raises(job.JobError, match="a snapshot is no whole tar archive: it breaks at byte 0"):
        qdrant.verify(str(target), claim, limit)


@pytest.mark.parametrize("length", [0, 511, 512, 1024, 10_000, -1024])
def test_an_archive_that_is_cut_off_anywhere_is_found(length, server, target, limit):
    qdrant.snapshot(server.url, str(target), limit)
    data = (target / "memories.snapshot").read_bytes().rstrip(b"\0")
    whole = data + b"\0" * (-len(data) % 512) + b"\0" * 1024
    path = target / "cut"
    for cut, good in ((whole, True), (whole[:length], False)):
        path.write_bytes(cut)
        with path.open("rb") as file:
            if good:
                _qdrant_server._require_tar(file, len(cut), limit)
            else:
                with pytest.raises(job.JobError, match="no whole tar archive"):
                    _qdrant_server._require_tar(file, len(cut), limit)


@pytest.mark.parametrize("size", ["00000010000", "-0000002000", "00000000009"])
def test_a_header_that_does_not_add_up_is_found(size, tmp_path, limit):
    """Whole but for its sum; then with the right sum, and a length that is none, or leads nowhere."""
    header = bytearray(tarfile.TarInfo("x").tobuf(tarfile.GNU_FORMAT))
    header[124:135] = size.encode()
    if size != "00000010000":
        header[148:156] = b"        "
        header[148:156] = b"%06o\0 " % sum(header)
    (tmp_path / "tar").write_bytes(bytes(header) + b"x" * 4096 + b"\0" * 1024)
    with (tmp_path / "tar").open("rb") as file, pytest.raises(job.JobError, match=r"breaks at byte (0|1,024)$"):
        _qdrant_server._require_tar(file, 512 + 4096 + 1024, limit)


def test_a_restore_that_lost_points_is_an_error(server, target, limit):
    qdrant.snapshot(server.url, str(target), limit)
    with Fake(key=KEY) as other:
        other.misbehave.add("miscount")
        with pytest.raises(job.JobError, match="memories has 1202 points after it was restored, and 1,203 in the set"):
            qdrant.restore(str(target), other.url, limit)


def test_a_damaged_snapshot_is_refused_by_the_server(server, target, limit):
    qdrant.snapshot(server.url, str(target), limit)
    flip(target / "memories.snapshot", 5000)
    with Fake(key=KEY) as other:
        put(other, "memories", 5)
        with pytest.raises(job.JobError, match="Snapshot checksum mismatch"):
            qdrant.restore(str(target), other.url, limit)
        assert len(other.collections["memories"]) == 5
