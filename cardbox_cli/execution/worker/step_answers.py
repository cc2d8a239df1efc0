"""Lines of cards that a command prints, where the worker was told that it prints cards.

Pure. Owns what such a card may be: one of the agent's own types, with a text, data or a call to make. Who
speaks, who wrote it, which id it has and what it belongs to is never the line's to say.
"""

import re
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Literal

import msgspec

from cardbox_cli.context.parts import MalformedAnswer, normalized_calls
from cardbox_cli.context.provider import AnswerReader
from cardbox_cli.errors import InvalidCard
from cardbox_cli.execution.tool_calls import Author, Held, ToolCall, call_card, calls_of, own_ids, result_card
from cardbox_cli.execution.worker.command_output import TAIL, why_failed
from cardbox_cli.execution.worker.command_processes import Ran
from cardbox_cli.limits import ANSWER_PARTS, CALLED_NAME, RESULT_SIZE
from cardbox_cli.model import exact_json
from cardbox_cli.model.card_types import DELIVERABLE, PLAN, THOUGHT
from cardbox_cli.model.cards import (
    CIRCUMSTANCES,
    CardDraft,
    card_text,
    check_draft,
    draft_card,
    draft_from_mapping,
)
from cardbox_cli.model.content import (
    FALLBACK,
    ToolCallContent,
    ToolContent,
    ToolResultContent,
    is_fallback,
)
from cardbox_cli.model.identity import Tool
from cardbox_cli.model.ids import new_card_id
from cardbox_cli.providers.registry import DEFAULT, PROVIDERS, provider_named, providers
from cardbox_cli.settings import MAX_TOOL_CALLS

OWN_TYPES = (THOUGHT, PLAN, DELIVERABLE)

# Metadata that says whose a card is, what it is a message or a layer of, which cards it stands for, or how a
# turn ended.
_NOT_ITS_OWN = CIRCUMSTANCES | {
    *("tool_call_id", "function_name", "layer", "signature", "semantic_type"),
    *("edited_from", "covers", "partial", "stop_reason", "terminal_reason"),
}
_OF_IMPORTS = "source_"


class RefusedCard(ValueError):
    """Which line is no card that a command may print, and why."""


def looks_like_a_card(value: Any) -> bool:
    """Whether somebody may mean it as a card."""
    return isinstance(value, dict) and isinstance(value.get("type"), str) and "content" in value


def read_cards(text: str, author: Author) -> list[CardDraft]:
    """The cards of a text's lines, the ids of their calls as they came. Raises RefusedCard."""
    lines = [line for line in text.split("\n") if line.strip()]
    return [_card(line, author, number) for number, line in enumerate(lines, 1)]


def _card(line: str, author: Author, number: int) -> CardDraft:
    try:
        value = exact_json.read(line.strip())
        if not looks_like_a_card(value):
            raise RefusedCard("it is no object with a type and a content")
        _refuse_others(value)
        return _by(author, draft_from_mapping(value))
    except (InvalidCard, ValueError) as exc:
        raise RefusedCard(f"card {number} of the output: {exc}") from exc


def _refuse_others(value: dict[str, Any]) -> None:
    """Raise RefusedCard for what is not the agent's to write."""
    if value["type"] not in OWN_TYPES:
        own = ", ".join(OWN_TYPES)
        raise RefusedCard(f"a command may not write the type {value['type'][:80]!r}; its own are {own}")
    if value.get("tool_call_id") is not None:
        raise RefusedCard("a command writes no results, so that no card of its has a tool_call_id")
    if value.get("tool_calls") and value["type"] != THOUGHT:
        raise RefusedCard(f"only a card of type {THOUGHT} calls tools")


def _by(author: Author, given: CardDraft) -> CardDraft:
    """The card as the agent's own: a new id, its role, its author, its turn and its step."""
    if isinstance(given.content, ToolContent | ToolCallContent | ToolResultContent):
        raise RefusedCard(f"a card of type {given.type} cannot hold a {type(given.content).__name__}")
    if is_fallback(given.content):
        raise RefusedCard(f"only a worker writes that a turn has no deliverable ({FALLBACK!r})")
    kept = {
        key: value
        for key, value in given.metadata.items()
        if key not in _NOT_ITS_OWN and not key.startswith(_OF_IMPORTS)
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
        metadata={**kept, **author.metadata},
        tool_calls=calls,
    )


def with_own_ids(drafts: Sequence[CardDraft], held: Held) -> list[CardDraft]:
    """The cards with own ids for their calls."""
    ids = iter(own_ids([call.tool_call_id for draft in drafts for call in calls_of(draft)], held))
    return [
        msgspec.structs.replace(draft, tool_calls=[{**call, "id": next(ids)} for call in draft.tool_calls])
        if draft.tool_calls
        else draft
        for draft in drafts
    ]


# What the command of a step printed, as the cards that the step appends to the output box.
#
# Pure. A message of a model (bare, or within a provider's whole response) becomes a thought, with a card for
# each tool call, or with the deliverable where it calls none; anything else is text, and the deliverable.
# Lines
# of cards are cards only where the worker was told so (`card_lines`). Owns how output is read, what is
# refused
# of it, and under which code.


EMPTY, INVALID, PROVIDER = "empty_answer", "invalid_answer", "provider_error"
CUT_OFF, TOO_MANY, TOO_MANY_PARTS = "answer_cut_off", "too_many_calls", "too_many_parts"

# How output is read: as whichever of the next two it is, as a response, as bare text, as lines of cards.
AnswerMode = Literal["auto", "response", "text", "cards"]

# What nobody but a JSON object, or a list of them, begins with; and what a stream of events begins with.
_JSON = re.compile(r'\{\s*(?:["}]|\Z)|\[\s*\{\s*(?:["}]|\Z)')
_STREAM = re.compile(r"(?:event: ?[\w.]+\s+)?data: ?\{")
_BARE = "a client that prints a model's bare text is run with --answers text"


class AnswerRules(msgspec.Struct, frozen=True, kw_only=True):
    """How output is read: its mode, the format of the request, and how many tools one answer may call."""

    mode: AnswerMode = "auto"
    format: str = DEFAULT
    most_calls: int = MAX_TOOL_CALLS.default

    @property
    def is_of_a_provider(self) -> bool:
        """Whether the request is in a provider's format."""
        return self.format in PROVIDERS

    @property
    def responses(self) -> list[AnswerReader]:
        """What knows a whole response: of the format, or of any where the format is no provider's."""
        known = [provider_named(self.format)] if self.is_of_a_provider else providers()
        return [each.answers for each in known if each.answers is not None]


AUTO = AnswerRules()


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What a step adds to its turn: cards in order, and the calls among them that have no result yet.

    `usage` is what the provider counted, under its own names.
    """

    cards: list[CardDraft]
    calls: list[ToolCall]
    usage: dict[str, Any] | None = None


class BadAnswer(msgspec.Struct, frozen=True):
    """Why an output is no answer."""

    error_code: str
    message: str


class _Refused(Exception):
    """With the code and the message of a BadAnswer."""


def read_answer(stdout: bytes, author: Author, held: Held, rules: AnswerRules = AUTO) -> Answer | BadAnswer:
    """The cards that `stdout` is, by `author`; tool-call ids that the project holds are replaced."""
    try:
        answer = _answer(_decoded(stdout), author, held, rules)
        _check_count(len(answer.calls), rules)
        _check_names(answer.calls)
        _check_storable([card.content for card in answer.cards], "cards")  # arguments are texts before
        return answer
    except _Refused as refused:
        return BadAnswer(*refused.args)
    except (MalformedAnswer, RefusedCard) as exc:
        return BadAnswer(INVALID, str(exc))
    except InvalidCard as exc:
        return BadAnswer(INVALID, f"the answer cannot be stored: {exc}")


def _decoded(stdout: bytes) -> str:
    try:
        text = stdout.decode("utf-8-sig").strip()
    except UnicodeDecodeError as exc:
        what = f"the output is no UTF-8: byte {exc.start} is {stdout[exc.start]:#04x}"
        raise _Refused(INVALID, what) from exc
    if not text:
        raise _Refused(EMPTY, "the command printed nothing")
    return text


def _answer(text: str, author: Author, held: Held, rules: AnswerRules) -> Answer:
    if rules.mode == "cards":
        return _of_lines(text, author, held, rules)
    value = None if rules.mode == "text" else _json(text, rules)
    _check_storable(text if value is None else value)
    said = None if value is None else _said(value, rules)
    if said is not None:
        return _of_message(said, author, held, rules)
    if rules.mode == "response":
        what = f"no {_whole(rules)} response and no message of an assistant"
        raise _Refused(INVALID, f"the output is {what}; {_BARE}")
    return _finished(_thoughts([draft_card(THOUGHT, text)], author), author, None)


def _whole(rules: AnswerRules) -> str:
    return f"whole {rules.format}" if rules.is_of_a_provider else "whole"


def _check_storable(value: Any, path: str = "") -> None:
    try:
        exact_json.check_storable(value, path)
    except exact_json.Unstorable as exc:
        raise _Refused(INVALID, f"the answer cannot be stored: {exc.path or 'it'} {exc.what}") from exc


def _check_count(calls: int, rules: AnswerRules) -> None:
    if calls > rules.most_calls:
        what = f"the answer calls {calls} tools, and one may call {rules.most_calls}"
        raise _Refused(TOO_MANY, f"{what}: {MAX_TOOL_CALLS.name} says how many")


def _check_names(calls: Sequence[ToolCall]) -> None:
    for number, call in enumerate(calls, start=1):
        if len(call.tool_name) > CALLED_NAME.value:
            what = f"call {number} names a tool in {len(call.tool_name)} characters"
            raise _Refused(INVALID, f"{what}, and a name has at most {CALLED_NAME.value}")


def _check_parts(parts: int) -> None:
    """Refuse more than anybody says, before anything is made of it: an output may hold a million."""
    if parts > ANSWER_PARTS.value:
        what = f"the answer has {parts} parts, cards or blocks of content"
        raise _Refused(TOO_MANY_PARTS, f"{what}, and one may have {ANSWER_PARTS.value}")


# --- JSON


def _json(text: str, rules: AnswerRules) -> dict[str, Any] | None:
    """The object that a text is; None for other text. What begins as JSON and is none is refused."""
    if _STREAM.match(text):
        what = "the output is a stream of events: ask for a whole response, as with `stream: false`"
        raise _Refused(INVALID, f"{what}; {_BARE}")
    if not _JSON.match(text):
        return None
    try:
        value = exact_json.read(text)
    except ValueError as exc:
        what = "the output begins as JSON and is not one whole value"
        raise _Refused(INVALID, f"{what}: {_why(text, exc)}") from exc
    if isinstance(value, list):
        _refuse_pieces(value, rules)
    return value if isinstance(value, dict) else None


def _refuse_pieces(values: list[Any], rules: AnswerRules) -> None:
    """A list of responses is a stream of pieces, as `streamGenerateContent` of Gemini answers where nobody
    asks for events; an error comes in a list there, too."""
    first = values[0] if values and isinstance(values[0], dict) else {}
    if isinstance(first.get("error"), dict):
        _refuse_error(first, rules)
    if any(each.answers is not None and each.answers.is_response(first) for each in providers()):
        what = "the output is a list of responses, or of pieces of one: ask for one whole response"
        raise _Refused(INVALID, f"{what}; {_BARE}")


def _why(text: str, exc: ValueError) -> str:
    if looks_like_a_card(_first_line(text)):
        return f"{exc}; lines of cards are read with --answers cards"
    return f"{exc}; {_BARE}"


def _first_line(text: str) -> Any:
    try:
        return exact_json.read(text.partition("\n")[0])
    except ValueError:
        return None


# --- messages


class _Said(msgspec.Struct, frozen=True):
    """A message of a model, what makes cards of it, and what the provider counted."""

    message: dict[str, Any]
    answers: AnswerReader
    usage: dict[str, Any] | None = None


def _said(value: dict[str, Any], rules: AnswerRules) -> _Said | None:
    """The message of a model that `value` is or bears."""
    _refuse_error(value, rules)
    for answers in rules.responses:
        if answers.is_response(value):
            return _of_response(value, answers)
    _refuse_other_formats(value, rules)
    if value.get("role") == "assistant" and ("content" in value or "tool_calls" in value):
        return _Said(value, _format_of(value))
    return None


def _of_response(response: dict[str, Any], answers: AnswerReader) -> _Said:
    _refuse_cut_off(response, answers)
    message, usage = answers.unwrap(response), answers.usage(response)
    # Gateways answer in the default format with messages of others.
    own = _format_of(message) if answers is provider_named(DEFAULT).answers else answers
    return _Said(message, own, usage if isinstance(usage, dict) else None)


def _format_of(message: dict[str, Any]) -> AnswerReader:
    """What reads a message: the format that it has marks of, else the default one."""
    others = (each for each in providers() if each.name != DEFAULT)
    formats = [each.answers for each in (*others, provider_named(DEFAULT)) if each.answers is not None]
    return next(each for each in formats if each.is_own(message))


def _refuse_error(value: dict[str, Any], rules: AnswerRules) -> None:
    """Providers answer with an object that has an error, and with exit code 0 when fetched by curl."""
    error = value.get("error")
    message = error.get("message") if isinstance(error, dict) else error if len(value) == 1 else None
    if not isinstance(message, str) or not message:
        message = next(filter(None, _own_errors(value, rules)), None)
    if message is not None:
        raise _Refused(PROVIDER, f"the provider answered with an error: {exact_json.storable_text(message)}")


def _own_errors(value: dict[str, Any], rules: AnswerRules) -> Iterator[str | None]:
    """What a value says went wrong in the way of the format's provider; of any, where it is a response."""
    for answers in rules.responses:
        if rules.is_of_a_provider or answers.is_response(value):
            yield answers.error(value)


def _refuse_cut_off(value: dict[str, Any], answers: AnswerReader) -> None:
    reason = answers.cut_off(value)
    if reason is not None:
        what = f"the provider cut its answer off ({exact_json.storable_text(reason)[:80]})"
        remedy = ": let the model say more, or ask it for less" if reason in answers.limits else ""
        raise _Refused(CUT_OFF, what + remedy)


def _refuse_other_formats(value: dict[str, Any], rules: AnswerRules) -> None:
    """A whole response of another format than was asked for is no text that anybody wants."""
    for each in providers():
        if each.name != rules.format and each.answers is not None and each.answers.is_response(value):
            what = f"the output is a response of {each.name}, and the request was one of {rules.format}"
            raise _Refused(INVALID, f"{what}: a client of {each.name} is run with --format {each.name}")


def _of_message(said: _Said, author: Author, held: Held, rules: AnswerRules) -> Answer:
    """The cards of a message."""

    def new_ids(given: Sequence[str]) -> list[str]:
        _check_count(len(given), rules)
        return own_ids(given, held)

    parts = said.answers.parts(said.message)
    _check_parts(len(parts) if isinstance(parts, list) else 1)
    drafts = said.answers.draft(said.message, new_ids)
    for draft in drafts:
        check_draft(draft)
    return _finished(_thoughts(drafts, author), author, said.usage)


# --- cards


def _of_lines(text: str, author: Author, held: Held, rules: AnswerRules) -> Answer:
    _check_parts(sum(1 for line in text.split("\n") if line.strip()))
    drafts = read_cards(text, author)
    _check_count(sum(len(draft.tool_calls or ()) for draft in drafts), rules)
    return _of_cards(with_own_ids(drafts, held), author)


def _of_cards(drafts: Sequence[CardDraft], author: Author) -> Answer:
    """The cards, each call scheduled behind the thought that makes it."""
    cards: list[CardDraft] = []
    for draft in drafts:
        cards += [draft, *(call_card(call, author) for call in calls_of(draft))]
    return Answer(cards=cards, calls=[call for draft in drafts for call in calls_of(draft)])


# --- both


def _with(draft: CardDraft, **metadata: Any) -> CardDraft:
    return msgspec.structs.replace(draft, metadata={**draft.metadata, **metadata})


def _thoughts(drafts: Sequence[CardDraft], author: Author) -> list[CardDraft]:
    """The cards of one message by `author`, with ids; several are marked as one message."""
    group = {"source_group": new_card_id()} if len(drafts) > 1 else {}
    own = {**author.metadata, "author_id": author.agent_id, **group}
    return [msgspec.structs.replace(_with(draft, **own), card_id=new_card_id()) for draft in drafts]


def _finished(thoughts: Sequence[CardDraft], author: Author, usage: dict[str, Any] | None) -> Answer:
    """The cards of a message with those of its calls, or with the deliverable that its words are."""
    calls = [call for thought in thoughts for call in calls_of(thought)]
    if calls:
        return Answer(
            cards=[*thoughts, *(call_card(call, author) for call in calls)], calls=calls, usage=usage
        )
    text = "\n".join(card_text(each.content) for each in thoughts if each.type == THOUGHT)
    if not text.strip():
        raise _Refused(EMPTY, "the model's message says nothing and calls no tool")
    deliverable = draft_card(DELIVERABLE, text, author_id=author.agent_id, metadata=author.metadata)
    return Answer(cards=[*thoughts, deliverable], calls=[], usage=usage)


# What came of the command of a tool, as the card that answers the call: a result, and nothing else.


def result_of(call: ToolCall, author: Author, tool: Tool, ran: Ran, timeout: float) -> CardDraft:
    """The card that answers a call whose command has run: what it printed, or how it failed."""
    answer = partial(result_card, call, author, after_execution=tool.after_execution)
    if not ran.succeeded:
        code, message = why_failed(ran, call, timeout)
        failure = code.replace("command", "tool"), f"{message}\n{ran.stderr[-TAIL:]}".rstrip()
        return answer(failure=failure, status="timeout" if ran.timed_out else "failed")
    if len(ran.stdout) > RESULT_SIZE.value << 20:
        what = f"what the tool {tool.tool_name!r} printed is larger than {RESULT_SIZE}"
        return answer(failure=("result_too_long", what))
    try:
        result = _value(ran.stdout)
    except ValueError as exc:
        what = f"what the tool {tool.tool_name!r} printed cannot be stored: {exc}"
        return answer(failure=("invalid_result", what))
    return answer(result=result)


def _value(stdout: bytes) -> Any:
    """What a tool printed: JSON if it is that, else text. Raises ValueError for what cannot be stored."""
    text = stdout.decode()
    try:
        value = exact_json.read(text)
    except ValueError:
        value = text.rstrip("\n")
    exact_json.check_storable(value)
    return value
