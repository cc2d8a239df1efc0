"""Compose the request of a run's next step, store it as a request box, and begin the step of a turn.

A step cannot begin if a card or box is missing, if its layers are invalid, or if the model has no tool that
could end the turn. One statement writes all rows of a new step if the turn is still at its fence.
"""

from collections.abc import Sequence
from itertools import count

import msgspec

from cardbox_cli.context.request import ComposeOptions, request_box_ids, request_cards
from cardbox_cli.errors import CardConflict, InvalidInput
from cardbox_cli.execution.requests.request_checks import Lack, incomplete_message, turn_lacks
from cardbox_cli.execution.requests.step_snapshots import SNAPSHOT_KEY, snapshot_of
from cardbox_cli.execution.requests.turn_requests import (
    TurnRequest,
    apply_share_default,
    collector_for,
    compose_turn_request,
)
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.execution.worker.ledger import BegunStep, RunState, TurnState
from cardbox_cli.model.cards import CardDraft
from cardbox_cli.model.execution.turns import DISPATCHED, RUNNING, new_id
from cardbox_cli.model.identity import ProjectSettings
from cardbox_cli.model.ids import new_box_id, new_card_id
from cardbox_cli.store.execution.step_store import NewStep, TurnStart
from cardbox_cli.store.projects import ProjectsStore


class IncompleteContext(Exception):
    """The refusal of a step whose boxes or cards are missing."""

    def __init__(self, lacking: Sequence[Lack]) -> None:
        super().__init__(incomplete_message(lacking))
        self.lacking = lacking


class InvalidLayers(Exception):
    """The refusal of a step with invalid layers."""


def compose_step(
    runtime: Runtime, state: RunState, *, format: str, options: ComposeOptions
) -> tuple[TurnRequest, ProjectSettings]:
    """Compose the request of the next step, and return it with the project's settings.

    Raises what `begin_step` raises.
    """
    settings = ProjectsStore(runtime.database).settings(runtime.project_id)
    lacking = [] if settings.allow_incomplete_context else turn_lacks(state.boxes)
    if lacking:
        raise IncompleteContext(lacking)
    options = apply_share_default(options, settings)
    context_box_id = state.boxes.context.box_id
    collector = collector_for(runtime.database, runtime.project_id, context_box_id, settings=settings)
    try:
        asked = compose_turn_request(state.boxes, state.tools, options, format=format, collector=collector)
    except InvalidInput as exc:
        raise InvalidLayers(exc.message) from exc
    return asked, settings


def store_request(runtime: Runtime, asked: TurnRequest, settings: ProjectSettings, step_id: str) -> str:
    """Store a request as a box and return its id, in the caller's transaction."""
    snapshots = request_cards(runtime.project_id, asked.request, reproducible=settings.stored_layers)
    box_ids = request_box_ids([_store_card(runtime, card) for card in snapshots], asked.history)
    return runtime.boxes.create(box_ids, title=request_box_title(step_id), allow_dangling=True).box_id


def request_box_title(step_id: str) -> str:
    return f"request of {step_id}"


def copy_with_new_id(card: CardDraft) -> CardDraft:
    return msgspec.structs.replace(card, card_id=new_card_id())


def _store_card(runtime: Runtime, draft: CardDraft) -> CardDraft:
    """Store a card of a request. If a card with its id exists and was deleted, store it with a new id."""
    try:
        runtime.cards.add(draft)
    except CardConflict:
        draft = copy_with_new_id(draft)
        runtime.cards.add(draft)
    return draft


_LOST = "abandoned by an earlier worker"


class CannotEnd(Exception):
    """The refusal of a step whose model has no tool that could end the turn."""


def enter(runtime: Runtime, turn: TurnState) -> None:
    """Mark a turn as running before its unanswered calls are answered. Raises StaleEpoch."""
    if turn.head.status != DISPATCHED:
        return
    with runtime.statement():
        if not runtime.steps.enter(turn.fence, _entering(turn)):
            raise runtime.heads.stale_error(turn.fence, runtime.heads.get(turn.fence.agent_id))
        _publish_running(runtime, turn)


def _entering(turn: TurnState) -> TurnStart:
    return TurnStart(output_start=turn.boxes.output_start, lost=_LOST)


def _publish_running(runtime: Runtime, turn: TurnState) -> None:
    if turn.head.status == DISPATCHED:
        runtime.publish_state(turn.head, RUNNING, turn.head.turn_epoch)


def begin_step(runtime: Runtime, turn: TurnState, *, format: str, options: ComposeOptions) -> BegunStep:
    """Begin a step, and store its request as the request box.

    Raises StaleEpoch, InvalidLayers and CannotEnd. Raises IncompleteContext unless the project allows missing
    cards, and InvalidInput if the request cannot be stored.
    """
    asked, settings = compose_step(runtime, turn, format=format, options=options)
    fault = turn.end_rule(asked.request.tools).problem(turn.boxes.own)
    if fault is not None:
        raise CannotEnd(fault)
    step_id = new_id("step")
    with runtime.statement():
        _write_beginning(runtime, turn, asked, settings, step_id, format)
        _publish_running(runtime, turn)
        runtime.publish_step(turn.head, step_id, "started")
    return BegunStep(step_id=step_id, asked=asked, written=len(turn.boxes.own))


def _write_beginning(
    runtime: Runtime,
    turn: TurnState,
    asked: TurnRequest,
    settings: ProjectSettings,
    step_id: str,
    format: str,
) -> None:
    """Write the rows of a step. A card gets a new id if a card with its id exists and was deleted."""
    cards = request_cards(runtime.project_id, asked.request, reproducible=settings.stored_layers)
    metadata = {SNAPSHOT_KEY: snapshot_of(asked.request, asked.body, turn.boxes, format)}
    # Only the second try sees cards that another transaction has just written.
    for again in count():
        step = NewStep(
            step_id=step_id,
            status="llm_ready",
            request_box_id=new_box_id(),
            title=request_box_title(step_id),
            box_card_ids=request_box_ids(cards, asked.history),
            cards=cards,
            metadata=metadata,
        )
        found = runtime.steps.begin(turn.fence, _entering(turn), step)
        if not found.at_fence:
            raise runtime.heads.stale_error(turn.fence, runtime.heads.get(turn.fence.agent_id))
        if found.written:
            return
        if again:
            cards = [card if card.card_id in found.stored else copy_with_new_id(card) for card in cards]
