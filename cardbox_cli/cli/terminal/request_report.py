"""Reports on LLM requests: the sources and tokens of a request, the difference of two, and an HTML page."""

from collections.abc import Container
from typing import TYPE_CHECKING, Any

from cardbox_cli.cli.terminal import output
from cardbox_cli.cli.terminal.list_columns import layer_label, short_or_nothing, short_rule
from cardbox_cli.cli.terminal.output import compare_texts
from cardbox_cli.cli.terminal.table_layout import NOTHING, Column, print_below, room_beside, text_or_nothing
from cardbox_cli.context.diff import Extent, Piece, RequestDiff, diff, piece_name
from cardbox_cli.context.explain import Explanation, LayerShare, MessageLine, shares
from cardbox_cli.context.request import Request
from cardbox_cli.errors import Findings
from cardbox_cli.execution.requests.step_snapshots import LOST_REASON, UNPROVED
from cardbox_cli.model import exact_json
from cardbox_cli.model.execution.turns import Step
from cardbox_cli.model.ids import short_id, unique
from cardbox_cli.providers.formats import body_of, provider_of
from cardbox_cli.providers.models import window
from cardbox_cli.settings import TERM
from cardbox_cli.text.escaping import excerpt, flatten
from cardbox_cli.text.quantities import format_count, format_tokens

if TYPE_CHECKING:
    from cardbox_cli.execution.requests.recorded_requests import RecordedRequests
    from cardbox_cli.execution.requests.step_snapshots import Verification
    from cardbox_cli.inspect.requests import InspectedRequest, Requests
    from cardbox_cli.pictures.request_picture import RequestPicture

# --- --explain and --stats

# The number of cells of a bar for the whole request, if there is room.
_MAX_BAR = 40


def print_explained(inspected: "InspectedRequest") -> None:
    """Print the source of each message, and the omitted parts. With -o id, print the messages' cards."""
    request = inspected.request
    explained = inspected.explanation()
    output.emit(
        {"request": body_of(request, inspected.format), "explanation": explained},
        table=lambda: _print_explanation(request, explained),
        ids=unique(line.card_id for line in explained.messages if line.card_id is not None),
    )


def print_stats(inspected: "InspectedRequest") -> None:
    """Print the tokens of each layer. With -o id, print the names of the layers."""
    request = inspected.request
    explained = inspected.explanation()
    layers = shares(explained, window(request.model))
    output.emit_items(
        layers, table=lambda: _print_shares(request, explained, layers), item_id=lambda share: share.layer
    )


def _print_explanation(request: Request, explained: Explanation) -> None:
    output.facts(
        ("model", request.model or "unknown"),
        ("process", explained.process if explained.process != "react" else None),
        ("layout", explained.layout if explained.layout != "default" else None),
        ("messages", str(len(explained.messages))),
        ("tools", str(len(explained.tools)) if explained.tools else None),
        ("tokens", format_tokens(explained.tokens, exact=explained.tokens_exact)),
    )
    print_below(_MESSAGE, list(enumerate(explained.messages, 1)))
    print_below(_LEFT_OUT, explained.left_out)
    print_below(_LAYER_LEFT_OUT, explained.layers_left_out)


def _cards(line: MessageLine) -> str:
    """Return the card of a message, or the first card of its layer and the number of further ones."""
    ids = [line.card_id] if line.card_id else line.made_of
    if not ids:
        return NOTHING
    return short_id(ids[0]) + (f"+{len(ids) - 1}" if len(ids) > 1 else "")


# The items are pairs of a number and a message.
_MESSAGE = (
    Column("#", lambda pair: str(pair[0]), right=True),
    Column("ROLE", lambda pair: pair[1].role, spare=2),
    Column("LAYER", lambda pair: layer_label(pair[1].layer)),
    Column("CARD", lambda pair: _cards(pair[1])),
    Column("BOX", lambda pair: short_or_nothing(pair[1].box_id), spare=3),
    Column("AT", lambda pair: text_or_nothing(pair[1].position), right=True, spare=4),
    Column("CHARS", lambda pair: str(pair[1].characters), right=True, spare=5),
    Column("TOKENS", lambda pair: format_tokens(pair[1].tokens, exact=pair[1].tokens_exact), right=True),
    Column("RULE", lambda pair: short_rule(pair[1].rule or NOTHING), spare=1),
    Column("PREVIEW", lambda pair: excerpt(pair[1].preview, 60), overflow="cut"),
)
_LEFT_OUT = (
    Column("LEFT OUT", lambda left: short_id(left.card_id)),
    Column("BOX", lambda left: short_id(left.box_id)),
    Column("AT", lambda left: str(left.position), right=True),
    Column("WHY", lambda left: left.reason),
)
_LAYER_LEFT_OUT = (
    Column("LAYER LEFT OUT", lambda left: layer_label(left.layer)),
    Column("WHY", lambda left: left.reason),
)
_SHARE = (
    Column("LAYER", lambda share: layer_label(share.layer)),
    Column("MESSAGES", lambda share: str(share.messages), right=True),
    Column("CHARS", lambda share: str(share.characters), right=True),
    Column("TOKENS", lambda share: format_tokens(share.tokens, exact=share.tokens_exact), right=True),
    Column("SHARE", lambda share: f"{share.share:.1%}", right=True),
)


def _print_shares(request: Request, explained: Explanation, layers: list[LayerShare]) -> None:
    holds = window(request.model)
    about = "" if explained.tokens_exact else "~"
    output.facts(
        ("model", request.model or "unknown"),
        ("window", f"{holds} tokens, {about}{explained.tokens / holds:.1%} taken" if holds else None),
        ("messages", str(len(explained.messages))),
        ("tokens", format_tokens(explained.tokens, exact=explained.tokens_exact)),
    )
    if not layers:
        return
    mark = "#" if TERM.text() == "dumb" else "▇"
    whole = min(_MAX_BAR, room_beside(_SHARE, layers))
    bar = Column("", lambda share: mark * max(round(share.share * whole), 1 if share.tokens else 0))
    print_below([*_SHARE, bar], layers)


# --- --diff and --verify: where two requests part, and whether the cards still make one


# The number of characters shown of a part that has no counterpart in the other request.
_MAX_SHOWN = 200
# The number of characters of a hash that are enough to distinguish two texts.
_HASH = 12
# The answer for a step whose cards still produce its request, by the type of comparison.
_SAME = {
    "sha256": "the cards make the same request, to the byte",
    "rest_sha256": "the cards make the same request, except for layers of that call alone, to the byte",
    "messages": "nothing differs from its request box, which does not prove what was sent",
}


def print_diff(a: "InspectedRequest", b: "InspectedRequest") -> None:
    """Print the first difference. Raises Findings unless `b` only has new messages.

    With -o id, print the cards of these messages, or of the first difference.
    """
    comparison = diff(a.request, b.request, provider_of(a.format))
    answer: dict[str, Any] = {
        "a": a.name,
        "b": b.name,
        "equal": comparison.equal,
        "continues": comparison.continues,
        "kept": comparison.kept,
        "difference": comparison.difference,
        "new": comparison.new,
        "a_after": comparison.a_after,
        "b_after": comparison.b_after,
        "lost_layers": {"a": comparison.a_lost, "b": comparison.b_lost},
    }
    output.emit(answer, table=lambda: _print_parting(a, b, comparison), ids=_card_ids(comparison))
    if not comparison.equal and not comparison.continues:
        raise Findings(f"the requests differ: {_consequence(comparison)}")


def print_verified(turn_id: str, step: Step, verified: "Verification") -> None:
    """Print whether the cards still produce a step's request. With -o id, print its box. Raises Findings."""
    comparison = verified.difference
    answer: dict[str, Any] = {
        "agent_turn_id": turn_id,
        "step_id": step.step_id,
        "request_box_id": step.request_box_id,
        "equal": verified.equal,
        "compared_by": verified.compared_by,
        "lost_layers": verified.lost,
        "unproved": UNPROVED if verified.compared_by == "messages" else None,
        "reasons": verified.reasons,
        "kept": comparison.kept,
        "difference": (pair := comparison.difference) and {"stored": pair.a, "composed": pair.b},
    }
    output.emit(answer, table=lambda: _print_verified(step, verified), ids=[step.request_box_id or ""])
    if not verified.equal:
        raise Findings(f"the cards no longer reproduce the request of {step.step_id}")


def _consequence(comparison: RequestDiff) -> str:
    if comparison.a_after.messages or comparison.a_after.tokens:
        return f"a cache loses {_extent(comparison.a_after)} of the first"
    if comparison.b_after.messages or comparison.b_after.tokens:
        return f"the second has {_extent(comparison.b_after)} more, and not in messages alone"
    return "no cache depends on it"


def _print_parting(a: "InspectedRequest", b: "InspectedRequest", comparison: RequestDiff) -> None:
    if comparison.equal:
        output.print_text(f"equal: {_extent(comparison.kept)}")
    elif comparison.continues:
        _print_new(a.name, b.name, comparison)
    else:
        output.facts(("kept", _extent(comparison.kept)))
        _print_difference(a.name, b.name, comparison)
        output.print_text()
        output.facts(
            ("lost", f"{_extent(comparison.a_after)}: the first from there on"),
            ("new", f"{_extent(comparison.b_after)}: the second from there on"),
        )
    _print_lost(a, comparison.a_lost)
    _print_lost(b, comparison.b_lost)


def _print_new(a: str, b: str, comparison: RequestDiff) -> None:
    output.facts(
        ("kept", f"{_extent(comparison.kept)}: all of {a}"),
        ("new", f"{_extent(comparison.b_after)}: {b} continues where that ends"),
    )
    for piece in comparison.new:
        output.print_painted([("bold", flatten(f"+++ {_place(piece)}"))])
        if _beginning(piece):
            output.print_painted(compare_texts("", _beginning(piece)))


def _print_lost(inspected: "InspectedRequest", lost: Container[str]) -> None:
    for layer in inspected.request.layers_left_out:
        if layer.layer in lost:
            output.print_text(
                f"- the layer {layer.layer} of {inspected.name} was compared by its hash, its tokens are not "
                f"counted: {layer.reason}"
            )


def _print_verified(step: Step, verified: "Verification") -> None:
    comparison = verified.difference
    if verified.equal:
        output.print_text(f"{step.step_id}: {_SAME[verified.compared_by]}: {_extent(comparison.kept)}")
        _print_uncompared(verified)
        return
    output.facts(("step", step.step_id), ("kept", _extent(comparison.kept)))
    if comparison.difference is not None:
        _print_difference("stored", "composed again", comparison)
    for reason in verified.reasons:
        output.print_text(f"- {reason}")
    _print_uncompared(verified)


def _print_uncompared(verified: "Verification") -> None:
    for name in verified.lost:
        output.print_text(f"- the layer {name} was not compared: {LOST_REASON}")
    if verified.compared_by == "messages":
        output.print_text(f"- not proved: {UNPROVED}")


def _print_difference(a: str, b: str, comparison: RequestDiff) -> None:
    assert comparison.difference is not None
    one, other = comparison.difference.a, comparison.difference.b
    output.print_painted([("bold", flatten(f"--- {a}  {_place(one)}"))])
    output.print_painted([("bold", flatten(f"+++ {b}  {_place(other)}"))])
    if one is not None and other is not None and one.sha256 is None and other.sha256 is None:
        output.print_painted(compare_texts(_text_or_difference(one), _text_or_difference(other)))
    elif _beginning(one) or _beginning(other):
        output.print_painted(compare_texts(_beginning(one), _beginning(other)))


def _text_or_difference(piece: Piece) -> str:
    # Two parts with the same text differ in other fields.
    return piece.text if piece.differing is None else exact_json.encode(piece.differing).decode()


def _place(piece: Piece | None) -> str:
    if piece is None:
        return "(nothing)"
    parts = [
        piece_name(piece.section, piece.number),
        piece.role,
        piece.layer,
        ", ".join(f"card {short_id(card_id)}" for card_id in piece.card_ids) or None,
        None if piece.sha256 is None else f"its text is not known, SHA-256 {piece.sha256[:_HASH]}…",
    ]
    return ", ".join(part for part in parts if part)


def _beginning(piece: Piece | None) -> str:
    return "" if piece is None else excerpt(piece.text, _MAX_SHOWN)


def _card_ids(comparison: RequestDiff) -> list[str]:
    if comparison.continues:
        return unique(card_id for piece in comparison.new for card_id in piece.card_ids)
    if comparison.difference is None:
        return []
    piece = comparison.difference.b or comparison.difference.a
    return [] if piece is None else piece.card_ids


def _extent(extent: Extent) -> str:
    tokens = format_tokens(extent.tokens, exact=extent.tokens_exact)
    uncounted = f" and those of {format_count(extent.uncounted, 'unknown text')}" if extent.uncounted else ""
    return f"{format_count(extent.messages, 'message')}, {tokens} tokens{uncounted}"


# --- --format html: the request as a page, with how the turn's requests grew to it


# The maximum number of steps in the picture. They are the last steps.
_MAX_STEPS = 100


def draw_request(
    requests: "Requests", inspected: "InspectedRequest", turn: "RecordedRequests | None"
) -> "RequestPicture":
    """Return the picture of a request. If it belongs to a turn, include the turn's earlier requests."""
    from cardbox_cli.pictures.request_picture import RequestPicture, StepPicture

    steps = [] if turn is None else requests.sent_before(turn, inspected.step_id, most=_MAX_STEPS)
    return RequestPicture(
        name=inspected.name,
        model=inspected.request.model,
        window=window(inspected.request.model),
        account=inspected.explanation(),
        findings=inspected.findings(),
        steps=[StepPicture(name=f"step {each.number}", account=each.account) for each in steps],
    )


def print_page(picture: "RequestPicture") -> None:
    from cardbox_cli.pictures.request_picture import request_page

    output.write(request_page(picture), end="")
