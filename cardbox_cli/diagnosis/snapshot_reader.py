"""Reads snapshots of turns from the database: all rows in one transaction, the locks outside it.

The reader follows the turns that a turn waits for, up to `_MAX_TURNS` turns and `_MAX_STEPS` steps. Turns
beyond these limits count as healthy. It decides which rows belong to which turn. It never writes, and waits
for a locked table only briefly.
"""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import TypeVar

import msgspec

from cardbox_cli.context.lint.rule import LintFinding
from cardbox_cli.diagnosis.evidence import ARGUMENTS_SHOWN
from cardbox_cli.diagnosis.locks import bars_reading, find_root_locks
from cardbox_cli.diagnosis.snapshot import FAILURES, Snapshot
from cardbox_cli.errors import Conflict
from cardbox_cli.execution.handlers import Handlers
from cardbox_cli.execution.queue.messages import is_turn, type_of
from cardbox_cli.execution.requests.request_checks import lint_turn
from cardbox_cli.execution.requests.turn_requests import TurnBoxes, read_source
from cardbox_cli.execution.tool_calls import pending_calls
from cardbox_cli.execution.turn_summary import summary
from cardbox_cli.limits import LOCK_HELD
from cardbox_cli.model.card_types import DELIVERABLE
from cardbox_cli.model.execution.situations import (
    AgentSetup,
    BlockingLock,
    BoxFacts,
    ChildTurn,
    CycleLink,
    HeldLock,
    TaskFacts,
    TurnPlace,
)
from cardbox_cli.model.execution.turns import MAX_DEPTH, OPEN, QUEUED, InboxRow, TurnRecord, WorkerEntry
from cardbox_cli.model.ids import canonical_box_id
from cardbox_cli.process_identity import is_dead
from cardbox_cli.settings import Settings
from cardbox_cli.store.boxes import BoxStore
from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.views.diagnosis_rows import DiagnosisStore
from cardbox_cli.store.views.turn_views import TurnViews

_MAX_TURNS = 100
# A delegated turn may also wait in a queue: two steps for each level of delegation.
_MAX_STEPS = 2 * MAX_DEPTH


def _follow_waits(store: DiagnosisStore, places: Sequence[TurnPlace]) -> list[TurnPlace]:
    """Return these turns, and all turns that they wait for."""
    known = {place.agent_turn_id: place for place in places}
    pending = list(known)
    for _ in range(_MAX_STEPS):
        more = [place for place in store.waits_for(pending) if place.agent_turn_id not in known]
        if not more:
            break
        known |= {place.agent_turn_id: place for place in more}
        pending = [place.agent_turn_id for place in more]
    return list(known.values())


def _link_snapshots(place: TurnPlace, read: Callable[[TurnPlace], Snapshot]) -> Snapshot:
    """Return the snapshot of a turn from `read`, linked to the snapshots of the turns that it waits for."""
    left = _MAX_TURNS

    def link(place: TurnPlace, path: tuple[CycleLink, ...]) -> Snapshot:
        nonlocal left
        left -= 1
        s = read(place)
        path = (*path, CycleLink(s.agent_turn_id, s.agent_id, s.head_status or QUEUED))
        before = [link.agent_turn_id for link in path]
        closes: tuple[CycleLink, ...] = ()
        below = []
        for each in s.waits_for:
            if each.agent_turn_id in before:
                closes = path[before.index(each.agent_turn_id) :]
            elif left > 0 and len(path) <= _MAX_STEPS:
                below.append(link(each, path))
        if s.queued:
            return msgspec.structs.replace(s, blocker=next(iter(below), None), closes=closes)
        return msgspec.structs.replace(s, awaited=tuple(below), closes=closes)

    return link(place, ())


def _map_linked(change: Callable[[Snapshot], Snapshot], s: Snapshot) -> Snapshot:
    """Return the changed snapshot. The snapshots of the turns that it waits for are changed, too."""
    blocker = None if s.blocker is None else _map_linked(change, s.blocker)
    awaited = tuple(_map_linked(change, each) for each in s.awaited)
    return msgspec.structs.replace(change(s), blocker=blocker, awaited=awaited)


# --- the lint of a turn's next request, or of the last one before it failed. A suspended turn is not checked:
# it always has a call without a result.

# The time after a failure in which the stored cards are assumed to be the ones that the model received.
_RECENT_FAILURE = timedelta(days=1)


def _lint(database: Database, project_id: str, s: Snapshot, handlers: Handlers) -> tuple[LintFinding, ...]:
    if not (s.dispatched or s.running or _failed_recently(s)):
        return ()
    boxes = _read_boxes(BoxStore(database, project_id), s)
    # A turn that waits for results, or has a deliverable, sends no request next.
    if boxes is None or pending_calls(boxes.own) or any(card.type == DELIVERABLE for card in boxes.own):
        return ()
    config = {} if s.turn_row is None else s.turn_row.runtime_config
    findings = lint_turn(database, project_id, boxes, config, handlers)
    return tuple(finding for finding in findings if finding.severity == "error")


def _failed_recently(s: Snapshot) -> bool:
    record = s.record if s.has_ended else None
    return record is not None and record.end_status == "failed" and s.age(record.ended_at) < _RECENT_FAILURE


def _read_boxes(store: BoxStore, s: Snapshot) -> TurnBoxes | None:
    """Read the boxes of the turn's next or last request. Return None if boxes or cards are missing."""
    if any(box.lost for box in s.boxes):
        return None
    sources = {box.pointer: read_source(store, box.box_id) for box in s.boxes if box.exists}
    if sources.keys() != {"profile", "context", "output"}:
        return None
    output = sources["output"]
    start = s.record.output_start if s.record is not None else None
    if start is None and output.slots:
        return None
    if s.has_ended:
        ids = [slot.card_id for slot in output.slots]
        deliverable = s.record.deliverable_card_id if s.record is not None else None
        if deliverable not in ids:
            return None
        # Later turns may have appended cards to the box.
        output = msgspec.structs.replace(output, slots=output.slots[: ids.index(deliverable)])
    return TurnBoxes(
        profile=sources["profile"], context=sources["context"], output=output, output_start=start or 0
    )


def _add_paces(store: DiagnosisStore, s: Snapshot) -> Snapshot:
    """Add the durations of recent steps of its profile or calls of its tools. Joins the transaction."""
    if s.running and s.steps and s.steps[-1].ended_at is None:
        pace = store.step_pace(s.agent_id, s.steps[-1].profile_box_id)
        return msgspec.structs.replace(s, step_pace=pace)
    if s.suspended and s.open_calls:
        tools = sorted({call.tool_name for call in s.open_calls})
        return msgspec.structs.replace(s, call_paces=store.call_paces(s.agent_id, tools))
    return s


_Value = TypeVar("_Value")


class ReadBlocked(Exception):
    """A table could not be read because of these locks."""

    def __init__(self, locks: Sequence[BlockingLock]) -> None:
        super().__init__("a table is locked")
        self.locks = tuple(locks)


class SnapshotReader:
    """Reads snapshots of a project's turns, all at one moment."""

    def __init__(self, store: DiagnosisStore, settings: Settings, handlers: Handlers) -> None:
        self.store = store
        self.settings = settings
        self.handlers = handlers

    def read_by_id(self, turns: Sequence[str]) -> list[Snapshot]:
        """Read these turns and their cards, in this order; skip turns that have no rows."""
        places = self.store.places(turns)
        return self.read_with_cards([TurnPlace(turn, places[turn]) for turn in turns if turn in places])

    def read_with_cards(self, places: Sequence[TurnPlace]) -> list[Snapshot]:
        """Read these turns and their cards, in this order."""

        def add_refused(s: Snapshot) -> Snapshot:
            refused = _lint(self.store.database, self.store.project_id, s, self.handlers)
            return msgspec.structs.replace(s, refused=refused)

        return [_add_paces(self.store, _map_linked(add_refused, each)) for each in self.read_turns(places)]

    def read_turns(self, places: Sequence[TurnPlace]) -> list[Snapshot]:
        """Read these turns, in this order, without their cards, which may be many."""
        if not places:
            return []
        rows = _TurnRows(self.store, self.settings, _follow_waits(self.store, places))
        return [_link_snapshots(place, rows.snapshot) for place in places]

    def add_locks(self, snapshots: Sequence[Snapshot]) -> list[Snapshot]:
        """Return the snapshots with the locks on their tables and rows. Call it outside the snapshot."""
        if not snapshots or not self.store.locks_are_here():
            return list(snapshots)
        every = [deep for each in snapshots for deep in each.all_turns]
        read_only_by = self.store.read_only_by()
        tables = self.store.table_locks()
        rows = self._row_locks(every)
        sessions = self.store.sessions([lock.pid for lock in (*tables, *rows)])

        def add_locks(s: Snapshot) -> Snapshot:
            ids = {*(row.inbox_id for row in s.rows), *(box.box_id for box in s.boxes)}
            held = [*(lock for lock in rows if lock.row in ids | {s.agent_id, s.agent_turn_id}), *tables]
            locks = find_root_locks(held, sessions)
            return msgspec.structs.replace(s, locks=locks, read_only_by=read_only_by)

        return [_map_linked(add_locks, each) for each in snapshots]

    def _row_locks(self, snapshots: Sequence[Snapshot]) -> list[HeldLock]:
        """Return the locks on rows, or an empty list if a whole table is locked."""
        try:
            return self.store.row_locks(
                agents=[each.agent_id for each in snapshots],
                turns=[each.agent_turn_id for each in snapshots],
                rows=[row.inbox_id for each in snapshots for row in each.rows],
                boxes=[box.box_id for each in snapshots for box in each.boxes],
            )
        except Conflict:
            return []

    def blocking_locks(self) -> tuple[BlockingLock, ...]:
        """Return the locks, held or waited for, that prevent everyone from reading a table of turns."""
        if not self.store.locks_are_here():
            return ()
        held = [lock for lock in self.store.table_locks() if bars_reading(lock)]
        return find_root_locks(held, self.store.sessions([lock.pid for lock in held])) if held else ()


class _TurnRows:
    """The rows of the given turns and of their agents' active turns, each table read once."""

    def __init__(self, store: DiagnosisStore, settings: Settings, places: Sequence[TurnPlace]) -> None:
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
        self.setups = store.setups(agents)
        self.live_workers = store.live_workers(self.now)
        self.archived = store.archived()
        self.loads = store.loads([each.worker_id for group in self.workers.values() for each in group])
        self.delivered = store.deliverables(turns)
        self.freed = store.last_turn_ends(agents)
        self.children: dict[str, list[ChildTurn]] = store.children(turns)
        batches = store.batches(turns)
        children = {child.agent_turn_id for group in self.children.values() for child in group}
        children |= {task.turn for batch in batches for task in batch.tasks if task.turn}
        views = TurnViews(store.database, store.project_id)
        self.turns = {turn.agent_turn_id: summary(turn) for turn in views.get_many({*turns, *children})}
        self.batches = [
            msgspec.structs.replace(batch, tasks=tuple(map(self._add_task_end, batch.tasks)))
            for batch in batches
        ]
        calls = [call.tool_call_id for tools in self.waiting.values() for call in tools]
        self.results = store.results(turns, calls)
        self.arguments = store.arguments(turns, calls, ARGUMENTS_SHOWN + 1)
        self.calls = store.calls([_report_to(record) for record in self.records.values() if record.report_to])
        self.boxes = {turn: self._pointers(turn) for turn in turns}
        boxes = sorted({box_id for pointers in self.boxes.values() for box_id in pointers.values()})
        known = [box_id for box_id in boxes if canonical_box_id(box_id) is not None]
        self.existing = store.existing_boxes(known)
        self.lost = store.lost_cards(known)
        profile_boxes = {pointers.get("profile") for pointers in self.boxes.values()}
        self.profiles = store.profile_names([box_id for box_id in known if box_id in profile_boxes])
        self.incomplete_allowed = store.incomplete_allowed()
        self.stored_commands = store.stored_commands() if calls else frozenset()
        self.sharers = store.sharers(known)
        failed = [turn for turn, known in self.turns.items() if known.end_status in FAILURES]
        self.failure_logs = store.failure_logs(failed)

    def snapshot(self, place: TurnPlace) -> Snapshot:
        """Return the facts of one turn, without the turns that it waits for."""
        turn, agent = place.agent_turn_id, place.agent_id
        target = self.targets.get(agent, "")
        waiting = self.waiting.get(turn, [])
        record = self.records.get(turn)
        pointers = self.boxes.get(turn, {})
        rows = [row for row in self.rows.get(turn, []) if row.agent_id == agent]
        return Snapshot(
            agent_turn_id=turn,
            agent_id=agent,
            now=self.now,
            settings=self.settings,
            keeps_turns=self.store.keeps_turns,
            turn=self.turns.get(turn),
            head=self.heads.get(agent),
            freed_at=self.freed.get(agent),
            rows=tuple(row for row in rows if not _is_foreign(row)),
            foreign_rows=tuple(row for row in rows if _is_foreign(row)),
            queue_length=self.queue_lengths.get(agent, 0),
            steps=tuple(self.steps.get(turn, [])),
            waiting=tuple(waiting),
            arguments=self.arguments.get(turn, {}),
            requests=tuple(edge for edge in self.requests.get(turn, []) if edge.target_agent_id == agent),
            record=record,
            audit=self.audit.get(turn),
            leases=tuple(self.leases.get(agent, [])),
            dead_owners=frozenset(
                lease.owner for lease in self.leases.get(agent, []) if is_dead(lease.owner)
            ),
            worker_target=target or None,
            workers=tuple(self.workers.get(target, [])),
            loads=self.loads,
            boxes=tuple(self._box(name, box_id) for name, box_id in pointers.items()),
            results=tuple(self.results.get(turn, [])),
            delivered=tuple(self.delivered.get(turn, [])),
            children=tuple(self._add_end(child) for child in self.children.get(turn, [])),
            batches=tuple(batch for batch in self.batches if batch.source_turn_id == turn),
            call=self.calls.get(_report_to(record)) if record and record.report_to else None,
            sharers=tuple(self.sharers.get(pointers.get("output", ""), [])),
            log=self.failure_logs.get(turn),
            closed=self.store.closed,
            role=self.store.database.role,
            incomplete_allowed=self.incomplete_allowed,
            stored_commands=self.stored_commands,
            setup=self._setup(agent, pointers.get("profile", "")),
        )

    def _add_task_end(self, task: TaskFacts) -> TaskFacts:
        turn = self.turns.get(task.turn or "")
        if turn is None:
            return task
        return msgspec.structs.replace(task, ended=turn.end_status, ended_at=turn.ended_at)

    def _add_end(self, child: ChildTurn) -> ChildTurn:
        turn = self.turns.get(child.agent_turn_id)
        return msgspec.structs.replace(child, end_status=None if turn is None else turn.end_status)

    def _setup(self, agent: str, profile_box: str) -> AgentSetup:
        name, target = self.setups.get(agent, (self.profiles.get(profile_box), None))
        own, serves = self.targets.get(agent), (None, self.store.project_id)
        others = (each for each in self.live_workers if each.project_id not in serves)
        return AgentSetup(
            on_roster=own is not None,
            profile_name=name,
            profile_target=target,
            serving=tuple(each for each in self.live_workers if each.project_id in serves),
            elsewhere=tuple(each for each in others if each.worker_target == own),
            archived=self.archived,
        )

    def _pointers(self, turn: str) -> dict[str, str]:
        """Return the boxes of a turn by pointer: from the head if the turn is active, else from its row."""
        row = next((row for row in self.rows.get(turn, []) if is_turn(row)), None)
        head = next((head for head in self.heads.values() if head.active_agent_turn_id == turn), None)
        pointers = {}
        for name in ("profile", "context", "output"):
            box_id = getattr(head, f"{name}_box_id", None) or (row.pointer(f"{name}_box_id") if row else None)
            if box_id is not None:
                pointers[name] = canonical_box_id(box_id) or box_id
        return pointers

    def _box(self, pointer: str, box_id: str) -> BoxFacts:
        exists = box_id in self.existing
        without_profile = exists and pointer == "profile" and box_id not in self.profiles
        return BoxFacts(pointer, box_id, exists, tuple(self.lost.get(box_id, [])), without_profile)


def _is_foreign(row: InboxRow) -> bool:
    """Return True if only another system handles rows of this type."""
    kind = type_of(row)
    return kind is None or (kind.claim is None and row.status in OPEN)


def _report_to(record: TurnRecord) -> tuple[str, str, str]:
    to = record.report_to or {}
    return (to.get("agent_id", ""), to.get("agent_turn_id", ""), to.get("tool_call_id", ""))


def read_in_snapshot(reader: SnapshotReader, read: Callable[[], _Value]) -> _Value:
    """Return the result of `read`, called within one snapshot. Raises ReadBlocked if a table stays locked."""
    if long := [lock for lock in reader.blocking_locks() if lock.seconds > LOCK_HELD.value]:
        raise ReadBlocked(long)
    try:
        with reader.store.database.snapshot():
            reader.store.limit_lock_waits()
            return read()
    except Conflict:
        if held := reader.blocking_locks():
            raise ReadBlocked(held) from None
        raise
