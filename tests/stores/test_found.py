"""What products/ says of a product's files is so of the files that the product makes, and of no other product's."""

from __future__ import annotations

import json

import pytest

from memops import products as known
from stores.conftest import run_lab
from stores.stores_case import HOME, make_every_store
from system import products
from system.server import Server

HAS_NODE = products.HAS_NODE


@pytest.fixture(scope="module")
def lab(lib):
    """One server, on the Debian that has Node as well."""
    with Server(HAS_NODE, products.with_command(HAS_NODE)) as server:
        yield run_lab(server, lib)


@pytest.fixture(scope="module")
def made(lab):
    """Every product's store."""
    return make_every_store(lab, node=True)


def columns(lab, path):
    """Table → columns of a SQLite file."""
    sql = "SELECT m.name, p.name FROM sqlite_master m, pragma_table_info(m.name) p WHERE m.type = 'table'"
    found = {}
    # vec0's own tables need the extension even to be described.
    for table, column in lab.server.sql(path, f"{sql} AND m.sql NOT LIKE 'CREATE VIRTUAL%'"):
        found.setdefault(table, set()).add(column)
    return found


def test_every_store_is_as_it_was_made(lab, made):
    """What the other tests of this ring take for granted: these rows are there, and their dates have this form."""
    forms = {
        "utc": "____-__-__ __:__:__",
        "iso": "____-__-__T%",
        "epoch": "1_________%",
    }
    assert {each.product for each in made} == {
        "chroma", "claude-code", "langgraph", "mcp-memory-service", "mem0", "mem0-ts", "openai-agents", "qdrant",
        "server-memory",
    }  # fmt: skip
    for each in made:
        assert lab.server.run("stat", "-c", "%U", each.path).stdout == "agent\n", each.path
        if each.table:
            assert lab.server.sql(each.path, f"SELECT count(*) FROM {each.table}") == [[each.rows]], each.path
        for column, form in each.dates.items():
            odd = f"{column} IS NOT NULL AND {column} NOT LIKE '{forms[form]}'"
            assert lab.server.sql(each.path, f"SELECT {column} FROM {each.table} WHERE {odd}") == [], each.path


def test_the_tables_of_a_product_are_those_that_its_file_names(lab, made):
    files = {each.path: (each.product, columns(lab, each.path)) for each in made if each.kind == "sqlite"}
    checked = set()
    for product in known.known().values():
        for part in product.parts:
            if not part.tables:
                continue
            like = {
                owner
                for owner, tables in files.values()
                if all(set(needed) <= tables.get(table, set()) for table, needed in part.tables.items())
            }
            if product.name in {owner for owner, _ in files.values()}:
                assert like == {product.name}, f"products/{product.name}.toml: {part.file}"
                checked.add(product.name)
            else:  # a product that is not made here
                assert not like, f"products/{product.name}.toml: {part.file} is taken for {like}"
    assert "mem0" in checked


def test_the_texts_of_a_product_are_in_the_columns_that_its_file_names(lab, made):
    looked = 0
    for each in (each for each in made if each.kind == "sqlite" and each.product in known.known()):
        tables = columns(lab, each.path)
        for text in known.known()[each.product].texts:
            if text.table in tables:
                assert {text.column, *([text.id] if text.id.isidentifier() else [])} <= tables[text.table], text
                looked += 1
    assert looked


def test_doctor_finds_each_of_them_and_says_what_it_is(lab, made):
    said = json.loads(lab.server.run("memops", "doctor", "--json", check=False).stdout)
    parts = {part["path"].rstrip("/"): (each["product"], part) for each in said["stores"] for part in each["parts"]}
    for each in made:
        if each.product == "claude-code":
            assert parts[f"{HOME}/.claude"][0] == "claude-code"
            continue
        product, part = parts[each.path]
        assert (product, part["what"], part["kind"]) == (each.product, each.what, each.kind), each
        assert (part["rows"], part["owner"]) == (each.rows, "agent"), each
        for column, form in each.dates.items():
            assert set(part["dates"].get(f"{each.table}.{column}", {})) <= {form}, (each, part["dates"])
    (mem0,) = (each for each in said["stores"] if each["product"] == "mem0")
    assert [part["what"] for part in mem0["parts"]] == ["change log", "vectors"]
    assert mem0["lacking"] == []
