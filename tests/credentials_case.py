"""Ordinary facts, and facts with a credential in them, made up by chance from a seed: nothing like one is committed.

Shared by the unit tests and ``scripts/bench credentials``. Every credential has the published shape of its kind and
random contents, so none is anybody's.
"""

# ruff: noqa: E501, RUF001, SIM905 - one text a line, in many scripts

from __future__ import annotations

import base64
import json
import string
import uuid
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

LOWER, UPPER, DIGITS = string.ascii_lowercase, string.ascii_uppercase, string.digits
ALNUM = LOWER + UPPER + DIGITS
HEX = "0123456789abcdef"
BASE64 = ALNUM + "+/"
URLSAFE = ALNUM + "-_"

_NAMES = "ada ben chen dina elif farid grace hugo ines jonas kofi lena mara noor olga pavel".split()
_THINGS = "billing search login export import report invoice cart webhook backup deploy staging ingest".split()
_TOOLS = "helix zed vim emacs ripgrep jq tmux fish pnpm uv ruff mypy pytest caddy nginx traefik k3s".split()
_CITIES = "Lisbon Hamburg Kraków Lyon Osaka Tallinn Porto Ghent Brno Malmö Izmir Accra Quito".split()
_HOSTS = "db1 cache web-2 build7 nas pi4 mail vpn edge-eu-1 ci-runner-03".split()


class Maker:
    """Makes texts from a source of chance."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance

    def of(self, letters: str, length: int) -> str:
        """So many characters, at random."""
        return "".join(self.chance.choices(letters, k=length))

    def some(self, letters: str, least: int, most: int) -> str:
        """Between so many characters, at random."""
        return self.of(letters, self.chance.randint(least, most))

    def one(self, *of: str) -> str:
        """One of several texts."""
        return self.chance.choice(of)

    def blob(self, size: int) -> str:
        """Random bytes as base64."""
        return base64.b64encode(self.chance.randbytes(size)).decode()

    def uuid(self) -> str:
        """A random UUID."""
        return str(uuid.UUID(int=self.chance.getrandbits(128), version=4))

    def number(self, least: int, most: int) -> int:
        """A whole number."""
        return self.chance.randint(least, most)

    @property
    def name(self) -> str:
        """Somebody."""
        return self.chance.choice(_NAMES)

    @property
    def thing(self) -> str:
        """Some part of a product."""
        return self.chance.choice(_THINGS)

    @property
    def tool(self) -> str:
        """Some program."""
        return self.chance.choice(_TOOLS)

    @property
    def city(self) -> str:
        """Somewhere."""
        return self.chance.choice(_CITIES)

    @property
    def host(self) -> str:
        """Some machine."""
        return self.chance.choice(_HOSTS)

    @property
    def day(self) -> str:
        """Some day."""
        return f"20{self.number(22, 27)}-{self.number(1, 12):02}-{self.number(1, 28):02}"

    @property
    def semver(self) -> str:
        """Some version."""
        return f"{self.number(0, 30)}.{self.number(0, 40)}.{self.number(0, 20)}"


# What is in a memory every day


def _prose(m: Maker) -> str:
    return m.one(
        f"{m.name.title()} prefers {m.tool} over {m.tool} and wants answers in bullet points.",
        f"The {m.thing} service is owned by {m.name.title()}; ask before changing its schema.",
        f"{m.name.title()} bevorzugt {m.tool} und möchte Antworten auf Deutsch, höchstens {m.number(3, 9)} Sätze.",
        f"Wohnt seit {m.day} in {m.city}, Straßenbahnhaltestelle gleich vor der Tür.",
        f"{m.name.title()} préfère {m.tool} ; les réunions sont le mardi à {m.number(8, 18)} h.",
        f"Vit à {m.city} depuis {m.number(2001, 2026)}, et n'aime pas les réponses trop longues.",
        f"{m.name.title()} prefiere {m.tool} y trabaja desde {m.city} los viernes.",
        f"{m.name.title()} woli {m.tool}, a wdrożenia robi w {m.one('środy', 'czwartki', 'piątki')} po {m.number(9, 17)}.",
        f"{m.name.title()}さんは{m.tool}を使い、返事は日本語がよい。会議は{m.number(1, 12)}月{m.number(1, 28)}日。",
        f"Предпочитает {m.tool}; отвечать кратко, на русском, не более {m.number(2, 9)} предложений.",
        f"{m.name} 喜欢用 {m.tool}，周{m.one('一', '二', '三')}上午开会，版本是 {m.semver}。",
        f"Allergic to {m.one('peanuts', 'penicillin', 'cats')}; birthday {m.day}; lives in {m.city}.",
        f"Deploys of {m.thing} happen on {m.one('Mondays', 'Thursdays')} at {m.number(6, 22)}:30, never on Fridays.",
    )


def _talk_of_secrets(m: Maker) -> str:
    return m.one(
        f"Passwords are kept in {m.one('1Password', 'Bitwarden', 'KeePassXC', 'the vault')}, never in the repository.",
        f"The password policy asks for {m.number(10, 20)} characters and two factors.",
        f"The access token is refreshed every {m.number(5, 60)} minutes by the {m.thing} worker.",
        f"{m.name.title()} wants to be asked before any secret is rotated.",
        f"max_tokens={m.number(1, 64) * 512} and temperature={m.chance.random():.2f} work best for {m.thing}.",
        f"Token budget: {m.number(2, 200)}k per session; the limit of the {m.thing} agent is {m.number(1, 9)}0000 tokens.",
        f"API key: see {m.one('Vault', '1Password')}, path secret/data/{m.thing}/{m.name}.",
        f"The API key of {m.thing} is stored in the {m.one('keyring', 'vault', 'CI settings')} since {m.day}.",
        f'password=os.environ["{m.thing.upper()}_PASSWORD"] is how {m.thing} reads it.',
        f"export API_TOKEN=$(pass show {m.thing}/{m.name}) goes before every {m.tool} run.",
        f"Set DB_PASSWORD=${{{m.thing.upper()}_DB_PASSWORD}} in compose, not the value itself.",
        f"Das Passwort für {m.host} steht im Tresor, Fach {m.number(1, 40)}.",
        f"The JWT has an expiry of {m.number(5, 90)} minutes; the tokenizer is cl{m.number(10, 200)}k_base.",
        f"password: required, at least {m.number(8, 16)} characters, in the form of {m.thing}.",
        f"The private key is in ~/.ssh/id_ed25519_{m.thing}, the public one on {m.host}.",
        f"token_endpoint: https://auth.example.{m.one('org', 'com')}/oauth2/{m.thing}/token",
        f"Secret rotation of {m.thing}: every {m.number(30, 180)} days, next on {m.day}.",
        f"kubectl get secret {m.thing}-tls -n {m.name} -o yaml shows when it was made.",
        f"token = get_token(user_id={m.number(1, 9999)}) fails when {m.host} is down.",
        f"The wifi password is on the card behind the {m.one('router', 'door', 'printer')} in {m.city}.",
    )


def _commands(m: Maker) -> str:
    return m.one(
        f"docker run --rm -it -p {m.number(3000, 9999)}:80 -v $PWD/{m.thing}:/srv ghcr.io/acme/{m.thing}:{m.semver}",
        f"kubectl rollout restart deployment/{m.thing} -n {m.name} && kubectl logs -f pod/{_pod(m)}",
        f"git rebase --onto origin/main {m.of(HEX, 10)} feature/{m.name}-{m.thing}-{m.number(100, 9999)}",
        f"rsync -aHAX --delete /srv/{m.thing}/ {m.name}@{m.host}:/backup/{m.day}/",
        f"ffmpeg -i in.mp4 -c:v libx264 -crf {m.number(18, 30)} -preset slow {m.thing}_{m.number(480, 2160)}p.mkv",
        f"curl -fsSL 'https://{m.host}.example.org:8443/api/v{m.number(1, 4)}/{m.thing}?limit={m.number(1, 500)}' | jq .",
        f"psql -h {m.host} -U {m.name} -c 'SELECT count(*) FROM {m.thing}' {m.thing}_production",
        f"find /var/log -name '*.gz' -mtime +{m.number(7, 90)} -delete; journalctl --vacuum-time={m.number(1, 9)}weeks",
        f"awk -F: '$3 >= {m.number(500, 2000)} {{print $1}}' /etc/passwd lists the people on {m.host}",
        f"pip install 'torch=={m.semver}+cu{m.number(118, 128)}' --index-url https://download.example.org/whl",
        f"ssh -i ~/.ssh/{m.name}_{m.thing} -L {m.number(5000, 9000)}:localhost:5432 {m.name}@{m.host}.example.net",
        f"openssl x509 -in /etc/ssl/{m.thing}.pem -noout -dates; the certificate ends on {m.day}",
        f"sed -i 's#image: .*#image: registry.example.org/{m.thing}:{m.of(HEX, 7)}#' deploy/{m.thing}.yaml",
        f"terraform import aws_s3_bucket.{m.thing}_{m.name} acme-{m.thing}-{m.number(10**11, 10**12 - 1)}",
    )


def _pod(m: Maker) -> str:
    return f"{m.thing}-{m.of('bcdf2456789', 10)}-{m.of('bcdfghjklmnpqrstvwxz2456789', 5)}"


def _hashes(m: Maker) -> str:
    return m.one(
        f"commit {m.of(HEX, 40)} broke the {m.thing} build",
        f"Fixed {m.thing} in {m.of(HEX, 7)}, reverted in {m.of(HEX, 12)}",
        f"sha256 of {m.thing}.iso is {m.of(HEX, 64)}",
        f"md5sum {m.of(HEX, 32)}  {m.thing}-{m.semver}.tar.gz",
        f"The image is pinned: acme/{m.thing}@sha256:{m.of(HEX, 64)}",
        f"SHA-512 {m.of(HEX, 128)} of the {m.thing} archive",
        f"Host key of {m.host}: SHA256:{m.blob(32).rstrip('=')} (ED25519)",
        f"integrity sha512-{m.blob(64)} in package-lock.json for {m.tool}",
        f"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI{m.of(BASE64, 43)} {m.name}@{m.host}",
        f"go.sum: example.org/{m.thing} v{m.semver} h1:{m.blob(32)}",
        f'etag W/"{m.of(HEX, 16)}-{m.of(HEX, 8)}" for /static/{m.thing}.js',
    )


def _ids(m: Maker) -> str:
    crockford = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
    return m.one(
        f"task {m.uuid()} of {m.name} is done",
        f"Fact m_{m.of('0123456789abcdefghjkmnpqrstvwxyz', 10)} replaces m_{m.of('0123456789abcdefghjkmnpqrstvwxyz', 10)}",
        f"Order 01{m.of(crockford, 24)} was shipped to {m.city}",
        f"arn:aws:iam::{m.number(10**11, 10**12 - 1)}:role/{m.thing}-{m.name}",
        f"Instance i-0{m.of(HEX, 16)} in subnet-0{m.of(HEX, 16)}, ami-0{m.of(HEX, 16)}",
        f"Customer cus_{m.of(ALNUM, 14)} has the plan price_1{m.of(ALNUM, 23)}",
        f"Assistant asst_{m.of(ALNUM, 24)} answered in thread_{m.of(ALNUM, 24)}",
        f"The tool call toolu_01{m.of(ALNUM, 22)} failed, request req_{m.of(ALNUM, 24)}",
        f"Request id {m.of(HEX, 32)}, span {m.of(HEX, 16)} on {m.host}",
        f"Pod {_pod(m)} was evicted from {m.host}",
        f"MAC {':'.join(m.of(HEX, 2) for _ in range(6))}, IPv6 2001:db8:{m.of(HEX, 4)}:{m.of(HEX, 4)}::{m.of(HEX, 3)}",
        f"Issue {m.thing.upper()}-{m.number(1, 9999)} and pull request #{m.number(1, 30000)} belong together",
        f"invocation {m.of(HEX, 32)}, machine-id {m.of(HEX, 32)}",
        f"Slack channel C0{m.of(UPPER + DIGITS, 9)}, user U0{m.of(UPPER + DIGITS, 9)}, ts 17{m.of(DIGITS, 8)}.{m.of(DIGITS, 6)}",
    )


def _paths(m: Maker) -> str:
    return m.one(
        f"/home/{m.name}/Projects/{m.thing.title()}App{m.number(1, 9)}/src/components/LoginForm{m.number(1, 9)}.tsx",
        f"Config is ~/.config/{m.tool}/config.toml, notes in ~/Documents/{m.thing}-notes-{m.day}.md",
        f"/var/lib/docker/overlay2/{m.of(HEX, 64)}/merged is full on {m.host}",
        f"C:\\Users\\{m.name}\\AppData\\Local\\Programs\\{m.tool}\\{m.semver}\\bin",
        f"/nix/store/{m.of('0123456789abcdfghijklmnpqrsvwxyz', 32)}-{m.tool}-{m.semver}/bin/{m.tool}",
        f"tests/system/test_{m.thing}_{m.tool}.py::test_{m.thing}_is_{m.name}_and_{m.number(1, 99)}",
        f"s3://acme-{m.thing}/raw/year={m.number(2020, 2026)}/month={m.number(1, 12):02}/part-{m.number(0, 99999):05}.snappy.parquet",
        f"/usr/lib/x86_64-linux-gnu/lib{m.tool}.so.{m.semver} is missing on {m.host}",
        f"/etc/systemd/system/{m.thing}-{m.name}@.service, ReadWritePaths=/srv/{m.thing}",
        f"org.acme.{m.thing}.{m.name}.AbstractSingletonProxyFactoryBean{m.number(1, 99)}Test fails on Java {m.number(8, 25)}",
    )


def _urls(m: Maker) -> str:
    return m.one(
        f"https://docs.example.org/{m.thing}/v{m.number(1, 9)}/guide?utm_source={m.name}&utm_campaign=q{m.number(1, 4)}-{m.thing}",
        f"Design: https://docs.google.com/document/d/1{m.of(URLSAFE, 43)}/edit?usp=sharing",
        f"Video https://www.youtube.com/watch?v={m.of(URLSAFE, 11)}&t={m.number(1, 900)}s about {m.thing}",
        f"https://{m.host}.example.com:{m.number(1024, 65535)}/grafana/d/{m.of(ALNUM, 9)}/{m.thing}?orgId=1&from=now-{m.number(1, 30)}d",
        f"git@git.example.org:acme/{m.thing}.git and https://{m.name}@git.example.org/acme/{m.thing}.git",
        f"https://example.org/list?cursor={m.of(ALNUM, 32)}&page={m.number(1, 99)}&sort=-created_at",
        f"The database is postgres://{m.host}:5432/{m.thing}?sslmode=require, cache redis://{m.host}:6379/{m.number(0, 9)}",
        f"https://www.figma.com/file/{m.of(ALNUM, 22)}/{m.thing.title()}?node-id={m.number(1, 99)}%3A{m.number(1, 999)}",
        f"https://maps.example.com/?q={m.chance.uniform(-90, 90):.6f},{m.chance.uniform(-180, 180):.6f}&z={m.number(3, 19)}",
        f"https://notion.example.so/{m.thing.title()}-{m.name.title()}-{m.of(HEX, 32)}",
        f"mailto:{m.name}@example.org?subject={m.thing.title()}%20{m.day}",
        f"wss://{m.host}.example.net/socket?session={m.uuid()}&v={m.semver}",
    )


def _others(m: Maker) -> str:
    return m.one(
        f"Logo data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAA{m.of(BASE64, 60)} in the header",
        f"The icon begins with iVBORw0KGgoAAAANSUhEUgAA{m.of(BASE64, 40)}",
        f"data:image/jpeg;base64,/9j/4AAQSkZJRgABAQ{m.of(BASE64, 60)}",
        f"Uses Python {m.semver}, node v{m.semver}, {m.tool} {m.semver}-rc.{m.number(1, 9)}+build.{m.number(1, 999)}",
        f"Phone +{m.number(1, 99)} {m.number(100, 999)} {m.number(1000000, 9999999)}, call after {m.number(8, 18)}:00",
        f"Part {m.of(UPPER, 3)}-{m.of(DIGITS, 5)}-{m.of(UPPER + DIGITS, 4)}, serial {m.of(UPPER + DIGITS, 12)}",
        f"IBAN DE{m.of(DIGITS, 2)} {m.of(DIGITS, 4)} {m.of(DIGITS, 4)} {m.of(DIGITS, 4)} {m.of(DIGITS, 2)} of the club in {m.city}",
        f"ISBN 978-{m.number(0, 9)}-{m.of(DIGITS, 3)}-{m.of(DIGITS, 5)}-{m.number(0, 9)} is the book {m.name.title()} reads",
        f"Flight {m.of(UPPER, 2)}{m.number(100, 9999)} to {m.city} on {m.day}, seat {m.number(1, 40)}{m.one('A', 'C', 'F')}, booking {m.of(UPPER + DIGITS, 6)}",
        f"Model claude-sonnet-{m.number(3, 5)}-{m.day.replace('-', '')} for drafts, gpt-{m.number(3, 6)}o-mini for labels",
        f"Colours #{m.of(HEX, 6)} and #{m.of(HEX, 6)}, font-size {m.number(10, 24)}px, z-index {m.number(1, 9999)}",
        f"OnCalendar=Mon..Fri *-*-* {m.number(0, 23):02}:{m.number(0, 59):02}:00 for {m.thing}.timer",
        f"{m.name}.{m.thing}+{m.tool}@example.org is the address for {m.thing}",
        f"Regex ^[A-Za-z0-9_-]{{{m.number(20, 44)}}}$ checks the {m.thing} ids",
        f"GPU: RTX {m.number(2, 5)}0{m.number(6, 9)}0, driver {m.number(400, 600)}.{m.number(10, 99)}, CUDA {m.number(10, 13)}.{m.number(0, 9)}",
        f"CVE-{m.number(2015, 2026)}-{m.number(1000, 49999)} affects {m.tool} below {m.semver}",
        json.dumps({"theme": m.one("dark", "light"), "fontSize": m.number(9, 20), "plugins": [m.tool, m.thing], "rev": m.of(HEX, 8)}),
        f"getUserByIdAndName{m.thing.title()}V{m.number(1, 9)} calls renderHtml5Template{m.number(1, 9)}With{m.name.title()}",
        f"WireGuard public key of {m.host}: {m.blob(32)}",
        f"feature-branch-{m.thing.upper()}-{m.number(100, 9999)}-add-V{m.number(1, 9)}-login-form-for-{m.name}",
    )  # fmt: skip


_KINDS_OF_FACTS: tuple[Callable[[Maker], str], ...] = (
    *(_prose, _prose, _prose, _talk_of_secrets, _commands, _commands, _hashes, _ids, _paths, _urls, _others),
)


def ordinary(chance: random.Random, count: int) -> list[str]:
    """So many different facts without a credential."""
    made: dict[str, None] = {}
    maker = Maker(chance)
    while len(made) < count:
        made[chance.choice(_KINDS_OF_FACTS)(maker)] = None
    return list(made)


# Credentials


def _password(m: Maker) -> str:
    return m.one(
        m.some(ALNUM, 10, 16) + str(m.number(0, 9)),
        m.some(LOWER, 5, 9).title() + m.of(DIGITS, 4) + m.one("!", "?", "#"),
        m.some(LOWER, 4, 8) + m.of(DIGITS, 3),
        m.some(ALNUM + "!$%&+_#,;", 12, 20) + m.of(DIGITS, 1),
        f"{m.thing}-{m.tool}-{m.number(10, 99)}",
    )


def _lines(text: str, most: int = 64) -> str:
    return "\n".join(text[at : at + most] for at in range(0, len(text), most))


def _pem(m: Maker, label: str, size: int, beginning: str = "") -> str:
    return f"-----BEGIN {label}-----\n{_lines(beginning + m.blob(size))}\n-----END {label}-----"


def _segment(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


def _jwt(m: Maker) -> str:
    claims = {"sub": str(m.number(1, 10**9)), "name": m.name, "iat": m.number(1_600_000_000, 1_900_000_000)}
    return f"{_segment({'alg': 'HS256', 'typ': 'JWT'})}.{_segment(claims)}.{m.of(URLSAFE, 43)}"


def _service_account(m: Maker) -> str:
    account = {
        "type": "service_account",
        "project_id": f"{m.thing}-{m.number(1, 999999)}",
        "private_key_id": m.of(HEX, 40),
        "private_key": _pem(m, "PRIVATE KEY", 600) + "\n",
        "client_email": f"{m.name}@{m.thing}.iam.example.com",
    }
    return json.dumps(account)


BARE = ("{v}", "use {v} for {t}", "The key of {t} is {v}.", "`{v}` works on {h}", "export {T}_KEY={v}", "{n}: {v}",
        "Schlüssel für {t}: {v}", '{{"{t}": "{v}"}}', "{t} → {v} (since {d})", "clé de {n} : {v}")  # fmt: skip
"""Ways to write down what shows by itself what it is."""

WHOLE = ("{v}", "in {t}: {v}", "{n} on {h} uses {v} since {d}", "{T}_URL={v}", "curl {v}")

PLANTED: dict[str, tuple[Callable[[Maker], str], tuple[str, ...]]] = {
    "AWS access key": (lambda m: m.one("AKIA", "ASIA") + m.of("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", 16), BARE),
    "AWS secret key": (
        lambda m: m.of(BASE64, 40),
        ("AWS_SECRET_ACCESS_KEY={v}", "aws_secret_access_key = {v}", "AWS secret access key: {v}",
         "aws configure set aws_secret_access_key {v}", "the AWS secret for {t} is {v}", '"SecretAccessKey": "{v}"'),
    ),
    "GCP service account": (_service_account, ("{v}", "gcloud key of {t}: {v}")),
    "GitHub token": (lambda m: m.one("ghp_", "gho_", "ghs_", "ghu_", "ghr_") + m.of(ALNUM, 36), BARE),
    "GitHub fine-grained token": (lambda m: f"github_pat_{m.of(ALNUM, 22)}_{m.of(ALNUM, 59)}", BARE),
    "GitLab token": (lambda m: "glpat-" + m.of(URLSAFE, 20), BARE),
    "Slack token": (
        lambda m: m.one(
            f"xoxb-{m.of(DIGITS, 12)}-{m.of(DIGITS, 13)}-{m.of(ALNUM, 24)}",
            f"xoxp-{m.of(DIGITS, 12)}-{m.of(DIGITS, 12)}-{m.of(DIGITS, 12)}-{m.of(HEX, 32)}",
            f"xapp-1-A{m.of(UPPER + DIGITS, 10)}-{m.of(DIGITS, 13)}-{m.of(HEX, 64)}",
        ),
        BARE,
    ),
    "Slack webhook": (
        lambda m: f"https://hooks.slack.com/services/T{m.of(UPPER + DIGITS, 10)}/B{m.of(UPPER + DIGITS, 10)}/{m.of(ALNUM, 24)}",
        WHOLE,
    ),
    "Stripe key": (lambda m: m.one("sk_live_", "rk_live_", "sk_test_") + m.one(m.of(ALNUM, 24), m.of(ALNUM, 99)), BARE),
    "OpenAI key": (
        lambda m: m.one(
            f"sk-{m.of(ALNUM, 20)}T3BlbkFJ{m.of(ALNUM, 20)}",
            f"sk-proj-{m.of(URLSAFE, 74)}T3BlbkFJ{m.of(URLSAFE, 74)}",
        ),
        BARE,
    ),
    "Anthropic key": (lambda m: f"sk-ant-api03-{m.of(URLSAFE, 93)}AA", BARE),
    "npm token": (lambda m: "npm_" + m.of(ALNUM, 36), (*BARE, "//registry.example.org/:_authToken={v}")),
    "PyPI token": (lambda m: "pypi-AgEIcHlwaS5vcmc" + m.of(URLSAFE, 160), BARE),
    "JWT": (_jwt, (*BARE, "Authorization: Bearer {v}")),
    "PEM private key": (
        lambda m: _pem(m, m.one("RSA PRIVATE KEY", "PRIVATE KEY", "EC PRIVATE KEY", "ENCRYPTED PRIVATE KEY"), 300),
        ("{v}", "key of {h}:\n{v}"),
    ),
    "SSH private key": (
        lambda m: _pem(m, "OPENSSH PRIVATE KEY", 260, "b3BlbnNzaC1rZXktdjEAAAAA"),
        ("{v}", "id_ed25519 of {n}: {v}"),
    ),
    "basic-auth URL": (
        lambda m: f"https://{m.name}:{m.some(ALNUM, 8, 20)}@{m.host}.example.org/{m.thing}",
        (*WHOLE, "git clone {v}"),
    ),
    "database URL": (
        lambda m: (
            f"{m.one('postgres', 'postgresql+asyncpg', 'mysql', 'mongodb+srv', 'amqp', 'redis')}"
            f"://{m.name}:{m.some(ALNUM + '!_', 8, 24)}@{m.host}:5432/{m.thing}"
        ),
        WHOLE,
    ),
    "password": (
        _password,
        ("password: {v}", "DB_PASSWORD={v}", "the wifi password is {v}", "Das Passwort für {t} ist {v}",
         "mot de passe : {v}", "passwd={v}", "{n}'s password is {v}, ask before use", '{{"user": "{n}", "password": "{v}"}}',
         "login {n}, password {v}", "mysqldump --password={v} {t}", "contraseña: {v}", "пароль: {v}", "密码：{v}",
         "the root password of {h} is '{v}'", "{T}_PASS={v}", "pw: {v}"),
    ),
    "bearer token": (
        lambda m: m.some(URLSAFE, 24, 48),
        ("Authorization: Bearer {v}", "curl -H 'Authorization: Bearer {v}' https://{h}.example.org/{t}",
         "header bearer {v}", '"Authorization": "Bearer {v}"', "X-API-Key: {v}"),
    ),
    "Telegram bot token": (
        lambda m: f"{m.number(10**8, 10**10 - 1)}:AA{m.of(URLSAFE, 33)}",
        (*BARE, "https://api.telegram.org/bot{v}/getMe"),
    ),
    "Twilio key": (
        lambda m: "SK" + m.of(HEX, 32),
        ("{v}", "Twilio API key {v}", "twilio auth token = {v}", "TWILIO_API_KEY={v}"),
    ),
    "SendGrid key": (lambda m: f"SG.{m.of(URLSAFE, 22)}.{m.of(URLSAFE, 43)}", BARE),
    "age secret key": (lambda m: "AGE-SECRET-KEY-1" + m.of("QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L", 58), BARE),
    "PGP private key": (
        lambda m: f"-----BEGIN PGP PRIVATE KEY BLOCK-----\n\n{_lines(m.blob(400))}\n=aB3d\n-----END PGP PRIVATE KEY BLOCK-----",
        ("{v}", "gpg key of {n}:\n{v}"),
    ),
    "hex secret": (
        lambda m: m.of(HEX, m.chance.choice((32, 40, 64))),
        ("SECRET_KEY={v}", "{T}_API_KEY={v}", "signing secret: {v}", "encryption_key = '{v}'", 'client_secret: "{v}"',
         "api key for {t}: {v}", "{t} token is {v}", '"apiKey":"{v}"', "webhook secret {v}"),
    ),
    "base64 secret": (
        lambda m: m.blob(m.chance.choice((24, 32, 33, 48))),
        ("SECRET_KEY={v}", "{T}_TOKEN={v}", "signing key: {v}", "encryption_key = '{v}'", 'client_secret: "{v}"',
         "master key of {t}: {v}", "{t} token is {v}", '"accessToken":"{v}"', "AccountKey={v};"),
    ),
}  # fmt: skip
"""kind → what makes one, and the texts it is written down in."""


def planted(chance: random.Random, count: int) -> list[tuple[str, str, str]]:
    """So many facts with a credential, of all kinds alike: kind, fact, and the credential in it."""
    maker, made = Maker(chance), []
    kinds = list(PLANTED)
    for number in range(count):
        kind = kinds[number % len(kinds)]
        make, texts = PLANTED[kind]
        value, text = make(maker), chance.choice(texts)
        words = {"t": maker.thing, "T": maker.thing.upper(), "n": maker.name, "h": maker.host, "d": maker.day}
        made.append((kind, text.format(v=value, **words), value))
    return made
