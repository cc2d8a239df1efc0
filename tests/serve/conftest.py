"""An app on the test's database, asked without a socket between, or by one."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
import uvicorn
from starlette.testclient import TestClient

from cardbox_cli.serve.app import make_app
from cardbox_cli.serve.http.server import make_http_server
from cardbox_cli.serve.serve_options import ServeOptions
from cardbox_cli.settings import Settings
from cardbox_cli.store.connection.target import Target
from tests.conftest import PROJECT
from tests.crash.processes import until

Serve = Callable[..., TestClient]


@pytest.fixture
def serve(target: Target) -> Iterator[Serve]:
    """Clients of apps that these options make."""
    with ExitStack() as stack:

        def make(**options: Any) -> TestClient:
            told = {"target": target, "settings": Settings(), "usual_project": PROJECT, **options}
            client = TestClient(
                make_app(ServeOptions(**told)), base_url="http://localhost", raise_server_exceptions=False
            )
            return stack.enter_context(client)

        yield make


@pytest.fixture
def api(serve: Serve) -> TestClient:
    """Whoever can reach it may ask."""
    return serve()


@pytest.fixture
def start(target: Target) -> Iterator[Callable[..., str]]:
    """Start servers as these options ask for; where each answers."""
    with ExitStack() as stack:

        def start(**options: Any) -> str:
            told = ServeOptions(target=target, settings=Settings(), usual_project=PROJECT, **options)
            return stack.enter_context(_serving(make_http_server(make_app(told), told)))

        yield start


@contextmanager
def _serving(server: uvicorn.Server) -> Iterator[str]:
    listening = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    until(lambda: server.started)
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
        listening.close()
