"""What an answer is read from: one project, by one request that may read it, in one snapshot."""

from collections.abc import Iterator
from typing import Annotated

from fastapi import Depends, Request

from cardbox_cli.serve.access.doorkeeper import Doorkeeper
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


def read_project(request: Request, project: str) -> Iterator[Reading]:
    """The project that an address names. Raises Refused for one that the request may not read."""
    lending: Lending = request.app.state.lending
    doorkeeper: Doorkeeper = request.app.state.doorkeeper
    with doorkeeper.at_the_door(request, project), lending.snapshot() as database:
        doorkeeper.admit(request, database, project)
        yield Reading(request, database, project)


Read = Annotated[Reading, Depends(read_project, scope="function")]
"""Within one snapshot, which is over when the answer is made, and before it is sent."""
