"""Read the output of a step's or a tool's command as cards. This module is pure.

A model's message, alone or in a provider's response, becomes a thought. Each tool call in it becomes a card.
Without tool calls, the message also becomes the deliverable. Other output becomes the text of a deliverable.
Lines of JSON cards are read as cards only in the mode `cards`. An agent may print only certain types of
cards, and cbx sets their role, author, id, turn and step. Unreadable output is refused with an error code.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Literal

import msgspec

from cardbox_cli.context.parts import MalformedAnswer, normalized_calls
from cardbox_cli.context.provider import AnswerReader
from cardbox_cli.errors import InvalidCard
from cardbox_cli.execution.tool_calls import (
    Author,
    FindHeldIds,
    ToolCall,
    call_card,
    calls_of,
    result_card,
    unique_call_ids,
)
from cardbox_cli.execution.worker.command_output import TAIL, failure_reason, is_too_long
from cardbox_cli.execution.worker.command_processes import CommandOutcome
from cardbox_cli.limits import ANSWER_PARTS, CALLED_NAME, RESULT_SIZE
from cardbox_cli.model import exact_json
from cardbox_cli.model.card_types import DELIVERABLE, PLAN, THOUGHT
from cardbox_cli.model.cards import (
    IGNORED_METADATA,
    CardDraft,
    card_text,
    check_draft,
    draft_card,
    draft_from_mapping,
)
from cardbox_cli.model.content import FALLBACK, ToolCallContent, ToolContent, ToolResultContent, is_fallback
from cardbox_cli.model.identity import Tool
from cardbox_cli.model.ids import new_card_id
from cardbox_cli.providers.registry import DEFAULT, PROVIDERS, provider_named, providers
from cardbox_cli.settings import MAX_TOOL_CALLS

OWN_TYPES = (THOUGHT, PLAN, DELIVERABLE)

# Metadata keys that only cbx sets, because they decide who wrote a card and how cbx uses it.
_RESERVED_METADATA = IGNORED_METADATA | {
    *("tool_call_id", "function_name", "layer", "signature", "semantic_type"),
    *("edited_from", "covers", "partial", "stop_reason", "terminal_reason"),
}
_IMPORT_PREFIX = "source_"


class RefusedCard(ValueError):
    """The refusal of a line that is not a valid card, or is a card that a command may not print."""


def resembles_card(value: Any) -> bool:
    """Return whether the author of a value may have meant it as a card."""
    return isinstance(value, dict) and isinstance(value.get("type"), str) and "content" in value


def read_cards(text: str, author: Author) -> list[CardDraft]:
    """Return the cards in the lines of a text. Their call ids are unchanged. Raises RefusedCard."""
    lines = [line for line in text.split("\n") if line.strip()]
    return [_card(line, author, number) for number, line in enumerate(lines, 1)]


def _card(line: str, author: Author, number: int) -> CardDraft:
    try:
        value = exact_json.read(line.strip())
        if not resembles_card(value):
            raise RefusedCard("it is not an object with a type and a content")
        _refuse_others(value)
        return _adopt_card(author, draft_from_mapping(value))
    except (InvalidCard, ValueError) as exc:
        raise RefusedCard(f"card {number} of the output: {exc}") from exc


def _refuse_others(value: dict[str, Any]) -> None:
    """Raise RefusedCard for a card that an agent may not write."""
    if value["type"] not in OWN_TYPES:
        own = ", ".join(OWN_TYPES)
        raise RefusedCard(f"a command may not write the type {value['type'][:80]!r}; allowed types are {own}")
    if value.get("tool_call_id") is not None:
        raise RefusedCard("a command may not write results, so its cards cannot have a tool_call_id")
    if value.get("tool_calls") and value["type"] != THOUGHT:
        raise RefusedCard(f"only a card of type {THOUGHT} can call tools")


def _adopt_card(author: Author, given: CardDraft) -> CardDraft:
    """Return the card as written by `author`, with a new id and the role of an agent."""
    if isinstance(given.content, ToolContent | ToolCallContent | ToolResultContent):
        raise RefusedCard(f"a card of type {given.type} cannot hold a {type(given.content).__name__}")
    if is_fallback(given.content):
        raise RefusedCard(f"only a worker may write a fallback deliverable ({FALLBACK!r})")
    own_metadata = {
        key: value
        for key, value in given.metadata.items()
        if key not in _RESERVED_METADATA and not key.startswith(_IMPORT_PREFIX)
    }
    try:
        calls = None if given.tool_calls is None else normalized_calls(given.tool_calls)
    except MalformedAnswer as exc:
        raise RefusedCard(str(exc)) from exc
    return draft_card(
        given.type,
        given.content,
        role="assistant",
        author_id=author.agent_id,
        card_id=new_card_id(),
        metadata={**own_metadata, **author.metadata},
        tool_calls=calls,
    )


def assign_call_ids(drafts: Sequence[CardDraft], held: FindHeldIds) -> list[CardDraft]:
    """Return the cards with call ids that are unique in the project."""
    ids = iter(unique_call_ids([call.tool_call_id for draft in drafts for call in calls_of(draft)], held))
    return [
        msgspec.structs.replace(draft, tool_calls=[{**call, "id": next(ids)} for call in draft.tool_calls])
        if draft.tool_calls
        else draft
        for draft in drafts
    ]


EMPTY, INVALID, PROVIDER = "empty_answer", "invalid_answer", "provider_error"
CUT_OFF, TOO_MANY, TOO_MANY_PARTS = "answer_cut_off", "too_many_calls", "too_many_parts"

# `auto` reads output as a response if it has the form of one, and otherwise as text.
AnswerMode = Literal["auto", "response", "text", "cards"]

# The beginning of a JSON object or a list of objects, and of an event stream.
_JSON = re.compile(r'\{\s*(?:["}]|\Z)|\[\s*\{\s*(?:["}]|\Z)')
_STREAM = re.compile(r"(?:event: ?[\w.]+\s+)?data: ?\{")
_TEXT_HINT = "if the client prints the model's bare text, pass --answers text"


class AnswerRules(msgspec.Struct, frozen=True, kw_only=True):
    """The rules for reading output: the mode, the request's format, and the maximum calls of an answer."""

    mode: AnswerMode = "auto"
    format: str = DEFAULT
    max_calls: int = MAX_TOOL_CALLS.default

    @property
    def is_provider_format(self) -> bool:
        return self.format in PROVIDERS

    @property
    def responses(self) -> list[AnswerReader]:
        """The readers of whole responses. If the format has no provider, these are all readers."""
        known = [provider_named(self.format)] if self.is_provider_format else providers()
        return [each.answers for each in known if each.answers is not None]


AUTO_RULES = AnswerRules()


class StepAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of a step: its cards in order, and their calls. `usage` has the provider's token counts."""

    cards: list[CardDraft]
    calls: list[ToolCall]
    usage: dict[str, Any] | None = None


class InvalidAnswer(msgspec.Struct, frozen=True):
    error_code: str
    message: str


class _Refused(Exception):
    """The code and the message of an InvalidAnswer."""


def read_answer(
    stdout: bytes, author: Author, held: FindHeldIds, rules: AnswerRules = AUTO_RULES
) -> StepAnswer | InvalidAnswer:
    """Read `stdout` as cards of `author`. Tool call ids that the project already has are replaced."""
    try:
        answer = _answer(_decoded(stdout), author, held, rules)
        _check_count(len(answer.calls), rules)
        _check_names(answer.calls)
        _check_storable([card.content for card in answer.cards], "cards")  # arguments are still text here
        return answer
    except _Refused as refused:
        return InvalidAnswer(*refused.args)
    except (MalformedAnswer, RefusedCard) as exc:
        return InvalidAnswer(INVALID, str(exc))
    except InvalidCard as exc:
        return InvalidAnswer(INVALID, f"the answer cannot be stored: {exc}")


def _decoded(stdout: bytes) -> str:
    try:
        text = stdout.decode("utf-8-sig").strip()
    except UnicodeDecodeError as exc:
        what = f"the output is not UTF-8: byte {exc.start} is {stdout[exc.start]:#04x}"
        raise _Refused(INVALID, what) from exc
    if not text:
        raise _Refused(EMPTY, "the command printed nothing")
    return text


def _answer(text: str, author: Author, held: FindHeldIds, rules: AnswerRules) -> StepAnswer:
    if rules.mode == "cards":
        return _card_lines_answer(text, author, held, rules)
    value = None if rules.mode == "text" else _json(text, rules)
    _check_storable(text if value is None else value)
    answered = None if value is None else _find_message(value, rules)
    if answered is not None:
        return _message_answer(answered, author, held, rules)
    if rules.mode == "response":
        noun = f"whole {rules.format}" if rules.is_provider_format else "whole"
        what = f"the output is neither a {noun} response nor an assistant message"
        raise _Refused(INVALID, f"{what}; {_TEXT_HINT}")
    return _complete_answer(_add_origin([draft_card(THOUGHT, text)], author), author, None)


def _check_storable(value: Any, path: str = "") -> None:
    try:
        exact_json.check_storable(value, path)
    except exact_json.Unstorable as exc:
        raise _Refused(INVALID, f"the answer cannot be stored: {exc.path or 'it'} {exc.what}") from exc


def _check_count(calls: int, rules: AnswerRules) -> None:
    if calls > rules.max_calls:
        what = f"the answer calls {calls} tools; the limit is {rules.max_calls}"
        raise _Refused(TOO_MANY, f"{what} ({MAX_TOOL_CALLS.name})")


def _check_names(calls: Sequence[ToolCall]) -> None:
    for number, call in enumerate(calls, start=1):
        if len(call.tool_name) > CALLED_NAME.value:
            what = f"the tool name of call {number} has {len(call.tool_name)} characters"
            raise _Refused(INVALID, f"{what}; the limit is {CALLED_NAME.value}")


def _check_parts(parts: int) -> None:
    """Refuse an answer with too many parts, before cards are made of perhaps a million parts."""
    if parts > ANSWER_PARTS.value:
        what = f"the answer has {parts} parts (cards or content blocks)"
        raise _Refused(TOO_MANY_PARTS, f"{what}; the limit is {ANSWER_PARTS.value}")


# --- JSON


def _json(text: str, rules: AnswerRules) -> dict[str, Any] | None:
    """Return the object of a JSON text, or None for other text. Refuses a text with incomplete JSON."""
    if _STREAM.match(text):
        what = "the output is an event stream: request a whole response, for example with `stream: false`"
        raise _Refused(INVALID, f"{what}; {_TEXT_HINT}")
    if not _JSON.match(text):
        return None
    try:
        value = exact_json.read(text)
    except ValueError as exc:
        what = "the output begins as JSON but is not one complete value"
        raise _Refused(INVALID, f"{what}: {_json_problem(text, exc)}") from exc
    if isinstance(value, list):
        _refuse_list(value, rules)
    return value if isinstance(value, dict) else None


def _refuse_list(values: list[Any], rules: AnswerRules) -> None:
    """Refuse a list of responses, with the provider's error if the list contains one.

    Gemini's `streamGenerateContent` returns its chunks and errors as a list if it does not send events.
    """
    first = values[0] if values and isinstance(values[0], dict) else {}
    if isinstance(first.get("error"), dict):
        _refuse_error(first, rules)
    if any(each.answers is not None and each.answers.is_response(first) for each in providers()):
        what = "the output is a list of responses, or of chunks of one: request one whole response"
        raise _Refused(INVALID, f"{what}; {_TEXT_HINT}")


def _json_problem(text: str, exc: ValueError) -> str:
    with suppress(ValueError):
        if resembles_card(exact_json.read(text.partition("\n")[0])):
            return f"{exc}; if the client prints lines of cards, pass --answers cards"
    return f"{exc}; {_TEXT_HINT}"


# --- messages


class _ModelMessage(msgspec.Struct, frozen=True):
    """A model's message, the reader that makes cards of it, and the provider's token counts."""

    message: dict[str, Any]
    answers: AnswerReader
    usage: dict[str, Any] | None = None


def _find_message(value: dict[str, Any], rules: AnswerRules) -> _ModelMessage | None:
    """Return the model's message, which may be `value` or a part of it, or None if there is none."""
    _refuse_error(value, rules)
    for answers in rules.responses:
        if answers.is_response(value):
            return _response_message(value, answers)
    _refuse_other_formats(value, rules)
    if value.get("role") == "assistant" and ("content" in value or "tool_calls" in value):
        return _ModelMessage(value, _format_of(value))
    return None


def _response_message(response: dict[str, Any], answers: AnswerReader) -> _ModelMessage:
    _refuse_cut_off(response, answers)
    message, usage = answers.unwrap(response), answers.usage(response)
    # Gateways return a response in the default format that contains a message of another provider.
    own = _format_of(message) if answers is provider_named(DEFAULT).answers else answers
    return _ModelMessage(message, own, usage if isinstance(usage, dict) else None)


def _format_of(message: dict[str, Any]) -> AnswerReader:
    """Return the reader of the format that a message appears to have, or else of the default format."""
    others = (each for each in providers() if each.name != DEFAULT)
    formats = [each.answers for each in (*others, provider_named(DEFAULT)) if each.answers is not None]
    return next(each for each in formats if each.is_own(message))


def _refuse_error(value: dict[str, Any], rules: AnswerRules) -> None:
    """Refuse a provider's error with its message. curl exits with 0 even if the response is an error."""
    error = value.get("error")
    message = error.get("message") if isinstance(error, dict) else error if len(value) == 1 else None
    if not isinstance(message, str) or not message:
        message = next(filter(None, _own_errors(value, rules)), None)
    if message is not None:
        raise _Refused(PROVIDER, f"the provider returned an error: {exact_json.replace_unstorable(message)}")


def _own_errors(value: dict[str, Any], rules: AnswerRules) -> Iterator[str | None]:
    """Yield the error message that each suitable reader finds in a value, or None."""
    for answers in rules.responses:
        if rules.is_provider_format or answers.is_response(value):
            yield answers.error(value)


def _refuse_cut_off(value: dict[str, Any], answers: AnswerReader) -> None:
    reason = answers.cut_off(value)
    if reason is not None:
        what = f"the provider cut the answer off ({exact_json.replace_unstorable(reason)[:80]})"
        remedy = ": raise the output limit, or ask the model for less" if reason in answers.limits else ""
        raise _Refused(CUT_OFF, what + remedy)


def _refuse_other_formats(value: dict[str, Any], rules: AnswerRules) -> None:
    """Refuse a response in another format than the request's, because its author did not mean it as text."""
    for each in providers():
        if each.name != rules.format and each.answers is not None and each.answers.is_response(value):
            what = f"the output is a response of {each.name}, but the request has the format {rules.format}"
            raise _Refused(INVALID, f"{what}: pass --format {each.name} for a client of {each.name}")


def _message_answer(
    answered: _ModelMessage, author: Author, held: FindHeldIds, rules: AnswerRules
) -> StepAnswer:
    def new_ids(given: Sequence[str]) -> list[str]:
        _check_count(len(given), rules)
        return unique_call_ids(given, held)

    parts = answered.answers.parts(answered.message)
    _check_parts(len(parts) if isinstance(parts, list) else 1)
    drafts = answered.answers.draft(answered.message, new_ids)
    for draft in drafts:
        check_draft(draft)
    return _complete_answer(_add_origin(drafts, author), author, answered.usage)


# --- cards


def _card_lines_answer(text: str, author: Author, held: FindHeldIds, rules: AnswerRules) -> StepAnswer:
    _check_parts(sum(1 for line in text.split("\n") if line.strip()))
    drafts = read_cards(text, author)
    _check_count(sum(len(draft.tool_calls or ()) for draft in drafts), rules)
    answer = StepAnswer(cards=[], calls=[])
    for draft in assign_call_ids(drafts, held):
        calls = calls_of(draft)
        answer.cards.extend([draft, *(call_card(call, author) for call in calls)])
        answer.calls.extend(calls)
    return answer


def _add_origin(drafts: Sequence[CardDraft], author: Author) -> list[CardDraft]:
    """Return the cards of one message with ids and `author`. If there are several, they share a group."""
    group = {"source_group": new_card_id()} if len(drafts) > 1 else {}
    own = {**author.metadata, "author_id": author.agent_id, **group}
    return [
        msgspec.structs.replace(draft, metadata={**draft.metadata, **own}, card_id=new_card_id())
        for draft in drafts
    ]


def _complete_answer(
    thoughts: Sequence[CardDraft], author: Author, usage: dict[str, Any] | None
) -> StepAnswer:
    """Return the answer with the thoughts of a message and their calls, or else with a deliverable."""
    calls = [call for thought in thoughts for call in calls_of(thought)]
    if calls:
        cards = [*thoughts, *(call_card(call, author) for call in calls)]
        return StepAnswer(cards=cards, calls=calls, usage=usage)
    text = "\n".join(card_text(each.content) for each in thoughts if each.type == THOUGHT)
    if not text.strip():
        raise _Refused(EMPTY, "the model's message is empty and calls no tool")
    deliverable = draft_card(DELIVERABLE, text, author_id=author.agent_id, metadata=author.metadata)
    return StepAnswer(cards=[*thoughts, deliverable], calls=[], usage=usage)


def result_of(call: ToolCall, author: Author, tool: Tool, ran: CommandOutcome, timeout: float) -> CardDraft:
    """Return the result card of a call. It has the output of the command that ran, or its failure."""
    answer = partial(result_card, call, author, after_execution=tool.after_execution)
    if not ran.succeeded:
        code, message = failure_reason(ran, call, timeout)
        failure = code.replace("command", "tool"), f"{message}\n{ran.stderr[-TAIL:]}".rstrip()
        return answer(failure=failure, status="timeout" if ran.timed_out else "failed")
    if is_too_long(ran.stdout):
        what = f"the output of tool {tool.tool_name!r} is larger than {RESULT_SIZE}"
        return answer(failure=("result_too_long", what))
    try:
        result = _value(ran.stdout)
    except ValueError as exc:
        what = f"the output of tool {tool.tool_name!r} cannot be stored: {exc}"
        return answer(failure=("invalid_result", what))
    return answer(result=result)


def _value(stdout: bytes) -> Any:
    """Read a tool's output as JSON or text. Raises ValueError if it cannot be stored."""
    text = stdout.decode()
    value: Any = text.rstrip("\n")
    with suppress(ValueError):
        value = exact_json.read(text)
    exact_json.check_storable(value)
    return value
