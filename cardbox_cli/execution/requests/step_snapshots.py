"""Restore the request of a step from its request box, and verify that the cards still produce it.

This module is pure. A request box has the rendered system prompt first, then the tools, the stored layers and
the history in order. Other systems write the same box. cbx also stores hashes in the step's metadata. If the
text of a layer is not stored as a card, only its hash is stored.
"""

import hashlib
from collections.abc import Collection, Container, Iterable, Mapping
from typing import Any, Literal

import msgspec

from cardbox_cli.context.composer import LayerLeftOut, kept_layer
from cardbox_cli.context.diff import RequestDiff, diff
from cardbox_cli.context.messages import Message
from cardbox_cli.context.request import DEFAULT_OPTIONS, ComposeOptions, Request, RequestEntry, request_of
from cardbox_cli.execution.requests.turn_requests import (
    BoxSource,
    TurnBoxes,
    compose_with_tools,
    present_cards,
)
from cardbox_cli.model.boxes import Slot
from cardbox_cli.model.card_types import RENDERED_PROMPT
from cardbox_cli.model.cards import card_text
from cardbox_cli.model.ids import short_id
from cardbox_cli.model.layers import SYSTEM_PROMPT, LayerRequest, Layout, ProcessName
from cardbox_cli.providers.formats import encoder_of, format_names, provider_of, sent, sent_by_any

# The key of the snapshot in a step's metadata.
SNAPSHOT_KEY = "request"

# The reason why a layer cannot be shown or compared.
LOST_REASON = "it existed only for the call, and only the hash of its text is stored"
# The note for a step whose snapshot has no hash of the request without its layers.
UNPROVED = (
    "the history, the tools, the model and its parameters were compared with their present state: the step "
    "has no hash of them, so later changes of them do not show"
)
# The reason why a layer is not shown even though the caller passed its text.
_DIFFERENT_TEXT = "the text passed for it is not the one that was sent"


class StepSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The snapshot of a request in a step's metadata. `layers` maps names of layers to hashes of their texts.

    `sha256` is the hash of the sent body. `rest_sha256` is the hash of the body without its layers, or None.
    The output box had `output_cards` cards when the step began, and `output_start` when the turn began.
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
    """A request that was restored from its box. `lost` lists the sent layers whose texts are unknown."""

    entries: list[RequestEntry]
    request: Request
    lost: list[LayerLeftOut]


class Verification(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a verification: whether the cards still produce the request of a step.

    `verify` compares the hash of the whole request, or the hash without its layers, or each message. A
    comparison of messages proves nothing, because both sides come from the same cards. `lost` lists layers
    that could not be compared. `reasons` explain a difference.
    """

    equal: bool
    compared_by: Literal["sha256", "rest_sha256", "messages"]
    lost: list[str]
    reasons: list[str]
    difference: RequestDiff


def snapshot_of(request: Request, body: bytes, boxes: TurnBoxes, format: str) -> StepSnapshot:
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
        rest_sha256=_hash(sent(_drop_layers(request), format)) if request.layers else sha256,
    )


def read_snapshot(metadata: Any) -> StepSnapshot | None:
    """Return the snapshot in a step's metadata, or None if it has none that this version of cbx can read."""
    try:
        snapshot = msgspec.convert(metadata[SNAPSHOT_KEY], StepSnapshot)
    except (KeyError, TypeError, msgspec.ValidationError):
        return None
    return snapshot if snapshot.format in format_names() else None


def restore_request(
    box: BoxSource,
    profile: BoxSource | None,
    snapshot: StepSnapshot | None,
    format: str,
    options: ComposeOptions,
    rules: Mapping[str, str | None] | None = None,
    own: Container[str] = (),
) -> RestoredRequest:
    """Restore a request from its request box and its profile.

    `options` may name another model, and may pass texts of layers that are not stored. `rules` maps card ids
    to recipe rules. `own` holds the ids of the cards that the turn has written.
    """
    prompt, history = _split_prompt(box, rules or {})
    of_profile = [] if profile is None else profile.visible_entries
    made = request_of(
        [*of_profile, *history],
        _options(options, snapshot, box),
        encode=encoder_of(format),
        own=own,
        # The box has exactly the sent cards, so no type of process may leave any of them out.
        takes_all=True,
    )
    request, lost = _restrict_layers(made, snapshot, options.asked.texts)
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


def _split_prompt(
    box: BoxSource, rules: Mapping[str, str | None]
) -> tuple[list[RequestEntry], list[RequestEntry]]:
    """Split the entries of a request box into the entries of the rendered system prompt and all others."""
    entries = [RequestEntry(slot=slot, box_id=box.box_id, rule=rules.get(slot.card_id)) for slot in box.slots]
    prompts = sum(card.type == RENDERED_PROMPT for card in present_cards(box.slots[:1]))
    return entries[:prompts], entries[prompts:]


def _prompt_message(entry: RequestEntry) -> Message:
    text = "" if entry.slot.card is None else card_text(entry.slot.card.content)
    body = {"role": "system", "content": text}
    return Message(layer=SYSTEM_PROMPT, body=body, card_id=entry.slot.card_id)


def _options(options: ComposeOptions, snapshot: StepSnapshot | None, box: BoxSource) -> ComposeOptions:
    """Return `options` with the model, process, layout and available layers of a step's request."""
    stored = {
        name: card_text(slot.card.content)
        for slot in box.slots
        if slot.card is not None and (name := kept_layer(slot.card)) is not None
    }
    snapshot_layers = {} if snapshot is None else snapshot.layers
    given = {name: text for name, text in options.asked.texts.items() if name in snapshot_layers}
    return ComposeOptions(
        model=options.model or (snapshot.model if snapshot is not None else None),
        process="react" if snapshot is None else snapshot.process,
        share=True,
        layout="default" if snapshot is None else snapshot.layout,
        asked=LayerRequest(texts={**stored, **given}),
    )


def _restrict_layers(
    request: Request, snapshot: StepSnapshot | None, given: Mapping[str, str]
) -> tuple[Request, list[LayerLeftOut]]:
    """Return the request with only the layers that were sent, and the sent layers whose texts are missing.

    A layer also counts as missing if its text in `given` is not the text that was sent.
    """
    if snapshot is None:
        return request, []
    there = {layer.name for layer in request.layers if layer.sha256 == snapshot.layers.get(layer.name)}
    lost = [
        LayerLeftOut(layer=name, reason=_DIFFERENT_TEXT if name in given else LOST_REASON)
        for name in snapshot.layers
        if name not in there
    ]
    dropped = {layer.name for layer in request.layers} - there
    restricted = msgspec.structs.replace(
        request,
        messages=[message for message in request.messages if message.layer not in dropped],
        layers=[layer for layer in request.layers if layer.name in there],
        layers_left_out=lost,
        lost_layers={left.layer: snapshot.layers[left.layer] for left in lost},
    )
    return restricted, lost


def verify(
    box: BoxSource,
    boxes: TurnBoxes,
    snapshot: StepSnapshot | None,
    format: str,
    options: ComposeOptions = DEFAULT_OPTIONS,
) -> Verification:
    """Compose the request of a step again from the boxes of its turn, and compare it with the stored one.

    The tools and layers are taken from the request box. A step of another system has no snapshot.
    """
    format = format if snapshot is None else snapshot.format
    then = boxes.truncate(*_output_of(box, boxes, snapshot))
    own = {card.card_id for card in then.own}
    stored = restore_request(box, boxes.profile, snapshot, format, options, own=own)
    asked = compose_with_tools(then, stored.request.tools, _options(options, snapshot, box), format=format)
    given = options.asked.texts
    composed, left_out = _restrict_layers(asked.request, snapshot, given)
    lost = [left.layer for left in left_out]
    compared_by = _comparison(snapshot, lost)
    is_proven = _is_proven(snapshot, compared_by, composed, format)
    # If the hash proves the request, deleted cards of its request box do not matter.
    known = _drop_lost(composed)
    difference = diff(known if is_proven else _drop_lost(stored.request), known, provider_of(format))
    changed = [layer.name for layer in asked.request.layers if layer.name in lost]
    missing_slots = [] if is_proven else [slot for slot in box.slots if slot.state != "present"]
    is_same = difference.equal and not missing_slots if compared_by == "messages" else is_proven
    equal = is_same and not changed
    return Verification(
        equal=equal,
        compared_by=compared_by,
        lost=[name for name in lost if name not in changed],
        reasons=[] if equal else _reasons(missing_slots, difference, changed, given, is_same=is_same),
        difference=difference,
    )


def _drop_lost(request: Request) -> Request:
    return msgspec.structs.replace(request, lost_layers={})


def _comparison(
    snapshot: StepSnapshot | None, lost: Collection[str]
) -> Literal["sha256", "rest_sha256", "messages"]:
    """Return the best available comparison for a request without its `lost` layers."""
    if snapshot is None:
        return "messages"
    if not lost:
        return "sha256"
    return "messages" if snapshot.rest_sha256 is None else "rest_sha256"


def _is_proven(snapshot: StepSnapshot | None, compared_by: str, composed: Request, format: str) -> bool:
    if snapshot is None or compared_by == "messages":
        return False
    sha256 = snapshot.sha256
    if compared_by == "rest_sha256":
        sha256, composed = snapshot.rest_sha256 or "", _drop_layers(composed)
    return any(_hash(body) == sha256 for body in sent_by_any(composed, format))


def _drop_layers(request: Request) -> Request:
    layers = {layer.name for layer in request.layers}
    messages = [message for message in request.messages if message.layer not in layers]
    return msgspec.structs.replace(request, messages=messages)


def _hash(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


def _output_of(box: BoxSource, boxes: TurnBoxes, snapshot: StepSnapshot | None) -> tuple[int, int]:
    """Return the lengths that the output box had when the step began and when its turn was promoted.

    Without a snapshot, the first length is derived from the request box.
    """
    if snapshot is not None:
        return snapshot.output_cards, snapshot.output_start
    seen = {slot.card_id for slot in box.slots}
    places = enumerate(boxes.output.slots)
    cards = next((place for place, slot in places if slot.card_id not in seen), len(boxes.output.slots))
    return cards, min(boxes.output_start, cards)


def _reasons(
    missing_slots: Iterable[Slot],
    compared: RequestDiff,
    changed: Iterable[str],
    given: Container[str],
    *,
    is_same: bool,
) -> list[str]:
    """Return the reasons for a difference. If `is_same` is True, only the `changed` layers differ."""
    reasons = [
        f"the text passed for the layer {name} is not the one that was sent"
        if name in given
        else f"the layer {name} has another text now"
        for name in changed
    ]
    missing = [
        f"card {short_id(slot.card_id)} at position {slot.position} of the request box is {slot.state}"
        for slot in missing_slots
    ]
    reasons += missing
    difference = compared.difference
    if difference is None:
        if not is_same and not missing:
            reasons.append(
                "the messages match the request box but not the sent request: a card was overwritten, "
                "or the profile changed"
            )
        return reasons
    sides = (difference.a, difference.b)
    if any(side is not None and side.layer == SYSTEM_PROMPT for side in sides):
        reasons.append("the profile has another system prompt now, or another program rendered it")
    return reasons
