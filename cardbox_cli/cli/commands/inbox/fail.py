"""`cbx inbox fail`."""

from typing import Annotated

from typer import Option

from cardbox_cli.cli.commands.inbox.claimed import Owner, give_back, owner_name
from cardbox_cli.cli.options.shared_options import InboxId
from cardbox_cli.cli.verb import verb


@verb("fail", "cbx inbox fail 1d5c8f72 --reason 'the file is gone'", renamed={"--error": "--reason"})
def fail_row(
    inbox: InboxId,
    reason: Annotated[str, Option(metavar="TEXT", help="Why it cannot be done.")],
    owner: Owner = None,
) -> None:
    """Give a claimed row back as dead. If it carries a turn, the turn ends as failed."""
    from cardbox_cli.execution.queue import claims

    give_back(inbox, claims.fail, owner=owner_name(owner), error=reason)
