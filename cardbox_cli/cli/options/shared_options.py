"""The arguments and options that several commands share: rows, files, times and reasons."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Annotated, Any

from typer import Argument, Option

from cardbox_cli.cli.options.value_types import (
    AGENT,
    BATCH,
    BOX,
    CARD,
    CHAT,
    FILE,
    INBOX_ROW,
    TOOL,
    TURN,
    OneOf,
    Seconds,
)
from cardbox_cli.errors import UsageError
from cardbox_cli.text.error_messages import conflict_message
from cardbox_cli.text.times import parse_time

_AN_ID = "Full id, or a unique part of 4 or more characters at its start or end"

CardId = Annotated[str, Argument(click_type=CARD, help=f"{_AN_ID}, or @last.")]
CardIds = Annotated[
    list[str],
    Argument(click_type=CARD, help="Full ids, or unique parts at their start or end, or @last."),
]
BoxId = Annotated[str, Argument(click_type=BOX, help=f"{_AN_ID}, or @last.")]
TurnId = Annotated[str, Argument(click_type=TURN, help=f"{_AN_ID}, or @last.")]
BatchId = Annotated[str, Argument(click_type=BATCH, help=f"{_AN_ID}, or @last.")]
LastTurnId = Annotated[str, Argument(click_type=TURN, help=f"{_AN_ID}. Default: @last.")]
ToolName = Annotated[str, Argument(click_type=TOOL, help="The tool's name.")]
ChatKey = Annotated[
    str,
    Argument(click_type=CHAT, help="The chat's key, such as telegram-chat-42 or telegram-chat-42-topic-7."),
]
InboxId = Annotated[str, Argument(click_type=INBOX_ROW, help=f"{_AN_ID}.")]

ExpectEpoch = Annotated[int, Option(metavar="N", help="Fail unless the turn is still at this epoch.")]
Reason = Annotated[str, Option(metavar="TEXT", help="The reason, for the audit log.")]
OptionalReason = Annotated[str | None, Option(metavar="TEXT", help="The reason, for the audit log.")]

Again = Annotated[bool, Option("--again", help="Also if another retry of the turn runs or has succeeded.")]

ForceCard = Annotated[
    bool, Option("--force", help="Also change cards used by unfinished turns (recorded in the audit log).")
]

Since = Annotated[
    str | None, Option(metavar="TIME", help="Only from this time on: RFC 3339, or 2h for two hours ago.")
]
Until = Annotated[
    str | None, Option(metavar="TIME", help="Only before this time: RFC 3339, or 30m for 30 minutes ago.")
]
# More than the length of any list, and within the integer range of the database.
MAX_COUNT = 1_000_000_000
Limit = Annotated[
    int, Option("--limit", "-n", metavar="N", min=0, max=MAX_COUNT, help="Show at most N items; 0 shows all.")
]
Latest = Annotated[
    int,
    Option(
        metavar="N",
        min=0,
        max=MAX_COUNT,
        help="Search the N most recently changed boxes; 0 searches all.",
        show_default=True,
    ),
]
OfAgent = Annotated[str | None, Option("--agent", click_type=AGENT, help="Show only items of this agent.")]


def column_option(example: str) -> Any:
    return Option("--columns", metavar="COLUMNS", help=f"Show only these columns, for example {example}.")


Watch = Annotated[bool, Option("--watch", "-w", help="Refresh every second until Ctrl-C.")]
Interval = Annotated[float, Option(click_type=Seconds(min=0.1), help="With --watch: time between refreshes.")]

EndTimeout = Annotated[
    float | None, Option(click_type=Seconds(min=0), help="Wait at most this long, then exit 124.")
]


def check_waiting(timeout: float | None, *, wait: bool, dry_run: bool = False) -> None:
    """Raise UsageError for --timeout without --wait, and for --wait with --dry-run."""
    if timeout is not None and not wait:
        raise UsageError("--timeout requires --wait", hint="add --wait, or remove --timeout")
    if wait and dry_run:
        raise UsageError(conflict_message("--wait", "--dry-run"), hint="remove one of them")


AUTO = "auto"


def _source_formats() -> Iterable[str]:
    from cardbox_cli.conversations.formats.registry import format_names

    return (*format_names(), AUTO)


ConversationFiles = Annotated[
    list[str],
    Argument(click_type=FILE, help="JSON or JSONL files, also gzipped, or folders of them; - for stdin."),
]
SourceFormat = Annotated[
    str,
    Option(
        "--from",
        click_type=OneOf(_source_formats, what="format"),
        help="The format of the files; auto detects it.",
    ),
]
MessagesKey = Annotated[
    str | None, Option(metavar="KEY", help="The key of the messages, dotted if nested. Default: detected.")
]


# --- the values of --since and --until


Moment = datetime | timedelta | None


def parse_span(since: str | None, until: str | None) -> tuple[Moment, Moment]:
    """Return the times of --since and --until. Raises UsageError if --since is later.

    A time is not compared with a duration, because the current time is known only to the database.
    """
    start, end = parse_time(since, "--since"), parse_time(until, "--until")
    if isinstance(start, datetime) and isinstance(end, datetime):
        empty = start > end
    else:
        empty = isinstance(start, timedelta) and isinstance(end, timedelta) and start < end
    if empty:
        raise UsageError(
            f"--since {since!r} is later than --until {until!r}", hint="pass the earlier time to --since"
        )
    return start, end
