"""Columns of turns, of what happened to them, of inbox rows and of the audit."""

import re
from typing import TYPE_CHECKING, Any

from cardbox_cli.cli.terminal.columns.shared import aged, short_or_nothing
from cardbox_cli.cli.terminal.tables.layout import NOTHING, Column
from cardbox_cli.cli.terminal.tables.shown import Columns
from cardbox_cli.model import exact_json
from cardbox_cli.model.execution.turns import AuditEntry, InboxRow
from cardbox_cli.model.ids import short_id
from cardbox_cli.model.pairing import PREVIEW
from cardbox_cli.text import flat, format_duration, format_milliseconds, format_time, one_line

if TYPE_CHECKING:
    from cardbox_cli.execution.turn_page import TurnSummary


def _known(number: int | None) -> str:
    return NOTHING if number is None else str(number)


def _took(turn: "TurnSummary") -> str:
    if turn.created_at is None or turn.ended_at is None:
        return NOTHING
    return format_duration(turn.ended_at - turn.created_at)


def _length(turn: "TurnSummary") -> Any:
    return None if turn.created_at is None or turn.ended_at is None else turn.ended_at - turn.created_at


TURN: Columns = (
    Column("ID", lambda turn: short_id(turn.agent_turn_id)),
    Column("FULL ID", lambda turn: turn.agent_turn_id, extra=True),
    Column("AGENT", lambda turn: turn.agent_id),
    Column("STATUS", lambda turn: turn.status),
    Column("END", lambda turn: turn.end_status or NOTHING),
    Column("EPOCH", lambda turn: str(turn.turn_epoch), right=True, spare=4),
    aged("created_at"),
    Column("TOOK", _took, right=True, spare=3, key=_length),
    Column("CREATED", lambda turn: format_time(turn.created_at) or NOTHING, extra=True),
    Column("ENDED", lambda turn: format_time(turn.ended_at) or NOTHING, extra=True),
    Column("DEPTH", lambda turn: _known(turn.recursion_depth), right=True, extra=True),
    Column("PARENT", lambda turn: short_or_nothing(turn.parent_agent_turn_id), spare=2),
    Column("CONTEXT", lambda turn: short_or_nothing(turn.context_box_id), extra=True),
    Column("OUTPUT", lambda turn: short_or_nothing(turn.output_box_id), extra=True),
    Column("DELIVERABLE", lambda turn: short_or_nothing(turn.deliverable_card_id), extra=True),
    Column("TRACE", lambda turn: turn.trace_id or NOTHING, extra=True),
)


EVENT: Columns = (
    Column("TIME", lambda event: format_milliseconds(event.at)),
    Column("EVENT", lambda event: event.event),
    Column("DETAIL", lambda event: flat(event.text)),
)


def _why(row: InboxRow) -> str:
    return one_line(row.trouble or NOTHING, PREVIEW)


INBOX: Columns = (
    Column("ID", lambda row: short_id(row.inbox_id)),
    Column("FULL ID", lambda row: row.inbox_id, extra=True),
    Column("AGENT", lambda row: row.agent_id),
    Column("TYPE", lambda row: row.message_type),
    Column("STATUS", lambda row: row.status),
    Column("TURN", lambda row: short_or_nothing(row.turn_id)),
    Column("EPOCH", lambda row: str(row.turn_epoch), right=True, extra=True),
    Column("TRIES", lambda row: str(row.retry_count), right=True, spare=3),
    aged("created_at"),
    Column("CREATED", lambda row: format_time(row.created_at) or NOTHING, extra=True),
    Column("DUE", lambda row: format_time(row.next_retry_at) or NOTHING, extra=True),
    Column("CORRELATION", lambda row: row.correlation_id or NOTHING, extra=True),
    Column("WHY", _why),
)


def _epochs(entry: AuditEntry) -> str:
    if entry.epoch_before is None:
        return NOTHING
    return f"{entry.epoch_before} → {'…' if entry.epoch_after is None else entry.epoch_after}"


# An actor as `cli/auditing` writes one, where the host has a name for the user.
_NAMED = re.compile(r"uid \d+ \((.+)\) on \S+ as role ")


def _who(entry: AuditEntry) -> str:
    """The name of the user that an actor is, where there is one; else the actor."""
    named = _NAMED.match(entry.actor)
    return flat(named[1] if named else entry.actor)


def _detail(entry: AuditEntry) -> str:
    return one_line(exact_json.encode(entry.detail).decode(), PREVIEW) if entry.detail else NOTHING


AUDIT: Columns = (
    Column("ID", lambda entry: short_id(entry.audit_id), extra=True),
    Column("FULL ID", lambda entry: entry.audit_id, extra=True),
    aged("created_at", spare=0),
    Column("CREATED", lambda entry: format_time(entry.created_at) or NOTHING, extra=True),
    Column("ACTION", lambda entry: flat(entry.action)),
    Column("AGENT", lambda entry: entry.agent_id or NOTHING),
    Column("TURN", lambda entry: short_or_nothing(entry.agent_turn_id)),
    Column("EPOCH", _epochs, extra=True),
    Column("WHO", _who),
    Column("ACTOR", lambda entry: flat(entry.actor), extra=True),
    Column("REASON", lambda entry: flat(entry.reason or NOTHING)),
    Column("DETAIL", _detail, overflow="cut", spare=1),
)
