"""Homes of all sorts: default, moved, oddly named, long, unusable; and records that are lost or broken."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from cardbox_cli.errors import DatabaseUnavailable
from cardbox_cli.home import default_home
from cardbox_cli.store.embedded import EmbeddedServer
from cardbox_cli.store.embedded.location import SYSTEM_FOLDER
from tests.store.embedded.helpers import (
    PRELUDE,
    REPOSITORY,
    OrdinaryUser,
    has_kept_row,
    keep_row,
    only_as_root,
    psql,
    value,
)


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"CBX_HOME": "/srv/cbx", "HOME": "/h"}, "/srv/cbx"),
        ({"CBX_HOME": "", "HOME": "/h"}, "/h/.local/share/cbx"),
        ({"CBX_HOME": "", "XDG_DATA_HOME": "", "HOME": "/h"}, "/h/.local/share/cbx"),
        ({"XDG_DATA_HOME": "/x", "HOME": "/h"}, "/x/cbx"),
        ({"XDG_DATA_HOME": "relative", "HOME": "/h"}, "/h/.local/share/cbx"),
        ({"HOME": "/h"}, "/h/.local/share/cbx"),
    ],
)
def test_the_default_home_follows_the_environment(environ: dict[str, str], expected: str) -> None:
    assert default_home(environ) == Path(expected)


def test_a_relative_home_is_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert default_home({"CBX_HOME": "here/../box"}) == tmp_path / "box"


@pytest.mark.parametrize("name", ['it\'s "my" $HOME `id` %2F%s größer\t\\', "a,b"])
def test_a_home_with_special_characters_in_its_name_works(open_home: Path, name: str) -> None:
    server = EmbeddedServer(open_home.parent / name)
    try:
        assert value(server, "SELECT 1") == 1
        assert psql(server, "SELECT 1") == "1"
        assert server.stop()
    finally:
        assert server.destroy()


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"data": 1}', None])
def test_a_lost_or_broken_record_loses_no_data(shared: EmbeddedServer, text: str | None) -> None:
    record = shared.home / "embedded.json"
    if text is None:
        record.unlink()
    else:
        record.write_text(text)
    assert has_kept_row(shared)
    assert json.loads(record.read_text())["major"] == 18


def test_a_record_that_is_not_a_file_is_reported(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    os.mkfifo(tmp_path / "embedded.json")
    with pytest.raises(DatabaseUnavailable, match="named pipe"):
        EmbeddedServer(tmp_path).status()


def test_a_moved_home_keeps_its_server(made_home: Path) -> None:
    EmbeddedServer(made_home).start()
    moved = made_home.with_name("elsewhere")
    made_home.rename(moved)
    server = EmbeddedServer(moved)
    assert has_kept_row(server)
    server.stop()
    assert has_kept_row(server)
    assert server.destroy()[0] == moved / "postgres-18"


@only_as_root
def test_a_moved_home_without_its_data_is_refused(home: Path) -> None:
    keep_row(EmbeddedServer(home))
    moved = home.with_name("elsewhere")
    home.rename(moved)
    for act in (EmbeddedServer(moved).connect, EmbeddedServer(moved).destroy):
        with pytest.raises(DatabaseUnavailable, match=r"was moved or copied from .*, but its data is in "):
            act()
    moved.rename(home)
    assert has_kept_row(EmbeddedServer(home))


LONG = "long-" * 20


@pytest.mark.parametrize("variable", ["XDG_RUNTIME_DIR", "TMPDIR"])
def test_a_home_with_a_long_path_has_its_socket_elsewhere(user: OrdinaryUser, variable: str) -> None:
    short = user.make_folder(variable)
    code = """
server.connect().close()
print(server.status().socket, server.status().running)
print(server.destroy()[1])
"""
    _, used, removed = user.run(user.folder / LONG / variable, code, **{variable: str(short)}).splitlines()
    assert re.fullmatch(rf"{short}/cbx-{user.uid}-[0-9a-f]{{12}} True", used)
    assert used == f"{removed} True"
    assert list(short.iterdir()) == []


def test_the_socket_is_in_tmp_if_temporary_paths_are_long_too(user: OrdinaryUser) -> None:
    temporary = user.make_folder(f"{LONG}tmp")
    code = """
server.connect().close()
print(server.status().socket, server.status().running)
server.destroy()
"""
    _, used = user.run(temporary / "cbx", code, TMPDIR=str(temporary)).splitlines()
    assert re.fullmatch(rf"/tmp/cbx-{user.uid}-[0-9a-f]{{12}} True", used)
    assert not Path(used.split()[0]).exists()


@only_as_root
def test_root_keeps_the_socket_of_a_long_home_in_the_system_folder(open_home: Path) -> None:
    server = EmbeddedServer(open_home / LONG)
    try:
        assert value(server, "SELECT 1") == 1
        status = server.status()
        assert status.data.is_relative_to(open_home)
        assert status.socket.is_relative_to(SYSTEM_FOLDER)
    finally:
        server.destroy()
    assert not status.socket.parent.exists()


@pytest.mark.parametrize(
    ("trap", "complaint"),
    [
        ("os.symlink('/tmp', folder)", "is a symbolic link"),
        ("open(folder, 'w').close()", "is not a folder"),
        ("os.mkdir(folder); os.chmod(folder, 0o755)", "is accessible to other users (mode 0755)"),
    ],
    ids=["link", "file", "open"],
)
def test_an_unsafe_socket_folder_is_refused(
    user: OrdinaryUser, trap: str, complaint: str, request: pytest.FixtureRequest
) -> None:
    case = request.node.callspec.id
    code = f"""
from cardbox_cli.errors import DatabaseUnavailable
folder = server.status().socket
{trap}
try:
    server.connect()
except DatabaseUnavailable as exc:
    print(exc.message)
"""
    output = user.run(user.folder / LONG / case, code, TMPDIR=str(user.make_folder(case)))
    assert output.startswith("the folder for the server's socket, ")
    assert output.endswith(f"{complaint}\n")


@only_as_root
def test_a_socket_folder_of_another_user_is_refused(open_home: Path) -> None:
    open_home.mkdir(0o711)
    (open_home / "socket").mkdir(0o700)
    with pytest.raises(DatabaseUnavailable, match=r"/socket', belongs to uid 0, not to ") as caught:
        EmbeddedServer(open_home).connect()
    assert caught.value.hint == "remove it if it is yours, or set CBX_HOME to another folder"


def test_a_home_that_is_a_file_is_refused(tmp_path: Path) -> None:
    home = tmp_path / "cbx"
    home.touch()
    server = EmbeddedServer(home)
    with pytest.raises(DatabaseUnavailable) as caught:
        server.connect()
    assert caught.value.message == f"cannot keep a database in {str(home)!r}: it is not a folder"
    assert not server.status().running
    assert server.destroy() == []


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o755, 0o704])
def test_a_home_that_other_users_can_access_is_refused(tmp_path: Path, mode: int) -> None:
    home = tmp_path / "cbx"
    home.mkdir()
    home.chmod(mode)
    with pytest.raises(DatabaseUnavailable) as caught:
        EmbeddedServer(home).connect()
    assert caught.value.message.endswith(
        f"other users can access it (mode {mode:04o}); run `chmod 700` on it"
    )
    assert list(home.iterdir()) == []


def test_a_home_that_is_a_symbolic_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir(0o700)
    (tmp_path / "cbx").symlink_to("real")
    with pytest.raises(DatabaseUnavailable, match="it is a symbolic link; set CBX_HOME to the folder"):
        EmbeddedServer(tmp_path / "cbx").connect()
    assert list((tmp_path / "real").iterdir()) == []


@only_as_root
def test_the_home_of_another_user_is_refused(user: OrdinaryUser) -> None:
    home = user.make_folder("of root")
    os.chown(home, 0, 0)
    home.chmod(0o711)
    code = """
from cardbox_cli.errors import DatabaseUnavailable
try:
    server.connect()
except DatabaseUnavailable as exc:
    print(exc.message)
"""
    assert "it belongs to uid 0, not to you" in user.run(home, code)


def test_a_home_that_cannot_be_created_is_refused() -> None:
    with pytest.raises(DatabaseUnavailable, match="cannot keep a database in '/proc/cbx': ") as caught:
        EmbeddedServer(Path("/proc/cbx")).connect()
    assert str(caught.value.hint).startswith("set CBX_HOME to a writable folder")


@pytest.mark.parametrize(
    ("mode", "complaint"),
    [
        (0o500, "cannot keep a database in '{home}': Permission denied ({home}/embedded.lock)"),
        (0o000, "cannot read '{home}/embedded.json': Permission denied"),
    ],
    ids=["read-only", "closed"],
)
def test_a_home_with_wrong_permissions_is_refused(user: OrdinaryUser, mode: int, complaint: str) -> None:
    home = user.make_folder(f"mode-{mode:o}")
    home.chmod(mode)
    code = """
from cardbox_cli.errors import DatabaseUnavailable
try:
    server.connect()
except DatabaseUnavailable as exc:
    print(exc.message)
"""
    assert user.run(home, code) == complaint.format(home=home) + "\n"


@only_as_root
def test_a_full_disk_is_reported_and_leaves_no_files(tmp_path: Path) -> None:
    """On a small disk of its own, mounted where only the child sees it."""
    mount = f'mount -t tmpfs -o size=8m,mode=755 tmpfs {SYSTEM_FOLDER.parent} && exec "$@"'
    code = f"""{PRELUDE}
from cardbox_cli.errors import DatabaseUnavailable
try:
    server.connect()
except DatabaseUnavailable as exc:
    print(exc.message)
    print(list(Path({str(SYSTEM_FOLDER)!r}).glob("*/*.new-*")))
"""
    command = ["unshare", "--mount", "sh", "-c", mount, "sh", sys.executable, "-c", code, tmp_path / "cbx"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=REPOSITORY)
    if re.search("unshare failed|mount:", done.stderr):
        pytest.skip(f"no disk can be mounted here: {done.stderr}")
    # Its programs are copied there first where this checkout is closed to the account that it runs as.
    words = r"the embedded Postgres cannot (create its data in|copy its programs to) '[^']+': .*No space left on device"
    assert re.search(words, done.stdout), done.stdout + done.stderr
    assert done.stdout.endswith("\n[]\n")
