"""Waking the workers of a target after a commit: what a wakeup holds, and every notifier that there is.

A wakeup may be lost, so no failure of a notifier leaves this module: it becomes one warning.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from cardbox_cli.errors import CbxError
from cardbox_cli.model.execution.turns import InboxRow

Announce = Callable[[str], None]


class Wakeup(msgspec.Struct, frozen=True, kw_only=True):
    """There is something to claim for an agent, whose workers listen for `worker_target`."""

    project_id: str
    channel_id: str
    agent_id: str
    worker_target: str
    agent_turn_id: str | None = None
    turn_epoch: int = 0
    inbox_id: str | None = None
    traceparent: str | None = None
    reason: str | None = None


def wakeup_for(row: InboxRow, worker_target: str, reason: str) -> Wakeup:
    """The wakeup for an inbox row that was committed as claimable."""
    headers = row.context_headers if isinstance(row.context_headers, dict) else {}
    traceparent = headers.get("traceparent")
    return Wakeup(
        project_id=row.project_id,
        channel_id=row.channel_id,
        agent_id=row.agent_id,
        worker_target=worker_target,
        agent_turn_id=row.turn_id,
        turn_epoch=row.turn_epoch,
        inbox_id=row.inbox_id,
        traceparent=traceparent if isinstance(traceparent, str) else None,
        reason=reason,
    )


class Notifier(Protocol):
    """One way to reach workers. `name` says which, for warnings."""

    name: str

    def notify(self, wakeups: Sequence[Wakeup]) -> None:
        """Send all of them. Raises CbxError when that failed, within seconds."""


class Notifiers:
    """All notifiers that are configured. Notify after the commit, when no transaction is open."""

    def __init__(self, notifiers: Sequence[Notifier], announce: Announce) -> None:
        self._notifiers = notifiers
        self._announce = announce
        self._failing: set[str] = set()

    def notify(self, *wakeups: Wakeup) -> None:
        """Wake the workers. What failed is announced once, and again only after it had gone well."""
        if not wakeups:
            return
        failures: dict[str, str] = {}
        for notifier in self._notifiers:
            try:
                notifier.notify(wakeups)
            except CbxError as exc:
                failures[notifier.name] = f"no wakeup by {notifier.name}: {exc.message}"
        if failures.keys() - self._failing:
            reasons = "; ".join(failures.values())
            self._announce(f"warning: {reasons}; workers find the work when they poll")
        self._failing = set(failures)
