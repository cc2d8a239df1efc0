"""The process: killed outright, impersonated by a recycled pid, cut off from its socket, unable to start."""

import os
import re
import shutil
import signal
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path

import psutil
import psycopg
import pytest

from cardbox_cli.errors import DatabaseUnavailable
from cardbox_cli.store.embedded import EmbeddedServer
from cardbox_cli.store.embedded import lifecycle as startup
from cardbox_cli.store.embedded.location import SOCKET_NAME
from tests.store.embedded.helpers import AS_ROOT, give_to_owner_of, has_kept_row, is_gone, servers_of


@pytest.mark.parametrize("whole_family", [False, True], ids=["the postmaster", "all its processes"])
def test_kill_9_loses_no_committed_row(made_home: Path, whole_family: bool) -> None:
    server = EmbeddedServer(made_home)
    with (
        closing(server.connect()),
        closing(server.connect(autocommit=True)) as busy,
        ThreadPoolExecutor() as pool,
    ):
        broken = pool.submit(_be_busy, busy)
        with server.connect() as connection:
            connection.execute("UPDATE kept SET n = 42")
        postmaster = psutil.Process(server.status().pid)
        for victim in [postmaster, *(postmaster.children(recursive=True) if whole_family else [])]:
            # Those that lose their postmaster end by themselves, too.
            with suppress(psutil.NoSuchProcess):
                victim.kill()
        broken.result()
        assert has_kept_row(server)
        assert len(servers_of(server)) == 1


def _be_busy(connection: psycopg.Connection) -> None:
    with pytest.raises(psycopg.OperationalError):
        connection.execute("SELECT pg_sleep(600)")


def test_a_command_waits_for_a_stopping_server(made_home: Path) -> None:
    server = EmbeddedServer(made_home)
    with closing(server.connect()) as idle:
        stopping = server.status().pid
        assert stopping is not None
        os.kill(stopping, signal.SIGTERM)  # stops when its last session ends
        end = threading.Timer(0.5, idle.close)
        end.start()
        assert has_kept_row(server)
        assert server.status().pid != stopping
        end.join()


def test_a_start_that_takes_too_long_is_an_error(made_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(startup, "_TIMEOUT_SECONDS", 0.2)
    server = EmbeddedServer(made_home)
    with server.connect():
        os.kill(server.status().pid or 0, signal.SIGTERM)
        with pytest.raises(DatabaseUnavailable) as caught:
            server.connect()
    assert caught.value.message == (
        "the embedded Postgres does not answer: the database system is shutting down"
    )


def test_a_recycled_pid_does_not_block_a_start(made_home: Path) -> None:
    server = EmbeddedServer(made_home)
    server.start()
    status = server.status()
    locks = {lock: lock.read_text() for lock in (_pid_file(server), status.socket / f"{SOCKET_NAME}.lock")}
    server.stop()
    with _process_of_the_same_account(server) as stranger:
        for lock, text in locks.items():
            lock.write_text(text.replace(str(status.pid), str(stranger.pid), 1))
            give_to_owner_of(status.data, lock)
        assert server.status().pid is None
        assert server.stop() is False
        assert has_kept_row(server)
        assert stranger.poll() is None
        stranger.kill()


def _process_of_the_same_account(server: EmbeddedServer) -> subprocess.Popen[bytes]:
    owner = server.status().data.stat()
    identity = {"user": owner.st_uid, "group": owner.st_gid, "extra_groups": []} if AS_ROOT else {}
    return subprocess.Popen(["sleep", "600"], cwd="/", **identity)


def test_an_empty_pid_file_after_a_crash_does_not_block_a_start(made_home: Path) -> None:
    server = EmbeddedServer(made_home)
    pid_file = _pid_file(server)
    pid_file.touch()
    give_to_owner_of(pid_file.parent, pid_file)
    os.utime(pid_file, (time.time() - 60,) * 2)
    assert has_kept_row(server)


def _pid_file(server: EmbeddedServer) -> Path:
    return server.status().data / "postmaster.pid"


def test_a_deleted_socket_folder_is_created_again(made_home: Path) -> None:
    said: list[str] = []
    server = EmbeddedServer(made_home, announce=said.append)
    server.start()
    cut_off = server.status()
    shutil.rmtree(cut_off.socket)
    assert has_kept_row(server)
    assert said == ["the server is running, but its socket is gone: restarting the server"]
    assert cut_off.pid is not None
    assert is_gone(cut_off.pid)


def test_a_server_that_cannot_start_reports_the_cause(made_home: Path) -> None:
    server = EmbeddedServer(made_home)
    with (server.status().data / "postgresql.conf").open("a") as conf:
        conf.write("max_connections = nonsense\n")
    with pytest.raises(DatabaseUnavailable) as caught:
        server.connect()
    assert caught.value.message.startswith("the embedded Postgres did not start: ")
    assert 'invalid value for parameter "max_connections": "nonsense"' in caught.value.message
    assert caught.value.hint == f"its log is {str(server.status().log)!r}"


def test_a_failed_start_reports_the_fatal_line_of_the_log(made_home: Path) -> None:
    server = EmbeddedServer(made_home)
    shutil.rmtree(server.status().data / "pg_wal")
    with pytest.raises(DatabaseUnavailable) as caught:
        server.connect()
    assert re.search("FATAL: .*pg_wal.* does not exist", caught.value.message)
    assert not re.search(r"\d\d:\d\d:\d\d", caught.value.message)
