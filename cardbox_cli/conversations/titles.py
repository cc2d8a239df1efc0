"""The title of a conversation that its file gives none: what a user says first."""

import re

from cardbox_cli.model.cards import CardDraft, card_text
from cardbox_cli.model.content import TextContent

_TITLE_LENGTH = 60

# What Claude Code writes into what a user says: commands and what they printed, and reminders.
_NOTED = re.compile(r"<(command-[a-z]+|local-command-[a-z]+|system-reminder)>.*?</\1>", re.DOTALL)
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
