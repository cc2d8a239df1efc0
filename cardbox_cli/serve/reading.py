"""What an answer is read from: one project, by one request that may read it, in one snapshot."""

from collections.abc import Iterator
from typing import Annotated

from fastapi import Depends, Request

from cardbox_cli.diagnosis.diagnose import Diagnoser
from cardbox_cli.serve.access.doorkeeper import Doorkeeper
from cardbox_cli.serve.options import ServeOptions
from cardbox_cli.settings import Settings
from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.connection.lending import Lending


class Reading:
    """One project, as one request sees it."""

    def __init__(self, request: Request, database: Database, project_id: str) -> None:
        self.request = request
        self.database = database
        self.project_id = project_id

    @property
    def options(self) -> ServeOptions:
        """What the server was told."""
        options: ServeOptions = self.request.app.state.options
        return options

    @property
    def settings(self) -> Settings:
        """The settings of the server."""
        return self.options.settings

    @property
    def project_option(self) -> tuple[str, ...]:
        """What commands that are shown must name besides."""
        is_usual = self.project_id == self.options.usual_project
        return () if is_usual else ("--project", self.project_id)

    @property
    def diagnoser(self) -> Diagnoser:
        """`why` of this project."""
        return Diagnoser(self.database, self.project_id, self.settings)


def read_project(request: Request, project: str) -> Iterator[Reading]:
    """The project that an address names. Raises Refused for one that the request may not read."""
    lending: Lending = request.app.state.lending
    doorkeeper: Doorkeeper = request.app.state.doorkeeper
    with lending.snapshot() as database:
        doorkeeper.admit(request, database, project)
        yield Reading(request, database, project)


Read = Annotated[Reading, Depends(read_project, scope="function")]
"""Within one snapshot, which is over when the answer is made, and before it is sent."""
