"""The full view of a turn with its timeline, and the tree of a trace, for every surface."""

from collections.abc import Collection, Iterator, Mapping
from datetime import datetime
from itertools import islice

import msgspec

from cardbox_cli.execution.queue.messages import ANCHOR, is_report, is_turn, type_of
from cardbox_cli.execution.turn_summary import TurnEndRow, TurnResult, TurnSummary, convert, summary
from cardbox_cli.model import card_types
from cardbox_cli.model.content import is_fallback
from cardbox_cli.model.execution.result_fields import (
    MISSING,
    missing_fields,
    missing_fields_message,
    required_fields,
)
from cardbox_cli.model.execution.turns import (
    ENDED,
    PROCESSING,
    AuditEntry,
    Edge,
    EndStatus,
    InboxRow,
    LogTail,
    Step,
    WaitingTool,
)
from cardbox_cli.model.ids import short_id, unique
from cardbox_cli.store.views.batch_views import BatchMembership, BatchRow, BatchViews
from cardbox_cli.store.views.turn_views import MAX_FAMILY, StoredTurn, TurnFilter, TurnViews, WrittenCard

_MAX_LINE_LENGTH = 100


def read_turns(
    turns: TurnViews,
    where: TurnFilter,
    *,
    limit: int | None,
    end: str | None = None,
    with_replaced: bool = False,
) -> Iterator[TurnSummary]:
    """Yield the turns that match `where`, newest first; with `end`, those that ended so.

    The latter omit turns that another turn replaces, unless `with_replaced` is set.
    """
    if end is None:
        return map(summary, turns.newest(where, limit=limit))
    ended = map(summary, turns.newest(msgspec.structs.replace(where, status=ENDED)))
    return islice(
        (each for each in ended if each.end_status == end and (with_replaced or each.replaced_by is None)),
        limit,
    )


class Event(msgspec.Struct, frozen=True):
    """An event of a turn. `ref` is the id of the card, step, row or turn that records the event."""

    at: datetime
    event: str
    text: str
    ref: str | None = None


class TurnFinding(msgspec.Struct, frozen=True):
    """A problem in the result of a turn: the rule that found it, and a message."""

    rule: str
    message: str


class TurnView(TurnResult, frozen=True, kw_only=True):
    """The full view of a turn: the fields of `TurnSummary`, and lists in the order of their dates."""

    inbox: list[InboxRow]
    steps: list[Step]
    waiting_tools: list[WaitingTool]
    edges: list[Edge]
    children: list[TurnSummary]
    timeline: list[Event]
    logs: list[LogTail]
    findings: list[TurnFinding]
    replaced_by: str | None = None


class Branch(TurnEndRow, frozen=True, kw_only=True):
    """A turn of a trace and its child turns, which may belong to other traces.

    `batch_id` and `task_index` are set for a child of a batch.
    """

    batch_id: str | None
    task_index: int | None
    trace_id: str | None
    created_at: datetime | None
    ended_at: datetime | None
    children: list["Branch"]


class Trace(msgspec.Struct, frozen=True, kw_only=True):
    """The turns of a trace as trees, and the batches whose children are among them.

    `agent_turn_ids` are the ids of all turns, in the order of the database. `notes` report omitted turns.
    """

    trace_id: str | None
    turns: list[Branch]
    agent_turn_ids: list[str]
    batches: dict[str, BatchRow]
    is_cut: bool

    @property
    def notes(self) -> list[str]:
        return [f"{len(self.agent_turn_ids)} turns are shown; there may be more"] if self.is_cut else []


def read_trace(turns: TurnViews, given: str) -> Trace:
    """Read the trace of the turn that `given` names. Raises NotFound, AmbiguousId."""
    turn_row = turns.get(turns.resolve(given))
    family = turns.family(turn_row)
    views = BatchViews(turns.database, turns.project_id)
    ids = [each.agent_turn_id for each in family]
    members = views.members(ids)
    return Trace(
        trace_id=turn_row.trace_id,
        turns=build_trees([summary(each) for each in family], members),
        agent_turn_ids=ids,
        batches=dict(views.get_many(unique(each.batch_id for each in members.values() if each.batch_id))),
        is_cut=len(family) >= MAX_FAMILY,
    )


def view_turn(stored: StoredTurn) -> TurnView:
    turn_summary = summary(stored.turn)
    return convert(
        TurnView,
        turn_summary,
        inbox=stored.inbox,
        steps=stored.steps,
        waiting_tools=stored.waiting_tools,
        edges=stored.edges,
        children=[summary(child) for child in stored.children],
        timeline=timeline(stored, end_status=turn_summary.end_status, ended_at=turn_summary.ended_at),
        logs=stored.logs,
        findings=_findings(stored, turn_summary.end_status),
    )


def _findings(stored: StoredTurn, end_status: EndStatus | None) -> list[TurnFinding]:
    """Return the result fields that the deliverable of a successful or partial turn lacks."""
    if end_status not in ("success", "partial"):
        return []
    content = stored.deliverable.content if stored.deliverable else None
    missing = missing_fields(required_fields(stored.result_fields), None if is_fallback(content) else content)
    return [TurnFinding(MISSING, missing_fields_message(missing))] if missing else []


def build_trees(turns: list[TurnSummary], members: Mapping[str, BatchMembership] = {}) -> list[Branch]:
    """Return the turns of a trace as trees. A turn is a root if its parent is not among these turns.

    `members` maps children of batches to their batch and task.
    """
    known = {turn.agent_turn_id for turn in turns}
    children: dict[str | None, list[TurnSummary]] = {}
    for turn in turns:
        parent = turn.parent_agent_turn_id
        children.setdefault(parent if parent in known else None, []).append(turn)
    reached: set[str] = set()

    def branch(turn: TurnSummary) -> Branch:
        reached.add(turn.agent_turn_id)
        child_turns = [
            each for each in children.get(turn.agent_turn_id, ()) if each.agent_turn_id not in reached
        ]
        member = members.get(turn.agent_turn_id, BatchMembership(None, None))
        membership = {"batch_id": member.batch_id, "task_index": member.task_index}
        return convert(Branch, turn, **membership, children=[branch(child) for child in child_turns])

    roots = [branch(turn) for turn in children.get(None, ())]
    # Turns that name each other as parents have no root. `branch` extends `reached`.
    return [*roots, *(branch(turn) for turn in turns if turn.agent_turn_id not in reached)]


# --- the timeline: everything about a turn that has a date, in order, with one line of text each

# The order of events that have the same date.
_ORDER = (
    "enqueued",
    "claimed",
    "step",
    "card",
    "called",
    "answered",
    "asked",
    "row",
    "waiting",
    "reported",
    "received",
    "applied",
    "stop",
    "audit",
    "step-end",
    "deliverable",
    "ended",
    "answer",
)

_CLOSED_BY_THE_END = frozenset({"step-end", "audit", "deliverable", "ended"})

_Dated = tuple[datetime | None, str, str, str | None]


def timeline(stored: StoredTurn, *, end_status: str | None, ended_at: datetime | None) -> list[Event]:
    """Return the events of a turn, in order. Rows without a date are left out."""
    dated = [
        *_inbox_events(stored),
        *_step_events(stored.steps),
        *_card_events(stored.cards),
        *_waiting_events(stored),
        *_edge_events(stored),
        *(_audit_event(entry) for entry in stored.audit),
        *_end_events(stored, end_status, ended_at),
    ]
    events = [Event(at, event, text, ref) for at, event, text, ref in dated if at is not None]
    # The end has the date at which its transaction began. The rows that it closed have later dates.
    closing = [event.at for event in events if event.event in _CLOSED_BY_THE_END]

    def sort_key(event: Event) -> tuple[datetime, int]:
        at = max(closing) if event.event == "ended" else event.at
        return at, _ORDER.index(event.event)

    return sorted(events, key=sort_key)


def _inbox_events(stored: StoredTurn) -> Iterator[_Dated]:
    leases = {lease.inbox_id: lease for lease in stored.leases}
    first = next((row for row in stored.inbox if is_turn(row)), None)
    for row in stored.inbox:
        if row.message_type == ANCHOR.name:
            continue
        yield _row_event(row, stored.edges, again=row is not first)
        lease = leases.get(row.inbox_id)
        if lease is not None:
            yield lease.claimed_at, "claimed", f"claimed by {lease.owner}", row.inbox_id
        elif row.status == PROCESSING:
            yield row.processed_at, "claimed", "claimed by a worker", row.inbox_id


def _row_event(row: InboxRow, edges: list[Edge], *, again: bool) -> _Dated:
    kind = type_of(row)
    if kind is None or kind.claim is None:
        return row.created_at, "row", f"an inbox row of type {row.message_type!r} was written", row.inbox_id
    if kind.claim == "run":
        by = _requester(row, edges, again=again)
        text = f"given to agent {row.agent_id!r}{' again' if again else ''}" + (f" by {by!r}" if by else "")
        return row.created_at, "enqueued", text, row.inbox_id
    if kind.claim == "apply":
        text = f"{kind.brings} of call {row.correlation_id} was reported"
        return row.created_at, "reported", text, row.inbox_id
    reason = row.payload.get("reason") if isinstance(row.payload, dict) else None
    text = "asked to stop" + (f": {_one_line(str(reason))}" if reason else "")
    return row.created_at, "stop", text, row.inbox_id


def _requester(row: InboxRow, edges: list[Edge], *, again: bool) -> str | None:
    """Return the agent that requested a turn's row. The request's edge has the correlation id of the row."""
    asks = [edge for edge in edges if (edge.primitive, edge.target_agent_turn_id) == ("enqueue", row.turn_id)]
    own = [edge for edge in asks if edge.correlation_id == row.correlation_id]
    edge = next(iter(own or ([] if again else asks)), None)
    return None if edge is None else edge.source_agent_id


def _step_events(steps: list[Step]) -> Iterator[_Dated]:
    for number, step in enumerate(steps, 1):
        yield step.started_at, "step", f"step {number} began", step.step_id
        error = _suffix(_one_line(step.error or ""))
        yield step.ended_at, "step-end", f"step {number} {step.status}{error}", step.step_id


def _card_events(cards: list[WrittenCard]) -> Iterator[_Dated]:
    called = {card.tool_call_id for card in cards if card.type == "tool.call"}
    for card in cards:
        if card.type == card_types.MUST_END_WITH or not card.type.startswith("sys."):
            event, text = _describe_card(card, called)
            if text:
                yield card.created_at, event, text, card.card_id


def _describe_card(card: WrittenCard, called: Collection[str | None]) -> tuple[str, str]:
    """Return the event and text of a card. The text is empty if the card only makes calls with own cards."""
    text = _one_line(card.text)
    match card.type:
        case "tool.call":
            return "called", f"called tool {card.tool_name!r} (call {card.tool_call_id})"
        case "tool.result":
            outcome = card.status or "result"
            tool = f"tool {card.tool_name!r}" if card.tool_name else "a tool"
            return "answered", f"{tool} answered call {card.tool_call_id}: {outcome}" + _suffix(text)
        case "task.deliverable":
            return "deliverable", "wrote the deliverable" + _suffix(text)
        case card_types.MUST_END_WITH:
            return "card", "was reminded to finish the task" + _suffix(text)
        case "agent.thought":
            if not text and not card.calls:
                return "card", "wrote an empty message"
            calls = (tool for call_id, tool in card.calls or () if call_id not in called)
            tools = ", ".join(tool or "a tool without a name" for tool in calls)
            texts = (f"said: {text}" if text else "", f"asked for {tools}" if tools else "")
            return "card", "; ".join(filter(None, texts))
    return "card", f"wrote a card of type {card.type}" + _suffix(text)


def _waiting_events(stored: StoredTurn) -> Iterator[_Dated]:
    reported = {row.correlation_id for row in stored.inbox if is_report(row)}
    for tool in stored.waiting_tools:
        call = f"call {tool.tool_call_id} of tool {tool.tool_name!r}"
        yield tool.created_at, "waiting", f"waits for {call}", tool.step_id
        if tool.tool_call_id not in reported:
            yield tool.received_at, "received", f"the result of {call} came in", tool.tool_result_card_id
        yield tool.applied_at, "applied", f"the result of {call} was applied", tool.tool_result_card_id


def _edge_events(stored: StoredTurn) -> Iterator[_Dated]:
    turn_id = stored.turn.agent_turn_id
    for edge in stored.edges:
        if edge.source_agent_turn_id != turn_id or edge.target_agent_turn_id in (None, turn_id):
            continue
        target = f"turn {short_id(edge.target_agent_turn_id or '')} of agent {edge.target_agent_id!r}"
        if edge.primitive == "enqueue":
            yield edge.created_at, "asked", f"gave {target} its task", edge.target_agent_turn_id
        elif edge.primitive == "report":
            yield edge.created_at, "answer", f"reported to {target}", edge.target_agent_turn_id


def _audit_event(entry: AuditEntry) -> _Dated:
    reason = f": {_one_line(entry.reason)}" if entry.reason else ""
    changed = entry.epoch_after is not None and entry.epoch_after != entry.epoch_before
    epochs = f" (epoch {entry.epoch_before} → {entry.epoch_after})" if changed else ""
    return entry.created_at, "audit", f"{entry.action} by {entry.actor}{reason}{epochs}", entry.audit_id


def _end_events(stored: StoredTurn, end_status: str | None, ended_at: datetime | None) -> Iterator[_Dated]:
    if end_status is not None:
        error = _one_line((stored.record.error if stored.record else None) or "")
        yield ended_at, "ended", f"ended: {end_status}{_suffix(error)}", None


def _suffix(text: str) -> str:
    return f": {text}" if text else ""


def _one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _MAX_LINE_LENGTH else line[: _MAX_LINE_LENGTH - 1] + "…"
