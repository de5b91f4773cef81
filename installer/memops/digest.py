"""``memops digest``: the newest digest that the nightly job kept, or one made now."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memops import facts, records

if TYPE_CHECKING:
    from memops.settings import Store


def newest(store: Store) -> dict[str, Any] | None:
    """The newest digest that is kept; None where none ever had a fact. Untrusted. Raises NotPermitted."""
    try:
        kept = records.objects(records.read(f"{store.state}/digests.jsonl") or "")
    except records.NotAllowed:
        raise facts.denied(store) from None
    return next((digest for digest in reversed(kept) if isinstance(digest.get("facts"), list)), None)


def since(store: Store, moment: str) -> dict[str, Any]:
    """The digest from a date on, made now by the store's owner; the nightly one is not changed by it.

    moment: UTC, as a store has its dates. Raises MemopsError.
    """
    found: dict[str, Any] = facts.ask(store, "digest", since=moment)
    return found
