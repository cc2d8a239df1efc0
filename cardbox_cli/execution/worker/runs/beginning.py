"""A claimed turn runs, and a step of it begins: one statement writes every row, while the fence holds."""

from itertools import count

from cardbox_cli.context.request import ComposeOptions, request_box_ids, request_cards
from cardbox_cli.execution.requests.request import TurnRequest
from cardbox_cli.execution.requests.step_snapshots import REQUEST, snapshot_of
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.execution.worker.runs.ledger import BegunStep
from cardbox_cli.execution.worker.runs.step_requests import compose_step, renamed, title_of
from cardbox_cli.execution.worker.runs.turn_state import TurnState
from cardbox_cli.model.execution.turns import DISPATCHED, RUNNING, new_id
from cardbox_cli.model.identity import ProjectSettings
from cardbox_cli.model.ids import new_box_id
from cardbox_cli.store.execution.steps import Entering, NewStep

_LOST = "given up before it was done"


class CannotEnd(Exception):
    """Nothing that the model may call could end the turn."""


def enter(runtime: Runtime, turn: TurnState) -> None:
    """Take up a turn that goes on with calls that others left without results. Raises StaleEpoch."""
    if turn.head.status != DISPATCHED:
        return
    with runtime.statement():
        if not runtime.steps.enter(turn.fence, _entering(turn)):
            raise runtime.heads.stale(turn.fence, runtime.heads.get(turn.fence.agent_id))
        _tell_entered(runtime, turn)


def _entering(turn: TurnState) -> Entering:
    return Entering(output_start=turn.boxes.output_start, lost=_LOST)


def _tell_entered(runtime: Runtime, turn: TurnState) -> None:
    if turn.head.status == DISPATCHED:
        runtime.publish_state(turn.head, RUNNING, turn.head.turn_epoch)


def begin_step(runtime: Runtime, turn: TurnState, *, format: str, options: ComposeOptions) -> BegunStep:
    """Begin a step, and keep what its model is about to see as its request box.

    Raises StaleEpoch, IncompleteContext unless the project allows that, InvalidLayers, CannotEnd, and
    InvalidInput for a request that cannot be stored.
    """
    asked, settings = compose_step(runtime, turn, format=format, options=options)
    fault = turn.end_rule(asked.request.tools).fault(turn.boxes.own)
    if fault is not None:
        raise CannotEnd(fault)
    step_id = new_id("step")
    with runtime.statement():
        _write_beginning(runtime, turn, asked, settings, step_id, format)
        _tell_entered(runtime, turn)
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
    """Write the rows of a step: a card under an id of its own where the shared one is deleted."""
    cards = request_cards(runtime.project_id, asked.request, reproducible=settings.stored_layers)
    metadata = {REQUEST: snapshot_of(asked.request, asked.body, turn.boxes, format)}
    # The second time: what somebody else wrote just now is seen then.
    for again in count():
        step = NewStep(
            step_id=step_id,
            status="llm_ready",
            request_box_id=new_box_id(),
            title=title_of(step_id),
            box_card_ids=request_box_ids(cards, asked.history),
            cards=cards,
            metadata=metadata,
        )
        found = runtime.steps.begin(turn.fence, _entering(turn), step)
        if not found.at_fence:
            raise runtime.heads.stale(turn.fence, runtime.heads.get(turn.fence.agent_id))
        if found.written:
            return
        if again:
            cards = [card if card.card_id in found.stored else renamed(card) for card in cards]
