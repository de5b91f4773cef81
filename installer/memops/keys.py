"""Secrets in files of root's: the URL that is pinged, the keys of servers. Typed once, kept from run to run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from memops import host
from memops.errors import MemopsError, Refused, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from memops.settings import Store


def ping_urls(typed: str | None, name: str, saved: Mapping[str, Store]) -> dict[str, str]:
    """A store's name → the URL it pings: what was typed for ``name`` (empty: none), else what is in root's file."""
    urls = {} if typed is None else {name: typed}
    for store in saved.values():
        if store.ping and store.name not in urls:
            urls[store.name] = _kept(store.ping_file, store.name, "'' to stop pinging", "--ping-url URL")
    return {store: url for store, url in urls.items() if url}


def part_keys(typed: Mapping[str, str], name: str, saved: Mapping[str, Store]) -> dict[str, dict[str, str]]:
    """A store's name → its parts' keys: what was typed for parts of ``name`` (empty: none), else root's files."""
    keys: dict[str, dict[str, str]] = {name: dict(typed)}
    for store in saved.values():
        mine = keys.setdefault(store.name, {})
        for part in store.secrets:
            if part not in mine:
                option = f"--secret {part}=-"
                mine[part] = _kept(store.secret_file(part), store.name, f"--secret {part}= for none", option)
    return {store: {part: key for part, key in mine.items() if key} for store, mine in keys.items()}


def _kept(path: str, name: str, nothing: str, option: str) -> str:
    text = host.read(path)
    if text is None:
        raise Refused(
            f"{path} with a secret is gone.", f"Give it again, or {nothing}: memops install --name {name} {option}"
        )
    return text.strip()


def typed(texts: Iterable[str], ask: Callable[[str], str]) -> dict[str, str]:
    """The keys that ``PART=FILE``, ``PART=-`` and ``PART=`` of --secret stand for: part → key, empty for none.

    ask: asks a person. Raises UsageError, and MemopsError for a file that cannot be read.
    """
    found = {}
    for text in texts:
        part, equals, source = text.partition("=")
        if not equals or not part:
            raise UsageError("--secret takes the name of a part and a file with its key.", "Type: --secret PART=FILE")
        found[part] = ask(f"Key of {part}") if source == "-" else _read(part, source)
        if source and not found[part]:
            raise UsageError(f"--secret {part}: the key is empty.", f"To go without one: --secret {part}=")
    return found


def _read(part: str, source: str) -> str:
    try:
        return Path(source).read_text(encoding="utf-8").strip() if source else ""
    except (OSError, UnicodeDecodeError) as error:
        raise MemopsError(f"--secret {part}: {source} cannot be read.", "Give a file with the key.") from error
