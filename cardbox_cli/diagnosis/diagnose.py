"""`why`: the verdicts on one turn, one agent, or everything in a project that is not well.

The use case: it opens the snapshot, asks the reader, judges, and looks up locks outside the snapshot.
"""

from collections.abc import Callable, Iterable

import msgspec

from cardbox_cli.diagnosis.causes import causes
from cardbox_cli.diagnosis.reading import Blocked, Reader, read_or_say_why
from cardbox_cli.diagnosis.snapshot import Snapshot
from cardbox_cli.diagnosis.verdict import Diagnosis, idle, judge
from cardbox_cli.errors import NotFound
from cardbox_cli.execution.handlers import Handlers
from cardbox_cli.model.execution.diagnosis import Place
from cardbox_cli.settings import Settings
from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.roster import RosterStore
from cardbox_cli.store.views.diagnosis import DiagnosisStore


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
