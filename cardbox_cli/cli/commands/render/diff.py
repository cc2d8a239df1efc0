"""What `cbx render --diff` and `--verify` print: where two part, and whether the cards still make one."""

from collections.abc import Container
from typing import TYPE_CHECKING, Any

from cardbox_cli.cli.terminal import output
from cardbox_cli.cli.terminal.word_diff import compared
from cardbox_cli.context.diff import Extent, Piece, RequestDiff, diff, piece_name
from cardbox_cli.errors import Findings
from cardbox_cli.execution.requests.step_snapshots import LOST, UNPROVED
from cardbox_cli.model import exact_json
from cardbox_cli.model.execution.turns import Step
from cardbox_cli.model.ids import short_id, unique
from cardbox_cli.model.text.escaping import flat, one_line
from cardbox_cli.model.text.quantities import count, token_count
from cardbox_cli.providers.formats import provider_of

if TYPE_CHECKING:
    from cardbox_cli.cli.parameters.requests import Shown
    from cardbox_cli.execution.requests.step_snapshots import Verified

# Characters of a piece that has nothing beside it to be compared with.
_SHOWN = 200
# Characters of a hash that tell two texts apart.
_HASH = 12
# What is printed of a step that nothing tells from what its cards make, by what was compared.
_SAME = {
    "sha256": "the cards make the same request, to the byte",
    "rest_sha256": "the cards make the same request but for layers that lived for the call, to the byte",
    "messages": "nothing differs from its request box, which does not prove what was sent",
}


def print_diff(a: "Shown", b: "Shown") -> None:
    """Print where `b` parts from `a`. Raises Findings where they differ in more than new messages.

    With -o id: the cards of these messages; else of the first difference in `b`, or in `a` where that alone
    goes on.
    """
    found = diff(a.request, b.request, provider_of(a.format))
    answer: dict[str, Any] = {
        "a": a.name,
        "b": b.name,
        "equal": found.equal,
        "continues": found.continues,
        "kept": found.kept,
        "difference": found.difference,
        "new": found.new,
        "a_after": found.a_after,
        "b_after": found.b_after,
        "lost_layers": {"a": found.a_lost, "b": found.b_lost},
    }
    output.emit(answer, table=lambda: _print_text(a, b, found), ids=_card_ids(found))
    if not found.equal and not found.continues:
        raise Findings(f"the requests differ: {_consequence(found)}")


def print_verified(turn_id: str, step: Step, verified: "Verified") -> None:
    """Print whether the cards still make the request of a step. Raises Findings where they do not.

    With -o id: the request box.
    """
    found = verified.difference
    answer: dict[str, Any] = {
        "agent_turn_id": turn_id,
        "step_id": step.step_id,
        "request_box_id": step.request_box_id,
        "equal": verified.equal,
        "compared_by": verified.compared_by,
        "lost_layers": verified.lost,
        "unproved": UNPROVED if verified.compared_by == "messages" else None,
        "reasons": verified.reasons,
        "kept": found.kept,
        "difference": None
        if found.difference is None
        else {"stored": found.difference.a, "composed": found.difference.b},
    }
    output.emit(answer, table=lambda: _print_verified(step, verified), ids=[step.request_box_id or ""])
    if not verified.equal:
        raise Findings(f"the cards do not make the request of {step.step_id} again")


def _consequence(found: RequestDiff) -> str:
    if found.a_after.messages or found.a_after.tokens:
        return f"a cache loses {_extent(found.a_after)} of the first"
    if found.b_after.messages or found.b_after.tokens:
        return f"the second has {_extent(found.b_after)} more, and not in messages alone"
    return "no cache depends on it"


def _print_text(a: "Shown", b: "Shown", found: RequestDiff) -> None:
    if found.equal:
        output.print_text(f"equal: {_extent(found.kept)}")
    elif found.continues:
        _print_new(a.name, b.name, found)
    else:
        output.facts(("kept", _extent(found.kept)))
        _print_difference(a.name, b.name, found)
        output.print_text()
        output.facts(
            ("lost", f"{_extent(found.a_after)}: the first from there on"),
            ("new", f"{_extent(found.b_after)}: the second from there on"),
        )
    _print_lost(a, found.a_lost)
    _print_lost(b, found.b_lost)


def _print_new(a: str, b: str, found: RequestDiff) -> None:
    output.facts(
        ("kept", f"{_extent(found.kept)}: all of {a}"),
        ("new", f"{_extent(found.b_after)}: {b} goes on where that ends"),
    )
    for piece in found.new:
        output.print_painted([("bold", flat(f"+++ {_place(piece)}"))])
        if _beginning(piece):
            output.print_painted(compared("", _beginning(piece)))


def _print_lost(shown: "Shown", lost: Container[str]) -> None:
    for left in shown.request.layers_left_out:
        if left.layer in lost:
            output.print_text(
                f"- the layer {left.layer} of {shown.name} was compared by its hash, its tokens are not "
                f"counted: {left.reason}"
            )


def _print_verified(step: Step, verified: "Verified") -> None:
    found = verified.difference
    if verified.equal:
        output.print_text(f"{step.step_id}: {_SAME[verified.compared_by]}: {_extent(found.kept)}")
        _print_uncompared(verified)
        return
    output.facts(("step", step.step_id), ("kept", _extent(found.kept)))
    if found.difference is not None:
        _print_difference("stored", "composed again", found)
    for reason in verified.reasons:
        output.print_text(f"- {reason}")
    _print_uncompared(verified)


def _print_uncompared(verified: "Verified") -> None:
    for name in verified.lost:
        output.print_text(f"- the layer {name} was not compared: {LOST}")
    if verified.compared_by == "messages":
        output.print_text(f"- not proved: {UNPROVED}")


def _print_difference(a: str, b: str, found: RequestDiff) -> None:
    """The first pieces that differ: what they are on both sides, and their texts beside each other."""
    assert found.difference is not None
    one, other = found.difference.a, found.difference.b
    output.print_painted([("bold", flat(f"--- {a}  {_place(one)}"))])
    output.print_painted([("bold", flat(f"+++ {b}  {_place(other)}"))])
    if one is not None and other is not None and one.sha256 is None and other.sha256 is None:
        output.print_painted(compared(_told_apart(one), _told_apart(other)))
    elif _beginning(one) or _beginning(other):
        output.print_painted(compared(_beginning(one), _beginning(other)))


def _told_apart(piece: Piece) -> str:
    """What a piece says; of two that say the same what they differ in, as JSON."""
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
    return "" if piece is None else one_line(piece.text, _SHOWN)


def _card_ids(found: RequestDiff) -> list[str]:
    if found.continues:
        return unique(card_id for piece in found.new for card_id in piece.card_ids)
    if found.difference is None:
        return []
    piece = found.difference.b or found.difference.a
    return [] if piece is None else piece.card_ids


def _extent(extent: Extent) -> str:
    tokens = token_count(extent.tokens, exact=extent.tokens_exact)
    uncounted = f" and those of {count(extent.uncounted, 'unknown text')}" if extent.uncounted else ""
    return f"{count(extent.messages, 'message')}, {tokens} tokens{uncounted}"
