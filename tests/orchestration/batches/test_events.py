"""Whatever the order of events, however often each comes, and whoever tells: a batch ends once, and in the same way."""

from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cardbox_cli.execution.runtime import Runtime, TurnEndEvent
from cardbox_cli.model.execution.turns import END_STATUSES
from cardbox_cli.orchestration.batch_ends import batch_end
from cardbox_cli.orchestration.batch_manager import apply_end, catch_up
from tests.orchestration.batches.conftest import Family

CHILDREN = 3


@st.composite
def stories(draw: st.DrawFn) -> tuple[list[str], list[tuple[str, int]], bool]:
    """How each child ends, and what happens in which order: ends are told, twice perhaps, and looks are taken.

    A child may be dispatched, and end, while its batch knows nothing of it: its maker died in between.
    """
    ends = draw(st.lists(st.sampled_from(END_STATUSES), min_size=CHILDREN, max_size=CHILDREN))
    told = [("end", index) for index in range(CHILDREN)]
    again = [("end", index) for index in draw(st.lists(st.integers(0, CHILDREN - 1), max_size=3))]
    looks = [("look", 0)] * draw(st.integers(0, 2))
    return ends, draw(st.permutations([*told, *again, *looks])), draw(st.booleans())


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(story=stories())
def test_the_order_of_events_does_not_matter(
    runtime: Runtime, family: Callable[..., Family], story: tuple[list[str], list[Any], bool]
) -> None:
    ends, events, fail_fast = story
    made = family(CHILDREN, fail_fast=fail_fast)
    turns = [(each.agent_turn_id or "", each.agent_id) for each in made.tasks]
    edges = "SELECT count(*) FROM state.execution_edges WHERE primitive = 'join' AND edge_phase = 'response'"
    for kind, index in events:
        if kind == "look":
            catch_up(runtime)
            continue
        turn_id, agent_id = turns[index]
        with runtime.transaction():
            apply_end(
                runtime,
                TurnEndEvent(
                    agent_turn_id=turn_id, agent_id=agent_id, end_status=ends[index], deliverable_card_id=None
                ),
            )
    batch = made.batch
    counts = {status: ends.count(status) for status in ends}
    assert batch.status == batch_end(counts, fail_fast=fail_fast)
    if not fail_fast:
        assert made.statuses == ends
    before = runtime.database.connection.execute(edges).fetchone()
    for turn_id, agent_id in turns:
        with runtime.transaction():
            apply_end(
                runtime,
                TurnEndEvent(
                    agent_turn_id=turn_id, agent_id=agent_id, end_status="success", deliverable_card_id=None
                ),
            )
    catch_up(runtime)
    assert runtime.database.connection.execute(edges).fetchone() == before
    assert made.batch == batch


def test_a_child_with_a_lost_dispatch_record_is_found_by_correlation_id(
    runtime: Runtime, family: Callable[..., Family]
) -> None:
    """Dispatch and note are one transaction; where a restored backup lost the note, the next look finds the turn."""
    made = family(1)
    [known] = made.tasks
    made.end(0, "success", "Done.")
    runtime.database.connection.execute(
        "UPDATE cbx.batch_tasks SET status = 'pending', agent_turn_id = NULL, ended_at = NULL, deliverable_card_id = NULL"
    )
    runtime.database.connection.execute("UPDATE cbx.batches SET status = 'running', ended_at = NULL")
    catch_up(runtime)
    catch_up(runtime)
    [child] = made.tasks
    assert (child.agent_turn_id, child.status, made.batch.status) == (
        known.agent_turn_id,
        "success",
        "success",
    )
