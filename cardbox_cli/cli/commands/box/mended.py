"""How the verbs that mend a box print what they did, and the way on for turns that have the old box."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cardbox_cli.cli.session import announce, session
from cardbox_cli.cli.terminal import output
from cardbox_cli.cli.terminal.tables.layout import NOTHING, Column, print_below
from cardbox_cli.model.ids import short_id
from cardbox_cli.model.text.command_lines import command_line

if TYPE_CHECKING:
    from cardbox_cli.box_repair import ActiveUser, Mended
    from cardbox_cli.store.connection.database import Database


def emit_mended(mended: "Mended", *, dry_run: bool, facts: Sequence[tuple[str, str | None]] = ()) -> None:
    """Print the new box and what was changed for it; with -o id, the id of the box that stands now."""
    if not mended.changes:
        announce(f"unchanged: {mended.from_box_id}")

    def table() -> None:
        output.facts(
            ("box", "(dry run: nothing was written)" if dry_run and mended.changes else mended.box_id),
            ("from", mended.from_box_id),
            *facts,
        )
        print_below(_CHANGE, mended.changes)

    output.emit(mended, table=table, ids=[mended.box_id] if mended.box_id else [])


def tell_turns(database: "Database", box_id: str | None, from_box_id: str, reason: str) -> list[str]:
    """What to say of the active turns that have the old box, or one that it came of: the command that gives
    them the new one. Nothing after a dry run (`box_id` is None), or where no box was made."""
    from cardbox_cli.box_repair import active_users, line_of

    if box_id in (None, from_box_id):
        return []
    line = line_of(database, session().project_id, from_box_id)
    return [
        f"note: {whose} the {user.use} box of turn {user.agent_turn_id}"
        + (f": {_rebox(user, box_id, reason)} gives it the new one" if user.waits else _RUNS)
        for whose, box_ids in (("it is", line[:1]), ("it came of", line[1:]))
        for user in active_users(database, session().project_id, box_ids)
        if user.use in ("context", "output")
    ]


_RUNS = ", which is being run; `cbx turn reclaim` takes it back first"


def _rebox(user: "ActiveUser", box_id: str | None, reason: str) -> str:
    box = (f"--{user.use}-box", box_id or "")
    words = ("--expect-epoch", str(user.turn_epoch), *box, "--reason", reason)
    return f"`{command_line(('turn', 'rebox', user.agent_turn_id), *words)}`"


_CHANGE = (
    Column("#", lambda change: NOTHING if change.position is None else str(change.position), right=True),
    Column("CARD", lambda change: short_id(change.card_id)),
    Column("CHANGE", lambda change: change.kind),
    Column("NOW", lambda change: short_id(change.new_card_id) if change.new_card_id else NOTHING, spare=1),
    Column("RULE", lambda change: change.rule),
    Column("WHY", lambda change: change.reason),
)
