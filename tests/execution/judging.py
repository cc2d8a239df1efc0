"""What must be true when all turns of a fleet have ended: by the rows that are left, and by what happened to them.

What happened was written down by triggers of the database. Shards have none: there the rows alone are judged.
"""

from collections.abc import Iterable
from itertools import groupby
from typing import Any

from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.process_identity import is_dead
from cardbox_cli.store.connection.database import Database
from tests.execution import history
from tests.execution.fleet import Fleet
from tests.execution.fleet.people import Kind

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
    judge_rows(database, fleet)
    _check_order(database, fleet, asked)


def judge_rows(database: Database, fleet: Fleet) -> None:
    """What is promised of a fleet whose turns have all ended, as far as the rows show it that are left."""
    _check_ends(database, fleet)
    _check_boxes(database, fleet)
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


def _check_boxes(database: Database, fleet: Fleet) -> None:
    """Each output box holds what its turns were to leave, one turn behind another, and every card once."""
    expected: dict[tuple[str, str], set[str]] = {}
    for turn, known in fleet.asked.items():
        expected.setdefault((known.project, known.output_box_id), set()).add(turn)
    assert any(len(turns) > 1 for turns in expected.values())
    for (project, box_id), turns in expected.items():
        cards = _cards(database, project, box_id)
        assert len({card_id for _, card_id, _ in cards}) == len(cards)
        left = [
            (turn, [card_type for *_, card_type in of_turn])
            for turn, of_turn in groupby(cards, lambda card: card[0])
        ]
        assert dict(left) == {turn: LEFT[fleet.asked[turn].kind] for turn in turns}
        assert len(left) == len(turns)


def _check_order(database: Database, fleet: Fleet, asked: dict[str, list[str]]) -> None:
    """The turns of an agent stand in its box in the order in which they were asked for."""
    for turns in asked.values():
        for box_id, of_box in _by_box(fleet, turns).items():
            cards = _cards(database, fleet.asked[of_box[0]].project, box_id)
            assert list(dict.fromkeys(turn for turn, *_ in cards)) == of_box


def _by_box(fleet: Fleet, turns: Iterable[str]) -> dict[str, list[str]]:
    boxes: dict[str, list[str]] = {}
    for turn in turns:
        boxes.setdefault(fleet.asked[turn].output_box_id, []).append(turn)
    return boxes


def _cards(database: Database, project: str, box_id: str) -> list[tuple[str, str, str]]:
    """The cards of a box, each as (turn, card, type)."""
    cards = [slot.card for slot in Runtime(database, project).boxes.slots(box_id)]
    return [(card.metadata["agent_turn_id"], card.card_id, card.type) for card in cards if card]


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
    # The entry of a worker that was killed expires later than its leases, which are released at once.
    workers = _rows(database, "SELECT worker_id FROM cbx.workers WHERE expires_at > now()")
    assert [worker_id for (worker_id,) in workers if not is_dead(worker_id)] == []
