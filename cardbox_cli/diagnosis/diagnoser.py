"""From the turns that are not well to the causes: one for all that wait for it, with how many do."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any

import msgspec

from cardbox_cli.diagnosis.registry import Command, Evidence
from cardbox_cli.diagnosis.snapshot import Snapshot
from cardbox_cli.diagnosis.snapshot_reading import Blocked, Reader, read_or_say_why
from cardbox_cli.diagnosis.verdict import Diagnosis, Seen, idle, judge
from cardbox_cli.errors import NotFound
from cardbox_cli.execution.handlers import Handlers
from cardbox_cli.model.execution.situations import Place
from cardbox_cli.settings import Settings
from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.roster import RosterStore
from cardbox_cli.store.views.diagnosis_rows import DiagnosisStore
from cardbox_cli.text import command_line


def causes(snapshots: Sequence[Snapshot]) -> list[Diagnosis]:
    """What is not well, by turn. Turns that only wait for one of these, or in its queue, are counted."""
    ill = {(s.agent_turn_id, s.agent_id): (s, found) for s in snapshots if not (found := judge(s)).well}
    agents = {turn: agent for turn, agent in ill if turn}
    waiting = Counter[tuple[str, str]]()
    roots = []
    for place, (s, found) in sorted(ill.items()):
        root = (found.root, agents[found.root]) if found.root in agents else place
        waiting[root] += (root != place) + (s.queue_length if s.at_head is not None else 0)
        if root == place:
            roots.append((place, found))
    return [msgspec.structs.replace(each, waiting=waiting[place]) for place, each in roots]


# `why`: the verdicts on one turn, one agent, or everything in a project that is not well.
#
# The use case: it opens the snapshot, asks the reader, judges, and looks up locks outside the snapshot.


class Survey(msgspec.Struct, frozen=True, kw_only=True):
    """A whole project at one moment: what is not well, and how many turns were looked at, if any could be."""

    problems: tuple[Diagnosis, ...]
    active: int
    queued: int
    looked_at: int
    could_read: bool = True


class Diagnoser:
    """Diagnoses turns of one project. `handlers` are those that workers offer to its models."""

    def __init__(self, database: Database, project_id: str, settings: Settings, handlers: Handlers) -> None:
        self.store = DiagnosisStore(database, project_id)
        self.settings = settings
        self.reader = Reader(self.store, settings, handlers)

    def turn(self, turn_id: str) -> Diagnosis:
        """The verdict on a turn, named by its id or a unique beginning or end of it. Raises NotFound."""
        judged = self._judged(lambda: self.reader.turns([self.store.resolve(turn_id)]), turn_id)
        if not judged:
            what = f"no row of turn {turn_id!r} in project {self.store.project_id!r} names its agent"
            raise NotFound(what, hint="`cbx turn show` shows what there is")
        return judged[0]

    def agent(self, agent_id: str) -> Diagnosis:
        """The verdict on an agent's present turn, else on its next, else on its last. Raises NotFound."""

        def read() -> list[Snapshot]:
            known, turn = self.store.agent(agent_id)
            if not known:
                raise RosterStore(self.store.database, self.store.project_id).absent(
                    agent_id, "`cbx agent list` shows them"
                )
            return [] if turn is None else self.reader.whole([Place(turn, agent_id)])

        judged = self._judged(read, None, agent_id)
        return judged[0] if judged else idle(agent_id)

    def survey(self) -> Survey:
        """Everything in the project that is not well; what waits behind an active turn is only counted."""

        def read() -> tuple[list[Snapshot], tuple[int, int]]:
            return self.reader.at(self.store.suspects(self.settings.unclaimed_time)), self.store.counts()

        try:
            snapshots, (active, queued) = read_or_say_why(self.reader, read)
        except Blocked as blocked:
            found = (self._blocked(blocked, ""),)
            return Survey(problems=found, active=0, queued=0, looked_at=0, could_read=False)
        problems = _told_once(causes(self.reader.locked(snapshots)))
        return Survey(problems=tuple(problems), active=active, queued=queued, looked_at=len(snapshots))

    def _judged(
        self, read: Callable[[], list[Snapshot]], turn: str | None, agent_id: str = ""
    ) -> list[Diagnosis]:
        try:
            snapshots = read_or_say_why(self.reader, read)
        except Blocked as blocked:
            return [self._blocked(blocked, turn, agent_id)]
        return [judge(each) for each in self.reader.locked(snapshots)]

    def _blocked(self, blocked: Blocked, turn: str | None, agent_id: str = "") -> Diagnosis:
        """All that can be said where a table cannot be read."""
        unread = Snapshot(
            agent_turn_id=turn or "",
            agent_id=agent_id,
            now=self.store.database.now(),
            settings=self.settings,
            keeps_turns=True,
            locks=blocked.locks,
        )
        return msgspec.structs.replace(judge(unread), turn=turn or None)


def _name(diagnosis: Diagnosis) -> tuple[str, str]:
    return diagnosis.turn or "", diagnosis.agent


def _told_once(problems: Iterable[Diagnosis]) -> list[Diagnosis]:
    """Without agents that are at no turn where a turn of theirs tells the same."""
    found = list(problems)
    told = {(each.agent, each.rule) for each in found if each.turn is not None}
    return [each for each in found if each.turn is not None or (each.agent, each.rule) not in told]


# What programs are told of a diagnosis: the contract of `cbx why -o json`, wherever it is asked for.


class SeenAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What a rule saw, who must act on it, and the command that helps, as it is to be typed."""

    rule: str | None
    severity: str
    evidence: list[Evidence]
    next_actor: str | None
    due_at: datetime | None
    fix: str | None


class WhyAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """How a turn stands, or an agent without one. `also` is what else was seen."""

    turn: str | None
    agent: str
    verdict: str
    rule: str | None
    severity: str
    evidence: list[Evidence]
    next_actor: str | None
    due_at: datetime | None
    fix: str | None
    also: list[SeenAnswer]


class ProblemAnswer(WhyAnswer, frozen=True, kw_only=True):
    """One of all that are not well, and how many turns wait for it."""

    waiting: int


def why_answer(diagnosis: Diagnosis, project_option: Sequence[str] = ()) -> WhyAnswer:
    """The answer about one turn. `project_option` is what commands name besides, where that is needed."""
    return WhyAnswer(**_told(diagnosis, project_option))


def survey_answer(survey: Survey, project_option: Sequence[str] = ()) -> list[ProblemAnswer]:
    """The answer about a project: all that is not well."""
    return [ProblemAnswer(**_told(each, project_option), waiting=each.waiting) for each in survey.problems]


def fix_line(words: Command | None, project_option: Sequence[str]) -> str | None:
    """A command as it is to be typed."""
    return None if words is None else command_line(words, *project_option)


def _told(diagnosis: Diagnosis, project_option: Sequence[str]) -> dict[str, Any]:
    return {
        "turn": diagnosis.turn,
        "agent": diagnosis.agent,
        "verdict": diagnosis.verdict,
        **_seen(diagnosis, project_option),
        "also": [SeenAnswer(**_seen(each, project_option)) for each in diagnosis.also],
    }


def _seen(seen: Seen | Diagnosis, project_option: Sequence[str]) -> dict[str, Any]:
    return {
        "rule": seen.rule,
        "severity": seen.severity,
        "evidence": list(seen.evidence),
        "next_actor": seen.next_actor,
        "due_at": seen.due_at,
        "fix": fix_line(seen.fix, project_option),
    }
