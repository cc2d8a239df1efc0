"""The sent requests of all steps of a turn or chat, read and composed incrementally.

Each step stores its request as its own box, which mostly repeats the box of the previous step. This module
reads the id lists and each card once, and composes only the new messages of a request. It never writes. It
reads in the caller's snapshot.
"""

from collections.abc import Iterator, Sequence

import msgspec

from cardbox_cli.context.cost.account import Sent, history_of
from cardbox_cli.context.cost.usage import Usage, read_usage
from cardbox_cli.context.request import ComposeOptions, Request, RequestEntry, request_of
from cardbox_cli.execution.requests.step_snapshots import StepSnapshot, read_snapshot, restore_request
from cardbox_cli.execution.requests.turn_requests import BoxSource, read_source
from cardbox_cli.model.boxes import Slot, decode_ids
from cardbox_cli.model.card_types import PROFILE, card_type
from cardbox_cli.model.cards import Card
from cardbox_cli.model.content import ToolContent
from cardbox_cli.model.execution.turns import Step
from cardbox_cli.model.layers import CHECKPOINT
from cardbox_cli.providers.formats import encoder_of, provider_of
from cardbox_cli.providers.registry import provider_for
from cardbox_cli.store.boxes import BoxStore
from cardbox_cli.store.cards import CardStore
from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.execution.turn_store import TurnStore
from cardbox_cli.store.views.turn_views import TurnRow

# The number of steps whose id lists are in memory at once.
_BATCH_SIZE = 50


class _StoredRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The stored request of a step: its card ids as JSON, its profile, snapshot and format.

    `added` lists the ids that the request adds to the ids of the previous request. It is None if the request
    does not begin with all ids of the previous one.
    """

    step: Step
    ids: str
    added: list[str] | None
    profile: BoxSource | None
    snapshot: StepSnapshot | None
    format: str


def read_turn_requests(database: Database, project_id: str, turn: TurnRow) -> list[Sent]:
    """Return the stored requests of the turn's steps, in order."""
    homes = [each for each in (turn.output_box_id, turn.context_box_id) if each]
    steps = [
        step if step.profile_box_id else msgspec.structs.replace(step, profile_box_id=turn.profile_box_id)
        for step in TurnStore(database, project_id).steps(turn.agent_turn_id)
    ]
    return read_step_requests(database, project_id, steps, homes)


def read_step_requests(
    database: Database, project_id: str, steps: Sequence[Step], homes: Sequence[str]
) -> list[Sent]:
    """Return the stored requests of these steps, in order.

    Each entry names the first of the boxes `homes` that has its card, because a request box is only a copy.
    """
    return list(_SeriesReader(database, project_id, steps, homes).requests())


class _SeriesReader:
    """A reader of the requests of steps. It reuses the cards and messages of earlier steps."""

    def __init__(
        self, database: Database, project_id: str, steps: Sequence[Step], homes: Sequence[str]
    ) -> None:
        self._boxes = BoxStore(database, project_id)
        self._card_store = CardStore(database, project_id)
        self._steps = steps
        self._cards: dict[str, Card] = {}
        self._before = ""
        self._profiles: dict[str | None, BoxSource | None] = {None: None}
        self._homes = self._find_homes(homes)

    def requests(self) -> Iterator[Sent]:
        before: tuple[_StoredRequest, Request] | None = None
        for stored in self._stored_requests():
            request = None if before is None else self._continue_request(stored, *before)
            if request is None:
                request = self._restore(stored)
            before = stored, request
            yield Sent(
                provider=provider_of(stored.format),
                agent_turn_id=stored.step.agent_turn_id,
                step_id=stored.step.step_id,
                request=request,
                usage=step_usage(stored.step),
            )

    def _find_homes(self, homes: Sequence[str]) -> dict[str, tuple[str, int]]:
        """Map each card id to the first of these boxes that has the card, and to the position in that box."""
        lists = self._boxes.id_lists(homes)
        places: dict[str, tuple[str, int]] = {}
        for box_id in homes:
            for position, card_id in enumerate(lists.get(box_id, ())):
                places.setdefault(card_id, (box_id, position))
        return places

    def _stored_requests(self) -> Iterator[_StoredRequest]:
        with_box = [step for step in self._steps if step.request_box_id is not None]
        for start in range(0, len(with_box), _BATCH_SIZE):
            steps = with_box[start : start + _BATCH_SIZE]
            texts = self._boxes.id_texts([step.request_box_id or "" for step in steps])
            batch = [
                self._read_step(step, ids) for step in steps if (ids := texts.get(step.request_box_id or ""))
            ]
            self._read_cards([card_id for stored in batch for card_id in stored.added or ()])
            yield from batch

    def _read_step(self, step: Step, ids: str) -> _StoredRequest:
        added, self._before = _added_ids(self._before, ids), ids
        profile = self._profile(step.profile_box_id)
        snapshot = read_snapshot(step.metadata)
        entries: Sequence[RequestEntry] = [] if profile is None else profile.visible_entries
        format = provider_for(entries) if snapshot is None else snapshot.format
        return _StoredRequest(
            step=step, ids=ids, added=added, profile=profile, snapshot=snapshot, format=format
        )

    def _profile(self, box_id: str | None) -> BoxSource | None:
        if box_id not in self._profiles:
            there = bool(self._boxes.filter_existing([box_id or ""]))
            self._profiles[box_id] = read_source(self._boxes, box_id or "") if there else None
        return self._profiles[box_id]

    def _read_cards(self, card_ids: Sequence[str]) -> None:
        unknown = [card_id for card_id in card_ids if card_id not in self._cards]
        if unknown:
            self._cards.update((card.card_id, card) for card in self._card_store.get_many(unknown).cards)

    def _slots(self, card_ids: Sequence[str]) -> list[Slot]:
        self._read_cards(card_ids)
        return [
            Slot(place, card_id, card, "dangling" if card is None else "present")
            for place, card_id in enumerate(card_ids)
            for card in [self._cards.get(card_id)]
        ]

    def _restore(self, stored: _StoredRequest) -> Request:
        """Return the whole request as `render` shows it. Entries have the home box and position of a card."""
        box = BoxSource(stored.step.request_box_id or "", self._slots(decode_ids(stored.ids)))
        restored = restore_request(box, stored.profile, stored.snapshot, stored.format, ComposeOptions())
        request = restored.request
        places = {card_id: self._home_entry(card_id, entry) for card_id, entry in request.places.items()}
        return msgspec.structs.replace(request, places=places)

    def _home_entry(self, card_id: str, entry: RequestEntry) -> RequestEntry:
        home = self._homes.get(card_id)
        if home is None:
            return entry
        box_id, position = home
        slot = msgspec.structs.replace(entry.slot, position=position)
        return msgspec.structs.replace(entry, box_id=box_id, slot=slot)

    def _continue_request(
        self, stored: _StoredRequest, before: _StoredRequest, request: Request
    ) -> Request | None:
        """Return `request` with the new messages, or None if `stored` differs in more than new messages."""
        _, end = history_of(request.messages)
        if not end or stored.added is None or not _is_alike(stored, before):
            return None
        layers = {} if stored.snapshot is None else stored.snapshot.layers
        are_same = all(layers.get(each.name) == each.sha256 for each in request.layers)
        if stored.snapshot is not None and not are_same:
            return None
        slots = self._slots(stored.added)
        if not all(slot.card is None or _is_plain(slot.card) for slot in slots):
            return None
        added = self._messages(slots, stored, request)
        there = {layer.name for layer in request.layers}
        # All requests of the series share one dict, because each copy would be as long as the history.
        request.places.update((each, self._home_entry(each, entry)) for each, entry in added.places.items())
        return msgspec.structs.replace(
            request,
            messages=[*request.messages[:end], *added.messages, *request.messages[end:]],
            places=request.places,
            lost_layers={name: sha256 for name, sha256 in layers.items() if name not in there},
        )

    def _messages(self, slots: Sequence[Slot], stored: _StoredRequest, request: Request) -> Request:
        entries = [
            RequestEntry(slot=slot, box_id=stored.step.request_box_id or "")
            for slot in slots
            if slot.card_id not in request.places
        ]
        own = {entry.slot.card_id for entry in entries}
        made = request_of(entries, ComposeOptions(share=False), encode=encoder_of(stored.format), own=own)
        history = [message for message in made.messages if message.layer == CHECKPOINT]
        return msgspec.structs.replace(made, messages=history)


def step_usage(step: Step) -> Usage | None:
    """Return what the provider reported for a step, if anything."""
    return read_usage(step.metadata.get("llm_usage")) if isinstance(step.metadata, dict) else None


def _added_ids(before: str, ids: str) -> list[str] | None:
    """Return the ids that `ids` has after the ids of `before`, or None if it does not begin with `before`.

    Both are JSON lists. Postgres prints equal lists in the same way, so this compares them as text.
    """
    if len(before) > 2 and ids.startswith(f"{before[:-1]}, "):
        return decode_ids(f"[{ids[len(before) + 1 :]}")
    return [] if len(before) > 2 and ids == before else None


def _is_alike(one: _StoredRequest, other: _StoredRequest) -> bool:
    """Return whether two requests have the same format, profile, model, process and layout."""
    facts = [
        snapshot and (snapshot.model, snapshot.process, snapshot.layout)
        for snapshot in (one.snapshot, other.snapshot)
    ]
    return one.format == other.format and one.profile is other.profile and facts[0] == facts[1]


def _is_plain(card: Card) -> bool:
    """Return whether a card only adds a message to the history, and changes no other part of a request."""
    known = card_type(card.type)
    is_apart = known.is_snapshot or known.layer is not None or card.type == PROFILE
    return not is_apart and not isinstance(card.content, ToolContent)
