"""What the columns of tables say, for each kind of item, and which of them a person wants.

The one home of the columns of lists: what is shown unasked, and what by `--columns`. How a table is laid out
is for `tables.py` to decide.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from cardbox_cli.cli.escaping import one_line
from cardbox_cli.cli.session import session
from cardbox_cli.cli.terminal.describe import (
    PREVIEW,
    age,
    answers,
    full_text,
    preview,
    size,
    time,
    to_millisecond,
    token_count,
)
from cardbox_cli.cli.terminal.tables import NOTHING, Column
from cardbox_cli.errors import UsageError
from cardbox_cli.model.boxes import Box, Reference, Slot
from cardbox_cli.model.cards import Card
from cardbox_cli.model.durations import duration
from cardbox_cli.model.execution.turns import InboxRow
from cardbox_cli.model.identity import RosterEntry, Tool
from cardbox_cli.model.ids import short_id
from cardbox_cli.model.tokens import ESTIMATE, Tokenizer, card_tokens

if TYPE_CHECKING:
    from cardbox_cli.execution.views.turn_page import TurnSummary
    from cardbox_cli.store.profiles import ProfileEntry

Columns = Sequence[Column]


class Place(NamedTuple):
    """A place of a box, and the rule that brought its card."""

    slot: Slot
    rule: str


def chosen(columns: Columns, given: str | None) -> Columns:
    """The columns that `--columns` names, in any case; without it all but extras. Raises UsageError."""
    if given is None:
        return [column for column in columns if not column.extra]
    if not session().format.has_columns:
        raise UsageError(
            f"--columns is for tables, not for -o {session().output}",
            hint="pick keys out of -o json with jq, or print ids alone with -o id",
        )
    return [_named(columns, name) for name in given.split(",")]


def _named(columns: Columns, given: str) -> Column:
    known = {_plain(column.name): column for column in columns}
    if _plain(given) not in known:
        raise UsageError(
            f"--columns: there is no column {given.strip()!r}",
            hint=f"there are {', '.join(name.replace(' ', '-') for name in known)}",
        )
    return known[_plain(given)]


def picked(columns: Columns, *names: str) -> Columns:
    """The columns of these names."""
    return [_named(columns, name) for name in names]


def replaced(columns: Columns, **texts: Callable[[Any], str]) -> Columns:
    """These columns, some with another text. They are called with `_` for a space."""
    return [column._replace(text=texts.get(column.name.replace(" ", "_"), column.text)) for column in columns]


def _plain(name: str) -> str:
    return name.strip().lower().replace("-", " ").replace("_", " ")


# --- cards


def _tokens(tokenizer: Tokenizer) -> Callable[[Card], str]:
    return lambda card: token_count(card_tokens(card, tokenizer), exact=tokenizer.exact)


def _metadata(key: str) -> Callable[[Card], str]:
    return lambda card: str(card.metadata.get(key) or NOTHING)


CARD: Columns = (
    Column("ID", lambda card: short_id(card.card_id)),
    Column("FULL ID", lambda card: card.card_id, extra=True),
    Column("TYPE", lambda card: card.type),
    Column("ROLE", lambda card: card.role or NOTHING),
    Column("AGE", lambda card: age(card.created_at), right=True),
    Column("CREATED", lambda card: time(card.created_at) or NOTHING, extra=True),
    Column("AUTHOR", lambda card: card.author_id or NOTHING, extra=True),
    Column("TURN", _metadata("agent_turn_id"), extra=True),
    Column("STEP", _metadata("step_id"), extra=True),
    Column("TRACE", _metadata("trace_id"), extra=True),
    Column("CALL", lambda card: answers(card) or NOTHING, extra=True),
    Column("SIZE", lambda card: size(full_text(card)), right=True),
    Column("TOKENS", _tokens(ESTIMATE), right=True, extra=True),
    Column("PREVIEW", preview),
)


# --- the places of a box


def _of_card(text: Callable[[Card], str]) -> Callable[[Place], str]:
    return lambda place: NOTHING if place.slot.card is None else text(place.slot.card)


def _place_preview(place: Place) -> str:
    card, state = place.slot.card, place.slot.state
    if card is None:
        return "(dangling: no such card)"
    return preview(card) if state == "present" else f"({state}) {preview(card)}"


def places(tokenizer: Tokenizer = ESTIMATE, *, with_rule: bool = False) -> Columns:
    """The columns of places, their tokens counted by `tokenizer`; the rule is shown unasked or not."""
    *of_cards, _ = (column._replace(text=_of_card(column.text)) for column in CARD)
    whole = replaced(
        of_cards,
        ID=lambda place: short_id(place.slot.card_id),
        FULL_ID=lambda place: place.slot.card_id,
        TOKENS=_of_card(_tokens(tokenizer)),
    )
    return (
        Column("#", lambda place: str(place.slot.position), right=True),
        *(column._replace(extra=column.extra and column.name != "TOKENS") for column in whole),
        Column("RULE", lambda place: place.rule, extra=not with_rule),
        Column("PREVIEW", _place_preview),
    )


# --- boxes, the places that a card has in them, and profiles


def _parents(box: Box) -> str:
    return ", ".join(map(short_id, box.parent_ids)) or NOTHING


BOX: Columns = (
    Column("ID", lambda box: short_id(box.box_id)),
    Column("FULL ID", lambda box: box.box_id, extra=True),
    Column("CARDS", lambda box: str(len(box.card_ids)), right=True),
    Column("AGE", lambda box: age(box.updated_at), right=True),
    Column("UPDATED", lambda box: time(box.updated_at) or NOTHING, extra=True),
    Column("PARENTS", _parents),
    Column("TITLE", lambda box: box.title or ""),
)


def _turns(found: Reference) -> str:
    return ", ".join(f"{turn.use} of {short_id(turn.agent_turn_id)}" for turn in found.turns) or NOTHING


REFERENCE: Columns = (
    Column("ID", lambda found: short_id(found.box_id)),
    Column("FULL ID", lambda found: found.box_id, extra=True),
    Column("CARDS", lambda found: str(found.cards), right=True),
    Column("AGE", lambda found: age(found.updated_at), right=True),
    Column("UPDATED", lambda found: time(found.updated_at) or NOTHING, extra=True),
    Column("POSITIONS", lambda found: ", ".join(map(str, found.positions))),
    Column("TURNS", _turns),
    Column("TITLE", lambda found: found.title or ""),
)


def _tags(entry: "ProfileEntry | RosterEntry") -> str:
    return ", ".join(map(str, entry.tags)) or NOTHING


PROFILE: Columns = (
    Column("NAME", lambda entry: entry.name),
    Column("BOX", lambda entry: short_id(entry.profile_box_id)),
    Column("FULL ID", lambda entry: entry.profile_box_id, extra=True),
    Column("WORKER TARGET", lambda entry: entry.worker_target),
    Column("TAGS", _tags),
    Column("AGE", lambda entry: age(entry.updated_at), right=True),
    Column("UPDATED", lambda entry: time(entry.updated_at) or NOTHING, extra=True),
)


# --- turns and inbox rows


def short_or_nothing(full_id: str | None) -> str:
    """An id in short, where there is one."""
    return short_id(full_id) if full_id else NOTHING


def _known(number: int | None) -> str:
    return NOTHING if number is None else str(number)


def _took(turn: "TurnSummary") -> str:
    if turn.created_at is None or turn.ended_at is None:
        return NOTHING
    return duration(turn.ended_at - turn.created_at)


TURN: Columns = (
    Column("ID", lambda turn: short_id(turn.agent_turn_id)),
    Column("FULL ID", lambda turn: turn.agent_turn_id, extra=True),
    Column("AGENT", lambda turn: turn.agent_id),
    Column("STATUS", lambda turn: turn.status),
    Column("END", lambda turn: turn.end_status or NOTHING),
    Column("EPOCH", lambda turn: str(turn.turn_epoch), right=True),
    Column("AGE", lambda turn: age(turn.created_at), right=True),
    Column("TOOK", _took, right=True),
    Column("CREATED", lambda turn: time(turn.created_at) or NOTHING, extra=True),
    Column("ENDED", lambda turn: time(turn.ended_at) or NOTHING, extra=True),
    Column("DEPTH", lambda turn: _known(turn.recursion_depth), right=True, extra=True),
    Column("PARENT", lambda turn: short_or_nothing(turn.parent_agent_turn_id)),
    Column("CONTEXT", lambda turn: short_or_nothing(turn.context_box_id), extra=True),
    Column("OUTPUT", lambda turn: short_or_nothing(turn.output_box_id), extra=True),
    Column("DELIVERABLE", lambda turn: short_or_nothing(turn.deliverable_card_id), extra=True),
    Column("TRACE", lambda turn: turn.trace_id or NOTHING, extra=True),
)


EVENT: Columns = (
    Column("TIME", lambda event: to_millisecond(event.at)),
    Column("EVENT", lambda event: event.event),
    Column("DETAIL", lambda event: event.text),
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
    Column("TRIES", lambda row: str(row.retry_count), right=True),
    Column("AGE", lambda row: age(row.created_at), right=True),
    Column("CREATED", lambda row: time(row.created_at) or NOTHING, extra=True),
    Column("DUE", lambda row: time(row.next_retry_at) or NOTHING, extra=True),
    Column("CORRELATION", lambda row: row.correlation_id or NOTHING, extra=True),
    Column("WHY", _why),
)


# --- projects, agents and tools

PROJECT: Columns = (
    Column("PROJECT", lambda project: project.project_id),
    Column("STATUS", lambda project: project.status),
    Column("OWNER", lambda project: project.owner_id),
    Column("AGE", lambda project: age(project.created_at), right=True),
    Column("CREATED", lambda project: time(project.created_at) or NOTHING, extra=True),
    Column("UPDATED", lambda project: time(project.updated_at) or NOTHING, extra=True),
    Column("TITLE", lambda project: project.title),
)


def _of_head(name: str) -> Callable[[RosterEntry], str]:
    def text(entry: RosterEntry) -> str:
        value = None if entry.head is None else getattr(entry.head, name)
        return NOTHING if value is None else str(value)

    return text


AGENT: Columns = (
    Column("AGENT", lambda entry: entry.agent_id),
    Column("STATUS", _of_head("status")),
    Column("TURN", _of_head("active_agent_turn_id"), extra=True),
    Column("EPOCH", _of_head("turn_epoch"), right=True, extra=True),
    Column("PROFILE", lambda entry: entry.profile_name or short_id(entry.profile_box_id)),
    Column("PROFILE BOX", lambda entry: short_id(entry.profile_box_id), extra=True),
    Column("WORKER TARGET", lambda entry: entry.worker_target),
    Column("TAGS", _tags),
    Column("OWNER", lambda entry: entry.owner_agent_id or NOTHING, extra=True),
    Column("ROSTER", lambda entry: entry.status, extra=True),
    Column("AGE", lambda entry: age(entry.created_at), right=True),
    Column("CREATED", lambda entry: time(entry.created_at) or NOTHING, extra=True),
    Column("DISPLAY NAME", lambda entry: entry.display_name or NOTHING, extra=True),
)


def _timeout(tool: Tool) -> str:
    return NOTHING if tool.timeout_seconds is None else f"{tool.timeout_seconds:g}s"


TOOL: Columns = (
    Column("NAME", lambda tool: tool.tool_name),
    Column("COMMAND", lambda tool: tool.command or NOTHING),
    Column("TIMEOUT", _timeout),
    Column("AFTER", lambda tool: tool.after_execution or NOTHING),
    Column("SUBJECT", lambda tool: tool.target_subject or NOTHING, extra=True),
    Column("DESCRIPTION", lambda tool: tool.description or ""),
)
