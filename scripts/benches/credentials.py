"""How well the rules of memops.store tell credentials from ordinary facts, and what that costs.

Goals: of 1,000 ordinary facts (prose in several languages, commands, hashes, ids, paths, addresses) less than 1 % are
taken for a credential; of 200 credentials of 27 kinds, written down as people do, at least 95 % are found, and of those
none is left in the masked text. The facts are made up by chance, from a seed, by tests/credentials_case.py. Where
detect-secrets (PyPI) is installed beside, its rates are printed too.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import random
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "installer"), str(ROOT / "tests")]

import credentials_case  # noqa: E402 - the facts of the tests
from memops import store  # noqa: E402 - as the checkout has it

_KEPT = contextlib.ExitStack()


def main() -> int:
    """Measure, print both rates."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5, help="rounds, each with other facts")
    parser.add_argument("--ordinary", type=int, default=1000)
    parser.add_argument("--planted", type=int, default=200)
    parser.add_argument("--show", action="store_true", help="print each mistake: these are made-up facts")
    arguments = parser.parse_args()
    finders: dict[str, Callable[[str], bool]] = {"plain rules": lambda text: bool(store.screen(text)[1])}
    if other := _detect_secrets():
        finders["detect-secrets"] = other
        finders["both"] = lambda text: bool(store.screen(text)[1]) or other(text)
    rounds = range(1, arguments.seeds + 1)
    ordinary = [credentials_case.ordinary(random.Random(n), arguments.ordinary) for n in rounds]  # noqa: S311
    planted = [credentials_case.planted(random.Random(1000 + n), arguments.planted) for n in rounds]  # noqa: S311
    kinds = {kind for facts in planted for kind, _, _ in facts}
    print(f"{arguments.ordinary} ordinary facts and {arguments.planted} credentials of {len(kinds)} kinds, each of")
    print(f"{arguments.seeds} rounds; the worst round is said")
    good = True
    for name, finds in finders.items():
        start = time.process_time()
        alarms = [[text for text in facts if finds(text)] for facts in ordinary]
        cost = (time.process_time() - start) / sum(map(len, ordinary)) * 1e6
        missed = [[(kind, text) for kind, text, _ in facts if not finds(text)] for facts in planted]
        worst = max(map(len, alarms)) / arguments.ordinary
        least = 1 - max(map(len, missed)) / arguments.planted
        print(f"  {name:<15} {worst:7.2%} false alarms, {least:7.2%} found, {cost:5.0f} µs a fact")
        by_kind = collections.Counter(kind for facts in missed for kind, _ in facts)
        if by_kind:
            print(f"  {'':<15} missed: {', '.join(f'{count} {kind}' for kind, count in by_kind.most_common())}")
        if name == "plain rules":
            good = worst < 0.01 and least >= 0.95
            if arguments.show:
                print(*(f"    alarm: {text!r}" for facts in alarms for text in facts), sep="\n")
                print(*(f"    missed: {kind}: {text!r}" for facts in missed for kind, text in facts), sep="\n")
    left = sum(value in store.mask(text) for facts in planted for _, text, value in facts if store.screen(text)[1])
    for text, held in (
        ("less than 1 % false alarms, at least 95 % found", good),
        (f"{left} of those found are left in the masked text (0)", left == 0),
    ):
        print(f"  {'ok    ' if held else 'MISSED'}  {text}")
    return 0 if good and left == 0 else 1


def _detect_secrets() -> Callable[[str], bool] | None:
    """Whether detect-secrets, with all its rules and no look-up over the network, finds something; None without it."""
    try:
        from detect_secrets.core.plugins.util import get_mapping_from_secret_type_to_class
        from detect_secrets.core.scan import _process_line_based_plugins
        from detect_secrets.settings import transient_settings
    except ImportError:
        return None
    plugins = [{"name": each.__name__} for each in get_mapping_from_secret_type_to_class().values()]
    _KEPT.enter_context(transient_settings({"plugins_used": plugins}))
    return lambda text: any(True for _ in _process_line_based_plugins(list(enumerate(text.splitlines(), 1)), "fact"))


if __name__ == "__main__":
    with _KEPT:
        code = main()
    sys.exit(code)
