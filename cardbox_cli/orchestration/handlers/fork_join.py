"""`fork_join`: hand several tasks to other agents at once, and wait for the one result of all."""

from typing import TYPE_CHECKING, Any

from cardbox_cli.errors import BadRequest
from cardbox_cli.execution.handlers import Awaiting, Handler
from cardbox_cli.model.handwritten.batches import ForkJoin
from cardbox_cli.orchestration.batches.creation import NAME, create_batch, refuse_too_many
from cardbox_cli.orchestration.handlers.arguments import Arguments, read_arguments

if TYPE_CHECKING:
    from cardbox_cli.execution.dispatch.caller import Caller
    from cardbox_cli.execution.runtime import Runtime


class _Arguments(ForkJoin, Arguments):
    pass


def _handle(runtime: "Runtime", caller: "Caller", arguments: dict[str, Any]) -> Any:
    tasks = arguments.get("tasks")
    refuse_too_many(len(tasks) if isinstance(tasks, list) else 0, runtime.settings.max_tasks)
    asked = read_arguments(_Arguments, NAME, arguments)
    if caller.parent is None or caller.parent.tool_call_id is None:
        raise BadRequest(f"{NAME}: no call waits for the results", hint="name one with --tool-call-id")
    create_batch(runtime, caller, asked)
    # How long the batch may take is its own deadline's matter, which the turn then waits for.
    return Awaiting(0)


HANDLER = Handler(
    name=NAME,
    description="Hand several tasks to other agents, which do them at the same time, and wait for all of "
    "them. The result has a status, and for each task in order its status, a summary, and the box that it "
    "wrote.",
    parameters=_Arguments.parameters(),
    function=_handle,
)
