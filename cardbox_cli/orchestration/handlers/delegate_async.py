"""`delegate_async`: hand a task to another agent, and go on."""

from typing import TYPE_CHECKING, Any

from cardbox_cli.execution.handlers import Handler
from cardbox_cli.model.handwritten.tasks import Task
from cardbox_cli.orchestration.delegate import DELEGATE, delegate
from cardbox_cli.orchestration.handlers.arguments import OfNewTurn, answer_of, read_arguments

if TYPE_CHECKING:
    from cardbox_cli.execution.dispatch.caller import Caller
    from cardbox_cli.execution.runtime import Runtime


class _Arguments(Task, OfNewTurn):
    pass


def _handle(runtime: "Runtime", caller: "Caller", arguments: dict[str, Any]) -> Any:
    asked = read_arguments(_Arguments, DELEGATE, arguments)
    task = Task.model_validate(asked.model_dump(include=set(Task.model_fields)))
    return answer_of(delegate(runtime, caller, task, agent_turn_id=asked.agent_turn_id).result)


HANDLER = Handler(
    name=DELEGATE,
    description="Hand a task to another agent. Answers at once with the ids of its agent, turn and boxes; "
    "its result does not come back to you.",
    parameters=_Arguments.parameters(),
    function=_handle,
)
