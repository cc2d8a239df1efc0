"""Access to one project for one authenticated request, in one snapshot."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

from anyio import to_thread
from fastapi import Depends, Request

from cardbox_cli.errors import InvalidInput, NotFound
from cardbox_cli.model.exact_json import is_storable_text
from cardbox_cli.serve.access import Authenticator
from cardbox_cli.serve.addresses import request_address
from cardbox_cli.serve.project_view import ProjectView
from cardbox_cli.serve.serve_options import ServeOptions
from cardbox_cli.store.connection.connection_pool import ConnectionPool
from cardbox_cli.store.connection.database import Database


class ProjectRequest:
    """A request that wants to read a project."""

    def __init__(self, request: Request, project_id: str) -> None:
        self.request = request
        self.project_id = project_id
        self._connections: ConnectionPool = request.app.state.connections
        self._authenticator: Authenticator = request.app.state.authenticator

    async def authenticate(self) -> None:
        """Raise RequestRejected if the request may not read the project, NotFound for an invalid name."""
        if self._authenticator.asks_for_tokens:
            await to_thread.run_sync(self._check)
        else:
            _check_names(self.request)

    @contextmanager
    def open_snapshot(self) -> Iterator[ProjectView]:
        """Open a snapshot of the project, after `authenticate`. May block the thread."""
        with self._connections.snapshot() as database:
            yield self._project(database)

    @contextmanager
    def open_autocommit(self) -> Iterator[ProjectView]:
        """Open the project for one statement. For several statements, open a snapshot of its database.

        Raises RequestRejected if the request may not read it, NotFound for an invalid name.
        """
        attempt = self._authenticator.limit_attempts(self.request, self.project_id)
        with attempt, self._connections.autocommit() as database:
            self._authenticator.admit(self.request, database, self.project_id)
            _check_names(self.request)
            yield self._project(database)

    def _project(self, database: Database) -> ProjectView:
        options: ServeOptions = self.request.app.state.options
        return ProjectView(
            database,
            self.project_id,
            settings=options.settings,
            here=request_address(self.request.scope),
            asks_for_tokens=options.asks_for_tokens,
        )

    def _check(self) -> None:
        with self.open_autocommit():
            pass


def _check_names(request: Request) -> None:
    for name in request.path_params.values():
        if not is_storable_text(str(name)):
            raise NotFound(f"{name!r} cannot be a name")


async def authenticate(request: Request, project: str) -> ProjectRequest:
    """Return the access to the project in the path, before the rest of the request is read."""
    access = ProjectRequest(request, project)
    await access.authenticate()
    return access


async def authenticate_page(request: Request, project: str) -> ProjectRequest:
    """Return the access as `authenticate` does. Raises InvalidInput for an address with a NUL character."""
    access = await authenticate(request, project)
    if "%00" in request.url.query:
        raise InvalidInput("the address contains a NUL character")
    return access


Read = Annotated[ProjectView, Depends(authenticate)]
"""The parameter type of a route that reads one snapshot, which closes before the response is sent."""

PageRead = Annotated[ProjectView, Depends(authenticate_page)]
"""`Read`, for a page."""
