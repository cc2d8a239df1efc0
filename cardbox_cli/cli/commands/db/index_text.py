"""`cbx db index-text`."""

from cardbox_cli.cli.session import announce, session
from cardbox_cli.cli.terminal import output
from cardbox_cli.cli.verb import verb


@verb("cbx db index-text")
def command() -> None:
    """Build the index that makes searching for words fast. It slows imports down."""
    from cardbox_cli.store.cards import index_text as build

    with session().database() as database:
        build(database, announce)
    output.emit({"index": "idx_cards_text"}, table=lambda: output.print_text("idx_cards_text is there"))
