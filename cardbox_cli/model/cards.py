"""Cards: the immutable facts that contexts are made of, as values.

`Card` is what a store reads, `CardDraft` what it is asked to write. Owns the plain text of a card.
What its type decides stands in `card_types`; does no I/O and knows no message format.
"""

from collections.abc import Callable, Mapping
from datetime import datetime
from decimal import Decimal
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec

from cardbox_cli.errors import InvalidCard
from cardbox_cli.model import card_types, exact_json
from cardbox_cli.model.content import (
    Content,
    FieldsSchemaContent,
    JsonContent,
    StoredContent,
    TextContent,
    ToolResultContent,
    parse_content,
)
from cardbox_cli.model.ids import new_card_id

# The agent that a person at a command line is: the author of their cards, the parent of what they pack.
OPERATOR = "sys.operator"
IMPORTER = "cbx.import"

# The roles that some provider knows, and those of them that instruct the model.
ROLES = ("system", "user", "assistant", "tool", "developer", "function")
SYSTEM_ROLES = ("system", "developer")

# What a reader gets is any name. The known ones are decoded to one string each, which takes no memory of its
# own and is found sooner than ten thousand copies; other names are decoded with more patience.
if TYPE_CHECKING:
    TypeName: TypeAlias = str
    RoleName: TypeAlias = str
else:
    TypeName = Literal[tuple(card_types.CARD_TYPES)]
    RoleName = Literal[ROLES]

# Metadata that the digest of a box leaves out: when and on whose behalf a card was written, not what it says.
CIRCUMSTANCES = frozenset(
    {
        "type",
        "role",
        "author_id",
        "project_id",
        "created_at",
        "agent_turn_id",
        "step_id",
        "parent_step_id",
        "trace_id",
    }
)


class Card(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A stored card. `metadata` is the whole stored object; type, role and author_id are read from it.

    Times are UTC. `content` is a dict when its class is unknown to cbx, and None only in foreign rows.
    Cards, and what boxes and requests hold of them, come by the ten thousand and are in no cycle: Python's
    garbage collector need not walk them (`gc=False`).
    """

    card_id: str
    project_id: str
    type: TypeName
    role: RoleName | None
    author_id: str | None
    content: StoredContent
    tool_calls: Any
    tool_call_id: str | None
    ttl_seconds: int | None
    metadata: dict[str, Any]
    created_at: datetime | None
    expires_at: datetime | None
    deleted_at: datetime | None


_decoder = msgspec.json.Decoder(Card, float_hook=exact_json.exact_number)


def decode_card(row: str | bytes) -> Card:
    """The card that a row's JSON projection (query `card_json`) is."""
    try:
        return _decoder.decode(row)
    except exact_json.ODD:
        return _decode_patiently(row)


def _decode_patiently(row: str | bytes) -> Card:
    """Decode what the fast way does not: an unknown type, role or content, odd JSON."""
    values = exact_json.decode_stored(row)
    moments = msgspec.convert(values, _Moments)
    return Card(**{**values, "content": _content_of(values), **msgspec.structs.asdict(moments)})


class _Moments(msgspec.Struct):
    created_at: datetime | None
    expires_at: datetime | None
    deleted_at: datetime | None


class _Holder(msgspec.Struct):
    content: StoredContent


def _content_of(values: dict[str, Any]) -> StoredContent:
    """The content of a row; an object of no known class as it stands, and what is no object within one."""
    try:
        return msgspec.convert(values, _Holder).content
    except msgspec.ValidationError:
        stored = values["content"]
        return stored if isinstance(stored, dict) else {"__type__": None, "data": stored}


class CardDraft(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A card to be written. The store adds project_id and created_at to `metadata`.

    `created_at` is when its original was written, aware, where that is known: among many cards that are
    written together it is theirs then. None, and whatever lies ahead, is the time of the writing.
    `metadata` must not repeat what has its own argument in `draft_card`.
    """

    card_id: str
    content: Content
    metadata: dict[str, Any]
    tool_calls: list[Any] | None = None
    tool_call_id: str | None = None
    ttl_seconds: int | None = None
    created_at: datetime | None = None

    @property
    def type(self) -> str:
        """`metadata.type`."""
        return str(self.metadata["type"])

    @property
    def role(self) -> str | None:
        """`metadata.role`."""
        role = self.metadata.get("role")
        return role if isinstance(role, str) else None


def draft_card(
    card_type: str,
    content: Content | str,
    *,
    role: str | None = None,
    author_id: str | None = None,
    card_id: str | None = None,
    metadata: Mapping[str, Any] | None = None,
    tool_calls: list[Any] | None = None,
    tool_call_id: str | None = None,
    ttl_seconds: int | None = None,
) -> CardDraft:
    """A card to be written; a string becomes `TextContent`, the role defaults to the type's (else user).

    Raises InvalidCard naming the card when a part of it cannot be stored.
    """
    if not card_type.strip():
        raise InvalidCard("a card needs a type that is not empty", hint="for example --type task.instruction")
    named = {"type": card_type, "role": role or card_types.card_type(card_type).role, "author_id": author_id}
    draft = CardDraft(
        card_id=new_card_id() if card_id is None else card_id,
        content=TextContent(content) if isinstance(content, str) else content,
        metadata={**(metadata or {}), **{key: value for key, value in named.items() if value is not None}},
        tool_calls=tool_calls,
        tool_call_id=tool_call_id,
        ttl_seconds=ttl_seconds,
    )
    check_draft(draft)
    return draft


def written_by(draft: CardDraft, turn: Mapping[str, str]) -> CardDraft:
    """The draft as a card of a turn, whatever it says of itself: `turn` is the metadata that names it."""
    return msgspec.structs.replace(draft, metadata={**draft.metadata, **turn}) if turn else draft


_CARD_KEYS = frozenset(Card.__struct_fields__)
# What the database alone decides, so that a card that was shown can be added again.
_GIVEN_BY_THE_STORE = frozenset({"project_id", "created_at", "expires_at", "deleted_at"})


def draft_from_mapping(data: Any) -> CardDraft:
    """The draft that a card's JSON is, in the shape that `cbx card show -o json` prints.

    Raises InvalidCard for an unknown key, and for the old name `meta`.
    """
    if not isinstance(data, dict):
        raise InvalidCard("a card must be a JSON object")
    _refuse_unknown_keys(data)
    metadata = data.get("metadata") or {}
    if not isinstance(metadata, dict):
        raise InvalidCard("metadata must be an object")
    card_type = data.get("type") or metadata.get("type")
    if not isinstance(card_type, str):
        raise InvalidCard("a card needs a type", hint='for example {"type": "task.instruction", …}')
    try:
        given = {key: data[key] for key in _OptionalParts.__struct_fields__ if data.get(key) is not None}
        parts = msgspec.convert(given, _OptionalParts)
    except msgspec.ValidationError as exc:
        raise InvalidCard(f"the card is invalid: {exc}") from exc
    return draft_card(
        card_type,
        parse_content(data.get("content")),
        role=parts.role or metadata.get("role"),
        author_id=parts.author_id or metadata.get("author_id"),
        card_id=parts.card_id,
        metadata={key: value for key, value in metadata.items() if key not in ("project_id", "created_at")},
        tool_calls=parts.tool_calls,
        tool_call_id=parts.tool_call_id,
        ttl_seconds=parts.ttl_seconds,
    )


class _OptionalParts(msgspec.Struct):
    card_id: str | None = None
    role: str | None = None
    author_id: str | None = None
    tool_calls: list[Any] | None = None
    tool_call_id: str | None = None
    ttl_seconds: int | None = None


def _refuse_unknown_keys(data: dict[str, Any]) -> None:
    if "meta" in data:
        raise InvalidCard("the key 'meta' is the old name of 'metadata'", hint="rename it to 'metadata'")
    unknown = sorted(data.keys() - _CARD_KEYS)
    if unknown:
        raise InvalidCard(
            f"a card has no key {unknown[0]!r}",
            hint=f"a card's keys are {', '.join(sorted(_CARD_KEYS - _GIVEN_BY_THE_STORE))}",
        )


def card_of(draft: CardDraft, project_id: str) -> Card:
    """A draft as the card that it would become, without the times that the store decides."""
    metadata = draft.metadata
    return Card(
        card_id=draft.card_id,
        project_id=project_id,
        type=draft.type,
        role=draft.role,
        author_id=metadata.get("author_id"),
        content=draft.content,
        tool_calls=draft.tool_calls,
        tool_call_id=draft.tool_call_id,
        ttl_seconds=draft.ttl_seconds,
        metadata={**metadata, "project_id": project_id},
        created_at=draft.created_at,
        expires_at=None,
        deleted_at=None,
    )


def shown_draft(draft: CardDraft, project_id: str) -> dict[str, Any]:
    """A draft in the shape of the card that it would become, with null for what the store decides."""
    given = {name: getattr(draft, name) for name in CardDraft.__struct_fields__}
    described = {"project_id": project_id, "type": draft.type, "role": draft.role}
    values = {**given, **described, "author_id": draft.metadata.get("author_id")}
    return {name: values.get(name) for name in Card.__struct_fields__}


def check_draft(draft: CardDraft) -> None:
    """Raise InvalidCard, naming the card and the place, for what the database could not hold."""
    if not draft.card_id or len(draft.card_id) > 255:
        raise InvalidCard(f"the card id {draft.card_id[:40]!r} must have 1 to 255 characters")
    if draft.ttl_seconds is not None and not 0 <= draft.ttl_seconds <= 2**31 - 1:
        raise InvalidCard(f"card {draft.card_id!r}: ttl_seconds is {draft.ttl_seconds}, not 0 to 2147483647")
    content = draft.content
    if type(content) is TextContent and exact_json.is_simple(
        [draft.card_id, content.text, draft.metadata, draft.tool_calls, draft.tool_call_id]
    ):
        return
    try:
        exact_json.check_storable(draft.card_id, "card_id")
        exact_json.check_storable(draft.content, "content")
        exact_json.check_storable(draft.metadata, "metadata")
        exact_json.check_storable(draft.tool_calls, "tool_calls")
        exact_json.check_storable(draft.tool_call_id, "tool_call_id")
    except exact_json.Unstorable as exc:
        raise InvalidCard(
            f"card {draft.card_id!r}: {exc}", hint="remove or replace that value; nothing was written"
        ) from exc


def card_text(content: StoredContent) -> str:
    """What a content says, as plain text: the text itself, else its JSON without the class name."""
    text_of = _TEXT_OF.get(type(content), _json_text)
    return text_of(content)


def _json_text(content: Any) -> str:
    plain = msgspec.to_builtins(content, builtin_types=(Decimal,))
    return exact_json.encode({key: value for key, value in plain.items() if key != "__type__"}).decode()


def tool_result_text(content: ToolResultContent) -> str:
    """What a model reads of a tool's answer: the result, or on failure the error and the result if any."""
    result = content.result
    if content.status != "success":
        failure = {"error": content.error, "result": result}
        return exact_json.encode(failure if _is_given(result) else {"error": content.error}).decode()
    if isinstance(result, str):
        return result
    return exact_json.encode(result).decode() if _is_given(result) else ""


def _is_given(result: Any) -> bool:
    return result is not None and result is not msgspec.UNSET


# What each class says. Asked for by class, because `isinstance` takes long to say no of a class of msgspec's.
_TEXT_OF: dict[type, Callable[[Any], str]] = {
    TextContent: attrgetter("text"),
    JsonContent: lambda content: exact_json.encode(content.data).decode(),
    FieldsSchemaContent: lambda content: exact_json.encode(content.fields).decode(),
    ToolResultContent: tool_result_text,
    type(None): lambda _: "",
}
