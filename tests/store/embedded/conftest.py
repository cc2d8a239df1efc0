"""Homes for embedded servers. Whatever a test makes of one, it is destroyed with its server.

As root, pytest's folders are closed to the server's account, and `home` keeps its data outside of itself.
"""

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from cardbox_cli.store.embedded import EmbeddedServer
from tests.conftest import roomy_memory
from tests.store.embedded.helpers import OrdinaryUser, keep_row


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """A home that is yet to be made, where pytest puts it."""
    home = tmp_path / "cbx"
    yield home
    EmbeddedServer(home).destroy()


@pytest.fixture
def open_home(open_folder: Path) -> Iterator[Path]:
    """A home that is yet to be made, where every account can reach it."""
    folder = Path(tempfile.mkdtemp(dir=open_folder))
    folder.chmod(0o755)
    home = folder / "cbx"
    yield home
    EmbeddedServer(home).destroy()
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def master_copy(open_folder: Path) -> Path:
    """The home of a stopped server that has kept a row."""
    server = EmbeddedServer(open_folder / "master-copy")
    keep_row(server)
    server.stop()
    return server.home


@pytest.fixture
def made_home(open_home: Path, master_copy: Path) -> Path:
    """The home of a stopped server that has kept a row. Copied, for a first start takes a second or two."""
    subprocess.run(["cp", "-a", master_copy, open_home], check=True)
    return open_home


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedServer]:
    """A running server for tests that leave it as it was."""
    server = EmbeddedServer(tmp_path_factory.mktemp("shared") / "cbx")
    keep_row(server)
    yield server
    server.destroy()


@pytest.fixture(scope="session")
def user() -> Iterator[OrdinaryUser]:
    """An ordinary user with a folder of their own."""
    with tempfile.TemporaryDirectory(prefix="cbx-user-", dir=roomy_memory()) as folder:
        yield OrdinaryUser(Path(folder))
