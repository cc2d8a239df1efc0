"""Rows and columns that are JSON, made into values: one decoder for each kind, with numbers as they are."""

from collections.abc import Iterable
from typing import Any, TypeVar

from psycopg.abc import Buffer
from psycopg.adapt import Loader

from cardbox_cli.model import exact_json

_Value = TypeVar("_Value")


def decoded(kind: type[_Value], row: str) -> _Value:
    """The value that a row is."""
    return _decoder(kind).decode(row)


def decoded_or_none(kind: type[_Value], row: str | None) -> _Value | None:
    """The value that a row is; None for none."""
    return None if row is None else decoded(kind, row)


def all_decoded(kind: type[_Value], rows: Iterable[tuple[Any, ...]]) -> list[_Value]:
    """The values that rows of one column are."""
    decoder = _decoder(kind)
    return [decoder.decode(row) for (row,) in rows]


class ExactJson(Loader):
    """Reads a column of JSON: the driver's own way fails at very long integers and very deep nesting."""

    def load(self, data: Buffer) -> Any:
        """The value, its numbers exact."""
        return exact_json.decode_stored(bytes(data))


def _decoder(kind: type[_Value]) -> exact_json.Decoder[_Value]:
    if kind not in _decoders:
        _decoders[kind] = exact_json.Decoder(kind)
    return _decoders[kind]


_decoders: dict[type, exact_json.Decoder[Any]] = {}
