"""The tool calls of a turn: as its thoughts have them, as the card that schedules each, and as the card that
answers it.

Pure. Owns the ids of calls, which are unique in a project, and the shape of results. Runs nothing.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Any, Literal

import msgspec

from cardbox_cli.context.tool_calls import arguments_of, arguments_text, input_of
from cardbox_cli.model.card_types import TOOL_CALL, TOOL_RESULT
from cardbox_cli.model.cards import Card, CardDraft, draft_card
from cardbox_cli.model.content import ToolCallContent, ToolResultContent
from cardbox_cli.model.execution.turns import new_tool_call_id

# Which of some tool-call ids the project holds already.
Held = Callable[[Sequence[str]], Collection[str]]

_LONGEST = 255


class Author(msgspec.Struct, frozen=True, kw_only=True):
    """On whose behalf the cards of a step are written."""

    agent_id: str
    agent_turn_id: str
    step_id: str
    trace_id: str | None = None
    parent_step_id: str | None = None

    @property
    def metadata(self) -> dict[str, str]:
        """What every card of the step says of where it comes from, but who wrote it."""
        values = {
            "agent_turn_id": self.agent_turn_id,
            "step_id": self.step_id,
            "trace_id": self.trace_id,
            "parent_step_id": self.parent_step_id,
        }
        return {name: value for name, value in values.items() if value is not None}


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """One tool call. `arguments` are as the model wrote them, text that may be no JSON."""

    tool_call_id: str
    tool_name: str
    arguments: str

    @property
    def input(self) -> dict[str, Any] | None:
        """The arguments as an object; None where they are none."""
        return arguments_of(self.arguments)


def calls_of(card: Card | CardDraft) -> list[Call]:
    """The calls that a thought makes; what is no call of a function in a foreign row is skipped."""
    calls = card.tool_calls if isinstance(card.tool_calls, list) else []
    return [_call(call) for call in calls if _is_call(call)]


def pending_calls(own: Sequence[Card | CardDraft]) -> list[Call]:
    """The calls of a turn's own cards that none of them answers, in order."""
    answered = {card.tool_call_id for card in own if card.type == TOOL_RESULT}
    return [call for card in own for call in calls_of(card) if call.tool_call_id not in answered]


def own_ids(given: Sequence[str], held: Held) -> list[str]:
    """The ids of calls as they are kept: a new one for each that is empty, overlong, held, or twice there."""
    fit = [call_id for call_id in given if call_id.strip() and len(call_id) <= _LONGEST]
    taken = set(held(fit)) if fit else set()
    kept = []
    for call_id in given:
        kept.append(call_id if call_id in fit and call_id not in taken else new_tool_call_id())
        taken.add(call_id)
    return kept


def call_card(call: Call, author: Author) -> CardDraft:
    """The card that schedules a call."""
    return draft_card(
        TOOL_CALL,
        ToolCallContent(call.tool_name, input_of(call.arguments), "called"),
        author_id=author.agent_id,
        metadata={**author.metadata, "tool_call_id": call.tool_call_id},
        tool_call_id=call.tool_call_id,
    )


def result_card(
    call: Call,
    author: Author,
    *,
    after_execution: str | None = None,
    result: Any = msgspec.UNSET,
    failure: tuple[str, str] | None = None,
    status: str = "failed",
) -> CardDraft:
    """The card that answers a call: with `result`, or as `status` with the code and message of `failure`."""
    ending: Literal["suspend", "terminate"] = "terminate" if after_execution == "terminate" else "suspend"
    if failure is None:
        content = ToolResultContent("success", ending, result=result)
    else:
        error = dict(zip(("code", "message"), failure, strict=True))
        content = ToolResultContent(status, ending, result=result, error=error)
    return draft_card(
        TOOL_RESULT,
        content,
        author_id=author.agent_id,
        metadata={
            **author.metadata,
            "tool_call_id": call.tool_call_id,
            "function_name": call.tool_name,
        },
        tool_call_id=call.tool_call_id,
    )


def _is_call(call: Any) -> bool:
    function = call.get("function") if isinstance(call, dict) else None
    return (
        isinstance(function, dict)
        and isinstance(function.get("name"), str)
        and isinstance(call.get("id"), str)
    )


def _call(call: dict[str, Any]) -> Call:
    function = call["function"]
    return Call(
        tool_call_id=call["id"],
        tool_name=function["name"],
        arguments=arguments_text(function.get("arguments")),
    )
