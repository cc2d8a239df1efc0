"""The words in which layers say what was collected for them: pure, and "" where there is nothing to say."""

from collections.abc import Iterable, Sequence

from cardbox_cli.model.cards import Card, card_text
from cardbox_cli.model.todo import TodoItem

# How much of one card a search brings into a layer, in characters.
_LONGEST = 2000


def todo_text(items: Iterable[TodoItem]) -> str:
    """A todo list, a line for each item."""
    return _listed("Todo list:", [f"- [{'x' if item.done else ' '}] {item.text}" for item in items])


def knowledge_text(query: str, cards: Sequence[Card]) -> str:
    """What was found for the words of a search."""
    return _listed(f"Found in the project for {query!r}:", [_cut(card) for card in cards])


def experience_text(cards: Sequence[Card]) -> str:
    """What came of earlier turns."""
    return _listed("Results of earlier turns:", [_cut(card) for card in cards])


def _listed(heading: str, lines: Sequence[str]) -> str:
    return "\n".join([heading, *lines]) if lines else ""


def _cut(card: Card) -> str:
    said = card_text(card.content)
    if len(said) <= _LONGEST:
        return f"- {said}"
    return f"- {said[:_LONGEST]}… ({len(said) - _LONGEST} characters more)"
