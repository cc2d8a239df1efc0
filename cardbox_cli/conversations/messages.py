"""Files that hold lists of a provider's messages: read as conversations, and written.

One format for all providers; what a message of theirs is stands in their records (`context/providers`).
"""

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

from cardbox_cli.context.providers.provider import Provider
from cardbox_cli.conversations.conversation import Conversation, FileEntry, Format, Rereadable, indented
from cardbox_cli.conversations.files import MessageList, all_messages, find_messages
from cardbox_cli.conversations.json_documents import Documents
from cardbox_cli.conversations.json_window import held
from cardbox_cli.errors import InvalidConversation
from cardbox_cli.model.cards import Card, CardDraft
from cardbox_cli.model.handwritten.wording import json_kind


def messages_format(provider: Provider) -> Format:
    """The format of files with messages of one provider."""
    files = _Files(provider)
    return Format(
        name=provider.name,
        provider=provider.name,
        keyspace=provider.files.keyspace,
        recognises=files.recognises,
        read=files.read,
        draft=files.draft,
        keep_original=provider.files.keep_original,
        export=files.export,
    )


class _Files:
    """The files of one provider."""

    def __init__(self, provider: Provider) -> None:
        self._provider, self._files = provider, provider.files

    def recognises(self, documents: Documents) -> bool:
        """Whether messages, or what stands beside them, bear a mark that no other format has."""
        marks_beside, marks_message = self._files.marks_beside, self._files.marks_message
        every = all_messages(documents)
        return any(marks_beside(each.beside) or any(map(marks_message, each.messages)) for each in every)

    def read(self, documents: Documents, *, at: str | None = None) -> Iterator[Conversation]:
        """The conversations in a file: lists of messages under whatever key."""
        for found in find_messages(documents, at):
            yield found.conversation(self._provider.name, Rereadable(partial(self._entries, found)))

    def _entries(self, found: MessageList) -> Iterator[FileEntry]:
        """The system prompt that stands beside the messages, at the key's own position, and the messages."""
        key = self._files.system_key
        if key is not None and key in found.beside:
            yield FileEntry(key, {key: held(found.beside[key])}, found.place)
        for number, message in enumerate(found.messages):
            yield FileEntry(str(number), message, f"{found.place}: message {number}")

    def draft(self, entry: FileEntry) -> list[CardDraft]:
        """The cards that hold a message, or the system prompt. Raises InvalidConversation."""
        files = self._files
        if files.draft_system is not None and entry.position == files.system_key:
            return [files.draft_system(entry.value[entry.position])]
        return files.draft(self._checked(entry))

    def _checked(self, entry: FileEntry) -> dict[str, Any]:
        message, roles = entry.value, self._files.roles
        if not isinstance(message, dict):
            raise InvalidConversation(f"{entry.place}: a message must be an object, not {json_kind(message)}")
        role = message.get("role")
        if not isinstance(role, str) or role not in roles:
            raise InvalidConversation(
                f"{entry.place}: the role {role!r} is none of {self._provider.title}'s",
                hint=f"roles are {', '.join(roles)}",
            )
        return message

    def export(self, cards: Iterable[Card]) -> Iterator[str]:
        """An indented JSON object, a message at a time: what stands beside the messages, then these."""
        beside, messages = self._files.export(cards)
        yield "{\n"
        for key, value in beside.items():
            yield f"  {indented(key)}: {indented(value, 2)},\n"
        yield '  "messages": ['
        lead = "\n"
        for message in messages:
            yield f"{lead}    {indented(message, 4)}"
            lead = ",\n"
        yield "]\n}" if lead == "\n" else "\n  ]\n}"
