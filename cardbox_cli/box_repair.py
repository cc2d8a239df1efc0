"""Repaired, compressed and expanded boxes: each is a new box, and the old box is its parent.

Each operation is one transaction. It reads the box and the calls that turns wait for, lets `context/repair`
decide, and writes the new cards and the new box. The old box, its cards, and pointers to them never change.
"""

from collections.abc import Collection, Mapping, Sequence

import msgspec

from cardbox_cli.context.lint.rule import LintFinding
from cardbox_cli.context.provider import Provider
from cardbox_cli.context.repair import fit as compressing
from cardbox_cli.context.repair.changes import Change, ChangeKind, card_ids_of, drafts_of
from cardbox_cli.context.repair.repair import RepairRequest, repair
from cardbox_cli.context.request import RequestEntry, request_of
from cardbox_cli.errors import BoxConflict, CardConflict, InvalidInput
from cardbox_cli.model.boxes import Box, Slot
from cardbox_cli.model.card_types import TOOL_RESULT
from cardbox_cli.model.cards import Card, CardDraft, attribute_to_turn, card_text, draft_as_card
from cardbox_cli.model.execution.turns import DISPATCHED, SUSPENDED
from cardbox_cli.model.ids import canonical_box_id, unique
from cardbox_cli.model.pairing import call_ids
from cardbox_cli.model.tokens import ESTIMATING_TOKENIZER, card_tokens
from cardbox_cli.providers.registry import DEFAULT, provider_named
from cardbox_cli.store.boxes import BoxStore
from cardbox_cli.store.cards import CardStore
from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.execution.head_store import HeadStore
from cardbox_cli.store.execution.turn_store import TurnStore
from cardbox_cli.store.in_use import BoxUseStore

# --- turns that wait


class ActiveUser(msgspec.Struct, frozen=True):
    """An active turn that uses a box. If `waits`, it is not running and can continue with another box."""

    agent_turn_id: str
    use: str
    turn_epoch: int
    waits: bool


def active_users(database: Database, project_id: str, box_ids: Sequence[str]) -> list[ActiveUser]:
    """Return the active turns that read or write one of these boxes."""
    heads = HeadStore(database, project_id)
    users = []
    for use, turn_id, agent_id in BoxUseStore(database, project_id).active_turns(box_ids):
        head = heads.get(agent_id)
        if head is not None and head.active_agent_turn_id == turn_id:
            waits = head.status in (DISPATCHED, SUSPENDED)
            users.append(ActiveUser(turn_id, use, head.turn_epoch, waits))
    return users


def find_ancestors(database: Database, project_id: str, box_id: str) -> list[str]:
    """Return the box and its ancestors, nearest first. The maximum is `_MAX_SUMMARIES` boxes."""
    boxes = BoxStore(database, project_id)
    found, level = list[str](), [box_id]
    while level and len(found) < _MAX_SUMMARIES:
        found += level
        parents = (
            each for box in boxes.get_many(level).boxes for each in map(canonical_box_id, box.parent_ids)
        )
        level = unique(each for each in parents if each is not None and each not in found)
    return found[:_MAX_SUMMARIES]


_MAX_SUMMARIES = 20


def awaited_calls(database: Database, project_id: str, box_id: str, slots: Sequence[Slot]) -> frozenset[str]:
    """Return the ids of calls for whose results the active turn that writes to the box still waits."""
    writers = {
        user.agent_turn_id for user in active_users(database, project_id, [box_id]) if user.use == "output"
    }
    if not writers:
        return frozenset()
    turns = TurnStore(database, project_id)
    waiting = {tool.tool_call_id for turn in writers for tool in turns.waiting_tools(turn) if tool.is_open}
    made = {
        call_id
        for slot in slots
        if slot.card is not None and slot.card.metadata.get("agent_turn_id") in writers
        for call_id in call_ids(slot.card)
    }
    answered = {slot.card.tool_call_id for slot in slots if slot.card and slot.card.type == TOOL_RESULT}
    return frozenset(waiting | (made - answered))


# --- boxes


class RepairedBox(msgspec.Struct, frozen=True, kw_only=True):
    """A repaired box. `box_id` is None after a dry run, and `from_box_id` if nothing changed."""

    box_id: str | None
    from_box_id: str
    changes: list[Change] = []


class CompressedBox(RepairedBox, frozen=True, kw_only=True):
    """A compressed box. `covers` has the ids of the replaced cards. The token counts are estimates."""

    summary_card_id: str | None = None
    covers: list[str] = []
    tokens_covered: int = 0
    tokens_summary: int = 0


class CoveredBox(msgspec.Struct, frozen=True, kw_only=True):
    """A box at the time of reading, and the places and cards of it that a summary would replace."""

    box: Box
    places: list[int]
    cards: list[Card]


def repair_box(
    database: Database,
    project_id: str,
    box_id: str,
    *,
    providers: Sequence[Provider],
    synthesizes: bool,
    before: Sequence[str] = (),
    author_id: str,
    turn: Mapping[str, str] = {},
    dry_run: bool = False,
) -> tuple[RepairedBox, list[LintFinding]]:
    """Write a new box that none of `providers` refuses. Return it, and the errors that cannot be repaired.

    If there is such an error, nothing is written. The boxes `before` precede the box in the request. `turn`
    is the metadata of the repairing turn, if any. Raises NotFound if a box is unknown.
    """
    with database.snapshot() if dry_run else database.transaction():
        boxes = BoxStore(database, project_id)
        box = _read(boxes, box_id, dry_run=dry_run)
        slots = boxes.slots(box.box_id)
        repaired = repair(
            RepairRequest(
                project_id=project_id,
                box_id=box.box_id,
                entries=_entries(boxes, box.box_id, slots),
                before=[entry for each in before for entry in _entries(boxes, each, boxes.slots(each))],
                providers=providers,
                synthesizes=synthesizes,
                awaited=awaited_calls(database, project_id, box.box_id, slots),
                author_id=author_id,
            )
        )
        made: str | None = None
        if not repaired.changes:
            made = box.box_id
        elif not dry_run and not repaired.left:
            drafts = [attribute_to_turn(draft, turn) for draft in drafts_of(repaired.places)]
            made = _write(database, boxes, box, drafts, card_ids_of(repaired.places)).box_id
    return RepairedBox(box_id=made, from_box_id=box.box_id, changes=repaired.changes), repaired.left


class MaxTokens(msgspec.Struct, frozen=True):
    """The maximum tokens of a box's request without its summary, counted for `model`."""

    tokens: int
    model: str | None = None


def read_covering(database: Database, project_id: str, box_id: str, *, keep: int | MaxTokens) -> CoveredBox:
    """Return the cards that a summary of the box would replace.

    With a number, these are all but the last `keep` messages. With MaxTokens, they are the oldest cards until
    the rest fits, or none if all fit. Raises NotFound if the box is unknown, and InvalidInput if no card can
    be covered.
    """
    with database.snapshot():
        boxes = BoxStore(database, project_id)
        box = boxes.get(box_id)
        slots = boxes.slots(box.box_id)
        awaited = awaited_calls(database, project_id, box.box_id, slots)
        entries = _entries(boxes, box.box_id, slots)
        if isinstance(keep, int):
            selected = compressing.select_covered(entries, keep, awaited)
        else:
            budget = compressing.SummaryBudget(keep.tokens, keep.model, provider_named(DEFAULT))
            selected = compressing.select_covered_to_fit(entries, budget, awaited)
    return CoveredBox(box=box, places=selected.places, cards=selected.cards)


def compress_box(
    database: Database,
    project_id: str,
    covering: CoveredBox,
    text: str,
    *,
    author_id: str,
    dry_run: bool = False,
) -> CompressedBox:
    """Write a new box with a summary instead of the covered cards.

    The new box includes cards that were appended after the box was read. Raises BoxConflict if the box
    was changed in another way, and InvalidInput if the summary is blank.
    """
    old = covering.box
    draft = compressing.summary_card(text, old.card_ids, covering.places, author_id)
    made = None
    if not dry_run:
        with database.transaction():
            boxes = BoxStore(database, project_id)
            now = _read(boxes, old.box_id, dry_run=False)
            if now.card_ids[: len(old.card_ids)] != old.card_ids:
                raise BoxConflict(f"box {old.box_id} has changed since it was read", hint="compress it again")
            ids = compressing.insert_summary(now.card_ids, covering.places, draft.card_id)
            made = _write(database, boxes, now, [draft], ids).box_id
    return CompressedBox(
        box_id=made,
        from_box_id=old.box_id,
        changes=_covering_changes(covering, draft),
        summary_card_id=None if dry_run else draft.card_id,
        covers=[old.card_ids[place] for place in covering.places],
        tokens_covered=sum(card_tokens(card) for card in covering.cards),
        tokens_summary=ESTIMATING_TOKENIZER.count(card_text(draft.content)),
    )


def skip_compression(covering: CoveredBox) -> CompressedBox:
    return CompressedBox(box_id=covering.box.box_id, from_box_id=covering.box.box_id)


def expand_box(database: Database, project_id: str, box_id: str, *, dry_run: bool = False) -> RepairedBox:
    """Write a new box with the covered cards instead of all summaries, in their old order.

    Includes the ids of covered cards that no longer exist. Raises InvalidInput if no summary records its
    covered cards, or if a summary covers itself.
    """
    with database.snapshot() if dry_run else database.transaction():
        boxes = BoxStore(database, project_id)
        box = _read(boxes, box_id, dry_run=dry_run)
        card_ids, found = _expanded(boxes, box)
        if not found:
            raise InvalidInput(
                f"box {box.box_id} contains no summary with a list of the cards it replaced",
                hint="`cbx box compress` writes such a summary; `cbx box show` lists the parents of a box",
            )
        made = None if dry_run else boxes.derive(box, card_ids, may_be_gone=card_ids).box_id
    return RepairedBox(box_id=made, from_box_id=box.box_id, changes=_expanding_changes(box, found, card_ids))


def _expanded(boxes: BoxStore, box: Box) -> tuple[list[str], list[Card]]:
    """Expand all summaries, including nested ones. Return the list and the summaries in that order."""
    card_ids, known = list(box.card_ids), boxes.cards_with_states(box.card_ids)
    found: list[Card] = []
    while True:
        slots = [
            Slot(place, card_id, *known.get(card_id, (None, "dangling")))
            for place, card_id in enumerate(card_ids)
        ]
        summaries = compressing.find_summaries(slots)
        if not summaries:
            return card_ids, found
        summary = summaries[0]
        if summary in found:
            raise InvalidInput(
                f"the summary {summary.card_id!r} of box {box.box_id} lists itself as a replaced card",
                hint="another program wrote the summary; `cbx card show` prints its list of replaced cards",
            )
        before = set(card_ids)
        card_ids = compressing.expand_summary(card_ids, summary)
        known |= boxes.cards_with_states(card_id for card_id in card_ids if card_id not in before)
        found.append(summary)


def _read(boxes: BoxStore, box_id: str, *, dry_run: bool) -> Box:
    """Return the box. Unless it is a dry run, lock it against changes until the transaction ends."""
    if not dry_run:
        boxes.lock_shared(box_id)
    return boxes.get(box_id)


def _entries(boxes: BoxStore, box_id: str, slots: Sequence[Slot]) -> list[RequestEntry]:
    packed = boxes.provenance(box_id)
    return [
        RequestEntry(slot=slot, box_id=box_id, rule=None if packed is None else packed.rule_of(slot.position))
        for slot in slots
    ]


def _write(
    database: Database, boxes: BoxStore, box: Box, drafts: Sequence[CardDraft], card_ids: Sequence[str]
) -> Box:
    """Write the new cards, and a box with `card_ids`. Raises CardConflict if a card repeats a call's result
    and the database forbids that."""
    cards = CardStore(database, boxes.project_id)
    for draft in drafts:
        if draft.type == TOOL_RESULT and database.unique_tool_results and draft.metadata.get("edited_from"):
            raise CardConflict(
                f"the result of the tool call {draft.tool_call_id!r} would be written twice",
                hint="this database allows one result per call; --drop-orphans adds no results",
            )
        cards.add(draft)
    return boxes.derive(box, card_ids)


def _covering_changes(covering: CoveredBox, draft: CardDraft) -> list[Change]:
    reason = "the summary replaces it"
    dropped = [
        _summary_change(covering.box.card_ids[place], reason, "compress", place) for place in covering.places
    ]
    return [*dropped, _summary_change(draft.card_id, f"sums up {len(dropped)} cards", "compress")]


def _expanding_changes(box: Box, found: Sequence[Card], card_ids: Sequence[str]) -> list[Change]:
    held = set(box.card_ids)
    reason = "the cards that it covers are back"
    dropped = [
        _summary_change(card.card_id, reason, "expand", box.card_ids.index(card.card_id))
        for card in found
        if card.card_id in held
    ]
    back = [card_id for card_id in card_ids if card_id not in held]
    return [*dropped, *(_summary_change(card_id, "a summary covered it", "expand") for card_id in back)]


def _summary_change(card_id: str, reason: str, rule: str, position: int | None = None) -> Change:
    kind: ChangeKind = "added" if position is None else "dropped"
    return Change(kind=kind, position=position, card_id=card_id, rule=rule, reason=reason)


def format_cards(project_id: str, cards: Collection[Card | CardDraft]) -> str:
    """Return the messages of these cards as text, for the command that writes the summary."""
    from cardbox_cli.providers.formats import TEXT, encoder_of, text

    read = [card if isinstance(card, Card) else draft_as_card(card, project_id) for card in cards]
    entries = [
        RequestEntry(slot=Slot(place, card.card_id, card, "present"), box_id="")
        for place, card in enumerate(read)
    ]
    return text(request_of(entries, encode=encoder_of(TEXT), takes_all=True))
