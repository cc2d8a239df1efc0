"""How many round trips the use cases take: a bound for each, so that none creeps in."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from cardbox_cli.execution.dispatch import dispatch
from cardbox_cli.execution.dispatch_requests import DispatchRequest, Parent
from cardbox_cli.execution.notifications.notifier import Notifiers
from cardbox_cli.execution.notifications.service import PostgresNotifier
from cardbox_cli.execution.queue.claims import begin, claim, defer
from cardbox_cli.execution.queue.reports import report_result
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.store.connection.database import Database
from tests.conftest import PROJECT
from tests.execution.desk import Desk, result_of
from tests.execution.fixtures import Asked
from tests.round_trips import counted


@pytest.fixture
def notifying(database: Database, runtime: Runtime) -> Runtime:
    """The project with Postgres' notifications, as commands have it; it knows its tables."""
    notifiers = Notifiers([PostgresNotifier(database)], print)
    assert database.keeps_turns
    return Runtime(database, PROJECT, settings=runtime.settings, notify=notifiers.notify)


def trips(runtime: Runtime, use: Callable[[], Any]) -> int:
    with counted(runtime.database) as found:
        use()
    return found.count


def test_a_dispatch_to_an_idle_agent_takes_five_round_trips(notifying: Runtime, context_box: str) -> None:
    """BEGIN, the read, the write, COMMIT, the notification."""
    request = DispatchRequest(target_agent_id="clerk", context_box_id=context_box, correlation_id="c")
    assert trips(notifying, lambda: dispatch(notifying, request)) == 5


def test_a_child_dispatch_to_a_busy_agent_takes_four_round_trips(
    notifying: Runtime, context_box: str, ask: Asked
) -> None:
    parent = Parent(agent_turn_id=ask().agent_turn_id or "")
    request = DispatchRequest(target_agent_id="clerk", context_box_id=context_box, parent=parent)
    assert trips(notifying, lambda: dispatch(notifying, request)) == 4


def test_a_refused_dispatch_takes_three_round_trips(notifying: Runtime) -> None:
    request = DispatchRequest(target_agent_id="clerk", context_box_id=PROJECT)
    assert trips(notifying, lambda: dispatch(notifying, request)) == 3


def test_a_dispatch_within_a_transaction_takes_two_round_trips(notifying: Runtime, context_box: str) -> None:
    request = DispatchRequest(target_agent_id="clerk", context_box_id=context_box)
    with notifying.transaction():
        assert trips(notifying, lambda: dispatch(notifying, request)) == 2


def test_a_report_takes_five_round_trips(notifying: Runtime, ask: Asked, desk: Desk) -> None:
    """BEGIN, the read, the write, COMMIT, the notification."""
    turn_id = ask().agent_turn_id or ""
    desk.waiting("a")
    report = partial(report_result, notifying, turn_id, "a", result_of(), source_agent_id="tool.look")
    assert trips(notifying, report) == 5


def test_applying_a_report_takes_four_round_trips(notifying: Runtime, ask: Asked, desk: Desk) -> None:
    """BEGIN, the read, the write, COMMIT."""
    turn_id = ask().agent_turn_id or ""
    desk.waiting("a")
    desk.report(turn_id, "a")
    [claimed] = claim(notifying, target=None, owner="w")
    assert trips(notifying, lambda: begin(notifying, claimed.row, owner="w")) == 4


def test_deferring_a_turn_takes_four_round_trips(notifying: Runtime, ask: Asked, desk: Desk) -> None:
    """BEGIN, the read, the write, COMMIT."""
    ask()
    task = desk.enter()
    assert trips(notifying, lambda: defer(notifying, task.row, owner=desk.owner, reason="busy")) == 4
