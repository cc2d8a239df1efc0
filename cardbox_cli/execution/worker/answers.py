"""What the command of a step printed, as the cards that the step appends to the output box.

Pure. A message of a model (bare, or within a provider's whole response) becomes a thought, with a card for
each tool call, or with the deliverable where it calls none; lines of cards are those cards; anything else is
text, and the deliverable. Owns what is refused of it, and under which code.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from cardbox_cli.context.providers.registry import DEFAULT, provider_named, providers
from cardbox_cli.context.tool_calls import MalformedAnswer, normalized_calls
from cardbox_cli.errors import InvalidCard
from cardbox_cli.execution.tool_calls import (
    Author,
    Held,
    ToolCall,
    call_card,
    calls_of,
    own_ids,
)
from cardbox_cli.model import exact_json
from cardbox_cli.model.card_types import DELIVERABLE, THOUGHT, TOOL_CALL, TOOL_RESULT
from cardbox_cli.model.cards import CardDraft, card_text, draft_card, draft_from_mapping
from cardbox_cli.model.ids import new_card_id

EMPTY, INVALID, PROVIDER = "empty_answer", "invalid_answer", "provider_error"


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


def read_answer(stdout: bytes, author: Author, held: Held) -> Answer | BadAnswer:
    """The cards that `stdout` is, by `author`; tool-call ids that the project holds are replaced."""
    try:
        return _answer(_decoded(stdout), author, held)
    except _Refused as refused:
        return BadAnswer(*refused.args)
    except MalformedAnswer as exc:
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


def _answer(text: str, author: Author, held: Held) -> Answer:
    value = _json(text)
    _check_storable(text if value is msgspec.UNSET else value)
    if isinstance(value, dict):
        _refuse_error(value)
        usage = value.get("usage")
        message = _message(value)
        if message is not None:
            return _of_message(message, author, held, usage if isinstance(usage, dict) else None)
    lines = [value] if _is_card(value) else _card_lines(text)
    if lines is not None:
        return _from_cards(lines, author, held)
    return _finished(_thoughts([draft_card(THOUGHT, text)], author), author, None)


def _check_storable(value: Any) -> None:
    try:
        exact_json.check_storable(value)
    except exact_json.Unstorable as exc:
        raise _Refused(INVALID, f"the answer cannot be stored: {exc.path or 'it'} {exc.what}") from exc


def _json(text: str) -> Any:
    """The JSON value that a text is; UNSET for other text."""
    try:
        return exact_json.read(text) if text[0] in "{[" else msgspec.UNSET
    except ValueError:
        return msgspec.UNSET


# --- messages


def _refuse_error(value: dict[str, Any]) -> None:
    """Providers answer with an object that has an error, and with exit code 0 when fetched by curl."""
    error = value.get("error")
    message = error.get("message") if isinstance(error, dict) else error if len(value) == 1 else None
    if isinstance(message, str) and message:
        raise _Refused(PROVIDER, f"the provider answered with an error: {exact_json.storable_text(message)}")


def _message(value: dict[str, Any]) -> dict[str, Any] | None:
    """The message of a model that `value` is or bears."""
    for each in providers():
        message = None if each.answers is None else each.answers.unwrap(value)
        if message is not None:
            return message
    is_message = value.get("role") == "assistant" and not _is_card(value)
    return value if is_message and ("content" in value or "tool_calls" in value) else None


def _of_message(message: dict[str, Any], author: Author, held: Held, usage: dict[str, Any] | None) -> Answer:
    """The cards of a message, in the format that it has marks of; else in the default one."""
    others = (each for each in providers() if each.name != DEFAULT)
    formats = [each.answers for each in (*others, provider_named(DEFAULT)) if each.answers is not None]
    own = next(each for each in formats if each.is_own(message))
    drafts = own.draft(message, lambda given: own_ids(given, held))
    return _finished(_thoughts(drafts, author), author, usage)


# --- cards


def _is_card(value: Any) -> bool:
    """Whether it is meant as a card: a type, and a content that is no message's."""
    return (
        isinstance(value, dict)
        and isinstance(value.get("type"), str)
        and "content" in value
        and (value.get("role") != "assistant" or isinstance(value["content"], dict))
    )


def _card_lines(text: str) -> list[dict[str, Any]] | None:
    """The cards that lines are; None where one of them is none."""
    values = []
    for line in text.split("\n"):
        if line.strip():
            value = _json(line.strip())
            if not _is_card(value):
                return None
            values.append(value)
    return values


def _from_cards(values: Sequence[dict[str, Any]], author: Author, held: Held) -> Answer:
    drafts = [_by(author, _card(value, number)) for number, value in enumerate(values, 1)]
    drafts = _with_own_ids(drafts, held)
    scheduled = {draft.tool_call_id for draft in drafts if draft.type == TOOL_CALL}
    answered = {draft.tool_call_id for draft in drafts if draft.type == TOOL_RESULT}
    cards: list[CardDraft] = []
    for draft in drafts:
        calls = calls_of(draft)
        cards += [draft, *(call_card(call, author) for call in calls if call.tool_call_id not in scheduled)]
    calls = [call for draft in drafts for call in calls_of(draft) if call.tool_call_id not in answered]
    return Answer(cards=cards, calls=calls)


def _card(value: dict[str, Any], number: int) -> CardDraft:
    try:
        draft = draft_from_mapping(value)
        if draft.tool_calls is None:
            return draft
        return msgspec.structs.replace(draft, tool_calls=normalized_calls(draft.tool_calls))
    except (InvalidCard, MalformedAnswer) as exc:
        raise _Refused(INVALID, f"card {number} of the output: {exc}") from exc


def _with_own_ids(drafts: Sequence[CardDraft], held: Held) -> list[CardDraft]:
    """The cards with own ids for their calls; calls and results that follow a thought go with it."""
    given = [call.tool_call_id for draft in drafts for call in calls_of(draft)]
    ids = iter(own_ids(given, held))
    now: dict[str, str] = {}
    renamed = []
    for draft in drafts:
        if draft.tool_calls:
            calls = [{**call, "id": next(ids)} for call in draft.tool_calls]
            now |= {old["id"]: new["id"] for old, new in zip(draft.tool_calls, calls, strict=True)}
            draft = msgspec.structs.replace(draft, tool_calls=calls)
        if draft.tool_call_id in now:
            draft = _answering(draft, now[draft.tool_call_id])
        renamed.append(draft)
    return renamed


def _answering(draft: CardDraft, call_id: str) -> CardDraft:
    named = {"tool_call_id": call_id} if "tool_call_id" in draft.metadata else {}
    return msgspec.structs.replace(draft, tool_call_id=call_id, metadata={**draft.metadata, **named})


# --- both


def _by(author: Author, draft: CardDraft) -> CardDraft:
    """A card that the command made: its author, unless it names one, the turn and the step."""
    return _with(draft, **{"author_id": author.agent_id, **draft.metadata, **author.metadata})


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
