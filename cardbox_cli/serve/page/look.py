"""What a page stands on: one project, as one request sees it, with the addresses of its pages."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Annotated

from fastapi import Depends, Request

from cardbox_cli.errors import InvalidInput
from cardbox_cli.serve.addresses import address_of
from cardbox_cli.serve.http.reading import Asker, Reading
from cardbox_cli.serve.page.links import Links


class Look(Reading):
    """One project, as one request sees it. All that is read is one snapshot."""

    def __init__(self, reading: Reading) -> None:
        super().__init__(reading.request, reading.database, reading.project_id)
        self.links = Links(reading.project_id)

    @property
    def now(self) -> datetime:
        """The database's time, from which ages are counted."""
        return self.database.now()

    @property
    def here(self) -> str:
        """The address of this page, without its host."""
        return address_of(self.request.scope)


class Looker(Asker):
    """A request for a page of a project."""

    @contextmanager
    def look(self) -> Iterator[Look]:
        with super().look() as reading:
            yield Look(reading)


async def look_at(request: Request, project: str) -> Looker:
    """The project that an address names. Raises Refused for one that the request may not read."""
    looker = Looker(request, project)
    await looker.admitted()
    if "%00" in request.url.query:
        raise InvalidInput("the address asks for a NUL character, and no name and no text here has one")
    return looker


Looking = Annotated[Look, Depends(look_at)]
