"""Turns are replayed from their beginning, and forked at a step, by real commands; the old ones stay as they are."""

import re
import shlex
from collections.abc import Callable
from typing import Any

import pytest

from cardbox_cli.execution.dispatch_requests import DispatchResult
from cardbox_cli.execution.requests.turn_requests import read_context
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.execution.worker.runner import RunOutcome
from cardbox_cli.model.cards import card_text
from cardbox_cli.orchestration.handler_registry import HANDLERS
from cardbox_cli.store.views.turn_views import TurnViews
from tests.conftest import PROJECT, Cbx
from tests.orchestration.conftest import says

Run = Callable[..., RunOutcome]
Ask = Callable[..., DispatchResult]


@pytest.fixture
def done(runtime: Runtime, ask: Ask, run: Run, cbx: Cbx) -> str:
    """A turn of two steps, of an agent that had a turn before in the same output box."""
    cbx("tool", "add", "look", "--exec", "echo a leak")
    runtime.database.connection.execute(
        "UPDATE public.cards SET content = jsonb_set(content, '{data,allowed_tools}', 'null') "
        "WHERE metadata ->> 'type' = 'sys.profile'"
    )
    before = ask()
    assert run("echo Earlier.").message == "success"
    turn_id = ask(output_box_id=before.output_box_id).agent_turn_id
    assert (
        run(
            says("", "", {"look": {}}, "It was a leak."),
        ).message
        == "success"
    )
    return turn_id or ""


def state(runtime: Runtime, turn_id: str) -> tuple[Any, ...]:
    found = TurnViews(runtime.database, PROJECT).get(turn_id)
    head = runtime.heads.get(found.agent_id)
    places = runtime.roster.places(found.agent_id)
    assert places is not None
    return found, head, runtime.boxes.id_lists([found.output_box_id or ""]), places.output


def asked(runtime: Runtime, turn_id: str, number: int = 0) -> list[str]:
    """What the model of a step was asked, but the system."""
    step = runtime.turns.steps(turn_id)[number]
    cards = runtime.boxes.view(step.request_box_id or "").cards
    return [card_text(card.content) for card in cards if not card.type.startswith("sys.")]


def test_a_replay_sends_the_same_requests_and_does_not_change_the_turn(
    runtime: Runtime, done: str, cbx: Cbx
) -> None:
    before = state(runtime, done)
    same = says("", "", {"look": {}}, "It was a leak.")
    found = cbx(
        "turn", "replay", done, "--exec", same, "--trust-stored-commands", "--times", "2", "-o", "json"
    )
    assert found.code == 0, found.err
    answer = found.json()
    assert [each["same_text"] for each in answer["replays"]] == [True, True]
    assert [each["outcome"]["steps"] for each in answer["replays"]] == [2, 2]
    assert [each["outcome"]["tools"] for each in answer["replays"]] == [{"look": 1}, {"look": 1}]
    first, second = (each["outcome"]["agent_turn_id"] for each in answer["replays"])
    assert asked(runtime, first) == asked(runtime, second) == asked(runtime, done)
    assert state(runtime, done) == before


def test_a_different_text_or_end_is_reported(done: str, cbx: Cbx) -> None:
    other = cbx("turn", "replay", done, "--exec", "echo It was a worn-out valve.")
    assert other.code == 0, other.err
    assert "[-leak-]{+worn-out valve+}" in other.out
    failed = cbx("turn", "replay", done, "--exec", "cat >/dev/null; exit 3", "-o", "json")
    assert failed.code == 8
    [compared] = failed.json()["replays"]
    assert (compared["same_end"], compared["outcome"]["end_status"]) == (False, "failed")


def test_a_fork_continues_from_a_step_with_another_instruction(runtime: Runtime, done: str, cbx: Cbx) -> None:
    before = state(runtime, done)
    forked = cbx(
        "turn", "fork", done, "--at", "2", "--instruction", "Be brief.", "--exec", "cat >/dev/null; echo Leak.",
        "-o", "json",
    )  # fmt: skip
    assert forked.code == 0, forked.err
    [compared] = forked.json()["replays"]
    new = compared["outcome"]["agent_turn_id"]
    assert compared["outcome"]["text"] == "Leak."
    assert asked(runtime, new) == [*asked(runtime, done, 1), "Be brief."]
    assert state(runtime, done) == before


def test_a_replay_without_a_command_waits_for_workers_of_the_target(done: str, cbx: Cbx, run: Run) -> None:
    made = cbx("turn", "replay", done, "--no-wait", "-o", "id")
    assert run("echo Now.").agent_turn_id == made.out.strip()
    late = cbx("turn", "replay", done, "--timeout", "0")
    assert late.code == 124


def test_a_fork_can_use_another_profile(
    runtime: Runtime, done: str, cbx: Cbx, add_profile: Callable[..., None]
) -> None:
    add_profile("terse", system_prompt="Be terse.")
    made = cbx("turn", "fork", done, "--at", "2", "--profile", "terse", "-o", "id")
    turn = TurnViews(runtime.database, PROJECT).get(made.out.strip())
    context = read_context(runtime.database, PROJECT, turn.agent_turn_id, turn, handlers=HANDLERS)
    cards = [slot.card for slot in context.boxes.profile.slots if slot.card is not None]
    assert "Be terse." in card_text(cards[0].content)
    assert len(context.boxes.own) == 3


@pytest.mark.parametrize(
    ("given", "code", "why"),
    [
        (["replay", "turn_nowhere"], 3, "no turn"),
        (["replay", "{turn}", "--profile", "nobody", "--no-wait"], 3, "no profile 'nobody'"),
        (["replay", "{turn}", "--exec", " "], 2, "--exec is empty"),
        (["replay", "{turn}", "--exec", "/no/such/program"], 2, "--exec: unknown program '/no/such/program'"),
        (["replay", "{turn}", "--times", "0", "--no-wait"], 2, "--times"),
        (["fork", "{turn}", "--at", "9"], 3, "has no step '9'"),
        (["fork", "{turn}", "--at", "2", "--instruction", " "], 4, "the instruction is blank"),
    ],
)
def test_an_invalid_replay_writes_nothing(
    done: str, cbx: Cbx, row_counts: Callable[[], dict[str, int]], given: list[str], code: int, why: str
) -> None:
    before = row_counts()
    refused = cbx("turn", *(each.format(turn=done) for each in given))
    assert (refused.code, why in refused.err) == (code, True), refused.err
    assert row_counts() == before


def test_a_fork_at_a_step_without_a_snapshot_is_refused(runtime: Runtime, done: str, cbx: Cbx) -> None:
    runtime.database.connection.execute("UPDATE state.agent_steps SET metadata = '{}'")
    refused = cbx("turn", "fork", done, "--at", "2")
    assert refused.code == 4
    assert "has no snapshot" in refused.err


def test_a_replay_with_an_unanswered_call_shows_how_to_continue(done: str, cbx: Cbx) -> None:
    cbx("tool", "add", "ask", "--description", "Ask somebody.")
    asks = says("", "", {"ask": {}}, "It was a leak.")
    waits = cbx("turn", "replay", done, "--exec", asks, "-o", "id")
    note = f"note: 1 turn waits for a tool result: see `cbx why {waits.out.strip()}`, then continue with "
    assert (waits.code, note in waits.err) == (8, True), waits.err
    [go_on] = re.findall(r"`cbx (worker run --target replay-\S+) --exec CMD --drain`", waits.err)
    report = shlex.split(cbx("why", waits.out.strip(), "-o", "json").json()["fix"], comments=True)
    assert cbx(*(word.replace("…", "A leak.") for word in report[1:])).code == 0
    assert cbx(*go_on.split(), "--exec", asks, "--drain").code == 0
    assert cbx("turn", "wait", waits.out.strip()).out == "It was a leak.\n"
