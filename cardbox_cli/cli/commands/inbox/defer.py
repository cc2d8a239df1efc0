"""`cbx inbox defer`."""

from datetime import timedelta
from typing import Annotated

from typer import Option

from cardbox_cli.cli.commands.inbox.claimed import Owner, give_back, owner_name
from cardbox_cli.cli.options.shared_options import InboxId
from cardbox_cli.cli.options.value_types import Seconds
from cardbox_cli.cli.verb import verb


@verb("defer", "cbx inbox defer 1d5c8f72 --reason 'the service is down' --delay 30")
def defer_row(
    inbox: InboxId,
    reason: Annotated[str, Option(metavar="TEXT", help="Why it is to be tried again.")],
    delay: Annotated[
        float | None,
        Option(click_type=Seconds(min=0), help="Try again in so many seconds. Default: the backoff."),
    ] = None,
    owner: Owner = None,
) -> None:
    """Give a claimed row back, to be tried again later; after too many tries it is dead."""
    from cardbox_cli.execution.queue import claims

    wait = None if delay is None else timedelta(seconds=delay)
    give_back(
        inbox,
        lambda run, inbox_id: claims.defer(
            run, run.inbox.get(inbox_id), owner=owner_name(owner), reason=reason, delay=wait
        ),
    )
