"""Reports: the result of a tool call on its way to the turn that waits for it.

A report is a `tool.result` card and an inbox row that points to it; `claims.py` hands the row to a worker,
and `applying.py` applies it. The card's id is derived from the call: the same result twice is a replay.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Literal

import msgspec

from cardbox_cli.errors import CardConflict, Conflict, NotFound
from cardbox_cli.execution.queue.messages import TIMEOUT, Message, MessageType, Sender, edge_of, row_of
from cardbox_cli.execution.queue.messages import TOOL_RESULT as TOOL_RESULT_MESSAGE
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.execution.tool_calls import ended_by
from cardbox_cli.limits import JOINED_SIZE
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
from cardbox_cli.text import shortened

# Applying reports: the result of a claimed report goes into the output box of its turn, once.
#
# One read of all that decides, which `claims.py` makes, the decision, one write of every row. When none is
# left
# to come the turn resumes, or may end. What happens to a row whose report is not applied is `claims.py`'s.


# When to look again at a report that came before its turn has suspended, or its card can be seen.
TOO_EARLY = timedelta(seconds=1)


class Applied(msgspec.Struct, frozen=True, kw_only=True):
    """What becomes of a claimed report.

    `resumed`: the turn goes on at `fence`; `terminate`: it may end now, with `end_status`; `waiting`: for
    other calls; `stale`: nobody waits for it; `early`, and `busy` while its turn has not suspended: to be
    looked at again. The first three apply the card of `card_id` to `call`, and `left` others are to come.
    """

    outcome: Literal["resumed", "terminate", "waiting", "stale", "early", "busy"]
    fence: Fence
    reason: str | None = None
    end_status: EndStatus = "success"
    call: WaitingTool | None = None
    card_id: str = ""
    left: int = 0
    row: InboxRow | None = None


def decide(found: ClaimedSituation) -> Applied:
    """What becomes of a report that does not carry its turn yet; nothing is written for it."""
    row, head, calls = found.row, found.head, found.calls or []
    if head is None or head.active_agent_turn_id != row.turn_id:
        return Applied(outcome="stale", fence=row.fence, reason="its turn is not active any more")
    call = next((each for each in reversed(calls) if each.tool_call_id == row.correlation_id), None)
    if head.status != SUSPENDED:
        if call is not None and not call.is_open:
            why = f"its result was {call.wait_status} before"
            return Applied(outcome="stale", fence=head.fence, reason=why)
        return Applied(outcome="busy", fence=head.fence, reason=f"its turn is {head.status}")
    if call is None or not call.is_open:
        return Applied(outcome="stale", fence=head.fence, reason="its turn does not wait for that call")
    card = result_among(found.results, row)
    if card is None:
        named = row.pointer("tool_result_card_id") or ""
        why = f"its card {named!r} cannot be seen, or is no result of the call"
        return Applied(outcome="early", fence=head.fence, reason=why)
    return _applied(found, head.fence, call, card)


def _applied(found: ClaimedSituation, fence: Fence, call: WaitingTool, card: Card) -> Applied:
    # Nobody else applies a result while the head is held.
    others = [each for each in found.calls or [] if each.tool_call_id != call.tool_call_id]
    left = sum(each.is_open for each in others)
    if left:
        why = f"{left} more to come"
        return Applied(outcome="waiting", fence=fence, reason=why, call=call, card_id=card.card_id, left=left)
    by_id = {each.card_id: each for each in found.results}
    named = [each.tool_result_card_id for each in others if each.step_id == call.step_id]
    ended = ended_by([*(by_id[card_id] for card_id in unique(filter(None, named)) if card_id in by_id), card])
    if ended is not None:
        return Applied(outcome="terminate", fence=fence, end_status=ended, call=call, card_id=card.card_id)
    return Applied(outcome="resumed", fence=fence, call=call, card_id=card.card_id)


def apply_report(runtime: Runtime, found: ClaimedSituation) -> Applied:
    """Apply a claimed report to its turn: decide, and write. The result goes into the output box, once.

    Takes part in the caller's transaction, who holds all that was found. Where the turn resumes or waits the
    claimed row is as it is to be, and else for him to move.
    """
    applied, head = decide(found), found.head
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
            raise runtime.heads.stale(head.fence, runtime.heads.get(head.agent_id))
        runtime.boxes.ensure(head.output_box_id)
    assert written is not None
    if applied.outcome == "resumed":
        runtime.publish_state(head, RUNNING, written.turn_epoch)
    return msgspec.structs.replace(
        applied, fence=head.fence_at(written.turn_epoch), row=written.row or found.row
    )


def reported_card(runtime: Runtime, row: InboxRow) -> Card | None:
    """The card that a report points to, where it is the result of the call: others may point anywhere."""
    return result_among(runtime.cards.get_many([row.pointer("tool_result_card_id") or ""]).cards, row)


def result_among(cards: Sequence[Card], row: InboxRow) -> Card | None:
    """`reported_card`, if it is one of these."""
    named = [card for card in cards if card.card_id == row.pointer("tool_result_card_id")]
    results = (card for card in named if card.type == TOOL_RESULT and card.tool_call_id == row.correlation_id)
    return next(results, None)


def _show(runtime: Runtime, head: Head, card_id: str) -> None:
    """The result goes into the turn's output box, unless it is there."""
    if head.output_box_id is not None:
        runtime.boxes.put(head.output_box_id, card_id)


def keep_results(runtime: Runtime, head: Head, dropped: list[WaitingTool]) -> None:
    """Put results that had come, and that nobody will apply, into the output box. The turn is active."""
    card_ids = [tool.tool_result_card_id for tool in dropped if tool.tool_result_card_id is not None]
    for card in runtime.cards.get_many(card_ids).cards:
        _show(runtime, head, card.card_id)


# Whose cards timeouts are in the card-box protocol v1r4.
_TIMED_OUT_BY = "worker.watchdog"

PLACEHOLDER = "…"
"""What stands for a result in a command that is printed to be completed, and is none."""


class Reported(msgspec.Struct, frozen=True, kw_only=True):
    """A report that is on its way. `created` is False for one that had been made before."""

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
) -> Reported:
    """Report the result of a call that a suspended turn waits for.

    `actor` is the person who does, for the audit. The same result again is harmless. Raises NotFound for a
    call that the turn never waited for, Conflict for a second result, and for a turn that has ended.
    """
    runtime.database.require_execution()
    with runtime.transaction():
        found = _hold_waiting(runtime, agent_turn_id, tool_call_id)
        draft = _card(runtime, found.waiting, content, source_agent_id)
        if is_replay(found.waiting, draft.card_id):
            return _replayed(runtime, found.waiting, draft)
        reported = _send(runtime, found, draft.card_id, content, source_agent_id, kind, [draft])
        if actor is not None:
            _audit(runtime, found.waiting, draft.card_id, content, actor)
        return reported


def _audit(
    runtime: Runtime, waiting: WaitingTool, card_id: str, content: ToolResultContent, actor: str
) -> None:
    detail = {"tool_call_id": waiting.tool_call_id, "card_id": card_id, "status": content.status}
    fence = Fence(waiting.agent_id, waiting.agent_turn_id, waiting.turn_epoch)
    runtime.audit.write_of_turn(
        fence, action="report", actor=actor, reason=None, epoch_after=waiting.turn_epoch, detail=detail
    )


def report_stored(runtime: Runtime, agent_turn_id: str, tool_call_id: str, card_id: str) -> Reported:
    """Report a result whose card is stored already, and whose report is lost.

    Raises NotFound for a call that the turn never waited for and for a card that is no result, Conflict where
    there is a report.
    """
    with runtime.transaction():
        found = _hold_waiting(runtime, agent_turn_id, tool_call_id)
        cards = runtime.cards.get_many([card_id]).cards
        content = cards[0].content if cards else None
        if not isinstance(content, ToolResultContent):
            raise NotFound(f"the card {card_id!r} is no tool result", hint="`cbx card show` shows it")
        source = cards[0].author_id or WATCHDOG
        return _send(runtime, found, card_id, content, source, TOOL_RESULT_MESSAGE)


def _hold_waiting(runtime: Runtime, agent_turn_id: str, tool_call_id: str) -> ReportSituation:
    """What waits for the call, held. Its turn's head is not: a report changes no state of the turn.

    Who ends a turn reports it to another agent's while he holds a head; two heads could wait for each other.
    """
    found = runtime.reports.situation(agent_turn_id, tool_call_id)
    if found is not None:
        return found
    known = runtime.turns.waiting_tools(agent_turn_id)
    calls = ", ".join(tool.tool_call_id for tool in known if tool.wait_status == WAITING)
    raise NotFound(
        f"turn {agent_turn_id} does not wait for a call {tool_call_id!r}",
        hint=f"it waits for {calls}" if calls else "it waits for none: `cbx turn show` tells its story",
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
    """Whether this card was reported to the call before; False where the call waits for a result.

    Raises Conflict where it has another, and where nobody waits for it any more.
    """
    if call.wait_status == WAITING:
        return False
    if call.wait_status not in (RECEIVED, APPLIED):
        raise Conflict(
            f"turn {call.agent_turn_id} does not wait for the call {call.tool_call_id!r} any more",
            hint="`cbx turn show` tells why; nothing was written",
        )
    if call.tool_result_card_id != card_id:
        raise _has_another(call)
    return True


def _has_another(call: WaitingTool) -> Conflict:
    return Conflict(
        f"the call {call.tool_call_id!r} of turn {call.agent_turn_id} has another result already: "
        f"card {call.tool_result_card_id}",
        hint="nothing was written; a call has one result",
    )


def _replayed(runtime: Runtime, call: WaitingTool, draft: CardDraft) -> Reported:
    try:
        runtime.cards.add(draft)
    except CardConflict:
        raise _has_another(call) from None
    return _reported(call, draft.card_id, None)


def message_of(
    found: ReportSituation, card_id: str, content: ToolResultContent, kind: MessageType = TOOL_RESULT_MESSAGE
) -> Message:
    """The report that this card is the result of the call. Raises Conflict where its turn's row is lost."""
    call, asked = found.waiting, found.asked
    if asked is None:
        raise Conflict(
            f"turn {call.agent_turn_id} has lost its inbox row: its headers are unknown",
            hint="`cbx turn requeue` makes the row anew",
        )
    return Message(
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
) -> Reported:
    """Report the card of this id, one of `cards` unless it is stored already."""
    report = message_of(found, card_id, content, kind)
    row = _write(runtime, found, report, source_agent_id, cards, card_id) or _mend(runtime, report)
    if row is None:
        raise Conflict(
            f"the call {found.waiting.tool_call_id!r} has a report already",
            hint="nothing was written; `cbx turn show` names its row, `cbx inbox show` shows it",
        )
    runtime.notify_target(row, found.worker_target, "report")
    return _reported(found.waiting, card_id, row.inbox_id)


def _write(
    runtime: Runtime,
    found: ReportSituation,
    report: Message,
    source_agent_id: str,
    cards: Sequence[CardDraft],
    card_id: str,
) -> InboxRow | None:
    """Write the rows of a report; None where the call has one. Raises CardConflict."""
    row = row_of(runtime.project_id, report).written(runtime.project_id, found.now)
    edge = edge_of(report, row, Sender(source_agent_id), {})
    while True:
        done = runtime.reports.write(row, edge, cards, card_id)
        if done.stored:
            return row if done.written else None
        for card in cards:
            # Unless somebody else has written it just now, which is seen then.
            if card.card_id not in done.stored_ids:
                runtime.cards.add(card)


def _mend(runtime: Runtime, report: Message) -> InboxRow | None:
    """The row that reports this call already, led to the present card where its own is no result of the call.

    Other programs report before they store, store nothing, or point elsewhere. None where the row is claimed
    or has a result: a call has one.
    """
    row = runtime.inbox.by_correlation(report.type.name, report.correlation_id or "")
    if row is None or row.turn_id != report.fence.agent_turn_id or row.status not in (*DUE, ERROR, CONSUMED):
        return None
    if reported_card(runtime, row) is not None:
        return None
    if row.status not in DUE:
        runtime.inbox.move([row.inbox_id], "retry", attempts=-row.retry_count, delay=timedelta(0))
    pointed = runtime.inbox.point_report(row.inbox_id, report.payload)
    if pointed is not None:
        card_id = report.payload["tool_result_card_id"]
        runtime.turns.receive(report.fence.agent_turn_id, report.correlation_id or "", card_id)
    return pointed


def _reported(tool: WaitingTool, card_id: str, inbox_id: str | None) -> Reported:
    return Reported(
        agent_turn_id=tool.agent_turn_id,
        tool_call_id=tool.tool_call_id,
        tool_result_card_id=card_id,
        inbox_id=inbox_id,
        created=inbox_id is not None,
    )


def report_end(
    runtime: Runtime, record: TurnRecord, end_status: str, deliverable_card_id: str, message: str | None
) -> None:
    """Report the end of a turn to the call that waits for it, if one does. That it waits no more is no error.

    A turn that does not wait yet gets it when it suspends: `recovery/lost_reports.py`.
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
    """The end of a turn, as the result of the call that waits for it."""
    found = runtime.cards.get_many([deliverable_card_id]).cards
    result = {
        "agent_turn_id": agent_turn_id,
        "deliverable_card_id": deliverable_card_id,
        "deliverable": shortened(card_text(found[0].content), JOINED_SIZE.value) if found else "",
    }
    error = {"code": f"turn_{end_status}", "message": message or f"the turn ended: {end_status}"}
    return ToolResultContent(
        status=end_status,
        after_execution="suspend",
        result=result,
        error=None if end_status == "success" else error,
    )


def report_timeouts(runtime: Runtime, calls: Sequence[WaitingTool]) -> list[Reported]:
    """Report a timeout for each of these calls of an overdue turn that has no result on its way."""
    waiting = [call for call in calls if call.wait_status == WAITING]
    return [report for tool in waiting if (report := _report_timeout(runtime, tool)) is not None]


def _report_timeout(runtime: Runtime, tool: WaitingTool) -> Reported | None:
    error = {"code": "tool_timeout", "message": "no result came before the deadline"}
    try:
        with runtime.transaction():
            return report_result(
                runtime,
                tool.agent_turn_id,
                tool.tool_call_id,
                ToolResultContent(status="timeout", after_execution="suspend", error=error),
                source_agent_id=_TIMED_OUT_BY,
                kind=TIMEOUT,
            )
    except CardConflict:
        raise
    except Conflict:
        # Another program wrote a report that is not noted beside the call.
        return None
