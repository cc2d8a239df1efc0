"""Stages on the server of the tests, and folders for servers of their own."""

import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import roomy_memory
from tests.crash.harness import Stage
from tests.databases import Databases


@pytest.fixture
def stage(databases: Databases, tmp_path: Path) -> Iterator[Callable[..., Stage]]:
    """Make a stage; the options are those of `Stage`."""
    made = []

    def make(**options: Any) -> Stage:
        made.append(Stage(databases, tmp_path, **options))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture(scope="session")
def quick_folder() -> Iterator[Path]:
    """A folder that every account can enter, in memory where there is room: making a server is writing files."""
    with tempfile.TemporaryDirectory(prefix="cbx-crash-", dir=roomy_memory()) as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)
