"""The texts that cbx itself puts into a run's request: what the run is, the transcript as one message, and
what corrected the user's message. Pure."""

from collections.abc import Iterable, Sequence

from cardbox_cli.model.chats import Entry, key_parts
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
