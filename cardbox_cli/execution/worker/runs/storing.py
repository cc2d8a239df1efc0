"""What comes of a step is stored: its answer, the results of its calls, that it is done, and the turn's end.

Each transaction holds the head first, so that nothing is written once the fence has fallen. Runs no command.
"""

from collections.abc import Sequence

from cardbox_cli.execution.notifications.events import Phase
from cardbox_cli.execution.queue import must_end_with
from cardbox_cli.execution.queue.ending import end_held
from cardbox_cli.execution.queue.finishing import BY_RESULT, delivered, finish_held
from cardbox_cli.execution.requests.request import present_cards
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.execution.tool_calls import ended_by_last_calls, pending_calls
from cardbox_cli.execution.worker.answers.step_answers import (
    AUTO,
    Answer,
    AnswerRules,
    BadAnswer,
    read_answer,
)
from cardbox_cli.execution.worker.runs.ledger import BegunStep, hold_call_ids
from cardbox_cli.execution.worker.runs.turn_state import TurnState, author_in, read_turn
from cardbox_cli.model.cards import Card, CardDraft
from cardbox_cli.model.execution.turns import COMPLETED, LLM_DONE, End, Head
from cardbox_cli.store.execution.steps import StepAnswered


def understand(
    runtime: Runtime, turn: TurnState, step: BegunStep, stdout: bytes, rules: AnswerRules = AUTO
) -> Answer | BadAnswer:
    """The cards that the command of a step printed. It need print none if it has appended cards itself."""
    answer = read_answer(stdout, author_in(turn.head, step.step_id), runtime.turns.held_tool_call_ids, rules)
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
            reminder = rule.reminder(runtime.project_id, author_in(head, step.step_id))
            cards = [*must_end_with.without_end(answer.cards), reminder]
        else:
            cards = answer.cards
        # This may be tried again.
        new = [card for card in cards if card.card_id not in stored]
        calls = pending_calls([*own, *new])
        answered = StepAnswered(
            step_id=step.step_id,
            status=LLM_DONE if calls else COMPLETED,
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
            runtime.turns.move_step(head.agent_id, turn.step_id, COMPLETED)
            runtime.publish_step(head, turn.step_id, COMPLETED)
        status = ended_by_last_calls(own)
        if status == "success":
            return finish_held(runtime, head, profile=turn.profile, message=BY_RESULT)
        if status is not None:
            return end_held(runtime, head, status, message=BY_RESULT)
        if turn.end_rule().allows_end(own) and delivered(head, own):
            return finish_held(runtime, head, profile=turn.profile)
    return None


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
