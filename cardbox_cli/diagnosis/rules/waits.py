"""Rules about turns that wait for other turns: for one that is stuck, or in a cycle for themselves."""

from datetime import datetime

from cardbox_cli.diagnosis import evidence as show
from cardbox_cli.diagnosis.registry import Command, DiagnosisRule, Evidence, Proof, Remedy
from cardbox_cli.diagnosis.snapshot import Snapshot
from cardbox_cli.diagnosis.verdict import NO_RULE, judge
from cardbox_cli.model.execution.situations import Link
from cardbox_cli.model.execution.turns import QUEUED

_TABLES = {QUEUED: "state.agent_inbox"}


def _cycle(s: Snapshot) -> Proof:
    proof = tuple(
        Evidence(
            _TABLES.get(link.status, "state.agent_state_head"),
            link.agent_turn_id,
            f"of agent {link.agent_id}, {link.status}: waits for turn {following.agent_turn_id}",
        )
        for link, following in zip(s.cycle, (*s.cycle[1:], *s.cycle[:1]), strict=True)
    )
    return proof or None


def _to_stop(s: Snapshot) -> Link | None:
    """The turn without which the others go on: one that has not begun, the last that was asked for."""
    queued = [link for link in s.cycle if link.status == QUEUED]
    return max(queued or s.cycle, key=lambda link: link.agent_turn_id, default=None)


def _stop(s: Snapshot) -> Command | None:
    last = _to_stop(s)
    return None if last is None else ("turn", "stop", last.agent_turn_id)


def _first_of_cycle(s: Snapshot) -> str | None:
    """The same turn for all of a cycle; one that an agent is at."""
    return min((link.agent_turn_id for link in s.cycle if link.status != QUEUED), default=None)


def _stuck(s: Snapshot) -> Snapshot | None:
    """The first turn that this one waits for and that is stuck."""
    below = (each for each in s.awaited if judge(each).verdict in ("stuck", "unknown"))
    return next(below, None)


def _awaited_stuck(s: Snapshot) -> Proof:
    stuck = _stuck(s)
    if stuck is None or s.cycle:
        return None
    calls = tuple(
        show.call(s, call)
        for call in s.unanswered
        for child in (*s.children_of(call), *s.children_of(call, beside=True))
        if child.agent_turn_id == stuck.agent_turn_id
    )
    return (show.head(s), *calls, *cause(stuck))


def cause(stuck: Snapshot) -> tuple[Evidence, ...]:
    """A turn that is waited for and stuck, where its cause lies, and what proves that."""
    found = judge(stuck)
    root = found.root or stuck.agent_turn_id
    lies = f"; its cause is turn {root}" if root != stuck.agent_turn_id else ""
    verdict = f"{found.verdict}: {found.rule or NO_RULE}, of agent {stuck.agent_id}{lies}"
    return (Evidence("cbx why", stuck.agent_turn_id, verdict), *found.evidence)


def root_of(stuck: Snapshot | None) -> str | None:
    """The turn in which the cause lies."""
    return None if stuck is None else judge(stuck).root or stuck.agent_turn_id


def _deadline(s: Snapshot) -> datetime | None:
    return None if s.head is None else s.head.resume_deadline


def _fix_of_awaited(s: Snapshot) -> Command | None:
    stuck = _stuck(s)
    return None if stuck is None else judge(stuck).fix


def _actor_of_awaited(s: Snapshot) -> str:
    stuck = _stuck(s)
    return (None if stuck is None else judge(stuck).next_actor) or "the operator"


RULES = (
    DiagnosisRule(
        name="wait-cycle",
        proves="Turns wait for each other: for an answer, or for the agent that another one is at.",
        rank=37,
        holds=_cycle,
        actor="the operator: one of the turns must be stopped",
        due=_deadline,
        fix=Remedy("`cbx turn stop` of the one that was asked for last", _stop),
        root=_first_of_cycle,
    ),
    DiagnosisRule(
        name="awaited-stuck",
        proves="A turn whose end this one waits for is stuck.",
        rank=36,
        holds=_awaited_stuck,
        actor=_actor_of_awaited,
        due=_deadline,
        fix=Remedy("that of the turn that it waits for", _fix_of_awaited),
        root=lambda s: root_of(_stuck(s)),
    ),
)
