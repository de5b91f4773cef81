"""An agent's memory store: open it with every pragma right; recall, remember and touch facts.

One file of the standard library: import it (``from memops import store``) or copy it beside your agent. memops installs
it to /usr/local/lib/memops, where the nightly jobs import it too. It is long because it must be one: opening a store,
dates, what a source is, what looks like a credential, what may be stored, what an agent uses, and how that is found.

    with store.Memory("/srv/agent/memory.db") as memory:
        memory.remember("editor", "Uses Helix", source="chat 2026-08-08")
        print(store.block(memory.recall("editor")))

Dates in a store are UTC text, ``YYYY-MM-DD HH:MM:SS``. Only the store's owner should open it: any other user leaves
files beside a WAL store that lock its owner out. Remember what a person said, never what a tool or a web page returned.
"""

from __future__ import annotations

import contextlib
import functools
import json
import math
import os
import re
import sqlite3
import stat
import sys
import time
from collections.abc import Iterable, Iterator, Sequence  # noqa: TC003 - one plain list of imports
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple
from urllib.parse import quote

COLUMNS: Final = ("id", "subject", "fact", "source", "created_at", "confirmed_at", "expires_at", "superseded_by")
"""The columns every store has; further ones are left alone."""

FURTHER: Final = ("last_used_at", "superseded_at", "origin")
"""Those that stores made by memops have as well."""

LONGEST: Final = {"subject": 200, "fact": 10_000, "source": 500}
"""Characters. A fact is a sentence or two; a document belongs in a file."""

VAGUE: Final = frozenset(
    ["unknown", "n/a", "na", "none", "null", "nil", "unspecified", "source", "somewhere", "tbd", "todo", "me too", "x"]
)
"""Sources that say nothing; neither does one without a letter or digit."""

BATCH: Final = 100
"""Touched facts that are written together."""

BATCH_SECONDS: Final = 60.0
"""No touch waits longer than this for the next ``touch`` or ``flush``."""

SOURCES_FILE: Final = "/etc/memops/sources"
CLASSES: Final = ("person", "agent", "tool", "web", "file", "others", "system", "unknown")
"""What a source can be; ``others`` is a chat of others."""

SOURCES: Final = """\
web: ://, www., .com, .org, .net, .io, .dev, web, webpage, website, page, pages, browser, fetch, fetched, crawled
web: search, url, wikipedia, article, stack overflow, stackoverflow, rag, chunk, retrieved, retrieval, embedding
others: slack, discord, telegram, whatsapp, irc, email, e-mail, mail, newsletter, issue, pull request, comment, thread
others: channel, forum, group chat, meeting, transcript, tweet, reddit
tool: tool, command, output, stdout, stderr, shell, api, mcp, log, logs, task, exit code, script, plugin
file: file, files, doc, docs, document, pdf, readme, notes, repo, repository, commit, config
file: .md, .txt, .json, .toml, .yaml, ~/, ./, /etc/, /home/, /srv/, /var/, /usr/, /opt/, /tmp/, /root/
system: system, cron, timer, import, imported, migration, migrated, restore, memops
agent: agent, subagent, agents, assistant, model, llm, ai, bot, inferred, inference, guess, guessed, summary
agent: reflection, extracted, extraction, consolidated, deduced
person: user, person, human, owner, me, said, told, asked, chat, conversation, message, dm, call, phone
person: in person, interview, terminal, typed
"""
"""The rules where there is no SOURCES_FILE: a class and its words a line; the first line that fits decides."""

# SQLite opens a store read-only but cannot roll a crashed writer's journal back that way (result code 8).
_HOT_JOURNAL: Final = (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_READONLY_ROLLBACK, sqlite3.SQLITE_READONLY_RECOVERY)


class StoreError(Exception):
    """The store cannot be used; the text says why in one sentence."""


class Refused(StoreError):  # noqa: N818 - a word of the field
    """What was asked for is not right, and nothing was changed: the text says why, ``hint`` what to do instead."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class CredentialRefused(Refused):
    """A text that is to be stored holds what looks like a credential."""


def connect(
    path: str, *, readonly: bool = False, timeout: float = 5.0, seconds: float | None = None
) -> sqlite3.Connection:
    """Open an existing store the way every writer should.

    Only the store's owner should call this: any other user leaves files beside a WAL store that lock its owner out.

    path: the database file; it is never created.
    readonly: only read. A crashed writer's journal is still rolled back, as any reader's opening would.
    timeout: seconds to wait for a lock before ``sqlite3.OperationalError`` (code SQLITE_BUSY).
    seconds: after so many its statements are interrupted (code SQLITE_INTERRUPT), whatever the file makes of them.

    Returns a connection in autocommit mode with foreign keys enforced, ``secure_delete`` on, and ``protect``. Raises
    sqlite3.Error when the file cannot be opened, StoreError when this SQLite has no foreign keys, or another
    file took the place of this one meanwhile.
    """
    before = None
    with contextlib.suppress(OSError):
        before = os.stat(path)
    require_plain(path, before)
    try:
        connection = _open(path, "ro" if readonly else "rw", timeout)
    except sqlite3.OperationalError as error:
        if not readonly or error.sqlite_errorcode not in _HOT_JOURNAL:
            raise
        connection = _open(path, "rw", timeout)
    try:
        # SQLite opens the -wal by name, after the database: it may be that of another one by then.
        if before is not None and is_replaced(path, before):
            raise StoreError(f"{path} was replaced by another file while it was opened")
        if readonly:
            connection.execute("PRAGMA query_only = ON")
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA secure_delete = ON")
        # Else a power cut may bring a removed rollback journal back, which undoes what was acknowledged.
        connection.execute("PRAGMA synchronous = EXTRA")
        protect(connection, writes=not readonly)
        if seconds is not None:
            end = time.monotonic() + seconds
            connection.set_progress_handler(lambda: time.monotonic() > end, 10_000)
        # The setting is per connection and void inside a transaction, so it is read back
        # (https://www.sqlite.org/foreignkeys.html#fk_enable).
        if connection.execute("PRAGMA foreign_keys").fetchone() != (1,):
            raise StoreError("this SQLite was built without foreign keys")
    except BaseException:
        connection.close()
        raise
    return connection


def require_plain(path: str, found: os.stat_result | None) -> None:
    """Raise StoreError where a database, or a file of SQLite's beside it, is there and is no plain file.

    found: of the database. A pipe would make SQLite wait for ever, a link lead it elsewhere.
    """
    if found is not None and not stat.S_ISREG(found.st_mode):
        raise StoreError(f"{path} is not a plain file")
    for end in ("-wal", "-shm", "-journal"):
        with contextlib.suppress(OSError):
            if not stat.S_ISREG(os.lstat(path + end).st_mode):
                raise StoreError(f"{path}{end} is not a plain file")


LIMITS: Final = {
    sqlite3.SQLITE_LIMIT_LENGTH: 64 << 20,
    sqlite3.SQLITE_LIMIT_SQL_LENGTH: 16 << 20,
    sqlite3.SQLITE_LIMIT_EXPR_DEPTH: 200,
    sqlite3.SQLITE_LIMIT_COMPOUND_SELECT: 50,
    sqlite3.SQLITE_LIMIT_TRIGGER_DEPTH: 100,
    sqlite3.SQLITE_LIMIT_ATTACHED: 0,
}
"""What a statement or a value may come to (https://www.sqlite.org/limits.html): more than any store needs."""

DENIED: Final = frozenset(
    [
        *((sqlite3.SQLITE_FUNCTION, name) for name in ("edit", "eval", "fts3_tokenizer", "load_extension")),
        *((sqlite3.SQLITE_FUNCTION, name) for name in ("readfile", "writefile")),
        *((action, "sqlite_dbpage") for action in (sqlite3.SQLITE_INSERT, sqlite3.SQLITE_READ, sqlite3.SQLITE_UPDATE)),
        (sqlite3.SQLITE_PRAGMA, "writable_schema"),
    ]
)
"""Functions, tables and pragmas that reach beyond the rows of a database; none of our statements has one."""


def protect(connection: sqlite3.Connection, *, writes: bool) -> None:
    """Switch on what SQLite has against a database that attacks whoever opens it; SECURITY.md lists it.

    What a schema computes (views, triggers, defaults, indexes) may call harmless functions only, no value or statement
    is endless, shadow tables are not written to (defensive, with Python 3.12 on), no file is attached.

    writes: whether the store is written to. Raises sqlite3.Error.
    """
    for what, most in LIMITS.items():
        connection.setlimit(what, most)
    if sys.version_info >= (3, 12):
        connection.setconfig(sqlite3.SQLITE_DBCONFIG_DEFENSIVE, True)
    connection.execute("PRAGMA cell_size_check = ON")
    # Before 3.44 SQLite counts FTS5 among the harmful, and would write to no store that has a full-text index.
    indexed = "SELECT 1 FROM sqlite_schema WHERE sql LIKE 'CREATE VIRTUAL TABLE%'"
    if not writes or sqlite3.sqlite_version_info >= (3, 44) or not connection.execute(indexed).fetchone():
        connection.execute("PRAGMA trusted_schema = OFF")
    connection.set_authorizer(_authorize)


def _authorize(action: int, first: str | None, second: str | None, *_: str | None) -> int:
    name = second if action == sqlite3.SQLITE_FUNCTION else first
    return sqlite3.SQLITE_DENY if (action, str(name).lower()) in DENIED else sqlite3.SQLITE_OK


def let_vacuum(connection: sqlite3.Connection) -> None:
    """Lift the limits that VACUUM needs lifted: it attaches the file it writes, and carries every value over."""
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 1_000_000_000)
    connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 1)


def is_replaced(path: str, before: os.stat_result) -> bool:
    """Whether there is another file at ``path``, or none, where ``before`` was."""
    try:
        return not os.path.samestat(os.stat(path), before)
    except OSError:
        return True


def _open(path: str, mode: str, timeout: float) -> sqlite3.Connection:
    connection = sqlite3.connect(
        f"file:{quote(os.path.abspath(path))}?mode={mode}", uri=True, timeout=timeout, isolation_level=None
    )
    try:
        connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    except BaseException:
        connection.close()
        raise
    return connection


def printable(text: object, limit: int = 64) -> str:
    """The agent's text as it may appear on a terminal or in the journal: escaped, at most ``limit`` characters."""
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in str(text))
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"


@contextlib.contextmanager
def writing(connection: sqlite3.Connection) -> Iterator[None]:
    """A transaction that takes the write lock at its beginning, and leaves nothing behind when it fails."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


# Dates


def text_of(moment: datetime) -> str:
    """A moment as a store has it. A naive one is taken for UTC."""
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return aware.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")


def moment_of(text: object) -> datetime | None:
    """The moment that a store's text means; None for anything but a real UTC ``YYYY-MM-DD HH:MM:SS``."""
    try:
        moment = datetime.strptime(str(text), "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC)
    except ValueError:
        return None
    return moment if moment.strftime("%Y-%m-%d %H:%M:%S") == text else None


# Where facts come from


_DIGITS: Final = re.compile(r"[0-9]+")
_HUMP: Final = re.compile(r"(?<=[a-z])(?=[A-Z])")

MOST: Final = 4000
"""Characters of a source that the rules look at."""


class Sources:
    """Rules that tell from its source where a fact comes from."""

    def __init__(self, text: str = SOURCES) -> None:
        """``text``: a line ``class: words, separated, by commas`` each; blank ones and ``#`` are left out.

        Words are found whole and in any case. Raises StoreError for a line that is no rule.
        """
        self._rules: list[tuple[str, re.Pattern[str]]] = []
        self._known: dict[str, str] = {}
        self._digits = False
        for number, line in enumerate(text.splitlines(), 1):
            if not line.strip() or line.lstrip().startswith("#"):
                continue
            name, _, rest = line.partition(":")
            words = [word.strip() for word in rest.split(",") if word.strip()]
            if name.strip() not in CLASSES or not words:
                raise StoreError(f"line {number} of the rules on sources is not CLASS: WORD, WORD ({printable(line)})")
            self._digits |= any(c.isdigit() for c in rest)
            self._rules.append((name.strip(), re.compile("|".join(map(_whole, words)), re.IGNORECASE)))

    def class_of(self, source: object, origin: object = None) -> str:
        """One of CLASSES. What is a person's by its source is so only if the ``origin``, if it has one, is too."""
        found = self._match(str(source))
        return found if found != "person" or origin is None else self._match(str(origin))

    def _match(self, source: str) -> str:
        found = self._known.get(source)
        if found is None:
            if len(self._known) > 10_000:
                self._known.clear()
            # Sources that differ by a date or a number only are one to rules without digits.
            text = _plain_words(source[:MOST])
            text = text if self._digits else _DIGITS.sub("0", text)
            found = self._known.get(text)
            if found is None:
                found = next((name for name, words in self._rules if words.search(text)), "unknown")
                if found == "person" and len(source) > MOST:  # what was not read may say otherwise
                    found = "unknown"
            self._known[text] = self._known[source] = found
        return found


def _plain_words(source: str) -> str:
    """A source with its words apart: ``web_search`` and ``WebFetch`` are of the web, in whatever width they come."""
    if not source.isascii():
        import unicodedata

        source = unicodedata.normalize("NFKC", source)
    return _HUMP.sub(" ", source.replace("_", " "))


def _whole(word: str) -> str:
    """A pattern for a word that is not part of another one."""
    return (r"(?<!\w)" if word[0].isalnum() else "") + re.escape(word) + (r"(?!\w)" if word[-1].isalnum() else "")


def read_sources(path: str = SOURCES_FILE) -> Sources:
    """The rules in a file, or the built-in ones where there is none. Raises StoreError, OSError."""
    try:
        with open(path, encoding="utf-8") as file:
            return Sources(file.read(1 << 20))
    except FileNotFoundError:
        return Sources()
    except UnicodeDecodeError:
        raise StoreError(f"{path} is not UTF-8") from None


# What opens something

HIDDEN: Final = "[masked]"

KEYS: Final = (
    ("AWS access key", r"A(?:KIA|SIA|BIA|CCA)", r"[A-Z0-9]{16}(?![A-Za-z0-9])"),
    ("Anthropic key", r"sk-ant-", r"[\w-]{16,}"),
    ("OpenAI key", r"sk-(?:proj|svcacct|admin|or)-", r"[\w-]{16,}"),
    ("OpenAI key", r"sk-", r"[A-Za-z0-9]{20,}"),
    ("Stripe key", r"[rs]k_(?:live|test|prod)_", r"[A-Za-z0-9]{10,}"),
    ("SendGrid key", r"SG\.", r"[\w=.-]{20,}"),
    ("Slack token", r"xox[abeoprs]-", r"[A-Za-z0-9-]{10,}"),
    ("Slack token", r"xapp-\d-", r"[A-Za-z0-9-]{20,}"),
    ("Shopify token", r"shp(?:at|ca|pa|ss)_", r"[a-f0-9]{32}"),
    ("Supabase token", r"sbp_", r"[a-f0-9]{40}"),
    ("GitHub token", r"gh[opsur]_", r"[A-Za-z0-9]{16,}"),
    ("GitHub token", r"github_pat_", r"\w{16,}"),
    ("GitLab token", r"gl(?:pat|ptt|dt|rt|cbt|ft|imt|agent|soat|oas)-", r"[\w.-]{16,}"),
    ("Grafana token", r"gl(?:sa|c)_", r"[\w=+/]{32,}"),
    ("npm token", r"npm_", r"[A-Za-z0-9]{16,}"),
    ("New Relic key", r"NRAK-", r"[A-Z0-9]{27}"),
    ("PyPI token", r"pypi-", r"[\w-]{16,}"),
    ("Postman key", r"PMAK-", r"[a-f0-9-]{40,}"),
    ("Google key", r"AIza", r"[\w-]{30,}"),
    ("Google token", r"ya29\.", r"[\w.-]{16,}"),
    ("Google token", r"GOCSPX-", r"[\w-]{16,}"),
    ("Hugging Face token", r"hf_", r"[A-Za-z0-9]{16,}"),
    ("HashiCorp Vault token", r"hv[bs]\.", r"[\w-]{20,}"),
    ("DigitalOcean token", r"do[opr]_v1_", r"[a-f0-9]{16,}"),
    ("Doppler token", r"dp\.pt\.", r"[A-Za-z0-9]{16,}"),
    ("Docker token", r"dckr_[a-z]{3}_", r"[\w-]{20,}"),
    ("Linear key", r"lin_api_", r"[A-Za-z0-9]{16,}"),
    ("RubyGems key", r"rubygems_", r"[a-f0-9]{32,}"),
    ("Atlassian token", r"ATATT3", r"[\w=-]{50,}"),
    ("age secret key", r"AGE-SECRET-KEY-1", r"[A-Z0-9]{16,}"),
    ("Twilio key", r"SK", r"[0-9a-f]{32}(?![A-Za-z0-9])"),
    ("Telegram bot token", r"(?:bot)?[0-9]{8,10}:", r"A[A-Za-z0-9_-]{34}"),
)
"""The keys of services, by the shapes that they and the rules of gitleaks publish: what it is, how it begins (which
stays when it is masked), and what follows."""

OPENERS: Final = (
    *(
        r"(?<!no)pass(?:word|wd|phrase|code|wort)",
        r"(?<![a-z0-9+/])pwd",
        r"(?<![a-z0-9+/])pw",
        r"(?<=[_-])pass",
        "kennwort",
        "contraseña",
        "senha",
    ),
    *("mot de passe", "wachtwoord", "hasło", "пароль", "密码", "密碼", "パスワード"),
)
"""What a password is called."""

TOKENS: Final = (
    *("secret", "token", "credential", "api[ _-]?key", "account[ _-]?key"),
    "(?:access|secret|private|signing|encryption|master|session|shared|service|license|auth)[ _-]?key",
)
"""What other values are called that open something."""

STEMS: Final = (
    *("pass", "pwd", "pw", "kennwort", "contrase", "senha", "wachtwoord", "hasło", "пароль", "密", "パスワード"),
    *("secret", "token", "credential", "key"),
)
"""One of them is in each of those names: most texts have none, which is soon seen."""

NO_VALUES: Final = (
    *("true", "false", "yes", "no", "none", "null", "nil", "undefined", "unset", "empty", "missing", "required"),
    *("optional", "invalid", "expired", "revoked", "rotated", "changed", "unknown", "hidden", "masked", "redacted"),
    *("enabled", "disabled", "default", "string", "str", "int", "text", "bytes", "basic", "bearer", "jwt"),
)
"""What may stand in the place of a value."""

ENTROPY: Final = 3.5
"""Bits in each character, by how often each one comes, from which on a long word is taken for random."""

PUBLIC: Final = (
    *("/", "~/", r"(?i:sha\d{1,3}[-_])"),  # paths; a checksum is one word with its name
    *("iVBORw0KGgo", "/9j/4", "R0lGOD", "UklGR", "PHN2Zy", "PD94bW", "JVBERi", "d09GM"),  # images, fonts, documents
    *("AAAAB3NzaC1", "AAAAC3NzaC1", "AAAAE2VjZHNh", "AAAAGnNr"),  # public keys of SSH
    r"(?:cus|price|prod|sub|si|pi|pm|ch|in|acct|evt|req|we|seti|m)[_-]",  # ids
    r"(?:asst|thread|run|step|msg|toolu|srvtoolu|call|chatcmpl|file|resp|batch|vs|org|proj|user|ftjob)[_-]",
)
"""How long words begin that look random and open nothing."""

_WORD_START: Final = r"(?<![A-Za-z0-9])"
_SHOWN_BEFORE: Final = re.compile(
    r"(?:sha\d{1,3}[:-]|\bh1:|/nix/store/|\bpublic[ _-]?key\b[^\n]{0,40})\Z", re.IGNORECASE
)
_PLACE: Final = re.compile(r"\b[A-Za-z][A-Za-z0-9+.-]{1,20}://[^\s\"'<>`]+|\bdata:(?:image|font|audio|video)/\S+")
_REFERENCE: Final = re.compile(
    r"[$<*{%\[(&:]|~?/|\.{1,2}/|[a-z][a-z0-9+.-]*://|(?:vault|env|file|op|secret):|process\.env|os\.|x{3,}\Z|\.{3}|…"
    r"|[A-Za-z_][\w.]{0,60}[(\[]|\d{4}-\d\d-\d\d",
    re.IGNORECASE,
)
_AMOUNT: Final = re.compile(r"\s*-?(?:char|digit|letter|long|bit|byte|word|symbol|minute|hour|day|week|Zeichen|carac)")
_RUN: Final = re.compile(r"[A-Za-z0-9+/_=-]{20,}")
_PIECE: Final = re.compile(r"[A-Za-z0-9]{20,}")
_MORE: Final = r"(?:[^\s,;\"'`]|[,;](?=\w))"
_BASE64: Final = re.compile(r"[A-Za-z0-9+/]{20,}={0,2}")
_HEX: Final = re.compile(r"[0-9a-fA-F]+")


@functools.cache
def _patterns() -> dict[str, re.Pattern[str]]:
    """Compiled when they are first needed: an agent that only recalls has no use for them."""
    keys = "|".join(f"({begin})(?:{rest})" for _, begin, rest in KEYS)
    name = rf"(?:(?P<password>{'|'.join(OPENERS)})|(?P<token>{'|'.join(TOKENS)})|(?<=[_-])key)s?"
    where = r"(?:\s(?:for|of|on|to|at|für|von|auf|de|du|para|del)\s[\w.@/-]{1,40}){0,2}"
    sign = r"(?P<sign>\s{0,3}(?::=|=>|[:=\uff1a]|\b(?:is|was|ist|lautet|est|es|är|to)\b)\s{0,3}|\s|(?<=[\"'>])\s?,\s?)"
    value = rf"\\?\"[^\"\n]{{1,4000}}\"|'[^'\n]{{1,4000}}'|`[^`\n]{{1,4000}}`|[^\s,;\"'`]{_MORE}{{0,400}}"
    return {
        "pem": re.compile(
            r"(-----BEGIN [A-Z ]{0,40}PRIVATE KEY(?: BLOCK)?-----).*?"
            r"(?:-----END [A-Z ]{0,40}PRIVATE KEY(?: BLOCK)?-----|\Z)",
            re.DOTALL,
        ),
        "jwt": re.compile(r"(\beyJ)[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]+){1,4}"),
        "url": re.compile(r"(\b[A-Za-z][A-Za-z0-9+.-]{1,20}://[^\s:/@]{0,100}:)([^\s/]{1,200})@"),
        "hook": re.compile(r"(\bhooks\.slack\.com/(?:services|workflows|triggers)/)[A-Za-z0-9+/]{20,}"),
        "header": re.compile(r"\b(authorization\W{1,4})?((?:bearer|basic) )([A-Za-z0-9._~+/=-]{12,})", re.IGNORECASE),
        "key": re.compile(rf"{_WORD_START}(?:{keys})", re.ASCII),
        "named": re.compile(rf"(?P<name>{name})\\?[\"'`]?{where}{sign}(?P<value>{value})", re.IGNORECASE),
        "more": re.compile(rf"{_MORE}*"),
        "public": re.compile("|".join(PUBLIC)),
    }


def screen(text: str) -> tuple[str, list[str]]:
    """``text`` with ``[masked]`` in the place of what looks like a credential, and what each of them is.

    Its name or beginning stays. The rules know shapes, not meanings: a pass phrase of plain words is not found, nor a
    secret of a kind that is not listed. What people write about every day is left alone: words, dates, paths, numbers,
    addresses, and what is made of hexadecimal digits only: commits, checksums and UUIDs look so, and far more of them
    are in a memory than keys that do. After a word such as ``token`` they are found all the same.
    """
    screening = _Screening()
    return screening.masked(text), screening.kinds


class _Screening:
    """Masks one text, and notes the kinds of what it masks."""

    def __init__(self) -> None:
        self.kinds: list[str] = []

    def masked(self, text: str) -> str:
        patterns = _patterns()
        for name, kind in (("pem", "private key"), ("jwt", "JWT"), ("hook", "Slack webhook")):
            text, count = patterns[name].subn(rf"\1{HIDDEN}", text)
            self.kinds += [kind] * count
        text = patterns["url"].sub(self._address, text)
        text = patterns["header"].sub(self._header, text)
        text = patterns["key"].sub(self._key, text)
        lowered = text.lower()
        if any(stem in lowered for stem in STEMS):
            text = self._named(text)
        return self._random(text) if _RUN.search(text) else text

    def _address(self, match: re.Match[str]) -> str:
        if match[2].lower() in ("pass", "passwd", "password", "pwd") or _REFERENCE.match(match[2]):
            return match[0]
        self.kinds.append("password in an address")
        return f"{match[1]}{HIDDEN}@"

    def _header(self, match: re.Match[str]) -> str:
        if match[1] is None and not re.search(r"[0-9]|[._]\w|[a-z][A-Z]", match[3]):
            return match[0]  # a basic understanding
        self.kinds.append("authorization header")
        return f"{match[1] or ''}{match[2]}{HIDDEN}"

    def _key(self, match: re.Match[str]) -> str:
        number = match.lastindex or 1
        self.kinds.append(KEYS[number - 1][0])
        return f"{match[number]}{HIDDEN}"

    def _named(self, text: str) -> str:
        done, pattern = 0, _patterns()["named"]
        shown: list[str] = []
        match = pattern.search(text)
        while match:
            if _opens(match, text[match.end() : match.end() + 12]):
                shown += text[done : match.start("value")], HIDDEN
                done = match.end()
                if match["value"][-1] not in "\"'`" and (more := _patterns()["more"].match(text, done)):
                    done = more.end()
                self.kinds.append("password" if match["password"] else "secret value")
            # "secret access key: …" has one name behind the other.
            match = pattern.search(text, max(done, match.end("name")))
        return "".join([*shown, text[done:]])

    def _random(self, text: str) -> str:
        places = _PLACE.finditer(text)
        place = next(places, None)

        def run(match: re.Match[str]) -> str:
            nonlocal place
            word, at = match[0], match.start()
            while place is not None and place.end() <= at:
                place = next(places, None)
            inside = place is not None and place.start() <= at
            if inside or not any(map(_looks_random, _PIECE.findall(word))):
                return word
            if _patterns()["public"].match(word) or _SHOWN_BEFORE.search(text, max(0, at - 60), at):
                return word
            self.kinds.append("random word")
            return HIDDEN

        return _RUN.sub(run, text)


def mask(text: str) -> str:
    """``text`` with ``[masked]`` in the place of what looks like a credential; see ``screen``."""
    return screen(text)[0]


def require_no_credential(**texts: str) -> None:
    """Raise CredentialRefused where a text holds what looks like one; it says which text and what, not more."""
    for name, text in texts.items():
        if kinds := screen(text)[1]:
            raise CredentialRefused(
                f"the {name} holds what looks like a credential ({', '.join(dict.fromkeys(kinds))})",
                "Keep it in a password manager, and store where it is kept. If it opens nothing, say why:"
                " --allow-secret REASON (in Python: allow_secret=True)",
            )


def _opens(match: re.Match[str], rest: str) -> bool:
    """Whether what stands after a name such as ``password`` is a value, and no sentence about one; ``rest`` follows."""
    value, sign, password = match["value"], match["sign"].strip(), match["password"] is not None
    quoted = value[0] in "\"'`\\"
    bare = value.strip("\\\"'`") if quoted else value.rstrip(".!?:)}]>")
    if HIDDEN in value or not bare or bare.lower() in NO_VALUES:
        return False
    if _REFERENCE.match(bare) and not (_BASE64.fullmatch(bare) and _looks_random(re.sub("[/+=]", "", bare))):
        return False
    if re.fullmatch(r"[\d.,]+[kKmM]?", bare) and (not password or len(bare) < 3 or _AMOUNT.match(rest)):
        return False
    if not password and match["token"] is None:  # sort_key, cache_key and so on
        return (
            sign != ""
            and len(bare) >= 16
            and (_HEX.fullmatch(bare) is not None or _looks_random(re.sub("[/+=_-]", "", bare)))
        )
    if sign in ("", ","):
        return _is_mixed(bare) or (not password and len(bare) >= 32 and _HEX.fullmatch(bare) is not None)
    if quoted:
        return True
    plain = re.fullmatch(r"[^\W\d]+(?:[_.'-][^\W\d]+)*", bare) is not None
    if not plain or (len(bare) >= 20 and bare.isascii() and not _is_named(bare)):
        return password or len(bare) >= 6
    # "password: see the vault" and "the password is kept" are sentences, and so are most others with a plain word;
    # "password: swordfish" and "PASSWORD=swordfish" are none, "password=user.password" is a program.
    if not password or re.search("pass|pwd|secret|token|cred", bare, re.IGNORECASE):
        return False
    if sign in ("=", ":=", "=>"):
        return True
    return sign in (":", "\uff1a") and not re.match(",| \\w", rest)


def _is_mixed(word: str) -> bool:
    """Whether a word is no plain one: digits among letters, and capitals or signs among those."""
    letters = len(word) >= 8 and re.search("[0-9]", word) and re.search("[a-z]", word)
    return bool(letters and re.search("[A-Z!?#$%&+_=]", word))


def _is_named(word: str) -> bool:
    """Whether most of a word is words: of a language, or joined as programmers do."""
    return sum(map(len, re.findall(r"[A-Z]?[a-z]{3,}", word))) * 2 > len(word) or word.isupper()


def _looks_random(word: str) -> bool:
    """Whether a long word is none that people write: its digits lie in several places, among letters of both cases.

    Without capitals there must be more of them, since names with numbers in them look so too.
    """
    places = len(re.findall(r"[0-9]+", word))
    small, capital = re.search(r"[a-z]", word), re.search(r"[A-Z]", word)
    if _HEX.fullmatch(word) or not small or places < (2 if capital else 5):
        return False
    if _is_named(word):
        return False
    return -sum(n / len(word) * math.log2(n / len(word)) for n in map(word.count, set(word))) >= ENTROPY


# What may be stored


def require_texts(**texts: object) -> dict[str, str]:
    """``subject``, ``fact`` and ``source`` (or some of them) as they are stored. Raises Refused."""
    found = {}
    for name, value in texts.items():
        text = value.strip() if isinstance(value, str) else ""
        if not text:
            raise Refused(f"the {name} is empty")
        if len(text) > LONGEST[name]:
            raise Refused(f"the {name} has {len(text):,} characters, and {LONGEST[name]:,} is the most")
        odd = next((c for c in text if not _is_text(c, name)), None)
        if odd is not None:
            raise Refused(f"the {name} holds the character {printable(odd)}, which is no text")
        found[name] = text
    source = found.get("source")
    if source is not None and (source.lower() in VAGUE or not any(c.isalnum() for c in source)):
        raise Refused(
            f"the source {printable(source)!r} does not say where the fact is from, so nobody could check it again",
            "Say a message, a file or a command output, with its date: 'chat 2026-08-08'",
        )
    return found


def _is_text(c: str, name: str) -> bool:
    # Emoji are joined by what is not printable by itself; other invisible characters only hide something.
    if c.isprintable() or c in "\u200c\u200d" or (name == "fact" and c in "\n\t"):
        return True
    return c.isspace() and c > "\x9f" and c not in "\u2028\u2029"


_newest_id = 0


def new_id() -> str:
    """An id that sorts by time: ``m_``, eight digits of hundredths of a second since 2020, two at random."""
    global _newest_id  # noqa: PLW0603 - two ids of one hundredth of a second are in order, too
    digits = "0123456789abcdefghjkmnpqrstvwxyz"
    number = int((time.time() - 1_577_836_800) * 100) * 1024 + int.from_bytes(os.urandom(2)) % 1024
    _newest_id = number = number if number > _newest_id else _newest_id + 1
    return "m_" + "".join(digits[number >> shift & 31] for shift in range(45, -1, -5))


BEHIND: Final = (
    "WITH RECURSIVE behind (id) AS (SELECT value FROM json_each(?)"
    " UNION SELECT m.id FROM memory AS m JOIN behind ON m.superseded_by = behind.id)"
)
"""The facts whose ids a JSON list has, and all that they replaced, each before what is behind it: SQLite takes the rows
of a recursive query first in, first out. It ends where chains go in a circle, too."""


def remember(
    connection: sqlite3.Connection,
    subject: str,
    fact: str,
    source: str,
    expires_at: str | None = None,
    replaces: str | None = None,
    *,
    by_person: bool = False,
    allow_secret: bool = False,
) -> str:
    """Add a fact, inside the caller's transaction, and return its id.

    expires_at: UTC text, or None for a fact without a natural end. replaces: the id of the live fact that this one
    corrects; it is kept behind the new one, and the new one keeps where that came from, unless ``by_person``: a person
    says so now. allow_secret: also where it looks like a credential. Raises Refused.
    """
    texts = require_texts(subject=subject, fact=fact, source=source)
    if not allow_secret:
        require_no_credential(**texts)
    columns = columns_of(connection)
    origin = None
    if replaces is not None:
        require_replaceable(connection, replaces, expires_at)
        (own,) = connection.execute("SELECT source FROM memory WHERE id = ?", (replaces,)).fetchone()
        origin = origins(connection, [replaces])[replaces] or str(own)
        if origin and not by_person and "origin" not in columns:
            texts["source"] += f"; first from {origin}"
    require_end(expires_at)
    new = next(name for name in iter(new_id, "") if not is_there(connection, name))
    row = {"id": new, **texts, "expires_at": expires_at}
    if "origin" in columns and not by_person:
        row["origin"] = origin
    names = ", ".join(row)
    added = connection.execute(
        f"INSERT INTO memory ({names}) VALUES ({', '.join('?' * len(row))})", tuple(row.values())
    )
    require_done(added)
    if replaces is not None:
        pointed = connection.execute("UPDATE memory SET superseded_by = ? WHERE id = ?", (new, replaces))
        require_done(pointed)
        if "origin" in columns and by_person:  # which a trigger may have set
            connection.execute("UPDATE memory SET origin = NULL WHERE id = ?", (new,))
    return new


def require_done(cursor: sqlite3.Cursor) -> None:
    """Raise Refused unless the statement changed a row: a trigger of the store can ignore it without an error."""
    if cursor.rowcount != 1:
        raise Refused("a trigger of the store ignores that change", "Look at it: sqlite3 STORE .schema")


def is_view(connection: sqlite3.Connection) -> bool:
    """Whether the facts are a view over another program's table."""
    kind = connection.execute("SELECT type FROM sqlite_schema WHERE name = 'memory'").fetchone()
    return bool(kind == ("view",))


def require_end(expires_at: str | None) -> str | None:
    """``expires_at``, if it is a time to come or None. Raises Refused."""
    if expires_at is not None and (moment_of(expires_at) is None or expires_at <= text_of(datetime.now(UTC))):
        raise Refused(f"{printable(expires_at)} is not a time to come in UTC, YYYY-MM-DD HH:MM:SS")
    return expires_at


def require_replaceable(connection: sqlite3.Connection, name: str, expires_at: str | None) -> None:
    """Raise Refused unless a new fact that lasts until ``expires_at`` may take the place of the fact ``name``."""
    row = connection.execute("SELECT superseded_by, expires_at FROM memory WHERE id = ?", (name,)).fetchone()
    if row is None:
        raise Refused(f"there is no fact {printable(name)}")
    shown, newer = printable(name), printable(row[0])
    if row[0] is not None:
        raise Refused(f"{shown} was replaced already, by {newer}", f"Replace that one: {newer}")
    if row[1] is not None and str(row[1]) <= text_of(datetime.now(UTC)):
        raise Refused(f"{shown} expired at {printable(row[1])}, so there is nothing to replace", "Remember the new one")
    if expires_at is not None:
        require_no_permanent(connection, name)


def require_no_permanent(connection: sqlite3.Connection, name: str, *, itself: bool = True) -> None:
    """Raise Refused if a fact without an end is behind ``name``, or is it: what ends takes along what it replaced."""
    found = connection.execute(
        f"{BEHIND} SELECT m.id FROM behind JOIN memory AS m ON m.id = behind.id"
        " WHERE m.expires_at IS NULL AND (m.id <> ? OR ?) LIMIT 1",
        (json.dumps([name]), name, itself),
    ).fetchone()
    if found:
        raise Refused(
            f"{printable(found[0])} has no end, and would be deleted together with a fact that has one",
            "Store the new fact beside it (without replacing), or without an end",
        )


def columns_of(connection: sqlite3.Connection) -> frozenset[str]:
    """The columns that this store has."""
    return frozenset(row[0] for row in connection.execute("SELECT name FROM pragma_table_info('memory')"))


def origins(connection: sqlite3.Connection, ids: Sequence[str]) -> dict[str, str | None]:
    """Where these facts came from at first, as far as they replaced others: id → source, or None.

    It is in the column ``origin``; in a store without, it is what the chain behind says while it exists.
    """
    found: dict[str, str | None] = dict.fromkeys(ids, None)
    try:
        for at in range(0, len(ids), 500):
            part = tuple(ids[at : at + 500])
            marks = ", ".join("?" * len(part))
            found.update(connection.execute(f"SELECT id, origin FROM memory WHERE id IN ({marks})", part))
    except sqlite3.OperationalError:
        if "origin" in columns_of(connection):  # which is asked only now: it takes as long as all the rest
            raise
        found.update((name, _chain_origin(connection, name)) for name in ids)
    return found


def _chain_origin(connection: sqlite3.Connection, name: str) -> str | None:
    """The sources at the far end of the chain behind a fact (of five at most, where it has several)."""
    (found,) = connection.execute(
        f"{BEHIND} SELECT group_concat(source, '; ')"
        " FROM (SELECT m.source FROM behind JOIN memory AS m ON m.id = behind.id"
        " WHERE m.id <> ? AND NOT EXISTS (SELECT 1 FROM memory AS o WHERE o.superseded_by = m.id) LIMIT 5)",
        (json.dumps([name]), name),
    ).fetchone()
    return None if found is None else str(found)


def is_there(connection: sqlite3.Connection, name: object) -> bool:
    """Whether there is a fact with this id."""
    return connection.execute("SELECT 1 FROM memory WHERE id = ?", (name,)).fetchone() is not None


# What an agent uses


class Fact(NamedTuple):
    """A live fact. Dates are the store's text; ``origin`` is where what it replaced was from; ``kind`` a class."""

    id: str
    subject: str
    fact: str
    source: str
    confirmed_at: str
    expires_at: str | None
    origin: str | None
    kind: str

    def line(self, now: datetime | None = None) -> str:
        """The fact for a prompt, in one line, with its age and where it is from."""
        confirmed = moment_of(self.confirmed_at)
        days = None if confirmed is None else ((now or datetime.now(UTC)) - confirmed).days
        when = "confirmed at no known date" if days is None else f"confirmed {self.confirmed_at[:10]}, {_days(days)}"
        ends = "" if self.expires_at is None else "; until no known date"
        if moment_of(self.expires_at):
            ends = f"; until {str(self.expires_at)[:16]} UTC"
        mark = "" if self.kind == "person" else f"; not from a person: {self.kind}"
        if mark and self.origin is not None:
            mark = f"; first from {_quoted(self.origin, LONGEST['source'])}{mark}"
        source = _quoted(self.source, LONGEST["source"])
        said = f"{_quoted(self.subject, LONGEST['subject'])}: {_quoted(self.fact, LONGEST['fact'])}"
        return f"- {said} ({when}{ends}; source {source}{mark})"


def _quoted(text: str, limit: int) -> str:
    """A text that cannot end before its closing quote, so that what it says of itself is not taken for ours."""
    return '"' + printable(text, limit).replace('"', '\\"') + '"'


def _days(days: int) -> str:
    return "today" if days == 0 else "yesterday" if days == 1 else f"{days} days ago" if days > 0 else "in the future"


def block(facts: Iterable[Fact], max_chars: int | None = None) -> str:
    """Facts as lines for a prompt; only whole lines, in all at most ``max_chars`` characters."""
    return "\n".join(fact.line() for fact in fitting(facts, max_chars))


def fitting(facts: Iterable[Fact], max_chars: int | None) -> list[Fact]:
    """The first facts whose lines fit into ``max_chars`` characters."""
    found, room = [], max_chars
    for fact in facts:
        if room is not None:
            room -= len(fact.line()) + 1
            if room < -1:
                break
        found.append(fact)
    return found


class Memory:
    """An open store. Not for two threads at once; each opens its own.

    Raises StoreError or sqlite3.Error where the store cannot be used (``sqlite3.OperationalError`` with code
    SQLITE_BUSY where another process held its write lock for longer than ``timeout`` seconds).
    """

    def __init__(self, path: str, *, timeout: float = 5.0, sources: Sources | None = None) -> None:
        """Open the store at ``path``, which must exist. ``sources``: rules other than the machine's."""
        self.connection = connect(path, timeout=timeout)
        self._timeout = timeout
        self._sources = sources or read_sources()
        self._used: dict[str, None] = {}
        self._due = time.monotonic() + BATCH_SECONDS
        self.ranked = is_indexed(self.connection)
        self._view = view_of(self.connection)

    def __enter__(self) -> Memory:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Write what was touched, as far as that needs no waiting, and close the store."""
        self.flush()
        self.connection.close()

    def remember(
        self,
        subject: str,
        fact: str,
        source: str,
        *,
        until: datetime | timedelta | None = None,
        replaces: str | None = None,
        allow_secret: bool = False,
    ) -> str:
        """Store a fact and return its id, ``m_…``.

        until: when it stops being true, or after how long; None for a fact with no natural end, which goes to review.
        replaces: the id of the live fact that it corrects. allow_secret: also what looks like a credential, because a
        person says that it opens nothing. Raises Refused for what is no fact or holds a credential (see its ``hint``).
        """
        try:
            end = datetime.now(UTC) + until if isinstance(until, timedelta) else until
            expires_at = None if end is None else text_of(end)
        except (OverflowError, AttributeError):
            raise Refused(f"{until!r} is no time that can be stored", "Give a datetime, a timedelta or None") from None
        with writing(self.connection):
            return remember(self.connection, subject, fact, source, expires_at, replaces, allow_secret=allow_secret)

    def recall(
        self,
        query: str = "",
        *,
        subject: str | None = None,
        limit: int = 20,
        max_chars: int | None = None,
        touch: bool = True,
    ) -> list[Fact]:
        """Live facts with the words of ``query`` in subject or fact, best first; the latest confirmed without a query.

        Where the store has a full-text index (memops install --full-text) facts with all words come first, ranked;
        else plain text is looked for. subject: only facts with exactly this subject. limit: the most facts.
        max_chars: for their lines in ``block``. touch: mark them as used.
        """
        how = self._sources, self.ranked, self._view
        found = find(self.connection, query, subject, limit, *how)
        facts = fitting(found, max_chars)
        if touch:
            self.touch(fact.id for fact in facts)
        return facts

    def touch(self, ids: Iterable[str]) -> None:
        """Note that facts were used. It is written now and then, many at once, and never waits or fails."""
        self._used.update(dict.fromkeys(ids))
        if len(self._used) >= BATCH or time.monotonic() > self._due:
            self.flush()

    def flush(self) -> None:
        """Write what was touched, unless another process is writing: then next time."""
        self._due = time.monotonic() + BATCH_SECONDS
        if self._used and mark_used(self.connection, list(self._used), self._timeout):
            self._used.clear()
        while len(self._used) > 100 * BATCH:  # a store that is never to be written
            del self._used[next(iter(self._used))]


def mark_used(connection: sqlite3.Connection, ids: Sequence[str], timeout: float) -> bool:
    """Set ``last_used_at`` of these facts where it is older than a day. Whether that was possible without waiting.

    A day is exact enough for facts that nobody used for months, and spares most of the writing.
    """
    if connection.in_transaction:  # the caller's; a touch is no part of it
        return False
    try:
        connection.execute("PRAGMA busy_timeout = 0")
        if "last_used_at" not in columns_of(connection):
            return True
        # Without a sync in WAL mode: after a power cut a fact merely looks unused.
        connection.execute("PRAGMA synchronous = NORMAL")
        with writing(connection):
            connection.executemany(
                "UPDATE memory SET last_used_at = datetime('now') WHERE id = ?"
                " AND (last_used_at IS NULL OR last_used_at < datetime('now', '-1 day'))",
                [(name,) for name in ids],
            )
    except sqlite3.Error:
        return False
    finally:
        connection.execute(f"PRAGMA busy_timeout = {int(timeout * 1000)}")
        connection.execute("PRAGMA synchronous = EXTRA")
    return True


# Finding


def is_indexed(connection: sqlite3.Connection) -> bool:
    """Whether the store has memops' full-text index, and this SQLite can read it."""
    try:
        connection.execute("SELECT rowid FROM memory_text LIMIT 1").fetchone()
    except sqlite3.Error:
        return False
    return True


_SHOWN = "l.id, l.subject, l.fact, l.source, l.confirmed_at, l.expires_at"


def view_of(connection: sqlite3.Connection) -> frozenset[str]:
    """What of live_memory is more than the guide's: its column ``origin``, and a ``hint`` which index to take."""
    columns = {row[0] for row in connection.execute("SELECT name FROM pragma_table_info('live_memory')")}
    (sql,) = connection.execute("SELECT max(sql) FROM sqlite_schema WHERE name = 'live_memory'").fetchone()
    return frozenset(({"origin"} & columns) | ({"hint"} if "likelihood(" in str(sql) else set()))


def find(
    connection: sqlite3.Connection,
    query: str,
    subject: str | None,
    limit: int,
    sources: Sources,
    ranked: bool,
    view: frozenset[str],
) -> list[Fact]:
    """Facts of live_memory, best first, as ``Memory.recall`` says.

    ranked: by the full-text index, which is there. view: what ``view_of`` says.
    """
    try:
        found = _find(connection, query, subject, limit, ranked=ranked, view=view)
    except sqlite3.OperationalError as error:
        if "decode" not in str(error):
            raise
        # One row that is not UTF-8 must not keep the others from being found.
        connection.text_factory = lambda text: text.decode(errors="backslashreplace")
        found = _find(connection, query, subject, limit, ranked=ranked, view=view)
    if "origin" in view:
        return [Fact._make((*row, sources.class_of(row[3], row[6]))) for row in found]
    first = origins(connection, [row[0] for row in found])
    return [Fact._make((*row[:6], first[row[0]], sources.class_of(row[3], first[row[0]]))) for row in found]


def _find(
    connection: sqlite3.Connection, query: str, subject: str | None, limit: int, *, ranked: bool, view: frozenset[str]
) -> list[Any]:
    shown = f"{_SHOWN}, l.origin" if "origin" in view else f"{_SHOWN}, NULL"
    query = query[:10_000]  # a whole page of a user's is no question
    words = list(dict.fromkeys(word[:100] for word in re.findall(r"\w+", query)))[:50]
    if not words and query.strip():
        words = [query.strip()[:100]]
        ranked = False
    if not words:
        return _latest(connection, subject, limit, shown, hint="hint" in view)
    for between in (" ", " OR ") if ranked else ():
        try:
            if rows := _ranked(connection, between.join(f'"{word}"' for word in words), subject, limit, shown):
                return rows
        except sqlite3.OperationalError:
            if is_indexed(connection):
                raise
            break  # it was taken out meanwhile
        if len(words) == 1:
            break
    return _plain(connection, words, subject, limit, shown)


def _latest(connection: sqlite3.Connection, subject: str | None, limit: int, shown: str, *, hint: bool) -> list[Any]:
    if subject is not None:
        about = f"SELECT {shown} FROM live_memory AS l WHERE subject = ? ORDER BY confirmed_at DESC LIMIT ?"
        return connection.execute(about, (subject, limit)).fetchall()
    if hint:
        latest = f"SELECT {shown} FROM live_memory AS l ORDER BY confirmed_at DESC LIMIT ?"
        return connection.execute(latest, (limit,)).fetchall()
    # The ids come from the index on live facts, which the view of the guide would not take.
    return connection.execute(
        f"SELECT {shown} FROM (SELECT id FROM memory WHERE likelihood(superseded_by IS NULL, 0.95)"
        " AND (expires_at IS NULL OR expires_at > datetime('now')) ORDER BY confirmed_at DESC LIMIT ?) AS newest"
        " CROSS JOIN live_memory AS l ON l.id = newest.id ORDER BY l.confirmed_at DESC",
        (limit,),
    ).fetchall()


def _ranked(connection: sqlite3.Connection, match: str, subject: str | None, limit: int, shown: str) -> list[Any]:
    only = " AND l.subject = ?" if subject is not None else ""
    return connection.execute(
        f"SELECT {shown} FROM memory_text AS t CROSS JOIN memory AS m ON m.rowid = t.rowid"
        f" CROSS JOIN live_memory AS l ON l.id = m.id WHERE memory_text MATCH ?{only} ORDER BY t.rank LIMIT ?",
        (match, *([subject] if subject is not None else []), limit),
    ).fetchall()


def _plain(
    connection: sqlite3.Connection, words: Sequence[str], subject: str | None, limit: int, shown: str
) -> list[Any]:
    """Facts with any of the words as they stand, those with most of them first, then the latest confirmed."""
    patterns = ["%" + re.sub(r"([\\%_])", r"\\\1", word) + "%" for word in words]
    hits = " + ".join(["((l.subject || ' ' || l.fact) LIKE ? ESCAPE '\\')"] * len(words))
    only = " WHERE l.subject = ?" if subject is not None else ""
    return connection.execute(
        f"SELECT {shown} FROM (SELECT *, {hits} AS hits FROM live_memory AS l{only}) AS l WHERE hits > 0"
        " ORDER BY hits DESC, confirmed_at DESC LIMIT ?",
        (*patterns, *([subject] if subject is not None else []), limit),
    ).fetchall()
