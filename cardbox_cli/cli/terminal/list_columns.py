"""The columns of lists by type of item: the default columns, and the columns that `--columns` can add.

`table_layout.py` arranges the columns in a table.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from cardbox_cli.cli.terminal.table_layout import NOTHING, Column, Columns, text_or_nothing
from cardbox_cli.model import exact_json
from cardbox_cli.model.ids import short_id
from cardbox_cli.model.layers import CHECKPOINT
from cardbox_cli.model.pairing import PREVIEW, call_reference, full_text, preview
from cardbox_cli.text.escaping import excerpt, flatten
from cardbox_cli.text.quantities import format_size, format_tokens
from cardbox_cli.text.times import format_age, format_duration, format_milliseconds, format_time

if TYPE_CHECKING:
    from cardbox_cli.execution.turn_summary import TurnSummary
    from cardbox_cli.inspect.batches import BatchResult
    from cardbox_cli.model.boxes import Box, Reference, Slot
    from cardbox_cli.model.cards import Card
    from cardbox_cli.model.execution.turns import AuditEntry
    from cardbox_cli.model.identity import ApiToken, RosterEntry
    from cardbox_cli.model.tokens import Tokenizer
    from cardbox_cli.store.boxes import BoxStore
    from cardbox_cli.store.profiles import ProfileEntry


# --- columns of several types of items


def _ids(name: str, *, extra: bool = False) -> Columns:
    full_id = attrgetter(name)
    short = Column("ID", lambda item: short_id(full_id(item)), extra=extra)
    return short, Column("FULL ID", full_id, extra=True)


def _time(name: str, *, extra: bool = True, spare: int = 0) -> Column:
    title = name.removesuffix("_at").upper()
    return Column(title, lambda item: format_time(getattr(item, name)) or NOTHING, extra=extra, spare=spare)


def _times(name: str, *, spare: int = 2) -> Columns:
    return _age(name, spare=spare), _time(name)


def _age(name: str, *, spare: int = 2) -> Column:
    """Return the AGE column of the time attribute `name`. The youngest item is sorted first."""

    def elapsed(item: Any) -> float | None:
        moment = getattr(item, name)
        return None if moment is None else -moment.timestamp()

    def instant(item: Any) -> str | None:
        moment = getattr(item, name)
        return None if moment is None else exact_json.encode(moment).decode().strip('"')

    return Column(
        "AGE", lambda item: format_age(getattr(item, name)), right=True, spare=spare, key=elapsed, raw=instant
    )


def layer_label(layer: str) -> str:
    """Return the name of a layer in tables and pages. Only JSON and --layer use the id of the history."""
    return "history" if layer == CHECKPOINT else layer


def short_or_nothing(full_id: str | None) -> str:
    return short_id(full_id) if full_id else NOTHING


def box_title(box: Box, boxes: BoxStore) -> str | None:
    """Return a box's title, or "unknown" if the database does not store titles."""
    return box.title if boxes.database.keeps_box_info else "unknown"


def short_rule(rule: str) -> str:
    return _FROM_BOX.sub("", rule)


_FROM_BOX = re.compile(r" \(box [0-9a-f-]{36}\)$")


# --- turns, their events, inbox rows and the audit


def _length(turn: TurnSummary) -> timedelta | None:
    return None if turn.created_at is None or turn.ended_at is None else turn.ended_at - turn.created_at


def _took(turn: TurnSummary) -> str:
    return NOTHING if (length := _length(turn)) is None else format_duration(length)


REPLACED_BY = "REPLACED BY"

TURN_COLUMNS: Columns = (
    *_ids("agent_turn_id"),
    Column("AGENT", lambda turn: turn.agent_id),
    Column("STATUS", lambda turn: turn.status),
    Column("END", lambda turn: turn.end_status or NOTHING),
    Column("EPOCH", lambda turn: str(turn.turn_epoch), right=True, spare=4),
    _age("created_at"),
    Column("TOOK", _took, right=True, spare=3, key=_length),
    _time("created_at"),
    _time("ended_at"),
    Column("DEPTH", lambda turn: text_or_nothing(turn.recursion_depth), right=True, extra=True),
    Column("PARENT", lambda turn: short_or_nothing(turn.parent_agent_turn_id), spare=2),
    Column("CONTEXT", lambda turn: short_or_nothing(turn.context_box_id), extra=True),
    Column("OUTPUT", lambda turn: short_or_nothing(turn.output_box_id), extra=True),
    Column("DELIVERABLE", lambda turn: short_or_nothing(turn.deliverable_card_id), extra=True),
    Column("TRACE", lambda turn: turn.trace_id or NOTHING, extra=True),
    Column(REPLACED_BY, lambda turn: short_or_nothing(turn.replaced_by), extra=True),
)


EVENT_COLUMNS: Columns = (
    Column("TIME", lambda event: format_milliseconds(event.at)),
    Column("EVENT", lambda event: event.event),
    Column("DETAIL", lambda event: flatten(event.text)),
)


INBOX_COLUMNS: Columns = (
    *_ids("inbox_id"),
    Column("AGENT", lambda row: row.agent_id),
    Column("TYPE", lambda row: row.message_type),
    Column("STATUS", lambda row: row.status),
    Column("TURN", lambda row: short_or_nothing(row.turn_id)),
    Column("EPOCH", lambda row: str(row.turn_epoch), right=True, extra=True),
    Column("TRIES", lambda row: str(row.retry_count), right=True, spare=3),
    *_times("created_at"),
    Column("DUE", lambda row: format_time(row.next_retry_at) or NOTHING, extra=True),
    Column("CORRELATION", lambda row: row.correlation_id or NOTHING, extra=True),
    Column("WHY", lambda row: excerpt(row.problem or NOTHING, PREVIEW)),
)


def _epochs(entry: AuditEntry) -> str:
    if entry.epoch_before is None:
        return NOTHING
    return f"{entry.epoch_before} → {'…' if entry.epoch_after is None else entry.epoch_after}"


# An actor as `cli/actor.py` writes it if the user has a name.
_NAMED = re.compile(r"uid \d+ \((.+)\) on \S+ as role ")


def _who(entry: AuditEntry) -> str:
    match = _NAMED.match(entry.actor)
    return flatten(match[1] if match else entry.actor)


def _detail(entry: AuditEntry) -> str:
    return excerpt(exact_json.encode(entry.detail).decode(), PREVIEW) if entry.detail else NOTHING


AUDIT_COLUMNS: Columns = (
    *_ids("audit_id", extra=True),
    *_times("created_at", spare=0),
    Column("ACTION", lambda entry: flatten(entry.action)),
    Column("AGENT", lambda entry: entry.agent_id or NOTHING),
    Column("TURN", lambda entry: short_or_nothing(entry.agent_turn_id)),
    Column("EPOCH", _epochs, extra=True),
    Column("WHO", _who),
    Column("ACTOR", lambda entry: flatten(entry.actor), extra=True),
    Column("REASON", lambda entry: flatten(entry.reason or NOTHING)),
    Column("DETAIL", _detail, overflow="cut", spare=1),
)


# --- cards


class BoxPlace(NamedTuple):
    slot: Slot
    rule: str
    tool: str = NOTHING


def _tokens_column(tokenizer: Tokenizer | None = None, *, extra: bool) -> Column:
    """Return the TOKENS column of cards. Without a tokenizer, the numbers are estimates."""

    def count(card: Card) -> int:
        from cardbox_cli.model.tokens import ESTIMATING_TOKENIZER, card_tokens

        return card_tokens(card, tokenizer or ESTIMATING_TOKENIZER)

    def text(card: Card) -> str:
        return format_tokens(count(card), exact=tokenizer is not None and tokenizer.exact)

    return Column("TOKENS", text, right=True, extra=extra, spare=4, key=count, raw=count)


def _bytes(card: Card) -> int:
    return len(full_text(card).encode("utf-8", "surrogatepass"))


def _metadata(key: str) -> Callable[[Card], str]:
    return lambda card: str(card.metadata.get(key) or NOTHING)


CARD_COLUMNS: Columns = (
    *_ids("card_id"),
    Column("TYPE", lambda card: card.type),
    Column("ROLE", lambda card: card.role or NOTHING, spare=1),
    *_times("created_at"),
    Column("AUTHOR", lambda card: card.author_id or NOTHING, extra=True),
    Column("TURN", _metadata("agent_turn_id"), extra=True),
    Column("STEP", _metadata("step_id"), extra=True),
    Column("TRACE", _metadata("trace_id"), extra=True),
    Column("CALL", lambda card: call_reference(card) or NOTHING, extra=True),
    Column("SIZE", lambda card: format_size(full_text(card)), right=True, spare=3, key=_bytes, raw=_bytes),
    _tokens_column(extra=True),
    Column("PREVIEW", preview, overflow="cut", raw=full_text),
)


# --- the places of a box


def _place_column(column: Column) -> Column:

    def apply_to_card(value: Callable[[Any], Any] | None, absent: str | None = None) -> Any:
        return value and (lambda place: absent if place.slot.card is None else value(place.slot.card))

    return column._replace(
        text=apply_to_card(column.text, NOTHING),
        key=apply_to_card(column.key),
        raw=apply_to_card(column.raw),
    )


def _place_preview(place: BoxPlace) -> str:
    card, state = place.slot.card, place.slot.state
    if card is None:
        return "(dangling: no such card)"
    return preview(card) if state == "present" else f"({state}) {preview(card)}"


def _place_text(place: BoxPlace) -> str:
    card = place.slot.card
    return _place_preview(place) if card is None or place.slot.state != "present" else full_text(card)


def place_columns(tokenizer: Tokenizer | None = None, *, with_rule: bool = False) -> Columns:
    by_name = {column.name: _place_column(column) for column in CARD_COLUMNS}
    by_name["TOKENS"] = _place_column(_tokens_column(tokenizer, extra=False))
    places = list(by_name.values())
    at = list(by_name).index("ROLE") + 1
    return (
        Column("#", lambda place: str(place.slot.position), right=True),
        *_ids("slot.card_id"),
        *places[2:at],
        Column("TOOL", lambda place: flatten(place.tool), extra=True),
        *places[at:-1],
        Column("RULE", lambda place: place.rule, extra=not with_rule, spare=0 if with_rule else 1),
        Column("PREVIEW", _place_preview, overflow="cut", raw=_place_text),
    )


# --- boxes, and the references to cards


BOX_COLUMNS: Columns = (
    *_ids("box_id"),
    Column("CARDS", lambda box: str(len(box.card_ids)), right=True),
    *_times("updated_at"),
    Column("PARENTS", lambda box: ", ".join(map(short_id, box.parent_ids)) or NOTHING, spare=3),
    Column("KIND", lambda box: getattr(box, "kind", None) or NOTHING, extra=True),
    Column("TITLE", lambda box: flatten(box.title or "")),
)


def _turns(reference: Reference) -> str:
    return ", ".join(f"{turn.use} of {short_id(turn.agent_turn_id)}" for turn in reference.turns) or NOTHING


REFERENCE_COLUMNS: Columns = (
    *_ids("box_id"),
    Column("CARDS", lambda reference: str(reference.cards), right=True, spare=3),
    *_times("updated_at"),
    Column("POSITIONS", lambda reference: ", ".join(map(str, reference.positions)), spare=1),
    Column("TURNS", _turns),
    Column("TITLE", lambda reference: flatten(reference.title or "")),
)


# --- batches and the results of their tasks


BATCH_COLUMNS: Columns = (
    *_ids("batch_id"),
    Column("STATUS", lambda batch: batch.status),
    Column("ENDED", lambda batch: f"{batch.ended_count}/{batch.task_count}", right=True),
    *_times("created_at"),
    Column("DEADLINE", lambda batch: format_time(batch.deadline_at) or NOTHING, spare=2),
    Column("PARENT", lambda batch: short_or_nothing(batch.parent_turn_id), spare=1),
    Column("MANAGER", lambda batch: batch.manager, spare=3),
)


def _result_text(result: BatchResult) -> str:
    """Return the summary and the error of a child, each once: its deliverable may repeat its error."""
    if result.error is None:
        return excerpt(result.summary or NOTHING, PREVIEW)
    code, message = result.error["code"], result.error["message"]
    own = None if result.summary is None or message in result.summary else result.summary
    cause = f"{message}: {result.stderr}" if result.stderr and result.stderr not in message else message
    return excerpt(" ".join(filter(None, [own, f"({code})", cause])), PREVIEW)


BATCH_RESULT_COLUMNS: Columns = (
    Column("#", lambda result: str(result.task_index), right=True),
    Column("STATUS", lambda result: result.status),
    Column("TURN", lambda result: short_or_nothing(result.agent_turn_id)),
    Column("OUTPUT", lambda result: short_or_nothing(result.output_box_id), spare=2),
    Column("INPUT", lambda result: excerpt(result.input or NOTHING, 40), spare=1),
    Column("SUMMARY", _result_text, overflow="cut"),
)


# --- projects, profiles, agents, tools and tokens


def _tags(entry: ProfileEntry | RosterEntry) -> str:
    return ", ".join(map(str, entry.tags)) or NOTHING


PROFILE_COLUMNS: Columns = (
    Column("NAME", lambda entry: entry.name),
    Column("BOX", lambda entry: short_id(entry.profile_box_id)),
    Column("FULL ID", lambda entry: entry.profile_box_id, extra=True),
    Column("WORKER TARGET", lambda entry: entry.worker_target),
    Column("TAGS", _tags, spare=3),
    *_times("updated_at"),
)


PROJECT_COLUMNS: Columns = (
    Column("PROJECT", lambda project: project.project_id),
    Column("STATUS", lambda project: project.status),
    Column("OWNER", lambda project: project.owner_id, spare=3),
    *_times("created_at"),
    _time("updated_at"),
    Column("TITLE", lambda project: flatten(project.title)),
)


def _head_text(name: str) -> Callable[[RosterEntry], str]:
    return lambda entry: text_or_nothing(getattr(entry.head, name, None))


AGENT_COLUMNS: Columns = (
    Column("AGENT", lambda entry: entry.agent_id),
    Column("STATUS", _head_text("status")),
    Column("TURN", _head_text("active_agent_turn_id"), extra=True),
    Column("EPOCH", _head_text("turn_epoch"), right=True, extra=True),
    Column("PROFILE", lambda entry: entry.profile_name or short_id(entry.profile_box_id)),
    Column("PROFILE BOX", lambda entry: short_id(entry.profile_box_id), extra=True),
    Column("WORKER TARGET", lambda entry: entry.worker_target),
    Column("TAGS", _tags, spare=3),
    Column("OWNER", lambda entry: entry.owner_agent_id or NOTHING, extra=True),
    Column("ROSTER", lambda entry: entry.status, extra=True),
    *_times("created_at"),
    Column("DISPLAY NAME", lambda entry: flatten(entry.display_name or NOTHING), extra=True),
)


TOOL_COLUMNS: Columns = (
    Column("NAME", lambda tool: tool.tool_name),
    Column("COMMAND", lambda tool: flatten(tool.command or NOTHING)),
    Column(
        "TIMEOUT",
        lambda tool: NOTHING if tool.timeout_seconds is None else f"{tool.timeout_seconds:g}s",
        spare=1,
    ),
    Column("AFTER", lambda tool: tool.after_execution or NOTHING, spare=2),
    Column("SUBJECT", lambda tool: tool.target_subject or NOTHING, extra=True),
    Column("DESCRIPTION", lambda tool: flatten(tool.description or "")),
)


def _state(token: ApiToken) -> str:
    if token.revoked_at is not None:
        return "revoked"
    is_over = token.expires_at is not None and token.expires_at <= datetime.now(UTC)
    return "expired" if is_over else "in force"


TOKEN_COLUMNS: Columns = (
    Column("ID", lambda token: token.token_id),
    Column("STATE", _state),
    *_times("created_at"),
    _time("expires_at", extra=False, spare=2),
    Column("BY", lambda token: flatten(token.created_by), extra=True),
    Column("LABEL", lambda token: flatten(token.label)),
)
