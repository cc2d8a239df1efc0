"""Reports: the result of a tool call on its way to the turn that waits for it.

A report is a `tool.result` card and an inbox row that points to it; `claims.py` hands the row to a worker,
and `applying.py` applies it. The card's id is derived from the call: the same result twice is a replay.
"""

from collections.abc import Sequence
from datetime import timedelta

import msgspec

from cardbox_cli.errors import CardConflict, Conflict, NotFound
from cardbox_cli.execution.queue.applying import reported_card
from cardbox_cli.execution.queue.messages import (
    TIMEOUT,
    TOOL_RESULT,
    Message,
    MessageType,
    Sender,
    edge_of,
    row_of,
)
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.limits import JOINED_SIZE
from cardbox_cli.model.cards import CardDraft, card_text, draft_card
from cardbox_cli.model.content import ToolResultContent
from cardbox_cli.model.execution.turns import (
    APPLIED,
    CONSUMED,
    DUE,
    ERROR,
    RECEIVED,
    WAITING,
    WATCHDOG,
    Fence,
    InboxRow,
    TurnRecord,
    WaitingTool,
)
from cardbox_cli.model.ids import derived_id
from cardbox_cli.store.execution.reports import ReportSituation
from cardbox_cli.text import shortened

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
    kind: MessageType = TOOL_RESULT,
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
        return _send(runtime, found, card_id, content, source, TOOL_RESULT)


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
    found: ReportSituation, card_id: str, content: ToolResultContent, kind: MessageType = TOOL_RESULT
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
