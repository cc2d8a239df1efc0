"""Instants as the driver reads them: what a datetime cannot say becomes EARLIEST or LATEST of `limits.py`."""

from datetime import datetime

import psycopg
from psycopg.abc import Buffer
from psycopg.types.datetime import TimestamptzLoader

from cardbox_cli.limits import EARLIEST, LATEST


class BoundedInstants(TimestamptzLoader):
    """Reads a timestamptz; `infinity` and years beyond a datetime are no error."""

    def load(self, data: Buffer) -> datetime:
        """The instant, or the end of time that it lies at or behind."""
        try:
            return super().load(data)
        except psycopg.DataError:
            text = bytes(data)
            return EARLIEST if text.startswith(b"-") or text.endswith(b"BC") else LATEST
