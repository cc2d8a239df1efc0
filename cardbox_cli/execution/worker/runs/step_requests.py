"""What the next step of a run asks its model, a turn's or a chat's, and how that is kept as a box.

Owns why a step cannot be asked for: something is gone, or its layers cannot be had.
"""

from collections.abc import Sequence

import msgspec

from cardbox_cli.context.request import ComposeOptions, request_box_ids, request_cards
from cardbox_cli.errors import CardConflict, InvalidInput
from cardbox_cli.execution.requests.completeness import Lack, in_words, lacks_of
from cardbox_cli.execution.requests.project_layers import collector_for, settled
from cardbox_cli.execution.requests.request import TurnRequest, turn_request
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.execution.worker.runs.ledger import RunState
from cardbox_cli.model.cards import CardDraft
from cardbox_cli.model.identity import ProjectSettings
from cardbox_cli.model.ids import new_card_id
from cardbox_cli.store.projects import ProjectsStore


class IncompleteContext(Exception):
    """Something is gone that the turn should read."""

    def __init__(self, lacking: Sequence[Lack]) -> None:
        super().__init__(in_words(lacking))
        self.lacking = lacking


class InvalidLayers(Exception):
    """Layers that are asked for and cannot be had."""


def compose_step(
    runtime: Runtime, state: RunState, *, format: str, options: ComposeOptions
) -> tuple[TurnRequest, ProjectSettings]:
    """What the next step asks, and the project's settings that decided on it. Raises as `begin_step` does."""
    settings = ProjectsStore(runtime.database).settings(runtime.project_id)
    lacking = [] if settings.allow_incomplete_context else lacks_of(state.boxes)
    if lacking:
        raise IncompleteContext(lacking)
    return _composed(runtime, state, settled(options, settings), format, settings), settings


def keep_request(runtime: Runtime, asked: TurnRequest, settings: ProjectSettings, step_id: str) -> str:
    """Keep a request as a box, whose id this is. Takes part in the caller's transaction."""
    snapshots = request_cards(runtime.project_id, asked.request, reproducible=settings.stored_layers)
    box_ids = request_box_ids([_stored(runtime, card) for card in snapshots], asked.history)
    return runtime.boxes.create(box_ids, title=title_of(step_id), allow_dangling=True).box_id


def title_of(step_id: str) -> str:
    """The title of the box of a step's request."""
    return f"request of {step_id}"


def renamed(card: CardDraft) -> CardDraft:
    """The same card under an id of its own."""
    return msgspec.structs.replace(card, card_id=new_card_id())


def _composed(
    runtime: Runtime, turn: RunState, options: ComposeOptions, format: str, settings: ProjectSettings
) -> TurnRequest:
    context = turn.boxes.context.box_id
    collector = collector_for(runtime.database, runtime.project_id, context, settings=settings)
    try:
        return turn_request(turn.boxes, turn.tools, options, format=format, collector=collector)
    except InvalidInput as exc:
        raise InvalidLayers(exc.message) from exc


def _stored(runtime: Runtime, draft: CardDraft) -> CardDraft:
    """The draft of a card that is there now: under an id of its own where somebody deleted the shared one."""
    try:
        runtime.cards.add(draft)
    except CardConflict:
        draft = renamed(draft)
        runtime.cards.add(draft)
    return draft
