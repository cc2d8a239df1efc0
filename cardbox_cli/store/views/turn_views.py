"""Lists of turns, and all rows of one turn. Never writes.

The state of a turn is in its inbox row and its agent's head, also in databases of other programs. An ended
turn comes with the end that cbx recorded, or else with the rows that the turn left.
`execution/turn_summary.py` interprets them.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from typing import Any

import msgspec

from cardbox_cli.model.card_types import RESULT_FIELDS
from cardbox_cli.model.cards import Card
from cardbox_cli.model.execution.turns import (
    ENDED,
    ERROR,
    STEP_OVER,
    AuditEntry,
    Edge,
    InboxRow,
    Lease,
    LogTail,
    Step,
    Successor,
    TurnRecord,
    WaitingTool,
    turn_state,
)
from cardbox_cli.model.ids import unique
from cardbox_cli.store.audit import AuditStore
from cardbox_cli.store.boxes import BoxStore, cards_of_type
from cardbox_cli.store.cards import CardStore
from cardbox_cli.store.connection.project_store import (
    MAX_COUNTED,
    PAGE_SIZE,
    DateFilter,
    FurtherCount,
    ProjectStore,
    page_parameters,
    read_pages,
    require_single,
)
from cardbox_cli.store.execution.inbox_store import InboxStore
from cardbox_cli.store.execution.turn_store import LogStore, TurnStore

# Maximum number of turns in a family whose relatives are searched.
MAX_FAMILY = 1000
_TABLES = (
    "state.agent_state_head",
    "state.agent_inbox",
    "state.execution_edges",
    "state.agent_steps",
    "state.turn_waiting_tools",
)


class TurnFilter(DateFilter, frozen=True, kw_only=True):
    """Filter of a list of turns. None matches any value. `since` and `until` are times of the dispatch."""

    agent_id: str | None = None
    status: str | None = None
    trace_id: str | None = None


class TurnLeftovers(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of an ended turn whose end is not recorded: its last step and its newest deliverable."""

    agent_turn_id: str
    step_id: str | None
    step_status: str | None
    step_ended_at: datetime | None
    card_id: str | None
    card_metadata: Any
    card_content: Any
    card_created_at: datetime | None

    @property
    def finished(self) -> bool:
        """Return whether these rows show that the turn has ended."""
        return self.step_status in STEP_OVER or self.card_id is not None


class TurnRow(msgspec.Struct, frozen=True, kw_only=True):
    """A turn from its inbox row and its agent's head. If the inbox row is gone, it is from its edge.

    `status` is the status of the whole turn. An ended turn has its `record`, or else its `remains`. `left_at`
    is the time of the last change of the inbox row. `carried` is True if an open row or call allows the agent
    to continue the turn. `successors` are turns that repeat a turn which did not end in success.
    """

    agent_turn_id: str
    agent_id: str
    status: str
    turn_epoch: int
    channel_id: str
    trace_id: str | None
    recursion_depth: int | None
    parent_agent_id: str | None
    parent_agent_turn_id: str | None
    profile_box_id: str | None
    context_box_id: str | None
    output_box_id: str | None
    resume_deadline: datetime | None
    inbox_id: str | None = None
    row_status: str | None = None
    left_at: datetime | None = None
    carried: bool = False
    created_at: datetime | None
    record: TurnRecord | None = None
    remains: TurnLeftovers | None = None
    successors: list[Successor] = []


class WrittenCard(msgspec.Struct, frozen=True, kw_only=True):
    """A card that a turn wrote. `text` is the beginning of its text.

    `calls` are pairs of the id and the tool of each call. Either is None if the model named none.
    """

    card_id: str
    type: str
    tool_call_id: str | None
    tool_name: str | None
    status: str | None
    text: str
    calls: list[tuple[str | None, str | None]] | None
    created_at: datetime | None


class StoredTurn(msgspec.Struct, frozen=True, kw_only=True):
    """All rows of one turn, in one snapshot. Empty for tables that the database lacks.

    For an ended turn, it includes its visible deliverable, and the cards of its context box that require
    `result_fields`.
    """

    turn: TurnRow
    inbox: list[InboxRow]
    leases: list[Lease]
    steps: list[Step]
    waiting_tools: list[WaitingTool]
    edges: list[Edge]
    children: list[TurnRow]
    record: TurnRecord | None
    audit: list[AuditEntry]
    cards: list[WrittenCard]
    logs: list[LogTail]
    result_fields: list[Card] = []
    deliverable: Card | None = None


class TurnViews(ProjectStore):
    def newest(self, where: TurnFilter | None = None, *, limit: int | None = None) -> Iterator[TurnRow]:
        """Yield the turns that match `where`, newest first, reading page by page."""
        self._require(*_TABLES)
        where = self._resolve_dates(where or TurnFilter())
        if where.trace_id is not None:
            return islice(self._turns_of_trace(where), limit)
        size = PAGE_SIZE if limit is None else min(limit, PAGE_SIZE)
        every = read_pages(partial(self._page, where), page=size, limit=None)
        # The planner does not know that nearly all turns have ended, and would read every row to find the
        # others.
        return islice(_deduplicate(turn for turn in every if where.status in (None, turn.status)), limit)

    def further(self, where: TurnFilter, last: TurnRow) -> FurtherCount:
        where = self._resolve_dates(where)
        if where.trace_id is not None:
            place = _creation_order(last)
            count = sum(_creation_order(turn) < place for turn in self._turns_of_trace(where))
            return FurtherCount(count, True)
        if where.status != ENDED or last.created_at is None:
            counting = "count_further_turns" if where.status is None else "count_further_unfinished_turns"
            return self._further(counting, where, last, key="inbox_id")
        behind = page_parameters(where, last, MAX_COUNTED + 1, key="inbox_id")
        passed = self._value("count_further_turns", **behind)
        unfinished = self._value("count_further_unfinished_turns", **{**behind, "status": None})
        return FurtherCount.cap(passed - unfinished, passed)

    def get(self, turn_id: str) -> TurnRow:
        """Return the turn with this id. Raises NotFound."""
        turn = next(iter(self.get_many([turn_id])), None)
        return self._require_item(turn, "turn", turn_id, "`cbx turn list` shows the newest")

    def get_many(self, turn_ids: Collection[str]) -> list[TurnRow]:
        """Return those of these turns that exist, oldest first. Turns without inbox rows come last."""
        self._require(*_TABLES)
        turns = self._all(TurnRow, "turns_by_ids", turn_ids=list(turn_ids))
        absent = set(turn_ids).difference(turn.agent_turn_id for turn in turns)
        if absent:
            turns += self._all(TurnRow, "turns_by_edges", turn_ids=list(absent))
        return self._add_ends(turns)

    def list_by_trace(self, trace_id: str) -> list[TurnRow]:
        return self.get_many(unique(self._column("turns_of_trace", trace_id=trace_id)))

    def family(self, turn: TurnRow) -> list[TurnRow]:
        """Return the turns in the trace of `turn`, and its ancestors and descendants, oldest first.

        Looks for the parent in any row, because other programs begin a new trace for each child. Stops at
        `MAX_FAMILY` turns.
        """
        known: dict[str, TurnRow] = {}
        links: list[tuple[str, str]] = []
        pending = [turn.agent_turn_id]
        if turn.trace_id is not None:
            pending += self._column("turns_of_trace", trace_id=turn.trace_id)
        seen: set[str] = set()
        while pending and len(known) < MAX_FAMILY:
            seen.update(pending)
            turns = self.get_many(unique(pending))
            known |= {each.agent_turn_id: each for each in turns}
            links += [(each.agent_turn_id, each.parent_agent_turn_id or "") for each in turns]
            links += self._rows("turn_kin", turn_ids=unique(pending))
            pending = [each for link in links for each in link if each and each not in seen]
        parents = {child: parent for child, parent in reversed(links) if parent}
        return [
            msgspec.structs.replace(each, parent_agent_turn_id=parents.get(each.agent_turn_id))
            for each in sorted(known.values(), key=_creation_order)
        ]

    def read_all(self, turn_id: str) -> StoredTurn:
        """Return all rows of one turn, in one snapshot. Raises NotFound."""
        with self.database.snapshot():
            turn = self.get(turn_id)
            turns = TurnStore(self.database, self.project_id)
            inbox = InboxStore(self.database, self.project_id)
            edges, record = turns.edges(turn_id), turns.record(turn_id)
            fields, deliverable = self._result(turn) if turn.status == ENDED else ([], None)
            return StoredTurn(
                result_fields=fields,
                deliverable=deliverable,
                turn=turn,
                inbox=inbox.list_by_turn(turn_id),
                leases=inbox.leases_of_turn(turn.agent_id, turn_id) if self.database.keeps_turns else [],
                steps=turns.steps(turn_id),
                waiting_tools=turns.waiting_tools(turn_id),
                edges=edges,
                children=self.get_many(_children(turn_id, edges)),
                record=record,
                audit=AuditStore(self.database, self.project_id).list_by_turn(turn_id),
                logs=LogStore(self.database, self.project_id).tails(turn_id),
                cards=self._all(
                    WrittenCard,
                    "cards_of_turn",
                    turn_id=turn_id,
                    deliverable_card_id=record.deliverable_card_id if record else None,
                ),
            )

    def _result(self, turn: TurnRow) -> tuple[list[Card], Card | None]:
        """Return the cards that require fields in the result of an ended turn, and its deliverable."""
        boxes = BoxStore(self.database, self.project_id)
        fields = cards_of_type(boxes, turn.context_box_id, RESULT_FIELDS)
        card_id = turn.record.deliverable_card_id if turn.record else turn.remains and turn.remains.card_id
        card_ids = [card_id] if card_id else []
        cards = CardStore(self.database, self.project_id).get_many(card_ids).cards
        return fields, next(iter(cards), None)

    def resolve(self, wanted: str) -> str:
        """Return the full id for an id, or for a unique part of one. Raises NotFound, AmbiguousId."""
        self._require(*_TABLES)
        if whole := self._value("whole_turn_id", wanted=wanted):
            return str(whole)
        # Search the turns that cbx recorded first, because an index finds their ids.
        queries = ["find_kept_turn_ids"] if self.database.keeps_turns else []
        candidates = self._search_ids(wanted, *queries, "find_turn_ids", index="cbx.idx_turns_shown")
        return require_single("turn", wanted, candidates, self.project_id)

    def find_by_step(self, step_id: str) -> str:
        """Return the id of the turn of a step, by the step's full id. Raises NotFound."""
        self._require(*_TABLES)
        hint = "pass the turn with --turn; `cbx turn list` shows the newest"
        return str(self._require_item(self._value("turn_of_step", step_id=step_id), "step", step_id, hint))

    def _turns_of_trace(self, where: TurnFilter) -> Iterator[TurnRow]:
        """Return the turns of a trace that match `where`, newest first. A trace has few turns."""
        turns = sorted(self.list_by_trace(where.trace_id or ""), key=_creation_order, reverse=True)
        return (turn for turn in turns if _matches(where, turn))

    def _page(self, where: TurnFilter, after: TurnRow | None, size: int) -> list[TurnRow]:
        query = "list_turns" if where.status in (None, ENDED) else "list_unfinished_turns"
        return self._add_ends(
            self._all(TurnRow, query, **page_parameters(where, after, size, key="inbox_id"))
        )

    def _add_ends(self, turns: list[TurnRow]) -> list[TurnRow]:
        turn_ids = unique(turn.agent_turn_id for turn in turns)
        records = self._records(turn_ids) if self.database.keeps_turns else {}
        ended = unique(turn.agent_turn_id for turn in turns if turn.status == ENDED)
        unrecorded = [turn_id for turn_id in ended if _recorded_end(records.get(turn_id)) is None]
        leftovers = self._all(TurnLeftovers, "turn_remains", turn_ids=unrecorded) if unrecorded else []
        remains = {each.agent_turn_id: each for each in leftovers}
        added = [
            _add_end(turn, records.get(turn.agent_turn_id), remains.get(turn.agent_turn_id)) for turn in turns
        ]
        return self._add_successors(added)

    def _add_successors(self, turns: list[TurnRow]) -> list[TurnRow]:
        repeated = unique(
            turn.agent_turn_id
            for turn in turns
            if turn.row_status == ERROR
            or (turn.status == ENDED and (turn.record is None or turn.record.end_status != "success"))
        )
        successors = AuditStore(self.database, self.project_id).successors(repeated)
        return [
            msgspec.structs.replace(turn, successors=successors[turn.agent_turn_id])
            if turn.agent_turn_id in successors
            else turn
            for turn in turns
        ]

    def _records(self, turn_ids: Sequence[str]) -> dict[str, TurnRecord]:
        records = self._all(TurnRecord, "records_of_turns", turn_ids=turn_ids)
        return {record.agent_turn_id: record for record in records}


def _recorded_end(record: TurnRecord | None) -> TurnRecord | None:
    """Return the record if it has the end of the turn, otherwise None."""
    return None if record is None or record.end_status is None else record


def _add_end(turn: TurnRow, record: TurnRecord | None, leftovers: TurnLeftovers | None) -> TurnRow:
    finished = leftovers is not None and leftovers.finished
    status = turn_state(turn.status, turn.row_status, record=record, carried=turn.carried, finished=finished)
    ended = status == ENDED
    return msgspec.structs.replace(
        turn,
        status=status,
        record=_recorded_end(record) if ended else None,
        remains=leftovers if ended else None,
    )


def _deduplicate(turns: Iterable[TurnRow]) -> Iterator[TurnRow]:
    """Yield each turn once. Other programs enqueue a turn again under its id."""
    seen: set[str] = set()
    for turn in turns:
        if turn.agent_turn_id not in seen:
            yield turn
        if len(seen) == MAX_COUNTED:
            seen.clear()
        seen.add(turn.agent_turn_id)


def _creation_order(turn: TurnRow) -> tuple[datetime, str]:
    return turn.created_at or datetime.min.replace(tzinfo=UTC), turn.inbox_id or ""


def _matches(where: TurnFilter, turn: TurnRow) -> bool:
    """Return whether a turn matches the filter, except its trace. Times in the filter are instants."""
    created_at = _creation_order(turn)[0]
    return (
        where.agent_id in (None, turn.agent_id)
        and where.status in (None, turn.status)
        and (not isinstance(where.since, datetime) or created_at >= where.since)
        and (not isinstance(where.until, datetime) or created_at < where.until)
    )


def _children(turn_id: str, edges: Sequence[Edge]) -> list[str]:
    targets = (
        edge.target_agent_turn_id
        for edge in edges
        if edge.primitive == "enqueue" and edge.source_agent_turn_id == turn_id
    )
    return unique(child for child in targets if child and child != turn_id)
