"""Diagnosis of a turn, an agent or a project for `cbx why`: read snapshots and judge them.

Locks are read outside the snapshot. The `…Answer` classes are the contract of `cbx why -o json`.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

import msgspec

from cardbox_cli.diagnosis.registry import Command, RowEvidence
from cardbox_cli.diagnosis.snapshot import Snapshot
from cardbox_cli.diagnosis.snapshot_reader import ReadBlocked, SnapshotReader, read_in_snapshot
from cardbox_cli.diagnosis.verdict import Diagnosis, RuleMatch, idle_diagnosis, judge
from cardbox_cli.errors import NotFound
from cardbox_cli.execution.handlers import Handlers
from cardbox_cli.model.execution.situations import TurnPlace
from cardbox_cli.settings import Settings
from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.roster import AgentStore
from cardbox_cli.store.views.diagnosis_rows import DiagnosisStore
from cardbox_cli.text.command_lines import command_line, quote_argument


def find_causes(snapshots: Sequence[Snapshot]) -> list[Diagnosis]:
    """Return the problems among the verdicts, one for each cause, with the number of waiting turns."""
    problems = {
        (s.agent_turn_id, s.agent_id): (s, diagnosis)
        for s in snapshots
        if not (diagnosis := judge(s)).is_well
    }
    agents = {turn: agent for turn, agent in problems if turn}
    waiting = Counter[tuple[str, str]]()
    roots = []
    for place, (s, diagnosis) in sorted(problems.items()):
        root = (diagnosis.root, agents[diagnosis.root]) if diagnosis.root in agents else place
        waiting[root] += (root != place) + (s.queue_length if s.head_status is not None else 0)
        if root == place:
            roots.append((place, diagnosis))
    return [msgspec.structs.replace(each, waiting=waiting[place]) for place, each in roots]


class Survey(msgspec.Struct, frozen=True, kw_only=True):
    """A whole project at one moment: its problems, and the numbers of active, queued and examined turns."""

    problems: tuple[Diagnosis, ...]
    active: int
    queued: int
    looked_at: int
    could_read: bool = True


class Diagnoser:
    """Diagnoses turns of one project. `handlers` are the internal handlers that workers offer to models."""

    def __init__(self, database: Database, project_id: str, settings: Settings, handlers: Handlers) -> None:
        self.store = DiagnosisStore(database, project_id)
        self.settings = settings
        self.reader = SnapshotReader(self.store, settings, handlers)

    def turn(self, turn_id: str) -> Diagnosis:
        """Return the verdict on a turn. `turn_id` is its id or a unique part of the id. Raises NotFound."""
        judged = self._judge(lambda: self.reader.read_by_id([self.store.resolve(turn_id)]), turn_id)
        if not judged:
            what = f"no row of turn {turn_id!r} in project {self.store.project_id!r} names its agent"
            raise NotFound(what, hint=f"`cbx turn show {quote_argument(turn_id)}` shows its rows")
        return judged[0]

    def agent(self, agent_id: str) -> Diagnosis:
        """Return the verdict on an agent's active turn, else its next, else its last. Raises NotFound."""

        def read() -> list[Snapshot]:
            known, turn = self.store.agent(agent_id)
            if not known:
                raise AgentStore(self.store.database, self.store.project_id).not_found(
                    agent_id, "`cbx agent list` shows the agents"
                )
            return [] if turn is None else self.reader.read_with_cards([TurnPlace(turn, agent_id)])

        judged = self._judge(read, None, agent_id)
        return judged[0] if judged else idle_diagnosis(agent_id)

    def survey(self) -> Survey:
        """Return all problems of the project; turns queued behind an active turn are only counted."""

        def read() -> tuple[list[Snapshot], tuple[int, int]]:
            suspects = self.store.suspects(self.settings.unclaimed_time)
            return self.reader.read_turns(suspects), self.store.counts()

        try:
            snapshots, (active, queued) = read_in_snapshot(self.reader, read)
        except ReadBlocked as blocked:
            problem = self._blocked(blocked, "")
            return Survey(problems=(problem,), active=0, queued=0, looked_at=0, could_read=False)
        problems = _deduplicate(find_causes(self.reader.add_locks(snapshots)))
        return Survey(problems=tuple(problems), active=active, queued=queued, looked_at=len(snapshots))

    def _judge(
        self, read: Callable[[], list[Snapshot]], turn: str | None, agent_id: str = ""
    ) -> list[Diagnosis]:
        try:
            snapshots = read_in_snapshot(self.reader, read)
        except ReadBlocked as blocked:
            return [self._blocked(blocked, turn, agent_id)]
        return [judge(each) for each in self.reader.add_locks(snapshots)]

    def _blocked(self, blocked: ReadBlocked, turn: str | None, agent_id: str = "") -> Diagnosis:
        """Return the verdict for a table that cannot be read because of locks."""
        empty = Snapshot(
            agent_turn_id=turn or "",
            agent_id=agent_id,
            now=self.store.database.now(),
            settings=self.settings,
            keeps_turns=True,
            locks=blocked.locks,
        )
        return msgspec.structs.replace(judge(empty), turn=turn or None)


def _deduplicate(problems: Sequence[Diagnosis]) -> list[Diagnosis]:
    """Drop each problem of an agent without a turn if a turn of that agent has the same problem."""
    of_turns = {(each.agent, each.rule) for each in problems if each.turn is not None}
    return [each for each in problems if each.turn is not None or (each.agent, each.rule) not in of_turns]


class SeenAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A rule that holds for a turn: the rows that prove it, the next actor, and the command that helps."""

    rule: str | None
    severity: str
    evidence: list[RowEvidence]
    next_actor: str | None
    due_at: datetime | None
    fix: str | None


class WhyAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict on a turn, or on an agent without a turn. `also` lists the other rules that hold."""

    turn: str | None
    agent: str
    verdict: str
    rule: str | None
    severity: str
    evidence: list[RowEvidence]
    next_actor: str | None
    due_at: datetime | None
    fix: str | None
    also: list[SeenAnswer]


class ProblemAnswer(WhyAnswer, frozen=True, kw_only=True):
    """A problem of a project, with the number of turns that wait for it."""

    waiting: int


def why_answer(diagnosis: Diagnosis, project_option: Sequence[str] = ()) -> WhyAnswer:
    """Return the JSON value of a diagnosis. Its commands end with `project_option`, which may be empty."""
    return WhyAnswer(**_answer_fields(diagnosis, project_option))


def survey_answer(survey: Survey, project_option: Sequence[str] = ()) -> list[ProblemAnswer]:
    """Return the JSON values of all problems of a project."""
    return [
        ProblemAnswer(**_answer_fields(each, project_option), waiting=each.waiting)
        for each in survey.problems
    ]


def fix_line(words: Command | None, project_option: Sequence[str]) -> str | None:
    return None if words is None else command_line(words, *project_option)


def _answer_fields(diagnosis: Diagnosis, project_option: Sequence[str]) -> dict[str, Any]:
    return {
        "turn": diagnosis.turn,
        "agent": diagnosis.agent,
        "verdict": diagnosis.verdict,
        **_seen_fields(diagnosis, project_option),
        "also": [SeenAnswer(**_seen_fields(each, project_option)) for each in diagnosis.also],
    }


def _seen_fields(seen: RuleMatch | Diagnosis, project_option: Sequence[str]) -> dict[str, Any]:
    return {
        "rule": seen.rule,
        "severity": seen.severity,
        "evidence": list(seen.evidence),
        "next_actor": seen.next_actor,
        "due_at": seen.due_at,
        "fix": fix_line(seen.fix, project_option),
    }
