"""``memops install``: look, render, plan, apply, prove."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from memops import apply, host, keys, look, manifest, observe, places, plan, prove, render, settings, systemd
from memops.errors import NotProven, UsageError
from memops.steps import ChangeSchema, InstallPackage, MakeStore, Step, WriteFile

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from memops.render import File


@dataclass(frozen=True)
class Prepared:
    """What one store's installation comes to: facts, steps, and what its owner should know."""

    facts: look.Facts
    steps: tuple[Step, ...]
    edited: tuple[str, ...]
    """Files somebody edited, which are kept."""

    @property
    def notes(self) -> list[str]:
        """One sentence each."""
        kept = [f"{path} was edited and is kept (memops install --force replaces it)." for path in self.edited]
        mail_to = self.facts.store.mail_to
        if mail_to and not host.has("sendmail"):
            kept.append(f"This machine has no sendmail, so nothing reaches {mail_to} (apt-get install msmtp-mta, say).")
        return [*self.facts.notes, *kept]


def chosen(name: str | None, options: dict[str, Any]) -> list[str]:
    """The names of the stores that an ``install`` is about.

    Without ``name``: all that are installed, or the first where none is. Options are about one store, so with several
    they need its name; raises UsageError then.
    """
    installed = list(settings.load()) or list(manifest.read(host.read(manifest.PATH)).stores)
    if name is not None:
        return [name]
    if len(installed) > 1 and any(value is not None for value in options.values()):
        raise UsageError(f"There are several stores: {', '.join(installed)}.", f"Say which one: --name {installed[0]}")
    return installed or ["default"]


def prepare(options: dict[str, Any], name: str, *, force: bool = False) -> Prepared:
    """Look at the machine and make the plan; changes nothing. Raises MemopsError for whatever forbids to go on."""
    saved = settings.load()
    urls = keys.ping_urls(options.get("ping_url"), name, saved)
    secrets = keys.part_keys(options.get("secrets") or {}, name, saved)
    options = {key: value for key, value in options.items() if key not in ("ping_url", "secrets")}
    options["ping"] = settings.pinging(urls.get(name, ""))
    options["secrets"] = tuple(sorted(secrets.get(name, ())))
    old = manifest.read(host.read(manifest.PATH))
    look.still_there(name, name in saved, options, old)
    facts = look.everything(options, saved.get(name), name)
    look.not_emptied(facts, old)
    places.apart(facts.store, saved)
    stores = {**saved, name: facts.store}
    files = render.all_files(stores, _users(facts), urls, secrets)
    _verify(files)
    directories = [step.path for step in plan.wanted_directories(facts.store, files)]
    seen = observe.observe(facts, files, directories)
    edited = () if force else tuple(plan.edited(files, seen))
    return Prepared(facts, plan.make_plan(facts, stores, files, seen, force=force), edited)


def _users(facts: look.Facts) -> dict[str, str]:
    """The system users that memops makes, or made in an earlier run: name → uid or ``-``."""
    made = manifest.read(host.read(manifest.PATH)).users
    return {name: look.uid_of(name) for name in made} | facts.new_user


def _verify(files: Mapping[str, File]) -> None:
    prefix = f"{render.UNIT_DIRECTORY}/"
    systemd.verify({path.removeprefix(prefix): file.text for path, file in files.items() if path.startswith(prefix)})


def changes_a_store(steps: tuple[Step, ...]) -> list[str]:
    """What the plan changes in a database that was there before, for the owner to agree to."""
    return [f"{step.title}:\n{step.script}" for step in steps if isinstance(step, ChangeSchema) and step.asks]


def describe(steps: tuple[Step, ...]) -> str:
    """The plan as text: a line a step, and the difference for each file."""
    lines: list[str] = []
    for step in steps:
        lines.append(step.title)
        if isinstance(step, WriteFile) and not step.file.secret:
            old = "" if step.old is None else step.old
            difference = difflib.unified_diff(
                old.splitlines(),
                step.file.text.splitlines(),
                "/dev/null" if step.old is None else step.path,
                step.path,
                lineterm="",
            )
            lines += [f"    {line}" for line in difference]
        elif isinstance(step, MakeStore):
            lines += [f"    {line}" for line in step.schema.splitlines()]
        elif isinstance(step, ChangeSchema):
            lines += [f"    {line}" for line in step.script.splitlines()]
    return "\n".join(lines)


def carry_out(prepared: Prepared, say: Callable[[str], None]) -> list[str]:
    """Apply the plan, prove it, look again. Returns remarks for the owner.

    Raises MemopsError when everything was undone, NotProven when the installation stays.
    """
    store = prepared.facts.store
    remarks = apply.apply(prepared.steps, say)
    problems = prove.everything(store, {path.rpartition("/")[2] for path in prepared.edited}, say)
    left = prepare({}, store.name).steps
    problems += [f"Still to do: {step.title}" for step in left if not isinstance(step, InstallPackage)]
    if problems:
        raise NotProven(
            "memops is installed and its timers run, but: " + " ".join(problems),
            "When it is mended, look again: sudo memops install",
        )
    return remarks
