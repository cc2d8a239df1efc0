"""Changes of cards and of boxes' lists: cards that replace others, and units that stay or go together.

Pure. A card never changes: an edited or repaired one is a new card that names the old one in
`metadata.edited_from`. It has no imported original, so that rendering uses its own fields. Calls and results
are paired as in the lint.
"""

import json
from collections.abc import Collection, Container, Iterable, Sequence
from typing import Any, Literal

import msgspec

from cardbox_cli.context import sources
from cardbox_cli.context.messages import is_user, never_a_message
from cardbox_cli.context.parts import (
    arguments_of,
    arguments_text,
    called_function,
    input_of,
    list_of,
    text_at,
)
from cardbox_cli.context.request import RequestEntry
from cardbox_cli.errors import InvalidCard, InvalidInput
from cardbox_cli.model import exact_json
from cardbox_cli.model.boxes import Slot
from cardbox_cli.model.card_types import INSTRUCTION, TOOL_RESULT, card_type
from cardbox_cli.model.cards import (
    SYSTEM_ROLES,
    Card,
    CardDraft,
    card_text,
    check_draft,
    draft_as_card,
    draft_card,
)
from cardbox_cli.model.content import Content, TextContent, ToolResultContent, parse_content
from cardbox_cli.model.ids import new_card_id
from cardbox_cli.model.pairing import exchanges, pair_calls

# --- edited cards


# The key in the metadata of a card that names the card that it replaces.
EDITED_FROM = "edited_from"
# The metadata keys that are not copied: every new card gets its own values for them.
_OWN = frozenset({"type", "role", "author_id", "project_id", "created_at"})


def editable_text(card: Card) -> str:
    """Return the text of a card, or its content as JSON. Raises InvalidCard if its class is unknown."""
    content = card.content
    if isinstance(content, TextContent):
        return content.text
    if content is None or isinstance(content, dict):
        held = "no content" if content is None else f"content of class {content.get('__type__')!r}"
        raise InvalidCard(
            f"card {card.card_id!r} holds {held}, which cbx cannot write",
            hint="add a new card with `cbx card add` instead",
        )
    return msgspec.json.format(exact_json.encode(content).decode(), indent=2)


def edited_content(card: Card, text: str, source: str) -> Content:
    """Parse an edited `text` as content of the card. Raises InvalidInput with `source` and the position."""
    if isinstance(card.content, TextContent):
        return TextContent(text)
    try:
        return parse_content(exact_json.read(text))
    except json.JSONDecodeError as exc:
        raise InvalidInput(f"{source}:{exc.lineno}:{exc.colno}: not JSON: {exc.msg}") from exc
    except InvalidCard as exc:
        raise InvalidCard(f"{source}: {exc.message}", hint=exc.hint) from exc
    except ValueError as exc:
        raise InvalidInput(f"{source}: {exc}") from exc


def edited_card(card: Card, content: Content, *, author_id: str) -> CardDraft:
    """Draft a card with new content that replaces `card`. Raises InvalidCard if it cannot be stored."""
    dropped = _OWN.union(sources.originals(card))
    own = {"type": card.type, "role": card.role, "author_id": author_id, EDITED_FROM: card.card_id}
    draft = CardDraft(
        card_id=new_card_id(),
        content=content,
        metadata={
            **{key: value for key, value in card.metadata.items() if key not in dropped},
            **{key: value for key, value in own.items() if value is not None},
        },
        tool_calls=card.tool_calls,
        tool_call_id=card.tool_call_id,
        ttl_seconds=card.ttl_seconds,
    )
    check_draft(draft)
    return draft


def replace_id(card_ids: Sequence[str], old: str, new: str) -> list[str]:
    return [new if card_id == old else card_id for card_id in card_ids]


# --- the list of a box


ChangeKind = Literal["dropped", "added", "rewritten", "moved"]


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One change of a box's list. `position` is the position of `card_id` in the old box, from 0.

    For an added card, `position` is None. For a rewritten card, `new_card_id` is its replacement. `rule` is
    the lint rule or the strategy that led to the change.
    """

    kind: ChangeKind
    position: int | None
    card_id: str
    new_card_id: str | None = None
    rule: str
    reason: str


class CallPlace(msgspec.Struct, frozen=True, kw_only=True):
    """A place of a list under repair. `origin` is the position in the old box, or None for an added card.
    `draft` is set for a new card. `rule` is the packing rule that added the card."""

    origin: int | None
    slot: Slot
    draft: CardDraft | None = None
    rule: str | None = None

    @property
    def card(self) -> Card | None:
        return self.slot.card if self.slot.state == "present" else None


def places_of(entries: Iterable[RequestEntry]) -> list[CallPlace]:
    return [CallPlace(origin=entry.slot.position, slot=entry.slot, rule=entry.rule) for entry in entries]


def new_place(draft: CardDraft, project_id: str, *, origin: int | None, rule: str | None) -> CallPlace:
    """Return the place of a new card. `origin` is the position of the card that it replaces, if any."""
    card = draft_as_card(draft, project_id)
    return CallPlace(origin=origin, slot=Slot(0, draft.card_id, card, "present"), draft=draft, rule=rule)


def entries_of(places: Sequence[CallPlace], box_id: str) -> list[RequestEntry]:
    return [
        RequestEntry(
            slot=Slot(number, place.slot.card_id, place.slot.card, place.slot.state),
            box_id=box_id,
            rule=place.rule,
        )
        for number, place in enumerate(places)
    ]


def card_ids_of(places: Iterable[CallPlace]) -> list[str]:
    return [place.slot.card_id for place in places]


def drafts_of(places: Iterable[CallPlace]) -> list[CardDraft]:
    return [place.draft for place in places if place.draft is not None]


# --- exchanges


class Exchanges(msgspec.Struct, frozen=True):
    """The pairs of calls and results among places of a list.

    `results` maps the place of a result to the place of its calling card. `open` maps the place of a calling
    card to the indexes of its unanswered calls. `messages` maps places to the cards that may make messages.
    """

    messages: dict[int, Card]
    results: dict[int, int]
    open: dict[int, list[int]]

    def end_of(self, caller: int) -> int:
        """Return the place after the message of the card at `caller` and the results that follow it."""
        group = sources.group(self.messages[caller])
        members, end = {caller}, caller + 1
        later = sorted(place for place in self.messages if place > caller)
        for place in later:
            card = self.messages[place]
            if group is not None and sources.group(card) == group and place not in self.results:
                members.add(place)
            elif self.results.get(place) not in members:
                break
            end = place + 1
        return end


def exchanges_of(places: Sequence[CallPlace]) -> Exchanges:
    messages = _first_messages(places)
    pairing = pair_calls([messages.get(place) for place in range(len(places))])
    results = {place: caller for place, caller in pairing.results.items() if messages[place].tool_call_id}
    unanswered: dict[int, list[str]] = {}
    for place, call_id in pairing.unanswered:
        if call_id:
            unanswered.setdefault(place, []).append(call_id)
    open_calls = {place: _indexes(messages[place], ids) for place, ids in unanswered.items()}
    return Exchanges(messages, results, open_calls)


def _first_messages(places: Sequence[CallPlace]) -> dict[int, Card]:
    messages: dict[int, Card] = {}
    seen: set[str] = set()
    for number, place in enumerate(places):
        card = place.card
        if card is not None and card.card_id not in seen:
            seen.add(card.card_id)
            if never_a_message(card) is None:
                messages[number] = card
    return messages


def _indexes(card: Card, ids: Sequence[str]) -> list[int]:
    """Return the indexes of the calls with these ids. If two calls share an id, the last counts, because a
    result answers the first."""
    left, indexes = list(ids), []
    for index, call in reversed(list(enumerate(list_of(card.tool_calls)))):
        call_id = text_at(call, "id")
        if call_id in left:
            left.remove(call_id)
            indexes.append(index)
    return sorted(indexes)


# --- units of a history


# The beginning of the names of packing rules that make cards of arguments.
_ARGUMENTS = "pack_arguments"


class Unit(msgspec.Struct, frozen=True):
    """Places of a history that are removed together, in order. If `stays`, they are never removed."""

    places: list[int]
    stays: bool


def brought_by_arguments(entries: Iterable[RequestEntry]) -> frozenset[str]:
    """Return the ids of the cards that a recipe made of its arguments."""
    return frozenset(entry.slot.card_id for entry in entries if (entry.rule or "").startswith(_ARGUMENTS))


def units_of(cards: Sequence[Card], keeps: Container[str] = ()) -> list[Unit]:
    """Return the units of a history, oldest first. System text, the last user message and `keeps` stay."""
    asked = next((place for place in reversed(range(len(cards))) if is_user(cards[place])), None)
    stay = {place for place, card in enumerate(cards) if card.role in SYSTEM_ROLES or card.card_id in keeps}
    return [
        Unit(places, any(place == asked or place in stay for place in places))
        for places in _join_exchanges(cards)
    ]


def begins_late(cards: Sequence[Card], gone: set[int]) -> int | None:
    """Return the first place without `gone` and system text if its card is not the user's, else None."""
    left = (place for place in range(len(cards)) if place not in gone)
    first = next((place for place in left if cards[place].role not in SYSTEM_ROLES), None)
    return None if first is None or is_user(cards[first]) else first


def _join_exchanges(cards: Sequence[Card]) -> list[list[int]]:
    """Return the places of each exchange. Exchanges with cards of the same message are joined."""
    joined: list[list[int]] = []
    at: dict[str, int] = {}
    for places in exchanges(cards):
        groups = {mark for place in places if (mark := sources.group(cards[place])) is not None}
        known = next((at[mark] for mark in groups if mark in at), None)
        if known is None:
            known = len(joined)
            joined.append([])
        joined[known] += places
        at.update(dict.fromkeys(groups, known))
    return [sorted(places) for places in joined]


# --- cards that replace others


# The error code of a result that replaces a missing one.
INTERRUPTED = "interrupted"
_NO_RESULT = "The call was interrupted: no result was recorded."
_BEGINNING = "(What was said before is not kept.)"


def rewrite(card: Card, author_id: str, *, content: Content | None = None, **fields: Any) -> CardDraft | None:
    """Draft the card with other fields and without its imported original. Returns None if cbx does not know
    the content's class."""
    new_content = content or card.content
    if new_content is None or isinstance(new_content, dict):
        return None
    return msgspec.structs.replace(edited_card(card, new_content, author_id=author_id), **fields)


def drop_original(card: Card, author_id: str) -> CardDraft | None:
    """Draft the card without its imported original. Returns None if it has none or would be empty then."""
    if not sources.originals(card) or not (card_text(card.content).strip() or card.tool_calls):
        return None
    return rewrite(card, author_id)


def drop_calls(card: Card, calls: Collection[int], author_id: str) -> CardDraft | None:
    """Draft the card without the calls at these indexes. Returns None if the card would be empty."""
    kept = [call for index, call in enumerate(list_of(card.tool_calls)) if index not in calls]
    is_left = kept or card_text(card.content).strip()
    return rewrite(card, author_id, tool_calls=kept or None) if is_left else None


def wrap_arguments(card: Card, author_id: str) -> CardDraft | None:
    """Draft the card with an object as the arguments of every call. Other arguments are wrapped under `_raw`.
    Returns None if all arguments are objects."""
    calls = [_wrap_call_arguments(call) for call in list_of(card.tool_calls)]
    return rewrite(card, author_id, tool_calls=calls) if calls != card.tool_calls else None


def replace_call_id(card: Card, index: int, call_id: str, author_id: str) -> CardDraft | None:
    calls = list(list_of(card.tool_calls))
    calls[index] = {**calls[index], "id": call_id}
    return rewrite(card, author_id, tool_calls=calls)


def set_type_role(card: Card, author_id: str) -> CardDraft | None:
    """Draft the card with the role of its type. Returns None if the card has it already."""
    role = card_type(card.type).role
    draft = rewrite(card, author_id) if card.role != role else None
    if draft is None:
        return None
    return msgspec.structs.replace(draft, metadata={**draft.metadata, "role": role})


def strip_trailing_space(card: Card, author_id: str) -> CardDraft | None:
    """Draft the card without white space at the end of its text. None if that changes or leaves nothing."""
    text = card_text(card.content)
    short = text.rstrip()
    return rewrite(card, author_id, content=TextContent(short)) if short and short != text else None


def interrupted_result(call: Any, author_id: str) -> CardDraft:
    """Draft a result for an unanswered call, with the error that the call was interrupted."""
    error = {"code": INTERRUPTED, "message": _NO_RESULT}
    name = text_at(call.get("function"), "name")
    return draft_card(
        TOOL_RESULT,
        ToolResultContent("failed", "suspend", error=error),
        author_id=author_id,
        metadata={} if name is None else {"function_name": name},
        tool_call_id=call["id"],
    )


def beginning_card(author_id: str) -> CardDraft:
    return draft_card(INSTRUCTION, _BEGINNING, author_id=author_id)


def _wrap_call_arguments(call: Any) -> Any:
    function = called_function(call)
    given = None if function is None else function.get("arguments")
    if function is None or (isinstance(given, str) and given.strip() and arguments_of(given) is not None):
        return call
    return {**call, "function": {**function, "arguments": arguments_text(input_of(given))}}
