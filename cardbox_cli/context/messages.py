"""Messages made of cards: which cards make one, their role, and their fields in the chat form.

Pure. The chat form, close to what cards hold, has a role, a string or parts, and tool calls. Every provider
converts it to its own format (`providers/`).
"""

import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, groupby
from typing import TYPE_CHECKING, Any, TypeVar, overload

import msgspec

from cardbox_cli.context import sources
from cardbox_cli.context.sources import FUNCTION_NAME
from cardbox_cli.model import exact_json
from cardbox_cli.model.card_types import CARD_TYPES, TOOL_RESULT, card_type
from cardbox_cli.model.cards import SYSTEM_ROLES, Card, CardDraft, card_text
from cardbox_cli.model.content import FieldsSchemaContent, FileContent, MultiFileContent, TextContent
from cardbox_cli.model.layers import CHECKPOINT

if TYPE_CHECKING:
    from cardbox_cli.context.request import Request


class Message(msgspec.Struct, frozen=True, gc=False):
    """A message of a request, with its layer and its card. Adjacent messages with the same `group` are sent
    as parts of one message."""

    layer: str
    body: dict[str, Any]
    card_id: str | None = None
    group: str | None = None


class NoMessage(msgspec.Struct, frozen=True):
    reason: str


_NEVER = {name: NoMessage(each.reason) for name, each in CARD_TYPES.items() if each.becomes == "nothing"}
# The card types that only their original format sends, and the reason why other formats leave them out.
OF_ONE_FORMAT = {
    name: NoMessage(each.reason) for name, each in CARD_TYPES.items() if each.becomes == "own-format"
}
NOT_IN_CHAT = {**_NEVER, **OF_ONE_FORMAT}


def never_a_message(card: Card | CardDraft) -> NoMessage | None:
    """Return the reason why no format makes a message of a card. Returns None for other cards."""
    return _NEVER.get(card.type)


def is_user(card: Card | CardDraft) -> bool:
    """Return whether the user wrote the card; tool results do not count."""
    return card.role == "user" and card.type != TOOL_RESULT


def standard_body(card: Card | CardDraft) -> dict[str, Any]:
    """Return the message in the chat form that the card's own fields make."""
    if card.type == TOOL_RESULT:
        body = {"role": "tool", "tool_call_id": card.tool_call_id, "content": card_text(card.content)}
        name = card.metadata.get(FUNCTION_NAME)
        return {**body, "name": name} if isinstance(name, str) else body
    content = card.content.text if type(card.content) is TextContent else _content_of(card)
    if card.tool_calls:
        return {"role": "assistant", "content": content or None, "tool_calls": card.tool_calls}
    return {"role": card.role or "user", "content": content}


def _content_of(card: Card | CardDraft) -> str | list[dict[str, Any]]:
    content = card.content
    if isinstance(content, MultiFileContent):
        return [_file_part(file) for file in content.files]
    if isinstance(content, FileContent):
        return [_file_part(content)]
    if isinstance(content, FieldsSchemaContent):
        lines = [f"- {field.name}: {field.description}".rstrip(": ") for field in content.fields]
        return "\n".join(["The result must contain these fields:", *lines])
    return card_text(content)


def _file_part(file: FileContent) -> dict[str, Any]:
    kind = type(file).__name__
    if kind == "ImageFileContent":
        return {"type": "image_url", "image_url": {"url": file.uri}}
    return {"type": "text", "text": f"[{kind.removesuffix('Content')}: {file.uri}]"}


# --- the messages of a long history, held small


# The number of messages that are compressed together. Smaller packs compress worse, larger ones read slower.
PACK_SIZE = 100
# zlib's fastest level: messages take a fifth of their size.
_LEVEL = 1


class PackedMessages(Sequence[Message]):
    """A compressed list of messages. Each read returns equal, but new objects. The last messages added (at
    most PACK_SIZE) are not compressed. Messages passed to `surround` are not compressed either."""

    def __init__(self) -> None:
        self._before: Sequence[Message] = ()
        self._packed: list[bytes] = []
        self._last: list[Message] = []
        self._behind: Sequence[Message] = ()

    def add(self, message: Message) -> None:
        if len(self._last) == PACK_SIZE:
            self._packed.append(_pack(self._last))
            self._last = []
        self._last.append(message)

    def surround(self, before: Sequence[Message], behind: Sequence[Message]) -> "PackedMessages":
        around = PackedMessages()
        around._before, around._behind = before, behind
        around._packed, around._last = self._packed, self._last
        return around

    def __len__(self) -> int:
        packed = len(self._packed) * PACK_SIZE
        return len(self._before) + packed + len(self._last) + len(self._behind)

    def __iter__(self) -> Iterator[Message]:
        unpacked = chain.from_iterable(map(_unpack, self._packed))
        return chain(self._before, unpacked, self._last, self._behind)

    @overload
    def __getitem__(self, place: int) -> Message: ...

    @overload
    def __getitem__(self, place: slice) -> Sequence[Message]: ...

    def __getitem__(self, place: int | slice) -> Message | Sequence[Message]:
        if isinstance(place, slice):
            return list(self)[place]
        at = range(len(self))[place] - len(self._before)
        if at < 0:
            return self._before[at]
        chunk, at_in_chunk = divmod(at, PACK_SIZE)
        if chunk < len(self._packed):
            return _unpack(self._packed[chunk])[at_in_chunk]
        at -= len(self._packed) * PACK_SIZE
        return self._last[at] if at < len(self._last) else self._behind[at - len(self._last)]


def _pack(messages: Sequence[Message]) -> bytes:
    fields = [(each.layer, each.body, each.card_id, each.group) for each in messages]
    return zlib.compress(exact_json.encode(fields), _LEVEL)


def _unpack(packed: bytes) -> list[Message]:
    return [Message(*fields) for fields in exact_json.decode(zlib.decompress(packed))]


# --- formats that keep system text apart and join neighbours of one role


def role_of(card: Card | CardDraft) -> str:
    """Return the role of a card's message: system, assistant or user. Tool results have the role user."""
    if card.role in SYSTEM_ROLES:
        return "system"
    return "assistant" if card.role == "assistant" else "user"


def gather(cards: Iterable[Card], begins: Callable[[Card], bool]) -> Iterator[list[Card]]:
    """Yield lists of cards that make one message: adjacent cards with the same group and role. A card for
    which `begins` returns true always begins a new message."""

    def are_one(before: Card, card: Card) -> bool:
        group = sources.group(card)
        is_same = group is not None and group == sources.group(before) and role_of(card) == role_of(before)
        return is_same and not begins(card)

    return neighbours(cards, are_one)


_Item = TypeVar("_Item")


def neighbours(items: Iterable[_Item], are_one: Callable[[_Item, _Item], bool]) -> Iterator[list[_Item]]:
    """Yield runs of adjacent items. An item continues the run if `are_one(previous, item)` returns true."""
    run: list[_Item] = []
    for item in items:
        if run and not are_one(run[-1], item):
            yield run
            run = []
        run.append(item)
    if run:
        yield run


def demote_late_layers(messages: Iterable[Message]) -> Iterator[Message]:
    """Yield the messages. Layers after the history with the role system get the role user."""
    is_behind = False
    for message in messages:
        is_behind = is_behind or message.layer == CHECKPOINT
        if is_behind and message.layer != CHECKPOINT and message.body["role"] == "system":
            message = msgspec.structs.replace(message, body={**message.body, "role": "user"})
        yield message


def moved_texts(request: "Request", moved: Iterable[Message]) -> Iterator[tuple[str | None, str]]:
    """Yield a loss for each system message in `moved`, which is sent at the top. Skips `is_late` types."""
    for message in moved:
        place = request.places.get(message.card_id or "")
        card = None if place is None else place.slot.card
        if card is None or not card_type(card.type).is_late:
            yield message.card_id, "system text within the history is moved to the top"


def runs(messages: Iterable[Message]) -> Iterator[list[Message]]:
    """Yield runs of adjacent messages with one role, which become one message. System texts stay separate."""
    for role, run in groupby(messages, key=lambda message: message.body["role"]):
        together = list(run)
        yield from ([message] for message in together) if role == "system" else [together]
