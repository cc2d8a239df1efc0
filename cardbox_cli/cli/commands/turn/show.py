"""What `cbx turn show` prints: everything of one turn on one page."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from cardbox_cli.cli.last_ids import LAST
from cardbox_cli.cli.options.shared_options import LastTurnId
from cardbox_cli.cli.project_database import lag_note, open_turns
from cardbox_cli.cli.standard_streams import announce
from cardbox_cli.cli.terminal import output
from cardbox_cli.cli.terminal.list_columns import EVENT_COLUMNS, INBOX_COLUMNS, TURN_COLUMNS, short_or_nothing
from cardbox_cli.cli.terminal.table_layout import NOTHING, Column, Columns, picked, print_table
from cardbox_cli.cli.terminal.turn_report import end_of_stderr
from cardbox_cli.cli.verb import verb
from cardbox_cli.model.execution.logs import LogTail, last_lines
from cardbox_cli.model.execution.turns import Step
from cardbox_cli.model.ids import short_id
from cardbox_cli.model.text.durations import duration
from cardbox_cli.model.text.escaping import one_line
from cardbox_cli.model.text.quantities import time

if TYPE_CHECKING:
    from cardbox_cli.execution.views.turn_page import TurnView
    from cardbox_cli.store.views.turns import StoredTurn


@verb(
    "show",
    "cbx turn show",
    "cbx turn show 1d5c8f72",
    "cbx turn show @last -o json | jq -r '.timeline[] | \"\\(.at) \\(.text)\"'",
    pages=True,
    reads=True,
)
def show_turn(turn: LastTurnId = LAST) -> None:
    """Show one turn on one page: its state, rows, steps, tool calls, boxes, edges and what happened when."""
    from cardbox_cli.execution.views.turn_page import view

    with open_turns() as turns, turns.database.snapshot():
        for note in lag_note(turns.database):
            announce(note)
        stored = turns.story(turns.resolve(turn))
    seen = view(stored)
    output.emit(seen, table=lambda: _print_text(stored, seen), ids=[seen.agent_turn_id])


def _print_text(stored: "StoredTurn", seen: "TurnView") -> None:
    turn = stored.turn
    parent = turn.parent_agent_turn_id
    depth = NOTHING if turn.recursion_depth is None else turn.recursion_depth
    output.facts(
        ("turn", seen.agent_turn_id),
        ("agent", seen.agent_id),
        ("status", _status(stored, seen)),
        ("parent", None if parent is None else f"{parent} of agent {turn.parent_agent_id or NOTHING}"),
        ("trace", None if turn.trace_id is None else f"{turn.trace_id}, depth {depth}"),
        ("profile", turn.profile_box_id),
        ("context", seen.context_box_id),
        ("output", seen.output_box_id),
        ("deliverable", seen.deliverable_card_id),
        *(("lease", f"{lease.owner}, until {time(lease.expires_at)}") for lease in stored.leases),
    )
    _section("findings", _FINDING, seen.findings)
    _section(
        "inbox", picked(INBOX_COLUMNS, "ID", "TYPE", "STATUS", "EPOCH", "TRIES", "CREATED", "WHY"), seen.inbox
    )
    _section("steps", _STEP, list(enumerate(seen.steps, 1)))
    _section("waiting tools", _WAITING, seen.waiting_tools)
    _section("edges", _EDGE, seen.edges)
    _section("children", picked(TURN_COLUMNS, "ID", "AGENT", "STATUS", "END"), seen.children)
    _section("timeline", EVENT_COLUMNS, seen.timeline)
    _section("stderr", _LOG, seen.logs)
    output.print_lines(end_of_stderr(seen))


def _section(title: str, columns: Columns, items: Sequence[Any]) -> None:
    if items:
        output.print_text()
        output.print_painted([("bold", title)])
        print_table(columns, items)


def _status(stored: "StoredTurn", seen: "TurnView") -> str:
    state = " ".join(part for part in (seen.status, seen.end_status) if part)
    deadline, record = stored.turn.resume_deadline, stored.record
    until = f", waits until {time(deadline)}" if deadline else ""
    error = f": {one_line(record.error, 200)}" if record and record.error else ""
    return f"{state}, epoch {seen.turn_epoch}{until}{error}"


def _took(step: Step) -> str:
    return duration(step.ended_at - step.started_at) if step.started_at and step.ended_at else NOTHING


def _last_line(log: LogTail) -> str:
    return one_line(next(iter(last_lines(log.stderr_tail, 1)), NOTHING), 200)


def _end_of(agent_id: str | None, turn_id: str | None) -> str:
    return " ".join([agent_id or NOTHING, *([short_id(turn_id)] if turn_id else [])])


# Items are pairs of a number and a step.
_STEP = (
    Column("#", lambda numbered: str(numbered[0]), right=True),
    Column("ID", lambda numbered: short_id(numbered[1].step_id)),
    Column("STATUS", lambda numbered: numbered[1].status),
    Column("BEGAN", lambda numbered: time(numbered[1].started_at) or NOTHING),
    Column("TOOK", lambda numbered: _took(numbered[1]), right=True),
    Column("REQUEST", lambda numbered: short_or_nothing(numbered[1].request_box_id)),
    Column("ERROR", lambda numbered: one_line(numbered[1].error or NOTHING, 200)),
)
_WAITING = (
    Column("CALL", lambda tool: tool.tool_call_id),
    Column("TOOL", lambda tool: tool.tool_name),
    Column("STATUS", lambda tool: tool.wait_status),
    Column("EPOCH", lambda tool: str(tool.turn_epoch), right=True),
    Column("SINCE", lambda tool: time(tool.created_at) or NOTHING),
    Column("RESULT", lambda tool: short_or_nothing(tool.tool_result_card_id)),
)
_FINDING = (
    Column("RULE", lambda found: found.rule),
    Column("MESSAGE", lambda found: one_line(found.message, 200)),
)
_LOG = (
    Column("STEP", lambda log: short_id(log.step_id)),
    Column("COMMAND", lambda log: log.tool_name or "model"),
    Column("EXIT", lambda log: NOTHING if log.exit_code is None else str(log.exit_code), right=True),
    Column("BYTES", lambda log: str(log.stderr_bytes), right=True),
    Column("LAST LINE", _last_line),
)
_EDGE = (
    Column("ID", lambda edge: short_id(edge.edge_id)),
    Column("PRIMITIVE", lambda edge: edge.primitive),
    Column("PHASE", lambda edge: edge.edge_phase),
    Column("FROM", lambda edge: _end_of(edge.source_agent_id, edge.source_agent_turn_id)),
    Column("TO", lambda edge: _end_of(edge.target_agent_id, edge.target_agent_turn_id)),
    Column("CREATED", lambda edge: time(edge.created_at) or NOTHING, spare=1),
)
