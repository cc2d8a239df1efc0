"""An app on the test's database, asked without a socket between."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from starlette.testclient import TestClient

from cardbox_cli.serve.app import make_app
from cardbox_cli.serve.options import ServeOptions
from cardbox_cli.settings import Settings
from cardbox_cli.store.connection.target import Target
from tests.conftest import PROJECT

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
