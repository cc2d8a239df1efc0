"""Cards: the immutable facts of contexts, as values, and their plain text.

A store reads a `Card` and writes a `CardDraft`. `card_types` has the rules by type.
"""

from collections.abc import Callable, Mapping
from datetime import datetime
from decimal import Decimal
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

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

# The agent id that cbx records for a person at a command line.
OPERATOR = "sys.operator"
IMPORTER = "cbx.import"

# The roles of all providers, and the roles that instruct the model.
ROLES = ("system", "user", "assistant", "tool", "developer", "function")
SYSTEM_ROLES = ("system", "developer")

# Rows may have any type or role. The decoder shares one string for each known name, which is fast and saves
# memory. `_decode_slowly` decodes rows with other names.
if TYPE_CHECKING:
    TypeName: TypeAlias = str
    RoleName: TypeAlias = str
else:
    TypeName = Literal[tuple(card_types.CARD_TYPES)]
    RoleName = Literal[ROLES]

# Metadata that the digest of a box ignores, because it describes how a card was written, not what it means.
IGNORED_METADATA = frozenset(
    {"type", "role", "author_id", "project_id", "created_at"}
    | {"agent_turn_id", "step_id", "parent_step_id", "trace_id"}
)


class Card(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A stored card. `type`, `role` and `author_id` are copies of values in `metadata`, the stored object.

    Times are UTC. `content` is a dict if cbx does not know its class, and None only in rows of other
    programs. Cards are numerous and never part of a reference cycle, so the garbage collector skips them
    (`gc=False`).
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


_decoder = msgspec.json.Decoder(Card, float_hook=exact_json.parse_number)


def decode_card(row: str | bytes) -> Card:
    """Decode the JSON projection of a row (query `card_json`)."""
    try:
        return _decoder.decode(row)
    except exact_json.DECODE_ERRORS:
        return _decode_slowly(row)


def _decode_slowly(row: str | bytes) -> Card:
    """Decode a row that the fast path refuses, for an unknown type, role or content, or unusual JSON."""
    values = exact_json.decode_stored(row)
    moments = msgspec.convert(values, _Times)
    return Card(**{**values, "content": _content_of(values), **msgspec.structs.asdict(moments)})


class _Times(msgspec.Struct):
    created_at: datetime | None
    expires_at: datetime | None
    deleted_at: datetime | None


def _content_of(values: dict[str, Any]) -> StoredContent:
    """Return the content of a row. An object of an unknown class stays a dict. Other JSON is put into one."""
    try:
        return cast(StoredContent, msgspec.convert(values["content"], StoredContent))
    except msgspec.ValidationError:
        stored = values["content"]
        return stored if isinstance(stored, dict) else {"__type__": None, "data": stored}


class CardDraft(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A card to be written. The store adds project_id and created_at to `metadata`.

    If the card is imported, `created_at` is the time (with time zone) at which the original was written. Only
    bulk writes use it. They replace None and future times by the time of the write. `metadata` must not
    repeat arguments of `draft_card`.
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
        return str(self.metadata["type"])

    @property
    def role(self) -> str | None:
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
    """Return a card to be written. A string becomes `TextContent`. The type determines the default role.

    Raises InvalidCard, which names the card, if the database cannot store a value.
    """
    if not card_type.strip():
        raise InvalidCard("a card needs a non-empty type", hint="for example --type task.instruction")
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


def attribute_to_turn(draft: CardDraft, turn: Mapping[str, str]) -> CardDraft:
    """Return the draft with `turn`, the metadata of the turn that writes it. `turn` overrides equal keys."""
    return msgspec.structs.replace(draft, metadata={**draft.metadata, **turn}) if turn else draft


_CARD_KEYS = frozenset(Card.__struct_fields__)
# Keys that only the store sets. Input may have them, so that the output of `card show` can be added again.
_SET_BY_STORE = frozenset({"project_id", "created_at", "expires_at", "deleted_at"})


def draft_from_mapping(data: Any) -> CardDraft:
    """Convert the JSON of a card, as `cbx card show -o json` prints it, to a draft. Raises InvalidCard."""
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
        values = {key: data[key] for key in _OptionalParts.__struct_fields__ if data.get(key) is not None}
        parts = msgspec.convert(values, _OptionalParts)
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
            hint=f"a card's keys are {', '.join(sorted(_CARD_KEYS - _SET_BY_STORE))}",
        )


def draft_as_card(draft: CardDraft, project_id: str) -> Card:
    """Return the card that a draft would become, without times that the store sets."""
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


def draft_as_json(draft: CardDraft, project_id: str) -> dict[str, Any]:
    """Return a draft in the JSON form of its card, with null for values that the store sets."""
    parts = {name: getattr(draft, name) for name in CardDraft.__struct_fields__}
    described = {"project_id": project_id, "type": draft.type, "role": draft.role}
    values = {**parts, **described, "author_id": draft.metadata.get("author_id")}
    return {name: values.get(name) for name in Card.__struct_fields__}


def check_draft(draft: CardDraft) -> None:
    """Raise InvalidCard, with the card's id and the path, if the database cannot store a value."""
    if not draft.card_id or len(draft.card_id) > 255:
        raise InvalidCard(f"the card id {draft.card_id[:40]!r} must have 1 to 255 characters")
    if draft.ttl_seconds is not None and not 0 <= draft.ttl_seconds <= 2**31 - 1:
        seconds = draft.ttl_seconds
        raise InvalidCard(f"card {draft.card_id!r}: ttl_seconds is {seconds}; it must be 0 to 2147483647")
    content = draft.content
    if type(content) is TextContent and exact_json.is_simple(
        [draft.card_id, content.text, draft.metadata, draft.tool_calls, draft.tool_call_id]
    ):
        return
    try:
        for name in ("card_id", "content", "metadata", "tool_calls", "tool_call_id"):
            exact_json.check_storable(getattr(draft, name), name)
    except exact_json.Unstorable as exc:
        raise InvalidCard(
            f"card {draft.card_id!r}: {exc}", hint="remove or replace that value; nothing was written"
        ) from exc


def card_text(content: StoredContent) -> str:
    """Return the text of a content, or else its JSON without the class name."""
    return _TEXT_OF.get(type(content), _json_text)(content)


def _json_text(content: Any) -> str:
    plain = msgspec.to_builtins(content, builtin_types=(Decimal,))
    return exact_json.encode({key: value for key, value in plain.items() if key != "__type__"}).decode()


def tool_result_text(content: ToolResultContent) -> str:
    """Return the text of a tool result for a model. After a failure, it has the error and any result."""
    result = content.result
    if content.status != "success":
        failure = {"error": content.error, "result": result}
        return exact_json.encode(failure if _is_given(result) else {"error": content.error}).decode()
    if isinstance(result, str):
        return result
    return exact_json.encode(result).decode() if _is_given(result) else ""


def _is_given(result: Any) -> bool:
    return result is not None and result is not msgspec.UNSET


# A dict by class, because `isinstance` is slow for a msgspec class that does not match.
_TEXT_OF: dict[type, Callable[[Any], str]] = {
    TextContent: attrgetter("text"),
    JsonContent: lambda content: exact_json.encode(content.data).decode(),
    FieldsSchemaContent: lambda content: exact_json.encode(content.fields).decode(),
    ToolResultContent: tool_result_text,
    type(None): lambda _: "",
}
