"""A primary of its own, and a standby that follows it. The databases of these tests are the primary's."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from cardbox_cli.store.embedded import EmbeddedServer
from tests.databases import Databases
from tests.replication.standby import Standby


@pytest.fixture(scope="module")
def primary(open_folder: Path, request: pytest.FixtureRequest) -> Iterator[Databases]:
    databases = Databases(EmbeddedServer(open_folder / f"cbx-home-of-{request.module.__name__}"))
    yield databases
    databases.close()


@pytest.fixture(scope="module")
def standby(primary: Databases, open_folder: Path, request: pytest.FixtureRequest) -> Iterator[Standby]:
    folder = open_folder / f"standby-of-{request.module.__name__}"
    folder.mkdir()
    folder.chmod(0o711)
    made = Standby(primary.server, folder)
    try:
        made.start()
        yield made
    finally:
        made.stop()


@pytest.fixture
def databases(primary: Databases) -> Databases:
    return primary
