"""The one door to the machine: every program memops runs and every file it writes goes through here."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from memops import trees
from memops.errors import MemopsError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True)
class Ran:
    """A program that ended: exit code (negative: the signal that killed it), and what it printed."""

    code: int
    out: str
    err: str

    @property
    def said(self) -> str:
        """The last line that says something, for an error message."""
        lines = [line.strip() for line in (self.err + "\n" + self.out).splitlines() if line.strip()]
        return lines[-1] if lines else f"exit code {self.code}"


def run(program: str, *arguments: str, stdin: str = "", timeout: float = 60, ok: tuple[int, ...] | None = (0,)) -> Ran:
    """Run a program to its end: no terminal, no pager, the C locale, an empty environment otherwise.

    timeout: seconds, then it is killed. ok: the exit codes that are fine (None: any).
    Raises MemopsError, with the program's own words, for another code, a time-out or a missing program.
    """
    with _limited(timeout, (program, *arguments)) as started:
        command = _start((program, *arguments), _in=stdin)
        started.append(command)
        command.wait()
    ran = _ran(command)
    if ok is not None and ran.code not in ok:
        raise MemopsError(f"{program} {' '.join(arguments)} failed: {ran.said}")
    return ran


def ask(program: str, *arguments: str, stdin: str, timeout: float = 60) -> Ran:
    """As ``run`` with any exit code, for commands that a person types often: sh takes a tenth of a second to load."""
    import subprocess

    try:
        ran = subprocess.run(
            [program, *arguments],
            input=stdin.encode(),
            capture_output=True,
            timeout=timeout,
            env={"PATH": PATH, "LC_ALL": "C.UTF-8"},
            check=False,
        )
    except FileNotFoundError:
        raise _missing(program) from None
    except subprocess.TimeoutExpired:
        raise _late((program, *arguments), timeout) from None
    return Ran(ran.returncode, ran.stdout.decode(errors="replace"), ran.stderr.decode(errors="replace"))


def follow(words: Sequence[str], each: Callable[[str], None], timeout: float, most: int) -> Ran:
    """Run a program and hand over each line of its output while it runs.

    timeout: seconds, most: bytes of output; beyond them it is killed. Returns how it ended, with its last line.
    Raises MemopsError for too long a time, too much output or a missing program.
    """
    import subprocess
    import tempfile

    line, size, late = b"", 0, []
    with tempfile.TemporaryFile() as errors:
        environment = {"PATH": PATH, "LC_ALL": "C.UTF-8"}
        try:
            started = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, env=environment
            )
        except FileNotFoundError:
            raise _missing(words[0]) from None

        def stop() -> None:
            late.append(True)
            started.kill()

        limit = threading.Timer(timeout, stop)
        limit.daemon = True
        limit.start()
        with started:
            try:
                while size <= most and started.stdout and (read := started.stdout.readline(most + 1)):
                    line, size = read, size + len(read)
                    each(line.decode(errors="replace"))
                if size > most:
                    started.kill()
            except BaseException:
                started.kill()
                raise
            finally:
                limit.cancel()
        if late:
            raise _late(words, timeout)
        if size > most:
            raise MemopsError(f"{words[0]} printed more than {most >> 20} MB and was stopped.", "Try again.")
        errors.seek(0)
        said = errors.read(1 << 16).decode(errors="replace")
    return Ran(started.returncode, line.decode(errors="replace"), said)


def pipe(source: Sequence[str], sink: Sequence[str], timeout: float = 60) -> tuple[Ran, Ran]:
    """Run two programs, the output of one being the input of the other, which nothing here holds or looks at.

    Returns how both ended, whatever their exit codes. Raises MemopsError for a time-out or a missing program.
    """
    reader, writer = os.pipe()
    with _limited(timeout, source) as started:
        try:
            started.append(_start(source, _in="", _out=writer))
            started.append(_start(sink, _in=reader))
        finally:
            os.close(reader)
            os.close(writer)
        for command in started:
            command.wait()
    first, second = (_ran(command) for command in started)
    return first, second


def _start(words: Sequence[str], **streams: Any) -> Any:
    # Imported here: half of the commands never run a program, and sh takes a while to load.
    import sh

    program, *arguments = words
    environment = {
        "PATH": PATH,
        "LC_ALL": "C.UTF-8",
        "SYSTEMD_COLORS": "0",
        "SYSTEMD_PAGER": "",
        "DEBIAN_FRONTEND": "noninteractive",
    }
    try:
        return sh.Command(program, search_paths=PATH.split(":"))(
            *arguments,
            **streams,
            _env=environment,
            _ok_code=list(range(-64, 256)),
            _tty_out=False,
            _truncate_exc=False,
            _bg=True,
            _bg_exc=False,
        )
    except sh.CommandNotFound:
        raise _missing(program) from None


def _missing(program: str) -> MemopsError:
    return MemopsError(f"The program {program} is not on this machine.", f"Install it: sudo apt-get install {program}")


@contextlib.contextmanager
def _limited(timeout: float, words: Sequence[str]) -> Iterator[list[Any]]:
    """Kill what was started, and is put into the list, when it has not ended in time; raise MemopsError then."""
    # A time limit of sh's own makes every program take a tenth of a second: it asks that often whether it has ended.
    started: list[Any] = []
    late: list[bool] = []

    def stop() -> None:
        late.append(True)
        for command in started:
            command.kill()

    limit = threading.Timer(timeout, stop)
    limit.daemon = True
    limit.start()
    try:
        yield started
    finally:
        limit.cancel()
    if late:
        raise _late(words, timeout)


def _late(words: Sequence[str], timeout: float) -> MemopsError:
    return MemopsError(
        f"{' '.join(words)} did not end within {timeout:.0f} s and was stopped.",
        "Look at what the machine is busy with, and try again.",
    )


def _ran(command: Any) -> Ran:
    return Ran(command.exit_code, command.stdout.decode(errors="replace"), command.stderr.decode(errors="replace"))


def become(program: str, *arguments: str) -> NoReturn:
    """Hand the process over to a program, with the terminal and environment of whoever typed the command."""
    os.execvp(program, [program, *arguments])  # noqa: S606 - nothing of a shell is wanted


def has(program: str) -> bool:
    """Whether a program is on the machine."""
    return shutil.which(program, path=PATH) is not None


@dataclass(frozen=True)
class Entry:
    """What is at a path: kind (``file``, ``directory``, ``link`` or ``other``), permission bits and owner."""

    kind: str
    mode: int
    uid: int
    gid: int


def look(path: str) -> Entry | None:
    """What is at ``path`` itself, links not followed; None when nothing is."""
    try:
        status = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    kinds = {stat.S_IFREG: "file", stat.S_IFDIR: "directory", stat.S_IFLNK: "link"}
    kind = kinds.get(stat.S_IFMT(status.st_mode), "other")
    return Entry(kind, stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid)


def read(path: str) -> str | None:
    """The text of a file; None when it is not there or is not a plain file."""
    content = read_bytes(path)
    return None if content is None else content.decode(errors="surrogateescape")


def read_bytes(path: str, most: int = -1) -> bytes | None:
    """As ``read``, the first ``most`` bytes of it; no link is followed, and no FIFO waited for."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO):
            return None
        raise
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        with open(descriptor, "rb", closefd=False) as file:
            return file.read(most)
    finally:
        os.close(descriptor)


def write(path: str, text: str, mode: int = 0o644) -> None:
    """Write a root-owned file: made beside its place, synced, renamed over what was there. A link there is replaced."""
    with trees.around(path) as (directory, name):
        temporary = f".{name}.{os.urandom(4).hex()}"
        flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(temporary, flags, 0o600, dir_fd=directory)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8", errors="surrogateescape") as file:
                file.write(text)
                file.flush()
                os.fchmod(descriptor, mode)
                os.fsync(descriptor)
            os.rename(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary, dir_fd=directory)
            raise
        os.fsync(directory)


def sync_directory(path: str | Path) -> None:
    """Make the names in a directory durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def reached(path: str) -> Iterator[int]:
    """A descriptor of what is at an absolute path, for looks and for ``/proc/self/fd``; nothing is opened by it.

    No link is followed, neither at its end nor on its way, which others may swap at any time. Raises OSError.
    """
    descriptor = os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        names = [name for name in path.split("/") if name not in ("", ".")]
        for number, name in enumerate(names, 1):
            kind = 0 if number == len(names) else os.O_DIRECTORY
            deeper = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC | kind, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = deeper
        if stat.S_ISLNK(os.fstat(descriptor).st_mode):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
        yield descriptor
    finally:
        os.close(descriptor)


def remove(path: str) -> None:
    """Remove a file or a link; nothing there is fine."""
    with contextlib.suppress(FileNotFoundError), trees.around(path) as (directory, name):
        os.unlink(name, dir_fd=directory)


def make_directory(path: str, mode: int, uid: int, gid: int) -> None:
    """Make one directory, or give an existing one this mode and owner. A link there is not followed."""
    with trees.around(path) as (outer, name):
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, 0o700, dir_fd=outer)
        directory = trees.open_directory(name, outer)
        try:
            os.fchown(directory, uid, gid)
            os.fchmod(directory, mode)
        finally:
            os.close(directory)


def remove_directory(path: str, *, whole: bool = False) -> bool:
    """Remove an empty directory, or with ``whole`` all that is in it too. Says whether it is gone."""
    try:
        with trees.around(path) as (outer, name):
            if whole:
                trees.remove(name, outer)
            else:
                os.rmdir(name, dir_fd=outer)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def file_system(path: str) -> str:
    """The type of the file system that holds ``path`` or its nearest existing parent, as the kernel names it."""
    place = Path(path)
    while not place.exists() and place != place.parent:
        place = place.parent
    real = str(place.resolve())
    best, kind = "", "unknown"
    for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape").splitlines():
        left, _, right = line.partition(" - ")
        point = left.split(" ")[4].encode(errors="surrogateescape").decode("unicode_escape", "surrogateescape")
        inside = real == point or real.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):  # later mounts cover earlier ones at the same point
            best, kind = point, right.split(" ")[0]
    return kind
