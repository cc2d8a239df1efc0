"""`cbx db upgrade`."""

from cardbox_cli.cli.session import session
from cardbox_cli.cli.terminal import output
from cardbox_cli.cli.tree import verb


@verb(examples="cbx db upgrade")
def command() -> None:
    """Bring an older database to this cbx's schema version."""
    from cardbox_cli.store.connection.database import Database
    from cardbox_cli.store.schema import upgrade as upgrade_schema

    with Database.connect(session().target()) as database:
        before, after = upgrade_schema(database)
    answer = {"before": before, "after": after}
    text = f"schema version {after}" + ("" if before == after else f", was {before}")
    output.emit(answer, table=lambda: output.say(text))
