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
from cardbox_cli.model.headers import depth_of, parent_of, trace_id_of, turn_headers
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
        waiting = _waiting_tool(runtime, agent_turn_id, tool_call_id)
        runtime.heads.lock(waiting.agent_id)
        waiting = _waiting_tool(runtime, agent_turn_id, tool_call_id)
        draft = _card(runtime, waiting, content, source_agent_id)
        if waiting.wait_status != WAITING:
            return _replayed(runtime, waiting, draft)
        runtime.cards.add(draft)
        row = _send(runtime, waiting, draft, content, source_agent_id, message_type)
        runtime.turns.receive(agent_turn_id, tool_call_id, draft.card_id)
    return Reported(
        agent_turn_id=agent_turn_id,
        tool_call_id=tool_call_id,
        tool_result_card_id=draft.card_id,
        inbox_id=row.inbox_id,
        created=True,
    )


def _waiting_tool(runtime: Runtime, agent_turn_id: str, tool_call_id: str) -> WaitingTool:
    known = runtime.turns.waiting_tools(agent_turn_id)
    found = [tool for tool in known if tool.tool_call_id == tool_call_id]
    if not found:
        calls = ", ".join(tool.tool_call_id for tool in known if tool.wait_status == WAITING)
        raise NotFound(
            f"turn {agent_turn_id} does not wait for a call {tool_call_id!r}",
            hint=f"it waits for {calls}" if calls else "it waits for none: `cbx turn show` tells its story",
        )
    return found[-1]


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
    draft: CardDraft,
    content: ToolResultContent,
    source_agent_id: str,
    message_type: str,
) -> InboxRow:
    asked = next(row for row in runtime.inbox.of_turn(tool.agent_turn_id) if row.message_type == TURN)
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
                "tool_result_card_id": draft.card_id,
            },
            context_headers=turn_headers(
                project_id=runtime.project_id,
                channel_id=asked.channel_id,
                agent_id=tool.agent_id,
                agent_turn_id=tool.agent_turn_id,
                turn_epoch=tool.turn_epoch,
                depth=depth,
                trace_id=trace_id or "",
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
            metadata={"message_type": message_type, "inbox_id": row.inbox_id},
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
    """Report the end of a turn to the call that waits for it. Nobody waiting any more is no error."""
    to = record.report_to or {}
    found = runtime.cards.get_many([deliverable_card_id]).cards
    text = card_text(found[0].content) if found else ""
    facts = {"agent_turn_id": record.agent_turn_id, "deliverable_card_id": deliverable_card_id}
    if end_status == "success":
        content = ToolResultContent(
            status="success", after_execution="suspend", result={**facts, "deliverable": text}
        )
    else:
        error = {"code": f"turn_{end_status}", "message": message or f"the turn ended: {end_status}"}
        content = ToolResultContent(
            status=end_status,
            after_execution="suspend",
            result={**facts, "deliverable": text},
            error=error,
        )
    try:
        with runtime.transaction():
            report_result(
                runtime, to["agent_turn_id"], to["tool_call_id"], content, source_agent_id=record.agent_id
            )
    except (NotFound, Conflict) as exc:
        fence = Fence(record.agent_id, record.agent_turn_id, record.end_epoch or 0)
        runtime.turns.audit(
            fence,
            action="report-dropped",
            actor=WATCHDOG,
            reason=exc.message,
            epoch_after=None,
            detail=dict(to),
        )


def report_timeouts(runtime: Runtime, head: Head) -> list[Reported]:
    """Report a timeout for each call that an overdue turn still waits for."""
    turn_id = head.fence.agent_turn_id
    error = {"code": "tool_timeout", "message": "no result came before the deadline"}
    content = ToolResultContent(status="timeout", after_execution="suspend", error=error)
    waiting = [tool for tool in runtime.turns.waiting_tools(turn_id) if tool.wait_status == WAITING]
    return [
        report_result(
            runtime,
            turn_id,
            tool.tool_call_id,
            content,
            source_agent_id="worker.watchdog",
            message_type=TIMEOUT,
        )
        for tool in waiting
    ]


class Applied(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a claimed report.

    `resumed`: the turn goes on at `fence`; `terminate`: it may end now, with `end_status`; `waiting`: for
    other calls; `stale`: nobody waits for it; `early`: to be looked at again.
    """

    outcome: Literal["resumed", "terminate", "waiting", "stale", "early"]
    fence: Fence
    reason: str | None = None
    end_status: EndStatus = "success"


def apply_report(runtime: Runtime, row: InboxRow) -> Applied:
    """Apply a claimed report to its turn: the result goes into the output box, once.

    Takes part in the caller's transaction, who has claimed the row and then does with it what the outcome
    says.
    """
    assert row.message_type in REPORTS
    head = runtime.heads.lock(row.agent_id)
    if head is None or head.active_agent_turn_id != row.turn_id:
        return Applied(outcome="stale", fence=row.fence, reason="its turn is not active any more")
    if head.status == "dispatched" and head.turn_epoch == row.turn_epoch:
        return Applied(outcome="resumed", fence=head.fence, reason="taken up again")
    tools = runtime.turns.waiting_tools(row.turn_id)
    tool = next((each for each in reversed(tools) if each.tool_call_id == row.correlation_id), None)
    if head.status != "suspended":
        if tool is not None and tool.wait_status == APPLIED:
            return Applied(outcome="stale", fence=head.fence, reason="its result was applied before")
        return Applied(outcome="early", fence=head.fence, reason=f"its turn is {head.status}")
    if tool is None or tool.wait_status not in (WAITING, RECEIVED):
        return Applied(outcome="stale", fence=head.fence, reason="its turn does not wait for that call")
    card_id = row.pointer("tool_result_card_id") or ""
    found = runtime.cards.get_many([card_id]).cards
    if not found:
        return Applied(outcome="early", fence=head.fence, reason=f"its card {card_id!r} cannot be seen")
    return _apply(runtime, head, tool, found[0].card_id)


def _apply(runtime: Runtime, head: Head, tool: WaitingTool, card_id: str) -> Applied:
    if head.output_box_id is not None:
        box = runtime.boxes.ensure(head.output_box_id)
        if card_id not in box.card_ids:
            runtime.boxes.append(box.box_id, [card_id], fence=head.fence)
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


def _termination(runtime: Runtime, tools: list[WaitingTool]) -> EndStatus | None:
    """How the turn ends, where one of its results says that it does: the first status that is no success."""
    ids = [tool.tool_result_card_id for tool in tools if tool.tool_result_card_id is not None]
    contents: list[Any] = [card.content for card in runtime.cards.get_many(ids).cards]
    results = [content for content in contents if isinstance(content, ToolResultContent)]
    if not any(result.after_execution == "terminate" for result in results):
        return None
    said = next((result.status for result in results if result.status != "success"), "success")
    return next((status for status in END_STATUSES if status == said), "failed")
