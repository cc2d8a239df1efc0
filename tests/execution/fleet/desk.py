"""The database for one thread of a fleet's test, on a connection that is made anew when it breaks."""

import time
from collections.abc import Callable
from random import Random
from typing import Any, TypeVar

from cardbox_cli.errors import DatabaseUnavailable
from cardbox_cli.execution.notifications.notifier import Wakeup
from cardbox_cli.execution.notifications.service import Wakeups
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.connection.target import Target
from tests.conftest import PROJECT

_T = TypeVar("_T")


class Desk:
    """Does what it is told in a project. Of what it notifies, half is lost."""

    def __init__(self, target: Target, rng: Random, patience: float) -> None:
        self._target = target
        self._rng = rng
        self._patience = patience
        self._wakeups = Wakeups(lambda text: None)
        self._database: Database | None = None

    def do(self, action: Callable[[Runtime], _T], project: str = PROJECT) -> _T:
        """What `action` answers, once the database is there. Raises DatabaseUnavailable in the end."""
        deadline = time.monotonic() + self._patience
        while True:
            try:
                return action(self._runtime(project))
            except DatabaseUnavailable:
                self.close()
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)

    def _runtime(self, project: str) -> Runtime:
        if self._database is None:
            self._database = Database.open_target(self._target)
        notifiers = self._wakeups.notifiers(self._database)

        def notify(wakeup: Wakeup) -> None:
            if self._rng.random() < 0.5:
                notifiers.notify(wakeup)

        return Runtime(self._database, project, notify=notify)

    def close(self) -> None:
        if self._database is not None:
            self._database.close()
            self._database = None


# --- what is looked at in all projects


def count_ended(runtime: Runtime) -> int:
    with runtime.database.snapshot():
        rows = runtime.database.connection.execute(
            "SELECT count(*) FROM cbx.turns WHERE end_status IS NOT NULL"
        ).fetchall()
    return int(rows[0][0])


def leases(runtime: Runtime) -> list[tuple[str, str]]:
    """The inbox rows that somebody has, as (inbox id, owner)."""
    with runtime.database.snapshot():
        return runtime.database.connection.execute("SELECT inbox_id, owner FROM cbx.leases").fetchall()


def waiting_calls(runtime: Runtime) -> list[tuple[str, str, str, str]]:
    """The calls that wait, oldest first, as (project, turn, call id, tool)."""
    with runtime.database.snapshot():
        return runtime.database.connection.execute(
            "SELECT project_id, agent_turn_id, tool_call_id, tool_name FROM state.turn_waiting_tools"
            " WHERE wait_status = 'waiting' ORDER BY created_at, tool_call_id"
        ).fetchall()


def unended(database: Database) -> list[tuple[Any, ...]]:
    """Turns that have not ended, with all that is known of each."""
    return database.connection.execute(_UNENDED).fetchall()


_UNENDED = """
    SELECT i.project_id, i.agent_id, i.agent_turn_id, i.message_type, i.status, i.turn_epoch, i.retry_count,
           i.last_error, h.status, h.turn_epoch, h.active_agent_turn_id = i.agent_turn_id,
           l.owner, l.expires_at - clock_timestamp()
    FROM state.agent_inbox AS i
    JOIN cbx.turns AS t USING (project_id, agent_turn_id)
    LEFT JOIN state.agent_state_head AS h ON h.project_id = i.project_id AND h.agent_id = i.agent_id
    LEFT JOIN cbx.leases AS l ON l.project_id = i.project_id AND l.inbox_id = i.inbox_id
    WHERE t.end_status IS NULL
    ORDER BY i.status = 'queued', i.created_at
    LIMIT 20
"""
