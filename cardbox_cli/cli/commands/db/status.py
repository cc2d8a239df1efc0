"""`cbx db status`: which database this is, what it holds and how large it is, for people and for programs."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from cardbox_cli.cli.project_database import database_target
from cardbox_cli.cli.session import session
from cardbox_cli.cli.terminal import output
from cardbox_cli.cli.terminal.table_layout import Column, print_below
from cardbox_cli.cli.verb import verb
from cardbox_cli.model.text.quantities import byte_size, count

if TYPE_CHECKING:
    from cardbox_cli.store.views.status import ProjectSize


@verb(
    "status",
    "cbx db status",
    "cbx db status --exact",
    "cbx db status -o json | jq '.schema_version, .project.cards'",
    pages=True,
)
def show_status(
    exact: Annotated[
        bool, Option("--exact", help="Count every row. Without it, large tables show an estimate, ~.")
    ] = False,
) -> None:
    """Say which database commands talk to, where its files are, and what it holds. Starts nothing."""
    from cardbox_cli.store.views.status import target_status

    answer = target_status(database_target(), session().project_id, exact=exact)

    output.emit(answer, table=lambda: print_status(answer))


def print_status(answer: dict[str, Any]) -> None:
    """Print a status, whichever keys it has."""
    named = {_NAMES.get(key, key.replace("_", " ")): _shown(key, value) for key, value in answer.items()}
    output.facts(*named.items())
    print_below(_TABLE, answer.get("table_sizes") or [])


_TABLE = (
    Column("TABLE", lambda size: size.table),
    Column("ROWS", lambda size: _number(size.rows, size.exact), right=True),
    Column("SIZE", lambda size: byte_size(size.bytes), right=True),
    Column("INDEXES", lambda size: byte_size(size.index_bytes), right=True),
)


def _project(size: "ProjectSize") -> str:
    hidden = "" if size.expired is None else f" ({size.expired} expired, {size.deleted} deleted)"
    cards = ("" if size.cards_exact else "~") + count(size.cards, "card")
    boxes = ("" if size.boxes_exact else "~") + count(size.boxes, "box")
    return f"{size.project_id}: {cards}{hidden}, {boxes}"


def _number(rows: int | None, exact: bool) -> str:
    if rows is None:
        return "unknown"
    return str(rows) if exact else f"~{rows}"


def _index(there: bool) -> str:
    return "yes" if there else "no; `cbx db index-text` builds it"


_NAMES = {"size_bytes": "size"}


_SHOWN: dict[str, Callable[[Any], str | None]] = {
    "tables": lambda names: (
        f"{len(names)}, listed below" if names else "none; `cbx db init --yes` makes them"
    ),
    "unreadable_tables": lambda names: ", ".join(names) or None,
    "distributed": lambda spread: (
        f"{count(spread.tables, 'table')} by project, over {count(spread.shards, 'shard')}"
        f" on {count(spread.nodes, 'node')}"
    ),
    "pooler": lambda there: "yes; plans are not kept, and workers hear no notifications" if there else "no",
    "keeps_plans": lambda kept: "yes, by workers" if kept else "no",
    "text_index": _index,
    "bigram_index": _index,
    "size_bytes": byte_size,
    "project": _project,
    # They have a table of their own.
    "table_sizes": lambda _: None,
}


def _shown(key: str, value: Any) -> str | None:
    if value is None:
        return None
    if key in _SHOWN:
        return _SHOWN[key](value)
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)
