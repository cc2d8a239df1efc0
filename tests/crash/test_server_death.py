"""The server's death, and a lost connection, under a command: an ordinary error, nothing half-done, and it can be
run again."""

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from cardbox_cli.store.embedded import EmbeddedServer
from tests.cli.conftest import succeed
from tests.conftest import Result
from tests.crash.harness import Scene, Stage, contents, scene_at_home, value
from tests.crash.processes import until
from tests.crash.test_commands import conversation

MakeStage = Callable[..., Stage]

HINT = "hint: check with `cbx db status` whether it runs, then run the command again\n"


def lost(result: Result, *reasons: str) -> bool:
    """Whether all that a command said is that the database went away, for one of these reasons."""
    told = [f"error: the connection to the database was lost: {reason}\n{HINT}" for reason in reasons]
    return (result.code, result.out) == (7, "") and result.err in told


class TestALostConnection:
    @pytest.mark.parametrize("point", ["copy_incoming sent:1", "insert_incoming:1", "commit:1"])
    def test_an_import_with_a_lost_connection_writes_nothing(self, point: str, stage: MakeStage) -> None:
        command = ("card", "import", "a.json", "--from", "openai")
        with stage(files={"a.json": json.dumps(conversation("a", 300))}).scene() as scene:
            with scene.connection() as connection:
                before = contents(connection)
                with scene.stopped(point, *command) as importing:
                    [(pid, query)] = connection.execute(
                        "SELECT pid, query FROM pg_stat_activity"
                        " WHERE datname = current_database() AND pid <> pg_backend_pid()"
                    ).fetchall()
                    connection.execute("SELECT pg_terminate_backend(%s, 60000)", [pid])
                    importing.go_on()
                    result = importing.result()
            assert ("COPY cbx_incoming" in query) == (point != "commit:1")
            assert lost(result, "terminating connection due to administrator command"), result
            with scene.connection() as connection:
                assert contents(connection) == before
            succeed(scene.run(*command))
            with scene.connection() as connection:
                assert value(connection, "SELECT count(*) FROM cards") == 900


@pytest.fixture(scope="module")
def server(quick_folder: Path) -> Iterator[EmbeddedServer]:
    """A server of its own, that may be killed."""
    server = EmbeddedServer(quick_folder / "doomed")
    yield server
    server.destroy()


@pytest.fixture
def scene(server: EmbeddedServer, tmp_path: Path) -> Scene:
    """A folder where commands run on that server, in a project of their own."""
    scene = scene_at_home(server, tmp_path)
    succeed(scene.run("db", "start"))
    return scene


def kill(server: EmbeddedServer) -> None:
    """Kill the server; returns when all its processes have noticed."""
    pid = server.status().pid
    assert pid is not None
    processes = [psutil.Process(pid), *psutil.Process(pid).children()]
    os.kill(pid, signal.SIGKILL)
    until(lambda: not any(process.is_running() for process in processes))


class TestAKilledServer:
    @pytest.mark.parametrize("point", ["copy_incoming sent:1", "insert_import_boxes:1", "commit:1"])
    def test_an_import_can_be_repeated_after_the_server_is_killed(
        self, point: str, server: EmbeddedServer, scene: Scene
    ) -> None:
        (scene.folder / "a.json").write_text(json.dumps(conversation(scene.folder.name, 20)))
        self._check(server, scene, point, "card", "import", "a.json", "--from", "openai", "-o", "id")

    @pytest.mark.parametrize("point", ["insert_card:1", "commit:1"])
    def test_a_pack_can_be_repeated_after_the_server_is_killed(
        self, point: str, server: EmbeddedServer, packing: Scene
    ) -> None:
        self._check(server, packing, point, *PACK)

    def test_a_command_succeeds_if_the_server_is_killed_after_the_commit(
        self, server: EmbeddedServer, packing: Scene
    ) -> None:
        result = self._struck(server, packing, "committed:1", *PACK)
        assert succeed(packing.run("box", "verify", succeed(result).strip())).endswith("nothing found\n")

    def _check(self, server: EmbeddedServer, scene: Scene, point: str, *command: str) -> None:
        with scene.connection() as connection:
            before = contents(connection)
        result = self._struck(server, scene, point, *command)
        assert lost(
            result,
            "terminating connection due to unexpected postmaster exit",
            "server closed the connection unexpectedly",
        ), result
        server.start()
        with scene.connection() as connection:
            assert contents(connection) == before
        box = succeed(scene.run(*command)).strip()
        assert succeed(scene.run("box", "verify", box)).endswith("nothing found\n")

    def _struck(self, server: EmbeddedServer, scene: Scene, point: str, *command: str) -> Result:
        with scene.stopped(point, *command) as running:
            kill(server)
            running.go_on()
            return running.result()


PACK = ("pack", "-H", "delegate", "-a", "profile_name=clerk", "-a", "instruction=Go on", "-o", "id")


@pytest.fixture
def packing(scene: Scene) -> Scene:
    """Where there is a profile for which to pack."""
    (scene.folder / "clerk.yaml").write_text("name: clerk\n")
    succeed(scene.run("profile", "import", "clerk.yaml"))
    return scene
