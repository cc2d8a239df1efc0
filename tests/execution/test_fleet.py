"""Many workers, agents and turns at once, with workers killed and frozen and notifications dropped.

What is looked at afterwards was written down by triggers of the database. CBX_FLEET_SEED repeats a seed.
"""

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.connection.target import Target
from cardbox_cli.store.embedded import EmbeddedServer
from tests.conftest import PROJECT, Databases
from tests.execution import history
from tests.execution.fleet import Fleet, Kind, Scale

SMALL = Scale(workers=3, concurrency=3, agents=10, turns=50, dispatchers=3, troubles=4, seconds=600)
LARGE = Scale(workers=8, concurrency=4, agents=200, turns=5000, dispatchers=4, troubles=100, seconds=2400)

# What a turn of each kind leaves in its output box.
CALLED = ["agent.thought", "tool.call", "tool.result", "agent.thought", "task.deliverable"]
LEFT: dict[Kind, list[str]] = {
    "plain": ["agent.thought", "task.deliverable"],
    "slow": ["agent.thought", "task.deliverable"],
    "fail": ["task.deliverable"],
    "look": CALLED,
    "ask": CALLED,
    "delegate": CALLED,
}


@pytest.fixture
def seed() -> str:
    """Printed, so that a run that failed can be repeated."""
    seed = os.environ.get("CBX_FLEET_SEED") or os.urandom(4).hex()
    print(f"CBX_FLEET_SEED={seed}")
    return seed


@pytest.fixture
def own_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Databases]:
    """A server that can be stopped."""
    databases = Databases(EmbeddedServer(tmp_path_factory.mktemp("cbx-home-fleet")))
    yield databases
    databases.close()


@pytest.mark.parametrize(
    "scale", [SMALL, pytest.param(LARGE, marks=pytest.mark.soak)], ids=["small", "large"]
)
def test_every_turn_ends_once_and_in_order(
    databases: Databases, target: Target, database: Database, seed: str, tmp_path: Path, scale: Scale
) -> None:
    history.begin(database)
    fleet = Fleet(target, databases.target("postgres"), scale, seed, tmp_path)
    fleet.run()
    print(f"{len(fleet.asked)} turns, {fleet.killed} workers killed, {fleet.frozen} frozen", flush=True)
    assert fleet.killed + fleet.frozen == scale.troubles
    judge(database, fleet)


_AWAY = "trying again until it is back"
_BACK = "the database is back"


def test_the_server_is_restarted_in_the_middle(own_server: Databases, seed: str, tmp_path: Path) -> None:
    # No worker is killed: one that was would never say that the database is back.
    scale = Scale(workers=2, concurrency=2, agents=8, turns=30, dispatchers=2, troubles=0, seconds=600)
    target = own_server.target(own_server.make())
    with Database.open_target(target) as database:
        history.begin(database)
    fleet = Fleet(target, own_server.target("postgres"), scale, seed, tmp_path)

    def restart(fleet: Fleet) -> None:
        own_server.server.stop()
        fleet.wait_until(lambda: fleet.said(_AWAY) > 0)
        own_server.server.start()
        # Those that have noticed hear of it before the last turn ends, when they are told to leave.
        fleet.wait_until(lambda: fleet.said(_AWAY) == fleet.said(_BACK))

    fleet.run(in_the_middle=restart)
    with Database.open_target(target) as database:
        judge(database, fleet)


# --- what must be true in the end


def judge(database: Database, fleet: Fleet) -> None:
    """Everything that is promised of a fleet whose turns have all ended."""
    events = history.read(database)
    assert history.violations(events) == []
    asked, ended = history.asked_and_ended(events)
    assert asked == ended
    assert sorted(turn for turns in asked.values() for turn in turns) == sorted(fleet.asked)
    _check_ends(database, fleet)
    _check_boxes(database, fleet, asked)
    _check_that_nothing_is_left(database)


def _rows(database: Database, query: str) -> list[tuple[Any, ...]]:
    return database.connection.execute(query.encode()).fetchall()


def _check_ends(database: Database, fleet: Fleet) -> None:
    """Each turn ended as it was to, with the one deliverable that there is of it."""
    ends = _rows(database, "SELECT agent_turn_id, end_status, deliverable_card_id FROM cbx.turns")
    wrong = {
        turn: status
        for turn, status, _ in ends
        if status != ("failed" if fleet.asked[turn].kind == "fail" else "success")
    }
    assert wrong == {}
    deliverables = _rows(
        database,
        "SELECT metadata ->> 'agent_turn_id', card_id FROM public.cards"
        " WHERE metadata ->> 'type' = 'task.deliverable'",
    )
    assert sorted(deliverables) == sorted((turn, card) for turn, _, card in ends)


def _check_boxes(database: Database, fleet: Fleet, asked: dict[str, list[str]]) -> None:
    """Each output box holds what its turns were to leave, turn after turn, and every card once."""
    boxes = Runtime(database, PROJECT).boxes
    expected: dict[str, list[tuple[str, str]]] = {}
    for turn in (turn for turns in asked.values() for turn in turns):
        known = fleet.asked[turn]
        expected.setdefault(known.output_box_id, []).extend((turn, type) for type in LEFT[known.kind])
    assert any(len({turn for turn, _ in cards}) > 1 for cards in expected.values())
    for box_id, cards in expected.items():
        slots = [slot.card for slot in boxes.slots(box_id)]
        assert [(card.metadata["agent_turn_id"], card.type) for card in slots if card] == cards
        assert max(Counter(card.card_id for card in slots if card).values()) == 1


def _check_that_nothing_is_left(database: Database) -> None:
    open_rows = "SELECT inbox_id, status FROM state.agent_inbox WHERE status <> 'consumed'"
    assert _rows(database, open_rows) == []
    assert _rows(database, "SELECT inbox_id FROM cbx.leases") == []
    heads = "SELECT agent_id, status FROM state.agent_state_head WHERE status <> 'idle'"
    assert _rows(database, heads) == []
    steps = "SELECT step_id, status FROM state.agent_steps WHERE status NOT IN ('completed', 'failed')"
    assert _rows(database, steps) == []
    calls = "SELECT tool_call_id, wait_status FROM state.turn_waiting_tools WHERE wait_status <> 'applied'"
    assert _rows(database, calls) == []
    assert _rows(database, "SELECT worker_id FROM cbx.workers WHERE expires_at > now()") == []
