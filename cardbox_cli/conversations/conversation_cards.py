"""The cards of conversations, with derived ids and titles.

A card's id is derived from the project, the conversation's key, the entry's position and the entry itself, so
the same entry is always the same card. Formats define what an entry means.
"""

import json
import re
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import msgspec

from cardbox_cli.context.request import TURN
from cardbox_cli.context.sources import FAILED
from cardbox_cli.conversations.conversation import Conversation, FileEntry, Format
from cardbox_cli.conversations.formats.registry import find_format
from cardbox_cli.conversations.tool_call_ids import remap_call_ids
from cardbox_cli.errors import InvalidCard, InvalidConversation
from cardbox_cli.model import exact_json
from cardbox_cli.model.card_types import SESSION_EVENT
from cardbox_cli.model.cards import CardDraft, attribute_to_turn, card_text, check_draft
from cardbox_cli.model.content import TextContent
from cardbox_cli.model.ids import DerivedIds, derive_id, derived_id
from cardbox_cli.store.imports import ImportedConversation

# --- titles of conversations whose file has none

_TITLE_LENGTH = 60

# Tags of texts that programs add to user messages. Claude Code: commands, their output, and reminders. Codex:
# `FragmentRegistration` of `codex-rs/core/src/context`, including older ones; its extension for editors.
_TAGS = (
    *("command-[a-z]+", "local-command-[a-z]+", "system-reminder"),
    *("environment_context", "user_instructions", "additional_context", "extension_context", "goal_context"),
    *("skill", "user_shell_command", "turn_aborted", "subagent_notification", "hook_prompt"),
    *("recommended_plugins", "INSTRUCTIONS"),
)
_ADDED_TEXT = re.compile(
    r"# Context from my IDE setup:.*?## My request for Codex:"
    rf"|(?:# AGENTS\.md instructions[^\n]*\s*)?<({'|'.join(_TAGS)})(?: [^<>]*)?>.*?</\1>",
    re.DOTALL | re.IGNORECASE,
)
_COMMAND = re.compile(r"<command-(?:name|args)>(.*?)</command-", re.DOTALL)


def derive_title(draft: CardDraft) -> str | None:
    """Return the beginning of a user's message as a title, or the name of the command if it is only one."""
    text = card_text(draft.content)
    own = _ADDED_TEXT.sub(" ", text)
    if not own.strip():
        own = " ".join(match[1] for match in _COMMAND.finditer(text))
    words = " ".join(own.split())
    if draft.role != "user" or not isinstance(draft.content, TextContent) or not words:
        return None
    return words if len(words) <= _TITLE_LENGTH else words[: _TITLE_LENGTH - 1] + "…"


# --- cards

# A conversation is read twice, for its id and for its cards. Up to this many bytes stay in memory.
_MAX_HELD_BYTES = 4 << 20

# The unique key of a conversation, in any project.
_Key = tuple[str, ...]


class DraftedEntry(msgspec.Struct, frozen=True, gc=False):
    """An entry and the cards that its import would make, or the problem if there are none."""

    entry: FileEntry
    cards: list[CardDraft]
    problem: str | None = None


def drafts_of(conversation: Conversation, project_id: str) -> Iterator[DraftedEntry]:
    """Yield the drafts that an import of a conversation would make. Bad characters are replaced."""
    reading = ConversationPass(project_id, remap_tool_ids=False, replace_bad_text=True)
    key, _ = reading.keys(conversation)
    source_format = find_format(conversation.format)
    ids = _Ids(DerivedIds(project_id, *key), DerivedIds(*key))
    for each in reading.stored_entries(conversation):
        try:
            cards = _draft_entry(source_format, each)
        except InvalidConversation as exc:
            yield DraftedEntry(each.entry, [], exc.message.removeprefix(f"{each.entry.place}: "))
            continue
        name = (each.entry.position, each.canonical)
        yield DraftedEntry(each.entry, _add_ids(cards, ids, name))


class SkippedConversations(NamedTuple):
    """The number of conversations left out because they have no message, and the place of the first one."""

    number: int = 0
    first: str = ""

    def add(self, place: str) -> "SkippedConversations":
        return SkippedConversations(self.number + 1, self.first or place)


def has_no_message(conversation: Conversation) -> bool:
    """Return whether a conversation has no message and is not a request."""
    if conversation.request is not None:
        return False
    try:
        reading = ConversationPass("", remap_tool_ids=False, replace_bad_text=True)
        return not _says_something(conversation, reading)
    except (InvalidConversation, InvalidCard):
        return False


class _StoredEntry(msgspec.Struct, frozen=True, gc=False):
    """An entry as it will be stored, its canonical JSON, and the number of bad characters replaced in it.

    If `is_simple`, its cards need no check.
    """

    entry: FileEntry
    canonical: bytes
    replaced: int = 0
    is_simple: bool = False


class _ReadResult(NamedTuple):
    """The results of reading one conversation. `last_card_id` is None if it has no card."""

    label: int
    first_words: str | None
    last_card_id: str | None
    replaced: int


class ConversationPass:
    """One pass over conversations, which yields their drafts and collects their boxes and counts."""

    def __init__(
        self,
        project_id: str,
        *,
        remap_tool_ids: bool,
        replace_bad_text: bool,
        turn: Mapping[str, str] = {},
        only: int | None = None,
    ) -> None:
        self.imported: list[ImportedConversation] = []
        self.places: dict[int, str] = {}
        self.last_card_id: str | None = None
        self.replaced_characters = 0
        self.left_out = SkippedConversations()
        self._only = only
        self._project_id = project_id
        self._remap_tool_ids = remap_tool_ids
        self._replace_bad_text = replace_bad_text
        self._turn = turn
        # Conversations without an id: files of requests repeat them by the thousand.
        self._read: dict[tuple[Any, ...], _ReadResult] = {}
        self._cached: tuple[Conversation | None, Sequence[_StoredEntry]] = None, ()

    def labelled_drafts(self, conversations: Iterable[Conversation]) -> Iterator[tuple[int, CardDraft]]:
        """Yield the cards of all conversations in order, each with the number of its conversation.

        Raises InvalidConversation if the file has no conversation of the number `only`.
        """
        label = -1
        for label, conversation in enumerate(conversations):
            if self._only not in (None, label):
                continue
            key, parent_key = self.keys(conversation)
            title, replaced = self._storable(conversation.title, f"{conversation.place}: title")
            self.replaced_characters += replaced
            alike = self._content_key(conversation, key, parent_key)
            before = self._read.get(alike) if alike is not None else None
            read = before or (yield from self._read_one(label, conversation, key))
            if read.last_card_id is None:
                self.left_out = self.left_out.add(conversation.place)
                continue
            if before is not None:
                self.replaced_characters += before.replaced
            elif alike is not None:
                self._read[alike] = read
            self.last_card_id, self.places[label] = read.last_card_id, conversation.place
            self.imported.append(
                ImportedConversation(
                    label=label,
                    title=title or read.first_words,
                    versions=partial(_version, self._project_id, key),
                    parent_versions=partial(_version, self._project_id, parent_key) if parent_key else None,
                    same_as=None if before is None else before.label,
                )
            )
        if self._only is not None and self._only > label:
            raise InvalidConversation(
                f"unknown conversation {self._only}: the file has {label + 1}",
                hint=f"pass --only with a number from 0 to {label}" if label >= 0 else "omit --only",
            )

    def _read_one(
        self, label: int, conversation: Conversation, key: _Key
    ) -> Generator[tuple[int, CardDraft], None, "_ReadResult"]:
        before, words, last = self.replaced_characters, None, None
        drafts = self._drafts(conversation, key)
        first = next(drafts, None)
        # A conversation that begins with an event makes no box if it has no message yet and is not a part.
        is_event = first is not None and _is_event(first) and not conversation.is_part
        if first is None or (is_event and not _says_something(conversation, self)):
            self.replaced_characters = before
            return _ReadResult(label, None, None, 0)
        for draft in chain([first], drafts):
            last = draft.card_id
            words = words or derive_title(draft)
            yield label, attribute_to_turn(draft, self._turn)
        return _ReadResult(label, words, last, self.replaced_characters - before)

    def _content_key(
        self, conversation: Conversation, key: _Key, parent_key: _Key | None
    ) -> tuple[Any, ...] | None:
        """Return a key that is equal for conversations with the same cards.

        Returns None if the conversation has its own id, because a later one may be a longer version of it.
        """
        if conversation.own_id is not None:
            return None
        request = conversation.request
        return key, parent_key, None if request is None else self._prepare(request).canonical

    def keys(self, conversation: Conversation) -> tuple[_Key, _Key | None]:
        """Return the unique keys of the conversation and of the one that it branched off from."""
        turn = [self._turn[TURN]] if TURN in self._turn else []
        keyspace = (*find_format(conversation.format).keyspace, *turn)
        own_id = conversation.own_id
        if own_id is None:
            own_id = str(derive_id(each.canonical for each in self._cache_if_small(conversation)))
        elif self._storable(own_id, f"{conversation.place}: id")[1]:
            # Two ids may have the same replaced text, so use the original one. Only a hash of it is stored.
            own_id = json.dumps(own_id)
        parent = conversation.parent_id
        return (*keyspace, own_id), None if parent is None else (*keyspace, parent)

    def _drafts(self, conversation: Conversation, key: _Key) -> Iterator[CardDraft]:
        source_format = find_format(conversation.format)
        scope = (self._project_id, *key, "remapped") if self._remap_tool_ids else (self._project_id, *key)
        drafts = self._drafts_with_ids(
            conversation, source_format, _Ids(DerivedIds(*scope), DerivedIds(*key))
        )
        return remap_call_ids(drafts, scope, source_format.keep_original) if self._remap_tool_ids else drafts

    def _drafts_with_ids(
        self, conversation: Conversation, source_format: Format, ids: "_Ids"
    ) -> Iterator[CardDraft]:
        if conversation.request is not None and source_format.draft_request is not None:
            each = self._count_replaced(self._prepare(conversation.request))
            cards = source_format.draft_request(each.entry)
            yield from _add_ids(cards, ids, (each.entry.position, each.canonical))
        for each in map(self._count_replaced, self.stored_entries(conversation)):
            cards = _draft_entry(source_format, each)
            yield from _add_ids(cards, ids, (each.entry.position, each.canonical), each.entry.created_at)

    def _count_replaced(self, stored: _StoredEntry) -> _StoredEntry:
        self.replaced_characters += stored.replaced
        return stored

    def stored_entries(self, conversation: Conversation) -> Iterator[_StoredEntry]:
        cached, entries = self._cached
        return iter(entries) if cached is conversation else map(self._prepare, conversation.entries)

    def _cache_if_small(self, conversation: Conversation) -> Iterator[_StoredEntry]:
        """Yield the entries of a conversation, and cache them if they are small."""
        small: list[_StoredEntry] = []
        size = 0
        for each in map(self._prepare, conversation.entries):
            size += len(each.canonical)
            if size <= _MAX_HELD_BYTES:
                small.append(each)
            yield each
        if size <= _MAX_HELD_BYTES:
            self._cached = conversation, small

    def _prepare(self, entry: FileEntry) -> _StoredEntry:
        if exact_json.is_simple(entry.value):
            return _StoredEntry(entry, exact_json.canonical_of_simple(entry.value), is_simple=True)
        value, replaced = self._storable(entry.value, entry.place)
        text = exact_json.canonical(exact_json.encode(value))
        return _StoredEntry(msgspec.structs.replace(entry, value=value), text, replaced)

    def _storable(self, value: Any, place: str) -> tuple[Any, int]:
        """Return `value` and its number of replaced bad characters. Raises InvalidCard naming `place`."""
        replaced = 0
        try:
            try:
                exact_json.check_storable(value)
            except exact_json.BadText:
                if not self._replace_bad_text:
                    raise
                value, replaced = exact_json.replace_bad_text(value)
                exact_json.check_storable(value)
        except exact_json.Unstorable as exc:
            hint = "remove or replace that value"
            if isinstance(exc, exact_json.BadText):
                hint = "pass --on-bad-text replace, which writes U+FFFD instead"
            raise InvalidCard(f"{place}: {exc}", hint=hint) from exc
        return value, replaced


def _draft_entry(source_format: Format, stored: _StoredEntry) -> list[CardDraft]:
    """Make the cards of an entry. Raises InvalidConversation naming its place."""
    try:
        cards = source_format.draft(stored.entry)
        if not stored.is_simple:
            for card in cards:
                check_draft(card)
        return cards
    except InvalidCard as exc:
        raise InvalidConversation(f"{stored.entry.place}: {exc.message}", hint=exc.hint) from exc


def _says_something(conversation: Conversation, reading: ConversationPass) -> bool:
    """Return whether any entry is a message, not only an event of the program."""
    source_format = find_format(conversation.format)
    drafted = (_draft_entry(source_format, each) for each in reading.stored_entries(conversation))
    return any(not _is_event(card) for cards in drafted for card in cards)


def _is_event(card: CardDraft) -> bool:
    return card.type == SESSION_EVENT


class _Ids(NamedTuple):
    """The ids of a conversation's cards, and of their groups, which are equal in every project."""

    cards: DerivedIds
    groups: DerivedIds


def _add_ids(
    cards: Sequence[CardDraft],
    ids: _Ids,
    name: tuple[str | bytes, ...],
    created_at: datetime | None = None,
) -> list[CardDraft]:
    """Add ids and a time to the cards of one entry, and a group if there are several.

    The id of a failed result differs, because a card stored under the usual id may lack the failure.
    """
    name = (*name, FAILED) if any(FAILED in card.metadata for card in cards) else name
    if len(cards) == 1:
        return [msgspec.structs.replace(cards[0], card_id=ids.cards.hex(*name), created_at=created_at)]
    group = {"source_group": ids.groups.hex(*name)}
    return [
        msgspec.structs.replace(
            card,
            card_id=ids.cards.hex(*name, str(part)) if part else ids.cards.hex(*name),
            metadata={**group, **card.metadata},
            created_at=created_at,
        )
        for part, card in enumerate(cards)
    ]


def _version(project_id: str, key: _Key, number: int) -> str:
    """Return the box id of a conversation's version, which counts from 1."""
    return str(derived_id(project_id, *key, "box", str(number)))
