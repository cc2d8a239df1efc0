"""What comes in between while a step waits for a lock: cards that others write, and what a turn writes itself."""

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest

from cardbox_cli.context.request import ComposeOptions, request_cards
from cardbox_cli.errors import NotFound, StaleEpoch
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.execution.tool_calls import ToolCall, result_card
from cardbox_cli.execution.worker.ledger import BegunStep, TurnState, last_step_author, read_turn
from cardbox_cli.execution.worker.step_requests import begin_step, compose_step, enter
from cardbox_cli.execution.worker.turn_ledger import add_result, complete_step
from cardbox_cli.model.cards import draft_card
from tests.conftest import PROJECT
from tests.execution.desk import Desk
from tests.execution.fixtures import Asked

AtOnce = Callable[[Callable[[], Any]], Future[Any]]

OPTIONS = ComposeOptions()


@pytest.fixture
def state(runtime: Runtime, desk: Desk, ask: Asked) -> TurnState:
    """A turn that is claimed."""
    ask()
    return read_turn(runtime, desk.take().fence)


def begun(runtime: Runtime, state: TurnState) -> BegunStep:
    return begin_step(runtime, state, format="openai", options=OPTIONS)


def request_ids(runtime: Runtime, state: TurnState, step: BegunStep) -> list[str]:
    """The ids of what is kept of the request of a step."""
    kept = {each.step_id: each for each in runtime.turns.steps(state.fence.agent_turn_id)}[step.step_id]
    return runtime.boxes.get(kept.request_box_id or "").card_ids


def test_a_card_that_another_turn_is_writing_is_shared(
    runtime: Runtime, second: Desk, state: TurnState, at_once: AtOnce
) -> None:
    asked, settings = compose_step(runtime, state, format="openai", options=OPTIONS)
    [prompt] = request_cards(PROJECT, asked.request, reproducible=settings.stored_layers)
    with second.runtime.transaction():
        second.runtime.cards.add(prompt)
        beginning = at_once(lambda: begun(runtime, state))
    assert request_ids(runtime, state, beginning.result())[0] == prompt.card_id


def test_a_card_that_was_deleted_is_stored_with_a_new_id(
    runtime: Runtime, desk: Desk, state: TurnState
) -> None:
    asked, settings = compose_step(runtime, state, format="openai", options=OPTIONS)
    [prompt] = request_cards(PROJECT, asked.request, reproducible=settings.stored_layers)
    runtime.cards.add(prompt)
    runtime.cards.delete([prompt.card_id])
    step = begun(runtime, state)
    [found] = runtime.cards.get_many(request_ids(runtime, state, step)[:1]).cards
    assert (found.card_id == prompt.card_id, found.content) == (False, prompt.content)
    assert desk.standing() == ("running", 1)
    assert len(runtime.turns.steps(state.fence.agent_turn_id)) == 1


def test_a_step_with_a_stale_fence_writes_nothing(
    runtime: Runtime, desk: Desk, second: Desk, state: TurnState, at_once: AtOnce
) -> None:
    with second.runtime.transaction():
        second.runtime.heads.move(state.fence, "reclaim")
        beginning = at_once(lambda: begun(runtime, state))
    with pytest.raises(StaleEpoch):
        beginning.result()
    assert runtime.turns.steps(state.fence.agent_turn_id) == []
    assert desk.standing() == ("dispatched", 2)
    with pytest.raises(StaleEpoch):
        enter(runtime, state)


def test_the_end_of_a_turn_sees_cards_written_while_it_waited(
    runtime: Runtime, second: Desk, state: TurnState, at_once: AtOnce
) -> None:
    begun(runtime, state)
    output, turn_id = state.boxes.output.box_id, state.fence.agent_turn_id
    late = draft_card("task.deliverable", "late", author_id="clerk", metadata={"agent_turn_id": turn_id})
    with second.runtime.transaction():
        head = second.runtime.heads.hold(state.fence)
        ending = at_once(lambda: complete_step(runtime, state))
        second.runtime.cards.add(late)
        second.runtime.boxes.append(output, [late.card_id], held=head)
    end = ending.result()
    assert end is not None
    assert end.deliverable_card_id == late.card_id


class TestAResult:
    @pytest.fixture
    def draft(self, state: TurnState) -> Any:
        return result_card(
            ToolCall(tool_call_id="c", tool_name="look", arguments="{}"), last_step_author(state), result=1
        )

    def test_a_result_that_is_stored_twice_appears_once(
        self, runtime: Runtime, state: TurnState, draft: Any
    ) -> None:
        begun(runtime, state)
        add_result(runtime, state, draft)
        add_result(runtime, state, draft)
        assert runtime.boxes.get(state.boxes.output.box_id).card_ids == [draft.card_id]

    def test_a_result_is_not_stored_if_its_box_is_missing(
        self, runtime: Runtime, state: TurnState, draft: Any
    ) -> None:
        begun(runtime, state)
        runtime.database.connection.execute(
            "DELETE FROM public.card_boxes WHERE box_id = %s", [state.boxes.output.box_id]
        )
        with pytest.raises(NotFound):
            add_result(runtime, state, draft)
        assert runtime.cards.get_many([draft.card_id]).cards == []

    def test_a_result_is_not_stored_at_an_outdated_epoch(
        self, runtime: Runtime, state: TurnState, draft: Any
    ) -> None:
        begun(runtime, state)
        runtime.heads.move(state.fence, "reclaim")
        with pytest.raises(StaleEpoch):
            add_result(runtime, state, draft)
        assert runtime.cards.get_many([draft.card_id]).cards == []
