"""What is wrong, from literals: each code once where it must be found, and once where it must not."""

# ruff: noqa: S108 - directories for temporary files are told of, not used

from __future__ import annotations

import itertools
import json
import re
import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from memops import finding_files, finding_text, products
from memops.findings import CODES, exit_code, findings
from memops.found import FIGURES, LEVELS, Care, Database, Finding, Found, Holder, Machine, Part

ROOT = Path(__file__).resolve().parent.parent.parent
NOW = 1_796_126_400.0
DAY = 86400
DB = "/srv/ada/memory.db"

DATABASE = Database({"memory": 3}, {"memory": ["id", "fact"]}, "wal", 0, 20480, 0)
PART = Part("memories", "sqlite", DB, DB, 20480, 1000, "ada", 0o600, modified=NOW, file_system="ext4", rows=3,
            database=DATABASE)  # fmt: skip
HOLDER = Holder(41, 1000, "ada", "ada.service", "python3 agent.py", python="/opt/ada/bin/python", sqlite="3.51.3")
FOUND = Found("sqlite", DB, "under care", (PART,), holders=(HOLDER,), care="default")
CARE = Care("default", DB, "ada", "/srv/backup/default", set_state="ok", set_age=3600, drill_state="ok",
            drill_age=DAY, free=10**9, needs=10**5)  # fmt: skip
MACHINE = Machine(NOW, "UTC", True, "3.51.3", free={"/srv/ada": 10**9, "/var/tmp": 10**9})

Case = tuple[Found, Machine, Care]
FINE: Case = (FOUND, MACHINE, CARE)


def part(**changes) -> Case:
    return replace(FOUND, parts=(replace(PART, **changes),)), MACHINE, CARE


def at(path: str, **changes) -> Case:
    """The store somewhere else, and nobody looks after it."""
    return replace(FOUND, path=path, care="", parts=(replace(PART, path=path, seen=path, **changes),)), MACHINE, CARE


def facts(**figures: int) -> Case:
    assert figures.keys() <= FIGURES.keys()
    return part(database=replace(DATABASE, facts=figures))


def database(**changes) -> Case:
    return part(database=replace(DATABASE, **changes))


def dates(**forms: int) -> Case:
    return database(dates={"memory.created_at": forms})


def wal(waiting: int, age: int = 0, **changes) -> Case:
    return part(sidecars={"-wal": (1000, waiting, NOW - age)}, **changes)


def left(size: int, age: int) -> Case:
    """The same, and no process is there."""
    return replace(wal(size, age)[0], holders=()), MACHINE, CARE


def free(case: Case) -> Case:
    """The same, and nobody looks after it."""
    return replace(case[0], care=""), *case[1:]


def found(**changes) -> Case:
    return replace(FOUND, **changes), MACHINE, CARE


def holder(*, parts=(PART,), product="sqlite", **changes) -> Case:
    return found(holders=(replace(HOLDER, **changes),), parts=parts, product=product)


def machine(**changes) -> Case:
    return FOUND, replace(MACHINE, **changes), CARE


def care(**changes) -> Case:
    return FOUND, MACHINE, replace(CARE, **changes)


VECTORS = replace(PART, what="vectors", kind="qdrant", path="/srv/ada/qdrant", seen="/srv/ada/qdrant", database=None)
LOG = replace(PART, what="change log")
HISTORY = ["id", "memory_id", "old_memory", "new_memory", "event", "created_at", "updated_at", "is_deleted"]
OLD = {"mem0ai": "1.0.0"}
TWO = (replace(HOLDER, sqlite="3.46.1"), replace(HOLDER, pid=42, sqlite="3.46.1"))

CASES: dict[str, tuple[list[Case], list[Case]]] = {
    "on-tmp": (
        [at("/tmp/memory.db"), at("/var/tmp/a/memory.db"), at("/dev/shm/memory.db"), part(file_system="tmpfs")],
        [FINE, at("/srv/tmp/memory.db"), at("/tmpx/memory.db")],
    ),
    "in-memory": ([found(path=":memory:", parts=(), care="")], [FINE]),
    "deleted-open": ([holder(deleted=(f"{DB}-wal",))], [FINE]),
    "mem0-wipes": (
        [holder(parts=(VECTORS,), versions={"mem0ai": each}) for each in ("0.1.118", "1.0.0", "1.0.0rc1", "1.0.7")],
        [
            *(holder(parts=(VECTORS,), versions={"mem0ai": each}) for each in ("1.0.8", "1.0.11", "2.2.1", "", "x")),
            holder(versions=OLD),
        ],
    ),
    "in-package": (
        [
            at("/usr/lib/node_modules/@modelcontextprotocol/server-memory/dist/memory.jsonl", kind="files"),
            at("/home/ada/.npm/_npx/1/node_modules/x/memory.jsonl", kind="files"),
            at("/opt/a/lib/python3.11/site-packages/cognee/.data/x.db"),
            at("/home/ada/.local/pipx/venvs/a/x.db"),
            at("/var/cache/a/x.db"),
        ],
        [FINE, at("/srv/pipx/memory.db"), at("/srv/var/cache/memory.db")],
    ),
    "half-missing": ([found(product="mem0", parts=(LOG,), lacking=("vectors",))], [FINE]),
    "log-as-memories": (
        [
            found(product="mem0", parts=(LOG,)),
            database(columns={"old": [*HISTORY, "actor_id", "role"]}),
        ],
        [
            FINE,
            found(product="mem0", parts=(replace(LOG, path="/srv/ada/history.db"),)),
            database(columns={"old": ["id", "event"]}),
        ],
    ),
    "network-file-system": (
        [part(file_system=kind) for kind in ("nfs4", "cifs", "9p", "fuse.sshfs", "fuse.mergerfs")],
        [FINE, part(file_system="fuse.fuse-overlayfs"), part(file_system="nfs4", kind="files", what="notes")],
    ),
    "foreign-sidecar": (
        [part(sidecars={"-wal": (0, 0, NOW), "-shm": (1000, 1, NOW)})],
        [part(sidecars={"-wal": (1000, 0, NOW), "-shm": (1000, 1, NOW)})],
    ),
    "not-passable": ([part(barred="/srv/ada")], [FINE]),
    "no-set": ([care(set_state="none", set_age=None)], [FINE, care(set_state="unknown", set_age=None)]),
    "no-space-backup": ([care(free=10, needs=11)], [FINE, care(free=None), care(needs=None), care(free=11, needs=11)]),
    "old-set": (
        [care(set_state="late", set_age=2 * DAY), care(set_state="overdue", set_age=None)],
        [FINE, care(set_state="none"), care(set_state="unknown")],
    ),
    "relative-path": ([found(relative="./memory.db")], [FINE]),
    "other-writer": ([holder(uid=0, user="root")], [FINE, holder(uid=0, user="root", writes=False)]),
    "wal-stale": (
        [left(4152, 2 * DAY)],
        [wal(4152, age=2 * DAY), left(0, 2 * DAY), left(4152, 60)],  # the first is open somewhere
    ),
    "temporary-replaces-permanent": ([facts(temporary_over_permanent=1)], [facts(temporary_over_permanent=0)]),
    "cycle": ([facts(cycles=3)], [facts(cycles=0), facts(self_references=1)]),
    "self-reference": ([facts(self_references=1)], [facts(self_references=0), facts(cycles=2)]),
    "chain-into-nothing": ([facts(chains_into_nothing=2)], [facts(chains_into_nothing=0)]),
    "violations": (
        [database(violations={"store_vectors.store": 2})],
        [
            database(violations={}),
            # Told as what they are.
            database(violations={"memory.memory": 2}, facts={"chains_into_nothing": 2}),
        ],
    ),
    "foreign-keys-off": (
        [facts(foreign_keys=1, chains_into_nothing=1), database(violations={"a.b": 1}, facts={"foreign_keys": 1})],
        [facts(foreign_keys=1), facts(chains_into_nothing=1)],
    ),
    "doubtful-dates": (
        [
            dates(utc=3, odd=1),
            dates(iso=3),  # a store of memops has UTC
            free(dates(iso=3, epoch=1)),
            free(dates(odd=1)),
            facts(doubtful=1),
        ],
        [dates(utc=3, odd=0), free(dates(iso=3)), facts(doubtful=0)],
    ),
    "hard-links": ([part(links=2)], [part(links=1), part(links=5, kind="qdrant", what="vectors")]),
    "readable-by-others": ([part(exposed=True, mode=0o644)], [part(mode=0o644)]),
    "unread": ([part(unread="it is locked")], [FINE]),
    "clock": (
        [machine(clock_synchronised=False), care(set_state="future"), care(drill_state="future")],
        [FINE, machine(clock_synchronised=None)],
    ),
    "time-zone": (
        [machine(timezone=""), (free(dates(naive=2))[0], replace(MACHINE, timezone="Europe/Berlin"), CARE)],
        [free(dates(naive=2)), machine(timezone="Europe/Berlin")],
    ),
    "old-drill": (
        [care(drill_state="late", drill_age=9 * DAY), care(drill_state="overdue", drill_age=None)],
        [FINE, care(drill_state="unknown", drill_age=None)],
    ),
    "gap": (
        [facts(rows=500, live=100, dead=101), facts(rows=2000, live=500, dead=0)],
        [facts(rows=500, live=400, dead=100), facts(rows=90, live=1), facts(rows=2000)],
    ),
    "wal-large": (
        [wal(5 << 20, size=1), wal(65 << 20, size=1 << 30)],
        [wal(3 << 20, size=1), wal(60 << 20, size=1 << 30)],
    ),
    "wal-off": (
        [database(journal_mode="delete"), free(database(journal_mode="truncate"))],
        [
            FINE,
            (database(journal_mode="delete")[0], MACHINE, replace(CARE, journal_mode="keep")),
            found(product="mem0", parts=(replace(LOG, database=replace(DATABASE, journal_mode="delete")),), care=""),
        ],
    ),
    "no-space-vacuum": (
        [machine(free={"/srv/ada": 20479}), machine(free={"/srv/ada": 10**9, "/var/tmp": 1})],
        [FINE, machine(free={}), machine(free={"/srv/ada": 20480})],
    ),
    "wal-reset": (
        [found(holders=TWO), found(holders=TWO[:1]), machine(system_sqlite="3.40.1")],
        [
            FINE,
            found(holders=TWO, parts=(replace(PART, database=replace(DATABASE, journal_mode="delete")),)),
            (replace(FOUND, care=""), replace(MACHINE, system_sqlite="3.40.1"), CARE),
            holder(sqlite=""),
        ],
    ),
    "vague-sources": ([facts(vague_sources=1), facts(empty_sources=1)], [facts(vague_sources=0, empty_sources=0)]),
    "tombstones": ([facts(tombstones=1)], [facts(tombstones=0)]),
    "litestream": ([machine(litestream=(DB,)), machine(litestream=("litestream.service",))], [FINE]),
    "not-under-care": (
        [found(care="")],
        [FINE, at("/tmp/memory.db"), found(care="", product="mem0", lacking=("vectors",))],
    ),
}


def judged(case: Case) -> list[Finding]:
    store, here, under = case
    return findings([store], here, {under.name: under})


def test_a_good_store_has_no_finding() -> None:
    assert judged(FINE) == []


def test_every_code_has_its_cases() -> None:
    assert list(CASES) != []
    assert sorted(CASES) == sorted(CODES)
    assert len(set(CODES)) == len(CODES)


@pytest.mark.parametrize("code", CODES)
def test_a_code_is_found_where_it_is_so_and_nowhere_else(code: str) -> None:
    yes, no = CASES[code]
    for case in yes:
        assert code in {each.code for each in judged(case)}, case
    for case in no:
        assert code not in {each.code for each in judged(case)}, case


def every_finding() -> list[Finding]:
    return [each for yes, _ in CASES.values() for case in yes for each in judged(case)]


def test_each_says_what_is_so_and_what_to_type() -> None:
    for each in every_finding():
        assert each.code in CODES
        assert each.level in LEVELS
        assert each.what.endswith("."), each
        assert each.what[0] == each.what[0].upper() or each.what.startswith(("mem0 ", "/")), each
        assert each.do, each
        assert "\n" not in each.what + each.do, each
        assert not re.search(r"None|\{|\}|  ", each.what + each.do), each
        assert each.fix == ("memops doctor --fix" in each.do), each


def test_the_page_explains_each_code_and_no_other() -> None:
    page = (ROOT / "docs/findings.md").read_text()
    assert sorted(re.findall(r"^### ([a-z0-9-]+)$", page, re.MULTILINE)) == sorted(CODES)
    for section in page.split("\n### ")[1:]:
        code, text = section.split("\n", 1)
        assert re.search(r"^Type: .*\S", text, re.MULTILINE), code
    mendable = {each.code for each in every_finding() if each.fix}
    (told,) = re.findall(r"A safe mend exists for (.*?)\.", page, re.DOTALL)
    assert set(re.findall(r"`([a-z-]+)`", told)) == mendable


def test_the_worst_comes_first_and_a_store_in_tmp_before_all() -> None:
    stores = [case[0] for yes, _ in CASES.values() for case in yes]
    every = findings(stores, MACHINE, {"default": CARE})
    assert every[0].code == "on-tmp"
    levels = [LEVELS.index(each.level) for each in every]
    assert levels == sorted(levels)
    for _, group in itertools.groupby(every, key=lambda each: each.level):
        ranks = [CODES.index(each.code) for each in group]
        assert ranks == sorted(ranks)


def test_the_exit_code_goes_by_the_worst() -> None:
    note, warning, error = (Finding("c", level, "", "w", "d") for level in ("note", "warning", "error"))
    assert [exit_code(each) for each in ([], [note], [note, warning], [warning, error])] == [0, 0, 7, 1]


@pytest.mark.parametrize(
    ("version", "affected"),
    [
        ("3.6.23", False), ("3.7.0", True), ("3.40.1", True), ("3.44.5", True), ("3.44.6", False), ("3.45.1", True),
        ("3.46.1", True), ("3.50.4", True), ("3.50.6", True), ("3.50.7", False), ("3.51.2", True), ("3.51.3", False),
        ("3.52.0", False), ("", None), ("unknown", None), ("3", None),
    ],
)  # fmt: skip
def test_engines_with_the_wal_reset_fault(version: str, affected: bool | None) -> None:
    assert finding_files.has_wal_reset(version) is affected


def test_known_false_alarms_of_a_product_are_not_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    chroma = products.parse(
        "chroma", 'title = "Chroma"\nlevel = "ledger"\nwhy = "w"\nfalse_alarms = ["segments.collection"]'
    )
    monkeypatch.setattr(products, "known", lambda: {"chroma": chroma})
    rows = {"segments.collection": 2, "embeddings.segments": 1}
    store = replace(database(violations=rows)[0], product="chroma")
    (one,) = [each for each in findings([store], MACHINE, {}) if each.code == "violations"]
    assert "embeddings.segments" in one.what
    assert "segments.collection" not in one.what
    healthy = replace(database(violations={"segments.collection": 2})[0], product="chroma")
    assert "violations" not in {each.code for each in findings([healthy], MACHINE, {})}


# The mend, written out


def mend(case: Case) -> list[str]:
    return list(next(each.mend for each in judged(case) if each.mend))


def test_the_mend_of_mem0_in_tmp_is_written_out() -> None:
    vectors = replace(VECTORS, path="/tmp/qdrant", seen="/tmp/qdrant")
    lines = mend(found(product="mem0", path="/tmp/qdrant", parts=(vectors,), care=""))
    assert lines == [
        "sudo install -d -o ada -m 0700 /srv/ada",
        "sudo systemctl stop ada.service",
        "sudo -u ada cp -aT /tmp/qdrant /srv/ada/qdrant",
        "# mem0 (Python), in the configuration that the agent gives to Memory.from_config, and in its unit:",
        '{"vector_store": {"provider": "qdrant", "config": {"collection_name": "mem0", "path": "/srv/ada/qdrant"}}}',
        "sudo systemctl start ada.service",
        "# When the agent has its memory again, the old one can go: /tmp/qdrant",
    ]


def test_what_a_unit_alone_sees_is_saved_before_it_stops() -> None:
    seen = "/proc/41/root/tmp/qdrant"
    vectors = replace(VECTORS, path="/tmp/qdrant", seen=seen)
    lines = mend(found(product="mem0", parts=(vectors,), namespace="ada.service", care=""))
    moved = next(n for n, line in enumerate(lines) if "mv -t" in line)
    assert shlex.split(lines[moved]) == [
        *("sudo", "bash", "-c"),
        (
            "mkdir -m 0700 /tmp/memops-kept && mv -t /tmp/memops-kept"
            " /tmp/systemd-private-*-ada.service-*/tmp/qdrant && chown ada /tmp/memops-kept"
        ),
    ]
    assert moved < lines.index("sudo systemctl stop ada.service")
    assert "sudo -u ada cp -aT /tmp/memops-kept/qdrant /srv/ada/qdrant" in lines


def test_configuration_and_commands_hold_odd_paths(tmp_path: Path) -> None:
    odd = '/tmp/a "b" $(touch x)\n*é/q'
    vectors = replace(VECTORS, path=odd, seen=odd)
    case = found(product="mem0", parts=(vectors,), care="")
    lines = mend(case)
    assert all(line.isprintable() for line in lines)
    copied = next(line for line in lines if " cp " in line)
    import subprocess

    shown = subprocess.run(["bash", "-c", f"sudo() {{ printf '%s\\0' \"$@\"; }}; {copied}"], capture_output=True,
                           text=True, cwd=tmp_path, check=True)  # fmt: skip
    assert shown.stdout.split("\0")[:6] == ["-u", "ada", "cp", "-aT", odd, "/srv/ada/q"]
    assert list(tmp_path.iterdir()) == []
    for line in lines:
        if line.startswith("{"):
            assert json.loads(line)["vector_store"]["config"]["path"] == "/srv/ada/q"


@pytest.mark.parametrize("word", ["plain", "a b", "it's", "\x1b[2J", "a\nb", "\\", "$x", "é\u202eb", "\udcff'"])
def test_a_word_of_the_agents_is_one_word_to_a_shell(word: str) -> None:
    import subprocess

    text = finding_text.quoted(word)
    assert text.isprintable()
    ran = subprocess.run(["bash", "-c", f"printf %s {text}"], capture_output=True, check=True)
    assert ran.stdout == word.encode("utf-8", "surrogateescape")


def test_every_product_can_be_told_where_its_parts_go() -> None:
    for product in products.known().values():
        for what, template in product.mend.items():
            if what != "where":
                assert what in {part.what for part in product.parts}, f"{product.name}: {what}"
                assert "{path}" in template or "{directory}" in template, f"{product.name}: {what}"
