"""Access to one project for one authenticated request, in one snapshot."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

from anyio import to_thread
from fastapi import Depends, Request

from cardbox_cli.errors import InvalidInput, NotFound
from cardbox_cli.model.exact_json import is_storable_text
from cardbox_cli.serve.access import Doorkeeper
from cardbox_cli.serve.addresses import address_of
from cardbox_cli.serve.options import ServeOptions
from cardbox_cli.serve.project import Project
from cardbox_cli.store.connection.connection_pool import Lending
from cardbox_cli.store.connection.database import Database


class Asker:
    """A request that wants to read a project."""

    def __init__(self, request: Request, project_id: str) -> None:
        self.request = request
        self.project_id = project_id
        self._lending: Lending = request.app.state.lending
        self._doorkeeper: Doorkeeper = request.app.state.doorkeeper

    async def admitted(self) -> None:
        """Raise Refused if the request may not read the project, NotFound for an impossible name."""
        if self._doorkeeper.asks_for_tokens:
            await to_thread.run_sync(self._check)
        else:
            _check_names(self.request)

    @contextmanager
    def look(self) -> Iterator[Project]:
        """Open a snapshot of the project, after `admitted`. May block the thread."""
        with self._lending.snapshot() as database:
            yield self._project(database)

    @contextmanager
    def glance(self) -> Iterator[Project]:
        """Open the project for one statement; for more, open a snapshot of its database.

        Raises Refused if the request may not read it, NotFound for an impossible name.
        """
        at_the_door = self._doorkeeper.at_the_door(self.request, self.project_id)
        with at_the_door, self._lending.glance() as database:
            self._doorkeeper.admit(self.request, database, self.project_id)
            _check_names(self.request)
            yield self._project(database)

    def _project(self, database: Database) -> Project:
        options: ServeOptions = self.request.app.state.options
        return Project(
            database,
            self.project_id,
            settings=options.settings,
            usual=options.usual_project,
            here=address_of(self.request.scope),
            asks_for_tokens=options.asks_for_tokens,
        )

    def _check(self) -> None:
        with self.glance():
            pass


def _check_names(request: Request) -> None:
    for name in request.path_params.values():
        if not is_storable_text(str(name)):
            raise NotFound(f"{name!r} cannot be a name")


async def admitted(request: Request, project: str) -> Asker:
    """Return the asker for the project in the path, before the rest of the request is read."""
    asker = Asker(request, project)
    await asker.admitted()
    return asker


async def admitted_to_page(request: Request, project: str) -> Asker:
    """Return the asker as `admitted` does. Raises InvalidInput for an address with a NUL character."""
    asker = await admitted(request, project)
    if "%00" in request.url.query:
        raise InvalidInput("the address contains a NUL character")
    return asker


Read = Annotated[Project, Depends(admitted)]
"""The parameter type of a route that reads one snapshot, which closes before the response is sent."""

Looking = Annotated[Project, Depends(admitted_to_page)]
"""`Read`, for a page."""
