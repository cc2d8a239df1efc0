"""The tool calls of a turn, as its thoughts, its `tool.call` cards and its `tool.result` cards record them.

This pure module makes call ids unique in a project, builds result cards, and decides which results end a
turn.
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
from cardbox_cli.model.ids import new_id_fault

# A function that returns the tool call ids, among the given ones, that the project already has.
FindHeldIds = Callable[[Sequence[str]], Collection[str]]

_MAX_ID_LENGTH = 255
# The number of characters of invalid arguments that a message shows.
_MAX_QUOTE_LENGTH = 1000


class Author(msgspec.Struct, frozen=True, kw_only=True):
    """The author of the cards of a step: its agent, turn and step."""

    agent_id: str
    agent_turn_id: str
    step_id: str
    trace_id: str | None = None
    parent_step_id: str | None = None

    @property
    def metadata(self) -> dict[str, str]:
        """The metadata that names the turn and step of a card. A card stores its agent as `author_id`."""
        names = ("agent_turn_id", "step_id", "trace_id", "parent_step_id")
        return {name: value for name in names if (value := getattr(self, name)) is not None}


class ToolCall(msgspec.Struct, frozen=True, kw_only=True):
    """One tool call. `arguments` are the model's text, which may not be valid JSON."""

    tool_call_id: str
    tool_name: str
    arguments: str

    @property
    def input(self) -> dict[str, Any] | None:
        """The arguments as an object, or None if they are not a JSON object."""
        return arguments_of(self.arguments)


def calls_of(card: Card | CardDraft) -> list[ToolCall]:
    """Return the tool calls in a thought. Skips entries that are not function calls."""
    entries = card.tool_calls if isinstance(card.tool_calls, list) else []
    return [call for entry in entries if (call := _read_call(entry)) is not None]


def pending_calls(own: Sequence[Card | CardDraft]) -> list[ToolCall]:
    """Return the calls in these cards of a turn that have no result among the cards, in order."""
    answered = {card.tool_call_id for card in own if card.type == TOOL_RESULT}
    return [call for card in own for call in calls_of(card) if call.tool_call_id not in answered]


def last_calls(own: Sequence[Card | CardDraft]) -> list[ToolCall]:
    """Return the calls of the last card that has calls, among the cards that a turn wrote."""
    return next((calls for card in reversed(own) if (calls := calls_of(card))), [])


def end_status_of_last_calls(own: Sequence[Card]) -> EndStatus | None:
    """Return the end status of a turn if a result of its last calls ends the turn, or None."""
    call_ids = {call.tool_call_id for call in last_calls(own)}
    results = (card for card in own if card.type == TOOL_RESULT and card.tool_call_id in call_ids)
    return end_status_of_results(results)


def end_status_of_results(results: Iterable[Card]) -> EndStatus | None:
    """Return the end status if one of these results ends the turn, or None. The first failure decides it."""
    contents = [card.content for card in results if isinstance(card.content, ToolResultContent)]
    if not any(content.after_execution == "terminate" for content in contents):
        return None
    ended = next((content.status for content in contents if content.status != "success"), "success")
    return next((status for status in END_STATUSES if status == ended), "failed")


def unique_call_ids(given: Sequence[str], held: FindHeldIds) -> list[str]:
    """Return the ids under which calls are stored. An invalid, repeated or already used id is replaced.

    Ids must be short and printable, because people type them and lists print one per line.
    """
    valid = {call_id for call_id in given if len(call_id) <= _MAX_ID_LENGTH and new_id_fault(call_id) is None}
    taken = set(held(list(valid))) if valid else set()
    ids = []
    for call_id in given:
        ids.append(call_id if call_id in valid and call_id not in taken else new_id("tc"))
        taken.add(call_id)
    return ids


def size_problem(call: ToolCall) -> str | None:
    """Return why the arguments of a call are too large for cbx to process, or None."""
    if len(call.arguments) <= CALL_SIZE.value << 20:
        return None
    return f"the arguments are larger than {CALL_SIZE}: shorten them, or make several calls"


def argument_problem(call: ToolCall) -> str | None:
    """Return why the arguments of a call cannot be used, or None if they are an object that can be stored."""
    if call.input is not None:
        return None
    try:
        exact_json.check_storable(exact_json.read(call.arguments), "the arguments")
    except exact_json.Unstorable as exc:
        return f"{exc}, and cannot be stored"
    except ValueError:
        pass
    return f"the arguments are not a JSON object: {call.arguments[:_MAX_QUOTE_LENGTH]!r}"


def call_card(call: ToolCall, author: Author) -> CardDraft:
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
    """Return the `tool.result` card of a call, with a `result` or with a `failure` as (code, message)."""
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


def _read_call(entry: Any) -> ToolCall | None:
    match entry:
        case {"id": str(call_id), "function": {"name": str(name), **function}}:
            arguments = arguments_text(function.get("arguments"))
            return ToolCall(tool_call_id=call_id, tool_name=name, arguments=arguments)
    return None
