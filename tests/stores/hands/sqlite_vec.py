"""A store with facts and a sqlite-vec table, in WAL mode."""

import json
import sqlite3
import sys

import sqlite_vec

verb, place = sys.argv[1:]
connection = sqlite3.connect(f"{place}/vec.db", isolation_level=None)
connection.enable_load_extension(True)
sqlite_vec.load(connection)


def dump():
    near = "SELECT rowid, distance FROM vec WHERE embedding MATCH '[3.0, 1.0, 0.5]' AND k = 5 ORDER BY distance"
    found = {
        "facts": connection.execute("SELECT * FROM facts ORDER BY id").fetchall(),
        "vectors": connection.execute("SELECT rowid, vec_to_json(embedding) FROM vec ORDER BY rowid").fetchall(),
        "nearest": connection.execute(near).fetchall(),
    }
    print(json.dumps(found), flush=True)


if verb == "write":
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("CREATE TABLE facts(id INTEGER PRIMARY KEY, fact TEXT)")
    connection.execute("CREATE VIRTUAL TABLE vec USING vec0(embedding float[3])")
    connection.executemany("INSERT INTO facts VALUES (?, ?)", [(n, f"fact {n}") for n in range(1, 500)])
    vectors = [(n, json.dumps([n % 11, n % 5, n / 100])) for n in range(1, 500)]
    connection.executemany("INSERT INTO vec(rowid, embedding) VALUES (?, ?)", vectors)
    dump()
    sys.stdin.readline()
else:
    dump()
