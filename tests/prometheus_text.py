"""A strict reader of Prometheus' text format, as memops writes it.

https://prometheus.io/docs/instrumenting/exposition_formats/#text-based-format
"""

from __future__ import annotations

import re

_LABEL = r'[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\["\\n])*"'
_SAMPLE = re.compile(rf"(memops_[a-z_]+)(?:\{{({_LABEL}(?:,{_LABEL})*)\}})? (-?[0-9]+(?:\.[0-9]+)?)")


def parse(text: str) -> dict[str, dict[str, float]]:
    """A strict reader of the text format: metric → labels → value. HELP, TYPE, then its samples, each only once."""
    assert text.endswith("\n")
    lines = iter(text[:-1].split("\n"))
    found: dict[str, dict[str, float]] = {}
    name = ""
    for line in lines:
        if line.startswith("# HELP "):
            name = line.split(" ")[2]
            assert name not in found
            assert re.fullmatch(r"# HELP memops_[a-z_]+ [^\\\n]+", line)
            assert next(lines) == f"# TYPE {name} gauge"
            found[name] = {}
        else:
            match = _SAMPLE.fullmatch(line)
            assert match, line
            assert match[1] == name
            assert (match[2] or "") not in found[name]
            found[name][match[2] or ""] = float(match[3])
    assert all(found.values())
    return found
