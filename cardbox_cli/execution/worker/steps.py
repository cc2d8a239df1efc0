"""The transactions of a running turn: a step begins, its answer and the results of its calls are stored,
and the turn suspends or ends. Each holds the head first, so that nothing is written once the fence has
fallen.

Owns how a turn is taken in from its boxes, and what is still to be done of it. Runs no command.
"""

from collections.abc import Sequence
from datetime import timedelta
from itertools import count

import msgspec

from cardbox_cli.context.request import ComposeOptions
from cardbox_cli.context.state import request_box_ids, request_cards
from cardbox_cli.errors import CardConflict, InvalidInput
from cardbox_cli.execution.notifications.events import Phase
from cardbox_cli.execution.queue import must_end_with
from cardbox_cli.execution.queue.ending import end_held
from cardbox_cli.execution.queue.finishing import BY_RESULT, delivered, finish_held
from cardbox_cli.execution.recovery.lost_reports import report_lost
from cardbox_cli.execution.requests.completeness import Lack, in_words, lacks_of
from cardbox_cli.execution.requests.project_layers import collector_for, settled
from cardbox_cli.execution.requests.request import TurnRequest, present_cards, turn_request
from cardbox_cli.execution.requests.source import context_of
from cardbox_cli.execution.requests.step_snapshots import REQUEST, snapshot_of
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.execution.tool_calls import Author, ToolCall, ended_by_last_calls, pending_calls
from cardbox_cli.execution.worker.answers import AUTO, Answer, AnswerRules, BadAnswer, read_answer
from cardbox_cli.execution.worker.ledger import BegunStep, RunState, hold_call_ids
from cardbox_cli.model.cards import Card, CardDraft
from cardbox_cli.model.execution.turns import (
    DISPATCHED,
    RUNNING,
    SUSPENDED,
    End,
    Fence,
    Head,
    InboxRow,
    new_id,
)
from cardbox_cli.model.identity import ProjectSettings
from cardbox_cli.model.ids import new_box_id, new_card_id
from cardbox_cli.store.execution.steps import Entering, NewStep, StepAnswered
from cardbox_cli.store.projects import ProjectsStore

# What a step can be while it counts against the limit: the model has answered.
_ANSWERED = ("llm_done", "completed", "suspended")
_LOST = "given up before it was done"


class IncompleteContext(Exception):
    """Something is gone that the turn should read."""

    def __init__(self, lacking: Sequence[Lack]) -> None:
        super().__init__(in_words(lacking))
        self.lacking = lacking


class InvalidLayers(Exception):
    """Layers that are asked for and cannot be had."""


class CannotEnd(Exception):
    """Nothing that the model may call could end the turn."""


class TurnState(RunState, frozen=True, kw_only=True):
    """A turn as its next step finds it."""

    head: Head

    @property
    def fence(self) -> Fence:
        """The fence that it was read at."""
        return self.head.fence


def read_turn(runtime: Runtime, fence: Fence) -> TurnState:
    """The turn at `fence`. Raises StaleEpoch where it is elsewhere, NotFound for a box that is gone."""
    stored = runtime.contexts.read(fence.agent_turn_id, agent_id=fence.agent_id, answered=_ANSWERED)
    head = stored.head
    if head is None or head.fence != fence:
        raise runtime.heads.stale(fence, head)
    named = {"output": head.output_box_id, "context": head.context_box_id, "profile": head.profile_box_id}
    return TurnState(
        head=head,
        steps=len(stored.answered),
        step_id=stored.answered[-1] if stored.answered else None,
        **msgspec.structs.asdict(context_of(stored, runtime.project_id, named)),
    )


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
            title=_title(step_id),
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
            cards = [card if card.card_id in found.stored else _renamed(card) for card in cards]


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
    return runtime.boxes.create(box_ids, title=_title(step_id), allow_dangling=True).box_id


def _title(step_id: str) -> str:
    return f"request of {step_id}"


def _renamed(card: CardDraft) -> CardDraft:
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
        draft = _renamed(draft)
        runtime.cards.add(draft)
    return draft


# --- what comes of a step


def understand(
    runtime: Runtime, turn: TurnState, step: BegunStep, stdout: bytes, rules: AnswerRules = AUTO
) -> Answer | BadAnswer:
    """The cards that the command of a step printed. It need print none if it has appended cards itself."""
    answer = read_answer(stdout, _author(turn.head, step.step_id), runtime.turns.held_tool_call_ids, rules)
    if not stdout.strip() and len(read_turn(runtime, turn.fence).boxes.own) > step.written:
        return Answer(cards=[], calls=[])
    return answer


def store_answer(runtime: Runtime, turn: TurnState, step: BegunStep, answer: Answer) -> End | None:
    """Store the answer of a step; the end of the turn, where no call is left without a result.

    An answer that may not end the turn is stored as thoughts, with a card that says so to the model. Raises
    StaleEpoch, CardConflict for a card whose id is taken, and CallIdTaken for a call's.
    """
    rule = turn.end_rule(step.asked.request.tools)
    with runtime.transaction(savepoint=False):
        head, own = _hold_own(runtime, turn)
        stored = {card.card_id for card in own}
        hold_call_ids(runtime, answer.cards, stored)
        goes_on = not rule.allows_end(own) and not pending_calls([*own, *answer.cards])
        if goes_on:
            reminder = rule.reminder(runtime.project_id, _author(head, step.step_id))
            cards = [*must_end_with.without_end(answer.cards), reminder]
        else:
            cards = answer.cards
        # This may be tried again.
        new = [card for card in cards if card.card_id not in stored]
        calls = pending_calls([*own, *new])
        answered = StepAnswered(
            step_id=step.step_id,
            status="llm_done" if calls else "completed",
            tool_call_ids=[call.tool_call_id for call in calls] or None,
            metadata={} if answer.usage is None else {"llm_usage": answer.usage},
        )
        _append(runtime, turn, new, answered)
        phase: Phase = "executing" if calls else "completed"
        runtime.publish_step(head, step.step_id, phase, [card.card_id for card in new])
        return None if calls or goes_on else finish_held(runtime, head, profile=turn.profile)


def add_result(runtime: Runtime, turn: TurnState, draft: CardDraft) -> None:
    """Store the result of a call. Raises StaleEpoch."""
    with runtime.statement():
        _append(runtime, turn, [draft])


def complete_step(runtime: Runtime, turn: TurnState) -> End | None:
    """The calls of the last step have their results; the end of the turn, where that is one.

    Raises StaleEpoch.
    """
    with runtime.transaction(savepoint=False):
        head, own = _hold_own(runtime, turn)
        if turn.step_id is not None:
            runtime.turns.move_step(head.agent_id, turn.step_id, "completed")
            runtime.publish_step(head, turn.step_id, "completed")
        status = ended_by_last_calls(own)
        if status == "success":
            return finish_held(runtime, head, profile=turn.profile, message=BY_RESULT)
        if status is not None:
            return end_held(runtime, head, status, message=BY_RESULT)
        if turn.end_rule().allows_end(own) and delivered(head, own):
            return finish_held(runtime, head, profile=turn.profile)
    return None


def suspend(
    runtime: Runtime, turn: TurnState, row: InboxRow, calls: Sequence[ToolCall], *, at_least: float = 0
) -> None:
    """Let the turn wait for the results of `calls`, for so many seconds at least; its claimed row is done.

    Raises StaleEpoch.
    """
    settings = runtime.settings
    limits = [turn.tool(call.tool_name) for call in calls]
    times = [(tool.timeout_seconds if tool else None) or settings.tool_wait for tool in limits]
    seconds = max(at_least, *times)
    with runtime.transaction(savepoint=False):
        deadline = runtime.steps.suspend(
            turn.fence,
            turn.step_id or new_id("step"),
            {call.tool_call_id: call.tool_name for call in calls},
            inbox_id=row.inbox_id,
            wait=timedelta(seconds=seconds),
        )
        if deadline is None:
            raise runtime.heads.stale(turn.fence, runtime.heads.get(turn.fence.agent_id))
        report_lost(runtime, turn.fence.agent_turn_id)
        runtime.follow_suspension(turn.fence)
        runtime.publish_state(
            turn.head,
            SUSPENDED,
            turn.head.turn_epoch,
            waiting_tool_count=len(calls),
            waiting_tool_call_ids=[call.tool_call_id for call in calls],
            resume_deadline=deadline.isoformat(),
        )


def author_of(turn: TurnState) -> Author:
    """On whose behalf results of the last step's calls are written."""
    return _author(turn.head, turn.step_id or "")


def _author(head: Head, step_id: str) -> Author:
    return Author(
        agent_id=head.agent_id,
        agent_turn_id=head.fence.agent_turn_id,
        step_id=step_id,
        trace_id=head.trace_id,
        parent_step_id=head.parent_step_id,
    )


def _hold_own(runtime: Runtime, turn: TurnState) -> tuple[Head, list[Card]]:
    """The head, and what the turn has written by now, its commands too. Both are held.

    Raises StaleEpoch, and NotFound for an output box that is gone.
    """
    box_id, start = turn.boxes.output.box_id, turn.boxes.output_start
    found = runtime.steps.hold(turn.fence, start)
    if found is None:
        raise runtime.heads.stale(turn.fence, runtime.heads.get(turn.fence.agent_id))
    slots = found.own
    if not found.has_box or any(slot.state == "dangling" for slot in slots):
        slots = runtime.boxes.slots(box_id)[start:]
    return found.head, present_cards(slots)


def _append(
    runtime: Runtime, turn: TurnState, cards: Sequence[CardDraft], answered: StepAnswered | None = None
) -> None:
    """Write cards and append them, unless the turn has them all: this may be tried again. Move the step.

    Raises StaleEpoch, NotFound for an output box that is gone, and CardConflict.
    """
    while True:
        found = runtime.steps.append(turn.fence, turn.boxes.output_start, cards, answered)
        if not found.at_fence:
            raise runtime.heads.stale(turn.fence, runtime.heads.get(turn.fence.agent_id))
        if found.written:
            return
        runtime.boxes.get(turn.boxes.output.box_id)
        for card in cards:
            # Unless somebody else has written it just now, which is seen then.
            if card.card_id not in found.stored:
                runtime.cards.add(card)
