"""Both programs append to one box at the same time; nothing is lost, whoever made the tables."""

import time
from collections.abc import Callable
from itertools import pairwise

import psycopg
import pytest

from tests.interop.conftest import PATIENCE, PROJECT, Shared
from tests.interop.test_database_of_cbx import text_card

EACH = 100


@pytest.fixture(params=["made_by_cbx", "made_by_library"])
def shared(request: pytest.FixtureRequest) -> Shared:
    found: Shared = request.getfixturevalue(request.param)
    return found


def test_two_appends_that_wait_for_the_same_row_both_succeed(shared: Shared) -> None:
    [card, ours, theirs] = shared.ask("add_cards", cards=[text_card(text) for text in "abc"])
    box = shared.ask("save_box", card_ids=[card])
    with psycopg.connect(shared.url) as holder:
        holder.execute("SELECT FROM card_boxes WHERE box_id = %s FOR UPDATE", [box])
        shared.peer.send("append", project=PROJECT, box_id=box, card_ids=[theirs])
        with shared.cbx.started("box", "append", box, ours) as appending:
            wait_until(lambda: _waiting(shared.url) == 2)
            holder.rollback()
            assert appending.wait(PATIENCE) == 0
        shared.peer.answer()
    assert shared.card_ids(box)[:1] == [card]
    assert sorted(shared.card_ids(box)[1:]) == sorted([ours, theirs])
    print("both waited for the row, both arrived")


def test_concurrent_appends_of_both_programs_all_succeed(shared: Shared) -> None:
    ids = shared.ask("add_cards", cards=[text_card(str(number)) for number in range(2 * EACH)])
    ours, theirs = ids[:EACH], ids[EACH:]
    box = shared.ask("save_box", card_ids=[])
    with shared.cbx.started("shell") as shell:
        assert shell.stdin is not None
        assert shell.stdout is not None
        # Once it has answered, it is ready to append as fast as the library.
        shell.stdin.write(f"box show {box} -o jsonl\nbox list -o id\n")
        shell.stdin.flush()
        assert shell.stdout.readline().strip() == box
        shared.peer.send("append_each", project=PROJECT, box_id=box, card_ids=theirs)
        shell.stdin.write("".join(f"box append {box} {card} -o id\n" for card in ours))
        shell.stdin.close()
        assert shell.stdout.read().split() == [box] * EACH
        assert shell.wait(PATIENCE) == 0
    assert shared.peer.answer() == EACH
    appended = shared.card_ids(box)
    assert sorted(appended) == sorted(ids)
    assert [card for card in appended if card in set(ours)] == ours
    sides = [card in set(ours) for card in appended]
    turns = sum(one != other for one, other in pairwise(sides))
    print(f"{len(appended)} of {len(ids)} are there; the sides changed {turns} times")


def _waiting(url: str) -> int:
    """How many connections to this database wait for a lock."""
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute(
            "SELECT count(*) FROM pg_stat_activity"
            " WHERE datname = current_database() AND wait_event_type = 'Lock'"
        ).fetchone()
    return row[0] if row else 0


def wait_until(holds: Callable[[], bool]) -> None:
    """Wait until something holds, for as long as a slow machine may need."""
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline, "it never came to that"
        time.sleep(0.02)
