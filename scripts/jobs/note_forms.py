"""The forms in which agents keep notes in plain files, told by their content, and the entries in each.

- Markdown: each item of a list's top level is an entry; in a section without a list, each paragraph.
- Claude Code: a file whose front matter has a name, a description and a type is one entry.
- Hermes: entries between lines that hold ``§`` and nothing else.
- MCP server-memory: JSON lines; each observation of an entity and each relation is an entry.

A date in an entry is the entry's own. One in a heading, the front matter or the file's name counts for what is below.
What looks like a credential is masked in the text of an entry. Standard library only, and nothing here opens a file.
"""

from __future__ import annotations

import json
import os
import re
import sys
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import store

import note_dates

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from datetime import date

MARKDOWN: Final = "markdown"
CLAUDE: Final = "claude"
HERMES: Final = "hermes"
SERVER_MEMORY: Final = "mcp"

TEXT: Final = 400
"""Characters of an entry that are kept to be shown."""

WHOLE: Final = 20_000
"""Characters of an entry that are kept to tell it from others."""

LINES: Final = 50_000
"""Lines, and entries, that one file may have."""

BAD_LINES: Final = 20
"""Lines of one file that are named."""

_HEADING: Final = re.compile(r" {0,3}(#{1,6})(?:[ \t]|$)")
_UNDERLINE: Final = re.compile(r" {0,3}(=+|-+)[ \t]*$")
_BREAK: Final = re.compile(r" {0,3}([-*_])[ \t]*(?:\1[ \t]*){2,}$")
_FENCE: Final = re.compile(r"[ \t]*(`{3,}|~{3,})")
_ITEM: Final = re.compile(r"([ \t]*)(?:[-*+]|\d{1,9}[.)])[ \t]+(?=\S)", re.ASCII)
_KEY: Final = re.compile(r"[ \t]*([A-Za-z_-]{1,40})[ \t]*[:=]")
_END_KEY: Final = re.compile("expir|until|due|valid|next|deadline", re.IGNORECASE)
_POINTER: Final = re.compile(r"\[[^\]\n]{0,300}\]\((?:\./)?([^()\s/]{1,255}\.md)\)", re.IGNORECASE)
_FRONT_LINES: Final = 200
_BLANK: Final = b" \t\r\n\xef\xbb\xbf"
_TYPE: Final = re.compile(rb'"type"\s{0,9}:\s{0,9}"(?:entity|relation)"')
_WORDS: Final = {"entity": ("name",), "relation": ("from", "relationType", "to")}


@dataclass(frozen=True)
class Entry:
    """One note: its lines, the beginning of its text, its date (None: unknown), and what the date was taken from.

    by: ``entry``, ``heading``, ``front matter``, ``file name``, ``git``, or empty where there is no date. whole: the
    text as it stands there, not masked and hardly cut.
    """

    line: int
    last: int
    text: str
    date: date | None = None
    by: str = ""
    whole: str = ""


@dataclass(frozen=True)
class Notes:
    """What a file holds. form: empty where it is none of those above. bad: (line, what is wrong with it)."""

    form: str
    entries: list[Entry] = field(default_factory=list)
    bad: list[tuple[int, str]] = field(default_factory=list)


def read(content: bytes, name: str, latest: date, beside: Collection[str] = ()) -> Notes:
    """The entries of a file. Raises ValueError, which says why, for what is no text.

    name: the file's. latest: dates after it are in the future. beside: the names in the same directory; an item that
    only points to one of these, as in an index, is no entry: the file says the same.
    """
    if is_server_memory(content, name):
        return _server_memory(content, latest)
    if is_json(name):
        return Notes("")
    if b"\0" in content:
        raise ValueError("it is no text (a NUL byte)")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ValueError(f"it is not UTF-8 (line {line})") from None
    # Not splitlines(), which knows more ends of a line than git does.
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    if len(lines) > LINES:
        raise ValueError(f"it has more than {LINES:,} lines")
    named = note_dates.in_name(name, latest)
    above = (named, "file name") if named else (None, "")
    if any(line.strip() == "§" for line in lines):
        return Notes(HERMES, list(_hermes(lines, latest, above)))
    front = _front_matter(lines)
    keys = {match[1].lower(): line[match.end() :].strip(" \t\"'") for line in front if (match := _KEY.match(line))}
    if dated := note_dates.newest("\n".join(line for line in front if not _ends(line)), latest):
        above = (dated, "front matter")
    if {"name", "description", "type"} <= set(keys):
        body = note_dates.newest("\n".join(lines[len(front) :]), latest)
        own = max((each for each in (body, dated) if each), default=None)
        date, by = (own, "front matter" if own == dated else "entry") if own else above
        last = max(number for number, line in enumerate(lines, 1) if line.strip())
        whole = _whole("\n".join(lines[len(front) :])) or keys["description"]
        return Notes(CLAUDE, [Entry(1, last, _shown(keys["description"] or keys["name"]), date, by, whole)])
    entries = _Markdown(latest, above).read(lines, len(front))
    return Notes(MARKDOWN, [entry for entry in entries if not _points(entry.text, beside)])


def is_server_memory(content: bytes, name: str) -> bool:
    """Whether this is the file of the MCP server-memory, or its beginning: JSON, an entity or a relation in it."""
    # Of a file with such a name any line may be the bad one, the first too.
    lines = is_json(name) or content.lstrip(_BLANK).startswith(b"{")
    return lines and bool(_TYPE.search(content))


def is_json(name: str) -> bool:
    """Whether a file's name promises JSON."""
    return name.lower().endswith((".json", ".jsonl"))


def _record(line: bytes) -> tuple[dict[str, Any] | None, str]:
    """An entity or a relation, or why the line is none."""
    try:
        record = json.loads(line.decode("utf-8-sig"))
    except UnicodeDecodeError:
        return None, "not UTF-8"
    except (ValueError, RecursionError):
        return None, "not JSON"
    if not isinstance(record, dict) or record.get("type") not in ("entity", "relation"):
        return None, "neither an entity nor a relation"
    for kind, words in _WORDS.items():
        if record["type"] == kind and not all(isinstance(record.get(word), str) for word in words):
            return None, f"no text for each of: {', '.join(words)}"
    return record, ""


def _server_memory(content: bytes, latest: date) -> Notes:
    notes = Notes(SERVER_MEMORY)
    for number, line in enumerate(content.split(b"\n"), 1):
        if not line.strip():
            continue
        record, why = _record(line)
        texts = [] if record is None else _texts(record)
        if record is not None and not _all_texts(record.get("observations", [])):
            why = "observations that are no list of texts"
        if why:
            notes.bad.append((number, why))
        for text in texts:
            date = note_dates.newest(text, latest)
            notes.entries.append(Entry(number, number, _shown(text), date, "entry" if date else "", _whole(text)))
        if len(notes.entries) > LINES:
            raise ValueError(f"it holds more than {LINES:,} entries")
    return notes


def _texts(record: dict[str, Any]) -> list[str]:
    if record["type"] == "relation":
        return [f"{record['from']} {record['relationType']} {record['to']}"]
    said = record.get("observations", [])
    return [f"{record['name']}: {each}" for each in said if isinstance(each, str)] if isinstance(said, list) else []


def observations(content: bytes) -> Iterator[tuple[str, str]]:
    """What a file of the MCP server-memory says: the name of an entity, and an observation. Raises ValueError, which
    names the line, for one that the server itself could not read either."""
    for number, line in enumerate(content.split(b"\n"), 1):
        if not line.strip():
            continue
        record, why = _record(line)
        if record is None or not _all_texts(record.get("observations", [])):
            raise ValueError(f"line {number} is {why or 'no entity: its observations are no list of texts'}")
        if record["type"] == "entity":
            yield from ((record["name"], each) for each in record.get("observations", []))


def _all_texts(said: object) -> bool:
    return isinstance(said, list) and all(isinstance(each, str) for each in said)


def _hermes(lines: list[str], latest: date, above: tuple[date | None, str]) -> Iterator[Entry]:
    start = 0
    for end in (*(number for number, line in enumerate(lines) if line.strip() == "§"), len(lines)):
        filled = [number for number in range(start, end) if lines[number].strip()]
        if filled:
            yield _entry(filled[0] + 1, filled[-1] + 1, lines[filled[0] : filled[-1] + 1], latest, above)
        start = end + 1


def _front_matter(lines: list[str]) -> list[str]:
    """The lines of the front matter, both its fences among them; empty where there is none."""
    if lines[0].rstrip() not in ("---", "+++"):
        return []
    for number, line in enumerate(lines[1:_FRONT_LINES], 1):
        if line.rstrip() in (lines[0].rstrip(), "..."):
            return lines[: number + 1]
    return []


def _ends(line: str) -> bool:
    """Whether a line of front matter says when something is over, which is not when it was written."""
    match = _KEY.match(line)
    return bool(match and _END_KEY.search(match[1]))


def _points(text: str, beside: Collection[str]) -> bool:
    match = _POINTER.match(text)
    return bool(match and match[1] in beside)


def _shown(text: str) -> str:
    # Masked before it is cut, or half a key could be left.
    words = " ".join(store.mask(text[: 10 * TEXT])[: 4 * TEXT].split())
    return words if len(words) <= TEXT else words[: TEXT - 1] + "…"


def _whole(text: str) -> str:
    return text.strip()[:WHOLE]


def _entry(first: int, last: int, lines: list[str], latest: date, above: tuple[date | None, str]) -> Entry:
    text = "\n".join(lines)
    own = note_dates.newest(text, latest)
    date, by = (own, "entry") if own else above
    return Entry(first, last, _shown(text), date, by, _whole(text))


@dataclass
class _Block:
    """An item or a paragraph that is being read."""

    first: int
    last: int
    lines: list[str]
    item: bool

    def add(self, number: int, line: str) -> None:
        self.last = number
        self.lines.append(line)


class _Markdown:
    """Reads Markdown line by line, as far as telling its entries apart needs it."""

    def __init__(self, latest: date, above: tuple[date | None, str]) -> None:
        self._latest, self._above = latest, above
        self._entries: list[Entry] = []
        self._headings: list[tuple[int, date | None]] = []
        self._section: list[_Block] = []
        self._block: _Block | None = None
        self._indent = 0
        self._fence = ""
        self._after_blank = False

    def read(self, lines: list[str], start: int) -> list[Entry]:
        """The entries of ``lines``, from the index ``start`` on."""
        for number, line in enumerate(lines[start:], start + 1):
            self._line(number, line)
        self._end_section()
        return self._entries

    def _line(self, number: int, line: str) -> None:
        fence = _FENCE.match(line)
        if self._fence:
            # Nothing in a block of code is a heading or an item.
            self._text(number, line)
            if fence and fence[1].startswith(self._fence):
                self._fence = ""
            return
        indent = len(line) - len(line.lstrip(" \t"))
        if not line.strip():
            self._after_blank = True
            if self._block is not None and not self._block.item:
                self._block = None
            return
        if heading := _HEADING.match(line):
            self._heading(len(heading[1]), line)
        elif self._is_underline(line):
            title = self._section.pop().lines[0]
            self._heading(1 if "=" in line else 2, title)
        elif _BREAK.match(line):
            self._block = None
        elif (item := _ITEM.match(line)) and not fence and not self._inside(indent):
            self._indent = indent
            self._begin(number, line[item.end() :], item=True)
        else:
            if self._after_blank and self._block is not None and not self._inside(indent):
                self._block = None
            self._text(number, line)
            self._fence = fence[1] if fence else ""
        self._after_blank = False

    def _inside(self, indent: int) -> bool:
        """Whether a line indented like this belongs to the item being read."""
        return self._block is not None and self._block.item and indent > self._indent

    def _is_underline(self, line: str) -> bool:
        block = self._block
        return block is not None and not block.item and len(block.lines) == 1 and bool(_UNDERLINE.match(line))

    def _text(self, number: int, line: str) -> None:
        if self._block is None:
            self._begin(number, line, item=False)
        else:
            self._block.add(number, line)

    def _begin(self, number: int, line: str, *, item: bool) -> None:
        self._block = _Block(number, number, [line], item)
        self._section.append(self._block)

    def _heading(self, level: int, title: str) -> None:
        self._end_section()
        self._headings = [each for each in self._headings if each[0] < level]
        self._headings.append((level, note_dates.newest(title, self._latest)))

    def _end_section(self) -> None:
        dated = next((date for _, date in reversed(self._headings) if date), None)
        above = (dated, "heading") if dated else self._above
        listed = any(block.item for block in self._section)
        for block in self._section:
            if block.item or not (listed or _is_comment(block.lines)):
                self._entries.append(_entry(block.first, block.last, block.lines, self._latest, above))
        self._section, self._block = [], None


def _is_comment(lines: list[str]) -> bool:
    return lines[0].lstrip().startswith("<!--") and lines[-1].rstrip().endswith("-->")


def dated_by_git(entry: Entry, date: date) -> Entry:
    """The entry with the date that git has for it."""
    return replace(entry, date=date, by="git")
