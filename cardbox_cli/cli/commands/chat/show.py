"""`cbx chat show`: a chat on one page."""

from typing import TYPE_CHECKING

from cardbox_cli.cli.commands.chat.talking import room_of
from cardbox_cli.cli.options.shared_options import ChatKey
from cardbox_cli.cli.project_database import open_database
from cardbox_cli.cli.terminal import output
from cardbox_cli.cli.terminal.table_layout import NOTHING, Column, print_below
from cardbox_cli.cli.verb import verb
from cardbox_cli.model.ids import short_id
from cardbox_cli.model.text.escaping import flat, one_line, spelled
from cardbox_cli.model.text.quantities import count, time

if TYPE_CHECKING:
    from cardbox_cli.chat.views import ChatView, Kept


@verb(
    "show",
    "cbx chat show telegram-chat-42",
    "cbx chat show telegram-chat-42 -o json | jq -r '.messages[] | \"\\(.role): \\(.content)\"'",
    pages=True,
    reads=True,
)
def show_chat(key: ChatKey) -> None:
    """Show a chat on one page: its active context, what its transcript keeps, its last runs."""
    from cardbox_cli.chat.views import view

    with open_database() as database, database.snapshot():
        seen = view(room_of(database), key)
    ids = [] if seen.context_id is None else [seen.context_id]
    output.emit(seen, table=lambda: _print_text(seen), ids=ids)


def _print_text(seen: "ChatView") -> None:
    output.facts(
        ("chat", spelled(seen.chat_key)),
        ("context", _context(seen)),
        ("box", seen.context_box_id),
        ("reset", None if seen.reset_by is None else f"{seen.reset_by}, {time(seen.reset_at)}"),
        ("archived", count(seen.archives, "context")),
        ("transcript", _transcript(seen.transcript)),
        ("window", _window(seen.transcript)),
        ("running", _running(seen)),
    )
    print_below(_MESSAGE, list(enumerate(seen.messages, 1)))
    print_below(_RUN, seen.runs)
    print_below(_STEP, seen.steps)


def _context(seen: "ChatView") -> str:
    if seen.context_id is None:
        return "empty"
    loaded = "" if seen.loaded_from in (None, seen.context_id) else f", loaded from {seen.loaded_from}"
    return f"{seen.context_id}, {count(len(seen.messages), 'message')}{loaded}"


def _running(seen: "ChatView") -> str | None:
    if seen.running is None:
        return None
    return f"{seen.running}, by {spelled(seen.owner or 'nobody')}, lease until {time(seen.lease_expires_at)}"


def _transcript(kept: "Kept") -> str:
    boxes = f" in {count(kept.boxes, 'box')}, kept for good" if kept.entries else ""
    unanswered = f"; {kept.unanswered} unanswered" if kept.unanswered else ""
    return f"{count(kept.entries, 'entry')}{boxes}{unanswered}"


def _window(kept: "Kept") -> str:
    window = kept.window
    seen = window.last - window.first
    places = f", from {window.first} to {window.last - 1}" if seen else ""
    since = f"; nothing from before {window.start}" if window.start else ""
    return f"{seen} of at most {window.most} entries{places}{since}, for a run without context"


# Items are pairs of a number and a message.
_MESSAGE = (
    Column("#", lambda numbered: str(numbered[0]), right=True),
    Column("ROLE", lambda numbered: numbered[1].role or NOTHING),
    Column("CARD", lambda numbered: short_id(numbered[1].card_id), spare=1),
    Column(
        "MESSAGE",
        lambda numbered: (
            flat(numbered[1].content) if numbered[1].state == "present" else f"({numbered[1].state} card)"
        ),
    ),
)
_RUN = (
    Column("RUN", lambda run: run.run_id),
    Column("STATUS", lambda run: run.status),
    Column("BEGAN", lambda run: time(run.started_at) or NOTHING),
    Column("ENDED", lambda run: time(run.ended_at) or NOTHING, spare=1),
    Column("ERROR", lambda run: one_line(run.error or NOTHING, 200)),
)
_STEP = (
    Column("#", lambda step: str(step.number), right=True),
    Column("STEP", lambda step: step.step_id),
    Column("RUN", lambda step: short_id(step.run_id)),
    Column("STATUS", lambda step: step.status),
    Column("BEGAN", lambda step: time(step.started_at) or NOTHING, spare=1),
)
