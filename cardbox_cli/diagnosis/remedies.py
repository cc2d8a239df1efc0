"""The commands that free a turn, as words for a shell. None of them is run here."""

from cardbox_cli.diagnosis.registry import Command, Remedy
from cardbox_cli.diagnosis.snapshot import Snapshot
from cardbox_cli.diagnosis.verdict import judge


def fenced_command(verb: str, s: Snapshot, reason: str) -> Command:
    """`cbx turn VERB` of the turn at its present epoch."""
    return ("turn", verb, s.agent_turn_id, "--expect-epoch", str(s.epoch), "--reason", reason)


def fenced(verb: str, reason: str) -> Remedy:
    """`cbx turn reclaim`, `requeue` or `fail` of the turn at its present epoch."""
    return Remedy(f"`cbx turn {verb}`", lambda s: fenced_command(verb, s, reason))


def stop_sharer(s: Snapshot) -> Command | None:
    """`cbx turn stop` of the turn that came last to a shared output box."""
    last = max((sharer.agent_turn_id for sharer in s.sharers), default=None)
    return None if last is None else ("turn", "stop", last)


NUDGE = Remedy("`cbx turn nudge`", lambda s: ("turn", "nudge", s.agent_turn_id))
REAP = Remedy("`cbx reap`", lambda s: ("reap",))
REBUILD = Remedy("`cbx turn rebuild`", lambda s: ("turn", "rebuild", s.agent_id))
NUDGE_OR_REBUILD = Remedy(
    "`cbx turn nudge`; `cbx turn rebuild` where the agent has no head",
    lambda s: (REBUILD if s.head is None else NUDGE).build(s),
)
OF_BLOCKER = Remedy("that of the turn before it", lambda s: judge(s.blocker).fix if s.blocker else None)
STOP_SHARER = Remedy("`cbx turn stop` of the turn that came last", stop_sharer)
