"""Reports: write the result of a tool call for the turn that waits for it, and apply it to that turn.

A report is a `tool.result` card and an inbox row that points to it. The card's id is derived from the call,
so reporting the same result twice changes nothing. `apply_report` appends the result of a claimed report to
the output box of the waiting turn. If it was the last missing result, the turn resumes or may end. If the
report is not applied, `claims.py` moves its row.
"""

from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from typing import Literal

import msgspec

from cardbox_cli.errors import CardConflict, Conflict, NotFound
from cardbox_cli.execution.queue.messages import TIMEOUT, InboxMessage, MessageType, Sender, edge_of, row_of
from cardbox_cli.execution.queue.messages import TOOL_RESULT as TOOL_RESULT_MESSAGE
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.execution.tool_calls import end_status_of_results
from cardbox_cli.limits import QUOTED_SIZE
from cardbox_cli.model.card_types import TOOL_RESULT
from cardbox_cli.model.cards import Card, CardDraft, card_text, draft_card
from cardbox_cli.model.content import ToolResultContent
from cardbox_cli.model.execution.situations import ClaimedSituation
from cardbox_cli.model.execution.turns import (
    APPLIED,
    CONSUMED,
    DUE,
    ERROR,
    RECEIVED,
    RUNNING,
    SUSPENDED,
    WAITING,
    WATCHDOG,
    EndStatus,
    Fence,
    Head,
    InboxRow,
    TurnRecord,
    WaitingTool,
)
from cardbox_cli.model.ids import derived_id, unique
from cardbox_cli.store.execution.report_store import ReportSituation
from cardbox_cli.text.command_lines import quote_argument
from cardbox_cli.text.escaping import truncate
from cardbox_cli.text.quantities import format_count

# A claimed report waits this long if its turn has not suspended yet, or if its card is not visible yet.
EARLY_REPORT_DELAY = timedelta(seconds=1)


class ReportOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a claimed report.

    - `resumed`, `terminate` and `waiting`: the card `card_id` is the result of `call`. The turn continues at
      `fence`, may end with `end_status`, or still waits for `left` other calls.
    - `stale`: no call waits for the report.
    - `early` and `busy`: the report is deferred, because its card is not visible or its turn not suspended.
    """

    outcome: Literal["resumed", "terminate", "waiting", "stale", "early", "busy"]
    fence: Fence
    reason: str | None = None
    end_status: EndStatus = "success"
    call: WaitingTool | None = None
    card_id: str = ""
    left: int = 0
    row: InboxRow | None = None


def decide_report(found: ClaimedSituation) -> ReportOutcome:
    """Return the outcome of a claimed report that has not resumed its turn yet. Writes nothing."""
    row, head, calls = found.row, found.head, found.calls or []
    if head is None or head.active_agent_turn_id != row.turn_id:
        return ReportOutcome(outcome="stale", fence=row.fence, reason="its turn is no longer active")
    call = next((each for each in reversed(calls) if each.tool_call_id == row.correlation_id), None)
    if head.status != SUSPENDED:
        if call is not None and not call.is_open:
            why = f"its result was already {call.wait_status}"
            return ReportOutcome(outcome="stale", fence=head.fence, reason=why)
        return ReportOutcome(outcome="busy", fence=head.fence, reason=f"its turn is {head.status}")
    if call is None or not call.is_open:
        return ReportOutcome(outcome="stale", fence=head.fence, reason="its turn does not wait for that call")
    card = result_among(found.results, row)
    if card is None:
        card_id = row.pointer("tool_result_card_id") or ""
        why = f"its card {card_id!r} is not visible, or is not a result of the call"
        return ReportOutcome(outcome="early", fence=head.fence, reason=why)
    return _applied(found, head.fence, call, card)


def _applied(found: ClaimedSituation, fence: Fence, call: WaitingTool, card: Card) -> ReportOutcome:
    # The head is locked, so no other transaction can apply a result at the same time.
    others = [each for each in found.calls or [] if each.tool_call_id != call.tool_call_id]
    left = sum(each.is_open for each in others)
    if left:
        why = f"{format_count(left, 'more result')} to come"
        return ReportOutcome(
            outcome="waiting", fence=fence, reason=why, call=call, card_id=card.card_id, left=left
        )
    by_id = {each.card_id: each for each in found.results}
    waiting_card_ids = [each.tool_result_card_id for each in others if each.step_id == call.step_id]
    end_status = end_status_of_results(
        [*(by_id[card_id] for card_id in unique(filter(None, waiting_card_ids)) if card_id in by_id), card]
    )
    if end_status is not None:
        return ReportOutcome(
            outcome="terminate", fence=fence, end_status=end_status, call=call, card_id=card.card_id
        )
    return ReportOutcome(outcome="resumed", fence=fence, call=call, card_id=card.card_id)


def apply_report(runtime: Runtime, found: ClaimedSituation) -> ReportOutcome:
    """Apply a claimed report: append its result to the turn's output box, and resume the turn if possible.

    Runs in the caller's transaction, which has locked the rows of `found`. Updates the claimed row if the
    turn resumes or waits. For any other outcome, the caller must move the row.
    """
    applied, head = decide_report(found), found.head
    if applied.call is None or head is None:
        return applied
    ends = applied.outcome == "terminate"
    for is_there in (False, True):
        written = runtime.reports.apply(
            head, found.row, applied.call, applied.card_id, left=applied.left, ends=ends
        )
        if written is not None:
            break
        if is_there or head.output_box_id is None:
            raise runtime.heads.stale_error(head.fence, runtime.heads.get(head.agent_id))
        runtime.boxes.ensure(head.output_box_id)
    assert written is not None
    if applied.outcome == "resumed":
        runtime.publish_state(head, RUNNING, written.turn_epoch)
    return msgspec.structs.replace(
        applied, fence=head.fence_at(written.turn_epoch), row=written.row or found.row
    )


def result_among(cards: Sequence[Card], row: InboxRow) -> Card | None:
    """Return the card that the row points to, if it is among `cards` and is a result of the row's call."""
    found = [card for card in cards if card.card_id == row.pointer("tool_result_card_id")]
    results = (card for card in found if card.type == TOOL_RESULT and card.tool_call_id == row.correlation_id)
    return next(results, None)


def append_received_results(runtime: Runtime, head: Head, dropped: list[WaitingTool]) -> None:
    """Append the results that these calls have received to the output box. The calls no longer wait."""
    card_ids = [tool.tool_result_card_id for tool in dropped if tool.tool_result_card_id is not None]
    for card in runtime.cards.get_many(card_ids).cards:
        if head.output_box_id is not None:
            runtime.boxes.ensure_card(head.output_box_id, card.card_id)


# The author of timeouts in the card-box protocol v1r4.
_TIMED_OUT_BY = "worker.watchdog"

PLACEHOLDER = "…"
"""The result in a printed command that a person must complete before running it."""


class WrittenReport(msgspec.Struct, frozen=True, kw_only=True):
    """A stored report. `created` is False if an earlier call stored it."""

    agent_turn_id: str
    tool_call_id: str
    tool_result_card_id: str
    inbox_id: str | None
    created: bool


def report_result(
    runtime: Runtime,
    agent_turn_id: str,
    tool_call_id: str,
    content: ToolResultContent,
    *,
    source_agent_id: str,
    kind: MessageType = TOOL_RESULT_MESSAGE,
    actor: str | None = None,
) -> WrittenReport:
    """Report the result of a call that a suspended turn waits for.

    `actor` is the person who reports, for the audit. Reporting the same result again changes nothing. Raises
    NotFound for a call that the turn never waited for, Conflict for a different result or an ended turn.
    """
    runtime.database.require_execution()
    with runtime.transaction():
        found = _hold_waiting(runtime, agent_turn_id, tool_call_id)
        draft = _card(runtime, found.waiting, content, source_agent_id)
        if is_replay(found.waiting, draft.card_id):
            try:
                runtime.cards.add(draft)
            except CardConflict:
                raise _different_result(found.waiting) from None
            return _reported(found.waiting, draft.card_id, None)
        reported = _send(runtime, found, draft.card_id, content, source_agent_id, kind, [draft])
        if actor is not None:
            epoch = found.waiting.turn_epoch
            runtime.audit.write_of_turn(
                Fence(found.waiting.agent_id, agent_turn_id, epoch),
                action="report",
                actor=actor,
                reason=None,
                epoch_after=epoch,
                detail={"tool_call_id": tool_call_id, "card_id": draft.card_id, "status": content.status},
            )
        return reported


def report_stored(runtime: Runtime, agent_turn_id: str, tool_call_id: str, card_id: str) -> WrittenReport:
    """Write the report for a result card that another program stored without one.

    Raises NotFound if the turn never waited for the call, or the card is not a result. Raises Conflict if the
    call already has a report.
    """
    with runtime.transaction():
        found = _hold_waiting(runtime, agent_turn_id, tool_call_id)
        cards = runtime.cards.get_many([card_id]).cards
        content = cards[0].content if cards else None
        if not isinstance(content, ToolResultContent):
            hint = f"run `cbx card show {quote_argument(card_id)}` to see it"
            raise NotFound(f"card {card_id!r} is not a tool result", hint=hint)
        source = cards[0].author_id or WATCHDOG
        return _send(runtime, found, card_id, content, source, TOOL_RESULT_MESSAGE)


def _hold_waiting(runtime: Runtime, agent_turn_id: str, tool_call_id: str) -> ReportSituation:
    """Lock and return the rows that wait for the call. Does not lock the head of the waiting turn.

    A turn's end is reported while the head of the ended turn is locked. Locking the head of the waiting turn,
    too, could deadlock. It is not needed, because a report does not change the waiting turn's state.
    """
    found = runtime.reports.situation(agent_turn_id, tool_call_id)
    if found is not None:
        return found
    known = runtime.turns.waiting_tools(agent_turn_id)
    calls = ", ".join(tool.tool_call_id for tool in known if tool.wait_status == WAITING)
    raise NotFound(
        f"turn {agent_turn_id} does not wait for a call {tool_call_id!r}",
        hint=f"the turn waits for {calls}"
        if calls
        else f"run `cbx turn show {quote_argument(agent_turn_id)}` for details",
    )


def _card(runtime: Runtime, tool: WaitingTool, content: ToolResultContent, source_agent_id: str) -> CardDraft:
    return draft_card(
        "tool.result",
        content,
        card_id=derived_id("report", runtime.project_id, tool.agent_turn_id, tool.tool_call_id).hex,
        author_id=source_agent_id,
        tool_call_id=tool.tool_call_id,
        metadata={
            "agent_turn_id": tool.agent_turn_id,
            "tool_call_id": tool.tool_call_id,
            "function_name": tool.tool_name,
            "step_id": tool.step_id,
        },
    )


def is_replay(call: WaitingTool, card_id: str) -> bool:
    """Return True if this card was already reported to the call, and False if the call waits for a result.

    Raises Conflict if the call has another result, or the turn no longer waits for the call.
    """
    if call.wait_status == WAITING:
        return False
    if call.wait_status not in (RECEIVED, APPLIED):
        raise Conflict(
            f"turn {call.agent_turn_id} no longer waits for the call {call.tool_call_id!r}",
            hint=f"nothing was written; run `cbx turn show {quote_argument(call.agent_turn_id)}` for details",
        )
    if call.tool_result_card_id != card_id:
        raise _different_result(call)
    return True


def _different_result(call: WaitingTool) -> Conflict:
    return Conflict(
        f"the call {call.tool_call_id!r} of turn {call.agent_turn_id} already has a different result: "
        f"card {call.tool_result_card_id}",
        hint="nothing was written: a call has only one result",
    )


def message_of(
    found: ReportSituation, card_id: str, content: ToolResultContent, kind: MessageType = TOOL_RESULT_MESSAGE
) -> InboxMessage:
    """Return the message that reports this card as the call's result.

    Raises Conflict if the inbox row of the turn is lost.
    """
    call, asked = found.waiting, found.asked
    if asked is None:
        raise Conflict(
            f"turn {call.agent_turn_id} has lost its inbox row, so its headers are unknown",
            hint=f"restore the row with `cbx turn requeue {quote_argument(call.agent_turn_id)} "
            f"--expect-epoch {call.turn_epoch} --reason TEXT`",
        )
    return InboxMessage(
        type=kind,
        fence=Fence(call.agent_id, call.agent_turn_id, call.turn_epoch),
        channel_id=asked.channel_id,
        lineage=asked.lineage,
        correlation_id=call.tool_call_id,
        payload={
            "after_execution": content.after_execution,
            "status": content.status,
            "tool_result_card_id": card_id,
        },
        tool_call_id=call.tool_call_id,
        step_id=call.step_id,
    )


def _send(
    runtime: Runtime,
    found: ReportSituation,
    card_id: str,
    content: ToolResultContent,
    source_agent_id: str,
    kind: MessageType,
    cards: Sequence[CardDraft] = (),
) -> WrittenReport:
    """Write a report of the card with this id. The card is already stored, or is one of `cards`."""
    report = message_of(found, card_id, content, kind)
    row = _write(runtime, found, report, source_agent_id, cards, card_id) or _repoint_report(runtime, report)
    if row is None:
        raise Conflict(
            f"the call {found.waiting.tool_call_id!r} already has a report",
            hint=f"nothing was written; see `cbx turn show {quote_argument(found.waiting.agent_turn_id)}`",
        )
    runtime.notify_target(row, found.worker_target, "report")
    return _reported(found.waiting, card_id, row.inbox_id)


def _write(
    runtime: Runtime,
    found: ReportSituation,
    report: InboxMessage,
    source_agent_id: str,
    cards: Sequence[CardDraft],
    card_id: str,
) -> InboxRow | None:
    """Write `cards`, the inbox row and the edge of a report. Return None if the call already has a report.

    Raises CardConflict.
    """
    row = row_of(runtime.project_id, report).build_row(runtime.project_id, found.now)
    edge = edge_of(report, row, Sender(source_agent_id), {})
    while True:
        written = runtime.reports.write(row, edge, cards, card_id)
        if written.stored:
            return row if written.written else None
        for card in cards:
            # Another transaction may have just written the card. The next try then sees it.
            if card.card_id not in written.stored_ids:
                runtime.cards.add(card)


def _repoint_report(runtime: Runtime, report: InboxMessage) -> InboxRow | None:
    """Change the call's existing report so that it points to this card, and return its row.

    The report of another program may point to a card that does not exist or is not the result. Return None if
    the row is claimed, or if it already points to a result of the call.
    """
    row = runtime.inbox.find_by_correlation(report.type.name, report.correlation_id or "")
    if row is None or row.turn_id != report.fence.agent_turn_id or row.status not in (*DUE, ERROR, CONSUMED):
        return None
    if result_among(runtime.cards.get_many([row.pointer("tool_result_card_id") or ""]).cards, row):
        return None
    if row.status not in DUE:
        runtime.inbox.move([row.inbox_id], "retry", attempts=-row.retry_count, delay=timedelta(0))
    row_with_card = runtime.inbox.point_report(row.inbox_id, report.payload)
    if row_with_card is not None:
        card_id = report.payload["tool_result_card_id"]
        runtime.turns.receive(report.fence.agent_turn_id, report.correlation_id or "", card_id)
    return row_with_card


def _reported(tool: WaitingTool, card_id: str, inbox_id: str | None) -> WrittenReport:
    return WrittenReport(
        agent_turn_id=tool.agent_turn_id,
        tool_call_id=tool.tool_call_id,
        tool_result_card_id=card_id,
        inbox_id=inbox_id,
        created=inbox_id is not None,
    )


def report_end(
    runtime: Runtime, record: TurnRecord, end_status: str, deliverable_card_id: str, message: str | None
) -> None:
    """Report the end of a turn to the tool call that waits for it, if that call still waits.

    If the calling turn has not suspended yet, its suspension writes the report (`recovery/reaping.py`).
    """
    to = record.report_to
    if to is None:
        return
    content = result_of_end(runtime, record.agent_turn_id, end_status, deliverable_card_id, message)
    try:
        with runtime.transaction():
            turn_id, call_id = to["agent_turn_id"], to["tool_call_id"]
            report_result(runtime, turn_id, call_id, content, source_agent_id=record.agent_id)
    except (NotFound, Conflict) as exc:
        if isinstance(exc, NotFound) and runtime.turns.head_of(to["agent_turn_id"]) is not None:
            return
        fence = Fence(record.agent_id, record.agent_turn_id, record.end_epoch or 0)
        runtime.audit.write_of_turn(
            fence,
            action="report-dropped",
            actor=WATCHDOG,
            reason=exc.message,
            epoch_after=None,
            detail=dict(to),
        )


def result_of_end(
    runtime: Runtime, agent_turn_id: str, end_status: str, deliverable_card_id: str, message: str | None
) -> ToolResultContent:
    """Return the end of a turn as a tool result for the call that waits for it."""
    found = runtime.cards.get_many([deliverable_card_id]).cards
    result = {
        "agent_turn_id": agent_turn_id,
        "deliverable_card_id": deliverable_card_id,
        "deliverable": truncate(card_text(found[0].content), QUOTED_SIZE.value) if found else "",
    }
    error = {"code": f"turn_{end_status}", "message": message or f"the turn ended: {end_status}"}
    return ToolResultContent(
        status=end_status,
        after_execution="suspend",
        result=result,
        error=None if end_status == "success" else error,
    )


def report_timeouts(runtime: Runtime, calls: Sequence[WaitingTool]) -> list[WrittenReport]:
    """Report a timeout for each of these calls of an overdue turn, unless the call has a report."""
    error = {"code": "tool_timeout", "message": "no result came before the deadline"}
    content = ToolResultContent(status="timeout", after_execution="suspend", error=error)
    report = partial(report_result, runtime, content=content, source_agent_id=_TIMED_OUT_BY, kind=TIMEOUT)
    reports: list[WrittenReport] = []
    for call in (call for call in calls if call.wait_status == WAITING):
        try:
            with runtime.transaction():
                reports.append(report(call.agent_turn_id, call.tool_call_id))
        except CardConflict:
            raise
        except Conflict:
            # Another program has written a report for the call, and the row of the call does not name it.
            continue
    return reports
