"""`ask_expert`: ask a fresh agent one question, and wait for the answer if wished."""

from typing import TYPE_CHECKING, Any

from pydantic import Field, StrictBool

from cardbox_cli.errors import BadRequest
from cardbox_cli.execution.handlers import Awaiting, Handler
from cardbox_cli.model.handwritten.tasks import Instruction
from cardbox_cli.model.handwritten.validation import Trimmed
from cardbox_cli.orchestration.delegate import ASK, ask_expert, refuse_answered
from cardbox_cli.orchestration.handlers.arguments import OfNewTurn, answer_of, read_arguments

if TYPE_CHECKING:
    from cardbox_cli.execution.dispatch.caller import Caller
    from cardbox_cli.execution.runtime import Runtime


class _Arguments(OfNewTurn):
    expert_profile: Trimmed = Field(description="The profile of the expert.")
    question: Instruction = Field(description="The question.")
    include_history: StrictBool = Field(
        default=False, description="Whether the expert first reads what you have written so far."
    )
    awaits: StrictBool = Field(
        default=False,
        alias="await",
        description="Whether to wait: the expert's answer is then the result of this call.",
    )


def _handle(runtime: "Runtime", caller: "Caller", arguments: dict[str, Any]) -> Any:
    asked = read_arguments(_Arguments, ASK, arguments)
    if asked.awaits:
        _refuse_nothing_waits(caller)
        refuse_answered(runtime, caller)
    expert = ask_expert(
        runtime,
        caller,
        asked.expert_profile,
        asked.question,
        include_history=asked.include_history,
        agent_turn_id=asked.agent_turn_id,
        waits=asked.awaits,
    )
    if not asked.awaits:
        return answer_of(expert.result)
    # The expert's own limit ends its turn, and so the wait; this one is for an end that nobody can make.
    return Awaiting(max(runtime.settings.tool_wait, runtime.settings.turn_time))


def _refuse_nothing_waits(caller: "Caller") -> None:
    if caller.parent is None or caller.parent.tool_call_id is None:
        raise BadRequest(f"{ASK}: await: no call waits for the answer", hint="name one with --tool-call-id")


HANDLER = Handler(
    name=ASK,
    description="Ask a fresh agent of a profile one question. Answers at once with ids, or with the expert's "
    "answer where await is true.",
    parameters=_Arguments.parameters(),
    function=_handle,
)
