"""Columns and texts that several kinds of items have."""

from typing import Any

from cardbox_cli.cli.terminal.tables.layout import NOTHING, Column
from cardbox_cli.model.ids import short_id
from cardbox_cli.text import format_age


def aged(name: str, *, spare: int = 2) -> Column:
    """How long ago what an item has under a name was; the youngest is sorted first."""

    def elapsed(item: Any) -> float | None:
        moment = getattr(item, name)
        return None if moment is None else -moment.timestamp()

    return Column("AGE", lambda item: format_age(getattr(item, name)), right=True, spare=spare, key=elapsed)


def short_or_nothing(full_id: str | None) -> str:
    """An id in short, where there is one."""
    return short_id(full_id) if full_id else NOTHING
