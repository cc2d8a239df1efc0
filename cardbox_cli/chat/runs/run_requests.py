"""The texts that cbx itself puts into a run's request: what the run is, the transcript as one message, and
what corrected the user's message. Pure.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from cardbox_cli.chat.context_tools import CHAT_TOOLS
from cardbox_cli.chat.contexts import messages_of
from cardbox_cli.chat.persona_texts import memory, personas
from cardbox_cli.chat.transcript import window
from cardbox_cli.context.parts import text_at
from cardbox_cli.execution.queue import turn_ends
from cardbox_cli.execution.requests.turn_requests import Source
from cardbox_cli.model.boxes import Slot
from cardbox_cli.model.card_types import CHAT_WINDOW, PROFILE
from cardbox_cli.model.cards import CardDraft, card_of, card_text, draft_card
from cardbox_cli.model.chats import CHAT, CHAT_AGENT, Chat, ChatRun, Entry, entry_draft, key_parts
from cardbox_cli.model.content import JsonContent
from cardbox_cli.store.chats import Room
from cardbox_cli.text import indented

_FURTHER = "  "
_CORRECTED = "[Corrections: the user sent this in the meantime]"


def runtime_prompt(chat_key: str, run_id: str) -> str:
    """What the model is told of where it is: the chat's key, and what that says, and the request."""
    parts = key_parts(chat_key)
    facts = {
        "chat key": chat_key,
        "request id": run_id,
        "channel": parts.channel,
        "chat id": parts.chat_id,
        "topic": parts.topic,
    }
    return "\n".join(f"{name}: {value}" for name, value in facts.items() if value is not None)


def window_text(entries: Sequence[Entry]) -> str:
    """Entries of a transcript, each behind its speaker; "" for none.

    Further lines of one are indented: none passes for what another said.
    """
    return "\n".join(f"{entry.role}: {_behind(entry.text)}" for entry in entries if entry.card is not None)


def _behind(text: str) -> str:
    return indented(text, _FURTHER).removeprefix(_FURTHER)


def corrected(text: str, corrections: Iterable[str]) -> str:
    """A user's message with what came behind it."""
    return "\n\n".join([text, "\n".join([_CORRECTED, *(f"- {each}" for each in corrections)])])


# Of what the request of a run is made: three boxes, as a turn has them.
#
# The profile's box says what the run is, the context box holds personas, memory, history and the messages
# that
# are answered, the output box what the run has done itself. A step composes these like that of a turn.


AGENT = CHAT_AGENT
_ALL_TOOLS: Mapping[str, Any] = {"allowed_tools": None}


Part = str | CardDraft
"""A place of a box: the id of a card, or one that is yet to be written."""


def profile_card(chat_key: str, run_id: str, profile: Mapping[str, Any] | None) -> CardDraft:
    """The card that says what a run is, and after that what a profile says.

    Without a profile all tools are offered that have a command; the four of chats are always.
    How a turn must end is no rule of a chat.
    """
    given = {name: value for name, value in (profile or _ALL_TOOLS).items() if name != turn_ends.KEY}
    own = text_at(given, "system_prompt") or text_at(given, "system_prompt_template")
    allowed = given.get("allowed_tools", [])
    given |= {
        "system_prompt": "\n\n".join(text for text in (runtime_prompt(chat_key, run_id), own) if text),
        "allowed_tools": [*allowed, *CHAT_TOOLS] if isinstance(allowed, list) else None,
        "process": "react",
    }
    return draft_card(PROFILE, JsonContent(given), author_id=AGENT, metadata={CHAT: {"key": chat_key}})


def context_parts(room: Room, chat: Chat, position: int, asked: Sequence[str]) -> list[Part]:
    """What a run works with: personas, memory, history, and the messages that are `asked`.

    The history is the active context; where that is empty, the transcript before `position` as one message.
    """
    remembered = memory(room, chat.chat_key)
    texts = [each.card_id for each in (*personas(room), *([remembered] if remembered else []))]
    held: list[Part] = [slot.card_id for slot in messages_of(room, chat)]
    return [*texts, *(held or _window(room, chat, position)), *asked]


def _window(room: Room, chat: Chat, position: int) -> list[Part]:
    said = window_text(window(room, chat, position))
    told = {CHAT: {"key": chat.chat_key}}
    return [draft_card(CHAT_WINDOW, said, author_id=AGENT, metadata=told)] if said else []


def written(room: Room, parts: Sequence[Part], title: str) -> str:
    """Make a box of these places; its id."""
    drafts = [part for part in parts if isinstance(part, CardDraft)]
    for draft in drafts:
        room.cards.add(draft)
    card_ids = [part.card_id if isinstance(part, CardDraft) else part for part in parts]
    return room.boxes.create(card_ids, title=title, allow_dangling=True).box_id


def as_source(room: Room, parts: Sequence[Part]) -> Source:
    """These places as those of a box that nobody has made."""
    ids = [part for part in parts if isinstance(part, str)]
    known = room.boxes.known(ids)

    def slot(position: int, part: Part) -> Slot:
        if isinstance(part, CardDraft):
            return Slot(position, part.card_id, card_of(part, room.project_id), "present")
        found = known.get(part)
        return Slot(position, part, None, "dangling") if found is None else Slot(position, part, *found)

    return Source("", [slot(position, part) for position, part in enumerate(parts)])


def asked_of(chat: Chat, waiting: Sequence[Entry]) -> list[str]:
    """The messages that a run answers, of those that are unanswered: the newest, and before it the earlier
    ones where a context has not seen them; the window of a transcript has."""
    asked = waiting if chat.context_box_id is not None else waiting[-1:]
    return [entry.card_id for entry in asked]


def output_box(room: Room, run_id: str) -> str:
    """Make the box of what a run does; its id."""
    return written(room, [], f"output of {run_id}")


def corrected_box(room: Room, run: ChatRun, card_id: str) -> str:
    """Make the context box of a run whose last message has become another card."""
    before = room.boxes.get(run.context_box_id).card_ids[:-1]
    return written(room, [*before, card_id], f"context of {run.run_id}")


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
