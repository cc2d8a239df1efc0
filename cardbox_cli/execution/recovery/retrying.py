"""Another try for what is dead: a report or a stop becomes due again, a turn is asked for anew."""

from datetime import timedelta

import msgspec

from cardbox_cli.errors import Conflict, NotFound
from cardbox_cli.execution.dispatch import dispatch
from cardbox_cli.execution.dispatch_requests import Dispatched, DispatchRequest, Parent
from cardbox_cli.execution.queue.messages import is_report, type_of
from cardbox_cli.execution.queue.stopping import stop_turn
from cardbox_cli.execution.requests.request_checks import READ, lacks
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.execution.turn_summary import TurnSummary, summary
from cardbox_cli.model.execution.situations import BoxFacts
from cardbox_cli.model.execution.turns import CONSUMED, ERROR, SKIPPED, InboxRow
from cardbox_cli.store.projects import ProjectsStore
from cardbox_cli.store.views.diagnosis_rows import DiagnosisStore
from cardbox_cli.store.views.turn_views import TurnViews
from cardbox_cli.text import argument, quoted


class Retried(msgspec.Struct, frozen=True, kw_only=True):
    """The row that is due again, or the new turn that a dead one was asked for as."""

    row: InboxRow
    dispatched: Dispatched | None = None


def retry(runtime: Runtime, inbox_id: str, *, source_agent_id: str) -> Retried:
    """Try a dead row again. Raises NotFound for an unknown one, Conflict for one that is not dead, or
    whose boxes lack cards.

    A turn ends once: its pointers are dispatched as a new turn.
    """
    runtime.database.require_execution()
    with runtime.transaction():
        row = runtime.inbox.get(inbox_id)
        runtime.heads.lock(row.agent_id)
        row = runtime.inbox.lock(inbox_id) or row
        kind = type_of(row)
        if kind is not None and kind.retry == "new turn":
            return _ask_again(runtime, row, source_agent_id)
        if row.status != ERROR and not _was_never_applied(runtime, row):
            raise _not_dead(row)
        moved = runtime.inbox.move([inbox_id], "retry", attempts=-row.retry_count, delay=timedelta(0))
        runtime.notify(moved[0], "retry")
    return Retried(row=moved[0])


def retry_turn(runtime: Runtime, agent_turn_id: str, *, source_agent_id: str) -> Dispatched:
    """Ask anew, as another turn with the same pointers, for one that ended otherwise than in success.

    Raises NotFound where nothing says what was asked, Conflict for a turn that goes on, or has succeeded,
    or whose boxes lack cards.
    """
    runtime.database.require_execution()
    with runtime.transaction():
        row = runtime.inbox.turn_row(agent_turn_id)
        if row is None:
            hint = "`cbx dispatch` asks for another turn, with the boxes that `cbx turn show` tells"
            raise NotFound(f"no inbox row asked for turn {agent_turn_id}", hint=hint)
        runtime.heads.lock(row.agent_id)
        row = runtime.inbox.lock(row.inbox_id) or row
        turn = summary(TurnViews(runtime.database, runtime.project_id).get(agent_turn_id))
        if row.status != ERROR and turn.end_status in (None, "success"):
            raise _not_failed(turn)
        return _dispatched_anew(runtime, row, source_agent_id)


def _ask_again(runtime: Runtime, row: InboxRow, source_agent_id: str) -> Retried:
    record = runtime.turns.record(row.turn_id)
    ended = record is not None and record.end_status not in (None, "success")
    if row.status != ERROR and not (row.status in (CONSUMED, SKIPPED) and ended):
        raise _not_dead(row)
    return Retried(row=row, dispatched=_dispatched_anew(runtime, row, source_agent_id))


def _check_complete(runtime: Runtime, row: InboxRow) -> None:
    """Raise Conflict where no worker would run another turn with these boxes either."""
    if ProjectsStore(runtime.database).settings(runtime.project_id).allow_incomplete_context:
        return
    rows = DiagnosisStore(runtime.database, runtime.project_id)
    boxes = {name: box_id for name in READ if (box_id := row.pointer(f"{name}_box_id")) is not None}
    there, lost = rows.existing_boxes(boxes.values()), rows.lost_cards(boxes.values())
    lacking = lacks(
        BoxFacts(pointer=name, box_id=box_id, exists=box_id in there, lost=tuple(lost.get(box_id, ())))
        for name, box_id in boxes.items()
    )
    if lacking:
        raise Conflict(
            f"asked anew, turn {row.turn_id} would not be run: {lacking[0].words}",
            hint="`cbx pack` makes its context again, and `cbx dispatch` asks with that",
        )


def _dispatched_anew(runtime: Runtime, row: InboxRow, source_agent_id: str) -> Dispatched:
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
        metadata={"retry_of": row.turn_id},
    )
    dispatched = dispatch(runtime, request)
    unended = row.status == ERROR and (record is None or record.end_status is None)
    if dispatched.result.agent_turn_id is not None and unended:
        _replaced(runtime, row, dispatched.result.agent_turn_id)
    return dispatched


def _replaced(runtime: Runtime, row: InboxRow, by: str) -> None:
    """The end of a turn whose dead row nobody ended it with. The new turn reports, if anybody waits."""
    head = runtime.heads.get(row.agent_id)
    active = head is not None and head.active_agent_turn_id == row.turn_id
    if active or not runtime.database.keeps_turns:
        return
    message = f"its row was dead; it was asked for anew as {by}"
    stop_turn(runtime, head, row.fence, "failed", error_code="retried", message=message, report=False)


def _was_never_applied(runtime: Runtime, row: InboxRow) -> bool:
    """Whether a report is consumed although its call still waits, which other programs leave behind."""
    if row.status != CONSUMED or not is_report(row):
        return False
    tools = runtime.turns.waiting_tools(row.turn_id)
    return any(tool.tool_call_id == row.correlation_id and tool.is_open for tool in tools)


def _not_failed(turn: TurnSummary) -> Conflict:
    turn_id = turn.agent_turn_id
    if turn.end_status is None:
        return Conflict(
            f"turn {turn_id} has not ended: it is {turn.status}",
            hint=f"`cbx why {argument(turn_id)}` says what it waits for",
        )
    again = f"cbx dispatch --agent {quoted(turn.agent_id)} --context-box {turn.context_box_id}"
    return Conflict(
        f"turn {turn_id} ended in success",
        hint=f"`{again}` asks once more",
    )


def _not_dead(row: InboxRow) -> Conflict:
    return Conflict(
        f"the inbox row {row.inbox_id} is {row.status}, not dead",
        hint="`cbx inbox list --dead` shows what can be tried again; `cbx why` explains a turn that hangs",
    )
