"""The texts of layers that are collected, `todo__context` and its like, as a model reads them.

Pure. Which items and cards these are is the collector's affair; their order is kept. Of nothing they
make "".
"""

from collections.abc import Iterable, Sequence
from typing import Any

from cardbox_cli.model import exact_json
from cardbox_cli.model.cards import Card, card_text
from cardbox_cli.model.todo import TodoItem
from cardbox_cli.text import indented

# Of one card a layer has so many characters at most: it is a hint, and the request holds more than it.
LONGEST = 2000


def todo_text(items: Sequence[TodoItem]) -> str:
    """A todo list, a line for each item and further lines of it indented."""
    lines = [_entry(f"- [{'x' if item.done else ' '}] ", item.text) for item in items]
    return "\n".join(["Todo list:", *lines]) if lines else ""


def knowledge_text(query: str, cards: Sequence[Card]) -> str:
    """What was found for the words of `query`, each card's text cut at LONGEST characters."""
    return _listed(f"What this project knows about {exact_json.encode(query).decode()}:", cards)


def experience_text(cards: Sequence[Card]) -> str:
    """The results of earlier turns, each cut at LONGEST characters."""
    return _listed("Results of your earlier work, the newest first:", cards)


def _listed(heading: str, cards: Iterable[Card]) -> str:
    # A last thought and the deliverable that was made of it have one text.
    texts = dict.fromkeys(text for text in map(_text, cards) if text)
    entries = [_entry(f"[{number}] ", text) for number, text in enumerate(map(_bounded, texts), 1)]
    return "\n\n".join([heading, *entries]) if entries else ""


def _entry(mark: str, text: str) -> str:
    """`text` behind its mark, further lines below it: no line of it passes for one of another's."""
    return mark + indented(text, " " * len(mark)).removeprefix(" " * len(mark))


def _text(card: Card) -> str:
    calls = card.tool_calls if isinstance(card.tool_calls, list) else []
    parts = (card_text(card.content).strip(), *map(_call, calls))
    return "\n".join(part for part in parts if part)


def _call(call: Any) -> str:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        return ""
    return f"called {function.get('name')} with {function.get('arguments')}"


def _bounded(text: str) -> str:
    more = len(text) - LONGEST
    return text if more <= 0 else f"{text[:LONGEST]}… (and {more:,} more characters)"
