"""Rebuilding a head that is lost, or is not idle and names no turn, from what else is written of its agent.

The epoch goes above every one that is written down, so that whoever still works for the agent is fenced off.
Says what is certain and what is guessed.
"""

from datetime import timedelta

import msgspec

from cardbox_cli.errors import Conflict
from cardbox_cli.execution.queue.messages import is_turn
from cardbox_cli.execution.queue.promotion import promote_next
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.model.execution.turns import (
    DISPATCHED,
    IDLE,
    PROCESSING,
    QUEUED,
    SUSPENDED,
    Fence,
    InboxRow,
    WaitingTool,
)


class Rebuilt(msgspec.Struct, frozen=True, kw_only=True):
    """The head as it was rebuilt, and how far it can be trusted."""

    agent_id: str
    status: str
    active_agent_turn_id: str | None
    turn_epoch: int
    certain: list[str]
    guessed: list[str]
    promoted_turn_id: str | None


def rebuild(runtime: Runtime, agent_id: str, *, actor: str, reason: str | None) -> Rebuilt:
    """Make the head of an agent anew. Raises NotFound for an unknown agent, Conflict for one that has it."""
    runtime.database.require_execution()
    with runtime.transaction():
        agent = runtime.roster.get(agent_id)
        if not (runtime.heads.ensure(agent_id) or runtime.heads.free_turnless(agent_id)):
            raise Conflict(f"agent {agent_id!r} has its head", hint="`cbx agent show` tells its state")
        epoch = runtime.heads.highest_epoch(agent_id) + 1
        rows = runtime.inbox.open_of_agent(agent_id)
        waiting = runtime.turns.open_waiting_of(agent_id)
        certain, guessed = [f"no epoch above {epoch - 1} is written down"], []
        row = next((each for each in rows if is_turn(each) and each.status != QUEUED), None)
        if row is not None:
            status = DISPATCHED
            _dispatched(runtime, row, epoch)
            certain.append(f"the row of turn {row.turn_id} was {row.status}")
            guessed.append("the turn had not suspended; it is claimed anew")
        elif waiting:
            status = SUSPENDED
            row = _suspended(runtime, waiting, epoch)
            certain.append(f"turn {waiting[0].agent_turn_id} waits for {len(waiting)} tool calls")
            guessed.append(f"its deadline: {runtime.settings.tool_wait:g} s from now")
        else:
            status = IDLE
            runtime.heads.set_epoch(agent_id, epoch, agent.profile_box_id)
            guessed.append("no turn was active: no row is claimed or due, and no call is waited for")
        turn_id = row.turn_id if row is not None else None
        runtime.turns.audit(
            Fence(agent_id, turn_id or "", epoch - 1),
            action="rebuild",
            actor=actor,
            reason=reason,
            epoch_after=epoch,
            detail={"status": status, "certain": certain, "guessed": guessed},
        )
        promoted = promote_next(runtime, agent_id, reason="rebuild")
    return Rebuilt(
        agent_id=agent_id,
        status=status,
        active_agent_turn_id=turn_id,
        turn_epoch=epoch,
        certain=certain,
        guessed=guessed,
        promoted_turn_id=promoted.turn_id if promoted else None,
    )


def _dispatched(runtime: Runtime, row: InboxRow, epoch: int) -> None:
    _assign(runtime, row, epoch)
    row = runtime.inbox.carry(row.inbox_id, epoch)
    if row.status == PROCESSING:
        (row,) = runtime.inbox.move([row.inbox_id], "release", delay=timedelta(0))
        runtime.inbox.drop_leases([row.inbox_id])
    runtime.notify(row, "rebuild")


def _suspended(runtime: Runtime, waiting: list[WaitingTool], epoch: int) -> InboxRow:
    turn_id = waiting[0].agent_turn_id
    row = runtime.inbox.turn_row(turn_id)
    if row is None:
        raise Conflict(
            f"turn {turn_id} waits for tools, but its inbox row is lost: its boxes are unknown",
            hint="restore the row, or delete its waiting tools",
        )
    fence = _assign(runtime, row, epoch)
    runtime.heads.move(fence, "enter")
    deadline = runtime.database.now() + timedelta(seconds=runtime.settings.tool_wait)
    runtime.heads.move(fence, "suspend", waiting=len(waiting), deadline=deadline)
    runtime.turns.move_waiting(fence)
    return row


def _assign(runtime: Runtime, row: InboxRow, epoch: int) -> Fence:
    runtime.heads.set_epoch(row.agent_id, epoch - 1, None)
    assigned = runtime.heads.assign(row)
    assert assigned == epoch
    return Fence(row.agent_id, row.turn_id, epoch)
