"""`python -m benchmarks.token_error [FILE…]`: how far the estimate of tokens is from OpenAI's tokenizers.

Measures this project's code and pages, one report in nine languages, and the conversations of FILEs in any
format that can be imported. Prints the table of `docs/reference/tokens.md`.
"""

import sys
import tomllib
from collections.abc import Iterator, Sequence
from itertools import chain, groupby
from pathlib import Path
from typing import NamedTuple

from benchmarks.measure import ROOT
from cardbox_cli.context.messages import never_a_message
from cardbox_cli.conversations.conversation_cards import drafts_of
from cardbox_cli.conversations.formats.registry import choose_format
from cardbox_cli.conversations.json_documents import JsonDocuments, JsonSource
from cardbox_cli.model import exact_json
from cardbox_cli.model.cards import CardDraft, card_text
from cardbox_cli.model.tokens import ESTIMATING_TOKENIZER
from cardbox_cli.providers.models import tokenizer_for

# One of each tokenizer; the first says how many characters a token has.
MODELS = ("gpt-4o", "gpt-4")
_OWN = {"Python": "cardbox_cli/**/*.py", "SQL": "cardbox_cli/**/*.sql", "Markdown": "docs/*.md"}


class Sample(NamedTuple):
    """Texts of one kind, none of them empty."""

    kind: str
    texts: list[str]


def main(files: Sequence[str]) -> None:
    """Print the table for what is built in and `files`."""
    print(f"| what | texts | characters | per token | {' | '.join(MODELS)} |")
    print("|---|---|---|---|" + "---|" * len(MODELS))
    for sample in chain(_own(), *(_conversations(Path(file)) for file in files)):
        print(_row(sample))


def _row(sample: Sample) -> str:
    characters, first = sum(map(len, sample.texts)), tokenizer_for(MODELS[0])
    per_token = characters / sum(map(first.count, sample.texts))
    errors = " | ".join(_error(sample.texts, model) for model in MODELS)
    return f"| {sample.kind} | {len(sample.texts)} | {characters:,} | {per_token:.1f} | {errors} |"


def _error(texts: Sequence[str], model: str) -> str:
    """The error in total, and where there are many texts those of the middle 9 in 10."""
    estimates = list(map(ESTIMATING_TOKENIZER.count, texts))
    counts = list(map(tokenizer_for(model).count, texts))
    total = f"{sum(estimates) / sum(counts) - 1:+.0%}"
    if len(texts) < 20:
        return total
    errors = sorted(about / right - 1 for about, right in zip(estimates, counts, strict=True))
    cut = len(errors) // 20
    return f"{total} ({errors[cut]:+.0%} to {errors[-1 - cut]:+.0%})"


def _own() -> Iterator[Sample]:
    for kind, pattern in _OWN.items():
        yield Sample(kind, [path.read_text() for path in sorted(ROOT.glob(pattern)) if path.stat().st_size])
    reports = tomllib.loads((ROOT / "benchmarks" / "languages.toml").read_text())
    for language, text in reports.items():
        yield Sample(language, [text])


def _conversations(file: Path) -> Iterator[Sample]:
    with file.open("rb") as opened:
        documents = JsonDocuments(JsonSource(opened, file.name))
        conversations = [
            [card for drafted in drafts_of(conversation, "bench") for card in drafted.cards]
            for conversation in choose_format(None, documents).format.read(documents)
        ]
    said = [[(_kind(card), _text(card)) for card in cards if _text(card)] for cards in conversations]
    by_kind = sorted(chain(*said), key=lambda pair: pair[0])
    for kind, group in groupby(by_kind, key=lambda pair: pair[0]):
        yield Sample(f"{file.stem}: {kind}", [text for _, text in group])
    yield Sample(f"{file.stem}: whole conversations", ["".join(text for _, text in cards) for cards in said])


def _kind(card: CardDraft) -> str:
    if card.tool_calls:
        return "tool calls"
    return "tool results" if card.type == "tool.result" else "prose"


def _text(card: CardDraft) -> str:
    """What a card says, as `card_tokens` counts it; nothing for one that is no message."""
    if never_a_message(card) is not None:
        return ""
    calls = exact_json.encode(card.tool_calls).decode() if card.tool_calls else ""
    return card_text(card.content) + calls


if __name__ == "__main__":
    main(sys.argv[1:])
