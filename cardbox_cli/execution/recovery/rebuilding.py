"""Rebuilding a head that is lost, or is not idle and names no turn, from what else is written of its agent.

The epoch goes above every one that is written down, so that whoever still works for the agent is fenced off.
Says what is certain and what is guessed.
"""

from datetime import timedelta

import msgspec

from cardbox_cli.errors import Conflict
from cardbox_cli.execution.queue.messages import is_report, is_turn
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
        carrier = row or _resumed_by(runtime, rows, waiting)
        if carrier is not None:
            status = DISPATCHED
            row = _dispatched(runtime, carrier, epoch)
            what = "row" if is_turn(carrier) else f"report of call {carrier.correlation_id}, now applied,"
            certain.append(f"the {what} of turn {row.turn_id} was {carrier.status}")
            guessed.append("the turn had not suspended since; it is claimed anew")
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
        runtime.audit.write_of_turn(
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


def _resumed_by(runtime: Runtime, rows: list[InboxRow], waiting: list[WaitingTool]) -> InboxRow | None:
    """The report that a turn goes on by: open, though its result was applied and nothing is awaited since."""
    since = max((tool.turn_epoch for tool in waiting), default=-1)
    later = [row for row in rows if is_report(row) and row.turn_epoch > since]
    reports = [row for row in later if _was_applied(runtime, row)]
    return max(reports, key=lambda row: row.turn_epoch, default=None)


def _was_applied(runtime: Runtime, report: InboxRow) -> bool:
    tools = runtime.turns.waiting_tools(report.turn_id)
    known = any(tool.tool_call_id == report.correlation_id for tool in tools)
    return known and not any(tool.is_open for tool in tools)


def _dispatched(runtime: Runtime, carrier: InboxRow, epoch: int) -> InboxRow:
    """Let the turn be claimed anew by the row that carried it; the row that asked for the turn."""
    row = carrier if is_turn(carrier) else _asking(runtime, carrier.turn_id, "was resumed")
    _assign(runtime, row, epoch)
    carrier = runtime.inbox.carry(carrier.inbox_id, epoch)
    if carrier.status == PROCESSING:
        (carrier,) = runtime.inbox.move([carrier.inbox_id], "release", delay=timedelta(0))
        runtime.inbox.drop_leases([carrier.inbox_id])
    runtime.notify(carrier, "rebuild")
    return row


def _asking(runtime: Runtime, turn_id: str, stands: str) -> InboxRow:
    """The row that asked for a turn. Raises Conflict where it is lost."""
    row = runtime.inbox.turn_row(turn_id)
    if row is None:
        raise Conflict(
            f"turn {turn_id} {stands}, but its inbox row is lost: its boxes are unknown",
            hint="restore the row, or delete its waiting tools",
        )
    return row


def _suspended(runtime: Runtime, waiting: list[WaitingTool], epoch: int) -> InboxRow:
    row = _asking(runtime, waiting[0].agent_turn_id, "waits for tools")
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
