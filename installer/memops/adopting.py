"""``memops adopt`` and ``memops release``: a store that another program keeps comes under care, and out again.

What is at a place discover.py says, what follows from its level adopted.py, and an installation does the rest.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Final

from memops import (
    adopted,
    discover,
    finding_places,
    host,
    install,
    jobs,
    owner,
    plan,
    products,
    remove,
    render,
    settings,
    store,
    systemd,
    walls,
)
from memops.errors import Refused, UsageError
from memops.finding_text import quoted
from memops.steps import ChangeSchema, MakeDirectory, WriteFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from memops.found import Found
    from memops.products import Product
    from memops.settings import Store
    from memops.steps import Step

ROLES: Final = {
    "text": ("fact", "text", "content", "memory", "note", "value", "body", "message"),
    "created": ("created_at", "created", "timestamp", "date", "inserted_at", "time", "ts"),
    "updated": ("updated_at", "updated", "modified_at", "modified", "last_updated"),
    "subject": ("subject", "topic", "category", "kind", "key", "title", "name"),
}
"""What the columns of a table of memories are for, and how they are called; the first that is there is taken."""


@dataclass(frozen=True)
class Wish:
    """What was typed. ``columns``: a role of ROLES → a column; ``keys``: as --secret has them, read."""

    places: tuple[str, ...]
    name: str = ""
    level: str = ""
    python: str = ""
    agent_unit: str = ""
    collection: str = ""
    table: str = ""
    user: str = ""
    backup_dir: str = ""
    columns: Mapping[str, str] = field(default_factory=dict)
    keys: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Adoption:
    """What will be done: what was found, what its product is, and the installation; ``notes``: one sentence each."""

    found: Found
    product: Product
    store: Store
    prepared: install.Prepared
    notes: tuple[str, ...] = ()


def prepare(wish: Wish) -> Adoption:
    """Look at what is there, and plan; changes nothing. Raises MemopsError for whatever forbids to go on."""
    found = discover.identify(*wish.places)
    product = products.known()[found.product]
    saved = settings.load()
    _require_free(found, saved)
    _require_whole(found, product)
    level = _level(product, wish.level)
    name = _name(found, product, wish.name, saved)
    given, notes = _reached(found, product, level, wish)
    user = _owner(found, wish.user)
    python, more = _python(wish)
    options: dict[str, Any] = {
        "db": found.parts[0].path if level == "own" else adopted.ledger(name),
        "user": user,
        # Another program's database keeps its journal mode.
        "journal_mode": "keep" if level == "own" else "wal",
        "parts": () if level == "own" else _parts(found, product),
        "level": level,
        "product": product.name,
        "adopted": tuple(f"{key}={value}" for key, value in given.items() if value),
        "python": python,
        "agent_unit": wish.agent_unit,
        "secrets": wish.keys,
    }
    if wish.backup_dir:
        options["backup_dir"] = wish.backup_dir
    settings.check(replace(settings.Store(name=name), **{**options, "secrets": ()}))
    if adopted.needs_library(product, given):
        _require_version(product, user, python or adopted.SYSTEM_PYTHON)
    prepared = install.prepare(options, name)
    return Adoption(found, product, prepared.facts.store, prepared, (*notes, *more))


def _require_free(found: Found, saved: Mapping[str, Store]) -> None:
    """Raise Refused for what is under care already."""
    url = found.settings.get("url", "")
    for other in saved.values():
        paths = [other.db, *(part.source for part in other.local_parts)]
        if any(discover.holds(found.parts, path) for path in paths) or (url and url == other.config.get("url")):
            raise Refused(
                f"{found.path} is looked after already, as part of the store {other.name}.",
                f"Look: memops status --name {other.name}",
            )


def _require_whole(found: Found, product: Product) -> None:
    """Raise Refused where a half is missing, or where all of it will be lost."""
    if found.lacking:
        raise Refused(
            f"{found.path} is one half of what {product.title} keeps: its {' and '.join(found.lacking)} are not there.",
            f"Name both: sudo memops adopt {quoted(found.path)} PATH",
        )
    if finding_places.is_lost(found):
        worst = next(each for each in finding_places.judge(found) if each.level == "error")
        raise Refused(worst.what, f"Move it first; how is said by: sudo memops doctor {quoted(worst.path)}")


def _level(product: Product, wanted: str) -> str:
    level = wanted or product.level
    if level not in adopted.LEVELS:
        raise UsageError(f"There is no level {level!r}.", f"Type one of: --level {', --level '.join(adopted.LEVELS)}")
    if products.LEVELS.index(level) < products.LEVELS.index(product.level) or (
        level == "ledger" and product.level != "ledger"
    ):
        raise Refused(f"{product.title} is not adopted at the level {level}: {product.why}.", "Leave --level out.")
    if level == "observe" and not (product.hand or product.rows or product.level == "own"):
        raise Refused(f"The memories of {product.title} cannot be listed.", "Back it up with a store: --with PATH")
    return level


def _name(found: Found, product: Product, wanted: str, saved: Mapping[str, Store]) -> str:
    if wanted in saved:
        raise UsageError(f"There is a store {wanted} already.", "Give it another name: --name NAME")
    if wanted:
        return wanted
    stem = PurePosixPath(found.path).stem if product.level == "own" else product.name
    stem = re.sub(r"[^a-z0-9]+", "-", stem.lower()).strip("-").lstrip("-0123456789")[:28] or product.name
    stem = "store" if stem == "incoming" else stem
    return next(name for name in (stem, *(f"{stem}-{number}" for number in range(2, 100))) if name not in saved)


def _owner(found: Found, typed: str) -> str:
    """Whose it is. Raises UsageError and Refused."""
    owners = sorted({part.owner for part in found.parts})
    if not owners:
        return typed or settings.DEFAULT_USER
    if len(owners) > 1:
        raise Refused(
            f"The parts of {found.path} belong to several users: {', '.join(owners)}.",
            f"Give them to the one that runs the agent: chown -R USER {quoted(found.path)}",
        )
    if owners[0] in ("root", "0"):
        raise Refused(
            f"{found.path} belongs to root, and no job of memops runs as root beside an agent.",
            f"Give it to the user that runs the agent: chown -R USER {quoted(found.path)}",
        )
    if typed and typed != owners[0]:
        raise UsageError(f"{found.path} belongs to {owners[0]}, not to {typed}.", "Leave --user out.")
    return owners[0]


def _python(wish: Wish) -> tuple[str, list[str]]:
    """The Python that the agent runs with, as far as that was said or its unit says it, and notes."""
    if wish.python or not wish.agent_unit:
        return wish.python, []
    started = systemd.show([wish.agent_unit], "ExecStart")[wish.agent_unit].get("ExecStart", "")
    program = re.search(r"\bpath=(/[^ ;]*/python[0-9.]*) ;", started)
    if not program:
        return "", []
    return program[1], [f"{wish.agent_unit} runs {program[1]}, and so does what speaks to the product (--python)."]


def _require_version(product: Product, user: str, python: str) -> None:
    """Raise Refused where the agent's Python has no such product, or one whose API is another."""
    probe = "import importlib.metadata as m, sys; print(m.version(sys.argv[1]))"
    package = product.python[0]
    strict = owner.has_namespaces()
    identity, command = owner.as_user(user, (python, "-c", probe, package))
    # It may lie in a home.
    home = ["ProtectHome=read-only"] if strict else []
    ran = owner.transient([*walls.properties(strict=strict), *identity, *home], command)
    if ran.code:
        raise Refused(
            f"{python} has no {package}, or cannot be started by {user}.",
            "Name the Python that the agent runs with: --python /…/bin/python",
        )
    oldest = str(product.more.get("oldest", ""))
    if oldest and _numbers(ran.out) < _numbers(oldest):
        raise Refused(
            f"{package} {store.printable(ran.out.strip(), 40)} of {python} is older than {oldest},"
            " the first whose way of deleting memops knows.",
            f"Upgrade it: {python} -m pip install -U {package}. Or name another: --python PYTHON",
        )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:3])


def _parts(found: Found, product: Product) -> tuple[str, ...]:
    """What goes into the sets with the ledger, as --with has it."""
    local = tuple(f"{part.kind}={part.path}" for part in found.parts)
    url = found.settings.get("url", "")
    # Of Qdrant's server a copy can be had; what other servers keep is theirs to copy.
    return (*local, f"qdrant={url}") if url and product.name in ("mem0", "qdrant") else local


def _reached(found: Found, product: Product, level: str, wish: Wish) -> tuple[dict[str, str], list[str]]:
    """How the hand reaches the product: its configuration, and notes."""
    if product.level == "own":
        return _table(found, level, wish)
    if wish.table or wish.columns:
        raise UsageError(f"--table and --column are for a plain SQLite file, not {product.title}.", "Leave them out.")
    url = found.settings.get("url", "")
    by_what = {part.what: part.path.rstrip("/") for part in reversed(found.parts)}
    if product.hand == "mem0":
        reached = {"history": by_what["change log"], **({"url": url} if url else {"qdrant": by_what["vectors"]})}
    elif product.hand == "qdrant" and not url:
        raise Refused(
            f"{found.path} is what Qdrant's client keeps, and only the program that made it knows what a point says.",
            "If it is mem0's, name both: sudo memops adopt HISTORY.db DIRECTORY. Else back it up: --with PATH",
        )
    else:
        reached = {"url": url} if url else {"path": found.path.rstrip("/")}
    if wish.collection:
        reached["collection"] = wish.collection
    notes = []
    if product.alone and not url and not wish.agent_unit and level == "ledger":
        notes.append(
            f"{product.title} holds this store alone while it runs: without --agent-unit UNIT, which is stopped"
            " meanwhile, memops works only while the agent does not."
        )
    return reached, notes


def _table(found: Found, level: str, wish: Wish) -> tuple[dict[str, str], list[str]]:
    """The table of a plain SQLite file, and what its columns are for. Raises Refused and UsageError."""
    tables: dict[str, dict[str, Any]] = json.loads(found.settings["tables"])
    table = _chosen_table(tables, found.path, wish.table)
    names = {name.lower(): name for name in tables[table]["columns"]}
    if unknown := {*wish.columns} - {*ROLES}:
        raise UsageError(f"--column knows no {min(unknown)!r}.", f"Type one of: {', '.join(ROLES)}")
    if missing := [name for name in wish.columns.values() if name and name.lower() not in names]:
        raise UsageError(f"The table {table} has no column {missing[0]}.", f"It has: {', '.join(names.values())}")
    roles = {
        role: wish.columns[role] if role in wish.columns else next((names[n] for n in known if n in names), "")
        for role, known in ROLES.items()
    }
    for role in ("text", "created"):
        if not roles[role]:
            raise UsageError(
                f"Which column of {table} is the {'memory' if role == 'text' else 'date of a memory'} cannot be told.",
                f"Type: --column {role}=COLUMN (it has: {', '.join(names.values())})",
            )
    key = tables[table]["key"]
    if len(key) != 1 or not tables[table]["rowid"]:
        raise Refused(
            f"{table} has no primary key of one column by which a memory could be known.",
            "Name another table: --table TABLE",
        )
    roles = {"id": key[0], **roles}
    if level == "observe":
        shown = {role: _identifier(column) for role, column in roles.items() if column}
        source = {"source": _identifier(names["source"])} if "source" in names else {}
        return {"path": found.path, "table": table, **shown, **source}, []
    _require_ours(found, table, names)
    added = [column for column in plan.OWN_COLUMNS if column not in names]
    note = (
        f"The table {table} gets columns. A program that inserts without naming its columns, or counts those that it"
        " reads, would fail then: adopt it with --level observe."
    )
    return {"table": table, **roles, "added": " ".join(added)}, [note]


def _chosen_table(tables: Mapping[str, Any], path: str, wanted: str) -> str:
    """The table that holds the memories."""
    if wanted and wanted not in tables:
        raise UsageError(f"{path} has no table {wanted}.", f"Type one of: --table {', --table '.join(tables)}")
    if wanted:
        return wanted
    if not tables:
        raise Refused(f"{path} has no tables.", "It may be the wrong file: a wrong path makes an empty database.")
    fits = [
        name
        for name, table in tables.items()
        if any(column.lower() in ROLES["text"] for column in table["columns"]) and len(table["key"]) == 1
    ]
    if len(tables) == 1 or len(fits) == 1:
        return fits[0] if fits else next(iter(tables))
    raise UsageError(
        f"Which table of {path} holds the memories cannot be told.", f"Type one of: --table {', --table '.join(tables)}"
    )


def _require_ours(found: Found, table: str, names: Mapping[str, str]) -> None:
    """Raise Refused where the columns and views that memops adds would be in the way of others."""
    if {*store.COLUMNS} <= {*names.values()} and table == "memory":
        raise Refused(
            f"{found.path} is a store as memops makes them.", f"Type: sudo memops install --db {quoted(found.path)}"
        )
    tables = json.loads(found.settings["tables"])
    if table == "memory" or "memory" in tables:
        raise Refused(
            f"{found.path} has a table named memory already, which is what memops would call its view of the facts.",
            "Adopt it at the level that changes nothing: --level observe",
        )
    for column in plan.OWN_COLUMNS[1:]:
        if column in names and discover.ask_owner(found.path, "odd_dates", table, column) and column.endswith("_at"):
            raise Refused(
                f"The column {column} of {table} holds dates in another format than memops' UTC text.",
                "Adopt it at the level that changes nothing: --level observe",
            )


def _identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def describe(adoption: Adoption) -> str:
    """What was found, at which level it is adopted and why, and what will be done."""
    found, kept = adoption.found, adoption.store
    lines = [f"{adoption.product.title}, of {kept.user}:"]
    lines += [f"  {part.what}: {store.printable(part.path, 500)}" for part in found.parts]
    lines += [f"  server: {found.settings['url']}"] if "url" in found.settings else []
    lines.append(f"Level {kept.level}, since {adoption.product.why}: {adopted.LEVELS[kept.level]}.")
    if kept.has_ledger:
        lines.append(f"It becomes the store {kept.name}, with its ledger in {kept.db} and sets in {kept.sets}/.")
    else:
        lines.append(f"It becomes the store {kept.name}, with sets in {kept.sets}/.")
    lines += [f"Note: {note}" for note in (*adoption.notes, *adoption.prepared.notes)]
    every = adoption.prepared.steps
    files = sum(isinstance(step, WriteFile) for step in every)
    lines += ["What will be done:", f"  write {files} files of memops' own, with the directories for them"]
    for step in (step for step in every if not isinstance(step, WriteFile | MakeDirectory)):
        lines.append(f"  {step.title}")
        if isinstance(step, ChangeSchema):
            lines += [f"      {line}" for line in step.script.splitlines() if line]
    return "\n".join(lines)


def carry_out(adoption: Adoption, say: Callable[[str], None]) -> list[str]:
    """Do it, and prove it. Returns remarks. Raises MemopsError when everything was undone, NotProven when it stays."""
    return install.carry_out(adoption.prepared, say)


def done(adoption: Adoption) -> str:
    """What memops looks after now, and what to type."""
    kept = adoption.store
    record = jobs.last_run(jobs.run_records(kept), "prune") or {"message": "no run"}
    option = f"--name {kept.name}"
    return "\n".join(
        (
            f"memops looks after {adoption.product.title} now, as the store {kept.name}: {record['message']}",
            f"  memops status {option}",
            f"  memops list {option}",
            f"  sudo memops prune --dry-run {option}",
            f"  sudo memops release {kept.name}",
        )
    )


# Out again


def release_plan(kept: Store, *, drop_columns: bool, delete_ledger: bool) -> tuple[Step, ...]:
    """The steps that take an adopted store out of care; the product's own files and the sets stay. Raises Refused."""
    if not kept.level:
        raise Refused(
            f"{kept.name} is no store of another program's.", f"Type: sudo memops uninstall --name {kept.name}"
        )
    if drop_columns and not kept.table:
        raise UsageError(f"No columns were added for {kept.name}.", "Leave --drop-columns out.")
    if delete_ledger and not kept.has_ledger:
        raise UsageError(f"{kept.name} has no ledger.", "Leave --delete-ledger out.")
    first, *rest = remove.one_store_plan(kept)
    steps: list[Step] = [first]
    if kept.table and host.look(kept.db) is not None:
        steps.append(_views_out(kept, drop_columns=drop_columns))
    steps += rest
    if delete_ledger:
        steps.append(remove.RemoveDirectory(str(PurePosixPath(kept.db).parent)))
    return tuple(steps)


def _views_out(kept: Store, *, drop_columns: bool) -> ChangeSchema:
    """The step that takes memops' views and triggers out of another program's table."""
    found = owner.call(kept, "describe", "memory", kept.table)
    there = found.get("columns", [])
    added = [name for name in kept.config.get("added", "").split() if name in there] if drop_columns else []
    what = "views and triggers of memops" + (f", and the columns {', '.join(added)}," if added else "")
    return ChangeSchema(
        kept, what, render.sql("own_drop", kept, columns=added), plan.adopt_table(kept, found).script, out=True
    )


def describe_release(kept: Store, steps: Iterable[Step]) -> str:
    """What a release does."""
    lines: list[str] = []
    for step in steps:
        lines.append(step.title)
        if isinstance(step, ChangeSchema):
            lines += [f"    {line}" for line in step.script.splitlines() if line]
    return "\n".join([*lines, f"Kept: {_kept(kept, steps)}"])


def _kept(kept: Store, steps: Iterable[Step]) -> str:
    goes = any(isinstance(step, remove.RemoveDirectory) and kept.directory == step.path for step in steps)
    places = [*([] if goes else [kept.db]), *(part.source for part in kept.all_parts), f"{kept.sets}/"]
    return ", ".join(places)


def release(kept: Store, steps: tuple[Step, ...], say: Callable[[str], None]) -> list[str]:
    """Do it, and look again. Returns what is left, in sentences, and what was kept."""
    return [*remove.one_store(kept, steps, say), f"Kept: {_kept(kept, steps)}"]
