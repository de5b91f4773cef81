"""Servers for this ring, as the system ring has them."""

from system.conftest import (
    pytest_collection_modifyitems,
    pytest_runtest_makereport,
    pytest_sessionstart,
    server,
    suite,
)

__all__ = ["pytest_collection_modifyitems", "pytest_runtest_makereport", "pytest_sessionstart", "server", "suite"]
