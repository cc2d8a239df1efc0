"""Prints a batch, and waits for its end: lines on a terminal, an event per change in JSON lines."""

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from cardbox_cli.cli.last_ids import remember_made
from cardbox_cli.cli.session import session
from cardbox_cli.cli.terminal import output
from cardbox_cli.cli.terminal.list_columns import BATCH_RESULT_COLUMNS, short_or_nothing
from cardbox_cli.cli.terminal.table_layout import NOTHING, Column, Shown, print_table
from cardbox_cli.cli.terminal.watch import pauses
from cardbox_cli.errors import Findings
from cardbox_cli.model.pairing import PREVIEW
from cardbox_cli.settings import TERM
from cardbox_cli.text.command_lines import quote_argument
from cardbox_cli.text.escaping import flatten
from cardbox_cli.text.quantities import format_count
from cardbox_cli.text.times import format_age, format_time

if TYPE_CHECKING:
    from cardbox_cli.execution.runtime import Runtime
    from cardbox_cli.inspect.batches import BatchView
    from cardbox_cli.model.execution.batches import Batch
    from cardbox_cli.model.handwritten.tasks import ForkJoin
    from cardbox_cli.orchestration.batch_progress import Progress, TaskProgress


# --- printing


def print_batch(batch: "BatchView", *, ids: list[str] | None = None) -> None:
    output.emit(batch, table=lambda: _print_facts(batch), ids=ids or [batch.batch_id])


def _print_facts(batch: "BatchView") -> None:
    error = f"({batch.error['code']}) {batch.error['message']}" if batch.error else None
    output.facts(
        ("batch", batch.batch_id),
        ("manager", "managed by another system; cbx only reads it" if batch.foreign else None),
        ("status", batch.status),
        ("error", error),
        ("tasks", str(batch.task_count)),
        ("fails fast", "yes" if batch.fail_fast else None),
        ("parent", batch.parent_turn_id),
        ("deadline", format_time(batch.deadline_at)),
        ("created", format_time(batch.created_at)),
        ("ended", format_time(batch.ended_at)),
        ("join box", batch.join_box_id),
        ("retries", batch.retry_of),
        ("retried as", batch.retried_as),
        ("retry", batch.retry),
    )
    if batch.results:
        output.print_text()
        print_table(Shown(BATCH_RESULT_COLUMNS).columns, batch.results)


def print_plan(fork: "ForkJoin", batch: "Batch") -> None:
    tasks = [{"task_index": index, **task.model_dump()} for index, task in enumerate(fork.tasks)]
    plan = {
        "task_count": len(fork.tasks),
        "fail_fast": fork.fail_fast,
        "deadline_at": batch.deadline_at,
        "tasks": tasks,
    }

    def table() -> None:
        end = f"deadline {format_time(batch.deadline_at)}" + (", fails fast" if fork.fail_fast else "")
        output.print_text(f"{format_count(len(fork.tasks), 'task')}, {end} (dry run: nothing was written)")
        print_table(_PLANNED, tasks)

    output.emit(plan, table=table)


_PLANNED = (
    Column("#", lambda task: str(task["task_index"]), right=True),
    Column("STRATEGY", lambda task: flatten(task["target_strategy"] or NOTHING)),
    Column("REF", lambda task: flatten(task["target_ref"] or NOTHING)),
    Column("CONTEXT", lambda task: short_or_nothing(task["context_box_id"]), spare=1),
    Column("INSTRUCTION", lambda task: flatten(task["instruction"])[:PREVIEW], overflow="cut"),
)


# --- waiting


def await_batch(run: "Runtime", batch_id: str, *, timeout: float | None, joined: bool = False) -> None:
    """Wait for the end of a batch and print its results. With `joined`, also write them to a new box.

    Raises WaitTimeout, and Findings unless the batch succeeds. The batch continues after Ctrl-C.
    """
    from cardbox_cli.inspect.batches import view_batch
    from cardbox_cli.orchestration.batch_progress import join_box

    try:
        _follow(run, batch_id, timeout)
    except KeyboardInterrupt:
        argument = quote_argument(batch_id)
        continues = f"batch {batch_id} continues; watch it with `cbx batch watch {argument}`"
        raise KeyboardInterrupt(f"{continues}, or end it with `cbx batch cancel {argument}`") from None
    ids = [join_box(run, run.batches.get(batch_id))] if joined else None
    if ids is not None:
        remember_made(box_id=ids[0])
    with run.database.snapshot():
        view = view_batch(run, run.batches.get(batch_id), session().project_option)
    if session().output == "jsonl":
        _write_event("end", msgspec.structs.asdict(view))
    else:
        print_batch(view, ids=ids)
    if view.status != "success":
        raise Findings(
            f"batch {batch_id} ended: {view.status}" + (f": {view.error['message']}" if view.error else ""),
            hint=f"`{view.retry}` runs the failed children again"
            if view.retry
            else f"`cbx batch show {quote_argument(batch_id)}` shows all children",
            details={"batch_id": batch_id, "status": view.status},
        )


def _follow(run: "Runtime", batch_id: str, timeout: float | None) -> None:
    from cardbox_cli.orchestration.batch_progress import poll_batch

    with ExitStack() as stack, _live_display() as show:
        entered: list[Callable[[float], None]] = []

        def pause(seconds: float) -> None:
            if not entered:
                entered.append(stack.enter_context(pauses()))
            entered[0](seconds)

        for progress in poll_batch(run, batch_id, timeout=timeout, pause=pause):
            show(progress)


@contextmanager
def _live_display() -> Iterator[Callable[["Progress"], None]]:
    """Yield a function that shows each poll, as events in JSON lines or as lines on a terminal at stderr."""
    if session().output == "jsonl":
        yield _Events().write_news
    elif sys.stderr.isatty() and TERM.text() != "dumb":
        from rich.console import Console
        from rich.live import Live
        from rich.text import Text

        with Live(console=Console(stderr=True), auto_refresh=False, transient=True) as live:
            yield lambda seen: live.update(Text("\n".join(progress_lines(seen)), no_wrap=True), refresh=True)
    else:
        yield lambda _: None


def progress_lines(progress: "Progress") -> list[str]:
    batch, tasks, now = progress.batch, progress.tasks, progress.now
    done = sum(task.ended_at is not None for task in tasks)
    state = f"{done} of {len(tasks)} ended, {format_age(batch.created_at, now)}"
    return [f"batch {batch.batch_id}  {state}", *(flatten(_line(task, now)) for task in tasks)]


def _line(task: "TaskProgress", now: datetime) -> str:
    age = format_age(task.since, task.ended_at or now) if task.since else NOTHING
    turn = short_or_nothing(task.agent_turn_id)
    error = f"  {task.error['message']}" if task.error else ""
    steps = format_count(task.steps, "step")
    return f"{task.task_index:4}  {task.state:10}  {steps:9}  {age:>5}  {turn}{error}"


class _Events:
    """Writes each change between two polls, an event per line."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[str, int, str | None]] = {}

    def write_news(self, progress: "Progress") -> None:
        for task in progress.tasks:
            now = task.state, task.steps, task.agent_turn_id
            if self._known.get(task.task_index) != now:
                self._known[task.task_index] = now
                at = {"at": progress.now, "batch_id": progress.batch.batch_id}
                _write_event("task", {**at, **msgspec.structs.asdict(task)})


def _write_event(name: str, fields: dict[str, Any]) -> None:
    output.emit({"event": name, **fields}, table=lambda: None)
    sys.stdout.flush()
