"""Rebuild the head of an agent from its other rows, if the head is lost or is busy without a turn.

The new epoch is higher than every recorded epoch, so cbx refuses the writes of all old workers of the agent.
The outcome separates certain facts from guesses.
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
from cardbox_cli.text.command_lines import quote_argument


class RebuildOutcome(msgspec.Struct, frozen=True, kw_only=True):
    agent_id: str
    status: str
    active_agent_turn_id: str | None
    turn_epoch: int
    certain: list[str]
    guessed: list[str]
    promoted_turn_id: str | None


def rebuild(runtime: Runtime, agent_id: str, *, actor: str, reason: str | None) -> RebuildOutcome:
    """Rebuild the head of an agent. Raises NotFound for an unknown agent, Conflict if the head is intact."""
    runtime.database.require_execution()
    with runtime.transaction():
        agent = runtime.roster.get(agent_id)
        if not (runtime.heads.ensure(agent_id) or runtime.heads.free_without_turn(agent_id)):
            raise Conflict(
                f"agent {agent_id!r} does not need rebuilding: its state row exists",
                hint=f"run `cbx agent show {quote_argument(agent_id)}` to see its state",
            )
        epoch = runtime.heads.highest_epoch(agent_id) + 1
        rows = runtime.inbox.open_rows(agent_id)
        waiting = runtime.turns.open_calls(agent_id)
        certain, guessed = [f"the highest recorded epoch is {epoch - 1}"], []
        row = next((each for each in rows if is_turn(each) and each.status != QUEUED), None)
        carrier = row or _resuming_report(runtime, rows, waiting)
        if carrier is not None:
            status = DISPATCHED
            row = _dispatch_again(runtime, carrier, epoch)
            what = "row" if is_turn(carrier) else f"report of call {carrier.correlation_id}, now applied,"
            certain.append(f"the {what} of turn {row.turn_id} was {carrier.status}")
            guessed.append("the turn has not suspended since; it can be claimed again")
        elif waiting:
            status = SUSPENDED
            row = _suspend(runtime, waiting, epoch)
            certain.append(f"turn {waiting[0].agent_turn_id} waits for {len(waiting)} tool calls")
            guessed.append(f"its deadline: {runtime.settings.tool_wait:g} s from now")
        else:
            status = IDLE
            runtime.heads.set_epoch(agent_id, epoch, agent.profile_box_id)
            guessed.append("no turn was active: no row is claimed or due, and no call waits for a result")
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
    return RebuildOutcome(
        agent_id=agent_id,
        status=status,
        active_agent_turn_id=turn_id,
        turn_epoch=epoch,
        certain=certain,
        guessed=guessed,
        promoted_turn_id=promoted.turn_id if promoted else None,
    )


def _resuming_report(runtime: Runtime, rows: list[InboxRow], waiting: list[WaitingTool]) -> InboxRow | None:
    """Return the open report that resumed a turn, or None if the turn has suspended again."""
    since = max((tool.turn_epoch for tool in waiting), default=-1)
    reports = (
        row for row in rows if is_report(row) and row.turn_epoch > since and _was_applied(runtime, row)
    )
    return max(reports, key=lambda row: row.turn_epoch, default=None)


def _was_applied(runtime: Runtime, report: InboxRow) -> bool:
    tools = runtime.turns.waiting_tools(report.turn_id)
    known = any(tool.tool_call_id == report.correlation_id for tool in tools)
    return known and not any(tool.is_open for tool in tools)


def _dispatch_again(runtime: Runtime, carrier: InboxRow, epoch: int) -> InboxRow:
    """Make a turn claimable again after its head was lost, and return the turn's own row."""
    row = carrier if is_turn(carrier) else _turn_row(runtime, carrier.turn_id, "was resumed")
    _assign(runtime, row, epoch)
    carrier = runtime.inbox.set_turn_epoch(carrier.inbox_id, epoch)
    if carrier.status == PROCESSING:
        (carrier,) = runtime.inbox.move([carrier.inbox_id], "release", delay=timedelta(0))
        runtime.inbox.drop_leases([carrier.inbox_id])
    runtime.notify(carrier, "rebuild")
    return row


def _turn_row(runtime: Runtime, turn_id: str, state: str) -> InboxRow:
    """Return the row that requested a turn. Raises Conflict if it is lost."""
    row = runtime.inbox.turn_row(turn_id)
    if row is None:
        raise Conflict(
            f"turn {turn_id} {state}, but its inbox row is lost, so its boxes are unknown",
            hint="restore the inbox row, or delete the rows of the turn's waiting tools",
        )
    return row


def _suspend(runtime: Runtime, waiting: list[WaitingTool], epoch: int) -> InboxRow:
    row = _turn_row(runtime, waiting[0].agent_turn_id, "waits for tools")
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
