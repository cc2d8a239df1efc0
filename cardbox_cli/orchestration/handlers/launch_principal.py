"""`launch_principal`: start an agent by its profile's name, with nothing but an instruction."""

from typing import TYPE_CHECKING, Any

from pydantic import Field

from cardbox_cli.execution.handlers import Handler
from cardbox_cli.model.handwritten.tasks import Instruction
from cardbox_cli.model.handwritten.validation import Trimmed
from cardbox_cli.orchestration.delegate import LAUNCH, launch_principal
from cardbox_cli.orchestration.handlers.arguments import OfNewTurn, answer_of, read_arguments

if TYPE_CHECKING:
    from cardbox_cli.execution.dispatch.caller import Caller
    from cardbox_cli.execution.runtime import Runtime


class _Arguments(OfNewTurn):
    profile_name: Trimmed = Field(description="The profile of the agent to launch.")
    instruction: Instruction = Field(description="What to do.")


def _handle(runtime: "Runtime", caller: "Caller", arguments: dict[str, Any]) -> Any:
    asked = read_arguments(_Arguments, LAUNCH, arguments)
    launched = launch_principal(
        runtime, caller, asked.profile_name, asked.instruction, agent_turn_id=asked.agent_turn_id
    )
    return answer_of(launched.result)


HANDLER = Handler(
    name=LAUNCH,
    description="Start a fresh agent of a profile on a task of its own. It reads nothing but the "
    "instruction. Answers at once with ids; its result does not come back to you.",
    parameters=_Arguments.parameters(),
    function=_handle,
)
