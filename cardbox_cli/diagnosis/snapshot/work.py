"""Who works on a turn, who could, and since when nobody has."""

from collections.abc import Iterator
from datetime import datetime
from functools import cached_property

from cardbox_cli.diagnosis.snapshot.standing import Standing
from cardbox_cli.execution.queue.messages import is_report, is_turn
from cardbox_cli.limits import FOREIGN_SILENCE
from cardbox_cli.model.execution.turns import (
    DUE,
    OPEN,
    PROCESSING,
    InboxRow,
    Lease,
    WorkerEntry,
)


class Work(Standing, frozen=True, kw_only=True, dict=True):
    """The facts of a turn, asked who works on it and since when."""

    @cached_property
    def carrier(self) -> InboxRow | None:
        """The open row that carries the turn: the one that asked for it, else the report that resumed it."""
        return next(self._carriers(), None)

    def _carriers(self) -> Iterator[InboxRow]:
        yield from (row for row in self.promoted if is_turn(row))
        if self.dispatched or self.running:
            reports = [row for row in self.promoted if is_report(row)]
            at_epoch = [row for row in reports if row.turn_epoch == self.epoch]
            yield from sorted(at_epoch, key=lambda row: row.status != PROCESSING)
            # Other systems leave a report that resumed its turn at the epoch before.
            yield from (row for row in reports if row.status == PROCESSING)

    @cached_property
    def open_reports(self) -> tuple[InboxRow, ...]:
        """Reports that have arrived and are not done with."""
        return tuple(row for row in self.rows if is_report(row) and row.status in OPEN)

    @cached_property
    def due_rows(self) -> tuple[InboxRow, ...]:
        """The rows of an active turn that a worker could claim now."""
        if self.at_head is None:
            return ()
        return tuple(row for row in self.rows if row.status in DUE and row.next_retry_at <= self.now)

    @cached_property
    def unclaimed(self) -> tuple[InboxRow, ...]:
        """Those of the due rows that nobody has claimed for too long."""
        patience = self.settings.unclaimed_time
        return tuple(row for row in self.due_rows if self.age(self.due_since(row)) > patience)

    def lives(self, lease: Lease | None) -> bool:
        """Whether a lease is there and not over, or since so short a time that nobody may have acted."""
        return lease is not None and self.now < lease.expires_at + self.grace

    @cached_property
    def worked_on(self) -> bool:
        """Whether a live lease carries the turn."""
        return self.lives(self.lease_of(self.carrier))

    @cached_property
    def live_workers(self) -> tuple[WorkerEntry, ...]:
        """Workers of the agent's target that are alive."""
        return tuple(worker for worker in self.workers if worker.live)

    @property
    def unserved(self) -> bool:
        """Whether no worker can come: the agent has no target, or nobody alive serves it."""
        return self.worker_target is None or (self.keeps_turns and not self.live_workers)

    @cached_property
    def able_workers(self) -> tuple[WorkerEntry, ...]:
        """Those of them that do not say that they cannot work."""
        return tuple(worker for worker in self.live_workers if worker.last_error is None)

    @property
    def unable_owner(self) -> bool:
        """Whether the worker that has claimed the turn says that it cannot work."""
        lease = self.lease_of(self.carrier)
        return any(each.last_error for each in self.live_workers if lease and each.worker_id == lease.owner)

    @property
    def workers_are_unable(self) -> bool:
        """Whether every live worker of the agent's target says that it cannot work."""
        return bool(self.live_workers) and not self.able_workers

    @cached_property
    def workers_are_busy(self) -> bool:
        """Whether every live worker of the agent's target that can work has as many rows as it takes."""
        return bool(self.able_workers) and all(
            self.loads.get(worker.worker_id, 0) >= worker.concurrency for worker in self.able_workers
        )

    # --- since when

    def due_since(self, row: InboxRow) -> datetime:
        """Since when this row could have been claimed.

        Other systems date no promotion, and touch the head of a turn that nobody claims: a turn was promoted
        when it was asked for, or when its agent's last one ended.
        """
        others = [row.created_at, self.freed_at if is_turn(row) else None]
        # A clock that was ahead when a row was made keeps nobody from claiming it.
        past = [moment for moment in others if moment is not None and moment <= self.now]
        return max([row.next_retry_at, *past])

    @cached_property
    def last_sign(self) -> datetime | None:
        """When anything of a run without a lease was last written."""
        row = self.carrier.processed_at if self.carrier is not None else None
        steps = [moment for step in self.steps for moment in (step.started_at, step.ended_at)]
        others = [moment for each in self.foreign_rows for moment in (each.created_at, each.processed_at)]
        signs = [moment for moment in (row, *steps, *others) if moment is not None]
        return max(signs, default=None if self.head is None else self.head.updated_at)

    @cached_property
    def silent(self) -> bool:
        """Whether a run without a lease has written nothing for longer than other systems allow."""
        return self.last_sign is None or self.age(self.last_sign) > FOREIGN_SILENCE.time
