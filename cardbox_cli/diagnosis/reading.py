"""From the database to snapshots of turns: one view of the rows for all of them, with the locks beside it.

Owns which rows belong to which turn. Never writes, and waits for no table that somebody has locked.
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TypeVar

import msgspec

from cardbox_cli.diagnosis.evidence import ARGUMENTS_SHOWN
from cardbox_cli.diagnosis.history import with_refused
from cardbox_cli.diagnosis.snapshot import Snapshot
from cardbox_cli.errors import Conflict
from cardbox_cli.execution.queue.messages import is_turn
from cardbox_cli.model.execution.diagnosis import BoxFacts, Child, Lock, Place
from cardbox_cli.model.execution.turns import Head, InboxRow, TurnRecord, WorkerEntry
from cardbox_cli.model.ids import as_box_id
from cardbox_cli.settings import LOCK_HELD, Settings
from cardbox_cli.store.views.diagnosis import DiagnosisStore

_Value = TypeVar("_Value")


class Blocked(Exception):
    """A table could not be read: these locks keep everybody from it."""

    def __init__(self, locks: Sequence[Lock]) -> None:
        super().__init__("a table is locked")
        self.locks = tuple(locks)


class Reader:
    """Reads snapshots of a project's turns, all of one moment."""

    def __init__(self, store: DiagnosisStore, settings: Settings) -> None:
        self.store = store
        self.settings = settings

    def turns(self, turns: Sequence[str]) -> list[Snapshot]:
        """What is known of these turns and their cards, in this order, without those that no row names."""
        places = self.store.places(turns)
        found = self.at([Place(turn, places[turn]) for turn in turns if turn in places])
        return [with_refused(self.store.database, self.store.project_id, each) for each in found]

    def at(self, places: Sequence[Place]) -> list[Snapshot]:
        """What is known of these turns, in this order. Their cards, which may be many, are not looked at."""
        if not places:
            return []
        facts = _Facts(self.store, self.settings, places)
        return [facts.snapshot(place, facts.blocker(place)) for place in places]

    def locked(self, snapshots: Sequence[Snapshot]) -> list[Snapshot]:
        """The same, with the locks on the tables and on their rows, and so the turns that they wait behind.

        Call it outside the snapshot.
        """
        if not snapshots or not self.store.locks_are_here():
            return list(snapshots)
        every = [*snapshots, *(each.blocker for each in snapshots if each.blocker is not None)]
        tables = self.store.table_locks()
        rows = self.store.row_locks(
            [each.agent_id for each in every],
            [row.inbox_id for each in every for row in each.rows],
            [box.box_id for each in every for box in each.boxes],
        )

        def with_locks(s: Snapshot) -> Snapshot:
            return msgspec.structs.replace(
                s,
                locks=(*tables, *(lock for lock in rows if _concerns(lock, s))),
                blocker=None if s.blocker is None else with_locks(s.blocker),
            )

        return [with_locks(each) for each in snapshots]

    def in_the_way(self) -> list[Lock]:
        """The locks that let nobody read a table of turns."""
        if not self.store.locks_are_here():
            return []
        return [lock for lock in self.store.table_locks() if lock.mode == "AccessExclusiveLock"]


def _concerns(lock: Lock, s: Snapshot) -> bool:
    names = {s.agent_id, *(row.inbox_id for row in s.rows), *(box.box_id for box in s.boxes)}
    return lock.row in names


class _Facts:
    """The rows of all turns asked about, and of the turns that their agents are at, each kind read once."""

    def __init__(self, store: DiagnosisStore, settings: Settings, places: Sequence[Place]) -> None:
        agents = sorted({place.agent_id for place in places})
        self.store = store
        self.settings = settings
        self.now: datetime = store.database.now()
        self.heads = store.heads(agents)
        active = {head.active_agent_turn_id for head in self.heads.values() if head.active_agent_turn_id}
        turns = sorted({place.agent_turn_id for place in places} | active)
        self.rows = store.rows(turns, agents)
        self.queue_lengths = store.queue_lengths(agents)
        self.steps = store.steps(turns)
        self.waiting = store.waiting_tools(turns, agents)
        self.requests = store.requests(turns)
        self.records = store.records(turns)
        self.audit = store.audit(turns)
        self.leases = store.leases(agents)
        self.targets = store.worker_targets(agents)
        self.workers: dict[str, list[WorkerEntry]] = store.workers(set(self.targets.values()))
        self.loads = store.loads([each.worker_id for group in self.workers.values() for each in group])
        self.children: dict[str, list[Child]] = store.children(turns)
        calls = [call.tool_call_id for tools in self.waiting.values() for call in tools]
        self.results = store.results(turns, calls)
        self.arguments = store.arguments(turns, calls, ARGUMENTS_SHOWN + 1)
        self.calls = store.calls([_report_to(record) for record in self.records.values() if record.report_to])
        self.boxes = {turn: self._pointers(turn) for turn in turns}
        boxes = sorted({box_id for pointers in self.boxes.values() for box_id in pointers.values()})
        known = [box_id for box_id in boxes if as_box_id(box_id) is not None]
        self.existing = store.existing_boxes(known)
        self.lost = store.lost_cards(known)
        self.sharers = store.sharers(known)

    def blocker(self, place: Place) -> Snapshot | None:
        """What is known of the turn that the agent of this one is at, where it is another."""
        head = self.heads.get(place.agent_id)
        at = None if head is None or head.status == "idle" else head.active_agent_turn_id
        if at is None or at == place.agent_turn_id:
            return None
        return self.snapshot(Place(at, place.agent_id), None)

    def snapshot(self, place: Place, blocker: Snapshot | None) -> Snapshot:
        """What is known of one turn."""
        turn, agent = place.agent_turn_id, place.agent_id
        target = self.targets.get(agent, "")
        waiting = self.waiting.get(turn, [])
        record = self.records.get(turn)
        pointers = self.boxes.get(turn, {})
        return Snapshot(
            agent_turn_id=turn,
            agent_id=agent,
            now=self.now,
            settings=self.settings,
            keeps_turns=self.store.database.keeps_turns,
            head=self.heads.get(agent),
            rows=tuple(row for row in self.rows.get(turn, []) if row.agent_id == agent),
            queue_length=self.queue_lengths.get(agent, 0),
            steps=tuple(self.steps.get(turn, [])),
            waiting=tuple(waiting),
            arguments=self.arguments.get(turn, {}),
            requests=tuple(edge for edge in self.requests.get(turn, []) if edge.target_agent_id == agent),
            record=record,
            audit=self.audit.get(turn),
            leases=tuple(self.leases.get(agent, [])),
            worker_target=target or None,
            workers=tuple(self.workers.get(target, [])),
            loads=self.loads,
            boxes=tuple(self._box(name, box_id) for name, box_id in pointers.items()),
            results=tuple(self.results.get(turn, [])),
            children=tuple(self.children.get(turn, [])),
            call=self.calls.get(_report_to(record)) if record and record.report_to else None,
            sharers=tuple(self.sharers.get(pointers.get("output", ""), [])),
            blocker=blocker,
        )

    def _pointers(self, turn: str) -> dict[str, str]:
        """The boxes of a turn by the names of their pointers: the head's while active, else its row's."""
        row = next((row for row in self.rows.get(turn, []) if is_turn(row)), None)
        head = next((head for head in self.heads.values() if head.active_agent_turn_id == turn), None)
        found = {name: _pointer(head, row, f"{name}_box_id") for name in ("profile", "context", "output")}
        return {name: box_id for name, box_id in found.items() if box_id is not None}

    def _box(self, pointer: str, box_id: str) -> BoxFacts:
        return BoxFacts(pointer, box_id, box_id in self.existing, tuple(self.lost.get(box_id, [])))


def _pointer(head: Head | None, row: InboxRow | None, name: str) -> str | None:
    at_head: str | None = getattr(head, name, None)
    named = at_head or (row.pointer(name) if row is not None else None)
    return named and (as_box_id(named) or named)


def _report_to(record: TurnRecord) -> tuple[str, str, str]:
    to = record.report_to or {}
    return (to.get("agent_id", ""), to.get("agent_turn_id", ""), to.get("tool_call_id", ""))


def read_or_say_why(reader: Reader, read: Callable[[], _Value]) -> _Value:
    """`read`, within one snapshot. Raises Blocked where a table stays locked."""
    held = [lock for lock in reader.in_the_way() if lock.seconds > LOCK_HELD.value]
    if held:
        raise Blocked(held)
    try:
        with reader.store.database.snapshot():
            reader.store.be_impatient()
            return read()
    except Conflict:
        held = reader.in_the_way()
        if held:
            raise Blocked(held) from None
        raise
