"""The ends of a batch's children: applied once each, whoever tells of them, and brought about where the batch
has ended before.
"""

from cardbox_cli.execution.queue.stopping import cancel_turn
from cardbox_cli.execution.recovery.lost_reports import ended_record
from cardbox_cli.execution.runtime import Ended, Runtime
from cardbox_cli.model.execution.batches import BatchTask
from cardbox_cli.model.execution.turns import WATCHDOG, Fence
from cardbox_cli.orchestration.batches.ending import settle


def apply_end(runtime: Runtime, ended: Ended) -> str | None:
    """Apply the end of a turn to the batch whose child it is; the batch, if that ended by it.

    In the caller's transaction, who holds the head of the turn's agent. A turn that is no child, or whose end
    is known, changes nothing.
    """
    store = runtime.batches
    batch = store.lock_of_child(ended.agent_turn_id)
    if batch is None:
        return None
    failed = ended.end_status != "success"
    store.end_task(
        ended.agent_turn_id,
        ended.end_status,
        deliverable_card_id=ended.deliverable_card_id,
        error_code=(ended.error_code or f"turn_{ended.end_status}") if failed else None,
        error=ended.message if failed else None,
    )
    return batch.batch_id if settle(runtime, batch) else None


def learn(runtime: Runtime, task: BatchTask) -> str | None:
    """Apply the end of a child that nobody told of, as its rows show it; the batch, if that ended by it."""
    turn_id = task.agent_turn_id or ""
    with runtime.transaction():
        head = runtime.heads.try_lock(task.agent_id)
        if head is None and runtime.heads.get(task.agent_id) is not None:
            return None
        record = ended_record(runtime, turn_id)
        if record is None or record.end_status is None:
            return None
        ended = Ended(
            agent_turn_id=turn_id,
            agent_id=task.agent_id,
            end_status=record.end_status,
            deliverable_card_id=record.deliverable_card_id,
            error_code=record.error_code,
            message=record.error,
        )
        return apply_end(runtime, ended)


def stop_child(runtime: Runtime, task: BatchTask) -> bool:
    """Stop the turn of a child whose batch has ended: its epoch moves on, so what it writes is refused.

    False where another process is at it, or it had ended.
    """
    turn_id, reason = task.agent_turn_id or "", f"its batch {task.batch_id} has ended: {task.error}"
    with runtime.transaction():
        head = runtime.heads.lock(task.agent_id)
        record = ended_record(runtime, turn_id)
        fence = Fence(task.agent_id, turn_id, head.turn_epoch if head is not None else 0)
        if record is None or record.end_status is None:
            active = head is not None and head.active_agent_turn_id == turn_id
            end = cancel_turn(runtime, head, fence, message=reason)
            runtime.audit.write_of_turn(
                fence,
                action="stop",
                actor=WATCHDOG,
                reason=reason,
                epoch_after=fence.turn_epoch + 1 if active else None,
            )
        else:
            end = None
        store = runtime.batches
        if store.lock_of_child(turn_id) is not None:
            status = end.end_status if end is not None else "canceled"
            store.end_task(turn_id, status, deliverable_card_id=None, error_code=None, error=None)
        return end is not None and end.created
