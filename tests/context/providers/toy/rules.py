"""The rules of the toy: those that it shares, and its own."""

from collections.abc import Iterator

from cardbox_cli.context.lint import contents, economy, exchanges
from cardbox_cli.context.lint.rule import Hit, Rules
from cardbox_cli.context.lint.subject import Subject

_OWN = Rules("Toy docs, Tone")


@_OWN.error("shouting")
def _shouting(subject: Subject) -> Iterator[Hit]:
    """Text in capitals."""
    for entry, _, message in subject.history.messages:
        if message.body["content"].isupper():
            yield entry, "somebody shouts"


RULES = (
    *exchanges.RULES.by("Toy docs"),
    *contents.RULES.by("Toy docs"),
    *_OWN,
    *economy.LIMITS.by("Toy docs"),
)
