"""Batches for every surface, whether cbx or another system's manager manages them."""

from datetime import datetime

import msgspec

from cardbox_cli.errors import Conflict
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.execution.turn_summary import convert
from cardbox_cli.model.execution.batches import IN_PROGRESS, TASK_OPEN, Batch, BatchTask
from cardbox_cli.orchestration.batch_ends import error_of, summaries_of
from cardbox_cli.orchestration.batch_progress import TaskProgress, progress_of
from cardbox_cli.settings import Settings
from cardbox_cli.store.views.batch_views import BatchViews, ForeignBatch, ForeignTask, index_or_none
from cardbox_cli.text.command_lines import quote_argument


class BatchResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a child. `error` is {code, message}, or None if the child succeeded or has not ended."""

    task_index: int
    status: str
    summary: str | None
    output_box_id: str | None
    agent_turn_id: str | None
    error: dict[str, str] | None


class BatchView(msgspec.Struct, frozen=True, kw_only=True):
    """A batch and the results of its children, in order. `error` is set if its children did not end it.

    Another system manages a `foreign` batch.
    """

    batch_id: str
    status: str
    task_count: int
    deadline_at: datetime | None
    results: list[BatchResult]
    error: dict[str, str] | None
    fail_fast: bool
    parent_turn_id: str | None
    join_box_id: str | None
    created_at: datetime | None
    ended_at: datetime | None
    foreign: bool = False


class BatchReader:
    """Reads the batches of one project. `views` resolves ids."""

    def __init__(self, views: BatchViews, settings: Settings) -> None:
        self._views = views
        self._runtime = Runtime(views.database, views.project_id, settings=settings)

    def read(self, given: str) -> BatchView:
        """Return a batch with the results of its children. Raises NotFound, AmbiguousId."""
        batch_id = self._views.resolve(given)
        foreign = self._views.find_foreign(batch_id)
        if foreign is not None:
            return _view_foreign(self._views, foreign)
        return view_batch(self._runtime, self._runtime.batches.get(batch_id))

    def progress(self, batch: BatchView) -> dict[int, TaskProgress]:
        """Return the progress of each child by its index. The result is empty for a foreign batch."""
        if batch.foreign:
            return {}
        return {each.task_index: each for each in progress_of(self._runtime, batch.batch_id).tasks}


def resolve_own(views: BatchViews, given: str) -> str:
    """Return the full id of a batch that cbx manages. Raises Conflict if another system manages the batch."""
    batch_id = views.resolve(given)
    if views.find_foreign(batch_id) is not None:
        raise Conflict(
            f"another system manages batch {batch_id}, so cbx cannot change it",
            hint=f"`cbx batch show {quote_argument(batch_id)}` shows its state and results",
        )
    return batch_id


def view_batch(runtime: Runtime, batch: Batch) -> BatchView:
    """Return a batch with its results. Reads within the caller's snapshot."""
    tasks = runtime.batches.tasks(batch.batch_id)
    summaries = summaries_of(runtime, tasks)
    error = None
    if batch.error_code is not None:
        error = {"code": batch.error_code, "message": batch.error or batch.status}
    results = [_result(task, summaries.get(task.task_index)) for task in tasks]
    return convert(BatchView, batch, results=results, error=error, foreign=False)


def _view_foreign(views: BatchViews, batch: ForeignBatch) -> BatchView:
    tasks = views.foreign_tasks([batch.batch_id])
    results = [_foreign_result(position, task) for position, task in enumerate(tasks)]
    ended_at = None if batch.status == IN_PROGRESS else batch.updated_at
    return convert(
        BatchView, batch, results=results, error=None, join_box_id=None, ended_at=ended_at, foreign=True
    )


def _foreign_result(position: int, task: ForeignTask) -> BatchResult:
    index = index_or_none(task.task_index)
    failed = task.status not in (*TASK_OPEN, "success") or task.error_detail is not None
    message = task.error_detail or f"the child ended: {task.status}"
    return BatchResult(
        task_index=position if index is None else index,
        status=task.status,
        summary=task.digest if isinstance(task.digest, str) else None,
        output_box_id=task.output_box_id,
        agent_turn_id=task.agent_turn_id,
        error={"code": f"turn_{task.status}", "message": message} if failed else None,
    )


def _result(task: BatchTask, summary: str | None) -> BatchResult:
    output = task.output_box_id if task.agent_turn_id else None
    return convert(BatchResult, task, summary=summary, output_box_id=output, error=error_of(task))
