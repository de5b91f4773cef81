"""What throwaway servers are made from: Debian images, layers on top of them, and wheels. Built once, then cached.

Everything lies in MEMOPS_TEST_CACHE, each under a name with a hash of what it was made from. A process that uses one
holds a shared lock on it until it ends, so that no other process replaces or removes it meanwhile.

Run as a program it builds all of them: ``python tests/system/images.py [--rebuild]``.
"""

from __future__ import annotations

import argparse
import fcntl
import functools
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from system.sandbox import Sandbox, cache

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT: Final = Path(__file__).resolve().parents[2]
SUITES: Final = {"debian12": "bookworm", "debian13": "trixie"}
PYTHONS: Final = ("3.11", "3.13")
"""The Python of each suite, in the same order."""

PINNED: Final = ("scripts/requirements/command.txt", "scripts/requirements/build.txt")
"""What scripts/install and scripts/deb install, by its hashes."""

PACKAGES: Final = ("systemd", "systemd-sysv", "dbus", "python3", "ca-certificates", "procps", "sudo")
"""What a small fresh VPS has; neither sqlite3 nor python3-venv."""

CERTIFICATES: Final = Path("/etc/ssl/certs/ca-certificates.crt")
SOURCES: Final = (
    "pyproject.toml",
    "README.md",
    "CHANGELOG.md",
    "SECURITY.md",
    "LICENSE",
    "docs",
    "installer",
    "scripts",
    "sql",
    "units",
)
"""What is copied of the checkout when the command is installed on a server."""

DAY: Final = 24 * 3600
_held: dict[Path, int] = {}


class ImageError(Exception):
    """An image could not be built; the text says why."""


def base(suite: str, *, rebuild: bool = False) -> Path:
    """The root directory of a fresh ``debian12`` or ``debian13``. Built anew when older than 14 days."""
    pip = _pip_configuration()
    certificates = CERTIFICATES.read_bytes() if CERTIFICATES.exists() else b""

    def build(target: Path) -> None:
        include = f"--include={','.join(PACKAGES)}"
        run("mmdebstrap", "--quiet", "--variant=minbase", include, SUITES[suite], str(target))
        etc = target / "etc"
        (etc / "hostname").write_text(f"{suite}\n")
        (etc / "hosts").write_text(f"127.0.0.1 localhost\n127.0.1.1 {suite}\n")
        (etc / "pip.conf").write_text(pip)
        if certificates:
            (target / CERTIFICATES.relative_to("/")).write_bytes(certificates)

    key = _hash(suite, *PACKAGES, pip, certificates)
    return _cached(f"base-{suite}-{key}", build, maximum_age=14 * DAY, rebuild=rebuild)


@functools.cache
def with_venv(suite: str) -> tuple[Path, ...]:
    """The layers of a server that has python3-venv, sqlite3 and faketime as well, lowest first."""
    lower = base(suite)
    packages = "python3-venv sqlite3 faketime"

    def build(target: Path) -> None:
        _layer((lower,), target, f"apt-get update -qq && apt-get install -qqy --no-install-recommends {packages}")

    return (lower, _cached(f"venv-{suite}-{_hash(packages, _identity(lower))}", build))


@functools.cache
def with_installers(suite: str) -> tuple[Path, ...]:
    """The layers of a server that has pipx and ansible besides, all from Debian, lowest first."""
    lower = with_venv(suite)
    packages = "pipx ansible-core python3-apt"

    def build(target: Path) -> None:
        _layer(lower, target, f"apt-get update -qq && apt-get install -qqy --no-install-recommends {packages}")

    return (*lower, _cached(f"installers-{suite}-{_hash(packages, *map(_identity, lower))}", build))


@functools.cache
def with_command(suite: str) -> tuple[Path, ...]:
    """The layers of a server on which scripts/install has put the command of this checkout, lowest first."""
    script = "PIP_NO_INDEX=1 PIP_FIND_LINKS=/wheels /source/scripts/install --command-only"
    return _from_source("command", suite, with_venv(suite), script)


@functools.cache
def with_package(suite: str) -> tuple[Path, ...]:
    """The layers of ``with_installers`` and a checkout in /root/memops where scripts/deb has run, lowest first."""
    script = "cp -a /source /root/memops; PIP_NO_INDEX=1 PIP_FIND_LINKS=/wheels /root/memops/scripts/deb"
    return _from_source("package", suite, with_installers(suite), script)


def _from_source(kind: str, suite: str, lower: tuple[Path, ...], script: str) -> tuple[Path, ...]:
    wheels = wheelhouse()
    with tempfile.TemporaryDirectory(prefix="memops-source-") as source:
        copy_source(Path(source))
        key = _hash(script, *map(_identity, (*lower, wheels)), *_contents(Path(source)))

        def build(target: Path) -> None:
            _layer(lower, target, script, f"--bind-ro={wheels}:/wheels", f"--bind-ro={source}:/source")
            for mount_point in ("wheels", "source"):
                (target / mount_point).rmdir()

        return (*lower, _cached(f"{kind}-{suite}-{key}", build, keep_others=DAY))


def wheelhouse(*, rebuild: bool = False) -> Path:
    """A directory of wheels: memops' dependencies, what builds it and what its unit tests need, for every Python.

    Of the first two also what scripts/pin has pinned, which need not be the newest.
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    development = project["dependency-groups"]["dev"]
    wanted = [
        *project["project"]["dependencies"],
        *project["build-system"]["requires"],
        *(line for line in development if line.startswith(("pytest", "hypothesis"))),
    ]

    return _wheels("wheels", wanted, PINNED, rebuild=rebuild)


def pinned(name: str) -> set[str]:
    """What scripts/pin has pinned for the ``command`` or for its ``build``, as NAME==VERSION."""
    text = (ROOT / f"scripts/requirements/{name}.txt").read_text()
    return {line.split()[0] for line in text.splitlines() if line and not line.startswith(("#", " "))}


def installers(*, rebuild: bool = False) -> Path:
    """A directory of wheels: uv, and what pipx puts beside what it installs. ``wheelhouse`` has the rest."""
    return _wheels("installers", ["pip", "setuptools", "uv", "wheel"], rebuild=rebuild)


def _wheels(kind: str, wanted: list[str], pinned: tuple[str, ...] = (), *, rebuild: bool) -> Path:
    def build(target: Path) -> None:
        options = ("--disable-pip-version-check", "--quiet", "--only-binary=:all:", "--dest", str(target))
        for python in PYTHONS:
            run(sys.executable, "-m", "pip", "download", *options, "--python-version", python, *wanted)
            for name in pinned:
                given = ("--require-hashes", "--requirement", str(ROOT / name))
                run(sys.executable, "-m", "pip", "download", *options, "--python-version", python, *given)

    texts = [(ROOT / name).read_bytes() for name in pinned]
    return _cached(f"{kind}-{_hash(*wanted, *PYTHONS, *texts)}", build, maximum_age=14 * DAY, rebuild=rebuild)


def copy_source(target: Path) -> None:
    """Copy what a clean clone has of SOURCES to ``target``."""
    for name in SOURCES:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, target / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        elif source.exists():
            shutil.copy(source, target / name)


def run(*command: str) -> str:
    """Run a program without a terminal and return its output; ImageError holds all it said when it fails."""
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    )
    if done.returncode:
        raise ImageError(f"{' '.join(command)} failed with exit code {done.returncode}:\n{done.stdout}")
    return done.stdout


def _layer(lower: tuple[Path, ...], target: Path, script: str, *nspawn: str) -> None:
    """Run ``script`` on top of ``lower`` and leave what it changed in ``target``."""
    sandbox = Sandbox(lower)
    try:
        log = sandbox.path / "log"
        with log.open("wb") as output:
            options = ("--as-pid2", "--setenv=DEBIAN_FRONTEND=noninteractive", *nspawn)
            process = sandbox.start(*options, "/bin/sh", "-euc", script, output=output)
            if process.wait(timeout=600):
                raise ImageError(f"{script}\nfailed with exit code {process.returncode}:\n{log.read_text()}")
        for name in ("var/cache/apt", "var/lib/apt/lists", "run", "tmp"):
            shutil.rmtree(sandbox.upper / name, ignore_errors=True)
        sandbox.upper.rename(target)
    finally:
        sandbox.remove()


def _cached(
    name: str,
    build: Callable[[Path], None],
    *,
    maximum_age: float = float("inf"),
    rebuild: bool = False,
    keep_others: float = 14 * DAY,
) -> Path:
    """The directory ``name`` in the cache, built beside it and renamed when it is missing or too old.

    Others of its kind that nobody has used for ``keep_others`` seconds are removed.
    """
    path = cache() / name
    if path in _held and not rebuild:
        return path
    lock = _held.get(path) or os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            # Another process builds it, which we wait for, or uses it, which keeps it from being replaced.
            if rebuild:
                raise ImageError(f"{path} is in use by another run, so it cannot be built again now.") from None
            fcntl.flock(lock, fcntl.LOCK_SH)
            if path.exists():
                break
            continue
        if rebuild or not path.exists() or time.time() - path.stat().st_mtime > maximum_age:
            beside = path.with_name(name + ".new")
            _remove(beside)
            build(beside)
            _remove(path)
            os.utime(beside)
            beside.rename(path)
        fcntl.flock(lock, fcntl.LOCK_SH)
        break
    _held[path] = lock
    os.utime(lock)
    _remove_unused(name, keep_others)
    return path


def _remove_unused(name: str, age: float) -> None:
    kind = name.rpartition("-")[0]
    for lock_file in cache().glob(f"{kind}-*.lock"):
        path = lock_file.with_suffix("")
        if path in _held or time.time() - lock_file.stat().st_mtime < age:
            continue
        lock = os.open(lock_file, os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            continue
        else:
            _remove(path)
            _remove(path.with_name(path.name + ".new"))
        finally:
            os.close(lock)


def _remove(path: Path) -> None:
    if path.exists():
        run("rm", "-rf", "--one-file-system", str(path))


@functools.cache
def _pip_configuration() -> str:
    """This machine's pip settings as the text of a pip.conf, without those that name its own files."""
    lines = ["[global]"]
    for line in run(sys.executable, "-m", "pip", "config", "list").splitlines():
        key, _, value = line.partition("=")
        scope, _, option = key.strip().rpartition(".")
        value = value.strip().strip("'\"")
        if scope not in (":env:", "global") or option in ("cert", "find-links", "constraint") or "file:" in value:
            continue
        lines.append(f"{option} = {value}")
    return "\n".join(dict.fromkeys(lines)) + "\n"


def _identity(path: Path) -> str:
    return f"{path.name} {path.stat().st_mtime_ns}"


def _contents(directory: Path) -> list[bytes]:
    parts = []
    for file in sorted(file for file in directory.rglob("*") if file.is_file()):
        parts += [str(file.relative_to(directory)).encode(), oct(file.stat().st_mode).encode(), file.read_bytes()]
    return parts


def _hash(*parts: str | bytes) -> str:
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "big") + data)
    return digest.hexdigest()[:12]


def main() -> int:
    """Build every image; with ``--rebuild`` those that are there as well."""
    parser = argparse.ArgumentParser(description="Build what the throwaway servers are made from.")
    parser.add_argument("--rebuild", action="store_true", help="build again what is there")
    rebuild = parser.parse_args().rebuild

    def prepare(suite: str) -> None:
        base(suite, rebuild=rebuild)
        with_installers(suite)

    try:
        with ThreadPoolExecutor() as pool:
            jobs: list[Future[Any]] = [pool.submit(make, rebuild=rebuild) for make in (wheelhouse, installers)]
            jobs += [pool.submit(prepare, suite) for suite in SUITES]
            for job in jobs:
                job.result()
    except ImageError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
