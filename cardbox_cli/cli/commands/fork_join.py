"""`cbx fork-join`: tasks of a file are handed out together, and if wished awaited."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
from typer import Argument, Option

from cardbox_cli.cli.command_runtime import runtime
from cardbox_cli.cli.last_ids import remember_made
from cardbox_cli.cli.options.input_files import read_text, source_name
from cardbox_cli.cli.options.shared_options import EndTimeout
from cardbox_cli.cli.options.value_types import FILE, Seconds
from cardbox_cli.cli.parameters.asking import CallerName, caller_named, check_waiting
from cardbox_cli.cli.session import session
from cardbox_cli.cli.standard_streams import announce
from cardbox_cli.cli.terminal.batch_report import await_batch, print_batch, print_plan
from cardbox_cli.cli.verb import verb
from cardbox_cli.errors import UsageError
from cardbox_cli.model.text.quantities import count

if TYPE_CHECKING:
    from cardbox_cli.execution.runtime import Runtime
    from cardbox_cli.model.handwritten.batches import ForkJoin
    from cardbox_cli.orchestration.batches.creation import Created

_LINES = (".jsonl", ".ndjson")


@verb(
    "fork-join",
    "cbx fork-join tasks.yaml --wait",
    "cbx fork-join tasks.yaml --fail-fast --deadline 600 -o id",
    "jq -c .tasks[] plan.json | cbx fork-join - --wait -o json",
    "cbx fork-join tasks.yaml --wait --join-box -o id",
    "cbx fork-join tasks.yaml --dry-run",
)
def fork_join_tasks(
    file: Annotated[
        str, Argument(click_type=FILE, help="YAML, or JSON lines with a task each; - for stdin.")
    ],
    fail_fast: Annotated[
        bool, Option("--fail-fast", help="The first child that fails ends the batch and stops the others.")
    ] = False,
    deadline: Annotated[
        float | None,
        Option(click_type=Seconds(min=0.1), help="Stop what still runs after so long. Default: the file's."),
    ] = None,
    wait: Annotated[bool, Option("--wait", help="Wait for the end and print the results.")] = False,
    timeout: EndTimeout = None,
    caller: CallerName = None,
    join_box: Annotated[
        bool, Option("--join-box", help="With --wait: make a box of what the children delivered, in order.")
    ] = False,
    dry_run: Annotated[bool, Option("--dry-run", help="Check everything, write nothing.")] = False,
) -> None:
    """Hand the tasks of a file to agents that do them at the same time; their results are one batch.

    A file is `tasks:`, a list of {target_strategy, target_ref, instruction, context_box_id}, and if wished
    `fail_fast`, `deadline_seconds`, and a `matrix:` of variables, such as {doc: {glob: docs/*.md}}: each task
    is made once for each value, which ${doc}, ${doc.name} and ${doc.text} stand for.

    With --wait: exit 8 unless in success, 124 when --timeout is over. Ctrl-C leaves the batch running.
    """
    _check(timeout, wait=wait, join_box=join_box, dry_run=dry_run)
    from cardbox_cli.orchestration.batches.creation import create_batch

    with runtime() as run:
        asked = _asked(run, file, fail_fast, deadline)
        with run.rehearsal() if dry_run else run.transaction():
            created = create_batch(run, caller_named(run, caller), asked)
        if not dry_run:
            remember_made(batch_id=created.batch.batch_id)
        _tell(created)
        if dry_run:
            print_plan(asked, created.batch)
        elif wait:
            announce(f"batch {created.batch.batch_id}: {count(created.batch.task_count, 'task')}")
            await_batch(run, created.batch.batch_id, timeout=timeout, joined=join_box)
        else:
            _print(run, created)


def _check(timeout: float | None, *, wait: bool, join_box: bool, dry_run: bool) -> None:
    check_waiting(timeout, wait=wait)
    if join_box and not wait:
        raise UsageError("--join-box is for --wait", hint="add --wait: only what has ended can be joined")
    if wait and dry_run:
        raise UsageError("--wait and --dry-run exclude each other", hint="leave one of them out")


def _asked(run: "Runtime", file: str, fail_fast: bool, deadline: float | None) -> "ForkJoin":
    from cardbox_cli.orchestration.batches.tasks_file import read_tasks

    text = read_text(file)
    asked = read_tasks(
        text,
        source_name(file),
        folder=Path() if file == "-" else Path(file).parent,
        limit=run.settings.max_tasks,
        lines=file.endswith(_LINES) or (file == "-" and _is_lines(text)),
    )
    given = {"fail_fast": asked.fail_fast or fail_fast}
    return asked.model_copy(update=given if deadline is None else {**given, "deadline_seconds": deadline})


def _is_lines(text: str) -> bool:
    """Whether a text without a file's name is JSON lines: its first line is a task."""
    first = next((line for line in text.splitlines() if line.strip()), "")
    try:
        task = msgspec.json.decode(first.encode())
    except (msgspec.DecodeError, UnicodeEncodeError):
        return False
    return isinstance(task, dict) and "tasks" not in task


def _tell(created: "Created") -> None:
    for index, notes in created.notes.items():
        for note in notes:
            announce(f"note: tasks[{index}]: {note}; a model would be refused")


def _print(run: "Runtime", created: "Created") -> None:
    from cardbox_cli.orchestration.batches.view import batch_view

    with run.database.snapshot():
        seen = batch_view(run, run.batches.get(created.batch.batch_id))
    if session().output in ("table", "wide"):
        announce(f"`cbx batch watch {created.batch.batch_id}` watches it")
    print_batch(seen)
