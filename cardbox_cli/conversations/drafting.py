"""From the entries of conversations to the cards that hold them, whose ids are derived.

An id is made of the project, the conversation's key, the position of the entry and the entry itself: the same
entry is the same card whenever it is read. What an entry means is its format's business.
"""

import json
import re
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import msgspec

from cardbox_cli.context.request import TURN
from cardbox_cli.context.sources import FAILED
from cardbox_cli.conversations.conversation import Conversation, FileEntry, Format
from cardbox_cli.conversations.formats.registry import format_named
from cardbox_cli.errors import InvalidCard, InvalidConversation
from cardbox_cli.model import exact_json
from cardbox_cli.model.card_types import SESSION_EVENT
from cardbox_cli.model.cards import CardDraft, card_text, check_draft, written_by
from cardbox_cli.model.content import TextContent
from cardbox_cli.model.ids import DerivedIds, derived_from, derived_id
from cardbox_cli.store.imports import Wanted

# Giving the tool calls of a conversation ids that no other conversation has.
#
# For databases that allow one result per tool-call id. Calls and results are renamed together, by the rule
# of `model/pairing.py`; the cards keep their originals, so export gives the original ids.


def remapped(
    drafts: Iterable[CardDraft],
    scope: Sequence[str],
    keep_original: Callable[[CardDraft, CardDraft], CardDraft],
) -> Iterator[CardDraft]:
    """`drafts` with new tool-call ids, derived from `scope` and the call's place among them."""
    unanswered: dict[str, list[str]] = {}
    for position, draft in enumerate(drafts):
        changes: dict[str, Any] = {}
        if draft.tool_calls is not None:
            changes["tool_calls"] = [
                _rename_call(call, unanswered, (*scope, str(position), str(index)))
                for index, call in enumerate(draft.tool_calls)
            ]
        if draft.tool_call_id is not None:
            waiting = unanswered.get(draft.tool_call_id)
            orphan = _new_id((*scope, str(position), "orphan"))
            changes["tool_call_id"] = waiting.pop() if waiting else orphan
        yield keep_original(msgspec.structs.replace(draft, **changes), draft) if changes else draft


def _rename_call(call: Any, unanswered: dict[str, list[str]], place: Sequence[str]) -> Any:
    if not isinstance(call, dict) or not isinstance(call.get("id"), str):
        return call
    new_id = _new_id(place)
    unanswered.setdefault(call["id"], []).append(new_id)
    return {**call, "id": new_id}


def _new_id(place: Sequence[str]) -> str:
    return f"tc_{derived_id(*place).hex}"


# The title of a conversation that its file gives none: what a user says first.


_TITLE_LENGTH = 60

# What programs write where a user speaks. Claude Code: commands and what they printed, and reminders. Codex:
# `FragmentRegistration` of `codex-rs/core/src/context`, older ones too; its extension for editors.
_TAGS = (
    *("command-[a-z]+", "local-command-[a-z]+", "system-reminder"),
    *("environment_context", "user_instructions", "additional_context", "extension_context", "goal_context"),
    *("skill", "user_shell_command", "turn_aborted", "subagent_notification", "hook_prompt"),
    *("recommended_plugins", "INSTRUCTIONS"),
)
_NOTED = re.compile(
    r"# Context from my IDE setup:.*?## My request for Codex:"
    rf"|(?:# AGENTS\.md instructions[^\n]*\s*)?<({'|'.join(_TAGS)})(?: [^<>]*)?>.*?</\1>",
    re.DOTALL | re.IGNORECASE,
)
_COMMAND = re.compile(r"<command-(?:name|args)>(.*?)</command-", re.DOTALL)


def first_words(draft: CardDraft) -> str | None:
    """What a user says first makes a title; where that is but a command, its name."""
    text = card_text(draft.content)
    said = _NOTED.sub(" ", text)
    if not said.strip():
        said = " ".join(found[1] for found in _COMMAND.finditer(text))
    words = " ".join(said.split())
    if draft.role != "user" or not isinstance(draft.content, TextContent) or not words:
        return None
    return words if len(words) <= _TITLE_LENGTH else words[: _TITLE_LENGTH - 1] + "…"


# How many bytes of a conversation are kept while it is read twice: for its id, and for its cards.
_HELD = 4 << 20

# What tells a conversation from all others, in any project.
_Key = tuple[str, ...]


class Drafted(msgspec.Struct, frozen=True, gc=False):
    """An entry, the cards that importing it would make, and what is wrong with it where there are none."""

    entry: FileEntry
    cards: list[CardDraft]
    problem: str | None = None


def drafts_of(conversation: Conversation, project_id: str) -> Iterator[Drafted]:
    """What importing the entries of a conversation into a project would make. Bad characters are replaced."""
    reading = Reading(project_id, remap_tool_ids=False, replace_bad_text=True)
    key, _ = reading.keys(conversation)
    source_format = format_named(conversation.format)
    ids = _Ids(DerivedIds(project_id, *key), DerivedIds(*key))
    for each in reading.stored(conversation):
        try:
            cards = _drafted(source_format, each)
        except InvalidConversation as exc:
            yield Drafted(each.entry, [], exc.message.removeprefix(f"{each.entry.place}: "))
            continue
        name = (each.entry.position, each.canonical)
        yield Drafted(each.entry, _with_ids(cards, ids, name))


class LeftOut(NamedTuple):
    """How many conversations are left out since they say nothing, and where the first of them stands."""

    number: int = 0
    first: str = ""

    def with_one_at(self, place: str) -> "LeftOut":
        """These, and then the one at a place."""
        return LeftOut(self.number + 1, self.first or place)


def says_nothing(conversation: Conversation) -> bool:
    """Whether nobody says anything in a conversation, and it is no request."""
    if conversation.request is not None:
        return False
    try:
        reading = Reading("", remap_tool_ids=False, replace_bad_text=True)
        return not _says_something(conversation, reading)
    except (InvalidConversation, InvalidCard):
        return False


class _StoredEntry(msgspec.Struct, frozen=True, gc=False):
    """An entry as it will be stored, its canonical JSON, and how many bad characters it held.

    `is_simple`: nothing that is made of its parts need be checked.
    """

    entry: FileEntry
    canonical: bytes
    replaced: int = 0
    is_simple: bool = False


class _Read(NamedTuple):
    """What is learnt of a conversation on the way: what is said first, and the last card, None where there is
    none; how many bad characters were replaced."""

    label: int
    first_words: str | None
    last_card_id: str | None
    replaced: int


class Reading:
    """One pass over conversations: their drafts, and what is learnt of each on the way."""

    def __init__(
        self,
        project_id: str,
        *,
        remap_tool_ids: bool,
        replace_bad_text: bool,
        turn: Mapping[str, str] = {},
        only: int | None = None,
    ) -> None:
        self.wanted: list[Wanted] = []
        self.places: dict[int, str] = {}
        self.last_card_id: str | None = None
        self.replaced_characters = 0
        self.left_out = LeftOut()
        self._only = only
        self._project_id = project_id
        self._remap_tool_ids = remap_tool_ids
        self._replace_bad_text = replace_bad_text
        self._turn = turn
        # Those without ids of their own: files of requests repeat them by the thousand.
        self._read: dict[tuple[Any, ...], _Read] = {}
        self._held: tuple[Conversation | None, Sequence[_StoredEntry]] = None, ()

    def labelled_drafts(self, conversations: Iterable[Conversation]) -> Iterator[tuple[int, CardDraft]]:
        """The cards of all conversations in order, each with the number of its conversation.

        Raises InvalidConversation where there is none of the number that alone is wanted.
        """
        label = -1
        for label, conversation in enumerate(conversations):
            if self._only not in (None, label):
                continue
            key, parent_key = self.keys(conversation)
            title, replaced = self._storable(conversation.title, f"{conversation.place}: title")
            self.replaced_characters += replaced
            alike = self._alike(conversation, key, parent_key)
            before = self._read.get(alike) if alike is not None else None
            read = before or (yield from self._labelled(label, conversation, key))
            if read.last_card_id is None:
                self.left_out = self.left_out.with_one_at(conversation.place)
                continue
            if before is not None:
                self.replaced_characters += before.replaced
            elif alike is not None:
                self._read[alike] = read
            self.last_card_id, self.places[label] = read.last_card_id, conversation.place
            self.wanted.append(
                Wanted(
                    label=label,
                    title=title or read.first_words,
                    versions=partial(_version, self._project_id, key),
                    parent_versions=partial(_version, self._project_id, parent_key) if parent_key else None,
                    same_as=None if before is None else before.label,
                )
            )
        if self._only is not None and self._only > label:
            raise InvalidConversation(
                f"there is no conversation {self._only}: the file has {label + 1}",
                hint=f"they are numbered 0 to {label}" if label >= 0 else "leave --only out",
            )

    def _labelled(
        self, label: int, conversation: Conversation, key: _Key
    ) -> Generator[tuple[int, CardDraft], None, "_Read"]:
        before, words, last = self.replaced_characters, None, None
        drafts = self._drafts(conversation, key)
        first = next(drafts, None)
        if first is None or (_is_event(first) and self._is_left_out(conversation)):
            self.replaced_characters = before
            return _Read(label, None, None, 0)
        for draft in chain([first], drafts):
            last = draft.card_id
            words = words or first_words(draft)
            yield label, written_by(draft, self._turn)
        return _Read(label, words, last, self.replaced_characters - before)

    def _is_left_out(self, conversation: Conversation) -> bool:
        """Whether one that begins with an event makes no box: nobody has said a word yet, and no other box
        would miss what is in it."""
        return not conversation.is_part and not _says_something(conversation, self)

    def _alike(
        self, conversation: Conversation, key: _Key, parent_key: _Key | None
    ) -> tuple[Any, ...] | None:
        """What conversations of the same cards have in common. None where one has an id of its own: then it
        may have grown from one to the other."""
        if conversation.own_id is not None:
            return None
        request = conversation.request
        return key, parent_key, None if request is None else self._stored(request).canonical

    def keys(self, conversation: Conversation) -> tuple[_Key, _Key | None]:
        """What tells the conversation, and the one that it branched off from, from all others."""
        of_turn = [self._turn[TURN]] if TURN in self._turn else []
        keyspace = (*format_named(conversation.format).keyspace, *of_turn)
        own_id = conversation.own_id
        if own_id is None:
            own_id = str(derived_from(each.canonical for each in self._held_while_small(conversation)))
        elif self._storable(own_id, f"{conversation.place}: id")[1]:
            # Not the replaced text, which two ids may share. What is stored is only a hash.
            own_id = json.dumps(own_id)
        parent = conversation.parent_id
        return (*keyspace, own_id), None if parent is None else (*keyspace, parent)

    def _drafts(self, conversation: Conversation, key: _Key) -> Iterator[CardDraft]:
        source_format = format_named(conversation.format)
        scope = (self._project_id, *key, "remapped") if self._remap_tool_ids else (self._project_id, *key)
        drafts = self._identified(conversation, source_format, scope, key)
        return remapped(drafts, scope, source_format.keep_original) if self._remap_tool_ids else drafts

    def _identified(
        self, conversation: Conversation, source_format: Format, scope: _Key, key: _Key
    ) -> Iterator[CardDraft]:
        ids = _Ids(DerivedIds(*scope), DerivedIds(*key))
        if conversation.request is not None and source_format.draft_request is not None:
            each = self._counted(self._stored(conversation.request))
            cards = source_format.draft_request(each.entry)
            yield from _with_ids(cards, ids, (each.entry.position, each.canonical))
        for each in map(self._counted, self.stored(conversation)):
            cards = _drafted(source_format, each)
            yield from _with_ids(cards, ids, (each.entry.position, each.canonical), each.entry.created_at)

    def _counted(self, stored: _StoredEntry) -> _StoredEntry:
        self.replaced_characters += stored.replaced
        return stored

    def stored(self, conversation: Conversation) -> Iterator[_StoredEntry]:
        """The entries of a conversation as they will be stored."""
        of, entries = self._held
        return iter(entries) if of is conversation else map(self._stored, conversation.entries)

    def _held_while_small(self, conversation: Conversation) -> Iterator[_StoredEntry]:
        """The entries of a conversation, which need not be read again if they are few."""
        held: list[_StoredEntry] = []
        size = 0
        for each in map(self._stored, conversation.entries):
            size += len(each.canonical)
            if size <= _HELD:
                held.append(each)
            yield each
        if size <= _HELD:
            self._held = conversation, held

    def _stored(self, entry: FileEntry) -> _StoredEntry:
        if exact_json.is_simple(entry.value):
            return _StoredEntry(entry, exact_json.canonical_of_simple(entry.value), is_simple=True)
        value, replaced = self._storable(entry.value, entry.place)
        text = exact_json.canonical(exact_json.encode(value))
        return _StoredEntry(msgspec.structs.replace(entry, value=value), text, replaced)

    def _storable(self, value: Any, place: str) -> tuple[Any, int]:
        """`value` and how many bad characters were replaced in it. Raises InvalidCard naming `place`."""
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
                hint = "--on-bad-text replace puts U+FFFD in its place"
            raise InvalidCard(f"{place}: {exc}", hint=hint) from exc
        return value, replaced


def _drafted(source_format: Format, stored: _StoredEntry) -> list[CardDraft]:
    """The cards of an entry. Raises InvalidConversation naming its place."""
    try:
        cards = source_format.draft(stored.entry)
        if not stored.is_simple:
            for card in cards:
                check_draft(card)
        return cards
    except InvalidCard as exc:
        raise InvalidConversation(f"{stored.entry.place}: {exc.message}", hint=exc.hint) from exc


def _says_something(conversation: Conversation, reading: Reading) -> bool:
    """Whether any entry is more than an event of the program: else nobody has said a word yet."""
    source_format = format_named(conversation.format)
    drafted = (_drafted(source_format, each) for each in reading.stored(conversation))
    return any(not _is_event(card) for cards in drafted for card in cards)


def _is_event(card: CardDraft) -> bool:
    return card.type == SESSION_EVENT


class _Ids(NamedTuple):
    """The ids of a conversation's cards, and of their groups, which are the same in every project."""

    cards: DerivedIds
    groups: DerivedIds


def _with_ids(
    cards: Sequence[CardDraft],
    ids: _Ids,
    name: tuple[str | bytes, ...],
    created_at: datetime | None = None,
) -> list[CardDraft]:
    """The cards of one entry with their ids and their time; several get a group.

    Results that failed have ids that say so: under the others they were stored without a word of it.
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
    """The id of the box of the conversation's version of this number, from 1."""
    return str(derived_id(project_id, *key, "box", str(number)))
