"""A server that somebody stopped stays down for those who were connected; one that crashed is started again."""

import os
import signal
import subprocess
import sys
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from cardbox_cli.errors import DatabaseUnavailable
from cardbox_cli.store.connection.connection_pool import ConnectionPool
from cardbox_cli.store.connection.target import Target
from cardbox_cli.store.embedded import EmbeddedServer
from tests.crash.processes import until
from tests.store.embedded.helpers import REPOSITORY, has_kept_row, is_gone

DOWN = "the embedded Postgres is not running: start it with `cbx db start`"


def test_a_stopped_server_stays_down_and_a_crashed_one_restarts(made_home: Path) -> None:
    server = EmbeddedServer(made_home)
    for _ in range(2):
        with pytest.raises(DatabaseUnavailable) as raised:
            server.reconnect()
        assert raised.value.message == DOWN
        assert not server.status().running
    server.start()
    pid = server.status().pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    until(lambda: is_gone(pid))
    with server.reconnect() as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
    assert server.status().pid not in (None, pid)
    assert has_kept_row(server)


def test_a_worker_waits_for_a_server_that_was_stopped(made_home: Path) -> None:
    server = EmbeddedServer(made_home)
    kept = {name: os.environ[name] for name in ("HOME", "PATH", "PYTHONPATH") if name in os.environ}
    worker = subprocess.Popen(
        [sys.executable, "-m", "cardbox_cli", "worker", "run", "--exec", "true"],
        stderr=subprocess.PIPE,
        text=True,
        cwd=REPOSITORY,
        env={**kept, "CBX_HOME": str(made_home), "CBX_POLL": "1"},
    )
    assert worker.stderr is not None
    try:
        assert "serves worker_generic" in next(line for line in worker.stderr if "serves" in line)
        until(lambda: server.status().running and _has_worker(server))
        assert server.stop()
        assert f"warning: {DOWN}; trying again until it is back" in next(
            line for line in worker.stderr if "trying again" in line
        )
        assert not server.status().running
        server.start()
        assert next(line for line in worker.stderr if "the database is back" in line)
        worker.send_signal(signal.SIGTERM)
        worker.communicate(timeout=120)
        assert worker.returncode == 0
    finally:
        worker.kill()
        worker.wait()


def test_readers_do_not_restart_the_server(made_home: Path) -> None:
    """As `cbx serve` and `cbx mcp` read. Their first connection may start it, as that of any command."""
    server = EmbeddedServer(made_home)
    target = Target(None, "a test", made_home)
    with closing(ConnectionPool(target, most=1, longest=timedelta(seconds=30))) as lending:
        with lending.snapshot():
            pass
        assert server.stop()
        for _ in range(2):
            with pytest.raises(DatabaseUnavailable, match="is not running"), lending.snapshot():
                pass
            assert not server.status().running
        server.start()
        with lending.snapshot() as database:
            assert database.now()


def _has_worker(server: EmbeddedServer) -> bool:
    with server.reach() as connection:
        [known] = connection.execute("SELECT to_regclass('cbx.workers') IS NOT NULL").fetchone() or [False]
        return bool(known) and bool(connection.execute("SELECT FROM cbx.workers").fetchall())
