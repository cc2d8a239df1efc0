"""Retry dead work: make a dead row of a report or stop due again, or dispatch a new turn for a failed one."""

from datetime import timedelta

import msgspec

from cardbox_cli.errors import Conflict, NotFound
from cardbox_cli.execution.dispatch import dispatch
from cardbox_cli.execution.dispatch_requests import DispatchOutcome, DispatchRequest, Parent
from cardbox_cli.execution.queue.messages import is_report, type_of
from cardbox_cli.execution.queue.stopping import stop_turn
from cardbox_cli.execution.requests.request_checks import READ_POINTERS, find_lacks
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.execution.turn_summary import TurnSummary, summary
from cardbox_cli.model.execution.situations import BoxFacts
from cardbox_cli.model.execution.turns import CONSUMED, ERROR, SKIPPED, InboxRow
from cardbox_cli.store.projects import ProjectsStore
from cardbox_cli.store.views.diagnosis_rows import DiagnosisStore
from cardbox_cli.store.views.turn_views import TurnViews
from cardbox_cli.text.command_lines import quote_argument, quote_word


class BatchPlace(msgspec.Struct, frozen=True):
    """The place of a turn in a batch. `fields` name the batch and the task in its row and edge."""

    fields: dict[str, str | int]
    trace_id: str


class RetryOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a retry: the row that is due again, or the outcome of the new dispatch."""

    row: InboxRow
    dispatched: DispatchOutcome | None = None


def retry(runtime: Runtime, inbox_id: str, *, source_agent_id: str, again: bool = False) -> RetryOutcome:
    """Retry a dead row. The row of a turn is dispatched as a new turn, because a turn ends only once.

    `again`: as in `retry_turn`. Raises NotFound for an unknown row. Raises Conflict if the row is not dead,
    its boxes lack cards, or its turn is replaced.
    """
    runtime.database.require_execution()
    with runtime.transaction():
        row = runtime.inbox.get(inbox_id)
        runtime.heads.lock(row.agent_id)
        row = runtime.inbox.lock(inbox_id) or row
        kind = type_of(row)
        if kind is not None and kind.retry == "new turn":
            record = runtime.turns.record(row.turn_id)
            has_failed = record is not None and record.end_status not in (None, "success")
            if row.status != ERROR and not (row.status in (CONSUMED, SKIPPED) and has_failed):
                raise _not_dead(row)
            if not again:
                _refuse_replaced(runtime, row, f"cbx inbox retry {inbox_id} --again")
            return RetryOutcome(row=row, dispatched=_dispatch_again(runtime, row, source_agent_id))
        if row.status != ERROR and not _was_never_applied(runtime, row):
            raise _not_dead(row)
        moved = runtime.inbox.move([inbox_id], "retry", attempts=-row.retry_count, delay=timedelta(0))
        runtime.notify(moved[0], "retry")
    return RetryOutcome(row=moved[0])


def retry_turn(
    runtime: Runtime,
    agent_turn_id: str,
    *,
    source_agent_id: str,
    again: bool = False,
    batch: BatchPlace | None = None,
) -> DispatchOutcome:
    """Dispatch a new turn with the boxes of a turn that did not succeed.

    With `again`, also if another retry of it runs or has succeeded. `batch` is the batch that counts the new
    turn. Raises NotFound if the turn has no inbox row. Raises Conflict if the turn has not ended, has
    succeeded or is replaced, or its boxes lack cards.
    """
    runtime.database.require_execution()
    with runtime.transaction():
        row = runtime.inbox.turn_row(agent_turn_id)
        if row is None:
            hint = "`cbx turn show` lists its boxes; dispatch a turn with them with `cbx dispatch`"
            raise NotFound(f"turn {agent_turn_id} has no inbox row", hint=hint)
        runtime.heads.lock(row.agent_id)
        row = runtime.inbox.lock(row.inbox_id) or row
        turn = summary(TurnViews(runtime.database, runtime.project_id).get(agent_turn_id))
        if row.status != ERROR and turn.end_status in (None, "success"):
            raise _not_failed(turn)
        if not again:
            _refuse_replaced(runtime, row, f"cbx turn retry {quote_word(agent_turn_id)} --again")
        return _dispatch_again(runtime, row, source_agent_id, batch)


def _refuse_replaced(runtime: Runtime, row: InboxRow, command: str) -> None:
    """Raise Conflict if a turn that repeats this one has succeeded, or a retry of it has not ended."""
    successors = runtime.audit.successors([row.turn_id]).get(row.turn_id, [])
    done = [each for each in successors if each.end_status == "success"]
    runs = [each for each in successors if each.end_status is None and each.action == "retry"]
    if done or runs:
        by = (done or runs)[-1]
        raise Conflict(
            f"turn {row.turn_id} is replaced by turn {by.agent_turn_id}, which "
            + ("ended in success" if done else "has not ended"),
            hint=f"its work would be done twice; `{command}` does it anyway",
            details={"agent_turn_id": row.turn_id, "replaced_by": by.agent_turn_id},
        )


def _check_complete(runtime: Runtime, row: InboxRow) -> None:
    """Raise Conflict if the boxes of this turn are so incomplete that no worker would run it again."""
    if ProjectsStore(runtime.database).settings(runtime.project_id).allow_incomplete_context:
        return
    rows = DiagnosisStore(runtime.database, runtime.project_id)
    boxes = {name: box_id for name in READ_POINTERS if (box_id := row.pointer(f"{name}_box_id")) is not None}
    existing, lost = rows.existing_boxes(boxes.values()), rows.lost_cards(boxes.values())
    missing = find_lacks(
        BoxFacts(pointer=name, box_id=box_id, exists=box_id in existing, lost=tuple(lost.get(box_id, ())))
        for name, box_id in boxes.items()
    )
    if missing:
        raise Conflict(
            f"cannot retry turn {row.turn_id}: its context is incomplete ({missing[0].clause})",
            hint="pack its context again with `cbx pack`, and pass the new box to `cbx dispatch`",
        )


def _dispatch_again(
    runtime: Runtime, row: InboxRow, source_agent_id: str, batch: BatchPlace | None = None
) -> DispatchOutcome:
    _check_complete(runtime, row)
    record = runtime.turns.record(row.turn_id)
    above = row.lineage
    report_to = (record.report_to if record else None) or {}
    parent = None
    if parent_turn := above.parent_turn_id or report_to.get("agent_turn_id"):
        call_id = report_to.get("tool_call_id")
        parent = Parent(agent_turn_id=parent_turn, step_id=above.parent_step_id, tool_call_id=call_id)
    request = DispatchRequest(
        target_agent_id=row.agent_id,
        context_box_id=row.pointer("context_box_id"),
        profile_box_id=row.pointer("profile_box_id"),
        channel_id=row.channel_id,
        source_agent_id=source_agent_id,
        parent=parent,
        depth_policy="descend" if above.parent_turn_id else "root",
        display_name=row.pointer("display_name"),
        runtime_config=row.runtime_config,
        metadata={"retry_of": row.turn_id, **(batch.fields if batch else {})},
        trace_id=batch.trace_id if batch else None,
        batch=batch.fields if batch else None,
    )
    dispatched = dispatch(runtime, request)
    if dispatched.result.agent_turn_id is not None:
        new_turn_id = dispatched.result.agent_turn_id
        runtime.audit.record_successor(row.fence, new_turn_id, action="retry", actor=source_agent_id)
    unended = row.status == ERROR and (record is None or record.end_status is None)
    if dispatched.result.agent_turn_id is not None and unended:
        _end_retried(runtime, row, dispatched.result.agent_turn_id)
    return dispatched


def _end_retried(runtime: Runtime, row: InboxRow, by: str) -> None:
    """End a turn that has a dead row and no recorded end. The new turn will report to its waiting call."""
    head = runtime.heads.get(row.agent_id)
    active = head is not None and head.active_agent_turn_id == row.turn_id
    if not active and runtime.database.keeps_turns:
        message = f"its row was dead; it was retried as {by}"
        stop_turn(runtime, head, row.fence, "failed", error_code="retried", message=message, report=False)


def _was_never_applied(runtime: Runtime, row: InboxRow) -> bool:
    """Return whether another program has consumed a report without applying it to the waiting call."""
    if row.status != CONSUMED or not is_report(row):
        return False
    tools = runtime.turns.waiting_tools(row.turn_id)
    return any(tool.tool_call_id == row.correlation_id and tool.is_open for tool in tools)


def _not_failed(turn: TurnSummary) -> Conflict:
    turn_id = turn.agent_turn_id
    if turn.end_status is None:
        return Conflict(
            f"turn {turn_id} has not ended: it is {turn.status}",
            hint=f"run `cbx why {quote_argument(turn_id)}` to see what it waits for",
        )
    again = f"cbx dispatch --agent {quote_word(turn.agent_id)} --context-box {turn.context_box_id}"
    return Conflict(f"turn {turn_id} ended in success", hint=f"run it again with `{again}`")


def _not_dead(row: InboxRow) -> Conflict:
    return Conflict(
        f"inbox row {row.inbox_id} is {row.status}, not dead",
        hint="`cbx inbox list --dead` lists the rows that can be retried",
    )
