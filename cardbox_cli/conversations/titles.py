"""The title of a conversation that its file gives none: what a user says first."""

import re

from cardbox_cli.model.cards import CardDraft, card_text
from cardbox_cli.model.content import TextContent

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
