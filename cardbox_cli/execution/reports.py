"""Reports: the result of a tool call on its way to the turn that waits for it.

A report is a `tool.result` card and an inbox row that points to it; `claims.py` hands the row to a worker,
who applies it here. The card's id is derived from the call, so that the same result twice is a replay.
"""

from datetime import timedelta
from typing import Any, Literal

import msgspec

from cardbox_cli.errors import CardConflict, Conflict, NotFound
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.model.cards import CardDraft, card_text, draft_card
from cardbox_cli.model.content import ToolResultContent
from cardbox_cli.model.headers import depth_of, new_trace_id, parent_of, trace_id_of, turn_headers
from cardbox_cli.model.ids import derived_id
from cardbox_cli.model.turns import (
    APPLIED,
    END_STATUSES,
    PENDING,
    RECEIVED,
    REPORTS,
    TIMEOUT,
    TOOL_RESULT,
    TURN,
    WAITING,
    WATCHDOG,
    Edge,
    EndStatus,
    Fence,
    Head,
    InboxRow,
    TurnRecord,
    WaitingTool,
    edge_context,
    new_edge_id,
    new_inbox_id,
)
from cardbox_cli.store.inbox import NewRow

# When to look again at a report that came before its turn has suspended, or its card can be seen.
TOO_EARLY = timedelta(seconds=1)


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
    message_type: str = TOOL_RESULT,
) -> Reported:
    """Report the result of a call that a suspended turn waits for.

    The same result again is harmless. Raises NotFound for a call that the turn never waited for, Conflict
    for a second result, and for a turn that has ended.
    """
    runtime.database.require_execution()
    with runtime.transaction():
        waiting = _hold_waiting_tool(runtime, agent_turn_id, tool_call_id)
        draft = _card(runtime, waiting, content, source_agent_id)
        if waiting.wait_status != WAITING:
            return _replayed(runtime, waiting, draft)
        runtime.cards.add(draft)
        row = _send(runtime, waiting, draft.card_id, content, source_agent_id, message_type)
        runtime.turns.receive(agent_turn_id, tool_call_id, draft.card_id)
    return Reported(
        agent_turn_id=agent_turn_id,
        tool_call_id=tool_call_id,
        tool_result_card_id=draft.card_id,
        inbox_id=row.inbox_id,
        created=True,
    )


def report_stored(runtime: Runtime, agent_turn_id: str, tool_call_id: str, card_id: str) -> Reported:
    """Report a result whose card is stored already, and whose report is lost.

    Raises NotFound for a call that the turn never waited for and for a card that is no result, Conflict where
    there is a report.
    """
    with runtime.transaction():
        waiting = _hold_waiting_tool(runtime, agent_turn_id, tool_call_id)
        cards = runtime.cards.get_many([card_id]).cards
        content = cards[0].content if cards else None
        if not isinstance(content, ToolResultContent):
            raise NotFound(f"the card {card_id!r} is no tool result", hint="`cbx card show` shows it")
        source = cards[0].author_id or WATCHDOG
        row = _send(runtime, waiting, card_id, content, source, TOOL_RESULT)
        runtime.turns.receive(agent_turn_id, tool_call_id, card_id)
    return Reported(
        agent_turn_id=agent_turn_id,
        tool_call_id=tool_call_id,
        tool_result_card_id=card_id,
        inbox_id=row.inbox_id,
        created=True,
    )


def _hold_waiting_tool(runtime: Runtime, agent_turn_id: str, tool_call_id: str) -> WaitingTool:
    """What waits for the call, held. Its turn's head is not: a report changes no state of the turn.

    Who ends a turn reports it to another agent's while he holds a head; two heads could wait for each other.
    """
    waiting = runtime.turns.lock_waiting(agent_turn_id, tool_call_id)
    if waiting is not None:
        return waiting
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


def _replayed(runtime: Runtime, tool: WaitingTool, draft: CardDraft) -> Reported:
    if tool.wait_status in (RECEIVED, APPLIED) and tool.tool_result_card_id == draft.card_id:
        try:
            runtime.cards.add(draft)
        except CardConflict:
            pass
        else:
            return Reported(
                agent_turn_id=tool.agent_turn_id,
                tool_call_id=tool.tool_call_id,
                tool_result_card_id=draft.card_id,
                inbox_id=None,
                created=False,
            )
    if tool.wait_status in (RECEIVED, APPLIED):
        raise Conflict(
            f"the call {tool.tool_call_id!r} of turn {tool.agent_turn_id} has another result already: "
            f"card {tool.tool_result_card_id}",
            hint="nothing was written; a call has one result",
        )
    raise Conflict(
        f"turn {tool.agent_turn_id} does not wait for the call {tool.tool_call_id!r} any more",
        hint="`cbx turn show` tells why; nothing was written",
    )


def _send(
    runtime: Runtime,
    tool: WaitingTool,
    card_id: str,
    content: ToolResultContent,
    source_agent_id: str,
    message_type: str,
) -> InboxRow:
    rows = runtime.inbox.of_turn(tool.agent_turn_id)
    asked = next((row for row in rows if row.message_type == TURN), None)
    if asked is None:
        raise Conflict(
            f"turn {tool.agent_turn_id} has lost its inbox row: its headers are unknown",
            hint="`cbx turn requeue` makes the row anew",
        )
    headers = asked.context_headers
    depth, trace_id = depth_of(headers), trace_id_of(headers)
    parent_agent_id, parent_turn_id, parent_step_id = parent_of(headers)
    row = runtime.inbox.insert(
        NewRow(
            inbox_id=new_inbox_id(),
            agent_id=tool.agent_id,
            message_type=message_type,
            status=PENDING,
            channel_id=asked.channel_id,
            correlation_id=tool.tool_call_id,
            agent_turn_id=tool.agent_turn_id,
            turn_epoch=tool.turn_epoch,
            payload={
                "after_execution": content.after_execution,
                "status": content.status,
                "tool_result_card_id": card_id,
            },
            context_headers=turn_headers(
                project_id=runtime.project_id,
                channel_id=asked.channel_id,
                agent_id=tool.agent_id,
                agent_turn_id=tool.agent_turn_id,
                turn_epoch=tool.turn_epoch,
                depth=depth,
                trace_id=trace_id or new_trace_id(),
                parent_agent_id=parent_agent_id,
                parent_turn_id=parent_turn_id,
                parent_step_id=parent_step_id,
                tool_call_id=tool.tool_call_id,
            ),
        )
    )
    if row is None:
        raise Conflict(
            f"the call {tool.tool_call_id!r} has a report already",
            hint="nothing was written; look at it first",
        )
    runtime.turns.insert_edge(
        Edge(
            edge_id=new_edge_id(),
            channel_id=asked.channel_id,
            primitive="report",
            edge_phase="response",
            source_agent_id=source_agent_id,
            source_agent_turn_id=None,
            source_step_id=None,
            target_agent_id=tool.agent_id,
            target_agent_turn_id=tool.agent_turn_id,
            correlation_id=tool.tool_call_id,
            enqueue_mode=None,
            recursion_depth=depth,
            trace_id=trace_id,
            parent_step_id=tool.step_id,
            metadata={
                "message_type": message_type,
                "inbox_id": row.inbox_id,
                "recursion_depth": depth,
                "cg_ctx": edge_context(row, step_id=tool.step_id, tool_call_id=tool.tool_call_id),
            },
            created_at=None,
        )
    )
    agent = runtime.roster.find(tool.agent_id)
    if agent is not None:
        runtime.call(row, agent.worker_target, "report")
    return row


def report_end(
    runtime: Runtime, record: TurnRecord, end_status: str, deliverable_card_id: str, message: str | None
) -> None:
    """Report the end of a turn to the call that waits for it. Nobody waiting any more is no error.

    A turn that does not wait yet hears it when it suspends: `report_ended_children`.
    """
    to = record.report_to or {}
    try:
        with runtime.transaction():
            _report_end(runtime, record, end_status, deliverable_card_id, message)
    except (NotFound, Conflict) as exc:
        if isinstance(exc, NotFound) and runtime.turns.head_of(to["agent_turn_id"]) is not None:
            return
        fence = Fence(record.agent_id, record.agent_turn_id, record.end_epoch or 0)
        runtime.turns.audit(
            fence,
            action="report-dropped",
            actor=WATCHDOG,
            reason=exc.message,
            epoch_after=None,
            detail=dict(to),
        )


def report_ended_children(runtime: Runtime, agent_turn_id: str | None = None) -> list[str]:
    """Report the ends of turns that a suspended turn (None: any) waits for, and that ended before it did.

    To be called where a turn suspends, in the same transaction. The turns whose ends were reported.
    """
    reported = []
    for record in runtime.turns.ended_children(agent_turn_id):
        status, card_id = record.end_status or "failed", record.deliverable_card_id or ""
        try:
            with runtime.transaction():
                _report_end(runtime, record, status, card_id, record.error)
        except (NotFound, Conflict):
            continue
        reported.append(record.agent_turn_id)
    return reported


def _report_end(
    runtime: Runtime, record: TurnRecord, end_status: str, deliverable_card_id: str, message: str | None
) -> None:
    found = runtime.cards.get_many([deliverable_card_id]).cards
    result = {
        "agent_turn_id": record.agent_turn_id,
        "deliverable_card_id": deliverable_card_id,
        "deliverable": card_text(found[0].content) if found else "",
    }
    error = {"code": f"turn_{end_status}", "message": message or f"the turn ended: {end_status}"}
    content = ToolResultContent(
        status=end_status,
        after_execution="suspend",
        result=result,
        error=None if end_status == "success" else error,
    )
    to = record.report_to or {}
    report_result(runtime, to["agent_turn_id"], to["tool_call_id"], content, source_agent_id=record.agent_id)


def report_timeouts(runtime: Runtime, head: Head) -> list[Reported]:
    """Report a timeout for each call of an overdue turn that has no result on its way."""
    turn_id = head.fence.agent_turn_id
    waiting = [tool for tool in runtime.turns.waiting_tools(turn_id) if tool.wait_status == WAITING]
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
                source_agent_id="worker.watchdog",
                message_type=TIMEOUT,
            )
    except CardConflict:
        raise
    except Conflict:
        # Another program wrote a report that is not noted beside the call.
        return None


class Applied(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a claimed report.

    `resumed`: the turn goes on at `fence`; `terminate`: it may end now, with `end_status`; `waiting`: for
    other calls; `stale`: nobody waits for it; `early`, and `busy` while its turn has not suspended: to be
    looked at again.
    """

    outcome: Literal["resumed", "terminate", "waiting", "stale", "early", "busy"]
    fence: Fence
    reason: str | None = None
    end_status: EndStatus = "success"


def apply_report(runtime: Runtime, row: InboxRow) -> Applied:
    """Apply a claimed report to its turn: the result goes into the output box, once.

    Takes part in the caller's transaction, who has claimed the row, which does not carry the turn yet, and
    then does with it what the outcome says.
    """
    assert row.message_type in REPORTS
    head = runtime.heads.lock(row.agent_id)
    if head is None or head.active_agent_turn_id != row.turn_id:
        return Applied(outcome="stale", fence=row.fence, reason="its turn is not active any more")
    tools = runtime.turns.waiting_tools(row.turn_id)
    tool = next((each for each in reversed(tools) if each.tool_call_id == row.correlation_id), None)
    if head.status != "suspended":
        if tool is not None and tool.wait_status not in (WAITING, RECEIVED):
            return Applied(
                outcome="stale", fence=head.fence, reason=f"its result was {tool.wait_status} before"
            )
        return Applied(outcome="busy", fence=head.fence, reason=f"its turn is {head.status}")
    if tool is None or tool.wait_status not in (WAITING, RECEIVED):
        return Applied(outcome="stale", fence=head.fence, reason="its turn does not wait for that call")
    card_id = row.pointer("tool_result_card_id") or ""
    found = runtime.cards.get_many([card_id]).cards
    if not found:
        return Applied(outcome="early", fence=head.fence, reason=f"its card {card_id!r} cannot be seen")
    return _apply(runtime, head, tool, found[0].card_id)


def _apply(runtime: Runtime, head: Head, tool: WaitingTool, card_id: str) -> Applied:
    _show(runtime, head, card_id)
    runtime.turns.apply(tool.agent_turn_id, tool.tool_call_id, card_id)
    tools = runtime.turns.waiting_tools(tool.agent_turn_id)
    left = [each for each in tools if each.wait_status in (WAITING, RECEIVED)]
    if left:
        runtime.heads.set_waiting(head.fence, len(left))
        return Applied(outcome="waiting", fence=head.fence, reason=f"{len(left)} more to come")
    ended = _termination(runtime, [each for each in tools if each.step_id == tool.step_id])
    if ended is not None:
        return Applied(outcome="terminate", fence=head.fence, end_status=ended)
    epoch = runtime.heads.move(head.fence, "resume")
    fence = Fence(head.agent_id, head.fence.agent_turn_id, epoch)
    runtime.tell_state(head, "running", epoch)
    return Applied(outcome="resumed", fence=fence)


def _show(runtime: Runtime, head: Head, card_id: str) -> None:
    """The result goes into the turn's output box, unless it is there."""
    if head.output_box_id is not None:
        box = runtime.boxes.ensure(head.output_box_id)
        if card_id not in box.card_ids:
            runtime.boxes.append(box.box_id, [card_id], fence=head.fence)


def keep_results(runtime: Runtime, head: Head, dropped: list[WaitingTool]) -> None:
    """Put results that had come, and that nobody will apply, into the output box. The turn is active."""
    card_ids = [tool.tool_result_card_id for tool in dropped if tool.tool_result_card_id is not None]
    for card in runtime.cards.get_many(card_ids).cards:
        _show(runtime, head, card.card_id)


def _termination(runtime: Runtime, tools: list[WaitingTool]) -> EndStatus | None:
    """How the turn ends, where one of its results says that it does: the first status that is no success."""
    ids = [tool.tool_result_card_id for tool in tools if tool.tool_result_card_id is not None]
    contents: list[Any] = [card.content for card in runtime.cards.get_many(ids).cards]
    results = [content for content in contents if isinstance(content, ToolResultContent)]
    if not any(result.after_execution == "terminate" for result in results):
        return None
    said = next((result.status for result in results if result.status != "success"), "success")
    return next((status for status in END_STATUSES if status == said), "failed")
