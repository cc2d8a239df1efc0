"""`cbx db index-text`."""

from cardbox_cli.cli.project_database import open_database
from cardbox_cli.cli.standard_streams import announce
from cardbox_cli.cli.terminal import output
from cardbox_cli.cli.verb import verb


@verb("index-text", "cbx db index-text")
def index_text() -> None:
    """Build the indexes that make searching fast. They slow imports down.

    One is of words, the other of pairs of characters in Chinese, Japanese and Korean.
    """
    from cardbox_cli.store.card_search import index_text as build_indexes

    with open_database() as database:
        built = build_indexes(database, announce)
    there = f"{' and '.join(built)} {'is' if len(built) == 1 else 'are'} there"
    names = dict(zip(("index", "bigram_index"), [*built, None], strict=False))
    output.emit(names, table=lambda: output.print_text(there))
