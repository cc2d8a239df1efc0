"""`cbx turn`: the runs of agents, as lists and trees; a module for each verb that shows or changes one."""

from typing import TYPE_CHECKING, Annotated

import typer

from cardbox_cli.cli.commands.turn import fix
from cardbox_cli.cli.parameters.inputs import check_choice, parse_span
from cardbox_cli.cli.parameters.options import TurnId
from cardbox_cli.cli.session import session
from cardbox_cli.cli.terminal import output
from cardbox_cli.cli.terminal.columns import TURN, TURN_DEFAULT, chosen
from cardbox_cli.cli.terminal.escaping import flat
from cardbox_cli.cli.terminal.lists import ColumnNames, Limit, Listing, OfAgent, show_list
from cardbox_cli.cli.terminal.watch import Interval, Watch, between_looks
from cardbox_cli.cli.tree import examples, noun

if TYPE_CHECKING:
    from cardbox_cli.execution.views.turn_page import Branch

app = noun(
    "List, show, trace, await, stop and free turns; report to them.",
    elsewhere={verb: f"{__name__}.{verb}" for verb in ("report", "show", "wait", "watch")},
)
fix.add_to(app)


@app.command(
    "list",
    epilog=examples(
        "  cbx turn list --limit 10\n"
        "  cbx turn list --agent clerk --status running\n"
        "  cbx turn list --since 2h -o jsonl | jq -r 'select(.end_status==\"failed\").agent_turn_id'\n"
        "  cbx turn list --watch"
    ),
)
def list_(
    limit: Limit = 50,
    agent: OfAgent = None,
    status: Annotated[
        str | None,
        typer.Option(metavar="queued|pending|dispatched|running|suspended|ended", help="Only in this state."),
    ] = None,
    trace: Annotated[str | None, typer.Option(metavar="ID", help="Only of this trace_id.")] = None,
    since: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Asked for at or after: RFC 3339, or 2h for two hours ago."),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Asked for before: RFC 3339, or 30m for 30 minutes ago."),
    ] = None,
    columns: ColumnNames = None,
    watch: Watch = False,
    interval: Interval = 1.0,
) -> None:
    """List turns, newest first."""
    from cardbox_cli.execution.views.turn_page import STATUSES, summary
    from cardbox_cli.store.views.turns import TurnFilter

    if status is not None:
        check_choice(status, "--status", STATUSES, what="state")
    start, end = parse_span(since, until)
    where = TurnFilter(agent_id=agent, status=status, trace_id=trace, since=start, until=end)
    pause = between_looks(watch, interval)
    names = chosen(TURN, TURN_DEFAULT, columns)
    with session().turns() as turns:
        listing = Listing(
            read=lambda size: map(summary, turns.newest(where, limit=size)),
            further=lambda last: turns.further(where, last),
            limit=limit,
            columns=TURN,
            names=names,
            item_id=lambda turn: turn.agent_turn_id,
            empty=f"no turns in project {session().project_id!r}"
            if where == TurnFilter()
            else f"no such turns in project {session().project_id!r}",
        )
        show_list(listing, turns.database, interval=pause)


@app.command(
    epilog=examples("  cbx turn trace 1d5c8f72\n  cbx turn trace @last -o json | jq '.turns[].children'")
)
def trace(turn: TurnId) -> None:
    """Show the turns of a trace as a tree: who gave work to whom, and what became of it."""
    from cardbox_cli.execution.views.turn_page import summary, tree

    with session().turns() as turns, turns.database.snapshot():
        found = turns.get(turns.resolve(turn))
        known = turns.of_trace(found.trace_id) if found.trace_id else []
        if all(each.agent_turn_id != found.agent_turn_id for each in known):
            known = [found, *known]
    tops = tree([summary(each) for each in known])
    answer = {"trace_id": found.trace_id, "turns": tops}
    output.emit(
        answer,
        table=lambda: _say_tree(found.trace_id, tops),
        ids=[each.agent_turn_id for each in known],
    )


def _say_tree(trace_id: str | None, tops: "list[Branch]") -> None:
    output.say(f"trace {trace_id or '-'}")
    for top in tops:
        _say_branch(top, "", "")


def _say_branch(branch: "Branch", lead: str, below: str) -> None:
    outcome = " ".join(part for part in (branch.status, branch.end_status) if part)
    output.say(flat(f"{lead}{branch.agent_turn_id}  {branch.agent_id}  {outcome}"))
    for child in branch.children:
        is_last = child is branch.children[-1]
        _say_branch(child, below + ("└─ " if is_last else "├─ "), below + ("   " if is_last else "│  "))
