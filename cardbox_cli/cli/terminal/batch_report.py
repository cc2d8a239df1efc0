"""Prints a batch, and waits for its end: lines on a terminal, an event per change in JSON lines."""

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import msgspec

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


def print_batch(seen: "BatchView", *, ids: list[str] | None = None) -> None:
    output.emit(seen, table=lambda: _print_facts(seen), ids=ids or [seen.batch_id])


def _print_facts(seen: "BatchView") -> None:
    error = f"({seen.error['code']}) {seen.error['message']}" if seen.error else None
    output.facts(
        ("batch", seen.batch_id),
        ("manager", "another system's: cbx only reads it" if seen.foreign else None),
        ("status", seen.status),
        ("error", error),
        ("tasks", str(seen.task_count)),
        ("fails fast", "yes" if seen.fail_fast else None),
        ("parent", seen.parent_turn_id),
        ("deadline", format_time(seen.deadline_at)),
        ("created", format_time(seen.created_at)),
        ("ended", format_time(seen.ended_at)),
        ("join box", seen.join_box_id),
    )
    if seen.results:
        output.print_text()
        print_table(Shown(BATCH_RESULT_COLUMNS).columns, seen.results)


def print_plan(asked: "ForkJoin", batch: "Batch") -> None:
    tasks = [{"task_index": index, **task.model_dump()} for index, task in enumerate(asked.tasks)]
    plan = {
        "task_count": len(asked.tasks),
        "fail_fast": asked.fail_fast,
        "deadline_at": batch.deadline_at,
        "tasks": tasks,
    }

    def table() -> None:
        end = f"deadline {format_time(batch.deadline_at)}" + (", fails fast" if asked.fail_fast else "")
        output.print_text(f"{format_count(len(asked.tasks), 'task')}, {end} (dry run: nothing was written)")
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
    """Wait for the end of a batch and print its results; with `joined`, also in a new box.

    Raises Findings unless it is a success, and WaitTimeout. The batch continues after Ctrl-C.
    """
    from cardbox_cli.inspect.batches import view_batch
    from cardbox_cli.orchestration.batch_progress import join_box

    try:
        _follow(run, batch_id, timeout)
    except KeyboardInterrupt:
        named = quote_argument(batch_id)
        continues = f"batch {batch_id} continues; watch it with `cbx batch watch {named}`"
        raise KeyboardInterrupt(f"{continues}, or end it with `cbx batch cancel {named}`") from None
    ids = [join_box(run, run.batches.get(batch_id))] if joined else None
    with run.database.snapshot():
        seen = view_batch(run, run.batches.get(batch_id))
    if session().output == "jsonl":
        _write_event("end", msgspec.structs.asdict(seen))
    else:
        print_batch(seen, ids=ids)
    if seen.status != "success":
        raise Findings(
            f"batch {batch_id} ended: {seen.status}" + (f": {seen.error['message']}" if seen.error else ""),
            hint=f"`cbx batch show {quote_argument(batch_id)}` shows each child, `cbx turn show` "
            "the story of one",
            details={"batch_id": batch_id, "status": seen.status},
        )


def _follow(run: "Runtime", batch_id: str, timeout: float | None) -> None:
    from cardbox_cli.orchestration.batch_progress import poll_batch

    with ExitStack() as stack, _shown_live() as show:
        entered: list[Callable[[float], None]] = []

        def pause(seconds: float) -> None:
            if not entered:
                entered.append(stack.enter_context(pauses()))
            entered[0](seconds)

        for seen in poll_batch(run, batch_id, timeout=timeout, pause=pause):
            show(seen)


@contextmanager
def _shown_live() -> Iterator[Callable[["Progress"], None]]:
    """Yield what shows each poll: events in JSON lines, else lines on stderr if that is a terminal."""
    if session().output == "jsonl":
        yield _Events().write_news
    elif sys.stderr.isatty() and TERM.text() != "dumb":
        from rich.console import Console
        from rich.live import Live
        from rich.text import Text

        with Live(console=Console(stderr=True), auto_refresh=False, transient=True) as live:
            yield lambda seen: live.update(Text("\n".join(lines_of(seen)), no_wrap=True), refresh=True)
    else:
        yield lambda seen: None


def lines_of(seen: "Progress") -> list[str]:
    done = sum(task.ended_at is not None for task in seen.tasks)
    how_far = f"{done} of {len(seen.tasks)} ended, {format_age(seen.batch.created_at, seen.now)}"
    return [f"batch {seen.batch.batch_id}  {how_far}", *(flatten(_line(task, seen)) for task in seen.tasks)]


def _line(task: "TaskProgress", seen: "Progress") -> str:
    until = task.ended_at or seen.now
    took = format_age(task.since, until) if task.since else NOTHING
    turn = short_or_nothing(task.agent_turn_id)
    why = f"  {task.error['message']}" if task.error else ""
    return (
        f"{task.task_index:4}  {task.state:10}  {format_count(task.steps, 'step'):9}  {took:>5}  {turn}{why}"
    )


class _Events:
    """Writes each change between two polls, an event per line."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[str, int, str | None]] = {}

    def write_news(self, seen: "Progress") -> None:
        for task in seen.tasks:
            now = task.state, task.steps, task.agent_turn_id
            if self._known.get(task.task_index) != now:
                self._known[task.task_index] = now
                at = {"at": seen.now, "batch_id": seen.batch.batch_id}
                _write_event("task", {**at, **msgspec.structs.asdict(task)})


def _write_event(name: str, about: dict[str, Any]) -> None:
    output.emit({"event": name, **about}, table=lambda: None)
    sys.stdout.flush()
