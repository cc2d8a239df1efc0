"""Promotion: an idle agent is leased to its oldest queued turn, whose row then is pending and can be claimed.

A queued row that no worker could run becomes a dead letter, its turn ends as failed, and the next one is
looked at. One that asks again for a turn which has a row already is skipped: a turn runs once. The caller
holds the head.
"""

from cardbox_cli.errors import BoxConflict
from cardbox_cli.execution.queue.deliverables import ensure_deliverable, fallback
from cardbox_cli.execution.queue.reports import report_end
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.model.execution.headers import depth_of, names_depth, parent_of, trace_id_of
from cardbox_cli.model.execution.turns import End, EndStatus, InboxRow
from cardbox_cli.model.ids import as_box_id

POINTERS = ("profile_box_id", "context_box_id", "output_box_id")
# What the protocol forbids in a payload: identity is a matter of columns and headers.
CONTROL_KEYS = frozenset(
    {
        "project_id",
        "channel_id",
        "channel",
        "agent_id",
        "agent_turn_id",
        "turn_epoch",
        "step_id",
        "tool_call_id",
        "trace_id",
        "traceparent",
        "tracestate",
        "parent_agent_id",
        "parent_agent_turn_id",
        "parent_step_id",
        "parent_traceparent",
        "recursion_depth",
    }
)


def promote_next(runtime: Runtime, agent_id: str, *, reason: str = "dispatch_next") -> InboxRow | None:
    """Promote the oldest queued turn of an agent; None where it is not idle, or nothing is queued."""
    head = runtime.heads.get(agent_id)
    if head is None or head.status != "idle":
        return None
    while (row := runtime.inbox.oldest_queued(agent_id)) is not None:
        if runtime.inbox.is_repeated(row) or _has_ended(runtime, row):
            runtime.inbox.move([row.inbox_id], "skip", error="its turn has run, or has an older row")
            continue
        problem = _problem(runtime, row)
        if problem is None:
            return _promote(runtime, row, reason)
        _refuse(runtime, row, *problem)
    return None


def _has_ended(runtime: Runtime, row: InboxRow) -> bool:
    """Whether the turn has ended: other programs queue a turn again while it runs."""
    record = runtime.turns.record(row.turn_id)
    return record is not None and record.end_status is not None


def _promote(runtime: Runtime, row: InboxRow, reason: str) -> InboxRow | None:
    headers = row.context_headers
    epoch = runtime.heads.lease(
        row, depth=depth_of(headers), trace_id=trace_id_of(headers), parent_step_id=parent_of(headers)[2]
    )
    if epoch is None:
        return None
    (promoted,) = runtime.inbox.move([row.inbox_id], "promote", turn_epoch=epoch)
    start = runtime.turns.box_length(row.pointer("output_box_id") or "")
    runtime.turns.keep(row.turn_id, row.agent_id, output_start=start, report_to=None)
    runtime.call(promoted, reason)
    return promoted


def _problem(runtime: Runtime, row: InboxRow) -> tuple[str, str] | None:
    """Why no worker could run this row: an error code and a sentence."""
    payload = row.payload
    if not isinstance(payload, dict):
        return "invalid_payload_type", "its payload is no object"
    if control := sorted(CONTROL_KEYS & payload.keys()):
        return "invalid_payload", f"its payload holds the control key {control[0]!r}"
    for name in POINTERS:
        if as_box_id(row.pointer(name) or "") is None:
            return "missing_required_fields", f"its payload has no {name}"
    if trace_id_of(row.context_headers) is None:
        return "invalid_context", "its headers have no traceparent that can be read"
    if not names_depth(row.context_headers):
        return "invalid_context", "its headers name no recursion depth"
    return _output_box_problem(runtime, row)


def _output_box_problem(runtime: Runtime, row: InboxRow) -> tuple[str, str] | None:
    output_box_id = row.pointer("output_box_id") or ""
    if not runtime.turns.lock_box(output_box_id):
        try:
            runtime.boxes.ensure(output_box_id)
        except BoxConflict as exc:
            return "output_box_not_found", exc.message
    user = runtime.inbox.output_box_user(output_box_id, row.agent_id, to_come=False)
    if user is None:
        return None
    return "output_box_in_use", f"turn {user[0]} of agent {user[1]!r} writes to its output box"


def _refuse(runtime: Runtime, row: InboxRow, error_code: str, problem: str) -> None:
    runtime.inbox.move([row.inbox_id], "kill", error=f"{error_code}: {problem}")
    if runtime.database.keeps_turns:
        message = f"the turn could not be promoted: {problem}"
        end_unpromoted(runtime, row, "failed", error_code=error_code, message=message)


def end_unpromoted(
    runtime: Runtime,
    row: InboxRow,
    end_status: EndStatus,
    *,
    error_code: str,
    message: str,
    tell: bool = True,
) -> End:
    """The end of a turn that its agent is not at. Its deliverable goes into a box of its own.

    Another turn of the agent may be writing to the box that it would have written to. Without `tell` nobody
    who waits for the end is told. A turn that has ended before stays as it ended.
    """
    runtime.turns.keep(row.turn_id, row.agent_id, output_start=None, report_to=None)
    record = runtime.turns.record(row.turn_id)
    assert record is not None
    if record.end_status is not None:
        return End(
            agent_turn_id=row.turn_id,
            end_status=record.end_status,
            deliverable_card_id=record.deliverable_card_id,
            created=False,
        )
    draft = fallback(
        agent_id=row.agent_id,
        agent_turn_id=row.turn_id,
        end_status=end_status,
        error_code=error_code,
        message=message,
    )
    card_id = ensure_deliverable(runtime, draft, output_box_id=None, start=0)
    runtime.turns.end(
        row.fence,
        end_status=end_status,
        deliverable_card_id=card_id,
        error_code=error_code,
        error=message,
    )
    if tell and record.report_to is not None:
        report_end(runtime, record, end_status, card_id, message)
    return End(agent_turn_id=row.turn_id, end_status=end_status, deliverable_card_id=card_id)
