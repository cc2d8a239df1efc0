"""The timeline of a turn: everything that has a date, in order, with one line of text each. Does no I/O."""

from collections.abc import Collection, Iterator
from datetime import datetime

import msgspec

from cardbox_cli.execution.queue.messages import ANCHOR, is_report, is_turn, type_of
from cardbox_cli.model import card_types
from cardbox_cli.model.execution.turns import PROCESSING, AuditEntry, Edge, InboxRow, Step
from cardbox_cli.model.ids import short_id
from cardbox_cli.store.views.turn_views import StoredTurn, WrittenCard

_MAX_LINE_LENGTH = 100


class Event(msgspec.Struct, frozen=True):
    """An event of a turn. `ref` is the id of the card, step, row or turn that shows it."""

    at: datetime
    event: str
    text: str
    ref: str | None = None


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
    # The end has the date at which its transaction began; the rows that it closed have a later one.
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
    """Return the agent that requested a turn's row; the edge of the request has the row's correlation id."""
    asks = [edge for edge in edges if (edge.primitive, edge.target_agent_turn_id) == ("enqueue", row.turn_id)]
    own = [edge for edge in asks if edge.correlation_id == row.correlation_id]
    edge = next(iter(own or ([] if again else asks)), None)
    return None if edge is None else edge.source_agent_id


def _step_events(steps: list[Step]) -> Iterator[_Dated]:
    for number, step in enumerate(steps, 1):
        yield step.started_at, "step", f"step {number} began", step.step_id
        error = f": {_one_line(step.error)}" if step.error else ""
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
            return "answered", f"{tool} answered call {card.tool_call_id}: {outcome}" + _colon_text(text)
        case "task.deliverable":
            return "deliverable", "wrote the deliverable" + _colon_text(text)
        case card_types.MUST_END_WITH:
            return "card", "was reminded to finish the task" + _colon_text(text)
        case "agent.thought":
            if not text and not card.calls:
                return "card", "wrote an empty message"
            tools = [tool for call_id, tool in card.calls or () if call_id not in called]
            asked = [tool or "a tool without a name" for tool in tools]
            texts = [f"said: {text}"] if text else []
            texts += [f"asked for {', '.join(asked)}"] if asked else []
            return "card", "; ".join(texts)
    return "card", f"wrote a card of type {card.type}" + _colon_text(text)


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
        error = stored.record.error if stored.record else None
        text = f"ended: {end_status}" + (f": {_one_line(error)}" if error else "")
        yield ended_at, "ended", text, None


def _colon_text(text: str) -> str:
    return f": {text}" if text else ""


def _one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _MAX_LINE_LENGTH else line[: _MAX_LINE_LENGTH - 1] + "…"
