"""Making and upgrading the tables, from the parts of `schema.sql`.

Only parts whose table is missing are run, and on an upgrade those of tables that cbx made: what another
program made stays as it is. All or nothing, one maker at a time.
"""

import re

from cardbox_cli.shipped import shipped
from cardbox_cli.store.connection.database import SCHEMA_VERSION, Database

_PART = re.compile(r"^-- part: ([\w.]+)\n", re.MULTILINE)


def parts() -> dict[str, str]:
    """Each table's name and the SQL that makes it, in the order that they are made."""
    _, *pieces = _PART.split(shipped("schema.sql").read_text(encoding="utf-8"))
    return {name: text.strip() for name, text in zip(pieces[::2], pieces[1::2], strict=True)}


def missing_parts(database: Database) -> dict[str, str]:
    """The parts whose table does not exist."""
    return {name: text for name, text in parts().items() if name not in database.tables}


def add_missing_tables(database: Database) -> list[str]:
    """Make every table that does not exist; their names. Alters none that does.

    Raises SchemaTooNew for a database that a newer cbx has upgraded.
    """
    with database.transaction():
        database.check_version()
        return _add_missing_tables(database)


def _add_missing_tables(database: Database) -> list[str]:
    database.run("lock_schema")
    database.forget_tables()
    missing = missing_parts(database)
    for text in missing.values():
        database.script(text)
    database.forget_tables()
    return list(missing)


def upgrade(database: Database) -> tuple[int, int]:
    """Bring the database to this cbx's schema version; the versions before and after.

    Writers of cards and boxes wait while their new indexes are built.
    Raises SchemaTooNew for a database that a newer cbx has upgraded.
    """
    with database.transaction():
        before = database.check_version() or 0
        _add_missing_tables(database)
        if before < SCHEMA_VERSION:
            _complete_own_tables(database)
        database.run("record_schema_version", version=SCHEMA_VERSION)
    return before, SCHEMA_VERSION


def _complete_own_tables(database: Database) -> None:
    own = {name for (name,) in database.rows("own_tables")}
    for name, text in parts().items():
        if name in own:
            database.script(text)
            # The planner passes a new index on an expression over until it has statistics of it.
            database.script(f"ANALYZE {name}")


def index_text(database: Database) -> None:
    """Build the index behind word searches, without blocking writers; replaces a broken attempt."""
    if database.value("text_index_is_broken"):
        database.run("drop_text_index")
    database.run("index_text")
