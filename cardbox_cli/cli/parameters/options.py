"""The arguments and options that commands share: how rows, files and reasons are named on a command line.

What only lists take is `lists.py`'s and `watch.py`'s.
"""

from typing import Annotated

import typer

from cardbox_cli.cli.parameters.inputs import check_choice, check_seconds
from cardbox_cli.conversations.formats import format_names

_AN_ID = "An id, 4 or more characters of its beginning or end"

CardId = Annotated[str, typer.Argument(metavar="CARD", help=f"{_AN_ID}, or @last.")]
BoxId = Annotated[str, typer.Argument(metavar="BOX", help=f"{_AN_ID}, or @last.")]
TurnId = Annotated[str, typer.Argument(metavar="TURN", help=f"{_AN_ID}, or @last.")]
InboxId = Annotated[str, typer.Argument(metavar="INBOX", help=f"{_AN_ID}.")]

ExpectEpoch = Annotated[
    int, typer.Option(metavar="N", help="The epoch that you saw; refused when it is another.")
]
Reason = Annotated[str, typer.Option(metavar="TEXT", help="Why; kept in the audit.")]
OptionalReason = Annotated[str | None, typer.Option(metavar="TEXT", help="Why; kept in the audit.")]

EndTimeout = Annotated[
    float | None,
    typer.Option(
        metavar="S", min=0, callback=check_seconds, help="Wait for so many seconds at most; then exit 124."
    ),
]

AUTO = "auto"

ConversationFile = Annotated[
    str, typer.Argument(metavar="FILE", help="JSON or JSONL, one conversation or many; - for stdin.")
]
SourceFormat = Annotated[
    str,
    typer.Option("--from", metavar="|".join((*format_names(), AUTO)), help="Its format; auto finds out."),
]
MessagesKey = Annotated[
    str | None,
    typer.Option(metavar="KEY", help="The key of the messages, dotted if nested. Default: found by itself."),
]


def source_format(given: str) -> str | None:
    """The format that --from names; None to find it out. Raises UsageError for one that nobody knows."""
    check_choice(given, "--from", (*format_names(), AUTO), what="format")
    return None if given == AUTO else given
