"""`cbx inbox ack`."""

from cardbox_cli.cli.commands.inbox.claimed import Owner, give_back, owner_name
from cardbox_cli.cli.options.shared_options import InboxId
from cardbox_cli.cli.verb import verb


@verb("ack", "cbx inbox ack 1d5c8f72")
def ack_row(inbox: InboxId, owner: Owner = None) -> None:
    """Give a claimed row back as done. If it carries a turn, the turn ends with success."""
    from cardbox_cli.execution.queue import claims

    give_back(inbox, claims.ack, owner=owner_name(owner))
