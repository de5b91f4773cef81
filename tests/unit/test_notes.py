"""Notes in plain files: forms, dates, and what an agent may put in the way."""

from __future__ import annotations

import json
import os
from datetime import UTC, date, datetime
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import note_dates
import note_forms
import notes

NOW = datetime(2026, 6, 15, 12, tzinfo=UTC).timestamp()
TODAY = date(2026, 6, 15)


def look(*paths, **options):
    return notes.look([str(path) for path in paths], NOW, **options)


def dated(content: str, name: str = "notes.md", beside=()) -> list[tuple[int, str | None, str, str]]:
    """Line, date, what it was taken from and text of every entry."""
    found = note_forms.read(content.encode(), name, note_dates.today(NOW), beside)
    return [(each.line, each.date and each.date.isoformat(), each.by, each.text) for each in found.entries]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("moved on 2025-03-04.", "2025-03-04"),
        ("2025-03-04T23:30:00+02:00 deployed", "2025-03-04"),
        ("20250304T101500Z", "2025-03-04"),
        ("(2025/3/4)", "2025-03-04"),
        ("2025.03.04", "2025-03-04"),
        ("4 March 2025", "2025-03-04"),
        ("4th of March 2025", "2025-03-04"),
        ("04-Mar-2025", "2025-03-04"),
        ("Mar. 4, 2025", "2025-03-04"),
        ("SEPT 4th, 2025", "2025-09-04"),
        ("am 4.3.2025 und am 4. 2. 2025", "2025-03-04"),
        ("25/12/2025", "2025-12-25"),
        ("12/25/2025", "2025-12-25"),
        ("25-12-2025", "2025-12-25"),
        ("05/05/2025", "2025-05-05"),
        ("2025年3月4日", "2025-03-04"),
        ("as of March 2025", "2025-03-01"),
        ("as of 2025-03", "2025-03-01"),
        ("from 2024-01-02 to 2025-03-04, then 2024-05-06", "2025-03-04"),
        ("2025-03-04/2025-03-05", "2025-03-05"),
        ("seen 2025-03-04, trip on 2027-01-01", "2025-03-04"),
        ("2026-06-16", "2026-06-16"),  # today, east of here
        # No dates, or none that says when this was written.
        ("2026-06-17", None),
        ("20 June 2026", None),  # and not the first of the month
        ("03/04/2025", None),  # which of the two is the month differs by country
        ("2025-02-30 2025-13-01 2025-00-00", None),
        ("born 1987-03-02", None),
        ("version 2025.03.04.1 on 10.2025.03.04", None),
        ("1.2025-03-045", None),
        ("see https://example.org/2025/03/04/post", None),
        ("in 2025, you may", None),
        ("", None),
    ],
)
def test_dates_as_people_write_them(text: str, expected: str | None) -> None:
    found = note_dates.newest(text, note_dates.today(NOW))
    assert (found and found.isoformat()) == expected


def test_markdown_items_and_paragraphs() -> None:
    text = """\ufeff# Things (2024-01-02)

An introduction to a list is none of its entries.

- drinks tea
  in the morning

  - since 2025-02-03
  * and coffee
+ lives in Rome
```sh
# no heading
- no item
```
1. [ ] owns a bike

Words behind it.

### Older, 5 May 2023
* kept a cat

## Undated
First paragraph,
two lines.

Second, of 2025-04-05.
***
Third.

<!-- a remark -->

Title
=====
- last
"""
    assert dated(text.replace("\n", "\r\n")) == [
        (5, "2025-02-03", "entry", "drinks tea in the morning - since 2025-02-03 * and coffee"),
        (10, "2024-01-02", "heading", "lives in Rome ```sh # no heading - no item ```"),
        (15, "2024-01-02", "heading", "[ ] owns a bike"),
        (20, "2023-05-05", "heading", "kept a cat"),
        (23, "2024-01-02", "heading", "First paragraph, two lines."),
        (26, "2025-04-05", "entry", "Second, of 2025-04-05."),
        (28, "2024-01-02", "heading", "Third."),
        (34, None, "", "last"),
    ]


def test_what_stands_above_counts_for_what_is_below() -> None:
    front = "---\ntitle: x\nupdated: 2025-03-04\nexpires: 2026-01-02\n---\n- one\n- two 2024-01-01\n"
    assert [each[1:3] for each in dated(front)] == [("2025-03-04", "front matter"), ("2024-01-01", "entry")]
    assert dated("---\nno end\n- x\n") == [(3, None, "", "x")]
    for name in ("2025-03-04.md", "2025-03-04-1530.md", "20250304.md", "log_2025-03-04.md"):
        assert dated("- one", name) == [(1, "2025-03-04", "file name", "one")], name
    assert dated("- one", "2027-03-04.md") == [(1, None, "", "one")]


def test_hermes_entries() -> None:
    text = "likes tea\nwith milk\n§\n\nlives in Rome (2025-03-04)\n §\n§\nhas § in it\n"
    assert dated(text, "USER.md") == [
        (1, None, "", "likes tea with milk"),
        (5, "2025-03-04", "entry", "lives in Rome (2025-03-04)"),
        (8, None, "", "has § in it"),
    ]


def test_a_memory_folder_of_claude_code(tmp_path) -> None:
    memory = tmp_path / ".claude/projects/-srv-agent/memory"
    memory.mkdir(parents=True)
    (memory / "MEMORY.md").write_text("- [Role](user_role.md) — what the user does\n- [Gone](gone.md)\n- loose\n")
    (memory / "user_role.md").write_text(
        "---\nname: user-role\ndescription: The user cooks\nmetadata:\n  type: user\n---\n\n- one\n\nOn 2025-03-04.\n"
    )
    (tmp_path / "CLAUDE.md").write_text("- run the tests (2025-04-05)\n")
    # Neither transcripts nor skills are memory.
    (memory.parent / "session.jsonl").write_text('{"type":"user"}\n')
    (tmp_path / ".claude/skills").mkdir()
    (tmp_path / ".claude/skills/SKILL.md").write_text("- x\n")
    found = look(tmp_path)
    assert [(Path(each.file).name, each.form, each.entries) for each in found.files] == [
        ("MEMORY.md", "markdown", 2),
        ("user_role.md", "claude", 1),
        ("CLAUDE.md", "markdown", 1),
    ]
    assert [(each.text, each.date) for each in found.listed] == [
        ("The user cooks", "2025-03-04"),
        ("run the tests (2025-04-05)", "2025-04-05"),
        ("[Gone](gone.md)", None),
        ("loose", None),
    ]
    assert look(tmp_path / ".claude").entries == 3
    assert found.problems == []


def test_the_file_of_the_mcp_server_memory(tmp_path) -> None:
    lines = [
        b"{bad",
        json.dumps({"type": "entity", "name": "Ada", "entityType": "p", "observations": ["tea", "on 2025-03-04"]}),
        b"\xff",
        '{"type":"relation","from":"Ada","relationType":"knows","to":"Bob"}',
        '{"type":"relation","from":"Ada"}',
        '{"type":"entity","name":"Bob","observations":"x"}',
        "[" * 100_000,
        "",
        '{"type":"entity","name":"Cid","observations":[1,"kept"]}',
    ]
    path = tmp_path / "memory.json"
    path.write_bytes(b"\n".join(line if isinstance(line, bytes) else line.encode() for line in lines))
    (tmp_path / "package.json").write_text('{"type": "module"}')
    (tmp_path / "README.md").write_text('```\n{"type":"entity","name":"example"}\n```\n')
    found = look(tmp_path)
    assert [(each.line, each.date, each.text) for each in found.listed if each.file == str(path)] == [
        (2, "2025-03-04", "Ada: on 2025-03-04"),
        (2, None, "Ada: tea"),
        (4, None, "Ada knows Bob"),
        (9, None, "Cid: kept"),
    ]
    assert [(each["where"].removeprefix(f"{path}:"), each["what"]) for each in found.problems] == [
        ("1", "not JSON"),
        ("3", "not UTF-8"),
        ("5", "no text for each of: from, relationType, to"),
        ("6", "observations that are no list of texts"),
        ("7", "not JSON"),
        ("9", "observations that are no list of texts"),
    ]
    assert [each.form for each in found.files] == ["markdown", "mcp"]
    assert "not the JSON of the MCP server-memory" in look(tmp_path / "package.json").problems[0]["what"]


def test_counts_and_the_oldest_first(tmp_path) -> None:
    (tmp_path / "a.md").write_text("- b 2026-05-01\n- c 2026-06-01\n- d\n")
    (tmp_path / "b.txt").write_text("a 2024-01-01\n")
    found = look(tmp_path, tmp_path / "b.txt", tmp_path)
    assert (found.entries, found.dated, found.undated, found.old) == (4, 3, 1, 2)
    assert [vars(each) for each in found.files] == [
        {"file": f"{tmp_path}/a.md", "form": "markdown", "entries": 3, "dated": 2, "undated": 1, "old": 1},
        {"file": f"{tmp_path}/b.txt", "form": "markdown", "entries": 1, "dated": 1, "undated": 0, "old": 1},
    ]
    assert [each.text[0] for each in found.listed] == ["a", "b", "d"]
    assert [each.text[0] for each in look(tmp_path, limit=1).listed] == ["b"]
    assert [each.text[0] for each in look(tmp_path, older_than=5).listed] == ["b", "c", "d"]
    assert look(tmp_path, older_than=10**9).old == 0
    # As it is called where it is not seen at its own place.
    named = look(tmp_path / "b.txt", names={f"{tmp_path}/b.txt": "/home/ada/b.txt"})
    assert named.listed[0].file == "/home/ada/b.txt"
    assert json.loads(json.dumps(found.as_json()))["files"][1]["old"] == 1


def test_the_time_of_a_file_dates_nothing(tmp_path) -> None:
    (tmp_path / "a.md").write_text("- one\n")
    os.utime(tmp_path / "a.md", (0, 0))
    assert look(tmp_path).undated == 1


def test_what_an_agent_may_put_in_the_way(tmp_path) -> None:
    top, secret = tmp_path / "top", tmp_path / "secret"
    top.mkdir()
    secret.mkdir()
    (secret / "key.md").write_text("- hidden away\n")
    (top / "link").symlink_to(secret)
    (top / "link.md").symlink_to(secret / "key.md")
    os.mkfifo(top / "pipe.md")
    (top / "broken.md").write_bytes(b"- one\n- caf\xe9\n")
    (top / "nul.md").write_bytes(b"- one\0\n")
    with (top / "big.md").open("wb") as file:
        file.write(b"- " + b"x" * 50_000_000)
    (top / "long.md").write_text("- \n" * (note_forms.LINES + 1))
    (top / "\x1b[31m.md").write_text("- red \x1b[31m\n")
    (top / "undecodable\udcff.md").write_text("- odd\n")
    for hidden in (".git", ".cache", "node_modules"):
        (top / hidden).mkdir()
        (top / hidden / "x.md").write_text("- x\n")
    deep = os.open(top, os.O_RDONLY)
    for _ in range(notes.DEPTH + 10):
        os.mkdir("d" * 200, dir_fd=deep)
        below = os.open("d" * 200, os.O_RDONLY, dir_fd=deep)
        os.close(deep)
        deep = below
    os.close(deep)
    found = look(top)
    assert sorted(each.text for each in found.listed) == ["odd", "red \x1b[31m"]
    said = {Path(each["where"]).name: each["what"] for each in found.problems}
    assert said.pop("d" * 200).endswith(f"more than {notes.DEPTH} directories deep")
    assert said == {
        "link.md": "a link, which is not followed",
        "pipe.md": "no plain file",
        "broken.md": "not read: it is not UTF-8 (line 2)",
        "nul.md": "not read: it is no text (a NUL byte)",
        "big.md": "not read: 50.0 MB, and more than 2.1 MB of one file is no memory",
        "long.md": f"not read: it has more than {note_forms.LINES:,} lines",
    }
    for path, what in ((top / "link", "a link"), (top / "pipe.md", "no plain file"), (top / "no", "No such file")):
        assert what in look(path).problems[0]["what"]
        assert look(path).entries == 0


def test_limits_of_all_files_together(tmp_path, monkeypatch) -> None:
    for number in range(5):
        (tmp_path / f"{number}.md").write_text("- x\n")
    for name, limit, most in (("FILES", 3, 3), ("NAMES", 3, 0), ("BYTES", 12, 3), ("ENTRIES", 2, 3)):
        with monkeypatch.context() as patch:
            patch.setattr(notes, name, limit)
            found = look(tmp_path)
        assert len(found.files) == most, name
        assert found.problems[-1]["what"] == "the rest was not read"


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    content=st.binary()
    | st.text().map(lambda text: text.encode("utf-8", "surrogatepass"))
    | st.lists(
        st.sampled_from(
            [
                *(
                    "- a",
                    "  - b",
                    "# 2025-01-02",
                    "---",
                    "===",
                    "§",
                    "```",
                    "",
                    "2.3.2025",
                    "1. ",
                    "\t",
                    "<!--",
                    "name: x",
                ),
                '{"type":"entity","name":"x"}',
                '{"type":"relation"}',
                '{"type":"entity","name":"x","observations":null}',
            ]
        )
    ).map(lambda lines: "\n".join(lines).encode()),
    name=st.sampled_from(["a.md", "memory.jsonl", "2026-01-02.md"]),
)
def test_whatever_a_file_holds_it_is_read_or_named(content: bytes, name: str, tmp_path) -> None:
    (tmp_path / name).write_bytes(content)
    found = look(tmp_path / name)
    (tmp_path / name).unlink()
    assert found.entries == found.dated + found.undated
    lines = content.count(b"\n") + 1
    assert all(1 <= each.line <= lines and each.text.strip() and len(each.text) <= 400 for each in found.listed)
    json.dumps(found.as_json())


@given(st.text())
def test_dates_are_looked_for_in_any_text(text: str) -> None:
    found = note_dates.newest(text, TODAY)
    assert found is None or note_dates.EARLIEST <= found <= TODAY
