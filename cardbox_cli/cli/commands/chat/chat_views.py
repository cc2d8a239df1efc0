"""`cbx chat list, show, transcript` and `why`."""

from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument

from cardbox_cli.cli.commands.chat.chat_messages import open_chat_stores
from cardbox_cli.cli.options.shared_options import ChatKey, Limit, column_option
from cardbox_cli.cli.options.value_types import CHAT
from cardbox_cli.cli.project_database import open_database
from cardbox_cli.cli.session import session
from cardbox_cli.cli.terminal import output
from cardbox_cli.cli.terminal.table_layout import NOTHING, Column, choose_columns, print_below
from cardbox_cli.cli.verb import verb
from cardbox_cli.errors import Findings, NotFound
from cardbox_cli.model.ids import short_id
from cardbox_cli.model.pairing import PREVIEW
from cardbox_cli.text.escaping import escape_line, excerpt, flatten
from cardbox_cli.text.quantities import format_count
from cardbox_cli.text.times import format_age, format_time

if TYPE_CHECKING:
    from cardbox_cli.chat.chat_view import ChatView, TranscriptSummary
    from cardbox_cli.chat.memory_explanation import MemoryExplanation
    from cardbox_cli.model.chats import Entry


@verb(
    "list",
    "cbx chat list",
    "cbx chat list telegram-chat-42",
    "cbx chat list telegram-chat-42 -o json | jq -r '.[].title'",
    pages=True,
    reads=True,
)
def list_chats(
    key: Annotated[
        str | None,
        Argument(
            click_type=CHAT,
            metavar="[KEY]",
            help="List the archived contexts of this chat. Default: list the chats.",
        ),
    ] = None,
    limit: Limit = 50,
    columns: Annotated[str | None, column_option("chat,entries,used")] = None,
) -> None:
    """List the chats of the project, or the archived contexts of a chat, newest first."""
    from cardbox_cli.chat.chat_view import list_archives

    shown = choose_columns(_CHAT_COLUMNS if key is None else _ARCHIVE_COLUMNS, columns)
    with open_database() as database, database.snapshot():
        stores = open_chat_stores(database)
        if key is None:
            chats = stores.chats.all(limit=limit or None)
            empty = f"no chats in project {session().project_id!r}"
            output.emit_list(chats, columns=shown, item_id=lambda chat: chat.chat_key, empty=empty)
            return
        archives = list_archives(stores, key, limit=limit or None)
        empty = f"chat {escape_line(key)} has no archived context"
        output.emit_list(archives, columns=shown, item_id=lambda each: each.context_id, empty=empty)


_ARCHIVE_COLUMNS = (
    Column("CONTEXT", lambda archive: archive.context_id),
    Column("TITLE", lambda archive: excerpt(archive.title or NOTHING, PREVIEW)),
    Column("REASON", lambda archive: excerpt(archive.reason or NOTHING, PREVIEW), spare=1),
    Column("MESSAGES", lambda archive: str(archive.messages), right=True),
    Column("AGE", lambda archive: format_age(archive.archived_at), right=True),
    Column("LAST ANSWER", lambda archive: excerpt(archive.checkpoint_preview or NOTHING, PREVIEW)),
)
_CHAT_COLUMNS = (
    Column("CHAT", lambda chat: escape_line(chat.chat_key)),
    Column("ENTRIES", lambda chat: str(chat.entries), right=True),
    Column("CONTEXT", lambda chat: chat.context_id or NOTHING),
    Column("USED", lambda chat: format_age(chat.updated_at), right=True),
)


@verb(
    "show",
    "cbx chat show telegram-chat-42",
    "cbx chat show telegram-chat-42 -o json | jq -r '.messages[] | \"\\(.role): \\(.content)\"'",
    pages=True,
    reads=True,
)
def show_chat(key: ChatKey) -> None:
    """Show a chat on one page: its active context, its transcript and its last runs."""
    from cardbox_cli.chat.chat_view import read_chat_view

    with open_database() as database, database.snapshot():
        chat = read_chat_view(open_chat_stores(database), key)
    ids = [] if chat.context_id is None else [chat.context_id]
    output.emit(chat, table=lambda: _print_chat(chat), ids=ids)


def _print_chat(chat: "ChatView") -> None:
    output.facts(
        ("chat", escape_line(chat.chat_key)),
        ("context", _describe_context(chat)),
        ("box", chat.context_box_id),
        ("reset", None if chat.reset_by is None else f"{chat.reset_by}, {format_time(chat.reset_at)}"),
        ("archived", format_count(chat.archives, "context")),
        ("transcript", _describe_transcript(chat.transcript)),
        ("window", _describe_window(chat.transcript)),
        ("running", _describe_run(chat)),
    )
    print_below(_MESSAGE_COLUMNS, list(enumerate(chat.messages, 1)))
    print_below(_RUN_COLUMNS, chat.runs)
    print_below(_STEP_COLUMNS, chat.steps)


def _describe_context(chat: "ChatView") -> str:
    if chat.context_id is None:
        return "empty"
    loaded = "" if chat.loaded_from in (None, chat.context_id) else f", loaded from {chat.loaded_from}"
    return f"{chat.context_id}, {format_count(len(chat.messages), 'message')}{loaded}"


def _describe_run(chat: "ChatView") -> str | None:
    if chat.running is None:
        return None
    owner = escape_line(chat.owner or "nobody")
    return f"{chat.running}, by {owner}, lease until {format_time(chat.lease_expires_at)}"


def _describe_transcript(transcript: "TranscriptSummary") -> str:
    boxes = f" in {format_count(transcript.boxes, 'box')}, kept permanently" if transcript.entries else ""
    unanswered = f"; {transcript.unanswered} unanswered" if transcript.unanswered else ""
    return f"{format_count(transcript.entries, 'entry')}{boxes}{unanswered}"


def _describe_window(transcript: "TranscriptSummary") -> str:
    window = transcript.window
    count = window.last - window.first
    places = f", from {window.first} to {window.last - 1}" if count else ""
    since = f"; none before {window.start}" if window.start else ""
    return f"{count} of at most {window.most} entries{places}{since}, for a run without context"


# Items are pairs of a number and a message.
_MESSAGE_COLUMNS = (
    Column("#", lambda numbered: str(numbered[0]), right=True),
    Column("ROLE", lambda numbered: numbered[1].role or NOTHING),
    Column("CARD", lambda numbered: short_id(numbered[1].card_id), spare=1),
    Column(
        "MESSAGE",
        lambda numbered: (
            flatten(numbered[1].content) if numbered[1].state == "present" else f"({numbered[1].state} card)"
        ),
    ),
)
_RUN_COLUMNS = (
    Column("RUN", lambda run: run.run_id),
    Column("STATUS", lambda run: run.status),
    Column("BEGAN", lambda run: format_time(run.started_at) or NOTHING),
    Column("ENDED", lambda run: format_time(run.ended_at) or NOTHING, spare=1),
    Column("ERROR", lambda run: excerpt(run.error or NOTHING, 200)),
)
_STEP_COLUMNS = (
    Column("#", lambda step: str(step.number), right=True),
    Column("STEP", lambda step: step.step_id),
    Column("RUN", lambda step: short_id(step.run_id)),
    Column("STATUS", lambda step: step.status),
    Column("BEGAN", lambda step: format_time(step.started_at) or NOTHING, spare=1),
)


@verb(
    "transcript",
    "cbx chat transcript telegram-chat-42",
    "cbx chat transcript telegram-chat-42 --limit 0 -o jsonl",
    pages=True,
    reads=True,
)
def show_transcript(
    key: ChatKey, limit: Limit = 30, columns: Annotated[str | None, column_option("said,role,text")] = None
) -> None:
    """Print the last entries of a chat's transcript, in order: messages of users and sent replies."""
    from cardbox_cli.chat.chat_view import list_entries

    shown = choose_columns(_ENTRY_COLUMNS, columns)
    with open_database() as database, database.snapshot():
        entries = list_entries(open_chat_stores(database), key, limit=limit or None)
    output.emit_list(
        map(_entry_json, entries),
        columns=shown,
        item_id=lambda entry: entry["card_id"],
        empty=f"chat {escape_line(key)} has no messages",
    )


def _entry_json(entry: "Entry") -> dict[str, Any]:
    from cardbox_cli.model.chats import chat_metadata, message_time

    card = entry.card
    return {
        "position": entry.position,
        "role": entry.role,
        "text": entry.text,
        "card_id": entry.card_id,
        "state": "gone" if card is None else "present",
        "told": {} if card is None else chat_metadata(card),
        "said_at": None if card is None else message_time(card),
        "created_at": None if card is None else card.created_at,
    }


_ENTRY_COLUMNS = (
    Column("#", lambda entry: str(entry["position"]), right=True),
    Column("SAID", lambda entry: format_time(entry["said_at"]) or NOTHING, spare=1),
    Column("ROLE", lambda entry: entry["role"] or NOTHING),
    Column("TEXT", lambda entry: flatten(entry["text"]) if entry["state"] == "present" else "(card is gone)"),
)


@verb(
    "why",
    "cbx chat why telegram-chat-42-topic-7",
    "cbx chat why telegram-chat-42 'order 7'",
    "cbx chat why telegram-chat-42-topic-7 -o json | jq -r '.near[].chat_key'",
    pages=True,
    reads=True,
)
def explain_chat(
    key: ChatKey,
    words: Annotated[
        str | None, Argument(metavar="TEXT", help="Words that the chat should know: find where they are.")
    ] = None,
) -> None:
    """Explain what the next run of a chat remembers, or why it remembers nothing, or not these words.

    The most frequent cause is a different key: each topic has its own key. Exit code 0 if it remembers
    something and all the words, else 8.
    """
    from cardbox_cli.chat.memory_explanation import explain_memory

    with open_database() as database, database.snapshot():
        explanation = explain_memory(
            open_chat_stores(database), key, words, project_option=session().project_option
        )
    if not explanation.exists and not explanation.causes:
        raise NotFound(
            f"no chat {key!r} in project {session().project_id!r}, and none with a similar key",
            hint="list the chats with `cbx chat list`",
        )
    output.emit(
        explanation,
        table=lambda: _print_explanation(explanation),
        ids=[each.chat_key for each in explanation.near],
    )
    if not explanation.well:
        lacks = "starts without memory" if explanation.carries == "nothing" else f"does not see {words!r}"
        raise Findings(f"chat {escape_line(key)} {lacks}")


def _print_explanation(explanation: "MemoryExplanation") -> None:
    output.print_text(f"chat {escape_line(explanation.chat_key)}: {explanation.summary}")
    for cause in explanation.causes:
        output.print_text(f"{cause.cause}: {cause.proves}")
        if cause.fix is not None:
            output.print_text(f"  fix: {cause.fix}")
    print_below(_NEAR_COLUMNS, explanation.near)


_NEAR_COLUMNS = (
    Column("NEAR KEY", lambda near: escape_line(near.chat_key)),
    Column("ENTRIES", lambda near: str(near.entries), right=True),
    Column("CONTEXT", lambda near: "active" if near.has_context else NOTHING),
    Column("USED", lambda near: format_age(near.updated_at), right=True),
)
