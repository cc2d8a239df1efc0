"""`cbx db index-text`."""

from cardbox_cli.cli.session import announce, session
from cardbox_cli.cli.terminal import output
from cardbox_cli.cli.verb import verb


@verb("cbx db index-text")
def command() -> None:
    """Build the indexes that make searching fast. They slow imports down.

    One is of words, the other of pairs of characters in Chinese, Japanese and Korean.
    """
    from cardbox_cli.store.cards import index_text as build

    with session().database() as database:
        built = build(database, announce)
    there = f"{' and '.join(built)} {'is' if len(built) == 1 else 'are'} there"
    names = dict(zip(("index", "bigram_index"), [*built, None], strict=False))
    output.emit(names, table=lambda: output.print_text(there))
