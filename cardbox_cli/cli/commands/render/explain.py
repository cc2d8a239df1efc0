"""What `cbx render --explain` and `--stats` print: where a request comes from, and what its parts take."""

import os
from typing import TYPE_CHECKING

from cardbox_cli.cli.terminal import output
from cardbox_cli.cli.terminal.columns import NOTHING
from cardbox_cli.cli.terminal.describe import short_rule, token_count
from cardbox_cli.cli.terminal.escaping import one_line
from cardbox_cli.context.formats import body_of
from cardbox_cli.context.inspection.explain import Explanation, LayerShare, MessageLine, explain, shares
from cardbox_cli.context.providers.registry import window
from cardbox_cli.context.request import Request
from cardbox_cli.model.ids import short_id, unique

if TYPE_CHECKING:
    from cardbox_cli.cli.commands.render.source import Shown

# Cells of a bar that stands for the whole request, where there is room for so many.
_WHOLE = 40
_SHARE_COLUMNS = ["LAYER", "MESSAGES", "CHARS", "TOKENS", "SHARE"]


def print_explained(shown: "Shown") -> None:
    """Print where each message comes from, and what was left out. With -o id: the cards that are messages."""
    request = shown.request
    told = explain(request)
    output.emit(
        {"request": body_of(request, shown.format), "explanation": told},
        table=lambda: _say(request, told),
        ids=unique(line.card_id for line in told.messages if line.card_id is not None),
    )


def print_stats(shown: "Shown") -> None:
    """Print what each layer takes. With -o id: the names of the layers."""
    request = shown.request
    told = explain(request)
    found = shares(told, window(request.model))
    output.emit_items(
        found, table=lambda: _say_shares(request, told, found), item_id=lambda share: share.layer
    )


def _say(request: Request, told: Explanation) -> None:
    output.facts(
        [
            ("model", request.model or "unknown"),
            ("process", told.process if told.process != "react" else None),
            ("layout", told.layout if told.layout != "default" else None),
            ("messages", str(len(told.messages))),
            ("tools", str(len(told.tools)) if told.tools else None),
            ("tokens", token_count(told.tokens, exact=told.tokens_exact)),
        ]
    )
    if told.messages:
        output.say()
        output.print_table(_COLUMNS, [_row(number, line) for number, line in enumerate(told.messages, 1)])
    if told.left_out:
        output.say()
        rows = [
            [short_id(left.card_id), short_id(left.box_id), str(left.position), left.reason]
            for left in told.left_out
        ]
        output.print_table(["LEFT OUT", "BOX", "AT", "WHY"], rows)
    if told.layers_left_out:
        output.say()
        output.print_table(
            ["LAYER LEFT OUT", "WHY"], [[left.layer, left.reason] for left in told.layers_left_out]
        )


_COLUMNS = ["#", "ROLE", "LAYER", "CARD", "BOX", "AT", "CHARS", "TOKENS", "RULE", "PREVIEW"]


def _row(number: int, line: MessageLine) -> list[str]:
    return [
        str(number),
        line.role,
        line.layer,
        _cards(line),
        short_id(line.box_id) if line.box_id else NOTHING,
        NOTHING if line.position is None else str(line.position),
        str(line.characters),
        token_count(line.tokens, exact=line.tokens_exact),
        short_rule(line.rule or NOTHING),
        one_line(line.preview, 60),
    ]


def _cards(line: MessageLine) -> str:
    """The card of a message, or the first of those that a layer was made of and how many more."""
    ids = [line.card_id] if line.card_id else line.made_of
    if not ids:
        return NOTHING
    return short_id(ids[0]) + (f"+{len(ids) - 1}" if len(ids) > 1 else "")


def _say_shares(request: Request, told: Explanation, found: list[LayerShare]) -> None:
    holds = window(request.model)
    about = "" if told.tokens_exact else "~"
    output.facts(
        [
            ("model", request.model or "unknown"),
            ("window", f"{holds} tokens, {about}{told.tokens / holds:.1%} taken" if holds else None),
            ("messages", str(len(told.messages))),
            ("tokens", token_count(told.tokens, exact=told.tokens_exact)),
        ]
    )
    if not found:
        return
    mark = "#" if os.environ.get("TERM") == "dumb" else "▇"
    rows = [
        [
            each.layer,
            str(each.messages),
            str(each.characters),
            token_count(each.tokens, exact=each.tokens_exact),
            f"{each.share:.1%}",
        ]
        for each in found
    ]
    whole = min(_WHOLE, output.room_beside(_SHARE_COLUMNS, rows))
    bars = [mark * max(round(each.share * whole), 1 if each.tokens else 0) for each in found]
    output.say()
    output.print_table([*_SHARE_COLUMNS, ""], [[*row, bar] for row, bar in zip(rows, bars, strict=True)])
