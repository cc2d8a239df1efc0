"""Packing a context box from a recipe: one transaction, whole or not at all.

Reads what the recipe's rules need, lets `packing/plan.py` decide, writes the new cards and the box. Never
makes or writes an output box.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from cardbox_cli.context.request import RequestEntry
from cardbox_cli.errors import NotFound
from cardbox_cli.model.boxes import Digest, Provenance, Slot, slot_of
from cardbox_cli.model.cards import OPERATOR, Card, CardDraft, card_of
from cardbox_cli.packing import plan as planning
from cardbox_cli.packing.plan import InheritedBox, LeftOut, Plan, PlannedCard
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
# So many cards are read at a time.
_AT_ONCE = 2000


# Looks at what the lint found in the request that an agent would make, and raises what it has against it.
Check: TypeAlias = Callable[["list[LintFinding]"], None]
# Gets a place of the plan and its card, None where there is none, as it is read for the digest.
Look: TypeAlias = Callable[[PlannedCard, Card | CardDraft | None], object]
# Makes the request of the profile's box and the context box to be fit a number of tokens.
Fit: TypeAlias = Callable[["list[RequestEntry]"], "Fitted"]


class Packed(msgspec.Struct, frozen=True, kw_only=True):
    """A packed context box; after a dry run `context_box_id` is None and nothing was written.

    `fitted` is what was done to fit a number of tokens, if that was asked for. `provenance` is kept with the
    box.
    """

    context_box_id: str | None
    profile_box_id: str
    profile_name: str
    plan: Plan
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
) -> Packed:
    """Pack `arguments` by `recipe` into a new context box, for `profile` where the caller has it already.

    Without the digest no inherited card is read, unless the recipe's limits look at them; `verify` can then
    not tell whether the contents are still the same. `look` gets every place as its card is read for the
    digest, few of which are held at a time. `check` gets what the rules of the profile's model find
    in the profile's box and the context box to be, which has no id yet; what it raises stops the pack. `turn`
    is the metadata that names the turn whose words the arguments are, if one packs. `fit` makes the request
    of the profile and the context box fit; of what it leaves out the plan tells.
    Raises BadRequest for arguments that the recipe's rules refuse, NotFound for an unknown profile or box;
    no row remains then. Joins the caller's transaction if there is one.
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
            plan = planning.fitted(plan, fitted, turn=turn)
        contents = _digest(CardStore(database, project_id), plan, look) if with_digest else None
        if check is not None:
            # Most packs are not checked, and the rules take a while to load.
            from cardbox_cli.providers.formats import lint_entries

            check(lint_entries(_entries(database, project_id, profile.profile_box_id, plan)))
        provenance = Provenance(
            recipe=recipe_name, recipe_digest=recipe.digest(), digest=contents, rules=plan.rules()
        )
        box_id = None
        if not dry_run:
            box_id = _write(database, project_id, plan, provenance, f"{recipe_name} for {profile.name}")
    return Packed(
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
    """Pack a context box; answers (context_box_id, profile_box_id, card_ids), all ids of the new box.

    `handover` is a recipe as a mapping, checked like a file. With `conn` everything joins the caller's
    transaction; without, it is one of its own on the database that the environment names. `with_digest` as
    in `pack`.
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
) -> Plan:
    of_arguments = planning.argument_cards(recipe, arguments, tool_suffix=tool_suffix, turn=turn)
    sections = {"pack_arguments": of_arguments}
    boxes = planning.inherited_boxes(recipe, arguments)
    sections["inherit_context"], left_out = _inherit(database, project_id, recipe, boxes)
    sections["include_parent"] = planning.parent_card(recipe, source_agent_id=source_agent_id)
    return planning.arrange(recipe, sections, parents=boxes, left_out=left_out)


def _inherit(
    database: Database, project_id: str, recipe: "Recipe", boxes: Sequence[InheritedBox]
) -> tuple[list[PlannedCard], list[LeftOut]]:
    if not boxes:
        return [], []
    id_lists = BoxStore(database, project_id).id_lists([box.box_id for box in boxes])
    for box in boxes:
        if box.box_id not in id_lists:
            raise NotFound(
                f"no box {box.box_id!r} in project {project_id!r} (argument {box.arg_key!r})",
                hint="`cbx box list` shows the newest",
            )
    inherited = planning.inherited_cards(boxes, id_lists)
    limits = recipe.context_packing_config.inherit_context
    if not planning.narrows(limits):
        return inherited, []
    cards = CardStore(database, project_id)
    candidates = {
        card.card_id: planning.candidate(card, limits)
        for places in _few_at_a_time(inherited)
        for card in cards.get_many([place.card_id for place in places]).cards
    }
    return planning.narrow(inherited, candidates, limits)


def _few_at_a_time(places: Sequence[PlannedCard]) -> Iterator[Sequence[PlannedCard]]:
    for begin in range(0, len(places), _AT_ONCE):
        yield places[begin : begin + _AT_ONCE]


def _digest(cards: CardStore, plan: Plan, look: Look) -> str:
    """The digest of the box to be; the inherited cards are read a few at a time."""
    total = Digest()
    for places in _few_at_a_time(plan.cards):
        inherited = [place.card_id for place in places if place.draft is None]
        read = cards.get_many(inherited, include_deleted=True).cards if inherited else []
        found = {card.card_id: card for card in read}
        for place in places:
            card = place.draft or found.get(place.card_id)
            total.add(card)
            look(place, card)
    return total.hexdigest()


def _entries(database: Database, project_id: str, profile_box_id: str, plan: Plan) -> list[RequestEntry]:
    """The places of the profile's box, then those of the context box to be."""
    profile = BoxStore(database, project_id).slots(profile_box_id)
    planned = zip(planned_slots(database, project_id, plan), plan.cards, strict=True)
    return [
        *(RequestEntry(slot=slot, box_id=profile_box_id) for slot in profile),
        *(RequestEntry(slot=slot, box_id="", rule=place.rule) for slot, place in planned),
    ]


def planned_slots(database: Database, project_id: str, plan: Plan) -> list[Slot]:
    """The places of the context box to be, with the cards of the plan that are not written."""
    known = BoxStore(database, project_id).known(plan.inherited_ids)
    known |= {draft.card_id: (card_of(draft, project_id), "present") for draft in plan.drafts}
    card_ids = plan.card_ids
    return [slot_of(position, card_ids, known) for position in range(len(card_ids))]


def _write(database: Database, project_id: str, plan: Plan, provenance: Provenance, title: str) -> str:
    cards = CardStore(database, project_id)
    for draft in plan.drafts:
        cards.add(draft)
    box = BoxStore(database, project_id).create(
        plan.card_ids, parent_ids=plan.parent_ids, title=title, provenance=provenance, allow_dangling=True
    )
    return box.box_id
