"""What is known of one turn at one moment, as the rules of a diagnosis see it. Pure: nothing is read here.

Owns the questions that several rules ask of the rows, such as which row carries the turn: facts.py has the
rows, and each of the others asks more of them. Judges nothing.
"""

from functools import cached_property

from cardbox_cli.diagnosis.snapshot.waits import Waits
from cardbox_cli.model.execution.diagnosis import Link


class Snapshot(Waits, frozen=True, kw_only=True, dict=True):
    """The facts of a turn, and those of the turns that it waits for.

    `blocker` is what is known of the turn that the agent of a queued turn is at, `awaited` of the turns whose
    ends answer its open calls; `closes` is the cycle that the turn closes, in which each waits for the next
    and the last for the first.
    """

    blocker: "Snapshot | None" = None
    awaited: "tuple[Snapshot, ...]" = ()
    closes: tuple[Link, ...] = ()

    @cached_property
    def deep(self) -> "tuple[Snapshot, ...]":
        """This turn and all that it waits for, by as many turns between."""
        below = (*([] if self.blocker is None else [self.blocker]), *self.awaited)
        return (self, *(each for one in below for each in one.deep))

    @cached_property
    def cycle(self) -> tuple[Link, ...]:
        """The turns that wait for each other, of which this is one."""
        closed = (each.closes for each in self.deep)
        mine = (cycle for cycle in closed if any(link.agent_turn_id == self.agent_turn_id for link in cycle))
        return next(mine, ())
