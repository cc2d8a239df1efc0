"""`cbx card search`."""

from typing import Annotated

from typer import Argument

from cardbox_cli.cli.commands.card.listing import CardTypes, list_cards
from cardbox_cli.cli.parameters.options import ColumnNames, Limit
from cardbox_cli.cli.verb import verb
from cardbox_cli.errors import UsageError


@verb("cbx card search 'payment timeout'", "cbx card search 超时 --type tool.result", pages=True)
def command(
    words: Annotated[
        list[str],
        Argument(
            metavar="TEXT...",
            help='Words, "a phrase", -word, or; for Chinese, Japanese and Korean any piece of the text.',
        ),
    ],
    limit: Limit = 50,
    types: CardTypes = None,
    columns: ColumnNames = None,
) -> None:
    """Find cards by what they say, newest first. Whole words, in any case."""
    from cardbox_cli.store.cards import CardFilter

    text = " ".join(words)
    if not text.strip():
        raise UsageError("there is nothing to search for", hint="give a word")
    list_cards(CardFilter(text=text, types=types or None), limit, columns)
