"""What a step keeps of its request: the request that its box holds, and whether the cards still make it.

Pure. A request box holds the rendered system prompt first, then the tools, the layers that are kept and the
history in its order, with other systems too. cbx keeps hashes beside it, in the step's metadata; texts that
lived for the call alone are known by them only.
"""

import hashlib
from collections.abc import Collection, Container, Iterable, Mapping
from typing import Any, Literal

import msgspec

from cardbox_cli.context.composer import LayerLeftOut, kept_layer
from cardbox_cli.context.diff import RequestDiff, diff
from cardbox_cli.context.messages import Message
from cardbox_cli.context.request import (
    DEFAULT_OPTIONS,
    ComposeOptions,
    Request,
    RequestEntry,
    request_of,
)
from cardbox_cli.execution.requests.turn_requests import Source, TurnBoxes, request_with_tools
from cardbox_cli.model.boxes import Slot
from cardbox_cli.model.card_types import RENDERED_PROMPT
from cardbox_cli.model.cards import card_text
from cardbox_cli.model.ids import short_id
from cardbox_cli.model.layers import SYSTEM_PROMPT, Asked, Layout, ProcessName
from cardbox_cli.providers.formats import encoder_of, format_names, provider_of, sent, sent_by_any

# The key of a step's metadata.
REQUEST = "request"

# Why a layer cannot be shown or compared.
LOST = "it lived for the call: of its text only the hash is kept"
# Why the rest of such a request cannot be proved where a step keeps no hash of it.
UNPROVED = (
    "the history, the tools, the model and its parameters were compared with what they say now: the step "
    "kept no hash of them, and what was overwritten since does not show"
)
# Why a layer is not shown whose text somebody gives.
_OTHER = "the text given for it is not the one that was sent"


class StepSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """What a step's metadata say of its request: `layers` have the hashes of their texts, `sha256` is that of
    all that was sent, `rest_sha256` that of the same without its layers; None where an older cbx kept none.

    The output box held `output_cards` cards then, `output_start` of them when the turn was promoted.
    """

    format: str
    model: str | None
    process: ProcessName
    layout: Layout
    output_start: int
    output_cards: int
    layers: dict[str, str]
    sha256: str
    rest_sha256: str | None = None


class RestoredRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request as its box has it: what it is made of, and `lost`, the layers whose texts cannot be had."""

    entries: list[RequestEntry]
    request: Request
    lost: list[LayerLeftOut]


class Verified(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the cards still make the request of a step: as a whole, by its hash; without its layers, by the
    hash of that; or message by message, which proves nothing: both sides are made of the same cards.

    `lost` are the layers that lived for the call and are not compared, `reasons` say in words what is known
    of a difference.
    """

    equal: bool
    compared_by: Literal["sha256", "rest_sha256", "messages"]
    lost: list[str]
    reasons: list[str]
    difference: RequestDiff


def snapshot_of(request: Request, body: bytes, boxes: TurnBoxes, format: str) -> StepSnapshot:
    """What a step keeps of the request that it sends as `body`."""
    sha256 = _hash(body)
    return StepSnapshot(
        format=format,
        model=request.model,
        process=request.process,
        layout=request.layout,
        output_start=boxes.output_start,
        output_cards=len(boxes.output.slots),
        layers={layer.name: layer.sha256 for layer in request.layers},
        sha256=sha256,
        rest_sha256=_rest_hash(request, format) if request.layers else sha256,
    )


def read_snapshot(metadata: Any) -> StepSnapshot | None:
    """What the metadata of a step say; None for a step of another system, or of another cbx."""
    try:
        snapshot = msgspec.convert(metadata[REQUEST], StepSnapshot)
    except (KeyError, TypeError, msgspec.ValidationError):
        return None
    return snapshot if snapshot.format in format_names() else None


def restored_request(
    box: Source,
    profile: Source | None,
    snapshot: StepSnapshot | None,
    format: str,
    options: ComposeOptions,
    rules: Mapping[str, str | None] | None = None,
    own: Container[str] = (),
) -> RestoredRequest:
    """The request that a request box holds, with the parameters of the profile that it was made for.

    `options` name another model, and give texts for layers that are not kept. `rules` say what brought the
    cards, by their ids; `own` are those that the turn has written.
    """
    prompt, history = _parted(box, rules or {})
    of_profile = [] if profile is None else profile.seen
    made = request_of(
        [*of_profile, *history],
        _options(options, snapshot, box),
        encode=encoder_of(format),
        own=own,
        # The box holds what was sent and no more, whatever kind of process that was for.
        takes_all=True,
    )
    request, lost = _with_layers_of_step(made, snapshot, options.asked.texts)
    return RestoredRequest(
        entries=[*of_profile, *prompt, *history],
        request=msgspec.structs.replace(
            request,
            messages=[
                *map(_prompt_message, prompt),
                *(message for message in request.messages if message.layer != SYSTEM_PROMPT),
            ],
            places={**request.places, **{entry.slot.card_id: entry for entry in prompt}},
        ),
        lost=lost,
    )


def _parted(box: Source, rules: Mapping[str, str | None]) -> tuple[list[RequestEntry], list[RequestEntry]]:
    """The rendered system prompt of a request box, if it begins with one, and the rest of it."""
    entries = [RequestEntry(slot=slot, box_id=box.box_id, rule=rules.get(slot.card_id)) for slot in box.slots]
    first = box.slots[0] if box.slots else None
    card = first.card if first is not None and first.state == "present" else None
    prompts = 1 if card is not None and card.type == RENDERED_PROMPT else 0
    return entries[:prompts], entries[prompts:]


def _prompt_message(entry: RequestEntry) -> Message:
    text = "" if entry.slot.card is None else card_text(entry.slot.card.content)
    body = {"role": "system", "content": text}
    return Message(layer=SYSTEM_PROMPT, body=body, card_id=entry.slot.card_id)


def _options(options: ComposeOptions, snapshot: StepSnapshot | None, box: Source) -> ComposeOptions:
    """What makes the request of a step again: its model, process, layout, and every layer that can be had."""
    stored = {
        name: card_text(slot.card.content)
        for slot in box.slots
        if slot.card is not None and (name := kept_layer(slot.card)) is not None
    }
    lived = {} if snapshot is None else snapshot.layers
    given = {name: text for name, text in options.asked.texts.items() if name in lived}
    return ComposeOptions(
        model=options.model or (snapshot.model if snapshot is not None else None),
        process="react" if snapshot is None else snapshot.process,
        share=True,
        layout="default" if snapshot is None else snapshot.layout,
        asked=Asked(texts={**stored, **given}),
    )


def _with_layers_of_step(
    request: Request, snapshot: StepSnapshot | None, given: Mapping[str, str]
) -> tuple[Request, list[LayerLeftOut]]:
    """The request with those layers alone that were sent, and those whose texts are missing: not `given`
    either, or otherwise."""
    if snapshot is None:
        return request, []
    there = {layer.name for layer in request.layers if layer.sha256 == snapshot.layers.get(layer.name)}
    lost = [
        LayerLeftOut(layer=name, reason=_OTHER if name in given else LOST)
        for name in snapshot.layers
        if name not in there
    ]
    dropped = {layer.name for layer in request.layers} - there
    return (
        msgspec.structs.replace(
            request,
            messages=[message for message in request.messages if message.layer not in dropped],
            layers=[layer for layer in request.layers if layer.name in there],
            layers_left_out=lost,
            lost_layers={left.layer: snapshot.layers[left.layer] for left in lost},
        ),
        lost,
    )


# --- verifying


def verify(
    box: Source,
    boxes: TurnBoxes,
    snapshot: StepSnapshot | None,
    format: str,
    options: ComposeOptions = DEFAULT_OPTIONS,
) -> Verified:
    """Compose the request of a step again from the boxes of its turn, and compare it with what was stored.

    Tools and layers are those that were stored; of another system's step nothing is known beside its box.
    """
    format = format if snapshot is None else snapshot.format
    then = boxes.at(*_output_of(box, boxes, snapshot))
    own = {card.card_id for card in then.own}
    stored = restored_request(box, boxes.profile, snapshot, format, options, own=own)
    asked = request_with_tools(then, stored.request.tools, _options(options, snapshot, box), format=format)
    given = options.asked.texts
    composed, left_out = _with_layers_of_step(asked.request, snapshot, given)
    lost = [left.layer for left in left_out]
    compared_by = _comparison(snapshot, lost)
    is_proven = _is_proven(snapshot, compared_by, composed, format)
    # What is proven needs no snapshot, which may have been deleted.
    known = _known(composed)
    found = diff(known if is_proven else _known(stored.request), known, provider_of(format))
    changed = [layer.name for layer in asked.request.layers if layer.name in lost]
    gone = [] if is_proven else [slot for slot in box.slots if slot.state != "present"]
    is_same = found.equal and not gone if compared_by == "messages" else is_proven
    equal = is_same and not changed
    return Verified(
        equal=equal,
        compared_by=compared_by,
        lost=[name for name in lost if name not in changed],
        reasons=[] if equal else _reasons(gone, found, changed, given, is_same=is_same),
        difference=found,
    )


def _known(request: Request) -> Request:
    """What is there of a request: a layer that the cards do not hold is no part of what they make."""
    return msgspec.structs.replace(request, lost_layers={})


def _comparison(
    snapshot: StepSnapshot | None, lost: Collection[str]
) -> Literal["sha256", "rest_sha256", "messages"]:
    """What a request without its `lost` layers can be compared by."""
    if snapshot is None:
        return "messages"
    if not lost:
        return "sha256"
    return "messages" if snapshot.rest_sha256 is None else "rest_sha256"


def _is_proven(snapshot: StepSnapshot | None, compared_by: str, composed: Request, format: str) -> bool:
    """Whether what was composed has the hash that the step kept of what it is compared with."""
    if snapshot is None or compared_by == "messages":
        return False
    if compared_by == "rest_sha256":
        kept, bodies = snapshot.rest_sha256, sent_by_any(_rest(composed), format)
    else:
        kept, bodies = snapshot.sha256, sent_by_any(composed, format)
    return any(_hash(body) == kept for body in bodies)


def _rest_hash(request: Request, format: str) -> str:
    """The hash of what is sent of a request beside its layers, whose texts have hashes of their own."""
    return _hash(sent(_rest(request), format))


def _rest(request: Request) -> Request:
    layers = {layer.name for layer in request.layers}
    messages = [message for message in request.messages if message.layer not in layers]
    return msgspec.structs.replace(request, messages=messages)


def _hash(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


def _output_of(box: Source, boxes: TurnBoxes, snapshot: StepSnapshot | None) -> tuple[int, int]:
    """How many cards the output box held at the step, and at the lease of its turn; else as the box tells."""
    if snapshot is not None:
        return snapshot.output_cards, snapshot.output_start
    seen = {slot.card_id for slot in box.slots}
    places = enumerate(boxes.output.slots)
    cards = next((place for place, slot in places if slot.card_id not in seen), len(boxes.output.slots))
    return cards, min(boxes.output_start, cards)


def _reasons(
    gone: Iterable[Slot], found: RequestDiff, changed: Iterable[str], given: Container[str], *, is_same: bool
) -> list[str]:
    """What is known of a difference; `is_same` says that nothing but the `changed` layers differs."""
    reasons = [
        f"the text given for the layer {name} is not the one that was sent"
        if name in given
        else f"the layer {name} says something else now"
        for name in changed
    ]
    missing = [
        f"card {short_id(slot.card_id)} at position {slot.position} of the request box is {slot.state}"
        for slot in gone
    ]
    reasons += missing
    difference = found.difference
    if difference is None:
        if not is_same and not missing:
            reasons.append(
                "the messages are those of the request box, and not what was sent: a card was overwritten, "
                "or the profile changed"
            )
        return reasons
    sides = (difference.a, difference.b)
    if any(side is not None and side.layer == SYSTEM_PROMPT for side in sides):
        reasons.append("the profile says another system prompt now, or another program rendered it")
    return reasons
