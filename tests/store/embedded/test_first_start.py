"""First starts: several at once, killed, interrupted, hung up. The next command just works."""

import fcntl
import os
import signal
import threading
from pathlib import Path

import pytest

from cardbox_cli.store.embedded import EmbeddedServer
from tests.crash.processes import until
from tests.store.embedded.helpers import leftovers, servers_of, spawn, value


def test_four_simultaneous_starts_create_one_server(home: Path) -> None:
    code = "print(server.connect().execute('SELECT pg_postmaster_start_time()').fetchone())"
    children = [spawn(home, code) for _ in range(4)]
    outputs = [child.communicate(timeout=120)[0].splitlines() for child in children]
    assert [child.returncode for child in children] == [0] * 4, outputs
    assert len({lines[-1] for lines in outputs}) == 1
    making = [line for lines in outputs for line in lines if "its data is in" in line or "creating" in line]
    assert len(making) == 1, outputs
    assert len(servers_of(EmbeddedServer(home))) == 1


def test_waiting_for_another_start_is_announced(made_home: Path) -> None:
    said: list[str] = []
    with (made_home / "embedded.lock").open("r+") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        release = threading.Timer(1.3, lambda: fcntl.flock(other, fcntl.LOCK_UN))
        release.start()
        EmbeddedServer(made_home, announce=said.append).connect().close()
        release.join()
    assert said == ["waiting for another cbx that is starting the server"]


DIE = "lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)"


@pytest.mark.parametrize(
    "step",
    [
        "Path.replace",
        "Path.rename",
        "files.atomic_write",
        "files.reject_hosts",
        "postgres_process.start",
        "lifecycle.create_database",
    ],
    ids=[
        *("recording", "making a folder", "marking the data", "refusing hosts", "starting"),
        "making the database",
    ],
)
def test_the_next_start_succeeds_after_a_kill_at_any_step(home: Path, step: str) -> None:
    modules = "from cardbox_cli.store.embedded import files, lifecycle, postgres_process"
    code = f"{modules}\n{step} = {DIE}\nserver.connect()"
    with spawn(home, code) as child:
        assert child.wait(120) == -signal.SIGKILL
    _expect_a_sound_start(home)


@pytest.mark.parametrize(
    ("sign", "blow", "whole_group"),
    [
        ("postgres-18.new-*/PG_VERSION", signal.SIGKILL, False),
        ("postgres-18.new-*/PG_VERSION", signal.SIGINT, True),
        ("postgres-18/postmaster.pid", signal.SIGKILL, False),
        ("postgres-18/postmaster.pid", signal.SIGINT, True),
    ],
    ids=["kill in initdb", "Ctrl-C in initdb", "kill in pg_ctl", "Ctrl-C in pg_ctl"],
)
def test_the_next_start_succeeds_after_initdb_or_pg_ctl_is_interrupted(
    home: Path, sign: str, blow: signal.Signals, whole_group: bool
) -> None:
    place = EmbeddedServer(home).status().data.parent
    with spawn(home, "server.connect()") as child:
        until(lambda: next(place.glob(sign), None))
        (os.killpg if whole_group else os.kill)(child.pid, blow)
        child.wait(120)
    _expect_a_sound_start(home)


def _expect_a_sound_start(home: Path) -> None:
    server = EmbeddedServer(home)
    assert value(server, "SELECT current_database()") == "cbx"
    assert len(servers_of(server)) == 1
    assert leftovers(server) == []


def test_the_server_outlives_ctrl_c_and_the_terminal(made_home: Path) -> None:
    code = """
import fcntl, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
server.connect()
# Not print: the signal may come while the line below is being printed.
signal.signal(signal.SIGINT, lambda *_: os.write(1, b"interrupted"))
print("connected", flush=True)
while True:
    time.sleep(1)
"""
    terminal, its_end = os.openpty()
    with spawn(made_home, code, stdin=its_end, stdout=its_end, stderr=its_end) as child:
        os.close(its_end)
        _read_until(terminal, b"connected")
        os.write(terminal, b"\x03")
        _read_until(terminal, b"interrupted")
        os.close(terminal)
        assert child.wait(120) == -signal.SIGHUP
    assert EmbeddedServer(made_home).start() is False


def _read_until(terminal: int, word: bytes) -> None:
    seen = b""
    while word not in seen:
        seen += os.read(terminal, 1000)
