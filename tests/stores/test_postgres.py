"""PostgreSQL with pgvector, of which Debian 12 has no package."""

from __future__ import annotations

import json

import pytest

pytestmark = pytest.mark.parametrize("lab", ["debian13"], indirect=True)

URL = "postgresql:///memory"

SCHEMA = """
CREATE SCHEMA "Odd Name";
CREATE TABLE memories (id uuid PRIMARY KEY, vector vector(3), payload jsonb);
CREATE TABLE mem0migrations (id uuid PRIMARY KEY, vector vector(3), payload jsonb);
CREATE TABLE "Odd Name"."Te(x)t, t" (id serial PRIMARY KEY, note text, twice int GENERATED ALWAYS AS (id * 2) STORED);
CREATE TABLE part (id int, k int) PARTITION BY LIST (k);
CREATE TABLE part_one PARTITION OF part FOR VALUES IN (1);
CREATE TABLE empty_one (note text);
CREATE TABLE bare ();
CREATE INDEX ON memories USING hnsw (vector vector_l2_ops);
CREATE VIEW live AS SELECT id FROM memories;
INSERT INTO memories SELECT lpad(to_hex(n), 32, '0')::uuid, ARRAY[n, n % 7, 0.5]::vector, jsonb_build_object('data',
    E'fact ' || n || E'\\n\\\\.\\nCOPY public.memories (id) FROM stdin;') FROM generate_series(1, 1000) n;
INSERT INTO mem0migrations VALUES (gen_random_uuid(), '[0,0,0]', '{}');
INSERT INTO "Odd Name"."Te(x)t, t" (note) VALUES (NULL), (''), (E'\\t'), (E'a\\r\\nb'), (repeat('é', 2000000));
INSERT INTO part SELECT n, 1 FROM generate_series(1, 5) n;
INSERT INTO bare DEFAULT VALUES;
"""


def psql(lab, statement, user="agent", database="memory"):
    return lab.server.run(
        "psql", "-XqAt", "-v", "ON_ERROR_STOP=1", "-d", database, input=statement, user=user
    ).stdout.strip()


def everything(lab):
    queries = [
        "SELECT id, vector, payload FROM memories ORDER BY id",
        'SELECT id, md5(note), twice FROM "Odd Name"."Te(x)t, t" ORDER BY id',
        "SELECT * FROM part ORDER BY id",
        "SELECT id FROM memories ORDER BY vector <-> '[5,5,0.5]' LIMIT 3",
        "SELECT count(*) FROM live",
        "SELECT count(*) FROM bare",
        "SELECT count(*) FROM empty_one",
        """SELECT nextval('"Odd Name"."Te(x)t, t_id_seq"') > 4""",
    ]
    return psql(lab, ";".join(queries))


@pytest.fixture
def database(lab):
    lab.server.sh("systemctl start postgresql")
    lab.server.wait_until(lambda: lab.server.run("pg_isready", check=False).code == 0)
    script = "dropdb --if-exists memory; dropuser --if-exists agent; createuser agent; createdb -O agent memory"
    lab.server.sh(script, user="postgres")
    psql(lab, "CREATE EXTENSION vector", user="postgres")
    psql(lab, SCHEMA)
    return lab


def test_a_pgvector_database_is_dumped_lost_and_restored_by_its_owner(database):
    lab = database
    before = everything(lab)
    # Somebody writes meanwhile, and has not committed; the snapshot must not see it.
    hold = "BEGIN; DELETE FROM memories; SELECT pg_sleep(600);"
    with lab.process("psql", "-Xq", "-d", "memory", "-c", hold):
        waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'"
        lab.server.wait_until(lambda: psql(lab, waiting, user="postgres") == "1")
        claim = lab.snapshot("postgres", URL, "db")
    psql(lab, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event = 'PgSleep'", user="postgres")
    assert claim["exact"] is True
    assert claim["counts"] == {
        "public.memories": 1000, "public.mem0migrations": 1, "public.part_one": 5, "public.empty_one": 0,
        "public.bare": 1, '"Odd Name"."Te(x)t, t"': 5,
    }  # fmt: skip
    _, (role, ids) = lab.verify("postgres", "db", claim)
    assert role == "vectors"
    assert len(ids) == 1000
    assert ids[255] == "00000000-0000-0000-0000-000000000100"

    psql(lab, 'DROP TABLE memories CASCADE; DROP SCHEMA "Odd Name" CASCADE; INSERT INTO part VALUES (99, 1);')
    lab.put("db", "/srv/agent/db")
    lab.kind("restore", "postgres", "/srv/agent/db", URL)
    assert everything(lab) == before

    lab.server.sh("dropdb memory; createdb -O agent memory", user="postgres")
    psql(lab, "CREATE EXTENSION vector", user="postgres")
    lab.kind("restore", "postgres", "/srv/agent/db", URL)
    assert everything(lab) == before


def test_a_restore_that_fails_changes_nothing(database):
    lab = database
    lab.verify("postgres", "db", lab.snapshot("postgres", URL, "db"))
    lab.put("db", "/srv/agent/db")
    psql(
        lab,
        "DELETE FROM memories WHERE payload->>'data' LIKE 'fact 7%'; CREATE TABLE on_it (id uuid REFERENCES memories)",
    )
    before = everything(lab)
    with pytest.raises(lab.error, match="cannot drop"):
        lab.kind("restore", "postgres", "/srv/agent/db", URL)
    assert everything(lab) == before


def test_a_dump_that_is_cut_or_lost_rows_is_found(database):
    lab = database
    claim = lab.snapshot("postgres", URL, "db")
    lab.verify("postgres", "db", claim)
    for spoil, words in (
        ("head -c -2000", "the dump is cut off"),
        ("sed '/00000000-0000-0000-0000-000000000100/d'", "999 rows of public.memories, where the database had 1,000"),
        ("sed 's/^COPY public.empty_one .*/SELECT 1;/'", "no rows of public.empty_one, where the database had 0"),
    ):
        lab.server.sh(
            f"rm -rf /root/bad; cp -r /root/sets/db /root/bad; {spoil} /root/sets/db/dump.sql >/root/bad/dump.sql"
        )
        with pytest.raises(lab.error, match=words):
            lab.kind("verify", "postgres", "/root/bad", json.dumps(claim), user="root")


def test_a_password_is_read_from_its_file_and_from_nowhere_else(database):
    lab = database
    psql(lab, "ALTER ROLE agent PASSWORD 'pw-7f3a'", user="postgres")
    address = "postgresql://agent@127.0.0.1/memory"
    with pytest.raises(lab.error, match="no password supplied"):
        lab.snapshot("postgres", address, "db")
    with pytest.raises(lab.error, match="holds a password") as said:
        lab.snapshot("postgres", "postgresql://agent:pw-7f3a@127.0.0.1/memory", "db")
    assert "pw-7f3a" not in str(said.value)
    lab.server.write("/srv/agent/pass", "127.0.0.1:*:*:agent:pw-7f3a\n", 0o600, "agent")
    claim = lab.snapshot("postgres", address, "db", env={"MEMOPS_SECRETS": "/srv/agent/pass"})
    assert claim["counts"]["public.memories"] == 1000
