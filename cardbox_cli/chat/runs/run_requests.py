"""The request of a chat's run: the texts that cbx adds, and three boxes that a step composes like a turn's.

The profile box describes the run. The context box holds the personas, the memory, the history, and the
messages to answer. The output box holds what the run itself did.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from cardbox_cli.chat.context_tools import CHAT_TOOLS
from cardbox_cli.chat.contexts import context_slots
from cardbox_cli.chat.persona_texts import find_memory, list_personas
from cardbox_cli.chat.transcript import window_entries
from cardbox_cli.context.parts import text_at
from cardbox_cli.execution.queue import turn_ends
from cardbox_cli.execution.requests.turn_requests import BoxSource
from cardbox_cli.model.boxes import Slot
from cardbox_cli.model.card_types import CHAT_WINDOW, PROFILE
from cardbox_cli.model.cards import Card, CardDraft, card_text, draft_as_card, draft_card
from cardbox_cli.model.chats import CHAT, CHAT_AGENT, Chat, ChatRun, Entry, ResetBy, entry_draft, key_parts
from cardbox_cli.model.content import JsonContent
from cardbox_cli.store.chats import ChatStores
from cardbox_cli.text.escaping import indent_lines

_INDENT = "  "
_CORRECTIONS_HEADING = "[Corrections: the user sent this in the meantime]"


def _format_facts(chat_key: str, run_id: str) -> str:
    """Return the facts about the chat for the model: its key, the parts of the key, and the run's id."""
    parts = key_parts(chat_key)
    facts = {
        "chat key": chat_key,
        "request id": run_id,
        "channel": parts.channel,
        "chat id": parts.chat_id,
        "topic": parts.topic,
    }
    return "\n".join(f"{name}: {value}" for name, value in facts.items() if value is not None)


AGENT = CHAT_AGENT

# An item of a box: the id of a card, or a draft that is not written yet.
BoxItem = str | CardDraft


def profile_card(chat_key: str, run_id: str, profile: Mapping[str, Any] | None) -> CardDraft:
    """Return the profile card of a run: the facts about the chat, followed by the given profile.

    Without a profile, the run offers every tool with a command. The four chat tools are always offered.
    `must_end_with` does not apply to chats.
    """
    fields = dict(profile or {"allowed_tools": None})
    fields.pop(turn_ends.MUST_END_WITH_KEY, None)
    own = text_at(fields, "system_prompt") or text_at(fields, "system_prompt_template")
    allowed = fields.get("allowed_tools", [])
    fields |= {
        "system_prompt": "\n\n".join(text for text in (_format_facts(chat_key, run_id), own) if text),
        "allowed_tools": [*allowed, *CHAT_TOOLS] if isinstance(allowed, list) else None,
        "process": "react",
    }
    return draft_card(PROFILE, JsonContent(fields), author_id=AGENT, metadata={CHAT: {"key": chat_key}})


_CONTEXT_FACT = "context: "
_RESETS: Mapping[ResetBy, str] = {
    "new": "new, started during this run; the earlier conversation is archived, and only the current message "
    "counts",
    "clear": "empty, cleared during this run; only the current message counts",
    "load": "an archived one, loaded during this run",
}


def reset_profile_card(card: Card, reset_by: ResetBy | None) -> CardDraft:
    """Return the profile card of a run whose context was replaced. The facts in its prompt say so.

    The request omits the call that replaced the context, so a model would otherwise repeat it.
    """
    fields = dict(card.content.data) if isinstance(card.content, JsonContent) else {}
    facts, separator, own = (text_at(fields, "system_prompt") or "").partition("\n\n")
    lines = [line for line in facts.splitlines() if not line.startswith(_CONTEXT_FACT)]
    if reset_by is not None:
        lines.append(f"{_CONTEXT_FACT}{_RESETS[reset_by]}")
    fields["system_prompt"] = "\n".join(lines) + separator + own
    return draft_card(PROFILE, JsonContent(fields), author_id=AGENT, metadata={CHAT: card.metadata.get(CHAT)})


def context_parts(stores: ChatStores, chat: Chat, position: int, card_ids: Sequence[str]) -> list[BoxItem]:
    """Return the items of a run's context box: personas, memory, history, and the messages to answer.

    The history is the active context, or if that is empty, the transcript before `position` as one message.
    """
    memory = find_memory(stores, chat.chat_key)
    texts = [each.card_id for each in (*list_personas(stores), *([memory] if memory else []))]
    history: list[BoxItem] = [slot.card_id for slot in context_slots(stores, chat)]
    return [*texts, *(history or _window(stores, chat, position)), *card_ids]


def _window(stores: ChatStores, chat: Chat, position: int) -> list[BoxItem]:
    # Further lines of an entry are indented, so no line looks like another entry.
    text = "\n".join(
        f"{entry.role}: {indent_lines(entry.text, _INDENT).removeprefix(_INDENT)}"
        for entry in window_entries(stores, chat, position)
        if entry.card is not None
    )
    metadata = {CHAT: {"key": chat.chat_key}}
    return [draft_card(CHAT_WINDOW, text, author_id=AGENT, metadata=metadata)] if text else []


def create_box(stores: ChatStores, parts: Sequence[BoxItem], title: str) -> str:
    drafts = [part for part in parts if isinstance(part, CardDraft)]
    for draft in drafts:
        stores.cards.add(draft)
    card_ids = [part.card_id if isinstance(part, CardDraft) else part for part in parts]
    return stores.boxes.create(card_ids, title=title, allow_dangling=True).box_id


def unsaved_source(stores: ChatStores, parts: Sequence[BoxItem]) -> BoxSource:
    """Return the items as the source of a box that is not stored."""
    ids = [part for part in parts if isinstance(part, str)]
    cards = stores.boxes.cards_with_states(ids)

    def slot(position: int, part: BoxItem) -> Slot:
        if isinstance(part, CardDraft):
            return Slot(position, part.card_id, draft_as_card(part, stores.project_id), "present")
        return Slot(position, part, *cards.get(part, (None, "dangling")))

    return BoxSource("", [slot(position, part) for position, part in enumerate(parts)])


def select_messages(chat: Chat, waiting: Sequence[Entry]) -> list[str]:
    """Select the unanswered messages that a run answers: all of them if there is an active context.

    Without one, the run answers only the newest message, because the transcript window holds the others.
    """
    return [entry.card_id for entry in (waiting if chat.context_box_id is not None else waiting[-1:])]


def create_corrected_message(stores: ChatStores, run: ChatRun, corrections: Sequence[Entry]) -> str:
    """Write a card of the run's last message with its corrections, and return its id."""
    [card] = stores.cards.get_many(run.user_card_ids[-1:], include_deleted=True).cards
    lines = [_CORRECTIONS_HEADING, *(f"- {entry.text}" for entry in corrections)]
    draft = entry_draft(
        run.chat_key,
        "user",
        "\n\n".join([card_text(card.content), "\n".join(lines)]),
        metadata={"corrected": [card.card_id, *(entry.card_id for entry in corrections)]},
    )
    stores.cards.add(draft)
    return draft.card_id
