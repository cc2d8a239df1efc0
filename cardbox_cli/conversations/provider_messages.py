"""The format of files that hold lists of a provider's messages: reading, recognition and export.

It serves all providers; their classes (`providers/`) define their messages.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from itertools import chain
from typing import Any

from cardbox_cli.context.provider import Provider, has_role
from cardbox_cli.context.sources import MESSAGE, envelope, imported_card, keep
from cardbox_cli.conversations.conversation import (
    Conversation,
    FileEntry,
    Format,
    Rereadable,
    format_indented,
    format_indented_list,
)
from cardbox_cli.conversations.json_documents import JsonDocuments, load_lazy_lists
from cardbox_cli.conversations.message_lists import (
    ID_KEYS,
    TITLE_KEYS,
    MessageList,
    find_lists,
    find_messages,
)
from cardbox_cli.errors import InvalidConversation
from cardbox_cli.model.card_types import PROFILE, TOOLS
from cardbox_cli.model.cards import Card, CardDraft
from cardbox_cli.model.content import JsonContent, ToolContent
from cardbox_cli.providers.registry import providers
from cardbox_cli.text.error_messages import json_type

# The position of the entry that stores the keys of a request.
_REQUEST = "request"


def messages_format(provider: Provider) -> Format:
    files = _Files(provider)
    return Format(
        name=provider.name,
        provider=provider.name,
        keyspace=provider.files.keyspace,
        marks=files.marks,
        fits=files.fits,
        read=files.read,
        draft=files.draft,
        draft_request=files.draft_request,
        tells_all=provider.files.shape.is_own,
        keep_original=provider.files.keep_original,
        export=files.export,
    )


class _Files:
    def __init__(self, provider: Provider) -> None:
        self._provider, self._files = provider, provider.files

    def marks(self, value: Any) -> str | None:
        """Return the evidence, from messages or the keys next to them, that only this provider has them."""
        marks_beside, marks_message = self._files.marks_beside, self._files.marks_message
        if has_role(value) or self._files.shape.is_message(value):
            return marks_message(value)
        for messages, siblings in find_lists(value, (self._files.shape,)):
            evidence = marks_beside(siblings) or next(filter(None, map(marks_message, messages)), None)
            if evidence is not None:
                return evidence
        return None

    def fits(self, value: Any) -> bool:
        """Return whether a value without evidence may be, or contain, a message of this provider."""
        shape, problem = self._files.shape, self._files.problem
        if shape.is_message(value):
            return problem(value) is None
        # If only this provider has this form of messages, a list at another provider's key is not its own.
        return any(
            not shape.is_own
            or (not self._owners(messages, siblings) and all(problem(each) is None for each in messages))
            for messages, siblings in find_lists(value, (shape,))
        )

    def _owners(self, messages: Iterable[Any], siblings: Mapping[str, Any]) -> list[Provider]:
        """Return the other providers that use the key of `messages`. Empty if this provider uses it."""
        key = next((key for key, value in siblings.items() if value is messages), None)
        if key is None or key == self._files.shape.key:
            return []
        return [each for each in providers() if each.files.shape.key == key]

    def _check_nothing_lost(self, message_list: MessageList) -> None:
        """Raise InvalidConversation if this format would lose keys of another provider's request."""
        siblings = message_list.siblings
        owners = self._owners(message_list.messages, siblings)
        if not owners or any(key in siblings for key in (*ID_KEYS, *TITLE_KEYS)):
            return
        owner = next((each for each in owners if each.files.marks_beside(siblings)), owners[0])
        lost = [key for key in siblings if key != owner.files.shape.key]
        if not self._files.shape.is_own and not owner.files.marks_beside(siblings):
            lost = [key for key in lost if key in ("model", "tools")]
        if lost:
            name, key = self._provider.name, self._files.shape.key
            raise InvalidConversation(
                f"{message_list.place}: {lost[0]!r} would be lost in the {name} format, because it is next "
                f"to {owner.files.shape.key!r}, the key of messages in requests to {owner.title}",
                hint=f"pass --from {owner.name}, or put the messages at {key!r}",
            )

    def read(self, documents: JsonDocuments, *, at: str | None = None) -> Iterator[Conversation]:
        """Yield the conversations in a file: lists of messages under any key."""
        for message_list in find_messages(documents, at, self._files.shape):
            self._check_nothing_lost(message_list)
            entries = Rereadable(partial(self._entries, message_list))
            yield message_list.conversation(self._provider.name, entries, self._request(message_list))

    def _entries(self, message_list: MessageList) -> Iterator[FileEntry]:
        """Yield the system prompt next to the messages, with its key as position, then the messages."""
        for key in self._files.system_keys:
            if key in message_list.siblings:
                yield FileEntry(key, {key: load_lazy_lists(message_list.siblings[key])}, message_list.place)
        for number, message in self._files.gather(message_list.messages):
            yield FileEntry(str(number), message, f"{message_list.place}: message {number}")

    def _request(self, message_list: MessageList) -> FileEntry | None:
        """Return the keys of a request except its messages and system prompt, None if there is no request.

        A conversation with an id or a title is not a request: the keys next to its messages change as it
        grows.
        """
        files, siblings = self._files, message_list.siblings
        messages = siblings.get(files.shape.key)
        is_there = isinstance(messages, str | dict) or messages is message_list.messages
        if not is_there or any(key in siblings for key in (*ID_KEYS, *TITLE_KEYS)):
            return None
        apart = (files.shape.key, *files.system_keys)
        rest = {key: load_lazy_lists(value) for key, value in siblings.items() if key not in apart}
        # Another provider's key of a system prompt is also stored: it is not one of these messages.
        prompts = (key for each in providers() for key in each.files.system_keys)
        named = ("model", "tools", *files.parameters, *files.request_keys, *prompts)
        is_request = bool(rest) if files.shape.is_own else any(key in rest for key in named)
        return FileEntry(_REQUEST, rest, f"{message_list.place}: request") if is_request else None

    def draft(self, entry: FileEntry) -> list[CardDraft]:
        """Make the cards of a message or of the system prompt. Raises InvalidConversation."""
        files = self._files
        if entry.position in files.system_keys:
            return [files.draft_system(entry.position, entry.value[entry.position])]
        message = self._check_message(entry)
        for each in files.separate(message):
            self._check_calls(each, entry.place)
        return files.draft(message)

    def draft_request(self, entry: FileEntry) -> list[CardDraft]:
        """Make the cards of a request's parameters and tools. The first card also preserves the request."""
        config, tools = self._files.read_request(entry.value)
        card = imported_card(PROFILE, JsonContent({"llm_config": config}))
        profile = keep(card, self._provider.name, source_message=entry.value)
        return [profile, imported_card(TOOLS, ToolContent(tools))] if tools else [profile]

    def _check_calls(self, message: Any, place: str) -> None:
        """Raise InvalidConversation for a content part that is another provider's tool call or result.

        Such a part would be lost. A message with `tool_calls` is not checked.
        """
        content = message.get("content") if isinstance(message, dict) else None
        if not isinstance(content, list) or message.get("tool_calls"):
            return
        others = [each for each in providers() if each is not self._provider]
        for number, part in enumerate(content):
            owners = (each for each in others if each.files.is_exchange(part))
            if (other := next(owners, None)) is not None:
                raise InvalidConversation(
                    f"{place}: content[{number}] is a tool call or result in the {other.name} format, but "
                    f"the file is in the {self._provider.name} format",
                    hint="convert the conversation to one format",
                )

    def _check_message(self, entry: FileEntry) -> Any:
        message, files = entry.value, self._files
        if files.shape.is_own:
            if (problem := files.problem(message)) is not None:
                raise InvalidConversation(f"{entry.place}: {problem}")
            if files.checks_roles:
                return message
        if not isinstance(message, dict):
            raise InvalidConversation(f"{entry.place}: a message must be an object, not {json_type(message)}")
        role = message.get("role")
        if not isinstance(role, str) or role not in files.roles:
            raise InvalidConversation(
                f"{entry.place}: unknown role {role!r} for format {self._provider.name}",
                hint=f"roles are {', '.join(files.roles)}",
            )
        return message

    def export(self, cards: Iterable[Card]) -> Iterator[str]:
        """Yield an indented JSON object in chunks: the keys next to the messages, then the messages."""
        siblings, messages = self._files.export(cards)
        key = self._files.shape.key
        first = next(iter(cards), None)
        request = envelope(first, self._provider.name, MESSAGE) if first and first.type == PROFILE else None
        yield "{\n"
        for name, value in {**(request or {}), **siblings}.items():
            yield f"  {format_indented(name)}: {format_indented(value, 2)},\n"
        yield f"  {format_indented(key)}: "
        begin, more = next(messages, None), next(messages, None)
        is_alone = isinstance(begin, str)
        if self._files.shape.takes_one and isinstance(begin, dict) and begin.keys() == {key}:
            begin, is_alone = begin[key], more is None
        if is_alone:
            yield format_indented(begin, 2)
        else:
            first_two = [each for each in (begin, more) if each is not None]
            yield from format_indented_list(chain(first_two, messages), 1)
        yield "\n}"
