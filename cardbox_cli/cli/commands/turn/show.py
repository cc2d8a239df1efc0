"""What `cbx turn show` prints: everything of one turn on one page."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from cardbox_cli.cli.parameters.options import TurnId
from cardbox_cli.cli.session import session
from cardbox_cli.cli.terminal import output
from cardbox_cli.cli.terminal.columns import INBOX, NOTHING, row
from cardbox_cli.cli.terminal.describe import span, time, to_millisecond
from cardbox_cli.cli.terminal.escaping import one_line
from cardbox_cli.cli.tree import verb
from cardbox_cli.model.ids import short_id

if TYPE_CHECKING:
    from cardbox_cli.execution.views.timeline import Event
    from cardbox_cli.execution.views.turn_page import TurnSummary, TurnView
    from cardbox_cli.model.execution.turns import Edge, Step, WaitingTool
    from cardbox_cli.store.views.turns import StoredTurn


@verb(
    examples="cbx turn show 1d5c8f72\n"
    "cbx turn show @last -o json | jq -r '.timeline[] | \"\\(.at) \\(.text)\"'",
    pages=True,
)
def command(turn: TurnId) -> None:
    """Show one turn on one page: its state, rows, steps, tool calls, boxes, edges and what happened when."""
    from cardbox_cli.execution.views.turn_page import view

    with session().turns() as turns, turns.database.snapshot():
        stored = turns.story(turns.resolve(turn))
    seen = view(stored)
    output.emit(seen, table=lambda: _say(stored, seen), ids=[seen.agent_turn_id])


def event_cells(event: "Event") -> list[str]:
    """A line of a timeline."""
    return [to_millisecond(event.at), event.event, event.text]


def _say(stored: "StoredTurn", seen: "TurnView") -> None:
    turn = stored.turn
    output.facts(
        [
            ("turn", seen.agent_turn_id),
            ("agent", seen.agent_id),
            ("status", _status(stored, seen)),
            ("parent", _parent(turn.parent_agent_turn_id, turn.parent_agent_id)),
            ("trace", _trace(turn.trace_id, turn.recursion_depth)),
            ("profile", turn.profile_box_id),
            ("context", seen.context_box_id),
            ("output", seen.output_box_id),
            ("deliverable", seen.deliverable_card_id),
            *(("lease", f"{lease.owner}, until {time(lease.expires_at)}") for lease in stored.leases),
        ]
    )
    _section("inbox", _INBOX, map(row(INBOX, _INBOX), seen.inbox))
    _section("steps", _STEP, (_step(*each) for each in enumerate(seen.steps, 1)))
    _section("waiting tools", _WAITING, map(_waiting, seen.waiting_tools))
    _section("edges", _EDGE, (_edge(edge) for edge in seen.edges))
    _section("children", _CHILD, map(_child, seen.children))
    _section("timeline", _EVENT, map(event_cells, seen.timeline))


def _section(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    cells = list(rows)
    if cells:
        output.say()
        output.say_painted([("bold", title)])
        output.print_table(columns, cells)


def _status(stored: "StoredTurn", seen: "TurnView") -> str:
    said = " ".join(part for part in (seen.status, seen.end_status) if part)
    deadline, record = stored.turn.resume_deadline, stored.record
    until = f", waits until {time(deadline)}" if deadline else ""
    error = f": {one_line(record.error, 200)}" if record and record.error else ""
    return f"{said}, epoch {seen.turn_epoch}{until}{error}"


def _parent(turn_id: str | None, agent_id: str | None) -> str | None:
    return None if turn_id is None else f"{turn_id} of agent {agent_id or NOTHING}"


def _trace(trace_id: str | None, depth: int | None) -> str | None:
    return None if trace_id is None else f"{trace_id}, depth {NOTHING if depth is None else depth}"


_INBOX = ("ID", "TYPE", "STATUS", "EPOCH", "TRIES", "CREATED", "WHY")
_STEP = ("#", "ID", "STATUS", "BEGAN", "TOOK", "REQUEST", "ERROR")
_WAITING = ("CALL", "TOOL", "STATUS", "EPOCH", "SINCE", "RESULT")
_EDGE = ("ID", "PRIMITIVE", "PHASE", "FROM", "TO", "CREATED")
_CHILD = ("ID", "AGENT", "STATUS", "END")
_EVENT = ("TIME", "EVENT", "DETAIL")


def _step(number: int, step: "Step") -> list[str]:
    took = span(step.ended_at - step.started_at) if step.started_at and step.ended_at else NOTHING
    return [
        str(number),
        short_id(step.step_id),
        step.status,
        time(step.started_at) or NOTHING,
        took,
        short_id(step.request_box_id) if step.request_box_id else NOTHING,
        one_line(step.error or NOTHING, 200),
    ]


def _waiting(tool: "WaitingTool") -> list[str]:
    result = short_id(tool.tool_result_card_id) if tool.tool_result_card_id else NOTHING
    since = time(tool.created_at) or NOTHING
    return [tool.tool_call_id, tool.tool_name, tool.wait_status, str(tool.turn_epoch), since, result]


def _edge(edge: "Edge") -> list[str]:
    return [
        short_id(edge.edge_id),
        edge.primitive,
        edge.edge_phase,
        _end_of(edge.source_agent_id, edge.source_agent_turn_id),
        _end_of(edge.target_agent_id, edge.target_agent_turn_id),
        time(edge.created_at) or NOTHING,
    ]


def _end_of(agent_id: str | None, turn_id: str | None) -> str:
    return " ".join([agent_id or NOTHING, *([short_id(turn_id)] if turn_id else [])])


def _child(child: "TurnSummary") -> list[str]:
    return [short_id(child.agent_turn_id), child.agent_id, child.status, child.end_status or NOTHING]
