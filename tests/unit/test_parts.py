from __future__ import annotations

import os

import pytest

import kinds
from memops import keys, parts, settings
from memops.errors import MemopsError, UsageError
from memops.settings import Store


def test_each_part_has_a_name_of_its_own_in_a_set() -> None:
    texts = (
        "sqlite=/srv/agent/history.db",
        "sqlite=/srv/other/history.db",
        "qdrant=/tmp/Qdrant Store/",
        "files=/srv/agent/memory",
        "files=/srv/agent/manifest",
        "files=/srv/agent/日本/",
        "qdrant=http://127.0.0.1:6333",
        "postgres=postgresql:///Agent_Memory",
        f"files=/srv/{'x' * 60}/",
    )
    names = [part.name for part in parts.named(texts)]
    expected = ["history", "history-2", "qdrant-store", "memory-2", "manifest-2", "files", "qdrant", "postgres"]
    assert names == [*expected, "x" * 30]


def test_a_part_knows_its_directory_and_its_file() -> None:
    file, directory, server = parts.named(["sqlite=/srv/a/h.db", "chroma=/srv/a/chroma/", "qdrant=https://q:6333"])
    assert (file.directory, file.file, file.server, file.text) == ("/srv/a", "h.db", False, "sqlite=/srv/a/h.db")
    assert (directory.directory, directory.file, directory.server) == ("/srv/a/chroma", "", False)
    assert server.server
    store = Store(parts=(file.text, directory.text, server.text))
    assert [store.seen_part(part) for part in store.all_parts] == [
        "/run/memops/parts/h/h.db",
        "/run/memops/parts/chroma/",
        "https://q:6333",
    ]
    assert store.part_directories == ("/srv/a", "/srv/a/chroma")
    assert store.optional_units == ("memory-remote.service",)


def test_every_kind_is_a_module_and_no_other_is_a_kind() -> None:
    assert tuple(kinds.known()) == parts.KINDS
    for kind in parts.KINDS:
        module = kinds.load(kind)
        assert all(callable(getattr(module, name)) for name in ("snapshot", "verify", "ids"))
    with pytest.raises(kinds.job.JobError, match="no kind of part"):
        kinds.load("os")


@pytest.mark.parametrize("text", ["ftp=/srv/x", "sqlit=/srv/x.db"])
def test_a_kind_that_is_none_is_refused(text) -> None:
    with pytest.raises(UsageError, match="is no kind of part"):
        parts.split(text)


def test_a_path_with_an_equals_sign_is_a_path() -> None:
    assert parts.split("/srv/a=b") == ("", "/srv/a=b")
    assert parts.split("sqlite=/srv/a=b") == ("sqlite", "/srv/a=b")
    assert parts.absolute("files=notes") == f"files={os.getcwd()}/notes"  # noqa: PTH109
    assert parts.absolute("qdrant=http://q") == parts.absolute("http://q") == "qdrant=http://q"
    assert parts.absolute("postgresql:///memory") == "postgres=postgresql:///memory"
    assert parts.absolute("ftp://q") == "ftp://q"


def test_settings_survive_their_file() -> None:
    from memops import render

    store = Store(
        parts=("sqlite=/srv/agent/h 'x.db".replace("'", ""), "qdrant=http://127.0.0.1:6333"),
        secrets=("qdrant",),
        agent_unit="agent@1.service",
        keep_daily=0,
        prune_without_backup=True,
    )
    settings.check(store)
    assert settings.parse(render.settings_file({"default": store}).text) == {"default": store}


@pytest.mark.parametrize(
    "change",
    [
        {"keep_daily": -1},
        {"secrets": ("history",), "parts": ("sqlite=/srv/agent/history.db",)},
        {"agent_unit": "agent"},
        {"agent_unit": "-x.service;"},
        {"agent_unit": "a b.service"},
        {"parts": ("",)},
        {"offsite": "tape=/dev/st0"},
    ],
)
def test_what_cannot_be_right_is_refused(change) -> None:
    with pytest.raises(UsageError):
        settings.check(Store(**change))


def test_keys_come_from_a_file_or_a_person_and_never_from_the_command_line(tmp_path) -> None:
    file = tmp_path / "key"
    file.write_text("from a file\n")
    typed = keys.typed([f"qdrant={file}", "memory=-", "old="], lambda what: f"typed for {what}")
    assert typed == {"qdrant": "from a file", "memory": "typed for Key of memory", "old": ""}
    for words in ("qdrant", "=x"):
        with pytest.raises(UsageError, match="--secret takes"):
            keys.typed([words], str)
    with pytest.raises(UsageError, match="the key is empty"):
        keys.typed(["qdrant=/dev/null"], str)
    with pytest.raises(MemopsError, match="cannot be read"):
        keys.typed([f"qdrant={tmp_path}/none"], str)
