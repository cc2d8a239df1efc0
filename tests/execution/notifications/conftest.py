"""A real nats-server with JetStream for each session, and one of its own for tests that stop it."""

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.packages import program

PATIENCE = 120


class NatsServer:
    """Debian's nats-server in a folder of its own. It keeps its port when it is started again."""

    def __init__(self, folder: Path, *options: str, jetstream: bool = True) -> None:
        self._folder = folder
        self._options = (*options, *(("-js", "-sd", str(folder)) if jetstream else ()))
        self.port = -1
        self._process: subprocess.Popen[bytes] | None = None
        try:
            self.start()
        except BaseException:
            self.stop()
            raise

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    def start(self) -> None:
        ports = self._folder / "ports"
        ports.mkdir(exist_ok=True)
        with open(self._folder / "log", "ab") as log:
            self._process = subprocess.Popen(
                [
                    *(program("nats-server"), "-a", "127.0.0.1", "-p", str(self.port)),
                    *("--ports_file_dir", str(ports), *self._options),
                ],
                stdout=log,
                stderr=log,
            )
        file = ports / f"nats-server_{self._process.pid}.ports"
        deadline = time.monotonic() + PATIENCE
        while not file.exists() or not file.read_text():
            assert self._process.poll() is None, (self._folder / "log").read_text()
            assert time.monotonic() < deadline, "nats-server does not come up"
            time.sleep(0.005)
        self.port = int(json.loads(file.read_text())["nats"][0].rpartition(":")[2])

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


@pytest.fixture(scope="session")
def shared_nats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    server = NatsServer(tmp_path_factory.mktemp("nats"))
    yield server
    server.stop()


@pytest.fixture
def start_nats(tmp_path: Path) -> Iterator[Callable[..., NatsServer]]:
    """Start a server that the test may stop."""
    started: list[NatsServer] = []

    def start(*options: str, jetstream: bool = True) -> NatsServer:
        started.append(NatsServer(tmp_path, *options, jetstream=jetstream))
        return started[-1]

    yield start
    for server in started:
        server.stop()


@pytest.fixture
def announced() -> list[str]:
    return []
