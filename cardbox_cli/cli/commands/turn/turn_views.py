"""`cbx turn list, show, trace` and `logs`."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from typer import Option

from cardbox_cli.cli.last_ids import LAST
from cardbox_cli.cli.options import shared_options
from cardbox_cli.cli.options.value_types import HTML, OneOf
from cardbox_cli.cli.project_database import lag_note, open_turns
from cardbox_cli.cli.standard_streams import announce
from cardbox_cli.cli.terminal import output
from cardbox_cli.cli.terminal.list_columns import (
    EVENT_COLUMNS,
    INBOX_COLUMNS,
    REPLACED_BY,
    TURN_COLUMNS,
    short_or_nothing,
)
from cardbox_cli.cli.terminal.list_output import Listing, empty_note, show_list
from cardbox_cli.cli.terminal.table_layout import (
    NOTHING,
    Column,
    Columns,
    choose_columns,
    pick_columns,
    print_table,
)
from cardbox_cli.cli.terminal.watch import poll_interval
from cardbox_cli.cli.verb import verb
from cardbox_cli.errors import UsageError
from cardbox_cli.model.execution.turns import END_STATUSES, TURN_STATUSES, LogTail, Step, last_lines
from cardbox_cli.model.ids import short_id
from cardbox_cli.text.command_lines import quote_argument
from cardbox_cli.text.error_messages import conflict_message
from cardbox_cli.text.escaping import excerpt, flatten, indent_lines
from cardbox_cli.text.times import format_duration, format_time

if TYPE_CHECKING:
    from cardbox_cli.inspect.turns import Branch, TurnView
    from cardbox_cli.model.execution.turns import CommandLog
    from cardbox_cli.store.views.batch_views import BatchRow
    from cardbox_cli.store.views.turn_views import StoredTurn


@verb(
    "list",
    "cbx turn list --limit 10",
    "cbx turn list --agent clerk --status running",
    "cbx turn list --end failed --since 2h -o id",
    "cbx turn list --watch",
    pages=True,
    reads=True,
)
def list_turns(
    limit: shared_options.Limit = 50,
    agent: shared_options.OfAgent = None,
    status: Annotated[
        str | None,
        Option(click_type=OneOf(lambda: TURN_STATUSES, what="state"), help="Only turns in this state."),
    ] = None,
    end: Annotated[
        str | None,
        Option(click_type=OneOf(lambda: END_STATUSES, what="end"), help="Only turns with this outcome."),
    ] = None,
    all_: Annotated[
        bool, Option("--all", help="With --end: also turns that a retry or a replay replaced.")
    ] = False,
    trace: Annotated[str | None, Option(metavar="ID", help="Only turns of this trace_id.")] = None,
    since: shared_options.Since = None,
    until: shared_options.Until = None,
    columns: Annotated[str | None, shared_options.column_option("id,agent,end")] = None,
    watch: shared_options.Watch = False,
    interval: shared_options.Interval = 1.0,
) -> None:
    """List turns, newest first.

    With --end, turns that a retry replaced are left out, unless --all is given. A successful replay or fork
    counts as a retry.
    """
    from cardbox_cli.inspect.turns import read_turns
    from cardbox_cli.model.execution.turns import ENDED
    from cardbox_cli.store.connection.project_store import FurtherCount
    from cardbox_cli.store.views.turn_views import TurnFilter

    if end is not None and status not in (None, ENDED):
        raise UsageError(conflict_message("--end", f"--status {status}"), hint="remove one of them")
    first, last = shared_options.parse_span(since, until)
    status = status if end is None else ENDED
    where = TurnFilter(agent_id=agent, status=status, trace_id=trace, since=first, until=last)
    pause = poll_interval(watch, interval)
    known = [each._replace(extra=False) if each.name == REPLACED_BY else each for each in TURN_COLUMNS]
    shown = choose_columns(known if all_ else TURN_COLUMNS, columns)
    with open_turns() as turns:
        empty = empty_note("turns", narrowed=where != TurnFilter())
        listing = Listing(
            lambda size: read_turns(turns, where, limit=size, end=end, with_replaced=all_),
            # The number of further turns with an end is unknown: the database does not store each end.
            partial(turns.further, where) if end is None else lambda _: FurtherCount(0, False),
            limit,
            shown,
            item_id=lambda turn: turn.agent_turn_id,
            empty=empty,
        )
        show_list(listing, turns.database, interval=pause)


@verb(
    "show",
    "cbx turn show",
    "cbx turn show 1d5c8f72",
    "cbx turn show @last -o json | jq -r '.timeline[] | \"\\(.at) \\(.text)\"'",
    pages=True,
    reads=True,
)
def show_turn(turn: shared_options.LastTurnId = LAST) -> None:
    """Show one turn on one page: its state, rows, steps, tool calls, boxes, edges and what happened when."""
    from cardbox_cli.inspect.turns import view_turn

    with open_turns() as turns, turns.database.snapshot():
        for note in lag_note(turns.database):
            announce(note)
        stored = turns.read_all(turns.resolve(turn))
    view = view_turn(stored)
    output.emit(view, table=lambda: _print_turn(stored, view), ids=[view.agent_turn_id])


def _print_turn(stored: "StoredTurn", view: "TurnView") -> None:
    from cardbox_cli.cli.terminal.turn_report import end_of_stderr

    turn = stored.turn
    parent = turn.parent_agent_turn_id
    depth = NOTHING if turn.recursion_depth is None else turn.recursion_depth
    output.facts(
        ("turn", view.agent_turn_id),
        ("agent", view.agent_id),
        ("status", _describe_status(stored, view)),
        ("replaced by", view.replaced_by),
        ("parent", None if parent is None else f"{parent} of agent {turn.parent_agent_id or NOTHING}"),
        ("trace", None if turn.trace_id is None else f"{turn.trace_id}, depth {depth}"),
        ("profile", turn.profile_box_id),
        ("context", view.context_box_id),
        ("output", view.output_box_id),
        ("deliverable", view.deliverable_card_id),
        *(("lease", f"{lease.owner}, until {format_time(lease.expires_at)}") for lease in stored.leases),
    )
    _section("findings", _FINDING_COLUMNS, view.findings)
    _section(
        "inbox",
        pick_columns(INBOX_COLUMNS, "ID", "TYPE", "STATUS", "EPOCH", "TRIES", "CREATED", "WHY"),
        view.inbox,
    )
    _section("steps", _STEP_COLUMNS, list(enumerate(view.steps, 1)))
    _section("waiting tools", _WAITING_COLUMNS, view.waiting_tools)
    _section("edges", _EDGE_COLUMNS, view.edges)
    _section("children", pick_columns(TURN_COLUMNS, "ID", "AGENT", "STATUS", "END"), view.children)
    _section("timeline", EVENT_COLUMNS, view.timeline)
    _section("stderr", _LOG_COLUMNS, view.logs)
    output.print_lines(end_of_stderr(view))


def _section(title: str, columns: Columns, items: Sequence[Any]) -> None:
    if items:
        output.print_text()
        output.print_painted([("bold", title)])
        print_table(columns, items)


def _describe_status(stored: "StoredTurn", view: "TurnView") -> str:
    state = " ".join(part for part in (view.status, view.end_status) if part)
    deadline, record = stored.turn.resume_deadline, stored.record
    until = f", waits until {format_time(deadline)}" if deadline else ""
    error = f": {excerpt(record.error, 200)}" if record and record.error else ""
    return f"{state}, epoch {view.turn_epoch}{until}{error}"


def _format_length(step: Step) -> str:
    return format_duration(step.ended_at - step.started_at) if step.started_at and step.ended_at else NOTHING


def _last_line(log: "LogTail") -> str:
    return excerpt(next(iter(last_lines(log.stderr_tail, 1)), NOTHING), 200)


def _format_end(agent_id: str | None, turn_id: str | None) -> str:
    return " ".join([agent_id or NOTHING, *([short_id(turn_id)] if turn_id else [])])


# Items are pairs of a number and a step.
_STEP_COLUMNS = (
    Column("#", lambda numbered: str(numbered[0]), right=True),
    Column("ID", lambda numbered: short_id(numbered[1].step_id)),
    Column("STATUS", lambda numbered: numbered[1].status),
    Column("BEGAN", lambda numbered: format_time(numbered[1].started_at) or NOTHING),
    Column("TOOK", lambda numbered: _format_length(numbered[1]), right=True),
    Column("REQUEST", lambda numbered: short_or_nothing(numbered[1].request_box_id)),
    Column("ERROR", lambda numbered: excerpt(numbered[1].error or NOTHING, 200)),
)
_WAITING_COLUMNS = (
    Column("CALL", lambda tool: tool.tool_call_id),
    Column("TOOL", lambda tool: tool.tool_name),
    Column("STATUS", lambda tool: tool.wait_status),
    Column("EPOCH", lambda tool: str(tool.turn_epoch), right=True),
    Column("SINCE", lambda tool: format_time(tool.created_at) or NOTHING),
    Column("RESULT", lambda tool: short_or_nothing(tool.tool_result_card_id)),
)
_FINDING_COLUMNS = (
    Column("RULE", lambda finding: finding.rule),
    Column("MESSAGE", lambda finding: excerpt(finding.message, 200)),
)
_LOG_COLUMNS = (
    Column("STEP", lambda log: short_id(log.step_id)),
    Column("COMMAND", lambda log: log.tool_name or "model"),
    Column("EXIT", lambda log: NOTHING if log.exit_code is None else str(log.exit_code), right=True),
    Column("BYTES", lambda log: str(log.stderr_bytes), right=True),
    Column("LAST LINE", _last_line),
)
_EDGE_COLUMNS = (
    Column("ID", lambda edge: short_id(edge.edge_id)),
    Column("PRIMITIVE", lambda edge: edge.primitive),
    Column("PHASE", lambda edge: edge.edge_phase),
    Column("FROM", lambda edge: _format_end(edge.source_agent_id, edge.source_agent_turn_id)),
    Column("TO", lambda edge: _format_end(edge.target_agent_id, edge.target_agent_turn_id)),
    Column("CREATED", lambda edge: format_time(edge.created_at) or NOTHING, spare=1),
)


SVG = "svg"


@verb(
    "trace",
    "cbx turn trace 1d5c8f72",
    "cbx turn trace @last --format html > trace.html",
    "cbx turn trace @last -o json | jq '.turns[].children'",
    pages=True,
    reads=True,
)
def show_trace(
    turn: shared_options.TurnId,
    format_: Annotated[
        str | None,
        Option(
            "--format",
            click_type=OneOf(lambda: (HTML, SVG), what="format"),
            help="Draw the tree as a picture.",
        ),
    ] = None,
) -> None:
    """Show the turns of a trace as a tree: the agents, who requested each turn, and the outcomes.

    The children of a batch are listed below it. Turns of other traces that gave work to these turns, or
    received it, are included.
    """
    from cardbox_cli.inspect.turns import read_trace

    with open_turns() as turns, turns.database.snapshot():
        trace = read_trace(turns, turn)
    for note in trace.notes:
        announce(f"note: {note}")
    if format_ is not None:
        from cardbox_cli.pictures.trace_picture import trace_drawing, trace_page

        is_page = format_ == HTML
        output.write(
            trace_page(trace.trace_id, trace.turns) if is_page else trace_drawing(trace.turns), end=""
        )
        return
    output.emit(
        {"trace_id": trace.trace_id, "turns": trace.turns},
        table=lambda: _TreePrinter(trace.batches).print(trace.trace_id, trace.turns),
        ids=trace.agent_turn_ids,
    )


def _group_by_batch(branches: "Sequence[Branch]") -> "list[tuple[str | None, list[Branch]]]":
    """Group branches by batch, in the order of its tasks; None for those without a batch."""
    groups: dict[str | None, list[Branch]] = {}
    for branch in branches:
        groups.setdefault(branch.batch_id, []).append(branch)
    return [
        (batch_id, sorted(each, key=lambda one: one.task_index or 0)) for batch_id, each in groups.items()
    ]


class _TreePrinter:
    """Prints a tree line by line. A batch has its own line above its children."""

    def __init__(self, batches: "Mapping[str, BatchRow]") -> None:
        self._batches = batches

    def print(self, trace_id: str | None, tops: "Sequence[Branch]") -> None:
        self._print_line("", f"trace {trace_id or '-'}")
        for batch_id, branches in _group_by_batch(tops):
            if batch_id is not None:
                self._print_line("", self._describe_batch(batch_id))
                self._print_below(branches, trace_id, "")
                continue
            for top in branches:
                self._print_branch(top, trace_id, "", "")

    def _print_branch(self, branch: "Branch", trace_id: str | None, lead: str, below: str) -> None:
        outcome = " ".join(part for part in (branch.status, branch.end_status) if part)
        place = "" if branch.task_index is None else f"{branch.task_index}: "
        other = "" if branch.trace_id in (None, trace_id) else f"  trace {branch.trace_id}"
        self._print_line(lead, f"{place}{branch.agent_turn_id}  {branch.agent_id}  {outcome}{other}")
        groups = _group_by_batch(branch.children)
        for batch_id, branches in groups:
            is_last = branches is groups[-1][1]
            if batch_id is None:
                self._print_below(branches, branch.trace_id, below, ends=is_last)
                continue
            self._print_line(below + ("└─ " if is_last else "├─ "), self._describe_batch(batch_id))
            self._print_below(branches, branch.trace_id, below + ("   " if is_last else "│  "))

    def _print_below(
        self, branches: "Sequence[Branch]", trace_id: str | None, below: str, *, ends: bool = True
    ) -> None:
        """Print branches below a line; `ends` if nothing else follows below it."""
        for branch in branches:
            is_last = ends and branch is branches[-1]
            lead = below + ("└─ " if is_last else "├─ ")
            self._print_branch(branch, trace_id, lead, below + ("   " if is_last else "│  "))

    def _describe_batch(self, batch_id: str) -> str:
        row = self._batches.get(batch_id)
        known = "" if row is None else f"  {row.status}, {row.ended_count} of {row.task_count} ended"
        return f"{batch_id}{known}"

    def _print_line(self, lead: str, text: str) -> None:
        output.print_text(flatten(f"{lead}{text}"))


@verb(
    "logs",
    "cbx turn logs @last",
    "cbx turn logs 1d5c8f72 --step 2",
    "cbx turn logs @last -o json | jq -r '.[] | select(.exit_code != 0).stderr'",
    pages=True,
    reads=True,
)
def show_logs(
    turn: shared_options.TurnId,
    step: Annotated[
        str | None, Option(metavar="N", help="Only this step: its number, or 4 or more characters of its id.")
    ] = None,
) -> None:
    """Show the stderr of a turn's commands: its model command and its tools.

    cbx stores only its last part, without apparent secrets. Commands that wrote nothing are listed only if
    they failed.
    """
    from cardbox_cli.execution.requests.recorded_requests import find_step
    from cardbox_cli.store.execution.turn_store import LogStore, TurnStore

    with open_turns() as turns, turns.database.snapshot():
        store = LogStore(turns.database, turns.project_id)
        store.require()
        turn_id = turns.resolve(turn)
        steps = TurnStore(turns.database, turns.project_id).steps(turn_id)
        step_id = None
        if step is not None:
            shows = f"`cbx turn show {quote_argument(short_id(turn_id))}`"
            step_id = find_step(steps, step, f"turn {turn_id!r}", shows).step_id
        logs = store.list_by_turn(turn_id, step_id=step_id)
    numbers = {each.step_id: number for number, each in enumerate(steps, 1)}
    output.emit(
        [{"step": numbers.get(log.step_id), **msgspec.structs.asdict(log)} for log in logs],
        table=lambda: _print_logs(logs, numbers),
        ids=[log.log_id for log in logs],
    )
    if not logs:
        announce(f"no stderr of turn {turn_id} is stored")


def _print_logs(logs: "list[CommandLog]", numbers: dict[str, int]) -> None:
    for log in logs:
        if log is not logs[0]:
            output.print_text()
        output.print_painted([("bold", _log_headline(log, numbers.get(log.step_id)))])
        if log.stderr:
            output.print_text(indent_lines(log.stderr.rstrip("\n")))


def _log_headline(log: "CommandLog", number: int | None) -> str:
    step = f"step {short_id(log.step_id) if number is None else number}"
    took = format_duration(log.ended_at - log.started_at)
    wrote = f"{log.stderr_bytes:,} bytes{_truncation_note(log)}"
    return f"{format_time(log.ended_at)}  {step}: {log.whose} {log.outcome} after {took}; {wrote}"


def _truncation_note(log: "CommandLog") -> str:
    """Return a note on a truncated log. Redaction alone does not count."""
    from cardbox_cli.execution.worker.command_output import REDACTED

    size = len(log.stderr.encode())
    return f", the last {size:,} are stored" if log.stderr_bytes > size and REDACTED not in log.stderr else ""
