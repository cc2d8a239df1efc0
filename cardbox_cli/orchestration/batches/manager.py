"""What keeps batches going without a daemon: whoever ends a turn applies that to its batch at once, and
whoever looks at what is due does what was left: in workers, in `reap`, while somebody waits for a batch.

Stateless; every step is a transaction of its own that may happen twice.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from cardbox_cli.errors import CbxError, DatabaseUnavailable
from cardbox_cli.execution.runtime import Caught, Ended, Runtime
from cardbox_cli.model.execution.batches import Batch, BatchEndStatus
from cardbox_cli.model.execution.turns import Fence
from cardbox_cli.orchestration.batches.children import apply_end, learn, stop_child
from cardbox_cli.orchestration.batches.decisions import CANCELED, TIMED_OUT
from cardbox_cli.orchestration.batches.dispatching import dispatch_child
from cardbox_cli.orchestration.batches.ending import end_batch, report, settle, waited_for


class BatchManager:
    """The follower of turns that sees to batches."""

    def turn_ended(self, runtime: Runtime, ended: Ended) -> None:
        """The end of a child goes to its batch; the batches of a parent that has ended are nobody's."""
        if not runtime.database.keeps_batches:
            return
        batch_id = apply_end(runtime, ended)
        if batch_id is not None:
            runtime.after_commit(partial(_quietly, partial(_stop_children, runtime, batch_id, Caught())))
        if ended.end_status != "success":
            desert = partial(_desert, runtime, ended.agent_turn_id, Caught())
            runtime.after_commit(partial(_quietly, desert))

    def turn_suspended(self, runtime: Runtime, fence: Fence) -> None:
        """A parent waits as long as its batches may run, and is told of those that have ended already."""
        store = runtime.batches
        if not runtime.database.keeps_batches:
            return
        margin = runtime.settings.unclaimed_time
        for batch in store.hold_of_turn(fence.agent_turn_id):
            if batch.is_running:
                store.keep_waiting(fence, batch.deadline_at + margin)
            elif batch.parent_tool_call_id in waited_for(runtime, fence.agent_turn_id):
                report(runtime, batch)

    def catch_up(self, runtime: Runtime) -> Caught:
        """Do what is due of all batches of the project."""
        return catch_up(runtime)


def catch_up(runtime: Runtime, batch_id: str | None = None) -> Caught:
    """Do what is due of this batch (None: of any): ends that nobody told of, deadlines, dispatches, stops.

    What cannot be done keeps nothing else up.
    """
    caught, store = Caught(), runtime.batches
    if not runtime.database.keeps_batches:
        return caught
    for task in store.silent(batch_id):
        with _trouble(caught, f"the child {task.task_index} of {task.batch_id}"):
            _add(caught.ended, learn(runtime, task))
    for each in store.settled(batch_id):
        with _trouble(caught, f"the end of {each}"):
            _add(caught.ended, _settled(runtime, each))
    for batch in store.overdue(batch_id):
        with _trouble(caught, f"the deadline of {batch.batch_id}"):
            _add(caught.ended, time_out(runtime, batch.batch_id))
    _desert(runtime, None, caught)
    _dispatch_children(runtime, batch_id, caught)
    _stop_children(runtime, batch_id, caught)
    for batch in store.to_report(None):
        with _trouble(caught, f"the report of {batch.batch_id}"):
            _report(runtime, batch.batch_id)
    return caught


def cancel(runtime: Runtime, batch_id: str, *, reason: str, actor: str | None = None) -> bool:
    """End a batch as failed for this reason, and stop its children; False where it had ended.

    The audit says so of an `actor` who is a person.
    """
    with runtime.transaction():
        ended = _ended_early(runtime, batch_id, "failed", code=CANCELED, why=reason)
        if ended is not None and actor is not None:
            detail = {"batch_id": batch_id, "reason": reason}
            runtime.audit.write("batch cancel", actor=actor, detail=detail)
    _stop_children(runtime, batch_id, Caught())
    return ended is not None


def time_out(runtime: Runtime, batch_id: str) -> str | None:
    """End a batch whose deadline has passed; its id, None where it had ended."""
    return _ended_early(runtime, batch_id, "timeout", code=TIMED_OUT, why="its deadline passed")


def dispatch_quietly(runtime: Runtime, batch_id: str) -> None:
    """Dispatch the children of a batch that has just been written; what fails is left to the next pass."""
    _quietly(partial(_dispatch_children, runtime, batch_id, Caught()))


def _ended_early(
    runtime: Runtime, batch_id: str, status: BatchEndStatus, *, code: str, why: str
) -> str | None:
    with runtime.transaction():
        batch = runtime.batches.lock(batch_id)
        if batch is None or not batch.is_running:
            return None
        end_batch(runtime, batch, status, error_code=code, error=why, open_code=code, open_error=why)
    return batch_id


def _settled(runtime: Runtime, batch_id: str) -> str | None:
    with runtime.transaction():
        batch = runtime.batches.lock(batch_id)
        return batch_id if batch is not None and settle(runtime, batch) else None


def _report(runtime: Runtime, batch_id: str) -> None:
    with runtime.transaction():
        batch = runtime.batches.lock(batch_id)
        if batch is not None:
            report(runtime, batch)


def _dispatch_children(runtime: Runtime, batch_id: str | None, caught: Caught) -> None:
    known: dict[str, Batch] = {}
    for task in runtime.batches.due(batch_id):
        batch = known.get(task.batch_id) or runtime.batches.get(task.batch_id)
        known[task.batch_id] = batch
        with _trouble(caught, f"the dispatch of child {task.task_index} of {task.batch_id}"):
            _add(caught.dispatched, dispatch_child(runtime, batch, task))


def _stop_children(runtime: Runtime, batch_id: str | None, caught: Caught) -> None:
    for task in runtime.batches.to_stop(batch_id):
        with _trouble(caught, f"the stop of turn {task.agent_turn_id}"):
            if stop_child(runtime, task):
                _add(caught.stopped, task.agent_turn_id)


def _desert(runtime: Runtime, agent_turn_id: str | None, caught: Caught) -> None:
    """End the batches of parents that have ended: nobody waits for them."""
    for batch in runtime.batches.deserted(agent_turn_id):
        with _trouble(caught, f"the batch {batch.batch_id}"):
            why = f"turn {batch.parent_turn_id}, which waited for it, has ended"
            if cancel(runtime, batch.batch_id, reason=why):
                caught.ended.append(batch.batch_id)


def _add(found: list[str], item: str | None) -> None:
    if item is not None:
        found.append(item)


@contextmanager
def _trouble(caught: Caught, what: str) -> Iterator[None]:
    try:
        yield
    except DatabaseUnavailable:
        raise
    except CbxError as exc:
        caught.troubles.append(f"{what}: {exc.message}")


def _quietly(action: Callable[[], None]) -> None:
    """Do what the next pass does as well: the end that it follows has been committed."""
    try:
        action()
    except CbxError:
        return
