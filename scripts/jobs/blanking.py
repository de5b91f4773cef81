"""Taking words out of the values of databases and out of the records of the jobs, which stay otherwise as they are."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import sqlite3
import stat
from typing import TYPE_CHECKING, Any, Final

import store

import job
import rows
import traces

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

PASSES: Final = 3
"""Times that a database is gone through: a trigger may write the words somewhere while they are taken out."""

KEPT_OUT: Final = ("erased.jsonl",)
"""Records that never have a text."""


def credentials(fact: Mapping[str, Any]) -> list[str]:
    """The values in a fact that look like credentials. Raises store.Refused where there is none, or one too short."""
    found: list[str] = []
    for name in rows.TEXTS:
        if fact[name] is not None:
            found += hidden(str(fact[name]), store.mask(str(fact[name])))
    values = list(dict.fromkeys(found))
    if not values:
        raise store.Refused(
            f"nothing in {store.printable(fact['id'])} looks like a credential",
            "Give the words themselves: memops forget --erase --matching -",
        )
    return values


def hidden(text: str, masked: str) -> list[str]:
    """What ``[masked]`` stands for in ``masked``, which was made of ``text``."""
    pattern = "(.+?)".join(re.escape(piece) for piece in masked.split(store.HIDDEN))
    match = re.fullmatch(pattern, text, re.DOTALL)
    return [value for value in (match.groups() if match else ()) if value != store.HIDDEN]


# Databases


def blank(
    connection: sqlite3.Connection, words: traces.Words, sign: str, keep: Collection[str]
) -> tuple[int, list[str]]:
    """Put ``sign`` in the place of the words, in all tables but ``keep``: how many values, and what was left and why.

    Raises sqlite3.Error.
    """
    done = 0
    problems: list[str] = []
    for _ in range(PASSES):
        changed, problems = 0, []
        for table in traces.tables(connection):
            if table.name in keep:
                continue
            for hit in list(traces.in_table(connection, table, words)):
                if hit.how == "whole":
                    try:
                        changed += _blank_row(connection, table, hit, words, sign)
                    except (sqlite3.Error, store.Refused) as error:
                        problems.append(f"{table.name} ({', '.join(hit.columns)}): {store.printable(error, 200)}")
        done += changed
        if not changed:
            break
    return done, problems


def _blank_row(
    connection: sqlite3.Connection, table: traces.Table, hit: traces.Hit, words: traces.Words, sign: str
) -> int:
    name = _quoted(table.name)
    if table.name.startswith("sqlite_stat"):  # examples of values, which ANALYZE makes anew
        return connection.execute(f"DELETE FROM {name} WHERE {table.where}", hit.key).rowcount
    index = _content_of(connection, table) if table.sort == "shadow" else None
    if table.sort == "shadow" and index is None:
        raise store.Refused("a virtual table keeps it, and only its own program can take it out")
    count = 0
    with store.writing(connection):
        for column in hit.columns:
            sort, value = connection.execute(
                f"SELECT typeof({_quoted(column)}), {_quoted(column)} FROM {name} WHERE {table.where}", hit.key
            ).fetchone() or (None, None)
            if sort is None:
                continue
            if sort != "text":
                raise store.Refused("it is no text, and would be damaged")
            new = words.without(str(value), sign)
            if new == value:
                continue
            target, key = (
                (table.name, column) if index is None else (index, _column_of(connection, index, table, column))
            )
            where = table.where if index is None else "rowid = ?"
            count += connection.execute(
                f"UPDATE {_quoted(target)} SET {_quoted(key)} = ? WHERE {where}", (_storable(new), *hit.key)
            ).rowcount
    return count


def _storable(text: str) -> str:
    # What was no UTF-8 cannot be written back as text.
    return text.encode(errors="surrogateescape").decode(errors="replace")


def _content_of(connection: sqlite3.Connection, table: traces.Table) -> str | None:
    """The full-text index whose texts a shadow table has; None for any other."""
    return next((name for name, _ in traces.indexes(connection) if table.name == f"{name}_content"), None)


def _column_of(connection: sqlite3.Connection, index: str, table: traces.Table, column: str) -> str:
    columns = [str(row[0]) for row in connection.execute("SELECT name FROM pragma_table_info(?)", (index,))]
    return columns[table.columns.index(column) - 1]


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


# Records


def clean_records(state: str, words: traces.Words, sign: str) -> list[str]:
    """Take the words out of the records; what is no record of ours is named instead."""
    left = []
    with job.alone(state):
        for name in sorted(os.listdir(state)):
            path = os.path.join(state, name)
            try:
                status = os.lstat(path)
                if not stat.S_ISREG(status.st_mode) or name in KEPT_OUT:
                    continue
                if name.endswith(".new"):
                    if traces.in_file(path, words):
                        os.unlink(path)
                elif name.endswith((".jsonl", ".json")):
                    _clean_record(path, stat.S_IMODE(status.st_mode), words, sign)
            except FileNotFoundError:
                continue
            except (OSError, ValueError, RecursionError) as error:
                left.append(words.shown(f"{path}: {error}"))
    return left


def _clean_record(path: str, mode: int, words: traces.Words, sign: str) -> None:
    with open(path, encoding="utf-8", errors="surrogateescape", opener=_no_link) as file:
        lines = file.read().splitlines()
    new = [cleaned for line in lines if (cleaned := _clean_line(line, words, sign)) is not None]
    if new != lines:
        job.replace_file(path, "\n".join(new) + "\n" if new else "", mode)


def _no_link(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)


def _clean_line(line: str, words: traces.Words, sign: str) -> str | None:
    if not words.of(line.encode(errors="surrogateescape")):
        return line
    new: str | None = None
    with contextlib.suppress(ValueError, RecursionError):
        new = json.dumps(_without(json.loads(line), words, sign), ensure_ascii=False)
    # A line that is none of ours, or keeps a piece of the words, goes as a whole.
    return new if new is not None and not words.of(new.encode(errors="surrogatepass")) else None


def _without(value: Any, words: traces.Words, sign: str) -> Any:
    if isinstance(value, str):
        return words.without(value, sign)
    if isinstance(value, list):
        return [_without(each, words, sign) for each in value]
    if isinstance(value, dict):
        return {words.without(key, sign): _without(each, words, sign) for key, each in value.items()}
    return value


def remove_tree(directory: str, name: str) -> None:
    """Remove a directory with all in it; where a link is put in its place, nothing is followed. Raises OSError."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        shutil.rmtree(name, dir_fd=descriptor)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
