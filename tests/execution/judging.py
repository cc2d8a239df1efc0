"""What must be true when all turns of a fleet have ended, by what triggers of the database wrote down."""

from collections import Counter
from typing import Any

from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.store.connection.database import Database
from tests.conftest import PROJECT
from tests.execution import history
from tests.execution.fleet import Fleet, Kind

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
