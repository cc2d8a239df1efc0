"""What some tests need from the operating system, and what to do without it: skip, naming the remedy.

With CBX_TEST_REQUIRE_PACKAGES=1, as in CI, a missing package fails the test instead.
"""

import os
from pathlib import Path

import pytest


def debian_postgres_15() -> Path:
    """The program folder of Debian's PostgreSQL 15."""
    folder = Path("/usr/lib/postgresql/15/bin")
    if not (folder / "postgres").exists():
        missing("Debian's PostgreSQL 15 is not installed: run scripts/install-test-packages")
    return folder


def missing(reason: str) -> None:
    """Skip the running test for `reason`, or fail it where packages are required."""
    if os.environ.get("CBX_TEST_REQUIRE_PACKAGES") == "1":
        pytest.fail(reason)
    pytest.skip(reason)
