"""What looks like a credential is hidden, and what people write every day is not."""

from __future__ import annotations

import random
import string

import pytest

from memops.store import HIDDEN, mask

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
