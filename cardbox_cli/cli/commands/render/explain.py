"""What `cbx render --explain` and `--stats` print: where a request comes from, and what its parts take."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from cardbox_cli.cli.terminal import output
from cardbox_cli.cli.terminal.reports.describe import short_rule
from cardbox_cli.cli.terminal.tables.layout import NOTHING, Column, print_below, room_beside
from cardbox_cli.context.explain import Explanation, LayerShare, MessageLine, explain, shares
from cardbox_cli.context.request import Request
from cardbox_cli.model.ids import short_id, unique
from cardbox_cli.model.text.escaping import one_line
from cardbox_cli.model.text.quantities import token_count
from cardbox_cli.providers.formats import body_of, provider_of
from cardbox_cli.providers.models import window
from cardbox_cli.settings import TERM

if TYPE_CHECKING:
    from cardbox_cli.cli.parameters.requests import Shown

# Cells of a bar that stands for the whole request, where there is room for so many.
_WHOLE = 40


def print_explained(shown: "Shown") -> None:
    """Print where each message comes from, and what was left out. With -o id: the cards that are messages."""
    request = shown.request
    explained = explain(request, provider_of(shown.format))
    output.emit(
        {"request": body_of(request, shown.format), "explanation": explained},
        table=lambda: _print_text(request, explained),
        ids=unique(line.card_id for line in explained.messages if line.card_id is not None),
    )


def print_stats(shown: "Shown") -> None:
    """Print what each layer takes. With -o id: the names of the layers."""
    request = shown.request
    explained = explain(request, provider_of(shown.format))
    found = shares(explained, window(request.model))
    output.emit_items(
        found, table=lambda: _print_shares(request, explained, found), item_id=lambda share: share.layer
    )


def _print_text(request: Request, explained: Explanation) -> None:
    output.facts(
        ("model", request.model or "unknown"),
        ("process", explained.process if explained.process != "react" else None),
        ("layout", explained.layout if explained.layout != "default" else None),
        ("messages", str(len(explained.messages))),
        ("tools", str(len(explained.tools)) if explained.tools else None),
        ("tokens", token_count(explained.tokens, exact=explained.tokens_exact)),
    )
    print_below(_MESSAGE, list(enumerate(explained.messages, 1)))
    print_below(_LEFT_OUT, explained.left_out)
    print_below(_LAYER_LEFT_OUT, explained.layers_left_out)


def _message(text: Callable[[MessageLine], str]) -> Callable[[tuple[int, MessageLine]], str]:
    return lambda numbered: text(numbered[1])


def _cards(line: MessageLine) -> str:
    """The card of a message, or the first of those that a layer was made of and how many more."""
    ids = [line.card_id] if line.card_id else line.made_of
    if not ids:
        return NOTHING
    return short_id(ids[0]) + (f"+{len(ids) - 1}" if len(ids) > 1 else "")


def _known(number: int | None) -> str:
    return NOTHING if number is None else str(number)


# Items are pairs of a number and a message.
_MESSAGE = (
    Column("#", lambda numbered: str(numbered[0]), right=True),
    Column("ROLE", _message(lambda line: line.role), spare=2),
    Column("LAYER", _message(lambda line: line.layer)),
    Column("CARD", _message(_cards)),
    Column("BOX", _message(lambda line: short_id(line.box_id) if line.box_id else NOTHING), spare=3),
    Column("AT", _message(lambda line: _known(line.position)), right=True, spare=4),
    Column("CHARS", _message(lambda line: str(line.characters)), right=True, spare=5),
    Column("TOKENS", _message(lambda line: token_count(line.tokens, exact=line.tokens_exact)), right=True),
    Column("RULE", _message(lambda line: short_rule(line.rule or NOTHING)), spare=1),
    Column("PREVIEW", _message(lambda line: one_line(line.preview, 60)), overflow="cut"),
)
_LEFT_OUT = (
    Column("LEFT OUT", lambda left: short_id(left.card_id)),
    Column("BOX", lambda left: short_id(left.box_id)),
    Column("AT", lambda left: str(left.position), right=True),
    Column("WHY", lambda left: left.reason),
)
_LAYER_LEFT_OUT = (Column("LAYER LEFT OUT", lambda left: left.layer), Column("WHY", lambda left: left.reason))
_SHARE = (
    Column("LAYER", lambda share: share.layer),
    Column("MESSAGES", lambda share: str(share.messages), right=True),
    Column("CHARS", lambda share: str(share.characters), right=True),
    Column("TOKENS", lambda share: token_count(share.tokens, exact=share.tokens_exact), right=True),
    Column("SHARE", lambda share: f"{share.share:.1%}", right=True),
)


def _print_shares(request: Request, explained: Explanation, found: list[LayerShare]) -> None:
    holds = window(request.model)
    about = "" if explained.tokens_exact else "~"
    output.facts(
        ("model", request.model or "unknown"),
        ("window", f"{holds} tokens, {about}{explained.tokens / holds:.1%} taken" if holds else None),
        ("messages", str(len(explained.messages))),
        ("tokens", token_count(explained.tokens, exact=explained.tokens_exact)),
    )
    if not found:
        return
    mark = "#" if TERM.text() == "dumb" else "▇"
    whole = min(_WHOLE, room_beside(_SHARE, found))
    bar = Column("", lambda share: mark * max(round(share.share * whole), 1 if share.tokens else 0))
    print_below([*_SHARE, bar], found)
