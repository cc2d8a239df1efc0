"""The tool calls of a turn: as its thoughts have them, as the card that schedules each, and as the card that
answers it.

Pure. Owns the ids of calls, unique in a project, the shape of results, and which of them end a turn.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Literal

import msgspec

from cardbox_cli.context.parts import arguments_of, arguments_text, input_of
from cardbox_cli.limits import CALL_SIZE
from cardbox_cli.model import exact_json
from cardbox_cli.model.card_types import TOOL_CALL, TOOL_RESULT
from cardbox_cli.model.cards import Card, CardDraft, draft_card
from cardbox_cli.model.content import ToolCallContent, ToolResultContent
from cardbox_cli.model.execution.turns import END_STATUSES, EndStatus, new_id
from cardbox_cli.model.ids import fault_of_new_id

# Which of some tool-call ids the project holds already.
Held = Callable[[Sequence[str]], Collection[str]]

_LONGEST = 255
# How much of arguments that are no object is shown, in characters.
_SHOWN = 1000


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


class ToolCall(msgspec.Struct, frozen=True, kw_only=True):
    """One tool call. `arguments` are as the model wrote them, text that may be no JSON."""

    tool_call_id: str
    tool_name: str
    arguments: str

    @property
    def input(self) -> dict[str, Any] | None:
        """The arguments as an object; None where they are none."""
        return arguments_of(self.arguments)


def calls_of(card: Card | CardDraft) -> list[ToolCall]:
    """The calls that a thought makes; what is no call of a function in a foreign row is skipped."""
    calls = card.tool_calls if isinstance(card.tool_calls, list) else []
    return [_call(call) for call in calls if _is_call(call)]


def pending_calls(own: Sequence[Card | CardDraft]) -> list[ToolCall]:
    """The calls of a turn's own cards that none of them answers, in order."""
    answered = {card.tool_call_id for card in own if card.type == TOOL_RESULT}
    return [call for card in own for call in calls_of(card) if call.tool_call_id not in answered]


def last_calls(own: Sequence[Card | CardDraft]) -> list[ToolCall]:
    """The calls of the last of a turn's own cards that makes any."""
    return next((calls for card in reversed(own) if (calls := calls_of(card))), [])


def ended_by_last_calls(own: Sequence[Card]) -> EndStatus | None:
    """How a turn of these cards ends where a result of its last thought's calls says that it does."""
    asked = {call.tool_call_id for call in last_calls(own)}
    return ended_by(card for card in own if card.type == TOOL_RESULT and card.tool_call_id in asked)


def ended_by(results: Iterable[Card]) -> EndStatus | None:
    """How a turn ends where one of these results says that it does: the first status that is no success."""
    contents = [card.content for card in results if isinstance(card.content, ToolResultContent)]
    if not any(content.after_execution == "terminate" for content in contents):
        return None
    ended = next((content.status for content in contents if content.status != "success"), "success")
    return next((status for status in END_STATUSES if status == ended), "failed")


def own_ids(given: Sequence[str], held: Held) -> list[str]:
    """The ids of calls as they are stored: new ones for those that no new id may be, or that are overlong,
    held, or repeated. People type them, and print a line for each."""
    fit = {call_id for call_id in given if len(call_id) <= _LONGEST and fault_of_new_id(call_id) is None}
    taken = set(held(list(fit))) if fit else set()
    ids = []
    for call_id in given:
        ids.append(call_id if call_id in fit and call_id not in taken else new_id("tc"))
        taken.add(call_id)
    return ids


def fault_of_size(call: ToolCall) -> str | None:
    """Why cbx itself does not look at the arguments of a call; None where they are of a size that it does."""
    if len(call.arguments) <= CALL_SIZE.value << 20:
        return None
    return f"the arguments are larger than {CALL_SIZE}: write less of it, or several calls"


def fault_of_arguments(call: ToolCall) -> str | None:
    """Why a call cannot be answered for its arguments; None where they are an object that can be stored."""
    if call.input is not None:
        return None
    try:
        exact_json.check_storable(exact_json.read(call.arguments), "the arguments")
    except exact_json.Unstorable as exc:
        return f"{exc}, and cannot be stored"
    except ValueError:
        pass
    return f"the arguments are no JSON object: {call.arguments[:_SHOWN]!r}"


def call_card(call: ToolCall, author: Author) -> CardDraft:
    """The card that schedules a call."""
    return draft_card(
        TOOL_CALL,
        ToolCallContent(call.tool_name, input_of(call.arguments), "called"),
        author_id=author.agent_id,
        metadata={**author.metadata, "tool_call_id": call.tool_call_id},
        tool_call_id=call.tool_call_id,
    )


def result_card(
    call: ToolCall,
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
        metadata={**author.metadata, "tool_call_id": call.tool_call_id, "function_name": call.tool_name},
        tool_call_id=call.tool_call_id,
    )


def _is_call(call: Any) -> bool:
    function = call.get("function") if isinstance(call, dict) else None
    return (
        isinstance(function, dict)
        and isinstance(function.get("name"), str)
        and isinstance(call.get("id"), str)
    )


def _call(call: dict[str, Any]) -> ToolCall:
    function = call["function"]
    return ToolCall(
        tool_call_id=call["id"],
        tool_name=function["name"],
        arguments=arguments_text(function.get("arguments")),
    )
