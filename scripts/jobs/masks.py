"""Hiding what looks like a credential in the text of a fact, by rules that a person can read.

A digest and a mail leave the store's own walls, so what opens something is shown as ``[masked]``. The rules know
shapes, not meanings: a pass phrase of plain words, or a secret of a kind that is not listed, is shown. What people
write about every day is left alone: words, dates, paths, numbers, and what is made of hexadecimal digits only. The last
is a choice: commits, checksums and UUIDs look so, and far more of them are in a memory than keys that do; after a word
such as ``token`` they are masked all the same.
"""

from __future__ import annotations

import re
from typing import Final

HIDDEN: Final = "[masked]"

PREFIXES: Final = (
    *(r"sk-(?:proj-|ant-|or-)?", r"[rs]k_(?:live|test)_", r"gh[opsur]_", "github_pat_", "glpat-", "xox[abeoprs]-"),
    *(
        r"(?:AKIA|ASIA)(?=[A-Z0-9]{16})",
        "AIza",
        "hf_",
        "npm_",
        "pypi-",
        "dop_v1_",
        r"ya29\.",
        r"SG\.",
        "AGE-SECRET-KEY-1",
    ),
)
"""How the keys of services begin; at least sixteen letters and digits follow."""

NAMES: Final = (
    *("password", "passwd", "passphrase", "passcode", "pwd", "passwort", "kennwort", "contraseña", "mot de passe"),
    *("secret", "token", "api[ _-]?key", "access[ _-]?key", "secret[ _-]?key", "private[ _-]?key", "credential"),
)
"""What a value is called that opens something."""

_PEM: Final = re.compile(
    r"(-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----).*?(?:-----END [A-Z ]{0,40}PRIVATE KEY-----|\Z)", re.DOTALL
)
_JWT: Final = re.compile(r"\beyJ[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]+){1,4}")
_KEY: Final = re.compile(rf"(?<![A-Za-z0-9])({'|'.join(PREFIXES)})[A-Za-z0-9._-]{{16,}}")
_URL: Final = re.compile(r"(\b[A-Za-z][A-Za-z0-9+.-]{1,20}://[^\s:/@]{0,100}:)[^\s/]{1,200}@")
_HEADER: Final = re.compile(r"\b((?:bearer|basic) )[A-Za-z0-9._~+/=-]{12,}", re.IGNORECASE)
_VALUE: Final = r"(?:\"[^\"\n]{1,200}\"|'[^'\n]{1,200}'|`[^`\n]{1,200}`|[^\s,;\"'`][^\s,;]*)"
_NAMED: Final = re.compile(
    rf"((?:{'|'.join(NAMES)})s?[\"'`]?\s{{0,3}}(:=|[:=]|\bis\b|\bist\b)\s{{0,3}})({_VALUE})", re.IGNORECASE
)
_RUN: Final = re.compile(r"[A-Za-z0-9+/_=-]{20,}")
_PIECE: Final = re.compile(r"[A-Za-z0-9]{20,}")
_HEX: Final = re.compile(r"[0-9a-fA-F]+")


def mask(text: str) -> str:
    """``text`` with ``[masked]`` in the place of what looks like a credential; its name or kind stays."""
    text = _PEM.sub(rf"\1 {HIDDEN}", text)
    text = _JWT.sub(f"eyJ{HIDDEN}", text)
    text = _URL.sub(rf"\1{HIDDEN}@", text)
    text = _HEADER.sub(rf"\1{HIDDEN}", text)
    text = _KEY.sub(rf"\1{HIDDEN}", text)
    text = _NAMED.sub(_named, text)
    return _RUN.sub(_run, text)


def _named(match: re.Match[str]) -> str:
    before, sign, value = match.groups()
    rest = match.string[match.end() : match.end() + 2]
    # "password: see the vault" is a sentence; "password = vault" and "the password is hunter2" are none.
    plain = value.rstrip(".!?").isalpha()
    prose = plain and (sign not in (":=", "=")) and (sign != ":" or (rest[:1] == " " and rest[1:].isalpha()))
    if prose or HIDDEN in value or value.startswith(("$", "<", "*")):
        return match[0]
    return f"{before}{HIDDEN}"


def _run(match: re.Match[str]) -> str:
    return HIDDEN if any(map(_looks_random, _PIECE.findall(match[0]))) else match[0]


def _looks_random(word: str) -> bool:
    """Whether a long word is none that people write: its digits lie in several places, among letters of both cases.

    Without capitals there must be more of them, since names with numbers in them look so too.
    """
    places = len(re.findall(r"[0-9]+", word))
    small, capital = re.search(r"[a-z]", word), re.search(r"[A-Z]", word)
    if _HEX.fullmatch(word) or not small:
        return False
    return places >= (2 if capital else 5)
