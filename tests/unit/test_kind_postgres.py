"""Dumps as pg_dump 17 writes them, and what could pass for one; tests/stores has the database itself."""

from __future__ import annotations

import json
import os

import pytest

import job
from kinds import postgres

ONE, TWO = "6f9619ff-8b86-4d01-b42d-00cf4fc964ff", "00000000-0000-0000-0000-000000000002"
DUMP = f"""\
--
-- PostgreSQL database dump
--

\\restrict kZ3b

SET search_path = '';
DROP TABLE IF EXISTS public.memories;
CREATE TABLE public.memories (
    note text,
    id uuid NOT NULL,
    vector public.vector(3),
    payload jsonb
);
CREATE TABLE public.plain (
    id integer NOT NULL,
    "the vector" text
);
CREATE UNLOGGED TABLE "Odd Name"."Te(x)t, t" (
    id integer NOT NULL,
    half ext.halfvec(2) DEFAULT '[1,2]'::ext.halfvec NOT NULL
);
CREATE TABLE public.mem0migrations (
    id uuid NOT NULL,
    vector public.vector
);
CREATE TABLE public.bare (
);
CREATE TABLE public.dropped_id (
    vector public.sparsevec(9)
);

COPY public.memories (note, id, vector, payload) FROM stdin;
a\\tb\t{ONE}\t[1,2,3]\t{{"data": "COPY public.plain (id) FROM stdin;"}}
\\N\t{TWO}\t\\N\t\\N
\\.


COPY public.plain (id, "the vector") FROM stdin;
7\tx
\\.


COPY "Odd Name"."Te(x)t, t" (id, half) FROM stdin;
41\t[1,2]
42\t[1,2]
\\.


COPY public.mem0migrations (id, vector) FROM stdin;
{ONE[::-1]}\t[0]
\\.


COPY public.bare  FROM stdin;


\\.


COPY public.dropped_id (vector) FROM stdin;
\\.


--
-- PostgreSQL database dump complete
--

\\unrestrict kZ3b

"""
COUNTS = {
    "public.memories": 2, "public.plain": 1, '"Odd Name"."Te(x)t, t"': 2, "public.mem0migrations": 1,
    "public.bare": 2, "public.dropped_id": 0,
}  # fmt: skip
CLAIM = {"exact": True, "counts": COUNTS}


@pytest.fixture
def copy(tmp_path):
    (tmp_path / "dump.sql").write_text(DUMP)
    (tmp_path / "extensions.sql").write_text("CREATE EXTENSION IF NOT EXISTS vector WITH SCHEMA public;\n")
    return tmp_path


def test_rows_are_counted_table_by_table(copy, limit):
    entry = postgres.verify(str(copy), CLAIM, limit)
    assert entry == CLAIM
    assert postgres.verify(str(copy), json.loads(json.dumps(entry)), limit) == entry


def test_ids_are_those_that_have_a_vector_beside_them(copy):
    assert postgres.ids(str(copy)) == ("vectors", {ONE, TWO, "41", "42"})


def test_a_database_without_vectors_has_no_ids(copy):
    (copy / "dump.sql").write_text(
        DUMP.replace("vector(", "tsvector(").replace("halfvec", "text").replace("sparse", "ts")
    )
    assert postgres.ids(str(copy)) is None


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("-- PostgreSQL database dump complete\n", "", "the dump is cut off: its last line is missing"),
        ("7\tx\n", "", "0 rows of public.plain, where the database had 1"),
        ("7\tx\n", "7\tx\n8\ty\n", "2 rows of public.plain, where the database had 1"),
        ("COPY public.bare  FROM", "COPY public.other  FROM", "no rows of public.bare, where the database had 2"),
        ("41\t[1,2]\n", "41\t[1,2]\n\\.\n", '1 rows of "Odd Name"'),
        ("7\tx\n\\.\n", "7\tx\n", "rows of"),
    ],
)
def test_a_dump_that_is_not_what_the_database_held_is_refused(old, new, words, copy, limit):
    assert DUMP.count(old) == 1
    (copy / "dump.sql").write_text(DUMP.replace(old, new))
    with pytest.raises(job.JobError, match=words):
        postgres.verify(str(copy), CLAIM, limit)


def test_the_last_line_must_be_at_the_end(copy, limit):
    (copy / "dump.sql").write_text(DUMP + "x" * 2000)
    with pytest.raises(job.JobError, match="the dump is cut off"):
        postgres.verify(str(copy), CLAIM, limit)


@pytest.mark.parametrize("cut", range(0, len(DUMP) - 40, 97))
def test_a_dump_cut_off_anywhere_is_refused(cut, copy, limit):
    (copy / "dump.sql").write_text(DUMP[:cut])
    with pytest.raises(job.JobError):
        postgres.verify(str(copy), CLAIM, limit)


def test_a_row_of_any_length_is_one_row(copy, limit, monkeypatch):
    monkeypatch.setattr(postgres, "LINE", 1000)
    for length in (999, 1000, 1001, 50_000):
        (copy / "dump.sql").write_text(DUMP.replace("7\tx\n", f"7\t{'x' * length}\n").replace("a\\tb", "y" * length))
        postgres.verify(str(copy), CLAIM, limit)
    # The id behind what is longer than a line that is looked at is not known; the others are.
    assert postgres.ids(str(copy)) == ("vectors", {TWO, "41", "42"})


def test_files_that_do_not_belong_are_refused(copy, limit):
    (copy / "more").touch()
    with pytest.raises(job.JobError, match="more is missing, or does not belong to the copy"):
        postgres.verify(str(copy), CLAIM, limit)
    (copy / "more").unlink()
    (copy / "extensions.sql").unlink()
    with pytest.raises(job.JobError, match=r"extensions\.sql is missing"):
        postgres.verify(str(copy), CLAIM, limit)


@pytest.mark.parametrize("counts", [None, [], {"t": "1"}, {"t": True}, {"t": 1 << 70}])
def test_a_claim_of_another_form_is_refused(counts, copy, limit):
    with pytest.raises(job.JobError, match="the claim cannot be read"):
        postgres.verify(str(copy), {"counts": counts}, limit)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://agent:s3cret@db/memory",
        "postgresql://db/memory?password=s3cret",
        "postgresql://db/memory?sslpassword=s3cret",
        "postgresql://db/memory?PASSWORD=s3cret&x=",
    ],
)
def test_a_password_in_the_address_is_refused_and_not_repeated(url, tmp_path, limit):
    for call in (postgres.snapshot, postgres.restore):
        arguments = (url, str(tmp_path)) if call is postgres.snapshot else (str(tmp_path), url)
        with pytest.raises(job.JobError, match="the address of the database holds a password") as said:
            call(*arguments, limit)
        assert "s3cret" not in str(said.value)


def test_programs_that_are_not_installed_are_named(tmp_path, limit, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(job.JobError, match="psql is missing; install Debian's package postgresql-client"):
        postgres.snapshot("postgresql:///memory", str(tmp_path), limit)
    with pytest.raises(job.JobError, match="psql is missing"):
        postgres.restore(str(tmp_path), "postgresql:///memory", limit)


def test_what_the_programs_get_to_see(tmp_path, monkeypatch):
    (tmp_path / "db").touch()
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    monkeypatch.setenv("MEMOPS_PART", "db")
    monkeypatch.setenv("PGPASSWORD", "s3cret")
    monkeypatch.delenv("MEMOPS_SECRETS", raising=False)
    found = postgres._environment()
    assert found["PGPASSFILE"] == str(tmp_path / "db")
    assert "PGPASSWORD" not in found
    os.unlink(tmp_path / "db")  # noqa: PTH108
    assert "PGPASSFILE" not in postgres._environment()
