"""What only Debian and its kin have: apt. Elsewhere memops says what to type."""

from __future__ import annotations

from functools import cache

from memops import host
from memops.errors import MemopsError


def can_install() -> bool:
    """Whether this machine has apt."""
    return host.has("apt-get")


def install(package: str) -> str:
    """Install one package, waiting for apt's lock, and return "" or one line that says why it could not be."""
    options = ("-o", "DPkg::Lock::Timeout=300", "--quiet", "--yes", "--no-install-recommends")
    try:
        first = host.run("apt-get", *options, "install", package, timeout=900, ok=None)
        if first.code == 0:
            return ""
        # A fresh server has no package lists yet.
        host.run("apt-get", *options, "update", timeout=600, ok=None)
        second = host.run("apt-get", *options, "install", package, timeout=900, ok=None)
    except MemopsError as error:
        return error.message
    return "" if second.code == 0 else second.said


@cache
def sqlite_version() -> str:
    """The version of the SQLite library that Debian's programs use; empty where there is none."""
    if not host.has("dpkg-query"):
        return ""
    ran = host.run("dpkg-query", "--show", "--showformat=${Version}", "libsqlite3-0", ok=None)
    return ran.out.partition("-")[0].rpartition(":")[2].partition("+")[0] if ran.code == 0 else ""
