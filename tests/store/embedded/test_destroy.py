"""Destroying removes all that cbx made for a home, and nothing else."""

import json
import tempfile
from pathlib import Path

import pytest

from cardbox_cli.errors import Conflict, DatabaseUnavailable
from cardbox_cli.store.embedded import EmbeddedServer
from tests.store.embedded.helpers import is_gone


def test_destroy_removes_everything_that_cbx_created_in_the_home(home: Path) -> None:
    server = EmbeddedServer(home)
    server.start()
    (home / "mine.txt").touch()
    status = server.status()
    unfinished = Path(tempfile.mkdtemp(prefix="postgres-18.new-", dir=status.data.parent))

    assert server.destroy() == [status.data, status.socket, home / "embedded.json"]
    assert [path.name for path in home.iterdir()] == ["mine.txt"]
    assert not unfinished.exists()
    assert status.data.parent == home or not status.data.parent.exists()
    assert status.pid is not None
    assert is_gone(status.pid)
    assert server.destroy() == []


def test_destroying_a_missing_server_removes_nothing(tmp_path: Path) -> None:
    assert EmbeddedServer(tmp_path / "cbx").destroy() == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("as_link", [False, True])
def test_foreign_data_is_neither_stopped_nor_removed(made_home: Path, tmp_path: Path, as_link: bool) -> None:
    server = EmbeddedServer(made_home)
    server.start()
    precious = tmp_path / "postgres-18"
    if as_link:
        precious.symlink_to(made_home / "postgres-18")
    else:
        precious.mkdir()
        (precious / "PG_VERSION").write_text("18\n")
    record_file = made_home / "embedded.json"
    record = record_file.read_text()
    record_file.write_text(json.dumps({**json.loads(record), "data": str(precious)}))
    with pytest.raises(Conflict) as caught:
        server.destroy()
    assert caught.value.message == (f"{str(precious)!r} does not look like data of cbx; nothing was removed")
    assert precious.exists()
    record_file.write_text(record)
    assert server.start() is False


def test_destroy_is_refused_if_the_record_is_unreadable(made_home: Path) -> None:
    record_file = made_home / "embedded.json"
    record_file.write_text("nonsense")
    with pytest.raises(DatabaseUnavailable, match="cannot be read; nothing was removed"):
        EmbeddedServer(made_home).destroy()
    EmbeddedServer(made_home).start()


def test_a_socket_folder_with_other_files_is_not_removed(made_home: Path) -> None:
    server = EmbeddedServer(made_home)
    server.start()
    more = server.status().socket / "more"
    more.touch()
    assert server.status().socket not in server.destroy()
    assert more.exists()


def test_data_that_cbx_did_not_create_is_not_used(open_home: Path) -> None:
    data = open_home / "postgres-18"
    open_home.mkdir(0o711)
    data.mkdir()
    with pytest.raises(DatabaseUnavailable, match="was not created by cbx"):
        EmbeddedServer(open_home).connect()
    assert list(data.iterdir()) == []
    data.rmdir()
