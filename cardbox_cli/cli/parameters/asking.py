"""Options of the commands that request a turn of one agent: its caller and its task."""

from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from cardbox_cli.cli.last_ids import resolved_or_given, resolving_boxes
from cardbox_cli.cli.options.value_types import AGENT
from cardbox_cli.errors import BadRequest, UsageError

if TYPE_CHECKING:
    from cardbox_cli.execution.dispatch.caller import Caller
    from cardbox_cli.execution.runtime import Runtime
    from cardbox_cli.model.handwritten.tasks import Task

CallerName = Annotated[
    str | None,
    Option(
        "--caller",
        click_type=AGENT,
        help="The agent on whose behalf you ask: it owns what is made. Default: nobody but you.",
    ),
]
NewTurnId = Annotated[
    str | None,
    Option(
        "--turn-id", metavar="ID", help="Your own id for the turn: the same request again makes no other."
    ),
]
WaitForEnd = Annotated[bool, Option("--wait", help="Wait for the end and print what came.")]


def check_waiting(timeout: float | None, *, wait: bool) -> None:
    """Raise UsageError for a timeout of nothing."""
    if timeout is not None and not wait:
        raise UsageError("--timeout is for --wait", hint="add --wait, or leave --timeout out")


def caller_named(run: "Runtime", name: str | None) -> "Caller":
    """The caller that --caller names. Raises NotFound."""
    from cardbox_cli.execution.dispatch.caller import Caller, named_caller

    return Caller() if name is None else named_caller(run, name)


def task_of(run: "Runtime", name: str, context_box: str | None = None, **said: Any) -> "Task":
    """The task that the options of the command `name` describe. Raises BadRequest with all its problems."""
    from cardbox_cli.model.handwritten.documents import document_of
    from cardbox_cli.model.handwritten.tasks import Task
    from cardbox_cli.model.handwritten.validation import fit

    if context_box is not None:
        boxes = resolving_boxes(run.database, run.project_id)
        said["context_box_id"] = resolved_or_given(boxes.resolve, context_box)
    return fit(Task, document_of(said, name), refuse_with=BadRequest)
