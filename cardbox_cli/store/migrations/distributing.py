"""The SQL that spreads a table over shards, and which tables are of projects. Reads no database."""

import re
from collections.abc import Mapping

from cardbox_cli.errors import SchemaMissing
from cardbox_cli.store.migrations.files import tables
from cardbox_cli.store.migrations.version import newest

FIRST = "public.cards"
"""The table beside whose shards those of all others lie."""

GLOBAL_IDS = "public.uniq_cards_card_id"
"""The index that keeps a card's id unique across projects, which no shard can."""

_PROJECT = re.compile(r"^ +(tenant_id|project_id) +text COLLATE \"C\" (?:NOT NULL|PRIMARY KEY)", re.MULTILINE)
_TRIGGER = re.compile(r"^CREATE OR REPLACE TRIGGER (\w+)", re.MULTILINE)


def project_column(table: str) -> str | None:
    """The column that holds the project of every row; None in a table that is of no project."""
    found = _PROJECT.search(tables()[table])
    return found and found[1]


def check_distributed(found: Mapping[str, bool], version: int | None) -> None:
    """Raise SchemaMissing unless tables are distributed as this cbx would do it.

    `found`: those that the extension has, and whether they are spread over shards; `version`: the schema's.
    """
    if version != newest():
        raise SchemaMissing(
            f"the tables are distributed, and of schema version {version}: this cbx needs {newest()} there",
            hint="`cbx db upgrade` brings them up to date",
        )
    of_projects = {name for name in tables() if project_column(name)}
    missing = sorted(of_projects - {name for name, spread in found.items() if spread})
    if missing:
        raise SchemaMissing(
            f"some tables are distributed, but not {', '.join(missing)}",
            hint="`cbx db distribute` finishes it",
        )
    copied = sorted(found.keys() & (tables().keys() - of_projects))
    if copied:
        raise SchemaMissing(
            f"{', '.join(copied)} must stay on the coordinator, and the nodes have copies",
            hint=f"SELECT undistribute_table('{copied[0]}')",
        )


def distributing(table: str, column: str) -> list[str]:
    """The statements that distribute a table with its rows. They belong in one transaction.

    A table with triggers goes out only where that is called unsafe. Ours does nothing but refuse changes, on
    every shard; it would refuse, too, that the rows which moved are removed here.
    """
    beside = "none" if table == FIRST else FIRST
    triggers = _TRIGGER.findall(tables()[table])
    return [
        *([f"DROP INDEX IF EXISTS {GLOBAL_IDS};"] if table == FIRST else []),
        *(["SET LOCAL citus.enable_unsafe_triggers = on;"] if triggers else []),
        f"SELECT create_distributed_table('{table}', '{column}', colocate_with => '{beside}');",
        *(f"ALTER TABLE {table} DISABLE TRIGGER {name};" for name in triggers),
        f"SELECT truncate_local_data_after_distributing_table('{table}');",
        *(f"ALTER TABLE {table} ENABLE TRIGGER {name};" for name in triggers),
    ]
