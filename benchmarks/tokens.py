"""Counting the tokens of 10,000 cards by OpenAI's tokenizer, against counting what was never seen before."""

from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.material import drafts
from benchmarks.measure import Row, Side, at_most
from benchmarks.workbench import Workbench
from cardbox_cli.model import tokens
from cardbox_cli.model.cards import card_text
from cardbox_cli.providers.models import tokenizer_for

_MODEL = "gpt-4o"


@contextmanager
def _again_against_first(bench: Workbench) -> Iterator[tuple[Side, Side]]:
    texts = [card_text(draft.content) for draft in drafts(10_000)]
    read: list[str] = []

    def read_anew() -> None:
        """As from a database: equal texts, but new strings, whose hashes nobody knows yet."""
        read[:] = [text[:1] + text[1:] for text in texts]

    def count() -> int:
        return sum(map(tokenizer_for(_MODEL).count, read))

    def seen() -> None:
        read_anew()
        count()
        read_anew()

    def forgotten() -> None:
        read_anew()
        tokens.encoding_tokenizer.cache_clear()
        tokenizer_for(_MODEL)

    yield Side(run=count, before=seen), Side(run=count, before=forgotten)


ROWS = [
    Row(
        name="tokens-again",
        what="count the tokens of 10,000 cards that were counted before",
        against="of cards that were not",
        target=at_most(0.1),
        rounds=20,
        prepare=_again_against_first,
    ),
]
