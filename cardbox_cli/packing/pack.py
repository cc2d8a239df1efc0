"""Pack a context box by a recipe, in one transaction.

This module reads the cards that the recipe's rules need, lets `packing/plan.py` decide, and writes the new
cards and the box. It never creates or writes an output box.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from cardbox_cli.context.request import RequestEntry
from cardbox_cli.errors import BadRequest, NotFound
from cardbox_cli.model.boxes import CardState, Digest, Provenance, Slot, slot_of
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
    from cardbox_cli.context.repair.fit import FittedRequest
    from cardbox_cli.model.handwritten.recipes import Recipe

TOOL_SUFFIX = "cbx.pack"
# The number of cards that one query reads.
_CARDS_PER_QUERY = 2000


# A function that gets the lint findings of a request with the new box, and may raise to refuse the pack.
Check: TypeAlias = Callable[["list[LintFinding]"], None]
# A function that gets each position of the plan, with its card or None, while the digest is computed.
Look: TypeAlias = Callable[[PlannedCard, Card | CardDraft | None], object]
# A function that fits a request, made of the profile's box and the new box, into a number of tokens.
Fit: TypeAlias = Callable[["list[RequestEntry]"], "FittedRequest"]


class PackResult(msgspec.Struct, frozen=True, kw_only=True):
    """A packed context box. A dry run has no `context_box_id`. `fitted` is None without a token limit."""

    context_box_id: str | None
    profile_box_id: str
    profile_name: str
    plan: PackPlan
    digest: str | None
    provenance: Provenance
    fitted: "FittedRequest | None" = None


class Packing(msgspec.Struct, frozen=True):
    """The packing of `arguments` by `recipe` into a new context box, for `profile` or that of the recipe.
    `turn` is the metadata of the turn that packs, if any. `allow_dangling` accepts inherited ids without a
    visible card, with which no turn can run."""

    database: Database
    project_id: str
    recipe: "Recipe"
    recipe_name: str
    arguments: Mapping[str, Any]
    tool_suffix: str = TOOL_SUFFIX
    source_agent_id: str = OPERATOR
    turn: Mapping[str, str] = {}
    profile: ProfileEntry | None = None
    allow_dangling: bool = False

    def pack(
        self,
        *,
        dry_run: bool = False,
        with_digest: bool = True,
        look: Look = lambda place, card: None,
        check: "Check | None" = None,
        fit: "Fit | None" = None,
    ) -> PackResult:
        """Plan the context box and write it. Joins the caller's transaction if there is one.

        If `with_digest` is False, cards are read only if the recipe's limits need them, and `verify` cannot
        detect changed contents. `look` is called for each position while the digest is computed, with few
        cards in memory at a time. `check` is called with the lint findings of a request with the profile's
        box and the new box. If it raises an error, nothing is packed. `fit` fits that request into a token
        limit. The plan lists the cards that it leaves out.

        Raises BadRequest for arguments that break the recipe's rules and for a context without a card. Raises
        NotFound for an unknown profile or box, or an inherited card that is gone. No row remains then.
        """
        with self.database.snapshot() if dry_run else self.database.transaction():
            planned = self._plan_pack(with_digest=with_digest, look=look, check=check, fit=fit)
            return planned if dry_run else self.write(planned)

    @property
    def _boxes(self) -> BoxStore:
        return BoxStore(self.database, self.project_id)

    @property
    def _cards(self) -> CardStore:
        return CardStore(self.database, self.project_id)

    def _plan_pack(
        self, *, with_digest: bool, look: Look, check: "Check | None", fit: "Fit | None"
    ) -> PackResult:
        arguments = self.recipe.bind(self.arguments)
        profiles = ProfileStore(self.database, self.project_id)
        profile = self.profile or profiles.get(planning.target_profile_name(self.recipe, arguments))
        plan = self._plan(arguments)
        profiles.refuse_lost_box(profile)
        fitted = None
        if fit is not None:
            fitted = fit(self._entries(profile.profile_box_id, plan))
            plan = planning.apply_fit(plan, fitted, turn=self.turn)
        planning.refuse_lost_arguments(self.recipe, self.recipe_name, plan, arguments)
        contents, lost = self._digest(plan, look) if with_digest else (None, self._lost_cards(plan))
        if not self.allow_dangling:
            planning.refuse_lost_cards(plan, lost)
        if check is not None:
            # The import is slow, and most packs are not checked.
            from cardbox_cli.providers.formats import lint_entries

            check(lint_entries(self._entries(profile.profile_box_id, plan)))
        return PackResult(
            context_box_id=None,
            profile_box_id=profile.profile_box_id,
            profile_name=profile.name,
            plan=plan,
            digest=contents,
            provenance=Provenance(
                recipe=self.recipe_name,
                recipe_digest=self.recipe.digest(),
                digest=contents,
                rules=plan.rules(),
            ),
            fitted=fitted,
        )

    def write(self, planned: PackResult) -> PackResult:
        """Write the new cards and the box that a dry run has planned. Runs in the caller's transaction."""
        for draft in planned.plan.drafts:
            self._cards.add(draft)
        box = self._boxes.create(
            planned.plan.card_ids,
            parent_ids=planned.plan.parent_ids,
            title=f"{self.recipe_name} for {planned.profile_name}",
            provenance=planned.provenance,
            allow_dangling=True,
        )
        return msgspec.structs.replace(planned, context_box_id=box.box_id)

    def slots(self, plan: PackPlan) -> list[Slot]:
        """Return the slots of the new context box. Its new cards need not be written yet."""
        known = self._boxes.cards_with_states(plan.inherited_ids)
        known |= {draft.card_id: (draft_as_card(draft, self.project_id), "present") for draft in plan.drafts}
        card_ids = plan.card_ids
        return [slot_of(position, card_ids, known) for position in range(len(card_ids))]

    def _plan(self, arguments: Mapping[str, Any]) -> PackPlan:
        recipe = self.recipe
        of_arguments = planning.argument_cards(
            recipe, arguments, tool_suffix=self.tool_suffix, turn=self.turn
        )
        boxes = planning.inherited_boxes(recipe, arguments)
        id_lists = self._id_lists(boxes, arguments)
        inherited, left_out = self._inherit(boxes, id_lists)
        sections = {
            "pack_arguments": of_arguments,
            "inherit_context": inherited,
            "include_parent": planning.parent_card(recipe, source_agent_id=self.source_agent_id),
        }
        supplied = planning.supplied_cards(recipe, arguments, boxes, id_lists)
        return planning.build_plan(recipe, sections, parents=boxes, left_out=left_out, supplied=supplied)

    def _id_lists(self, boxes: Sequence[InheritedBox], arguments: Mapping[str, Any]) -> dict[str, list[str]]:
        """Return the id lists of the boxes. Raises NotFound for unknown, BadRequest for internal ones."""
        named = [box_id for _, box_id in planning.named_boxes(self.recipe, arguments)]
        known = self._boxes.inheritable(named) if named else {}
        for box in boxes:
            if box.box_id not in known:
                raise NotFound(
                    f"no box {box.box_id!r} in project {self.project_id!r} (argument {box.arg_key!r})",
                    hint="`cbx box list` shows the newest boxes",
                )
        planning.refuse_internal_boxes(self.recipe, arguments, known)
        return {box_id: each.card_ids for box_id, each in known.items()}

    def _inherit(
        self, boxes: Sequence[InheritedBox], id_lists: Mapping[str, Sequence[str]]
    ) -> tuple[list[PlannedCard], list[ExcludedCard]]:
        inherited = planning.inherited_cards(boxes, id_lists)
        limits = self.recipe.context_packing_config.inherit_context
        if not boxes or not planning.has_limits(limits):
            return inherited, []
        candidates = {
            card.card_id: planning.inheritable_card(card, limits)
            for places in _split_places(inherited)
            for card in self._cards.get_many([place.card_id for place in places]).cards
        }
        return planning.apply_limits(inherited, candidates, limits)

    def _digest(self, plan: PackPlan, look: Look) -> tuple[str, dict[str, CardState]]:
        """Return the digest of the new box, and the states of its ids without a visible card.

        Reads only a few inherited cards at a time.
        """
        total = Digest()
        lost: dict[str, CardState] = {}
        for places in _split_places(plan.cards):
            inherited = [place.card_id for place in places if place.draft is None]
            known = self._boxes.cards_with_states(inherited) if inherited else {}
            for place in places:
                stored = known.get(place.card_id)
                state: CardState = "dangling" if stored is None else stored[1]
                if place.draft is None and state != "present":
                    lost[place.card_id] = state
                card = place.draft or (None if stored is None else stored[0])
                total.add(card)
                look(place, card)
        return total.hexdigest(), lost

    def _lost_cards(self, plan: PackPlan) -> dict[str, CardState]:
        return {} if self.allow_dangling else self._boxes.lost_cards(plan.inherited_ids)

    def _entries(self, profile_box_id: str, plan: PackPlan) -> list[RequestEntry]:
        profile = self._boxes.slots(profile_box_id)
        planned = zip(self.slots(plan), plan.cards, strict=True)
        return [
            *(RequestEntry(slot=slot, box_id=profile_box_id) for slot in profile),
            *(RequestEntry(slot=slot, box_id="", rule=place.rule) for slot, place in planned),
        ]


def _split_places(places: Sequence[PlannedCard]) -> Iterator[Sequence[PlannedCard]]:
    for begin in range(0, len(places), _CARDS_PER_QUERY):
        yield places[begin : begin + _CARDS_PER_QUERY]


def pack_context(
    project_id: str,
    tool_suffix: str,
    source_agent_id: str,
    arguments: Mapping[str, Any],
    handover: "Mapping[str, Any] | Recipe",
    conn: "Connection[Any] | None" = None,
    *,
    with_digest: bool = True,
    allow_dangling: bool = False,
) -> tuple[str, str, list[str]]:
    """Pack a context box. Return (context_box_id, profile_box_id, card_ids). The card ids are in box order.

    `handover` is a recipe. A mapping is validated like a recipe file. If `conn` is given, the pack joins its
    transaction. If not, it is one transaction on the database that the environment configures.
    """
    from cardbox_cli.packing.recipe_files import recipe_from_mapping

    if handover is None:
        raise BadRequest("handover is missing", hint="pass a recipe: a mapping, or a parsed file")
    recipe = recipe_from_mapping(handover) if isinstance(handover, Mapping) else handover
    with (
        Database.open_target(find_target()) if conn is None else nullcontext(Database.adopt(conn)) as database
    ):
        packing = Packing(
            database,
            project_id,
            recipe,
            tool_suffix,
            arguments,
            tool_suffix,
            source_agent_id,
            allow_dangling=allow_dangling,
        )
        packed = packing.pack(with_digest=with_digest)
    assert packed.context_box_id is not None
    return packed.context_box_id, packed.profile_box_id, packed.plan.card_ids
