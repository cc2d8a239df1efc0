"""Where a turn stands: which row carries it, what its head says, whether it is over."""

from datetime import timedelta
from functools import cached_property

from cardbox_cli.diagnosis.snapshot.facts import Facts
from cardbox_cli.execution.queue.messages import is_turn
from cardbox_cli.model.execution.logs import LogTail, of_failure
from cardbox_cli.model.execution.standing import ENDED
from cardbox_cli.model.execution.turns import (
    DISPATCHED,
    DUE,
    IDLE,
    OPEN,
    PROCESSING,
    QUEUED,
    RUNNING,
    SUSPENDED,
    InboxRow,
    last_is_over,
)

FAILURES = ("failed", "timeout")


class Standing(Facts, frozen=True, kw_only=True, dict=True):
    """The facts of a turn, asked where it stands."""

    @cached_property
    def turn_rows(self) -> tuple[InboxRow, ...]:
        """The rows that asked for the turn: one, unless another system enqueued it again under its own id."""
        return tuple(row for row in self.rows if is_turn(row))

    @cached_property
    def turn_row(self) -> InboxRow | None:
        """The row that asked for the turn; of several the first that is promoted, else queued, else any."""
        for statuses in ((*DUE, PROCESSING), (QUEUED,)):
            for row in self.turn_rows:
                if row.status in statuses:
                    return row
        return next(iter(self.turn_rows), None)

    @cached_property
    def promoted(self) -> tuple[InboxRow, ...]:
        """The open rows that are out of the queue."""
        return tuple(row for row in self.rows if row.status in (*DUE, PROCESSING))

    @cached_property
    def at_head(self) -> str | None:
        """The head's status if the agent is at this turn, else None."""
        head = self.head
        if head is None or head.active_agent_turn_id != self.agent_turn_id or head.status == IDLE:
            return None
        return head.status

    @property
    def dispatched(self) -> bool:
        """Promoted, and not entered by a worker."""
        return self.at_head == DISPATCHED

    @property
    def running(self) -> bool:
        """Entered by a worker."""
        return self.at_head == RUNNING

    @property
    def suspended(self) -> bool:
        """Waiting for tools."""
        return self.at_head == SUSPENDED

    @property
    def queued(self) -> bool:
        """Not promoted yet."""
        return self.at_head is None and self.turn_row is not None and self.turn_row.status == QUEUED

    @property
    def is_foreign(self) -> bool:
        """Whether rows of types that other systems know alone carry the turn, and no `turn_row`."""
        return self.turn_row is None and bool(self.foreign_rows)

    @cached_property
    def epoch(self) -> int:
        """The epoch that a fix must expect."""
        return 0 if self.head is None else self.head.turn_epoch

    @property
    def failure_log(self) -> LogTail | None:
        """The log that may say why the turn failed."""
        last_step = self.steps[-1].step_id if self.steps else None
        return of_failure([self.log] if self.log else [], last_step)

    @property
    def failed(self) -> bool:
        """Whether the turn is over, and failed or took too long."""
        return self.ended and self.turn is not None and self.turn.end_status in FAILURES

    @property
    def ended(self) -> bool:
        """Whether the turn is over, as lists and pages say."""
        if self.is_foreign:
            return self.at_head is None and not any(row.status in OPEN for row in self.foreign_rows)
        if self.turn is not None:
            return self.turn.status == ENDED
        # Nothing that asked for it is left.
        return self.at_head is None and not self.promoted and last_is_over(self.steps)

    @cached_property
    def being_ended(self) -> bool:
        """Whether another system has just freed the agent of the turn, whose end it writes after that."""
        row = self.turn_row
        if self.at_head is not None or row is None or row.status != PROCESSING or self.lease_of(row):
            return False
        return self.freed_at is not None and timedelta() <= self.now - self.freed_at <= self.grace

    @property
    def in_time(self) -> bool:
        """Whether the deadline of what the suspended turn waits for is ahead, or was a moment ago."""
        deadline = None if self.head is None else self.head.resume_deadline
        return self.suspended and deadline is not None and self.now <= deadline + self.grace
