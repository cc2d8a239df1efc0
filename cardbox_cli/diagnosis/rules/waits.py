"""Rules about turns that wait for a stuck turn, or for each other in a cycle."""

from cardbox_cli.diagnosis import evidence as show
from cardbox_cli.diagnosis.registry import Command, DiagnosisRule, Proof, Remedy, RowEvidence
from cardbox_cli.diagnosis.snapshot import Snapshot
from cardbox_cli.diagnosis.verdict import NO_RULE, NOT_WELL, judge
from cardbox_cli.model.execution.turns import QUEUED


def _cycle(s: Snapshot) -> Proof:
    proof = tuple(
        RowEvidence(
            "state.agent_inbox" if link.status == QUEUED else "state.agent_state_head",
            link.agent_turn_id,
            f"of agent {link.agent_id}, {link.status}: waits for turn {following.agent_turn_id}",
        )
        for link, following in zip(s.cycle, (*s.cycle[1:], *s.cycle[:1]), strict=True)
    )
    return proof or None


def _stop(s: Snapshot) -> Command | None:
    """Stop the newest turn, if possible one still queued, so that the others continue."""
    queued = [link for link in s.cycle if link.status == QUEUED]
    newest = max((link.agent_turn_id for link in queued or s.cycle), default=None)
    return None if newest is None else ("turn", "stop", newest)


def _first_of_cycle(s: Snapshot) -> str | None:
    """Return the first active turn of the cycle. All turns of a cycle have the same one."""
    return min((link.agent_turn_id for link in s.cycle if link.status != QUEUED), default=None)


def is_stuck(s: Snapshot) -> bool:
    return judge(s).verdict in NOT_WELL


def _stuck_awaited(s: Snapshot) -> Snapshot | None:
    return next(filter(is_stuck, s.awaited), None)


def _awaited_stuck(s: Snapshot) -> Proof:
    stuck = _stuck_awaited(s)
    if stuck is None or s.cycle:
        return None
    calls = tuple(
        show.call(s, call)
        for call in s.unanswered
        for child in (*s.children_of(call), *s.children_of(call, beside=True))
        if child.agent_turn_id == stuck.agent_turn_id
    )
    return (show.head(s), *calls, *cause(stuck))


def cause(stuck: Snapshot) -> tuple[RowEvidence, ...]:
    """Return the verdict on a stuck turn that another one waits for, and its proof."""
    diagnosis = judge(stuck)
    root = diagnosis.root or stuck.agent_turn_id
    note = f"; its cause is turn {root}" if root != stuck.agent_turn_id else ""
    verdict = f"{diagnosis.verdict}: {diagnosis.rule or NO_RULE}, of agent {stuck.agent_id}{note}"
    return (RowEvidence("cbx why", stuck.agent_turn_id, verdict), *diagnosis.evidence)


def root_of(stuck: Snapshot | None) -> str | None:
    """Return the id of the turn that is the cause."""
    return None if stuck is None else judge(stuck).root or stuck.agent_turn_id


def _fix_of_awaited(s: Snapshot) -> Command | None:
    stuck = _stuck_awaited(s)
    return None if stuck is None else judge(stuck).fix


def _actor_of_awaited(s: Snapshot) -> str:
    stuck = _stuck_awaited(s)
    return (None if stuck is None else judge(stuck).next_actor) or "the operator"


RULES = (
    DiagnosisRule(
        name="wait-cycle",
        proves="Turns wait for each other: for a result, or in the queue of an agent.",
        rank=37,
        holds=_cycle,
        actor="the operator: stop one of the turns",
        due=lambda s: s.resume_deadline,
        fix=Remedy("`cbx turn stop` for the newest of them", _stop),
        root=_first_of_cycle,
    ),
    DiagnosisRule(
        name="awaited-stuck",
        proves="A turn that this one waits for is stuck.",
        rank=36,
        holds=_awaited_stuck,
        actor=_actor_of_awaited,
        due=lambda s: s.resume_deadline,
        fix=Remedy("the fix of the awaited turn", _fix_of_awaited),
        root=lambda s: root_of(_stuck_awaited(s)),
    ),
)
