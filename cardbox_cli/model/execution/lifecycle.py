"""The state machines of heads and inbox rows: where each move begins and ends, what it adds to the epoch.

Every change of a state in the database is one of these moves, by a compare-and-set on the states that it may
begin at. `docs/inbox-lifecycle.md` shows the same tables.
"""

import msgspec

from cardbox_cli.model.execution import turns as t


class Move(msgspec.Struct, frozen=True):
    """A named change of state. `epoch` is what it adds to the turn's epoch."""

    name: str
    sources: tuple[str, ...]
    target: str
    epoch: int
    when: str


_HEAD = (
    Move("assign", (t.IDLE,), t.DISPATCHED, 1, "the oldest queued turn of an idle agent is promoted"),
    Move("enter", (t.DISPATCHED,), t.RUNNING, 0, "a worker begins its first step after a claim"),
    Move("suspend", (t.RUNNING,), t.SUSPENDED, 0, "the model called a tool that answers later"),
    Move("resume", (t.SUSPENDED,), t.RUNNING, 1, "the last result that it waited for was applied"),
    Move(
        "reclaim", (t.DISPATCHED, t.RUNNING), t.DISPATCHED, 1, "a lease was lost, handed back or taken away"
    ),
    Move("rebox", (t.DISPATCHED,), t.DISPATCHED, 1, "its context or output box is replaced"),
    Move("rebox-suspended", (t.SUSPENDED,), t.SUSPENDED, 1, "the same for a turn that waits"),
    Move("end", t.ACTIVE, t.IDLE, 0, "the turn ended by itself, or failed"),
    Move("stop", t.ACTIVE, t.IDLE, 1, "it was stopped, failed or put back into the queue from outside"),
)

_INBOX = (
    Move("promote", (t.QUEUED,), t.PENDING, 0, "its agent was idle and is assigned to it"),
    Move("claim", t.DUE, t.PROCESSING, 0, "a worker takes it for the time of a lease"),
    Move(
        "consume", (t.PENDING, t.DEFERRED, t.PROCESSING), t.CONSUMED, 0, "it is done, or its turn has ended"
    ),
    Move("defer", (t.PROCESSING,), t.DEFERRED, 0, "its owner asks for another try later"),
    Move("release", (t.PROCESSING,), t.PENDING, 0, "its lease was lost; counts as an attempt"),
    Move("kill", t.OPEN, t.ERROR, 0, "it was tried too often, or cannot be done"),
    Move(
        "retry",
        (t.ERROR, t.CONSUMED),
        t.PENDING,
        0,
        "an operator asks for it: a dead report or stop, or a report that was consumed and not applied",
    ),
    Move("skip", (t.QUEUED,), t.SKIPPED, 0, "its turn was stopped before it began, or has an older row"),
    Move(
        "requeue",
        (t.PENDING, t.DEFERRED, t.PROCESSING, t.CONSUMED, t.ERROR, t.SKIPPED),
        t.QUEUED,
        0,
        "an operator puts the turn back into its agent's queue",
    ),
)

HEAD_MOVES = {move.name: move for move in _HEAD}
INBOX_MOVES = {move.name: move for move in _INBOX}
