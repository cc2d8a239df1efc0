"""Of what the request of a run is made: three boxes, as a turn has them.

The profile's box says what the run is, the context box holds personas, memory, history and the messages that
are answered, the output box what the run has done itself. A step composes these like that of a turn.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from cardbox_cli.chat.contexts import messages_of
from cardbox_cli.chat.room import Room
from cardbox_cli.chat.runs.wording import corrected, runtime_prompt, window_text
from cardbox_cli.chat.texts import memory, personas
from cardbox_cli.chat.tools import CHAT_TOOLS
from cardbox_cli.chat.transcript import window
from cardbox_cli.context.parts import text_at
from cardbox_cli.model.card_types import CHAT_WINDOW, PROFILE
from cardbox_cli.model.cards import CardDraft, card_text, draft_card
from cardbox_cli.model.chats import CHAT, Chat, ChatRun, Entry, entry_draft
from cardbox_cli.model.content import JsonContent

# Who the cards of a run are by.
AGENT = "chat"


def profile_box(room: Room, chat_key: str, run_id: str, profile: Mapping[str, Any] | None) -> str:
    """Make the box that says what the run is, and after that what a profile says; its id.

    Without a profile all tools are offered that have a command; the four of chats are always.
    """
    given = dict(profile or {"allowed_tools": None})
    own = text_at(given, "system_prompt") or text_at(given, "system_prompt_template")
    allowed = given.get("allowed_tools", [])
    given |= {
        "system_prompt": "\n\n".join(text for text in (runtime_prompt(chat_key, run_id), own) if text),
        "allowed_tools": [*allowed, *CHAT_TOOLS] if isinstance(allowed, list) else None,
        "process": "react",
    }
    draft = draft_card(PROFILE, JsonContent(given), author_id=AGENT, metadata={CHAT: {"key": chat_key}})
    room.cards.add(draft)
    return _box(room, [draft.card_id], f"what {run_id} is")


def context_box(room: Room, chat: Chat, run_id: str, position: int, asked: Sequence[str]) -> str:
    """Make the box of what a run works with: personas, memory, history, and the messages that are `asked`.

    The history is the active context; where that is empty, the transcript before `position` as one message.
    """
    remembered = memory(room, chat.chat_key)
    texts = [each.card_id for each in (*personas(room), *([remembered] if remembered else []))]
    held = [slot.card_id for slot in messages_of(room, chat)]
    said = "" if held else window_text(window(room, chat, position))
    history = [_window(room, chat, said)] if said else held
    return _box(room, [*texts, *history, *asked], f"context of {run_id}")


def output_box(room: Room, run_id: str) -> str:
    """Make the box of what a run does; its id."""
    return _box(room, [], f"output of {run_id}")


def corrected_box(room: Room, run: ChatRun, card_id: str) -> str:
    """Make the context box of a run whose last message has become another card."""
    before = room.boxes.get(run.context_box_id).card_ids[:-1]
    return _box(room, [*before, card_id], f"context of {run.run_id}")


def corrected_message(room: Room, run: ChatRun, corrections: Sequence[Entry]) -> CardDraft:
    """The last message of a run together with what came behind it, written as a card."""
    [card] = room.cards.get_many(run.user_card_ids[-1:], include_deleted=True).cards
    draft = entry_draft(
        run.chat_key,
        "user",
        corrected(card_text(card.content), [entry.text for entry in corrections]),
        metadata={"corrected": [card.card_id, *(entry.card_id for entry in corrections)]},
    )
    room.cards.add(draft)
    return draft


def _window(room: Room, chat: Chat, said: str) -> str:
    draft = draft_card(CHAT_WINDOW, said, author_id=AGENT, metadata={CHAT: {"key": chat.chat_key}})
    room.cards.add(draft)
    return draft.card_id


def _box(room: Room, card_ids: Sequence[str], title: str) -> str:
    return room.boxes.create(card_ids, title=title, allow_dangling=True).box_id
