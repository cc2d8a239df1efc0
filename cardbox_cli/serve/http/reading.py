"""What an answer is read from: one project, by one request that may read it, in one snapshot."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

from anyio import to_thread
from fastapi import Depends, Request

from cardbox_cli.errors import NotFound
from cardbox_cli.model.exact_json import is_storable_text
from cardbox_cli.serve.access import Doorkeeper
from cardbox_cli.serve.options import ServeOptions
from cardbox_cli.serve.project import Project
from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.connection.lending import Lending


class Reading(Project):
    """One project, as one request sees it."""

    def __init__(self, request: Request, database: Database, project_id: str) -> None:
        options: ServeOptions = request.app.state.options
        super().__init__(database, project_id, settings=options.settings, usual=options.usual_project)
        self.request = request
        self.options = options


class Asker:
    """A request that wants to read a project."""

    def __init__(self, request: Request, project_id: str) -> None:
        self.request = request
        self.project_id = project_id
        self._lending: Lending = request.app.state.lending
        self._doorkeeper: Doorkeeper = request.app.state.doorkeeper

    async def admitted(self) -> None:
        """Raise Refused where the request may not read the project, NotFound for what no name can be."""
        if self._doorkeeper.asks_for_tokens:
            await to_thread.run_sync(self._check)
        else:
            _check_names(self.request)

    @contextmanager
    def look(self) -> Iterator[Reading]:
        """One snapshot of the project, for who has been admitted. In a thread that may wait."""
        with self._lending.snapshot() as database:
            yield Reading(self.request, database, self.project_id)

    @contextmanager
    def glance(self) -> Iterator[Reading]:
        """The project, for one statement; for more, open a snapshot of its database.

        Raises Refused where the request may not read it, NotFound for what no name can be.
        """
        at_the_door = self._doorkeeper.at_the_door(self.request, self.project_id)
        with at_the_door, self._lending.glance() as database:
            self._doorkeeper.admit(self.request, database, self.project_id)
            _check_names(self.request)
            yield Reading(self.request, database, self.project_id)

    def _check(self) -> None:
        with self.glance():
            pass


def _check_names(request: Request) -> None:
    for name in request.path_params.values():
        if not is_storable_text(str(name)):
            raise NotFound(f"nothing is called {name!r}")


async def admitted(request: Request, project: str) -> Asker:
    """The asker for the project that an address names, before anything else of the request is looked at."""
    asker = Asker(request, project)
    await asker.admitted()
    return asker


Read = Annotated[Reading, Depends(admitted)]
"""What a route of `routing.py` reads from: one snapshot, which is over before the answer is sent."""
