"""What looks like a credential is hidden, and what people write every day is not."""

from __future__ import annotations

import json
import random
import re
import string

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import credentials_case
from memops import fact_text, store
from memops.store import HIDDEN, mask, screen
from unit.fact_store import PAST, Case

LETTERS = string.ascii_letters + string.digits
RANDOM = "aB3dE5fG7hI9jK1lM3nO5pQ7"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"key sk-proj-{RANDOM}, for tests", "key sk-proj-[masked], for tests"),
        (f"sk-ant-api03-{RANDOM}", "sk-ant-[masked]"),
        (f"sk_live_{RANDOM}", "sk_live_[masked]"),
        (f"push with ghp_{RANDOM}{RANDOM}.", "push with ghp_[masked]."),
        (f"github_pat_{RANDOM}", "github_pat_[masked]"),
        ("AKIAIOSFODNN7EXAMPLE", "AKIA[masked]"),
        ("xoxb-123456789012-abcdefghijkl", "xoxb-[masked]"),
        ("hf_abcdefghijklmnopqrstuvwx", "hf_[masked]"),
        ("a eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl b", "a eyJ[masked] b"),
        ("-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNz\n-----END OPENSSH PRIVATE KEY----- and on",
         "-----BEGIN OPENSSH PRIVATE KEY-----[masked] and on"),
        ("-----BEGIN PRIVATE KEY-----\nMIIE cut off", "-----BEGIN PRIVATE KEY-----[masked]"),
        ("the database is postgres://ada:p@ss:word@db.example/x", "the database is postgres://ada:[masked]@db.example/x"),
        ("redis://:hunter@localhost:6379", "redis://:[masked]@localhost:6379"),
        ("password: hunter2", "password: [masked]"),
        ("Password: swordfish", "Password: [masked]"),
        ("DB_PASSWORD=swordfish and more", "DB_PASSWORD=[masked] and more"),
        ("the wifi password is hunter2.", "the wifi password is [masked]"),
        ("Das Passwort ist geheim123", "Das Passwort ist [masked]"),
        ('{"token": "abc def", "n": 1}', '{"token": [masked], "n": 1}'),
        ("api_key='x y'", "api_key=[masked]"),
        ("api key: 0123456789abcdef0123456789abcdef", "api key: [masked]"),
        ("secret := s3cret; next", "secret := [masked]; next"),
        ("curl -H 'Authorization: Bearer abc.def-ghi_jkl'", "curl -H 'Authorization: Bearer [masked]'"),
        ("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY1x2", "[masked]"),
        (f"it is {RANDOM}!", "it is [masked]!"),
        (f"{RANDOM}_-{RANDOM}==", "[masked]"),
        ("k4j2h5g1k3j6h7g8f9d2s1", "[masked]"),
    ],
)  # fmt: skip
def test_hidden(text: str, shown: str) -> None:
    assert mask(text) == shown


@pytest.mark.parametrize(
    "text",
    [
        "prefers pnpm, and the database is Postgres 15",
        "commit 4d67ac2f1b0e9c8d7a6b5c4d3e2f1a0b9c8d7e6f broke the build",
        "sha256 e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        "task 123e4567-e89b-12d3-a456-426614174000",
        "the password is kept in the vault",
        "password: see the vault",
        "tokens: the limit is 200000",
        "asks for a token each morning",
        "the secret is patience",
        "export API_KEY=$KEY, or TOKEN=<yours>",
        "https://example.org:8443/path?x=1 and mail to ada@example.org",
        "see http://host:80/a@b",
        "/home/ada/Projects/MyApp2/src/components/LoginForm2.tsx",
        "feature-branch-JIRA-1234-add-V2-login-form",
        "getUserByIdAndNameVersion2",
        "memory-prune-work.timer on 2026-11-30T22:44:30Z",
        "01ARZ3NDEKTSV4RRFFQ69G5FAV",
        "=" * 60 + "-" * 60 + "_" * 60,
        "Donaudampfschifffahrtsgesellschaftskapitän",
        "the task-switching of risk-averse people, disk-encryption-and-more",
        "m_0191", "", "ünïcödé → 🙂",
    ],
)  # fmt: skip
def test_left_alone(text: str) -> None:
    assert mask(text) == text


def test_random_words_are_found() -> None:
    chance = random.Random(5)
    words = ["".join(chance.choices(LETTERS, k=40)) for _ in range(500)]
    found = [word for word in words if mask(f"it is {word} here") == f"it is {HIDDEN} here"]
    assert len(found) > 480


def test_it_takes_no_long_time_for_any_text() -> None:
    for piece in ("password", "a-", "eyJ", "-----BEGIN ", "sk-", "x://", ":", "password is ", "Bearer ", "aB3"):
        mask(piece * 20_000)
    # Names whose value is none each time, up to the end of the text.
    for piece in ("token=$", "password:$", 'secret="', "token is ", "key=x-", f"{RANDOM} http://a/", f"/{RANDOM}"):
        mask(piece * 4_000)


def test_a_value_is_masked_to_its_end() -> None:
    for length in (300, 399, 401, 1000, 5000, 50_000):
        value = "x1,y;" * (length // 5) + "end"
        assert mask(f"password={value} and more") == "password=[masked] and more"
    assert mask(f'password="{"a b " * 900}" and more') == "password=[masked] and more"


def test_rates() -> None:
    ordinary = credentials_case.ordinary(random.Random(21), 500)
    planted = credentials_case.planted(random.Random(22), 8 * len(credentials_case.PLANTED))
    assert len(credentials_case.PLANTED) >= 20
    alarms = [text for text in ordinary if screen(text)[1]]
    assert len(alarms) < 5, alarms
    missed = [(kind, text) for kind, text, _ in planted if not screen(text)[1]]
    assert len(missed) <= len(planted) // 20, missed


STAYS = {
    "AWS access key": 4,
    "GitHub token": 4,
    "GitHub fine-grained token": 11,
    "GitLab token": 6,
    "Slack token": 7,
    "Slack webhook": 33,
    "Stripe key": 8,
    "OpenAI key": 8,
    "Anthropic key": 7,
    "npm token": 4,
    "PyPI token": 5,
    "JWT": 3,
    "Telegram bot token": 11,
    "Twilio key": 2,
    "SendGrid key": 3,
    "age secret key": 16,
}
"""How much of a credential's beginning may stay, which says whose it is."""


@given(seed=st.integers(0, 1 << 40), kind=st.sampled_from(list(credentials_case.PLANTED)))
@settings(max_examples=300)
def test_no_piece_of_a_credential_stays(seed: int, kind: str) -> None:
    maker = credentials_case.Maker(random.Random(seed))
    make, texts = credentials_case.PLANTED[kind]
    secret = make(maker)
    text = maker.one(*texts).format(v=secret, t="thing", T="THING", n="somebody", h="machine", d="2026-12-01")
    shown, kinds = screen(text)
    if not kinds:  # how often that may be is in test_rates
        assert kind in ("password", "bearer token", "base64 secret", "AWS secret key"), text
        return
    if kind == "GCP service account":
        secret = json.loads(secret)["private_key"]
    elif kind in ("basic-auth URL", "database URL"):
        secret = secret.split("://")[1].rpartition("@")[0].split(":", 1)[1]
    for part in re.sub("-----[A-Z ]+-----", "", secret[STAYS.get(kind, 0) :]).split("\n"):
        pieces = {part[at : at + 8] for at in range(max(1, len(part) - 7))} - {""}
        assert not [piece for piece in pieces if len(piece) > 4 and piece in shown], (text, shown)


@given(st.text(max_size=300))
def test_what_is_masked_once_is_masked(text: str) -> None:
    once, kinds = screen(text)
    assert bool(kinds) == (once != text)
    assert once.count(HIDDEN) == text.count(HIDDEN) + len(kinds)


def test_every_name_of_a_value_has_its_stem() -> None:
    words = ["passphrase", "pwd", "pw", "DB_PASS", "kennwort", "contraseña", "senha", "mot de passe", "wachtwoord"]
    words += [
        "hasło",
        "пароль",
        "密码",
        "密碼",
        "パスワード",
        "secret",
        "token",
        "credential",
        "api key",
        "account key",
    ]
    words += [f"{name} key" for name in ("access", "private", "signing", "master", "session", "service")]
    for word in words:
        assert screen(f"{word}: Zu7eN2qLp9Xw")[1], word


def test_a_refusal_says_where_and_what_but_not_more(case: Case) -> None:
    key = f"ghp_{RANDOM}{RANDOM}"
    good = case.remember("Uses Helix")
    given = {"subject": "s", "fact": "f", "source": "chat 1"}
    more = {"expires_at": None, "replaces": None, "terminal": True, "by": "test"}
    for field in given:
        said = case.refused("remember", **{**given, field: f"about {key}"}, **more)
        assert f"the {field} holds what looks like a credential (GitHub token)" in said
        assert "--allow-secret REASON" in said
        assert RANDOM not in said
    verdict = {"id": good, "verdict": "replace", "fact": f"with {key}", "source": "chat 2"}
    said = case.refused("apply", given=[{"id": good, "verdict": "confirm"}, verdict], by="test", terminal=True)
    assert said.startswith(f"{good}: the fact holds")
    with store.Memory(case.path) as memory:
        with pytest.raises(store.Refused, match="looks like a credential"):
            memory.remember("s", f"password: {RANDOM}", source="chat 1")
        assert memory.remember("s", f"password: {RANDOM}", source="chat 1", allow_secret=True)


def test_a_reason_is_on_record_without_the_text(case: Case) -> None:
    for reason in ("", " ", "x" * 201, "a\nb", f"because {RANDOM}"):
        assert "needs a reason" in case.refused(
            "remember", subject="s", fact=RANDOM, source="chat 1", expires_at=None, replaces=None, terminal=False,
            by="test", allow_secret=reason,
        )  # fmt: skip
    order = case.remember(f"order {RANDOM}", allow_secret="the number of an order")  # noqa: S106
    (done,) = case.apply(
        {"id": order, "verdict": "replace", "fact": f"now {RANDOM}", "source": "chat 2", "allow_secret": "another one"}
    )
    # Nothing to allow, nothing to say.
    case.remember("plain", allow_secret="who knows")  # noqa: S106
    record = (case.state / "verdicts.jsonl").read_text()
    assert RANDOM not in record
    lines = [json.loads(line) for line in record.splitlines()]
    assert [(line["verdict"], line["allowed"]["reason"]) for line in lines] == [
        ("remember", "the number of an order"),
        ("replace", "another one"),
    ]
    # Not masked, and no warning; until it says something else.
    new = done["new"]["id"]
    found = {
        fact["id"]: fact for fact in case.ask("list", which="live", subject=None, source_class=None, limit=9)["facts"]
    }
    assert (found[new]["fact"], found[new]["allowed"]) == (f"now {RANDOM}", "another one")
    case.run("UPDATE memory SET fact = ? WHERE id = ?", f"ghp_{RANDOM}", new)
    fact = case.ask("show", id=new)["fact"]
    assert fact["secrets"] == [{"column": "fact", "kind": "GitHub token"}]


def test_where_facts_are_listed_they_are_masked(case: Case) -> None:
    key = f"ghp_{RANDOM}"
    old = case.remember("a")
    new = case.remember("b", replaces=old)
    for name in (old, new):
        case.run(
            "UPDATE memory SET fact = ?, source = ?, confirmed_at = ? WHERE id = ?", key, f"chat {key}", PAST, name
        )
    asked = {
        "list": case.ask("list", which="all", subject=None, source_class=None, limit=9),
        "queue": case.ask("queue", older_than=1, limit=9, unused=False),
        "unused": case.ask("list", which="live", subject=None, source_class=None, limit=9),
        "going": case.ask("going", ids=[new], only=True, subject=None, user=None),
        "chain": case.ask("show", id=old)["chain"],
        "confirm": case.apply({"id": new, "verdict": "confirm"}),
    }
    for name, answer in asked.items():
        text = json.dumps(answer)
        assert RANDOM not in text, name
        assert "ghp_[masked]" in text, name
    recalled = case.ask("recall", query="", subject=None, limit=5, max_chars=None)
    assert key in recalled["block"]
    for fact in (recalled["facts"][0], case.ask("show", id=new)["fact"]):
        assert fact["fact"] == key
        assert {each["column"] for each in fact["secrets"]} >= {"fact", "source"}
        assert RANDOM not in fact_text.warning(fact)
