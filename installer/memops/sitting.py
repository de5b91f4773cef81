"""A person goes through the review queue at a terminal: one key a fact, each verdict carried out at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from memops import fact_text, report, review
from memops.errors import MemopsError, UsageError
from memops.store import Refused, Sources, printable, require_no_credential, require_texts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager

PROMPT = "y still true · r replace · u until · f forget · s skip · h history · q quit · ? help: "

HELP = """\
  y  It is still true: its confirmation is set to now, all else stays.
  r  It is not true any more, but something else is: asks for that and for where you know it from.
  u  It is still true, until a date: asks for it. never takes an end away.
  f  It is not true or not wanted: deletes it with all that it replaced. Shows that first, and asks.
  s  Leave it as it is; it comes again next time.
  h  Show what it replaced, with dates and sources.
  q  Stop here. What was decided so far is done. So it is with Ctrl-C."""


class Screen(Protocol):
    """What a sitting needs of terminal.Terminal."""

    @property
    def width(self) -> int: ...  # noqa: D102
    def say(self, text: str = "") -> None: ...  # noqa: D102
    def key(self, prompt: str) -> str: ...  # noqa: D102
    def line(self, prompt: str) -> str: ...  # noqa: D102
    def held(self) -> AbstractContextManager[None]: ...  # noqa: D102


class Sitting:
    """One sitting over one queue."""

    def __init__(
        self,
        screen: Screen,
        ask: Callable[..., Any],
        by: str,
        today: str,
        tint: Callable[[str, str], str],
        *,
        is_person: bool,
    ) -> None:
        """``ask``: facts.ask for the store. ``by``: who sits here. ``today``: its date. ``tint``: text → coloured.
        ``is_person``: it is surely not the store's agent, whose words would inherit the origin of what they replace.
        """
        self._screen, self._ask, self._by, self._today, self._tint = screen, ask, by, today, tint
        self._is_person = is_person
        self.tally = review.Tally()

    def run(self, queue: Mapping[str, Any]) -> None:
        """Go through the facts of a queue, until its end or until the person has enough."""
        facts, waiting = queue["facts"], queue["waiting"]
        for number, fact in enumerate(facts, 1):
            more = f" ({waiting:,} in the queue)" if waiting > len(facts) else ""
            self._screen.say(f"\n{self._tint(f'{number} of {len(facts)}{more}', 'dim')}")
            for line, tint in review.about(fact, self._screen.width):
                self._screen.say(self._tint(line, tint) if tint else line)
            if not self._decide(fact):
                return

    def _decide(self, fact: dict[str, Any]) -> bool:
        """One fact, until there is a verdict on it. Whether the sitting goes on."""
        verdicts: dict[str, Callable[[fact_text.Fact], dict[str, Any] | None]] = {
            "y": self._still_true,
            "u": self._until,
            "r": self._replace,
            "f": self._forget,
        }
        while True:
            key = self._screen.key(PROMPT)
            try:
                if key in ("q", ""):
                    return False
                if key == "s":
                    self.tally.add("skip")
                    return True
                if key == "h":
                    self._history(fact)
                elif key == "?":
                    self._screen.say(HELP)
                elif key in verdicts and (verdict := verdicts[key](fact)) is not None:
                    self._carry_out(fact, verdict)
                    return True
            except MemopsError as error:
                self._screen.say(self._tint(f"  {error.message}", "red"))
                if error.hint:
                    self._screen.say(f"  {error.hint}")
                if self._has_changed(fact):
                    self._screen.say("  It changed meanwhile, so it is skipped.")
                    self.tally.add("skip")
                    return True

    def _carry_out(self, fact: Mapping[str, Any], verdict: Mapping[str, Any]) -> None:
        given = {"id": fact["id"], "seen": fact["seen"], **verdict}
        with self._screen.held():  # what is done is counted
            (done,) = self._ask("apply", given=[given], by=self._by, terminal=self._is_person)
            self.tally.add(done["verdict"])
        self._screen.say(f"  {self._tint(review.outcome(done), 'green')}")

    def _has_changed(self, fact: Mapping[str, Any]) -> bool:
        try:
            return bool(self._ask("show", id=fact["id"])["fact"]["seen"] != fact["seen"])
        except MemopsError as error:
            return error.exit_code == 3  # it is gone; any other failure says nothing about it

    def _still_true(self, fact: dict[str, Any]) -> dict[str, Any] | None:
        return {"verdict": "confirm"} if self._sure_of_source(fact) else None

    def _until(self, fact: dict[str, Any]) -> dict[str, Any] | None:
        if not self._sure_of_source(fact):
            return None
        while typed := self._screen.line(
            "  Until when? (for example 2027-01-31, friday, 30d, never; empty goes back) "
        ):
            try:
                return {"verdict": "confirm", "expires_at": review.end(typed)}
            except UsageError as error:
                self._screen.say(f"  {error.message} {error.hint}")
        return None

    def _sure_of_source(self, fact: Mapping[str, Any]) -> bool:
        """A fact that no person told is read twice."""
        if review.is_from_person(fact):
            return True
        self._screen.say(self._tint(f"  No person said so. Its source ({fact['class']}):", "red"))
        for label in ("source", "origin"):
            if fact[label] is not None:
                self._screen.say(f"    {printable(fact[label], 6000)}")
        return self._yes("  Have you checked that it is true? y/n ")

    def _replace(self, _fact: dict[str, Any]) -> dict[str, Any] | None:
        text = self._text("fact", "  What is true instead? (empty goes back) ")
        if not text:
            return None
        usual = f"{self._by} at a terminal, {self._today}"
        if Sources().class_of(usual) != "person":  # the user is named like an agent, who types all the same
            usual = f"a person at a terminal, {self._today}"
        source = self._text("source", f"  Where do you know it from? [{usual}] ") or usual
        return {"verdict": "replace", "fact": text, "source": source}

    def _text(self, name: str, prompt: str) -> str:
        """A text that may be stored; empty where nothing was typed."""
        while typed := self._screen.line(prompt):
            try:
                text = require_texts(**{name: typed})[name]
                require_no_credential(**{name: text})
                return text
            except Refused as error:
                self._screen.say(f"  That cannot be stored: {error}. {error.hint}")
        return ""

    def _forget(self, fact: dict[str, Any]) -> dict[str, Any] | None:
        found = self._ask("going", ids=[fact["id"]], only=False, subject=None, user=None)
        behind = [each for each in found["going"] if each["id"] != fact["id"]]
        if behind:
            self._screen.say("  With it goes what it replaced:")
            for each in behind:
                self._screen.say(f"    {printable(each['id'])}  {printable(each['fact'], 200)}")
            if (more := found["count"] - len(found["going"])) > 0:
                self._screen.say(f"    and {more:,} more")
        what = f"all {found['count']:,}" if behind else "it"
        sure = self._yes(f"  Delete {what} for good? y/n ")
        return {"verdict": "forget", "going": found["token"]} if sure else None

    def _yes(self, prompt: str) -> bool:
        return self._screen.key(prompt) == "y"

    def _history(self, fact: dict[str, Any]) -> None:
        found = self._ask("show", id=fact["id"])
        for line in fact_text.tree(found["chain"], self._screen.width):
            self._screen.say(line)
        if found["more"]:
            self._screen.say(f"  and {found['more']:,} more")
        if len(found["chain"]) == 1:
            self._screen.say("  It replaced nothing.")


def coloured(text: str, tint: str) -> str:
    """Text in a colour, where the terminal wants it."""
    import sys

    return report.colour(text, tint, sys.stdout)
