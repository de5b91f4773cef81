"""What a set is: manifests of every age, lists, and the proof that a set is what it was, against damage at random."""

from __future__ import annotations

import copy
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import backup_case
import census
import job
import manifests
import setdir
from kinds import sqlite

OLD = "2026-11-30T233000Z"


@pytest.fixture(scope="session")
def sealed(lib, tmp_path_factory):
    """A set with one part, as the jobs make it."""
    with backup_case.case(lib) as case:
        case.fill(300)
        assert (case.snapshot().returncode, case.seal().returncode) == (0, 0)
        (name,) = case.whole_sets()
        target = tmp_path_factory.mktemp("sealed") / name
        shutil.copytree(case.sets / name, target)
    return target


def add_part(directory: Path, name: str, kind: str, files: dict[str, bytes], counts: dict[str, int]) -> None:
    """Put a further part into a set, and into its manifest."""
    manifest = json.loads((directory / "manifest.json").read_text())
    entry = {"kind": kind, "name": name, "source": f"/srv/{name}/", "taken_at": "2026-11-30T23:30:00Z", "exact": True}
    entry |= {"counts": counts, "files": {}, "directories": [name]}
    for path, content in files.items():
        file = directory / name / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
        digest = manifests.hashlib.sha256(content).hexdigest()
        entry["files"][f"{name}/{path}"] = {"size": len(content), "sha256": digest}
    (directory / name / "empty").mkdir(parents=True)
    entry["directories"].append(f"{name}/empty")
    manifest["parts"].append(entry)
    (directory / "manifest.json").write_bytes(manifests.write(manifest))


@pytest.fixture
def a_set(sealed, tmp_path):
    """A set with a second part, a database below a directory of its own."""
    target = tmp_path / sealed.name
    shutil.copytree(sealed, target)
    claim = json.loads((target / "manifest.json").read_text())["parts"][0]
    add_part(target, "history", "sqlite", {"history.db": (sealed / "memory.db").read_bytes()}, {"rows": 300})
    manifest = json.loads((target / "manifest.json").read_text())
    manifest["parts"][1] |= {key: claim[key] for key in ("size", "rows", "uncounted", "schema_sha256", "user_version")}
    manifest["parts"][1] |= {"file": "history.db", "foreign_key_violations": 0}
    (target / "manifest.json").write_bytes(manifests.write(manifest))
    return target


def edit(directory: Path, change) -> None:
    manifest = json.loads((directory / "manifest.json").read_text())
    del manifest["checksum"]
    change(manifest)
    (directory / "manifest.json").write_text(json.dumps(manifest))


def state_of(directory: Path) -> dict[str, tuple[bytes, int, int]]:
    found = {}
    for path in directory.rglob("*"):
        status = path.stat()
        found[str(path)] = (path.read_bytes() if path.is_file() else b"", status.st_mtime_ns, status.st_ctime_ns)
    return found


def test_a_whole_set_passes_and_is_not_altered(a_set, limit):
    before = state_of(a_set)
    manifest = setdir.verify_set(str(a_set), limit)
    assert [part["name"] for part in manifest["parts"]] == ["memory.db", "history"]
    assert state_of(a_set) == before


def test_a_set_of_an_earlier_version_passes(sealed, tmp_path, limit):
    target = tmp_path / sealed.name
    shutil.copytree(sealed, target)

    def earlier(manifest):
        for key in ("skew_seconds", "pairs"):
            manifest.pop(key, None)
        assert manifest["parts"][0].keys() >= {"kind", "name", "file", "size", "sha256", "taken_at", "exact", "rows"}

    manifest = json.loads((target / "manifest.json").read_text())
    (target / "manifest.json").write_bytes(manifests.write(manifest))
    edit(target, earlier)
    assert setdir.verify_set(str(target), limit)["set"] == sealed.name
    (found,) = setdir.list_sets(str(tmp_path), {})
    assert (found.ok, found.rows, len(found.parts)) == (True, 300, 1)


def test_what_was_written_to_while_it_was_copied_is_compared_exactly_later(sealed, tmp_path, limit):
    target = tmp_path / sealed.name
    shutil.copytree(sealed, target)
    manifest = json.loads((target / "manifest.json").read_text())
    manifest["parts"][0]["exact"] = False
    (target / "manifest.json").write_bytes(manifests.write(manifest))
    setdir.verify_set(str(target), limit)
    manifest["parts"][0]["rows"]["memory"] -= 1
    (target / "manifest.json").write_bytes(manifests.write(manifest))
    with pytest.raises(setdir.Damaged, match="300 rows in memory, where the store had 299"):
        setdir.verify_set(str(target), limit)


FILES = ("memory.db", "history/history.db", "manifest.json")


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda path: path.unlink(), "is missing"),
        (lambda path: (path.unlink(), path.mkdir()), "is missing|not a plain file"),
        (lambda path: (path.rename(f"{path}.away"), path.symlink_to(f"{path}.away")), "is neither a file|cannot be op"),
        (lambda path: (path.unlink(), os.mkfifo(path)), "is neither a file|is not a plain file"),
        (lambda path: path.write_bytes(path.read_bytes()[:-3]), "bytes and had|cannot be read|has changed"),
        (lambda path: path.write_bytes(path.read_bytes() + b"x"), "bytes and had|cannot be read"),
        (lambda path: path.write_bytes(b""), "bytes and had 1|cannot be read"),
    ],
)
def test_a_file_that_is_not_what_it_was_is_named(a_set, limit, name, damage, words):
    damage(a_set / name)
    with pytest.raises(setdir.Damaged, match=words) as caught:
        setdir.verify_set(str(a_set), limit)
    assert name in str(caught.value)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(FILES), st.integers(0, 10**9), st.integers(1, 255))
def test_one_changed_byte_is_found_wherever_it_is(a_set, limit, name, where, change):
    path = a_set / name
    whole = path.read_bytes()
    at = where % len(whole)
    path.write_bytes(whole[:at] + bytes([whole[at] ^ change]) + whole[at + 1 :])
    try:
        if name != "manifest.json":
            with pytest.raises(setdir.Damaged, match=f"{name} has changed"):
                setdir.verify_set(str(a_set), limit)
        else:
            try:
                found = setdir.verify_set(str(a_set), limit)
            except job.JobError as error:
                assert "manifest.json" in str(error)  # noqa: PT017 - or it says the same as before
            else:
                before = json.loads(whole)
                assert {key: found.get(key) for key in before if key != "checksum"} == {
                    key: value for key, value in before.items() if key != "checksum"
                }
    finally:
        path.write_bytes(whole)


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        (lambda s: (s / "memory.db-wal").write_bytes(b"x"), "memory.db-wal is in the set, and not in its manifest"),
        (lambda s: (s / "memory.db-journal").write_bytes(b"x"), "memory.db-journal is in the set"),
        (lambda s: (s / "history" / "deep").mkdir(), "history/deep is in the set"),
        (lambda s: (s / "history" / "empty" / "note").touch(), "history/empty/note is in the set"),
        (lambda s: (s / "history" / "empty").rmdir(), "history/empty is missing"),
        (lambda s: (s / ("bad\n<3>name" * 20)).touch(), r"bad\\n<3>name"),
    ],
)
def test_what_is_extra_or_missing_is_named(a_set, limit, extra, words):
    extra(a_set)
    with pytest.raises(setdir.Damaged, match=words) as caught:
        setdir.verify_set(str(a_set), limit)
    assert "\n" not in str(caught.value)


def part(number):
    return lambda change: lambda manifest: change(manifest["parts"][number])


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m.update(parts=[]),
        lambda m: m.update(parts={}),
        lambda m: m.update(parts=[m["parts"][1]]),
        lambda m: m.update(parts=[m["parts"][0], m["parts"][0]]),
        lambda m: m["parts"].append(m["parts"][1]),
        lambda m: m["parts"].append(3),
        lambda m: m.update(version=True),
        lambda m: m.update(version="1"),
        lambda m: m.pop("set"),
        lambda m: m.update(store=None),
        lambda m: m.update(sealed_at="yesterday"),
        lambda m: m.update(sealed_at=5),
        lambda m: m["parts"][0].pop("rows"),
        lambda m: m["parts"][0].update(rows=[]),
        lambda m: m["parts"][0]["rows"].update(memory="300"),
        lambda m: m["parts"][0]["rows"].update(memory=-1),
        lambda m: m["parts"][0]["rows"].update(memory=True),
        lambda m: m["parts"][0]["rows"].update(memory=10**30),
        lambda m: m["parts"][0].update(file="../memory.db"),
        lambda m: m["parts"][0].update(file="manifest.json"),
        lambda m: m["parts"][0].update(file=".."),
        lambda m: m["parts"][0].update(file="memory\0.db"),
        lambda m: m["parts"][0].update(size=-1),
        lambda m: m["parts"][0].update(size=4096.0),
        lambda m: m["parts"][0].update(sha256="0" * 63),
        lambda m: m["parts"][0].update(sha256="G" * 64),
        lambda m: m["parts"][0].update(kind=None),
        lambda m: m["parts"][1].update(name="../history"),
        lambda m: m["parts"][1].update(name=""),
        lambda m: m["parts"][1].update(name="other"),
        lambda m: m["parts"][1].update(files=[]),
        lambda m: m["parts"][1]["files"].update({"history/../../x": m["parts"][1]["files"]["history/history.db"]}),
        lambda m: m["parts"][1]["files"].update({"/etc/passwd": m["parts"][1]["files"]["history/history.db"]}),
        lambda m: m["parts"][1]["files"].update({"history//x": m["parts"][1]["files"]["history/history.db"]}),
        lambda m: m["parts"][1]["files"].update({"history/x": None}),
        lambda m: m["parts"][1]["files"].update({"history/x": {"size": 1}}),
        lambda m: m["parts"][1].update(directories=[1]),
        lambda m: m["parts"][1].update(directories=None),
        lambda m: m["parts"][1].update(directories=["history/.."]),
        lambda m: m["parts"][1].update(counts={"rows": None}),
    ],
)
def test_a_manifest_of_another_form_is_an_error_that_names_it(a_set, limit, change):
    edit(a_set, change)
    with pytest.raises(setdir.Damaged, match=r"^manifest\.json cannot be read: "):
        setdir.verify_set(str(a_set), limit)
    with pytest.raises(setdir.Damaged):
        setdir.read_manifest(str(a_set))
    (found,) = setdir.list_sets(str(a_set.parent), {})
    assert (found.ok, found.name, found.rows) == (False, a_set.name, 0)
    assert found.message.startswith("manifest.json cannot be read")


@pytest.mark.parametrize(
    "text", [b"", b"{", b"[]", b"null", b"\xff\xfe", b"[" * 100_000, b'{"version": 1}', b"1" * 5000]
)
def test_what_is_no_manifest_at_all(a_set, text):
    (a_set / "manifest.json").write_bytes(text)
    with pytest.raises(setdir.Damaged, match=r"^manifest\.json cannot be read"):
        setdir.read_manifest(str(a_set))


def test_a_manifest_cut_off_at_any_place_is_found(a_set):
    whole = (a_set / "manifest.json").read_bytes()
    for end in range(0, len(whole.rstrip()) - 1, 37):
        (a_set / "manifest.json").write_bytes(whole[:end])
        with pytest.raises(setdir.Damaged):
            setdir.read_manifest(str(a_set))


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_value_of_another_kind_ends_in_a_jobs_error_or_an_equal_set(a_set, limit, data):
    whole = (a_set / "manifest.json").read_bytes()
    manifest = json.loads(whole)
    del manifest["checksum"]
    spot: object = manifest
    while True:
        keys = sorted(spot) if isinstance(spot, dict) else list(range(len(spot)))
        key = data.draw(st.sampled_from(keys))
        inner = spot[key]
        if not isinstance(inner, dict | list) or not inner or data.draw(st.booleans()):
            break
        spot = inner
    before = copy.deepcopy(inner)
    spot[key] = data.draw(_json)
    (a_set / "manifest.json").write_text(json.dumps(manifest))
    try:
        setdir.verify_set(str(a_set), limit)
    except job.JobError as error:
        assert str(error)  # noqa: PT017 - anything but a JobError is a failure
    else:
        harmless = {"store", "sqlite", "skew_seconds", "pairs", "source", "taken_at", "exact", "sealed_at", "counts"}
        harmless |= {"rows", "uncounted", "directories"}
        assert spot[key] == before or key in harmless or isinstance(key, int) or "counts" in str(spot)
    finally:
        (a_set / "manifest.json").write_bytes(whole)


def test_a_manifest_that_is_too_large_is_not_taken_in(a_set):
    with (a_set / "manifest.json").open("r+b") as file:
        file.truncate(manifests.LARGEST + 1)
    with pytest.raises(setdir.Damaged, match="larger than a backup writes it"):
        setdir.read_manifest(str(a_set))


def test_a_set_of_a_newer_memops_is_not_called_damaged(a_set, limit):
    edit(a_set, lambda manifest: manifest.update(version=2))
    with pytest.raises(job.JobError, match="version 2, which this memops does not know") as caught:
        setdir.verify_set(str(a_set), limit)
    assert not isinstance(caught.value, setdir.Damaged)
    (found,) = setdir.list_sets(str(a_set.parent), {})
    assert not found.ok


def test_a_part_of_an_unknown_kind_leaves_it_open(a_set, limit):
    edit(a_set, lambda manifest: manifest["parts"][1].update(kind="oracle"))
    with pytest.raises(job.JobError, match="'oracle' is no kind of part") as caught:
        setdir.verify_set(str(a_set), limit)
    assert not isinstance(caught.value, setdir.Damaged)


def test_a_set_under_another_ones_name_is_found(a_set, limit):
    other = a_set.with_name(OLD)
    a_set.rename(other)
    with pytest.raises(setdir.Damaged, match=f"manifest.json is that of the set {a_set.name}"):
        setdir.verify_set(str(other), limit)
    assert [each.ok for each in setdir.list_sets(str(other.parent), {})] == [False]
    # Fetched back from elsewhere into a directory that claims to be nothing.
    fetched = other.with_name("fetched")
    other.rename(fetched)
    assert setdir.verify_set(str(fetched), limit)["set"] == a_set.name


def test_content_that_matches_its_sum_is_opened_all_the_same(a_set, limit):
    """A set that was sealed by something else, or on a day when SQLite did not see it."""
    file = a_set / "history" / "history.db"
    whole = bytearray(file.read_bytes())
    whole[100:108] = b"\xff" * 8  # the header of the schema's page
    file.write_bytes(whole)
    manifest = json.loads((a_set / "manifest.json").read_text())
    digest = manifests.hashlib.sha256(whole).hexdigest()
    manifest["parts"][1]["files"]["history/history.db"]["sha256"] = digest
    (a_set / "manifest.json").write_bytes(manifests.write(manifest))
    with pytest.raises(setdir.Damaged, match=r"^history: the copy"):
        setdir.verify_set(str(a_set), limit)


def test_the_end_of_the_time_says_nothing_about_the_set(a_set):
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        with pytest.raises(job.JobError, match="not done after 0 s") as caught:
            setdir.verify_set(str(a_set), census.Limit(0))
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    assert not isinstance(caught.value, setdir.Damaged)


def test_a_kind_that_alters_the_set_is_found_out(a_set, limit, monkeypatch):
    real = sqlite.verify

    def verify(directory, claim, limit):
        Path(directory, claim["file"]).touch()
        return real(directory, claim, limit)

    monkeypatch.setattr(sqlite, "verify", verify)
    with pytest.raises(job.JobError, match="opening the parts altered the set"):
        setdir.verify_set(str(a_set), limit)


def test_lists_are_in_the_order_of_sealing_and_pass_over_what_is_no_set(sealed, tmp_path):
    names = [OLD, f"{OLD}-2", f"{OLD}-10", "2026-12-01T000000Z"]
    for name in reversed(names):
        target = tmp_path / name
        shutil.copytree(sealed, target)
        edit_set = json.loads((target / "manifest.json").read_text())
        edit_set["set"] = name
        (target / "manifest.json").write_bytes(manifests.write(edit_set))
    for name in (".partial-0123", ".drill-0123", "lost+found", "2026-02-31T000000Z", f"{OLD}-0", f"{OLD}-x"):
        (tmp_path / name).mkdir()
    (tmp_path / f"{OLD}-2.pinned").touch()
    state = {
        "verified": {names[2]: {"at": "2026-12-02T00:00:00Z", "ok": False, "message": "memory.db\x1b[31m"}, OLD: 5}
    }
    found = setdir.list_sets(str(tmp_path), state)
    assert [each.name for each in found] == names
    assert [each.pinned for each in found] == [False, True, False, False]
    assert [each.ok for each in found] == [True, True, False, True]
    assert found[2].message == "memory.db\\x1b[31m"
    assert found[2].verified_at == "2026-12-02T00:00:00Z"
    assert found[0].bytes == (sealed / "memory.db").stat().st_size
    assert setdir.newest(found, time.time()).name in names
    noon = 1796040000  # 2026-11-30T12:00Z: all of them lie ahead
    assert setdir.newest(found, noon) is found[3]
    assert setdir.newest(found, noon + 11.6 * 3600) is found[1]
    assert setdir.newest([each for each in found if not each.ok], noon) is None


def script(*words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-I", *map(str, words)], capture_output=True, text=True, timeout=60)


def test_the_script_lists_verifies_and_notes_what_it_found(a_set, lib, tmp_path):
    state_file = tmp_path / "default.sets.json"
    options = ("--sets", tmp_path, "--sets-record", state_file)
    done = script(lib / "setdir.py", "list", *options)
    assert (done.returncode, done.stderr) == (0, "")
    (found,) = json.loads(done.stdout)
    assert (found["name"], found["ok"], found["latest"], found["pinned"]) == (a_set.name, True, True, False)
    assert [part["count"] for part in found["parts"]] == [300, 300]
    assert not state_file.exists()

    done = script(lib / "setdir.py", "verify", *options, a_set.name)
    assert (done.returncode, json.loads(done.stdout)) == (0, {"set": a_set.name, "ok": True, "message": ""})
    assert json.loads(state_file.read_text())["verified"][a_set.name]["ok"] is True

    with (a_set / "memory.db").open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"\1")
    done = script(lib / "setdir.py", "verify", *options, a_set.name)
    answer = json.loads(done.stdout)
    assert (done.returncode, answer["ok"]) == (1, False)
    assert answer["message"].startswith("memory.db has changed")
    (found,) = json.loads(script(lib / "setdir.py", "list", *options).stdout)
    assert (found["ok"], found["latest"]) == (False, False)
    assert found["message"] == answer["message"]

    done = script(lib / "setdir.py", "verify", *options, OLD, "../../etc")
    assert [json.loads(line)["ok"] for line in done.stdout.splitlines()] == [None, None]
    assert "there is no set" in done.stdout
    assert set(json.loads(state_file.read_text())["verified"]) == {a_set.name}
