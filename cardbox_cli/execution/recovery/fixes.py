"""The fixes that an operator applies to a turn: nudge, stop, fail, reclaim, requeue and rebox.

All fixes except `nudge` and `stop` require the current epoch, and are refused at any other epoch. A fix
increments the epoch, so that the old worker's writes fail. `model/execution/turns.py` defines the moves.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

import msgspec

from cardbox_cli.errors import BoxConflict, Conflict, InvalidInput, NotFound
from cardbox_cli.execution.queue.messages import TURN, InboxMessage, is_report, is_turn, write_row
from cardbox_cli.execution.queue.promotion import promote_next
from cardbox_cli.execution.queue.stopping import cancel_turn, carries, return_row, return_to_queue, stop_turn
from cardbox_cli.execution.requests.turn_requests import present_cards
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.execution.tool_calls import pending_calls
from cardbox_cli.model.boxes import Slot
from cardbox_cli.model.execution.headers import Lineage
from cardbox_cli.model.execution.turns import (
    DEFAULT_CHANNEL,
    DISPATCHED,
    DUE,
    ENDED,
    PENDING,
    PROCESSING,
    QUEUED,
    RUNNING,
    STEP_INACTIVE,
    SUSPENDED,
    Fence,
    Head,
    InboxRow,
    TurnEnd,
)
from cardbox_cli.store.views.turn_views import TurnViews


class Orphan(NamedTuple):
    """An inactive turn that another program left without ending it. `head` is its agent's locked head.

    `fence` has the agent's present epoch. `row` is None if the inbox row of the turn is lost.
    """

    head: Head
    fence: Fence
    row: InboxRow | None


def find_orphan(runtime: Runtime, agent_turn_id: str, expect_epoch: int) -> Orphan | None:
    """Return the turn if it is an orphan. Return None for an active, queued, ended or unknown turn.

    Raises StaleEpoch if the agent of an orphan is not at the epoch `expect_epoch`.
    """
    if (row := runtime.inbox.turn_row(agent_turn_id)) is not None:
        agent_id: str | None = row.agent_id
    else:
        edge = runtime.turns.enqueue_edge(agent_turn_id)
        agent_id = None if edge is None else edge.target_agent_id
    if agent_id is None or not runtime.database.keeps_turns:
        return None
    head = runtime.heads.lock(agent_id)
    row = runtime.inbox.turn_row(agent_turn_id)
    if head is None or head.active_agent_turn_id == agent_turn_id:
        return None
    turns = TurnViews(runtime.database, runtime.project_id).get_many([agent_turn_id])
    if any(turn.status in (ENDED, QUEUED) for turn in turns):
        return None
    fence = Fence(agent_id, agent_turn_id, expect_epoch)
    if head.turn_epoch != expect_epoch:
        raise runtime.heads.stale_error(fence, head)
    return Orphan(head, fence, row)


def find_own_start(runtime: Runtime, head: Head, output_box_id: str) -> int:
    """Return the position in a new output box at which the cards of the active turn begin.

    If the box has none of its cards, return the length of the box. Raises Conflict if the box lacks an open
    call of the turn, or the result of an answered call.
    """
    turn_id = head.fence.agent_turn_id
    own = _own_slots(runtime, head)
    slots = runtime.boxes.slots(output_box_id)
    known = {slot.card_id for slot in own or ()}
    start = next((slot.position for slot in slots if _is_own(slot, turn_id, known)), len(slots))
    _refuse_loss(runtime, turn_id, own, slots[start:], output_box_id)
    return start


def _own_slots(runtime: Runtime, head: Head) -> list[Slot] | None:
    """Return the slots that the turn has written to its present output box, or None if the box is missing."""
    if head.output_box_id is None or not runtime.boxes.filter_existing([head.output_box_id]):
        return None
    slots = runtime.boxes.slots(head.output_box_id)
    record = runtime.turns.record(head.fence.agent_turn_id)
    if record is not None and record.output_start is not None:
        return slots[record.output_start :]
    start = (slot.position for slot in slots if _is_own(slot, head.fence.agent_turn_id, ()))
    return slots[next(start, len(slots)) :]


def _is_own(slot: Slot, turn_id: str, known: Collection[str]) -> bool:
    wrote = slot.card is not None and slot.card.metadata.get("agent_turn_id") == turn_id
    return wrote or slot.card_id in known


def _refuse_loss(
    runtime: Runtime, turn_id: str, own: Sequence[Slot] | None, new: Sequence[Slot], box_id: str
) -> None:
    open_call_ids = [tool.tool_call_id for tool in runtime.turns.waiting_tools(turn_id) if tool.is_open]
    before = [*open_call_ids, *_pending_call_ids(own or ())]
    after = _pending_call_ids(new)
    lost = [call_id for call_id in before if call_id not in after]
    reopened = [call_id for call_id in after if own is not None and call_id not in before]
    if not lost and not reopened:
        return
    what = (
        f"does not hold the open call {lost[0]!r}"
        if lost
        else f"lacks the result of the call {reopened[0]!r}"
    )
    raise Conflict(
        f"box {box_id} {what} of turn {turn_id} after the turn's first card",
        hint="copy the turn's output box with `cbx box fork`, change the copy, and pass it",
        details={"lost_tool_call_ids": lost, "reopened_tool_call_ids": reopened},
    )


def _pending_call_ids(slots: Sequence[Slot]) -> list[str]:
    return [call.tool_call_id for call in pending_calls(present_cards(slots))]


class FixOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a fix, with the new epoch. The old worker may still run the work in `may_start_twice`.

    `fenced` is True if cbx refuses all writes of that worker. cbx cannot refuse writes of another system.
    """

    agent_turn_id: str
    agent_id: str
    action: str
    turn_epoch: int | None
    status: str
    may_start_twice: list[str]
    fenced: bool = True
    promoted_turn_id: str | None = None
    end: TurnEnd | None = None


class _OldRun(NamedTuple):
    """The work that a worker may still run after it lost its turn. Workers of other systems have no lease."""

    running: list[str]
    fenced: bool


_NO_WORKER = _OldRun([], fenced=True)


def nudge(runtime: Runtime, agent_turn_id: str) -> FixOutcome:
    """Notify workers of a turn's due rows, and promote the next queued turn if its agent is idle."""
    runtime.database.require_execution()
    with runtime.transaction():
        row = _turn_row(runtime, agent_turn_id)
        runtime.heads.lock(row.agent_id)
        promoted = promote_next(runtime, row.agent_id, reason="nudge")
        for each in runtime.inbox.list_by_turn(agent_turn_id):
            if each.status in DUE:
                runtime.notify(each, "nudge")
        active = _active_head(runtime, row.agent_id, agent_turn_id)
    return FixOutcome(
        agent_turn_id=agent_turn_id,
        agent_id=row.agent_id,
        action="nudge",
        turn_epoch=active.turn_epoch if active else None,
        status=active.status if active else row.status,
        may_start_twice=[],
        promoted_turn_id=promoted.turn_id if promoted else None,
    )


def stop(runtime: Runtime, agent_turn_id: str, *, actor: str, reason: str | None) -> FixOutcome:
    """End a turn in any state as canceled. Raises Conflict if it has already ended."""
    runtime.database.require_execution()
    with runtime.transaction():
        row = _turn_row(runtime, agent_turn_id)
        head = runtime.heads.lock(row.agent_id)
        fence, epoch = Fence(row.agent_id, agent_turn_id, 0), None
        if head is not None and head.active_agent_turn_id == agent_turn_id:
            fence, epoch = head.fence, head.turn_epoch + 1
        elif row.status != QUEUED:
            _refuse_inactive(runtime, agent_turn_id)
        old_run = _may_start_twice(runtime, fence)
        message = reason or f"canceled by {actor}"
        end = cancel_turn(runtime, head, fence, message=message)
        return _audit_fix(runtime, fence, "stop", epoch, actor=actor, reason=reason, old_run=old_run, end=end)


def fail(runtime: Runtime, agent_turn_id: str, *, expect_epoch: int, actor: str, reason: str) -> FixOutcome:
    """End a turn as failed. Raises StaleEpoch if its agent is not at the epoch `expect_epoch`."""
    with runtime.transaction():
        head, orphan = _hold_active_or_orphan(runtime, agent_turn_id, expect_epoch)
        fence = head.fence if orphan is None else orphan.fence
        epoch = head.turn_epoch + 1 if orphan is None else None
        # An orphan ends at the epoch at which it was promoted, and not at its agent's present epoch.
        promoted_at = fence if orphan is None or orphan.row is None else orphan.row.fence
        old_run = _may_start_twice(runtime, fence)
        end = stop_turn(runtime, head, promoted_at, "failed", error_code="failed_by_operator", message=reason)
        return _audit_fix(runtime, fence, "fail", epoch, actor=actor, reason=reason, old_run=old_run, end=end)


def reclaim(
    runtime: Runtime, agent_turn_id: str, *, expect_epoch: int, actor: str, reason: str
) -> FixOutcome:
    """Take a dispatched or running turn away from its worker, so that it can be claimed again.

    Raises StaleEpoch as `fail` does, and Conflict if the turn is suspended or has no row to claim.
    """
    with runtime.transaction():
        head = _hold_active(runtime, agent_turn_id, expect_epoch)
        if head.status == SUSPENDED:
            raise Conflict(
                f"cannot reclaim turn {agent_turn_id}: it is suspended, so no worker holds it",
                hint="report the missing results, or start the turn over with `cbx turn requeue`",
            )
        row = _carrier(runtime, head)
        if row is None:
            raise Conflict(
                f"cannot reclaim turn {agent_turn_id}: it has no inbox row to claim",
                hint="restore the row with `cbx turn requeue`",
            )
        old_run = _may_start_twice(runtime, head.fence)
        if row.status == PROCESSING:
            epoch = return_row(runtime, row, head, "release", attempts=0, error=reason)
        else:
            epoch = runtime.heads.move(head.fence, "reclaim")
            runtime.notify(runtime.inbox.set_turn_epoch(row.inbox_id, epoch), "reclaim")
        return _audit_fix(runtime, head.fence, "reclaim", epoch, actor=actor, reason=reason, old_run=old_run)


def requeue(
    runtime: Runtime, agent_turn_id: str, *, expect_epoch: int, actor: str, reason: str
) -> FixOutcome:
    """Put a turn back into its agent's queue with no tries counted. The turn then begins again.

    If its inbox row is lost, a new row is written. Raises StaleEpoch as `fail` does.
    """
    with runtime.transaction():
        head, orphan = _hold_active_or_orphan(runtime, agent_turn_id, expect_epoch, with_row=True)
        fence = head.fence if orphan is None else orphan.fence
        old_run = _may_start_twice(runtime, fence)
        row = runtime.inbox.turn_row(agent_turn_id) or _write_again(runtime, head)
        epoch, promoted = return_to_queue(runtime, head, row, reason=reason)
        return _audit_fix(
            runtime, fence, "requeue", epoch, actor=actor, reason=reason, old_run=old_run, promoted=promoted
        )


def rebox(
    runtime: Runtime,
    agent_turn_id: str,
    *,
    expect_epoch: int,
    actor: str,
    reason: str,
    context_box_id: str | None = None,
    output_box_id: str | None = None,
) -> FixOutcome:
    """Replace the context or output box of a turn that is suspended, or dispatched and not claimed.

    In the new output box, the turn's own cards begin at the first card that the turn wrote. Raises StaleEpoch
    as `fail` does, and NotFound for a missing box. Raises Conflict if the turn is running, another agent's
    turn writes to the output box, or the box lacks an open call of the turn.
    """
    if context_box_id is None and output_box_id is None:
        raise InvalidInput("a box is required", hint="pass --context-box or --output-box")
    with runtime.transaction():
        head = _hold_active(runtime, agent_turn_id, expect_epoch)
        row = _carrier(runtime, head)
        if head.status not in (DISPATCHED, SUSPENDED) or (row is not None and row.status == PROCESSING):
            raise Conflict(
                f"turn {agent_turn_id} is running, so its boxes cannot change",
                hint="take the turn back with `cbx turn reclaim` first",
            )
        boxes = {"context_box_id": context_box_id, "output_box_id": output_box_id}
        _check_boxes(runtime, head, boxes)
        start = None if output_box_id is None else find_own_start(runtime, head, output_box_id)
        epoch = runtime.heads.move(
            head.fence,
            "rebox" if head.status == DISPATCHED else "rebox-suspended",
            waiting=head.waiting_tool_count,
            deadline=head.resume_deadline,
        )
        runtime.heads.set_boxes(head.agent_id, **boxes)
        runtime.inbox.set_boxes(agent_turn_id, **boxes)
        if row is not None:
            runtime.inbox.set_turn_epoch(row.inbox_id, epoch)
        runtime.turns.move_waiting(head.fence_at(epoch))
        if start is not None:
            runtime.turns.begin_record(agent_turn_id, head.agent_id, output_start=start, report_to=None)
            runtime.turns.reset_output_start(agent_turn_id, start)
        return _audit_fix(runtime, head.fence, "rebox", epoch, actor=actor, reason=reason, detail=boxes)


def _turn_row(runtime: Runtime, agent_turn_id: str) -> InboxRow:
    row = runtime.inbox.turn_row(agent_turn_id)
    if row is None:
        what = f"no turn {agent_turn_id!r} in project {runtime.project_id!r}"
        raise NotFound(what, hint="`cbx turn list` shows the turns")
    return row


def _active_head(runtime: Runtime, agent_id: str, agent_turn_id: str) -> Head | None:
    head = runtime.heads.get(agent_id)
    return head if head is not None and head.active_agent_turn_id == agent_turn_id else None


def _hold_active(runtime: Runtime, agent_turn_id: str, epoch: int) -> Head:
    """Return the locked head of a turn that is active at this epoch. Raises StaleEpoch and Conflict."""
    runtime.database.require_execution()
    head = runtime.turns.head_of(agent_turn_id)
    if head is None:
        _refuse_inactive(runtime, agent_turn_id)
    return runtime.heads.hold(Fence(head.agent_id, agent_turn_id, epoch))


def _hold_active_or_orphan(
    runtime: Runtime, agent_turn_id: str, epoch: int, *, with_row: bool = False
) -> tuple[Head, Orphan | None]:
    """Lock and return the head of an active or orphaned turn. `with_row` refuses an orphan without a row."""
    orphan = find_orphan(runtime, agent_turn_id, epoch)
    if orphan is not None and (orphan.row is not None or not with_row):
        return orphan.head, orphan
    return _hold_active(runtime, agent_turn_id, epoch), None


def _refuse_inactive(runtime: Runtime, agent_turn_id: str) -> NoReturn:
    row = _turn_row(runtime, agent_turn_id)
    record = runtime.turns.record(agent_turn_id)
    if record is not None and record.end_status is not None:
        raise Conflict(f"turn {agent_turn_id} has ended: {record.end_status}", hint="nothing needs fixing")
    raise Conflict(
        f"turn {agent_turn_id} is not active: its row is {row.status}",
        hint="`cbx turn nudge` promotes a queued turn; `cbx turn stop` ends the turn",
    )


def _carrier(runtime: Runtime, head: Head) -> InboxRow | None:
    """Return the inbox row that carries the active turn, or None. The row may be claimed."""
    rows = runtime.inbox.list_by_turn(head.fence.agent_turn_id)
    rows = [row for row in rows if row.status in (*DUE, PROCESSING)]
    calls = runtime.turns.waiting_tools(head.fence.agent_turn_id)
    at_epoch = [row for row in rows if carries(row, head, calls)]
    turn_rows = [row for row in rows if is_turn(row)]
    # Other systems leave the old epoch in the report that resumed a turn, so `carries` does not find it.
    resuming = [row for row in rows if head.status == RUNNING and row.status == PROCESSING and is_report(row)]
    return next(iter(at_epoch or turn_rows or resuming), None)


def _may_start_twice(runtime: Runtime, fence: Fence) -> _OldRun:
    leases = runtime.inbox.leases_of_turn(fence.agent_id, fence.agent_turn_id)
    claimed = any(row.status == PROCESSING for row in runtime.inbox.list_by_turn(fence.agent_turn_id))
    steps = [step for step in runtime.turns.steps(fence.agent_turn_id) if step.status not in STEP_INACTIVE]
    commands = [f"the command of worker {lease.owner}" for lease in leases]
    running = [*commands, *(f"step {step.step_id}" for step in steps)]
    return _OldRun(running, fenced=bool(leases) or not claimed)


def _write_again(runtime: Runtime, head: Head) -> InboxRow:
    """Write the lost inbox row of an active turn again, as a promoted row. Its edge still exists."""
    turn_id = head.fence.agent_turn_id
    message = InboxMessage(
        type=TURN,
        fence=head.fence,
        channel_id=head.active_channel_id or DEFAULT_CHANNEL,
        lineage=Lineage(
            depth=head.active_recursion_depth, trace_id=head.trace_id, parent_step_id=head.parent_step_id
        ),
        correlation_id=turn_id,
        payload={**{name: getattr(head, name) for name in TURN.payload}, "runtime_config": {}},
        inbox_id=turn_id,
        status=PENDING,
    )
    row = write_row(runtime, message)
    if row is None:
        raise Conflict(
            f"turn {turn_id} has lost its inbox row, and another row has taken its id",
            hint="end the turn with `cbx turn fail`",
        )
    return row


def _check_boxes(runtime: Runtime, head: Head, boxes: Mapping[str, str | None]) -> None:
    for box_id in filter(None, boxes.values()):
        runtime.boxes.require(box_id)
    if (output_box_id := boxes["output_box_id"]) is not None:
        runtime.turns.lock_box(output_box_id)
        user = runtime.dispatches.output_user(output_box_id, head.agent_id)
        if user is not None:
            raise BoxConflict(
                f"box {output_box_id} is the output box of turn {user[0]} of agent {user[1]!r}",
                hint="pass another box, or wait until that turn ends",
            )


def _audit_fix(
    runtime: Runtime,
    fence: Fence,
    action: str,
    epoch: int | None,
    *,
    actor: str,
    reason: str | None,
    old_run: _OldRun = _NO_WORKER,
    promoted: InboxRow | None = None,
    end: TurnEnd | None = None,
    detail: dict[str, Any] | None = None,
) -> FixOutcome:
    """Write the audit of a fix that moved the turn from `fence` to `epoch`, and return the outcome."""
    runtime.audit.write_of_turn(
        fence, action=action, actor=actor, reason=reason, epoch_after=epoch, detail=detail
    )
    active = _active_head(runtime, fence.agent_id, fence.agent_turn_id)
    promoted_turn_id = end.promoted_turn_id if end else promoted.turn_id if promoted else None
    return FixOutcome(
        agent_turn_id=fence.agent_turn_id,
        agent_id=fence.agent_id,
        action=action,
        turn_epoch=active.turn_epoch if active else epoch,
        status="ended" if end else active.status if active else QUEUED,
        may_start_twice=old_run.running,
        fenced=old_run.fenced,
        promoted_turn_id=promoted_turn_id,
        end=end,
    )
