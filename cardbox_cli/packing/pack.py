"""Packing of a context box by a recipe, in one transaction.

Reads the cards that the recipe's rules need, lets `packing/plan.py` decide, writes the new cards and the box.
Never creates or writes an output box.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from cardbox_cli.context.request import RequestEntry
from cardbox_cli.errors import NotFound
from cardbox_cli.model.boxes import Digest, Provenance, Slot, slot_of
from cardbox_cli.model.cards import OPERATOR, Card, CardDraft, draft_as_card
from cardbox_cli.packing import plan as planning
from cardbox_cli.packing.plan import ExcludedCard, InheritedBox, PackPlan, PlannedCard
from cardbox_cli.store.boxes import BoxStore
from cardbox_cli.store.cards import CardStore
from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.connection.target import find_target
from cardbox_cli.store.profiles import ProfileEntry, ProfileStore

if TYPE_CHECKING:
    from psycopg import Connection

    from cardbox_cli.context.lint.rule import LintFinding
    from cardbox_cli.context.repair.fit import Fitted
    from cardbox_cli.model.handwritten.recipes import Recipe

TOOL_SUFFIX = "cbx.pack"
# Number of cards read per query.
_CARDS_PER_QUERY = 2000


# Gets the lint findings of the request that an agent would make, and raises an error to refuse them.
Check: TypeAlias = Callable[["list[LintFinding]"], None]
# Gets each position of the plan and its card, or None, while the digest is computed.
Look: TypeAlias = Callable[[PlannedCard, Card | CardDraft | None], object]
# Fits the request of the profile's box and the new context box into a number of tokens.
Fit: TypeAlias = Callable[["list[RequestEntry]"], "Fitted"]


class PackResult(msgspec.Struct, frozen=True, kw_only=True):
    """A packed context box; after a dry run, `context_box_id` is None and nothing was written.

    `fitted` has the changes that fit a token limit, if there was one. `provenance` is stored with the box.
    """

    context_box_id: str | None
    profile_box_id: str
    profile_name: str
    plan: PackPlan
    digest: str | None
    provenance: Provenance
    fitted: "Fitted | None" = None


def pack(
    database: Database,
    project_id: str,
    *,
    recipe: "Recipe",
    recipe_name: str,
    arguments: Mapping[str, Any],
    tool_suffix: str = TOOL_SUFFIX,
    source_agent_id: str = OPERATOR,
    dry_run: bool = False,
    with_digest: bool = True,
    look: Look = lambda place, card: None,
    check: "Check | None" = None,
    turn: Mapping[str, str] = {},
    profile: ProfileEntry | None = None,
    fit: "Fit | None" = None,
) -> PackResult:
    """Pack `arguments` by `recipe` into a new context box, for `profile` or the profile of the recipe.

    Without a digest, inherited cards are only read if the recipe's limits need them; `verify` then cannot
    detect changed contents. `look` gets every position when its card is read for the digest; few are in
    memory at a time. `check` gets the lint findings of the profile's box and the new context box, which has
    no id yet; an error that it raises stops the pack. `turn` is the metadata of the turn that packs, if any.
    `fit` fits the request into a token limit; the plan lists what it leaves out.

    Raises BadRequest for arguments that break the recipe's rules, NotFound for an unknown profile or box; no
    row remains then. Joins the caller's transaction if there is one.
    """
    arguments = recipe.bind(arguments)
    with database.snapshot() if dry_run else database.transaction():
        profiles = ProfileStore(database, project_id)
        profile = profile or profiles.get(planning.target_profile_name(recipe, arguments))
        plan = _plan(database, project_id, recipe, arguments, tool_suffix, source_agent_id, turn)
        profiles.refuse_lost_box(profile)
        fitted = None
        if fit is not None:
            fitted = fit(_entries(database, project_id, profile.profile_box_id, plan))
            plan = planning.apply_fit(plan, fitted, turn=turn)
        contents = _digest(CardStore(database, project_id), plan, look) if with_digest else None
        if check is not None:
            # Most packs are not checked, and the rules load slowly.
            from cardbox_cli.providers.formats import lint_entries

            check(lint_entries(_entries(database, project_id, profile.profile_box_id, plan)))
        provenance = Provenance(
            recipe=recipe_name, recipe_digest=recipe.digest(), digest=contents, rules=plan.rules()
        )
        box_id = None
        if not dry_run:
            box_id = _write(database, project_id, plan, provenance, f"{recipe_name} for {profile.name}")
    return PackResult(
        context_box_id=box_id,
        profile_box_id=profile.profile_box_id,
        profile_name=profile.name,
        plan=plan,
        digest=contents,
        provenance=provenance,
        fitted=fitted,
    )


def pack_context(
    project_id: str,
    tool_suffix: str,
    source_agent_id: str,
    arguments: Mapping[str, Any],
    handover: "Mapping[str, Any] | Recipe",
    conn: "Connection[Any] | None" = None,
    *,
    with_digest: bool = True,
) -> tuple[str, str, list[str]]:
    """Pack a context box; return (context_box_id, profile_box_id, card_ids), the latter in the order of the
    box.

    `handover` is a recipe as a mapping, validated like a file. With `conn`, everything joins the caller's
    transaction; otherwise it is a transaction on the database of the environment. `with_digest` as in `pack`.
    """
    from cardbox_cli.packing.recipe_files import recipe_from_mapping

    recipe = recipe_from_mapping(handover) if isinstance(handover, Mapping) else handover
    with (
        Database.open_target(find_target()) if conn is None else nullcontext(Database.adopt(conn)) as database
    ):
        packed = pack(
            database,
            project_id,
            recipe=recipe,
            recipe_name=tool_suffix,
            arguments=arguments,
            tool_suffix=tool_suffix,
            source_agent_id=source_agent_id,
            with_digest=with_digest,
        )
    assert packed.context_box_id is not None
    return packed.context_box_id, packed.profile_box_id, packed.plan.card_ids


def _plan(
    database: Database,
    project_id: str,
    recipe: "Recipe",
    arguments: Mapping[str, Any],
    tool_suffix: str,
    source_agent_id: str,
    turn: Mapping[str, str],
) -> PackPlan:
    of_arguments = planning.argument_cards(recipe, arguments, tool_suffix=tool_suffix, turn=turn)
    sections = {"pack_arguments": of_arguments}
    boxes = planning.inherited_boxes(recipe, arguments)
    sections["inherit_context"], left_out = _inherit(database, project_id, recipe, boxes)
    sections["include_parent"] = planning.parent_card(recipe, source_agent_id=source_agent_id)
    return planning.build_plan(recipe, sections, parents=boxes, left_out=left_out)


def _inherit(
    database: Database, project_id: str, recipe: "Recipe", boxes: Sequence[InheritedBox]
) -> tuple[list[PlannedCard], list[ExcludedCard]]:
    if not boxes:
        return [], []
    id_lists = BoxStore(database, project_id).id_lists([box.box_id for box in boxes])
    for box in boxes:
        if box.box_id not in id_lists:
            raise NotFound(
                f"no box {box.box_id!r} in project {project_id!r} (argument {box.arg_key!r})",
                hint="`cbx box list` shows the newest boxes",
            )
    inherited = planning.inherited_cards(boxes, id_lists)
    limits = recipe.context_packing_config.inherit_context
    if not planning.has_limits(limits):
        return inherited, []
    cards = CardStore(database, project_id)
    candidates = {
        card.card_id: planning.inheritable_card(card, limits)
        for places in _split_places(inherited)
        for card in cards.get_many([place.card_id for place in places]).cards
    }
    return planning.apply_limits(inherited, candidates, limits)


def _split_places(places: Sequence[PlannedCard]) -> Iterator[Sequence[PlannedCard]]:
    for begin in range(0, len(places), _CARDS_PER_QUERY):
        yield places[begin : begin + _CARDS_PER_QUERY]


def _digest(cards: CardStore, plan: PackPlan, look: Look) -> str:
    """Return the digest of the new box; reads few inherited cards at a time."""
    total = Digest()
    for places in _split_places(plan.cards):
        inherited = [place.card_id for place in places if place.draft is None]
        read = cards.get_many(inherited, include_deleted=True).cards if inherited else []
        found = {card.card_id: card for card in read}
        for place in places:
            card = place.draft or found.get(place.card_id)
            total.add(card)
            look(place, card)
    return total.hexdigest()


def _entries(database: Database, project_id: str, profile_box_id: str, plan: PackPlan) -> list[RequestEntry]:
    """Return the entries of the profile's box, then those of the new context box."""
    profile = BoxStore(database, project_id).slots(profile_box_id)
    planned = zip(planned_slots(database, project_id, plan), plan.cards, strict=True)
    return [
        *(RequestEntry(slot=slot, box_id=profile_box_id) for slot in profile),
        *(RequestEntry(slot=slot, box_id="", rule=place.rule) for slot, place in planned),
    ]


def planned_slots(database: Database, project_id: str, plan: PackPlan) -> list[Slot]:
    """Return the slots of the new context box, including cards of the plan that are not written yet."""
    known = BoxStore(database, project_id).cards_with_states(plan.inherited_ids)
    known |= {draft.card_id: (draft_as_card(draft, project_id), "present") for draft in plan.drafts}
    card_ids = plan.card_ids
    return [slot_of(position, card_ids, known) for position in range(len(card_ids))]


def _write(database: Database, project_id: str, plan: PackPlan, provenance: Provenance, title: str) -> str:
    cards = CardStore(database, project_id)
    for draft in plan.drafts:
        cards.add(draft)
    box = BoxStore(database, project_id).create(
        plan.card_ids, parent_ids=plan.parent_ids, title=title, provenance=provenance, allow_dangling=True
    )
    return box.box_id
