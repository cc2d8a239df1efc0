"""Recovery by hand: nudging, stopping, and taking a turn away from whoever has it.

Every fix but `nudge` names the epoch that it was decided at and a reason; it is a compare-and-set, adds to
the epoch (so that the old worker's writes fail), and writes the audit. What the fixes do to the states is
`model/execution/turns.py`'s.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

import msgspec

from cardbox_cli.errors import BoxConflict, Conflict, InvalidInput, NotFound
from cardbox_cli.execution.queue.messages import TURN, Message, is_report, is_turn, write_row
from cardbox_cli.execution.queue.promotion import promote_next
from cardbox_cli.execution.queue.stopping import cancel_turn, carries, give_back, put_back, stop_turn
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
    STEP_STILL,
    SUSPENDED,
    End,
    Fence,
    Head,
    InboxRow,
)
from cardbox_cli.store.views.turn_views import TurnViews

# Turns that have not ended although their agent is not at them: what other programs leave behind.


class Orphan(msgspec.Struct, frozen=True, kw_only=True):
    """Such a turn, and the head of its agent, which is held. `row` is None where the turn's is lost."""

    agent_turn_id: str
    head: Head
    row: InboxRow | None

    @property
    def fence(self) -> Fence:
        """The turn at the epoch of its agent, which is what a fix compares and the audit names."""
        return Fence(self.head.agent_id, self.agent_turn_id, self.head.turn_epoch)


def find_orphan(runtime: Runtime, agent_turn_id: str, expect_epoch: int) -> Orphan | None:
    """The turn as an orphan; None for one that is active, queued or over, or unknown.

    Raises StaleEpoch where its agent is not at that epoch any more.
    """
    agent_id = _agent_of(runtime, agent_turn_id)
    if agent_id is None or not runtime.database.keeps_turns:
        return None
    head = runtime.heads.lock(agent_id)
    row = runtime.inbox.turn_row(agent_turn_id)
    if head is None or head.active_agent_turn_id == agent_turn_id or _over(runtime, agent_turn_id):
        return None
    if head.turn_epoch != expect_epoch:
        raise runtime.heads.stale(Fence(agent_id, agent_turn_id, expect_epoch), head)
    return Orphan(agent_turn_id=agent_turn_id, head=head, row=row)


def _agent_of(runtime: Runtime, agent_turn_id: str) -> str | None:
    row = runtime.inbox.turn_row(agent_turn_id)
    if row is not None:
        return row.agent_id
    edge = runtime.turns.enqueue_edge(agent_turn_id)
    return None if edge is None else edge.target_agent_id


def _over(runtime: Runtime, agent_turn_id: str) -> bool:
    """Whether the turn has ended, or is still to begin."""
    turns = TurnViews(runtime.database, runtime.project_id).get_many([agent_turn_id])
    return any(turn.status in (ENDED, QUEUED) for turn in turns)


# Where a turn's own cards begin in a box that replaces its output box, and whether that box keeps its calls.
#
# Reads, and refuses what the turn could not go on with; the replacing is `fixes.py`'s.


def own_start(runtime: Runtime, head: Head, output_box_id: str) -> int:
    """At which place of the box the cards of the turn that `head` is at begin: at the first of them.

    Behind all that it holds, where none of them is in it. Raises Conflict where the box lacks an open call of
    the turn, or the answer to one that is answered.
    """
    turn_id = head.fence.agent_turn_id
    own = _own(runtime, head)
    slots = runtime.boxes.slots(output_box_id)
    known = {slot.card_id for slot in own or ()}
    start = next((slot.position for slot in slots if _is_own(slot, turn_id, known)), len(slots))
    _refuse_loss(runtime, turn_id, own, slots[start:], output_box_id)
    return start


def _own(runtime: Runtime, head: Head) -> list[Slot] | None:
    """The places that the turn has written in its present output box; None where that is gone."""
    if head.output_box_id is None or not runtime.boxes.existing([head.output_box_id]):
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
    waits = [tool.tool_call_id for tool in runtime.turns.waiting_tools(turn_id) if tool.is_open]
    before = [*waits, *_pending(own or ())]
    after = _pending(new)
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
        f"box {box_id} {what} of turn {turn_id}, behind the turn's first card",
        hint="a copy of the turn's output box holds its calls: `cbx box fork`; change that, and name it",
        details={"lost_tool_call_ids": lost, "reopened_tool_call_ids": reopened},
    )


def _pending(slots: Sequence[Slot]) -> list[str]:
    return [call.tool_call_id for call in pending_calls(present_cards(slots))]


class Fixed(msgspec.Struct, frozen=True, kw_only=True):
    """What a fix did. `turn_epoch` is that after it; `may_start_twice`: what an old worker may still run.

    `fenced`: whether whatever that writes is refused. cbx fences no worker of another system.
    """

    agent_turn_id: str
    agent_id: str
    action: str
    turn_epoch: int | None
    status: str
    may_start_twice: list[str]
    fenced: bool = True
    promoted_turn_id: str | None = None
    end: End | None = None


class _OldRun(NamedTuple):
    """What a worker that lost its turn may still be running, in words. Claims without a lease are others'."""

    running: list[str]
    fenced: bool


_NOBODY = _OldRun([], fenced=True)


def nudge(runtime: Runtime, agent_turn_id: str) -> Fixed:
    """Notify of what is due of a turn, and promote what lies queued while its agent is idle."""
    runtime.database.require_execution()
    with runtime.transaction():
        row = _turn_row(runtime, agent_turn_id)
        runtime.heads.lock(row.agent_id)
        promoted = promote_next(runtime, row.agent_id, reason="nudge")
        for each in runtime.inbox.of_turn(agent_turn_id):
            if each.status in DUE:
                runtime.notify(each, "nudge")
        active = _active(runtime, row.agent_id, agent_turn_id)
    return Fixed(
        agent_turn_id=agent_turn_id,
        agent_id=row.agent_id,
        action="nudge",
        turn_epoch=active.turn_epoch if active else None,
        status=active.status if active else row.status,
        may_start_twice=[],
        promoted_turn_id=promoted.turn_id if promoted else None,
    )


def stop(runtime: Runtime, agent_turn_id: str, *, actor: str, reason: str | None) -> Fixed:
    """End a turn at once as canceled, in whatever state it is. Raises Conflict where it has ended."""
    runtime.database.require_execution()
    with runtime.transaction():
        row = _turn_row(runtime, agent_turn_id)
        head = runtime.heads.lock(row.agent_id)
        fence, epoch = Fence(row.agent_id, agent_turn_id, 0), None
        if head is not None and head.active_agent_turn_id == agent_turn_id:
            fence, epoch = head.fence, head.turn_epoch + 1
        elif row.status != QUEUED:
            _refuse_inactive(runtime, agent_turn_id)
        twice = _may_start_twice(runtime, fence)
        message = reason or f"canceled by {actor}"
        end = cancel_turn(runtime, head, fence, message=message)
        return _fixed(runtime, fence, "stop", epoch, actor=actor, reason=reason, twice=twice, end=end)


def fail(runtime: Runtime, agent_turn_id: str, *, expect_epoch: int, actor: str, reason: str) -> Fixed:
    """End a turn as failed. Raises StaleEpoch where its agent is not at that epoch any more."""
    with runtime.transaction():
        head, orphan = _expect_any(runtime, agent_turn_id, expect_epoch)
        fence = head.fence if orphan is None else orphan.fence
        epoch = head.turn_epoch + 1 if orphan is None else None
        # An orphan ends at the epoch that it was promoted with.
        promoted_at = fence if orphan is None or orphan.row is None else orphan.row.fence
        twice = _may_start_twice(runtime, fence)
        end = stop_turn(runtime, head, promoted_at, "failed", error_code="failed_by_operator", message=reason)
        return _fixed(runtime, fence, "fail", epoch, actor=actor, reason=reason, twice=twice, end=end)


def reclaim(runtime: Runtime, agent_turn_id: str, *, expect_epoch: int, actor: str, reason: str) -> Fixed:
    """Take a dispatched or running turn away from whoever has it, to be claimed anew.

    Raises StaleEpoch as `fail` does, Conflict for a suspended turn, and for one whose row cannot carry it.
    """
    with runtime.transaction():
        head = _expect(runtime, agent_turn_id, expect_epoch)
        if head.status == SUSPENDED:
            raise Conflict(
                f"turn {agent_turn_id} is suspended: nobody has it",
                hint="report the results that it waits for, or `cbx turn requeue` it",
            )
        row = _carrier(runtime, head)
        if row is None:
            raise Conflict(
                f"turn {agent_turn_id} has no inbox row that could be claimed",
                hint="`cbx turn requeue` makes it a row anew",
            )
        twice = _may_start_twice(runtime, head.fence)
        if row.status == PROCESSING:
            epoch = give_back(runtime, row, head, "release", attempts=0, error=reason)
        else:
            epoch = runtime.heads.move(head.fence, "reclaim")
            runtime.notify(runtime.inbox.carry(row.inbox_id, epoch), "reclaim")
        return _fixed(runtime, head.fence, "reclaim", epoch, actor=actor, reason=reason, twice=twice)


def requeue(runtime: Runtime, agent_turn_id: str, *, expect_epoch: int, actor: str, reason: str) -> Fixed:
    """Put a turn back into its agent's queue, to begin anew, with as many tries as a new one.

    Its row is made anew if it is lost. Raises StaleEpoch as `fail` does.
    """
    with runtime.transaction():
        head, orphan = _expect_any(runtime, agent_turn_id, expect_epoch, with_row=True)
        fence = head.fence if orphan is None else orphan.fence
        twice = _may_start_twice(runtime, fence)
        row = runtime.inbox.turn_row(agent_turn_id) or _write_again(runtime, head)
        epoch, promoted = put_back(runtime, head, row, reason=reason)
        return _fixed(
            runtime, fence, "requeue", epoch, actor=actor, reason=reason, twice=twice, promoted=promoted
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
) -> Fixed:
    """Replace the context or output box of a turn that waits: suspended, or dispatched and not claimed.

    Its own cards begin at the first of them that the new output box holds. Raises StaleEpoch as `fail` does,
    NotFound for a box that is not there, Conflict for a turn that runs, for an output box that another
    agent's turn writes to, and for one that would lose an open call of the turn.
    """
    if context_box_id is None and output_box_id is None:
        raise InvalidInput("no box is named", hint="name --context-box or --output-box")
    with runtime.transaction():
        head = _expect(runtime, agent_turn_id, expect_epoch)
        row = _carrier(runtime, head)
        if head.status not in (DISPATCHED, SUSPENDED) or (row is not None and row.status == PROCESSING):
            raise Conflict(
                f"turn {agent_turn_id} is being run: its boxes cannot change under it",
                hint="`cbx turn reclaim` takes it back first",
            )
        _check_boxes(runtime, head, context_box_id, output_box_id)
        start = None if output_box_id is None else own_start(runtime, head, output_box_id)
        epoch = runtime.heads.move(
            head.fence,
            "rebox" if head.status == DISPATCHED else "rebox-suspended",
            waiting=head.waiting_tool_count,
            deadline=head.resume_deadline,
        )
        boxes = {"context_box_id": context_box_id, "output_box_id": output_box_id}
        _point(runtime, head, row, epoch, boxes)
        if start is not None:
            runtime.turns.begin_record(agent_turn_id, head.agent_id, output_start=start, report_to=None)
            runtime.turns.reset_output_start(agent_turn_id, start)
        return _fixed(runtime, head.fence, "rebox", epoch, actor=actor, reason=reason, detail=boxes)


# --- how


def _turn_row(runtime: Runtime, agent_turn_id: str) -> InboxRow:
    row = runtime.inbox.turn_row(agent_turn_id)
    if row is None:
        what = f"no turn {agent_turn_id!r} in project {runtime.project_id!r}"
        raise NotFound(what, hint="`cbx turn list` shows them")
    return row


def _active(runtime: Runtime, agent_id: str, agent_turn_id: str) -> Head | None:
    """The agent's head, if it is at this turn."""
    head = runtime.heads.get(agent_id)
    return head if head is not None and head.active_agent_turn_id == agent_turn_id else None


def _expect(runtime: Runtime, agent_turn_id: str, epoch: int) -> Head:
    """The locked head of an active turn that is at this epoch."""
    runtime.database.require_execution()
    found = runtime.turns.head_of(agent_turn_id)
    if found is None:
        _refuse_inactive(runtime, agent_turn_id)
    return runtime.heads.hold(Fence(found.agent_id, agent_turn_id, epoch))


def _expect_any(
    runtime: Runtime, agent_turn_id: str, epoch: int, *, with_row: bool = False
) -> tuple[Head, Orphan | None]:
    """`_expect`; of an orphan its agent's head, and the orphan, unless it must be one that has its row."""
    orphan = find_orphan(runtime, agent_turn_id, epoch)
    if orphan is not None and (orphan.row is not None or not with_row):
        return orphan.head, orphan
    return _expect(runtime, agent_turn_id, epoch), None


def _refuse_inactive(runtime: Runtime, agent_turn_id: str) -> NoReturn:
    row = _turn_row(runtime, agent_turn_id)
    record = runtime.turns.record(agent_turn_id)
    if record is not None and record.end_status is not None:
        raise Conflict(f"turn {agent_turn_id} has ended: {record.end_status}", hint="nothing needs fixing")
    raise Conflict(
        f"turn {agent_turn_id} is not active: its row is {row.status}",
        hint="`cbx turn nudge` promotes a queued turn, `cbx turn stop` ends it",
    )


def _carrier(runtime: Runtime, head: Head) -> InboxRow | None:
    """The row that the turn goes on by: the claimed one, else the one that waits to be claimed."""
    rows = runtime.inbox.of_turn(head.fence.agent_turn_id)
    rows = [row for row in rows if row.status in (*DUE, PROCESSING)]
    calls = runtime.turns.waiting_tools(head.fence.agent_turn_id)
    at_epoch = [row for row in rows if carries(row, head, calls)]
    asking = [row for row in rows if is_turn(row)]
    # Workers of other systems leave the epoch of the report that they resumed a turn with as it was.
    resuming = [row for row in rows if head.status == RUNNING and row.status == PROCESSING and is_report(row)]
    return next(iter(at_epoch or asking or resuming), None)


def _may_start_twice(runtime: Runtime, fence: Fence) -> _OldRun:
    leases = runtime.inbox.leases_of_turn(fence.agent_id, fence.agent_turn_id)
    claimed = any(row.status == PROCESSING for row in runtime.inbox.of_turn(fence.agent_turn_id))
    running = [f"the command of worker {lease.owner}" for lease in leases]
    running += [
        f"step {step.step_id}"
        for step in runtime.turns.steps(fence.agent_turn_id)
        if step.status not in STEP_STILL
    ]
    return _OldRun(running, fenced=bool(leases) or not claimed)


def _write_again(runtime: Runtime, head: Head) -> InboxRow:
    """The lost row of an active turn, as one that was promoted; its edge is there."""
    turn_id = head.fence.agent_turn_id
    message = Message(
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
            f"turn {turn_id} has lost its inbox row, and its id is taken by another",
            hint="`cbx turn fail` ends the turn",
        )
    return row


def _check_boxes(runtime: Runtime, head: Head, context_box_id: str | None, output_box_id: str | None) -> None:
    for box_id in filter(None, (context_box_id, output_box_id)):
        runtime.boxes.require(box_id)
    if output_box_id is not None:
        runtime.turns.lock_box(output_box_id)
        user = runtime.dispatches.output_user(output_box_id, head.agent_id)
        if user is not None:
            raise BoxConflict(
                f"box {output_box_id} is the output box of turn {user[0]} of agent {user[1]!r}",
                hint="name another, or wait for that turn's end",
            )


def _point(
    runtime: Runtime, head: Head, row: InboxRow | None, epoch: int, boxes: Mapping[str, str | None]
) -> None:
    turn_id = head.fence.agent_turn_id
    runtime.heads.point(head.agent_id, **boxes)
    runtime.inbox.point(turn_id, **boxes)
    if row is not None:
        runtime.inbox.carry(row.inbox_id, epoch)
    runtime.turns.move_waiting(Fence(head.agent_id, turn_id, epoch))


def _fixed(
    runtime: Runtime,
    fence: Fence,
    action: str,
    epoch: int | None,
    *,
    actor: str,
    reason: str | None,
    twice: _OldRun = _NOBODY,
    promoted: InboxRow | None = None,
    end: End | None = None,
    detail: dict[str, Any] | None = None,
) -> Fixed:
    """Write the audit of a fix of the turn that was at `fence`, and after it is at `epoch`; what it did."""
    runtime.audit.write_of_turn(
        fence, action=action, actor=actor, reason=reason, epoch_after=epoch, detail=detail
    )
    active = _active(runtime, fence.agent_id, fence.agent_turn_id)
    promoted_turn_id = end.promoted_turn_id if end else promoted.turn_id if promoted else None
    return Fixed(
        agent_turn_id=fence.agent_turn_id,
        agent_id=fence.agent_id,
        action=action,
        turn_epoch=active.turn_epoch if active else epoch,
        status="ended" if end else active.status if active else QUEUED,
        may_start_twice=twice.running,
        fenced=twice.fenced,
        promoted_turn_id=promoted_turn_id,
        end=end,
    )
