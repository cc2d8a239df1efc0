"""What a page stands on: one project, as one request sees it, with the addresses of its pages."""

from datetime import datetime
from typing import Annotated

from fastapi import Depends

from cardbox_cli.errors import InvalidInput
from cardbox_cli.serve.page.links import Links
from cardbox_cli.serve.reading import Read, Reading


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
        url = self.request.url
        return f"{url.path}?{url.query}" if url.query else url.path


def look_at(reading: Read) -> Look:
    """The project that an address names. Raises Refused for one that the request may not read."""
    url = reading.request.url
    if "\0" in url.path or "%00" in url.query:
        raise InvalidInput("the address holds a NUL character, and no name and no text here does")
    return Look(reading)


Looking = Annotated[Look, Depends(look_at)]
