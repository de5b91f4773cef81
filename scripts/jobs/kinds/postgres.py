"""A PostgreSQL database (for pgvector): a plain dump, and an exact count of every table in the same snapshot.

dump.sql has everything but the extensions, which usually only an administrator may make; extensions.sql makes those
that are missing. Both go back in one transaction:
``psql --single-transaction -v ON_ERROR_STOP=1 -f extensions.sql -f dump.sql URL``.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
from typing import IO, TYPE_CHECKING, Any, Final, cast
from urllib.parse import parse_qsl, urlsplit

from store import printable

import census
import claims
import job
from kinds import _mem0, _secret, _tree

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

DUMP: Final = "dump.sql"
EXTENSIONS: Final = "extensions.sql"
END: Final = b"-- PostgreSQL database dump complete"
LINE: Final = 1 << 20
"""Bytes of a line that are looked at; a longer one is one row all the same."""

_NAME: Final = rb'(?:"(?:[^"]|"")+"|[^"\s.(),]+)'
COPY: Final = re.compile(rb"COPY (%b\.%b) (?:\((.*)\))? ?FROM stdin;\n" % (_NAME, _NAME))
CREATE: Final = re.compile(rb"CREATE (?:UNLOGGED )?TABLE (%b\.%b) \(\n" % (_NAME, _NAME))
VECTOR: Final = re.compile(rb"    (%b) (?:%b\.)?(?:vector|halfvec|sparsevec)(?:\(\d+\))?[ ,\n]" % (_NAME, _NAME))

# What pg_dump writes a COPY of: ordinary tables and partitions, but for those that belong to an extension.
TABLES: Final = """
SELECT format('SELECT %L, count(*) FROM ONLY %I.%I;', format('%I.%I', n.nspname, c.relname), n.nspname, c.relname)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind = 'r' AND c.relpersistence <> 't' AND n.nspname !~ '^pg_' AND n.nspname <> 'information_schema'
AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'e')
ORDER BY n.nspname, c.relname
"""

MAKE_EXTENSIONS: Final = """
SELECT format('CREATE EXTENSION IF NOT EXISTS %I WITH SCHEMA %I;', e.extname, n.nspname)
FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace WHERE e.extname <> 'plpgsql' ORDER BY e.oid
"""


def snapshot(url: str, target: str, limit: census.Limit) -> dict[str, Any]:
    """See Kind.snapshot."""
    require_url(url)
    with _session(url, limit) as ask:
        ask("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;")
        exported = ask("SELECT pg_export_snapshot();")[0]
        taken_at = job.now()
        extensions = ask(f"{MAKE_EXTENSIONS};")
        counts = {}
        for line in ask(f"{TABLES} \\gexec"):
            name, _, count = line.rpartition("|")
            if not name or not count.isdecimal():
                raise job.JobError(f"the name of a table holds a line break: {printable(line, 200)}")
            counts[_tree.require_name(name)] = int(count)
        with census.full_disk_named(), open(os.path.join(target, EXTENSIONS), "x", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in extensions)
        # Of the extensions only plpgsql, which is always there, so that pg_dump leaves it out.
        options = ("--no-password", "--format=plain", "--clean", "--if-exists", "--no-owner", "--extension=plpgsql")
        _run(("pg_dump", *options, f"--snapshot={exported}", f"--file={target}/{DUMP}", f"--dbname={url}"), limit)
    for name in (DUMP, EXTENSIONS):
        os.chmod(os.path.join(target, name), 0o640)
    return {"taken_at": taken_at, "exact": True, "counts": counts}


def require_url(url: str) -> None:
    """Raise JobError when ``url`` is no address of a database, or holds a secret, which ``ps`` would show."""
    parts = urlsplit(url)
    if parts.scheme not in ("postgres", "postgresql"):
        raise job.JobError(f"{printable(url, 200)} is no address such as postgresql://HOST/DATABASE")
    if parts.password or any("password" in key.lower() for key, _ in parse_qsl(parts.query, keep_blank_values=True)):
        raise job.JobError("the address of the database holds a password; put it into a file as PGPASSFILE has it")


def _environment() -> dict[str, str]:
    environment = {key: value for key, value in os.environ.items() if key in ("PATH", "HOME", "PGPASSFILE", "PGHOST")}
    if path := _secret.path():
        environment["PGPASSFILE"] = path
    environment |= {"PGCONNECT_TIMEOUT": "30", "PGAPPNAME": "memops", "PGCLIENTENCODING": "UTF8"}
    return {**environment, "LC_ALL": "C", "PGOPTIONS": "-c client_min_messages=warning"}


def _start(command: tuple[str, ...], **pipes: Any) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(command, env=_environment(), **pipes)
    except FileNotFoundError:
        raise job.JobError(f"{command[0]} is missing; install Debian's package postgresql-client") from None


def _run(command: tuple[str, ...], limit: census.Limit) -> None:
    """Run a program to its end. Raises JobError with what it said, or when the time is over."""
    process = _start(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        _, said = limit.run(process.communicate)
    finally:
        _end(process)
    if process.returncode:
        raise _failed(said)


def _failed(said: bytes) -> job.JobError:
    """The error for what psql or pg_dump said at its end, each line of which begins with its name."""
    return job.JobError(
        printable("; ".join(said.decode(errors="replace").split("\n")).strip("; "), 300)
        or "the database's program failed"
    )


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


@contextlib.contextmanager
def _session(url: str, limit: census.Limit) -> Iterator[Any]:
    """A psql that stays open: a function that runs one statement and returns its lines."""
    options = ("-X", "-q", "-A", "-t", "-w", "-v", "ON_ERROR_STOP=1")
    process = _start(
        ("psql", *options, f"--dbname={url}"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    into, out, errors = (cast("IO[bytes]", pipe) for pipe in (process.stdin, process.stdout, process.stderr))

    def ask(statement: str) -> list[str]:
        with contextlib.suppress(BrokenPipeError):
            into.write(f"{statement}\n\\echo memops: done\n".encode())
            into.flush()
        lines = []
        while (line := limit.run(out.readline)) != b"memops: done\n":
            if not line:
                raise _failed(errors.read())
            lines.append(line.decode().rstrip("\n"))
        return lines

    try:
        yield ask
    finally:
        _end(process)
        with contextlib.suppress(BrokenPipeError):
            into.close()
        out.close()
        errors.close()


def verify(directory: str, claim: Mapping[str, Any], limit: census.Limit) -> dict[str, Any]:
    """See Kind.verify: a dump with its last line, and as many rows of each table as there were."""
    try:
        counts: dict[str, Any] = claims.field(claim, "counts", dict)
        claimed = {name: claims.field(counts, name, int) for name in counts}
    except ValueError as error:
        raise claims.unreadable("the claim", error) from error
    if extra := set(os.listdir(directory)) ^ {DUMP, EXTENSIONS}:
        raise job.JobError(f"{printable(min(extra))} is missing, or does not belong to the copy")
    with open(os.path.join(directory, DUMP), "rb") as file:
        file.seek(max(0, os.path.getsize(file.name) - 1000))
        if not any(line == END for line in file.read().split(b"\n")):
            raise job.JobError("the dump is cut off: its last line is missing")
        file.seek(0)
        found: dict[str, int] = {}
        for table, _, rows in _blocks(file):
            name = table.decode(errors="replace")
            found[name] = found.get(name, 0)
            for _ in rows:
                found[name] += 1
                if not found[name] & 0xFFF:
                    limit.check()
    for name in sorted({*claimed, *found}):
        if claimed.get(name) != found.get(name):
            there, then = (f"{each[name]:,}" if name in each else "no" for each in (found, claimed))
            raise job.JobError(f"{there} rows of {printable(name)}, where the database had {then}")
    return {"exact": True, "counts": claimed}


def _lines(file: IO[bytes]) -> Iterator[bytes]:
    """The lines of a file, each cut off after LINE bytes."""
    while line := file.readline(LINE):
        yield line
        while line and not line.endswith(b"\n"):
            line = file.readline(LINE)


def _blocks(file: IO[bytes]) -> Iterator[tuple[bytes, tuple[bytes, set[bytes]], Iterator[bytes]]]:
    """The data of a dump: table, (its columns as COPY has them, those that hold vectors), rows; to be read in turn."""
    lines = _lines(file)
    vectors: dict[bytes, set[bytes]] = {}
    table = b""
    for line in lines:
        if created := CREATE.fullmatch(line):
            table = created[1]
        elif line == b");\n":
            table = b""
        elif table and (column := VECTOR.match(line)):
            vectors.setdefault(table, set()).add(column[1])
        elif copied := COPY.fullmatch(line):
            rows = iter(lambda: next(lines, b"\\.\n"), b"\\.\n")
            yield copied[1], (copied[2] or b"", vectors.get(copied[1], set())), rows


def _bookkeeping(table: bytes) -> bool:
    return _mem0.bookkeeping(table.decode(errors="replace").rpartition(".")[2].strip('"'))


def ids(directory: str) -> tuple[str, set[str]] | None:
    """See Kind.ids: the column ``id`` of each table that has a vector beside it, mem0's bookkeeping left out."""
    found: set[str] = set()
    any_table = False
    with open(os.path.join(directory, DUMP), "rb") as file:
        for table, (columns, vectors), rows in _blocks(file):
            names = columns.split(b", ")
            wanted = bool(vectors) and b"id" in names and not _bookkeeping(table)
            any_table = any_table or wanted
            place = names.index(b"id") if wanted else 0
            for row in rows:
                fields = row.rstrip(b"\n").split(b"\t", place + 1) if wanted else []
                if len(fields) > place:
                    found.add(fields[place].decode(errors="replace"))
    return ("vectors", found) if any_table else None


def restore(directory: str, url: str, limit: census.Limit) -> None:
    """See Kind.restore: all of it in one transaction, or nothing."""
    require_url(url)
    files = (f"--file={directory}/{EXTENSIONS}", f"--file={directory}/{DUMP}")
    options = ("-X", "-q", "-w", "--single-transaction", "-v", "ON_ERROR_STOP=1", *files)
    _run(("psql", *options, f"--dbname={url}"), limit)
