"""The SQL that spreads a table over shards, and which tables are of projects. Reads no database."""

import re

from cardbox_cli.store.migrations.files import statements, tables

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


def distributing(table: str, column: str) -> list[str]:
    """The statements that distribute a table with its rows. They belong in one transaction.

    The extension refuses a table with triggers. Ours, which does nothing but refuse, is made anew on every
    shard.
    """
    beside = "none" if table == FIRST else FIRST
    # The comment line before a statement goes with it.
    triggers = [each for each in statements(tables()[table]) if _TRIGGER.search(each)]
    names = [found[1] for each in triggers if (found := _TRIGGER.search(each))]
    return [
        *([f"DROP INDEX IF EXISTS {GLOBAL_IDS};"] if table == FIRST else []),
        *(f"DROP TRIGGER IF EXISTS {name} ON {table};" for name in names),
        f"SELECT create_distributed_table('{table}', '{column}', colocate_with => '{beside}');",
        f"SELECT truncate_local_data_after_distributing_table('{table}');",
        *(["SET LOCAL citus.enable_unsafe_triggers = on;"] if triggers else []),
        *triggers,
    ]
