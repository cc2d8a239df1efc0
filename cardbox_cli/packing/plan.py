"""The plan of a context box: a recipe applied to its arguments, without a database.

Every function is pure. The specification's page on packing defines the rules and their order. This module
decides which cards each rule adds and which are left out. `packing/pack.py` reads boxes and writes the plan.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from cardbox_cli.errors import BadRequest, InvalidCard, NotFound
from cardbox_cli.model import exact_json
from cardbox_cli.model.boxes import LOSSES, CardState, InheritableBox, ProvenanceRule, rule_runs
from cardbox_cli.model.card_types import PARENT_POINTER, card_type
from cardbox_cli.model.cards import Card, CardDraft, attribute_to_turn, draft_card
from cardbox_cli.model.content import JsonContent
from cardbox_cli.model.ids import canonical_box_id, unique
from cardbox_cli.model.pairing import call_ids, exchanges, pair_calls
from cardbox_cli.model.tokens import card_tokens
from cardbox_cli.text.error_messages import json_type

if TYPE_CHECKING:
    from cardbox_cli.context.repair.fit import FittedRequest
    from cardbox_cli.model.handwritten.recipes import InheritContext, PackArgument, Recipe


class PlannedCard(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One position of the new box: the card, the rule that adds it, and the draft if the card is new."""

    card_id: str
    rule: str
    draft: CardDraft | None = None


class ExcludedCard(msgspec.Struct, frozen=True, kw_only=True):
    card_id: str
    rule: str
    reason: str


class InheritedBox(msgspec.Struct, frozen=True, kw_only=True):
    """A box that an argument names. `box_id` is its canonical id, or the given value if it is not a UUID."""

    box_id: str
    arg_key: str

    @property
    def rule(self) -> str:
        return f"inherit_context {self.arg_key} (box {self.box_id})"


class PackPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A new context box: its cards in order, the boxes it inherits from, and the excluded cards.

    `supplied` has the ids of the cards in the boxes of each argument.
    """

    cards: list[PlannedCard]
    parent_ids: list[str]
    left_out: list[ExcludedCard]
    supplied: Mapping[str, Collection[str]] = {}

    @property
    def card_ids(self) -> list[str]:
        return [card.card_id for card in self.cards]

    @property
    def inherited_ids(self) -> list[str]:
        return [card.card_id for card in self.cards if card.draft is None]

    @property
    def drafts(self) -> list[CardDraft]:
        return [card.draft for card in self.cards if card.draft is not None]

    def rules(self) -> list[ProvenanceRule]:
        return rule_runs(card.rule for card in self.cards)


def target_profile_name(recipe: "Recipe", arguments: Mapping[str, Any]) -> str:
    """Apply rule 1: return the profile of the context, from the arguments or else the recipe.

    A blank argument counts as absent.
    """
    given = arguments.get("profile_name", "")
    if not isinstance(given, str) or given.strip():
        _check_storable({"profile_name": given})
        name, place = given, "argument 'profile_name'"
    elif recipe.target_profile_config is not None:
        name, place = recipe.target_profile_config.profile_name, "target_profile_config.profile_name"
    else:
        hint = "pass --arg profile_name=NAME, or set target_profile_config.profile_name in the recipe"
        raise BadRequest("handover failed: profile_name is missing", hint=hint)
    if not isinstance(name, str):
        raise BadRequest(f"{place} must be a string, not {json_type(name)}")
    return name.strip()


def argument_cards(
    recipe: "Recipe", arguments: Mapping[str, Any], *, tool_suffix: str, turn: Mapping[str, str] = {}
) -> list[PlannedCard]:
    """Apply rule 2: return a new card for each `pack_arguments` rule whose argument is given. `turn` is the
    metadata of the turn that packs. It is empty if no turn packs."""
    rules = recipe.context_packing_config.pack_arguments
    _check_storable({rule.arg_key: arguments[rule.arg_key] for rule in rules if rule.arg_key in arguments})
    return [
        PlannedCard(card_id=draft.card_id, rule=f"pack_arguments[{index}] {rule.arg_key}", draft=draft)
        for index, rule in enumerate(rules)
        if rule.arg_key in arguments
        for draft in [attribute_to_turn(_argument_card(rule, arguments[rule.arg_key], tool_suffix), turn)]
    ]


def _check_storable(arguments: Mapping[str, Any]) -> None:
    """Raise BadRequest unless the database can store each argument alone, and all of them in one object."""
    try:
        for key, value in arguments.items():
            exact_json.check_storable(value, f"argument {key!r}")
        exact_json.check_storable(dict(arguments), "arguments")
    except exact_json.Unstorable as exc:
        raise BadRequest(str(exc)) from exc


def _argument_card(rule: "PackArgument", value: Any, tool_suffix: str) -> CardDraft:
    metadata = rule.card_metadata.model_dump()
    role, kind = metadata.pop("role"), rule.as_card_type
    try:
        content = card_type(kind).content_of(value)
        return draft_card(kind, content, role=role, author_id=tool_suffix, metadata=metadata)
    except InvalidCard as exc:
        raise BadRequest(f"argument {rule.arg_key!r}: {exc.message}", hint=exc.hint) from exc


def inherited_boxes(recipe: "Recipe", arguments: Mapping[str, Any]) -> list[InheritedBox]:
    """Begin rule 3: return the boxes that the arguments name. Raises BadRequest for an unauthorized box."""
    boxes = [
        InheritedBox(box_id=canonical_box_id(box_id) or box_id, arg_key=arg_key)
        for arg_key in recipe.context_packing_config.inherit_context.include_boxes_from_args
        if arg_key in arguments
        for box_id in _box_ids(arg_key, arguments[arg_key])
    ]
    allowed = recipe.authorized_inherit_box_ids
    for box in boxes:
        if allowed is not None and box.box_id not in allowed:
            raise BadRequest(
                f"inherit_context: unauthorized box_id: {box.box_id!r} (argument {box.arg_key!r})",
                hint="authorized_inherit_box_ids in the recipe lists the boxes that may be inherited",
            )
    return boxes


def _box_ids(arg_key: str, value: Any) -> list[str]:
    items = value if isinstance(value, list) else [value]
    for index, item in enumerate(items):
        blank = isinstance(item, str) and not item.strip()
        if blank or isinstance(item, bool) or not isinstance(item, str | int):
            place = f"item {index} of " if isinstance(value, list) else ""
            found = "an empty string" if blank else json_type(item)
            raise BadRequest(
                f"inherit_context.{arg_key} must be a box id or a list of box ids: "
                f"{place}argument {arg_key!r} is {found}"
            )
    return [str(item).strip() for item in items]


def inherited_cards(
    boxes: Sequence[InheritedBox], id_lists: Mapping[str, Sequence[str]]
) -> list[PlannedCard]:
    """Apply rule 3: return the cards of the boxes in order. A repeated card appears at its first position."""
    places: dict[str, PlannedCard] = {}
    for box in boxes:
        rule = box.rule
        for card_id in id_lists[box.box_id]:
            if card_id not in places:
                places[card_id] = PlannedCard(card_id=card_id, rule=rule)
    return list(places.values())


def supplied_cards(
    recipe: "Recipe",
    arguments: Mapping[str, Any],
    boxes: Sequence[InheritedBox],
    id_lists: Mapping[str, Sequence[str]],
) -> dict[str, set[str]]:
    """Return the ids of the cards in the boxes of each inherited argument that is given."""
    keys = recipe.context_packing_config.inherit_context.include_boxes_from_args
    supplied: dict[str, set[str]] = {key: set() for key in keys if key in arguments}
    for box in boxes:
        supplied[box.arg_key].update(id_lists[box.box_id])
    return supplied


def has_limits(inherit: "InheritContext") -> bool:
    return inherit.answered_calls_only or _limits_cards(inherit)


def _limits_cards(inherit: "InheritContext") -> bool:
    limits = (inherit.include_card_types, inherit.exclude_card_types, inherit.max_cards, inherit.max_tokens)
    return any(limit is not None for limit in limits)


class InheritableCard(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The properties of a card that limits examine. There may be too many cards to hold them completely.
    `tool_calls` only have ids. `tokens` is 0 unless the recipe has a token limit."""

    type: str
    tool_calls: list[dict[str, str]] | None
    tool_call_id: str | None
    tokens: int = 0


def inheritable_card(card: Card, inherit: "InheritContext") -> InheritableCard:
    return InheritableCard(
        type=card.type,
        tool_calls=[{"id": call_id} for call_id in call_ids(card)] or None,
        tool_call_id=card.tool_call_id,
        tokens=card_tokens(card) if inherit.max_tokens is not None else 0,
    )


def apply_limits(
    planned: Sequence[PlannedCard], candidates: Mapping[str, InheritableCard], inherit: "InheritContext"
) -> tuple[list[PlannedCard], list[ExcludedCard]]:
    """Apply the recipe's limits in this order: answered calls, types, and the newest exchanges that fit.

    A tool call and its results are included or excluded together. Limits of types, cards or tokens exclude
    ids without a card. Without such limits they are included, so that the turn reports the missing cards.
    """
    ids = [place.card_id for place in planned if place.card_id in candidates]
    readable = [candidates[card_id] for card_id in ids]
    absent = [place.card_id for place in planned if place.card_id not in candidates]
    reasons = dict.fromkeys(absent, "no such card") if _limits_cards(inherit) else {}
    is_open = {position for position, _ in pair_calls(readable).unanswered}
    cards_so_far = tokens = 0
    full: str | None = None  # after a limit is exceeded, nothing fits any more
    for group in reversed(exchanges(readable)):
        members = [readable[position] for position in group]
        reason = _type_refusal(members, inherit)
        if inherit.answered_calls_only and not is_open.isdisjoint(group):
            reason = "its tool call has no result"
        if reason is None:
            cards_so_far += len(members)
            tokens += sum(card.tokens for card in members)
            reason = full = full or _exceeded_limit(inherit, cards_so_far, tokens)
        if reason is not None:
            reasons.update((ids[position], reason) for position in group)
    return _exclude_cards(planned, reasons)


def _exclude_cards(
    planned: Sequence[PlannedCard], reasons: Mapping[str, str]
) -> tuple[list[PlannedCard], list[ExcludedCard]]:
    return [place for place in planned if place.card_id not in reasons], [
        ExcludedCard(card_id=place.card_id, rule=place.rule, reason=reasons[place.card_id])
        for place in planned
        if place.card_id in reasons
    ]


def _type_refusal(members: Sequence[InheritableCard], inherit: "InheritContext") -> str | None:
    included, excluded = inherit.include_card_types, inherit.exclude_card_types
    for card in members:
        together = " (with its tool call)" if len(members) > 1 else ""
        if excluded is not None and card.type in excluded:
            return f"type {card.type} is excluded{together}"
        if included is not None and card.type not in included:
            return f"type {card.type} is not included{together}"
    return None


def _exceeded_limit(inherit: "InheritContext", cards: int, tokens: int) -> str | None:
    if inherit.max_cards is not None and cards > inherit.max_cards:
        return f"beyond max_cards {inherit.max_cards}"
    if inherit.max_tokens is not None and tokens > inherit.max_tokens:
        return f"beyond max_tokens {inherit.max_tokens}"
    return None


def parent_card(recipe: "Recipe", *, source_agent_id: str) -> list[PlannedCard]:
    """Apply rule 4: return the card that points to the parent, if the recipe requests it, or []."""
    if not recipe.context_packing_config.inherit_context.include_parent:
        return []
    draft = draft_card(
        PARENT_POINTER, JsonContent({"parent_agent_id": source_agent_id}), author_id=source_agent_id
    )
    return [PlannedCard(card_id=draft.card_id, rule="include_parent", draft=draft)]


def build_plan(
    recipe: "Recipe",
    sections: Mapping[str, list[PlannedCard]],
    *,
    parents: Sequence[InheritedBox],
    left_out: list[ExcludedCard],
    supplied: Mapping[str, Collection[str]] = {},
) -> PackPlan:
    return PackPlan(
        cards=[card for section in recipe.context_packing_config.order for card in sections[section]],
        parent_ids=unique(box.box_id for box in parents),
        left_out=left_out,
        supplied=supplied,
    )


def refuse_lost_arguments(recipe: "Recipe", name: str, plan: PackPlan, arguments: Mapping[str, Any]) -> None:
    """Raise BadRequest for a plan without a card, or without the cards of a required argument's boxes."""
    packed = set(plan.card_ids)
    declared = recipe.arguments or {}
    for key, card_ids in plan.supplied.items():
        if key in declared and declared[key].required and packed.isdisjoint(card_ids):
            raise BadRequest(
                f"argument {key!r} is required, but recipe {name!r} packs none of its cards: "
                f"{_reason_of_loss(plan, card_ids)}",
                hint="pass a box with cards that the recipe inherits; `cbx box show BOX` shows its cards",
            )
    if not plan.cards:
        missing = ", ".join(map(repr, recipe.missing_arguments(arguments)))
        reason = f": no value for {missing}" if missing else ""
        raise BadRequest(
            f"recipe {name!r} packs no card{reason}",
            hint=f"`cbx handover show {name}` lists what to pass; pass a value as --arg NAME=VALUE",
        )


def _reason_of_loss(plan: PackPlan, card_ids: Collection[str]) -> str:
    if not card_ids:
        return "its boxes are empty"
    return next(left.reason for left in reversed(plan.left_out) if left.card_id in card_ids)


def refuse_internal_boxes(
    recipe: "Recipe", arguments: Mapping[str, Any], boxes: Mapping[str, InheritableBox]
) -> None:
    """Raise BadRequest for an argument that names a box that only cbx reads, unless the recipe allows it."""
    if recipe.allow_internal_boxes:
        return
    for key, box_id in named_boxes(recipe, arguments):
        if box_id in boxes and (problem := internal_problem(boxes[box_id])):
            raise BadRequest(
                f"argument {key!r}: box {box_id} {problem}",
                hint="`cbx box list` shows the others; a recipe with allow_internal_boxes: true accepts it",
            )


def internal_problem(box: InheritableBox) -> str | None:
    """Return why no turn should read this box, or None."""
    return None if box.kind is None else _INTERNAL_BOXES[box.kind]


_INTERNAL_BOXES = {
    "profile": "is the box of a profile and has no conversation",
    "request": "is a snapshot of the request of a step",
}


def named_boxes(recipe: "Recipe", arguments: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the canonical ids of all boxes that arguments name, each with its argument."""
    named = [(key, arguments[key]) for key in recipe.box_arguments if key in arguments]
    return [
        (key, box_id)
        for key, value in named
        for item in (value if isinstance(value, list) else [value])
        if (box_id := canonical_box_id(str(item).strip())) is not None
    ]


def refuse_lost_cards(plan: PackPlan, lost: Mapping[str, CardState]) -> None:
    """Raise NotFound if the plan has inherited ids without a visible card. `lost` are their states."""
    places = {place.card_id: place for place in plan.cards if place.card_id in lost}
    if places:
        rule = next(iter(places.values())).rule
        raise lost_cards_error(rule, {card_id: lost[card_id] for card_id in places})


def lost_cards_error(origin: str, lost: Mapping[str, CardState]) -> NotFound:
    """Return the error for cards that are not visible, with their states; `origin` brings the first."""
    card_id, state = next(iter(lost.items()))
    more = f"; and {len(lost) - 1} more" if len(lost) > 1 else ""
    return NotFound(
        f"{origin}: card {card_id!r}: {LOSSES[state]}{more}",
        hint="no turn runs with this context; run `cbx box repair`, or pass --allow-dangling",
        details={"missing_card_ids": list(lost)},
    )


def apply_fit(plan: PackPlan, fit: "FittedRequest", *, turn: Mapping[str, str] = {}) -> PackPlan:
    """Return the plan without the cards that a fit drops. The notes of the fit replace their cards."""
    dropped = {change.card_id: change.reason for change in fit.changes if change.kind == "dropped"}
    cards, excluded = _exclude_cards(plan.cards, dropped)
    for position, place in enumerate(cards):
        if note := fit.notes.get(place.card_id):
            draft = attribute_to_turn(note, turn)
            cards[position] = PlannedCard(card_id=note.card_id, rule=place.rule, draft=draft)
    return msgspec.structs.replace(plan, cards=cards, left_out=[*plan.left_out, *excluded])
