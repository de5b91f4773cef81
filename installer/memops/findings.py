"""What is wrong with the stores that were found, worst first. Pure: docs/findings.md explains each code.

finding_places judges where they lie, finding_files their files and who uses them, finding_contents what is in them,
finding_machine the machine and how they are looked after.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from memops import finding_contents, finding_files, finding_machine, finding_places
from memops.found import LEVELS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from memops.found import Care, Finding, Found, Machine

CODES = (
    # Memory that is lost, or will be, without anybody doing anything wrong.
    *("on-tmp", "in-memory", "deleted-open", "mem0-wipes", "in-package", "half-missing", "log-as-memories"),
    *("network-file-system", "foreign-sidecar", "not-passable", "no-set", "no-space-backup", "old-set"),
    # Memory that may be.
    *("relative-path", "other-writer", "wal-stale", "temporary-replaces-permanent", "cycle", "self-reference"),
    *("chain-into-nothing", "violations", "foreign-keys-off", "doubtful-dates", "hard-links", "readable-by-others"),
    *("unread", "clock", "time-zone", "old-drill", "gap", "wal-large", "wal-off", "no-space-vacuum"),
    # What is worth knowing.
    *("wal-reset", "vague-sources", "tombstones", "litestream", "not-under-care"),
)
"""Every code, the most harmful first."""

WARNINGS, ERRORS = 7, 1
"""Exit codes of ``memops doctor``; 0 where nothing is above a note."""


def findings(found: Iterable[Found], machine: Machine, care: Mapping[str, Care]) -> list[Finding]:
    """All findings, by level, then by harm, then by path. ``care``: the stores under care by name."""
    stores = list(found)
    every = [*finding_machine.judge(stores, machine)]
    for store in stores:
        own = care.get(store.care)
        every += finding_places.judge(store)
        every += finding_files.judge(store, machine)
        every += finding_contents.judge(store, own)
        every += finding_machine.judge_store(store, machine, own)
    return sorted(dict.fromkeys(every), key=_rank)


def _rank(finding: Finding) -> tuple[int, int, str]:
    return LEVELS.index(finding.level), CODES.index(finding.code), finding.path


def exit_code(every: Iterable[Finding]) -> int:
    """The exit code by the worst of them."""
    levels = {finding.level for finding in every}
    return ERRORS if "error" in levels else WARNINGS if "warning" in levels else 0
