"""What some tests need from the operating system, and what to do without it: skip, naming the remedy.

With CBX_TEST_REQUIRE_PACKAGES=1, as in CI, a missing package fails the test instead.
"""

import os
import shutil
from pathlib import Path

import pytest


def debian_postgres_15() -> Path:
    """The program folder of Debian's PostgreSQL 15."""
    folder = Path("/usr/lib/postgresql/15/bin")
    if not (folder / "postgres").exists():
        missing("Debian's PostgreSQL 15 is not installed: run scripts/install-test-packages")
    return folder


def program(name: str) -> str:
    """The path of a program that Debian has in a package of the same name."""
    path = shutil.which(name)
    if path is None:
        missing(f"{name} is not installed: run scripts/install-test-packages")
    return str(path)


def axe_core() -> str:
    """The script of axe-core, which finds what keeps people from using a page."""
    script = Path(__file__).parent / "cli" / "pictures" / "node_modules" / "axe-core" / "axe.min.js"
    if not script.exists():
        missing("axe-core is not installed: run scripts/install-test-packages")
    return script.read_text(encoding="utf-8")


def missing(reason: str) -> None:
    """Skip the running test for `reason`, or fail it where packages are required."""
    if os.environ.get("CBX_TEST_REQUIRE_PACKAGES") == "1":
        pytest.fail(reason)
    pytest.skip(reason)
