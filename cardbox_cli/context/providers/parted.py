"""Messages that are a role and a list of parts, as cards and back, exactly: what such formats share.

A message becomes a card for each stretch of its parts that is of one sort: text and tool calls, a tool's
result, a thought, parts that only this format knows. A card keeps its parts only where its fields cannot
hold them (`context/sources`). What the parts mean stands in the format's own folder, as a value of `Parting`.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from cardbox_cli.context import sources
from cardbox_cli.context.messages import OF_ONE_FORMAT, NoMessage, never_a_message, standard_body
from cardbox_cli.context.other_calls import answered_call, lost_result, result_text
from cardbox_cli.context.parts import is_nothing, is_text, kind, text_part
from cardbox_cli.context.providers.chat import chat_body, failed, unsent_detail, unsent_keys
from cardbox_cli.context.providers.data_urls import file_of
from cardbox_cli.context.providers.provider import AnyCard, Body, Exchanged
from cardbox_cli.context.providers.turns import role_of
from cardbox_cli.context.sources import imported_card, keep, same_json
from cardbox_cli.context.tool_calls import other_calls
from cardbox_cli.model.card_types import ASIDE, INSTRUCTION, REASONING, RENDERED_PROMPT, THOUGHT, TOOL_RESULT
from cardbox_cli.model.cards import Card, CardDraft

Part = Any
# The type of the cards that a stretch of text makes.
_TYPES = {"user": INSTRUCTION, "assistant": THOUGHT, "system": RENDERED_PROMPT}
_SENT_KEYS = ("role", "content", "tool_calls", "tool_call_id")


class Answered(NamedTuple):
    """The call that a tool's result answers: its id, "" where the part has none, and the tool's name."""

    id: str
    name: str = ""


class Parting(msgspec.Struct, frozen=True, kw_only=True):
    """What the parts of a format mean. `name` is the format's, `title` the provider's in sentences.

    `is_thought` tells the parts that hold thinking, `is_plain` those that are what an assistant says.
    `words` is the text of a part as a reader wants it, "" for none; `failed` tells the result of a tool that
    failed. `call` is the tool call in the chat form that a part is, its id "" where it has none, `answered`
    the call that a part is the result of; both are None for any other. `files` are the content parts in the
    chat form that a part with files, or with a refusal, is. `make` gives the parts of a message in the chat
    form, which may be the result of a tool that failed; what it cannot say becomes text. `sends_other` tells
    whether a call that is no function's is more than text, and so is its result, which `other_answer` makes
    of that of a function's. `has_detail`: an image says how closely to look; `names_results`: a result names
    its tool; `has_refusals`: a refusal is no text.

    `is_exact` tells the calls and results that hold nothing but what a card's fields do, so that `make` gives
    them back as they are; of all others this is found out by making them.
    `lost` says what the chat form leaves out of a part that is neither thinking nor known here alone.
    `text` is the text that a part of a role's message is and nothing else, None for any other: such a part is
    what `make` gives of the text alone.
    """

    name: str
    title: str
    is_thought: Callable[[Part], bool]
    is_plain: Callable[[Part], bool]
    words: Callable[[Part], str]
    failed: Callable[[Part], bool] = lambda part: False
    call: Callable[[Part], dict[str, Any] | None]
    answered: Callable[[Part], Answered | None]
    files: Callable[[Part], list[dict[str, Any]]]
    make: Callable[[Body, bool], list[Part]]
    sends_other: Callable[[Any], bool] = lambda _: False
    other_answer: Callable[[Part], Part] = lambda part: part
    has_detail: bool = False
    names_results: bool = False
    has_refusals: bool = False
    is_exact: Callable[[Part], bool] = lambda _: False
    lost: Callable[[Part], Iterable[str]] = lambda _: ()
    text: Callable[[str, Part], str | None] = lambda role, part: None


def text_alone(role: str, part: Part) -> str | None:
    """The text of a part that is an object with no other key than `text`; None where it is blank, too."""
    if type(part) is not dict or len(part) != 1:
        return None
    text = part.get("text")
    return text if type(text) is str and not text.isspace() and text else None


# --- from messages to cards


class _Sorted(NamedTuple):
    """A part, the type of the card that it makes, its text, and the call that it is or answers.

    `is_exact`: the card's fields make just this part of what stands here beside it.
    """

    sort: str
    part: Part
    text: str = ""
    is_exact: bool = False
    call: dict[str, Any] | None = None
    answers: str | None = None


def draft_parts(parting: Parting, role: str, parts: Sequence[Part]) -> list[CardDraft]:
    """The cards that hold a message's parts, one at least."""
    if not parts:
        return [imported_card(_TYPES[role], "", role=role)]
    if len(parts) == 1 and (text := parting.text(role, parts[0])) is not None:
        return [imported_card(_TYPES[role], text, role=role)]
    return [_stretch_card(parting, role, run) for run in _stretches(_sorted(parting, role, parts))]


def _sorted(parting: Parting, role: str, parts: Sequence[Part]) -> Iterator[_Sorted]:
    """The parts by their sorts. A call without an id gets the tool's name for one, and so does its result.

    The nearest call of that name is the one that is answered; of two in one message each has its own.
    """
    times: dict[str, int] = {}

    def identified(call_id: str, name: str) -> str:
        if call_id:
            return call_id
        times[name] = times.get(name, 0) + 1
        return name if times[name] == 1 else f"{name}_{times[name]}"

    for part in parts:
        if (text := parting.text(role, part)) is not None:
            yield _Sorted(_TYPES[role], part, text, is_exact=True)
            continue
        call = parting.call(part) if role == "assistant" else None
        answered = parting.answered(part) if role == "user" else None
        if call is not None:
            name = call.get("function", {}).get("name", "")
            call["id"] = identified(call["id"], name)
            yield _Sorted(THOUGHT, part, is_exact=parting.is_exact(part), call=call)
        elif answered is not None:
            words, is_exact = parting.words(part), parting.is_exact(part)
            yield _Sorted(TOOL_RESULT, part, words, is_exact, answers=identified(*answered))
        elif role != "assistant" or parting.is_plain(part):
            yield _Sorted(_TYPES[role], part, parting.words(part))
        else:
            yield _Sorted(REASONING if parting.is_thought(part) else ASIDE, part, parting.words(part))


def _stretches(parts: Iterable[_Sorted]) -> Iterator[list[_Sorted]]:
    """The parts in order by stretches of one sort; a result and a thought are cards of their own."""
    run: list[_Sorted] = []
    for each in parts:
        if run and (each.sort != run[0].sort or each.sort in (TOOL_RESULT, REASONING)):
            yield run
            run = []
        run.append(each)
    if run:
        yield run


def _stretch_card(parting: Parting, role: str, run: Sequence[_Sorted]) -> CardDraft:
    first, parts = run[0], [each.part for each in run]
    text = first.text if len(run) == 1 else "\n".join(filter(None, (each.text for each in run)))
    card = imported_card(
        first.sort,
        text,
        role="tool" if first.sort == TOOL_RESULT else role,
        tool_calls=[each.call for each in run if each.call is not None] or None,
        tool_call_id=first.answers or None,
    )
    return card if _is_held(parting, card, run) else keep(card, parting.name, source_blocks=parts)


def _is_held(parting: Parting, card: CardDraft, run: Sequence[_Sorted]) -> bool:
    """Whether the card's own fields give its parts back, whose text stands before its calls."""
    if all(each.is_exact for each in run) and not any(each.text for each in run[1:]):
        return True
    if card.type == TOOL_RESULT and parting.names_results:
        return False  # the card does not name the tool
    return same_json(standard_parts(parting, card), [each.part for each in run])


# --- from cards to messages


def own_parts(parting: Parting, card: AnyCard) -> list[Part] | None:
    """The parts that a card keeps of a message in this format; None where it keeps none."""
    parts = card.metadata.get(sources.BLOCKS)
    is_own = card.metadata.get(sources.FORMAT) == parting.name
    return parts if is_own and isinstance(parts, list) else None


def standard_parts(parting: Parting, card: AnyCard) -> list[Part]:
    """The parts that a card's own fields make."""
    if card.type in OF_ONE_FORMAT:
        return []
    body, answered = chat_body(card), answered_call(card)
    if _is_in_words(parting, card, body):
        return parting.make({"role": "user", "content": result_text(body, failed=failed(card))}, False)
    made = parting.make(body, failed(card))
    return made if answered is None else [parting.other_answer(part) for part in made]


def _is_in_words(parting: Parting, card: AnyCard, body: Body) -> bool:
    """Whether it is a result that is sent as text, as its call is: also that of a function without an id."""
    if body["role"] not in ("tool", "function"):
        return False
    answered = answered_call(card)
    is_named = parting.names_results and body["role"] == "tool" and bool(body.get("name"))
    is_old = not body.get("tool_call_id") and not is_named
    return is_old or (answered is not None and not parting.sends_other(answered))


def parts_of(parting: Parting, card: AnyCard) -> list[Part]:
    """What a card is as parts of a message: those that it keeps, or what its fields make."""
    own = own_parts(parting, card)
    return standard_parts(parting, card) if own is None else own


def encode(parting: Parting, card: Card) -> Body | NoMessage:
    """The role and the parts that `card` is, or the reason why it is none."""
    nothing = never_a_message(card)
    if nothing is not None:
        return nothing
    parts = parts_of(parting, card)
    if not parts:
        return NoMessage(f"nothing that {parting.title} would take: empty, or of another format alone")
    return {"role": role_of(card), "content": parts}


def exchanged(parting: Parting, body: Body) -> Exchanged:
    """The calls that a message makes and answers, by their ids."""
    parts = body["content"] if isinstance(body["content"], list) else []
    calls = [call["id"] for part in parts if (call := parting.call(part)) is not None]
    return Exchanged(calls, [answer.id for part in parts if (answer := parting.answered(part)) is not None])


def chat_original(parting: Parting, card: AnyCard) -> Body | None:
    """The chat message of a card that keeps parts of this format; None for another."""
    parts = own_parts(parting, card)
    if parts is None:
        return None
    body = standard_body(card)
    files = [_said(body["role"], parting.files(part)) for part in parts]
    if not any(files):
        return body
    made = [
        each
        for found, part in zip(files, parts, strict=True)
        for each in found or [text_part(words) for words in [parting.words(part)] if words]
    ]
    return {**body, "content": made}


def _said(role: str, parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those content parts that this role can say in the chat form: the user files, the assistant refusals."""
    is_refused = role == "assistant" and any(kind(part) == "refusal" for part in parts)
    return parts if role == "user" or is_refused else []


def kept_failure(parting: Parting, card: AnyCard) -> bool:
    """Whether the parts that a card keeps of this format are the result of a tool that failed."""
    return any(map(parting.failed, own_parts(parting, card) or ()))


# --- what is lost on the way


def lost_in_chat(parting: Parting, card: Card) -> Iterator[str]:
    """What the chat form leaves out of a card that keeps parts of this format."""
    parts = own_parts(parting, card)
    if parts is None:
        return
    if card.type == REASONING:
        yield "thinking is left out"
    elif card.type == ASIDE:
        yield f"parts that only {parting.title} knows are left out"
    else:
        for part in parts:
            yield from parting.lost(part)


def lost_of_chat(parting: Parting, card: Card) -> Iterator[str]:
    """What this format leaves out of a card in the chat form."""
    if own_parts(parting, card) is not None or card.type in OF_ONE_FORMAT:
        return  # sent as it came, or in no chat form
    body = chat_body(card)
    is_result = body["role"] in ("tool", "function")
    # cbx itself names the tools of all results, which their calls do, too.
    is_said = parting.names_results or not (sources.is_named_result(card) and card.tool_call_id)
    known = (*_SENT_KEYS, "name") if is_result and is_said else _SENT_KEYS
    for key, value in body.items():
        if key in ("refusal", "function_call") and value:
            if key != "refusal" or not parting.has_refusals:
                yield f"{key!r} is sent as text"
        elif key not in known and not is_nothing(value):
            yield f"the message's {key!r} is not sent"
    if any(not parting.sends_other(call) for call in other_calls(body.get("tool_calls"))):
        yield "a tool call that is no function's is sent as text"
    if _is_in_words(parting, card, body):
        yield lost_result(card)
    content = body.get("content")
    for part in content if isinstance(content, list) else []:
        yield from _lost_of_part(parting, body["role"], part)


def _lost_of_part(parting: Parting, role: str, part: Any) -> Iterator[str]:
    yield from unsent_keys(part)
    if is_text(part):
        return
    made = parting.make({"role": role, "content": [part]}, False)
    if not any(map(parting.files, made)):
        yield f"a part of type {kind(part)!r} is sent as text"
        return
    file = file_of(part)
    if file is not None and file[2] is not None and file[2] not in str(made):
        yield "the name of a file is not sent"
    if not parting.has_detail:
        yield from unsent_detail(part)
