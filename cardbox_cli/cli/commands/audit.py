"""`cbx audit`: the manual and automatic changes of turns, cards, boxes, tools, profiles and projects."""

from typing import Annotated

from typer import Option

from cardbox_cli.cli.last_ids import resolved_or_given, resolving_turns
from cardbox_cli.cli.options import shared_options
from cardbox_cli.cli.options.value_types import TURN, OneOf
from cardbox_cli.cli.project_database import open_database
from cardbox_cli.cli.session import session
from cardbox_cli.cli.terminal.list_columns import AUDIT_COLUMNS
from cardbox_cli.cli.terminal.list_output import Listing, empty_note, filter_readers, show_list
from cardbox_cli.cli.terminal.table_layout import choose_columns
from cardbox_cli.cli.terminal.watch import poll_interval
from cardbox_cli.cli.verb import verb

# The actions of this version. Rows of other versions may have others, which --action finds as well.
ACTIONS = (
    *("stop", "fail", "reclaim", "requeue", "rebox", "rebuild", "report", "lease-expired", "report-dropped"),
    *("card delete", "card repair", "box replace", "box edit", "box delete", "tool add", "tool remove"),
    *("profile import", "project update", "db gc", "pack --force", "dispatch --force"),
)


@verb(
    "audit",
    "cbx audit --since 1d",
    "cbx audit --turn 1d5c8f72 -o json | jq -r '.[] | .actor + \": \" + .action'",
    "cbx audit --action 'card delete' --limit 0 -o csv",
    pages=True,
    reads=True,
)
def list_audit_entries(
    limit: shared_options.Limit = 50,
    agent: shared_options.OfAgent = None,
    turn: Annotated[
        str | None, Option(click_type=TURN, help="Only this turn: full id, or unique part at either end.")
    ] = None,
    action: Annotated[
        str | None,
        Option(
            metavar="TEXT",
            click_type=OneOf(lambda: ACTIONS, what=None),
            help="Only this action, for example stop or 'card delete'.",
        ),
    ] = None,
    since: shared_options.Since = None,
    until: shared_options.Until = None,
    columns: Annotated[str | None, shared_options.column_option("age,action,who")] = None,
    watch: shared_options.Watch = False,
    interval: shared_options.Interval = 1.0,
) -> None:
    """List changes of turns, cards, boxes, profiles, tools and projects, with actor and reason, newest first.

    The actor is an operating system user with a database role, or sys.cbx.
    """
    from cardbox_cli.store.audit import AuditFilter, AuditStore

    start, end = shared_options.parse_span(since, until)
    pause = poll_interval(watch, interval)
    shown = choose_columns(AUDIT_COLUMNS, columns)
    with open_database() as database:
        turns = resolving_turns(database, session().project_id)
        turn_id = None if turn is None else resolved_or_given(turns.resolve, turn)
        where = AuditFilter(agent_id=agent, agent_turn_id=turn_id, action=action, since=start, until=end)
        audit = AuditStore(database, session().project_id)
        reading = filter_readers(audit.newest, audit.further, where)
        empty = empty_note("audit rows", narrowed=where != AuditFilter())
        listing = Listing(*reading, limit, shown, item_id=lambda entry: entry.audit_id, empty=empty)
        show_list(listing, database, interval=pause)
