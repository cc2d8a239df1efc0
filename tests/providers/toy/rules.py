"""The rules of the toy: those that it shares, and its own."""

from collections.abc import Iterator

from cardbox_cli.context.lint import card_rules, request_rules
from cardbox_cli.context.lint.rule import Hit, Rules, Subject

_OWN = Rules("Toy docs, Tone")


@_OWN.error("shouting")
def _shouting(subject: Subject) -> Iterator[Hit]:
    """Text in capitals."""
    for entry, _, message in subject.history.messages:
        if message.body["content"].isupper():
            yield entry, "somebody shouts"


RULES = (
    *card_rules.EXCHANGES.cite("Toy docs"),
    *card_rules.CARDS.cite("Toy docs"),
    *_OWN,
    *request_rules.LIMITS.cite("Toy docs"),
)
