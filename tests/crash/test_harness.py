"""The harness itself: it sees a half-done command, and the points do nothing unless a test orders them."""

import signal
from collections.abc import Callable

import pytest

from tests.crash.harness import Connection, Stage, explore, explore_steps, value
from tests.crash.test_commands import BOX, box_of_two

MakeStage = Callable[..., Stage]

TWICE = f"box append {BOX} card-3\nbox append {BOX} card-1\n"


def test_a_command_with_two_transactions_is_detected(stage: MakeStage) -> None:
    prepared = stage(prepare=box_of_two, files={"twice": TWICE})
    with pytest.raises(AssertionError) as failure:
        explore(prepared, "shell", "twice")
    first, *difference = str(failure.value).splitlines()
    assert first == "what a kill at committed:1 leaves is not as expected:"
    assert '["card-1", "card-2", "card-3"]' in difference[-1]


def test_explore_steps_checks_the_invariant_and_the_final_state(stage: MakeStage) -> None:
    seen: list[int] = []

    def look(connection: Connection) -> None:
        seen.append(value(connection, "SELECT jsonb_array_length(card_ids) FROM card_boxes"))

    prepared = stage(prepare=box_of_two, files={"twice": TWICE})
    with pytest.raises(AssertionError, match=r"^what the run after a kill at committed:1 makes"):
        explore_steps(prepared, "shell", "twice", invariant=look)
    assert seen == [2] * (len(seen) - 1) + [3]


def test_a_point_that_is_never_reached_is_reported(stage: MakeStage) -> None:
    with (
        stage(prepare=box_of_two).scene() as scene,
        pytest.raises(AssertionError, match=r"^at commit:2 it was not"),
    ):
        scene.kill("commit:2", "box", "append", BOX, "card-3")


def test_a_stopped_command_can_continue(stage: MakeStage) -> None:
    with stage(prepare=box_of_two).scene() as scene:
        with scene.stopped("commit:1", "box", "append", BOX, "card-3") as command:
            command.go_on()
            assert command.result().code == 0
        with scene.connection() as connection:
            assert value(connection, "SELECT card_ids FROM card_boxes") == ["card-1", "card-2", "card-3"]


@pytest.mark.parametrize(
    "order", ["commit", "SIGKILL:commit", "SIGKILL:commit:0", "SIGNONE:commit:1", "KILL:commit:1"]
)
def test_an_invalid_fault_order_is_refused(order: str, stage: MakeStage) -> None:
    with stage().scene() as scene:
        result = scene.run("box", "list", CBX_TEST_FAULT=order)
        assert (result.code, result.out) == (2, "")
        assert result.err == (
            f"error: CBX_TEST_FAULT is {order!r}; it must be SIGNAL:POINT:COUNT, for example 'SIGKILL:commit:1'\n"
            "hint: run `unset CBX_TEST_FAULT`: it is for the tests of cbx\n"
        )


def test_a_fault_order_can_name_any_signal(stage: MakeStage) -> None:
    with stage().scene() as scene:
        assert scene.run("card", "list", CBX_TEST_FAULT="SIGTERM:list_cards:1").code == -signal.SIGTERM
        assert scene.run("card", "list", CBX_TEST_FAULT="SIGINT:list_cards:1").code == 130
