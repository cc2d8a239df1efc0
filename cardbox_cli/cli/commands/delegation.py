"""`cbx delegate, launch, ask` and `fork-join`, which give tasks to agents."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from typer import Argument, Option

from cardbox_cli.cli.command_runtime import runtime
from cardbox_cli.cli.last_ids import remember_made, resolved_or_given, resolving_boxes
from cardbox_cli.cli.options import recipe_arguments
from cardbox_cli.cli.options.input_files import read_text, source_name, text_or_file
from cardbox_cli.cli.options.shared_options import EndTimeout, check_waiting
from cardbox_cli.cli.options.value_types import AGENT, BOX, FILE, PROFILE, TARGET, OneOf, Seconds
from cardbox_cli.cli.session import session
from cardbox_cli.cli.standard_streams import announce
from cardbox_cli.cli.terminal.batch_report import await_batch, print_batch, print_plan
from cardbox_cli.cli.terminal.turn_report import print_delegated
from cardbox_cli.cli.verb import verb
from cardbox_cli.errors import BadRequest, UsageError
from cardbox_cli.text.quantities import format_count

if TYPE_CHECKING:
    from cardbox_cli.execution.dispatch_requests import Caller
    from cardbox_cli.execution.runtime import Runtime
    from cardbox_cli.model.handwritten.tasks import ForkJoin, Task
    from cardbox_cli.orchestration.batch_creation import BatchCreation


CallerName = Annotated[
    str | None,
    Option(
        "--caller",
        click_type=AGENT,
        help="The agent that you act for; it owns the new agents. Default: none.",
    ),
]
NewTurnId = Annotated[
    str | None,
    Option(
        "--turn-id",
        metavar="ID",
        help="Your own id for the turn. Repeating the request returns the same turn.",
    ),
]
AllowDangling = recipe_arguments.AllowDangling
WaitForEnd = Annotated[bool, Option("--wait", help="Wait for the end and print the deliverable.")]


def _find_caller(run: "Runtime", name: str | None) -> "Caller":
    """Raises NotFound for an unknown caller."""
    from cardbox_cli.execution.dispatch_requests import Caller, named_caller

    return Caller() if name is None else named_caller(run, name)


def _parse_task(run: "Runtime", name: str, context_box: str | None = None, **fields: Any) -> "Task":
    """Return the task of the options of the command `name`. Raises BadRequest with all problems."""
    from cardbox_cli.model.handwritten.documents import document_from_value
    from cardbox_cli.model.handwritten.tasks import Task
    from cardbox_cli.model.handwritten.validation import fit

    if context_box is not None:
        boxes = resolving_boxes(run.database, run.project_id)
        fields["context_box_id"] = resolved_or_given(boxes.resolve, context_box)
    return fit(Task, document_from_value(fields, name), refuse_with=BadRequest)


STRATEGIES = ("new", "reuse", "clone")


@verb(
    "delegate",
    "cbx delegate --strategy new --ref researcher --instruction 'Find the cause'",
    "cbx delegate --strategy reuse --ref researcher-1 --instruction @task.md --context-box @last --wait",
    "cbx delegate --strategy clone --ref researcher-1 --instruction 'Now in German' --caller lead -o id",
    "cbx delegate --strategy new --ref clerk --instruction @task.md --turn-id nightly-$(date +%F)",
)
def delegate_task(
    strategy: Annotated[
        str,
        Option(
            click_type=OneOf(lambda: STRATEGIES, what=None),
            help="new: a new agent with a profile. reuse: an existing agent. clone: a new agent that "
            "reads the output of an existing agent.",
        ),
    ],
    ref: Annotated[str, Option(click_type=TARGET, help="For new: the profile. Otherwise: the agent.")],
    instruction: Annotated[str, Option(metavar="TEXT|@FILE", help="The task for the agent.")],
    context_box: Annotated[
        str | None,
        Option(
            "--context-box", "-c", click_type=BOX, help="A box that the agent reads before the instruction."
        ),
    ] = None,
    allow_dangling: AllowDangling = False,
    caller: CallerName = None,
    turn_id: NewTurnId = None,
    wait: WaitForEnd = False,
    timeout: EndTimeout = None,
) -> None:
    """Give a task to an agent: pack its context and dispatch its turn, or change nothing.

    Exit 6 if the turn was not accepted. The caller's delegation_policy limits models; you only get a warning.
    """
    from cardbox_cli.orchestration.delegation import delegate

    check_waiting(timeout, wait=wait)
    fields = {"target_strategy": strategy, "target_ref": ref, "instruction": text_or_file(instruction)}
    with runtime() as run:
        task = _parse_task(run, "delegate", context_box, **fields)
        done = delegate(
            run, _find_caller(run, caller), task, agent_turn_id=turn_id, allow_dangling=allow_dangling
        )
        print_delegated(run, done, wait=wait, timeout=timeout)


@verb(
    "launch",
    "cbx launch release-manager 'Release 2.4'",
    "cbx launch release-manager @task.md --wait --timeout 600 > notes.md",
    "cbx launch release-manager @task.md --turn-id release-2.4 -o id",
)
def launch_agent(
    profile: Annotated[str, Argument(click_type=PROFILE, help="The name of the profile.")],
    instruction: Annotated[str, Argument(metavar="TEXT|@FILE", help="The task for the agent.")],
    caller: CallerName = None,
    turn_id: NewTurnId = None,
    wait: WaitForEnd = False,
    timeout: EndTimeout = None,
) -> None:
    """Start a principal: a new agent with this profile. It reads the instruction and the caller's name."""
    from cardbox_cli.orchestration.delegation import launch_principal

    check_waiting(timeout, wait=wait)
    text = text_or_file(instruction)
    with runtime() as run:
        task = _parse_task(run, "launch", target_strategy="new", target_ref=profile, instruction=text)
        caller_agent = _find_caller(run, caller)
        done = launch_principal(run, caller_agent, task.target_ref, task.instruction, agent_turn_id=turn_id)
        print_delegated(run, done, wait=wait, timeout=timeout)


@verb(
    "ask",
    "cbx ask lawyer 'Does the licence allow this?' --wait",
    "cbx ask lawyer @question.md --caller clerk --include-history -o id",
)
def ask_agent(
    profile: Annotated[str, Argument(click_type=PROFILE, help="The name of the expert's profile.")],
    question: Annotated[str, Argument(metavar="TEXT|@FILE", help="The question.")],
    include_history: Annotated[
        bool,
        Option("--include-history", help="Let the expert read the caller's last output box first."),
    ] = False,
    allow_dangling: AllowDangling = False,
    caller: CallerName = None,
    turn_id: NewTurnId = None,
    wait: WaitForEnd = False,
    timeout: EndTimeout = None,
) -> None:
    """Ask an expert (a new agent with this profile) one question, with or without the caller's history."""
    from cardbox_cli.orchestration.delegation import ask_expert

    check_waiting(timeout, wait=wait)
    text = text_or_file(question)
    with runtime() as run:
        task = _parse_task(run, "ask", target_strategy="new", target_ref=profile, instruction=text)
        done = ask_expert(
            run,
            _find_caller(run, caller),
            task.target_ref,
            task.instruction,
            include_history=include_history,
            agent_turn_id=turn_id,
            allow_dangling=allow_dangling,
        )
        print_delegated(run, done, wait=wait, timeout=timeout)


_JSON_LINES_SUFFIXES = (".jsonl", ".ndjson")


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
        str, Argument(click_type=FILE, help="A YAML file, or JSON lines with one task each; - for stdin.")
    ],
    fail_fast: Annotated[
        bool, Option("--fail-fast", help="End the batch and stop the other children when one child fails.")
    ] = False,
    deadline: Annotated[
        float | None,
        Option(
            click_type=Seconds(min=0.1), help="Stop children after this time. Default: the file's deadline."
        ),
    ] = None,
    wait: Annotated[bool, Option("--wait", help="Wait for the end and print the results.")] = False,
    timeout: EndTimeout = None,
    caller: CallerName = None,
    allow_dangling: AllowDangling = False,
    join_box: Annotated[
        bool, Option("--join-box", help="With --wait: create a box of the deliverables, in order.")
    ] = False,
    dry_run: Annotated[bool, Option("--dry-run", help="Check everything without writing anything.")] = False,
) -> None:
    """Give the tasks of a file to agents that run at the same time, and join their results in a batch.

    The file has `tasks:`, a list of {target_strategy, target_ref, instruction, context_box_id}. Optional keys
    are `fail_fast`, `deadline_seconds` and `matrix:`, for example {doc: {glob: docs/*.md}}. Each task is then
    repeated for each value. ${doc}, ${doc.name} and ${doc.text} in the task insert the value.

    With --wait: exit 8 if the batch does not succeed, 124 when --timeout elapses. Ctrl-C does not end it.
    """
    check_waiting(timeout, wait=wait, dry_run=dry_run)
    if join_box and not wait:
        raise UsageError("--join-box requires --wait", hint="add --wait, or remove --join-box")
    from cardbox_cli.orchestration.batch_creation import create_batch

    with runtime() as run:
        spec = _read_spec(run, file, fail_fast, deadline)
        with run.rolled_back() if dry_run else run.transaction():
            created = create_batch(run, _find_caller(run, caller), spec, allow_dangling=allow_dangling)
        if not dry_run:
            remember_made(batch_id=created.batch.batch_id)
        for index, notes in created.notes.items():
            for note in notes:
                announce(f"note: tasks[{index}]: {note}; cbx would refuse this request from a model")
        if dry_run:
            print_plan(spec, created.batch)
        elif wait:
            announce(f"batch {created.batch.batch_id}: {format_count(created.batch.task_count, 'task')}")
            await_batch(run, created.batch.batch_id, timeout=timeout, joined=join_box)
        else:
            _print_created(run, created)


def _read_spec(run: "Runtime", file: str, fail_fast: bool, deadline: float | None) -> "ForkJoin":
    from cardbox_cli.orchestration.tasks_file import read_tasks

    text = read_text(file)
    spec = read_tasks(
        text,
        source_name(file),
        folder=Path() if file == "-" else Path(file).parent,
        limit=run.settings.max_tasks,
        lines=file.endswith(_JSON_LINES_SUFFIXES) or (file == "-" and _is_json_lines(text)),
    )
    changes: dict[str, Any] = {"fail_fast": spec.fail_fast or fail_fast}
    if deadline is not None:
        changes["deadline_seconds"] = deadline
    return spec.model_copy(update=changes)


def _is_json_lines(text: str) -> bool:
    """Return whether the text is JSON lines. Its first line is then a task."""
    first = next((line for line in text.splitlines() if line.strip()), "")
    try:
        task = msgspec.json.decode(first.encode())
    except (msgspec.DecodeError, UnicodeEncodeError):
        return False
    return isinstance(task, dict) and "tasks" not in task


def _print_created(run: "Runtime", created: "BatchCreation") -> None:
    from cardbox_cli.inspect.batches import view_batch

    with run.database.snapshot():
        view = view_batch(run, run.batches.get(created.batch.batch_id), session().project_option)
    if session().output in ("table", "wide"):
        announce(f"watch it with `cbx batch watch {created.batch.batch_id}`")
    print_batch(view)
