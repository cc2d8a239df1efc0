"""Batches for every surface, whether cbx or another system's manager manages them."""

from collections.abc import Sequence
from datetime import datetime
from itertools import chain

import msgspec

from cardbox_cli.errors import Conflict
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.execution.turn_summary import convert
from cardbox_cli.model.card_types import INSTRUCTION
from cardbox_cli.model.cards import card_text
from cardbox_cli.model.execution.batches import IN_PROGRESS, TASK_OPEN, Batch, BatchTask
from cardbox_cli.model.execution.turns import LogTail, last_lines, replacement
from cardbox_cli.model.ids import unique
from cardbox_cli.model.pairing import PREVIEW
from cardbox_cli.orchestration.batch_ends import error_of, output_of, summaries_of
from cardbox_cli.orchestration.batch_progress import TaskProgress, progress_of
from cardbox_cli.orchestration.batch_retry import successor_id
from cardbox_cli.settings import Settings
from cardbox_cli.store.views.batch_views import BatchViews, ForeignBatch, ForeignTask, index_or_none
from cardbox_cli.store.views.diagnosis_rows import DiagnosisStore
from cardbox_cli.text.command_lines import command_line, quote_argument
from cardbox_cli.text.escaping import excerpt


class BatchResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a child. `error` is {code, message}, or None if the child succeeded or has not ended.

    `input` is the beginning of its instruction, `stderr` the last line of the command that made
    it fail. `carried_from` is the batch that ran it, if this one only carries over its result.
    """

    task_index: int
    status: str
    summary: str | None
    output_box_id: str | None
    agent_turn_id: str | None
    error: dict[str, str] | None
    agent_id: str | None = None
    input: str | None = None
    stderr: str | None = None
    carried_from: str | None = None


class BatchView(msgspec.Struct, frozen=True, kw_only=True):
    """A batch and the results of its children, in order. `error` is set if its children did not end it.

    Another system manages a `foreign` batch. `retry_of` is the batch that it retries, `retried_as` the one
    that retries it. `retry` is the command that runs the children again that did not succeed.
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
    retry_of: str | None = None
    retried_as: str | None = None
    retry: str | None = None


class BatchReader:
    """Reads the batches of one project. `views` resolves ids. Commands end with `project_option`."""

    def __init__(self, views: BatchViews, settings: Settings, project_option: Sequence[str] = ()) -> None:
        self._views, self._project_option = views, project_option
        self._runtime = Runtime(views.database, views.project_id, settings=settings)

    def read(self, given: str) -> BatchView:
        """Return a batch with the results of its children. Raises NotFound, AmbiguousId."""
        batch_id = self._views.resolve(given)
        foreign = self._views.find_foreign(batch_id)
        if foreign is not None:
            return _view_foreign(self._views, foreign)
        return view_batch(self._runtime, self._runtime.batches.get(batch_id), self._project_option)

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


def view_batch(runtime: Runtime, batch: Batch, project_option: Sequence[str] = ()) -> BatchView:
    """Return a batch with its results. Reads within the caller's snapshot.

    Its command ends with `project_option`.
    """
    tasks = runtime.batches.tasks(batch.batch_id)
    error = None
    if batch.error_code is not None:
        error = {"code": batch.error_code, "message": batch.error or batch.status}
    retry_of = runtime.batches.retried_batch(batch.batch_id)
    successor = successor_id(runtime.project_id, batch.batch_id)
    retried_as = None if runtime.batches.find(successor) is None else successor
    unsuccessful = any(not task.is_open and task.status != "success" for task in tasks)
    command = command_line(("batch", "retry", batch.batch_id), *project_option)
    return convert(
        BatchView,
        batch,
        results=_results(runtime, tasks, retry_of),
        error=error,
        foreign=False,
        retry_of=retry_of,
        retried_as=retried_as,
        retry=command if unsuccessful and retried_as is None else None,
    )


def _results(runtime: Runtime, tasks: Sequence[BatchTask], retry_of: str | None) -> list[BatchResult]:
    summaries = summaries_of(runtime, tasks)
    inputs = _inputs(runtime, tasks)
    failed = [task.agent_turn_id for task in tasks if task.agent_turn_id and error_of(task)]
    logs = DiagnosisStore(runtime.database, runtime.project_id).failure_logs(failed)
    turns = _carried_turns(runtime, tasks, retry_of)
    return [
        convert(
            BatchResult,
            task,
            summary=summaries.get(task.task_index),
            output_box_id=output_of(task),
            agent_turn_id=task.agent_turn_id or turns.get(task.task_index),
            error=error_of(task),
            input=inputs.get(task.context_box_id),
            stderr=_last_line(logs.get(task.agent_turn_id or "")),
            carried_from=None if task.agent_turn_id or task.is_open else retry_of,
        )
        for task in tasks
    ]


def _inputs(runtime: Runtime, tasks: Sequence[BatchTask]) -> dict[str, str]:
    """Return by context box the beginning of its last instruction, if it is among its last cards."""
    boxes = runtime.boxes.get_many([task.context_box_id for task in tasks]).boxes
    last = {box.box_id: box.card_ids[-_LAST_CARDS:] for box in boxes}
    cards = {card.card_id: card for card in runtime.cards.get_many(unique(chain(*last.values()))).cards}
    inputs: dict[str, str] = {}
    for box_id, card_ids in last.items():
        for card in filter(None, map(cards.get, card_ids)):
            if card.type == INSTRUCTION:
                inputs[box_id] = excerpt(card_text(card.content), PREVIEW)
    return inputs


# A task's instruction is followed by few cards.
_LAST_CARDS = 5


def _last_line(log: LogTail | None) -> str | None:
    lines = last_lines(log.stderr_tail, 1) if log is not None else []
    return excerpt(lines[0], PREVIEW) if lines else None


def _carried_turns(runtime: Runtime, tasks: Sequence[BatchTask], retry_of: str | None) -> dict[int, str]:
    """Return by task the turns of the results that were carried over from earlier batches."""
    turns: dict[int, str] = {}
    missing = {task.task_index for task in tasks if task.agent_turn_id is None and not task.is_open}
    while retry_of is not None and missing:
        found = {each.task_index: each.agent_turn_id for each in runtime.batches.tasks(retry_of)}
        successors = runtime.audit.successors([turn for turn in found.values() if turn])
        for index in missing & found.keys():
            if turn := found[index]:
                by = replacement(successors.get(turn, ()))
                turns[index] = turn if by is None else by.agent_turn_id
        missing -= turns.keys()
        retry_of = runtime.batches.retried_batch(retry_of)
    return turns


def _view_foreign(views: BatchViews, batch: ForeignBatch) -> BatchView:
    tasks = views.foreign_tasks([batch.batch_id])
    results = [_foreign_result(position, task) for position, task in enumerate(tasks)]
    ended_at = None if batch.status == IN_PROGRESS else batch.updated_at
    own = dict.fromkeys(("error", "join_box_id", "retry_of", "retried_as", "retry"))
    return convert(BatchView, batch, results=results, ended_at=ended_at, foreign=True, **own)


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
