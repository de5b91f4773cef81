"""``memops install``: look, render, plan, apply, prove."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any

from memops import apply, host, look, manifest, observe, plan, prove, render, settings, systemd
from memops.errors import NotProven
from memops.steps import ChangeSchema, InstallPackage, MakeStore, Step, WriteFile

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from memops.render import File


def prepare(options: dict[str, Any], name: str) -> tuple[look.Facts, tuple[Step, ...]]:
    """Look at the machine and make the plan; changes nothing. Raises MemopsError for whatever forbids to go on."""
    saved = settings.load()
    facts = look.everything(options, saved.get(name), name)
    stores = {**saved, name: facts.store}
    files = render.all_files(stores, _users(facts))
    _verify(files)
    directories = [step.path for step in plan.wanted_directories(facts.store, files)]
    return facts, plan.make_plan(facts, stores, files, observe.observe(facts, files, directories))


def _users(facts: look.Facts) -> dict[str, str]:
    """The system users that memops makes, or made in an earlier run: name → uid or ``-``."""
    made = manifest.read(host.read(manifest.PATH)).users
    return {
        name: name.removeprefix("memops-") if name != settings.DEFAULT_USER else "-" for name in made
    } | facts.new_user


def _verify(files: Mapping[str, File]) -> None:
    prefix = f"{render.UNIT_DIRECTORY}/"
    systemd.verify({path.removeprefix(prefix): file.text for path, file in files.items() if path.startswith(prefix)})


def changes_a_store(steps: tuple[Step, ...]) -> list[str]:
    """What the plan changes in a database that was there before, for the owner to agree to."""
    return [f"{step.title}:\n{step.script}" for step in steps if isinstance(step, ChangeSchema)]


def describe(steps: tuple[Step, ...]) -> str:
    """The plan as text: a line a step, and the difference for each file."""
    lines: list[str] = []
    for step in steps:
        lines.append(step.title)
        if isinstance(step, WriteFile) and step.path != manifest.PATH:
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


def carry_out(facts: look.Facts, steps: tuple[Step, ...], say: Callable[[str], None]) -> list[str]:
    """Apply the plan, prove it, look again. Returns remarks for the owner.

    Raises MemopsError when everything was undone, NotProven when the installation stays.
    """
    remarks = apply.apply(steps, say)
    problems = prove.everything(facts.store, say)
    _, left = prepare({}, facts.store.name)
    problems += [f"Still to do: {step.title}" for step in left if not isinstance(step, InstallPackage)]
    if problems:
        raise NotProven(
            "memops is installed and its timers run, but: " + " ".join(problems),
            "When it is mended, look again: sudo memops install",
        )
    return remarks
