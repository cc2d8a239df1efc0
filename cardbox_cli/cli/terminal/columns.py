"""What the columns of tables say, for each kind of item, and which of them a person wants.

The one home of columns: default tables and `--columns` take theirs from here. How a table looks is for
`terminal/output.py` to decide.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from cardbox_cli.cli.session import session
from cardbox_cli.cli.terminal.describe import (
    PREVIEW,
    age,
    answers,
    preview,
    size,
    span,
    spoken_by,
    time,
    token_count,
)
from cardbox_cli.cli.terminal.escaping import one_line
from cardbox_cli.errors import UsageError
from cardbox_cli.model.boxes import Box, Reference, Slot
from cardbox_cli.model.cards import Card
from cardbox_cli.model.ids import short_id
from cardbox_cli.model.tokens import ESTIMATE, Tokenizer, card_tokens

if TYPE_CHECKING:
    from cardbox_cli.execution.views.turn_page import TurnSummary
    from cardbox_cli.model.execution.turns import InboxRow
    from cardbox_cli.model.identity import RosterEntry, Tool
    from cardbox_cli.store.profiles import ProfileEntry

Columns = Mapping[str, Callable[[Any], str]]

NOTHING = "-"


class Place(NamedTuple):
    """A place of a box, and the rule that brought its card."""

    slot: Slot
    rule: str


def chosen(columns: Iterable[str], default: Sequence[str], typed: str | None) -> list[str]:
    """The columns that `--columns` names, in any case; `default` without it. Raises UsageError."""
    if typed is None:
        return list(default)
    if session().output != "table":
        raise UsageError(
            f"--columns is for tables, not for -o {session().output}",
            hint="pick keys out of -o json with jq, or print ids alone with -o id",
        )
    known = {_plain(name): name for name in columns}
    names = []
    for name in typed.split(","):
        if _plain(name) not in known:
            raise UsageError(
                f"--columns: there is no column {name.strip()!r}",
                hint=f"there are {', '.join(each.replace(' ', '-') for each in known)}",
            )
        names.append(known[_plain(name)])
    return names


def row(columns: Columns, names: Sequence[str]) -> Callable[[Any], list[str]]:
    """What makes the row of an item: its cells under `names`."""
    texts = [columns[name] for name in names]
    return lambda item: [text(item) for text in texts]


def _plain(name: str) -> str:
    return name.strip().lower().replace("-", " ").replace("_", " ")


# --- cards


def _tokens(tokenizer: Tokenizer) -> Callable[[Card], str]:
    return lambda card: token_count(card_tokens(card, tokenizer), exact=tokenizer.exact)


def _metadata(key: str) -> Callable[[Card], str]:
    return lambda card: str(card.metadata.get(key) or NOTHING)


CARD: Columns = {
    "ID": lambda card: short_id(card.card_id),
    "FULL ID": lambda card: card.card_id,
    "TYPE": lambda card: card.type,
    "ROLE": lambda card: card.role or NOTHING,
    "AGE": lambda card: age(card.created_at),
    "CREATED": lambda card: time(card.created_at) or NOTHING,
    "AUTHOR": lambda card: card.author_id or NOTHING,
    "TURN": _metadata("agent_turn_id"),
    "STEP": _metadata("step_id"),
    "TRACE": _metadata("trace_id"),
    "CALL": lambda card: answers(card) or NOTHING,
    "SIZE": lambda card: size(spoken_by(card)),
    "TOKENS": _tokens(ESTIMATE),
    "PREVIEW": preview,
}
CARD_DEFAULT = ("ID", "TYPE", "ROLE", "AGE", "SIZE", "PREVIEW")


# --- the places of a box


def _of_card(text: Callable[[Card], str]) -> Callable[[Place], str]:
    return lambda place: NOTHING if place.slot.card is None else text(place.slot.card)


def _place_preview(place: Place) -> str:
    card, state = place.slot.card, place.slot.state
    if card is None:
        return "(dangling: no such card)"
    return preview(card) if state == "present" else f"({state}) {preview(card)}"


PLACE: Columns = {
    "#": lambda place: str(place.slot.position),
    **{name: _of_card(text) for name, text in CARD.items()},
    "ID": lambda place: short_id(place.slot.card_id),
    "FULL ID": lambda place: place.slot.card_id,
    "PREVIEW": _place_preview,
    "RULE": lambda place: place.rule,
}


def places(tokenizer: Tokenizer) -> Columns:
    """The columns of places, their tokens counted by `tokenizer`."""
    return {**PLACE, "TOKENS": _of_card(_tokens(tokenizer))}


PLACE_DEFAULT = ("#", "ID", "TYPE", "ROLE", "AGE", "SIZE", "TOKENS", "PREVIEW")
PLACE_WITH_RULE = (*PLACE_DEFAULT[:-1], "RULE", "PREVIEW")


# --- boxes, the places that a card has in them, and profiles


def _parents(box: Box) -> str:
    return ", ".join(map(short_id, box.parent_ids)) or NOTHING


BOX: Columns = {
    "ID": lambda box: short_id(box.box_id),
    "FULL ID": lambda box: box.box_id,
    "CARDS": lambda box: str(len(box.card_ids)),
    "AGE": lambda box: age(box.updated_at),
    "UPDATED": lambda box: time(box.updated_at) or NOTHING,
    "PARENTS": _parents,
    "TITLE": lambda box: box.title or "",
}
BOX_DEFAULT = ("ID", "CARDS", "AGE", "PARENTS", "TITLE")


def _turns(found: Reference) -> str:
    return ", ".join(f"{turn.use} of {short_id(turn.agent_turn_id)}" for turn in found.turns) or NOTHING


REFERENCE: Columns = {
    "ID": lambda found: short_id(found.box_id),
    "FULL ID": lambda found: found.box_id,
    "CARDS": lambda found: str(found.cards),
    "AGE": lambda found: age(found.updated_at),
    "UPDATED": lambda found: time(found.updated_at) or NOTHING,
    "POSITIONS": lambda found: ", ".join(map(str, found.positions)),
    "TURNS": _turns,
    "TITLE": lambda found: found.title or "",
}
REFERENCE_DEFAULT = ("ID", "CARDS", "AGE", "POSITIONS", "TURNS", "TITLE")


def _tags(entry: "ProfileEntry | RosterEntry") -> str:
    return ", ".join(map(str, entry.tags)) or NOTHING


PROFILE: Columns = {
    "NAME": lambda entry: entry.name,
    "BOX": lambda entry: short_id(entry.profile_box_id),
    "FULL ID": lambda entry: entry.profile_box_id,
    "WORKER TARGET": lambda entry: entry.worker_target,
    "TAGS": _tags,
    "AGE": lambda entry: age(entry.updated_at),
    "UPDATED": lambda entry: time(entry.updated_at) or NOTHING,
}
PROFILE_DEFAULT = ("NAME", "BOX", "WORKER TARGET", "TAGS", "AGE")


# --- turns and inbox rows


def _short(full_id: str | None) -> str:
    return short_id(full_id) if full_id else NOTHING


def _took(turn: "TurnSummary") -> str:
    if turn.created_at is None or turn.ended_at is None:
        return NOTHING
    return span(turn.ended_at - turn.created_at)


TURN: Columns = {
    "ID": lambda turn: short_id(turn.agent_turn_id),
    "FULL ID": lambda turn: turn.agent_turn_id,
    "AGENT": lambda turn: turn.agent_id,
    "STATUS": lambda turn: turn.status,
    "END": lambda turn: turn.end_status or NOTHING,
    "EPOCH": lambda turn: str(turn.turn_epoch),
    "AGE": lambda turn: age(turn.created_at),
    "TOOK": _took,
    "CREATED": lambda turn: time(turn.created_at) or NOTHING,
    "ENDED": lambda turn: time(turn.ended_at) or NOTHING,
    "DEPTH": lambda turn: NOTHING if turn.recursion_depth is None else str(turn.recursion_depth),
    "PARENT": lambda turn: _short(turn.parent_agent_turn_id),
    "CONTEXT": lambda turn: _short(turn.context_box_id),
    "OUTPUT": lambda turn: _short(turn.output_box_id),
    "DELIVERABLE": lambda turn: _short(turn.deliverable_card_id),
    "TRACE": lambda turn: turn.trace_id or NOTHING,
}
TURN_DEFAULT = ("ID", "AGENT", "STATUS", "END", "EPOCH", "AGE", "TOOK", "PARENT")


def _why(row: "InboxRow") -> str:
    return one_line(row.trouble or NOTHING, PREVIEW)


INBOX: Columns = {
    "ID": lambda row: short_id(row.inbox_id),
    "FULL ID": lambda row: row.inbox_id,
    "AGENT": lambda row: row.agent_id,
    "TYPE": lambda row: row.message_type,
    "STATUS": lambda row: row.status,
    "TURN": lambda row: _short(row.turn_id),
    "EPOCH": lambda row: str(row.turn_epoch),
    "TRIES": lambda row: str(row.retry_count),
    "AGE": lambda row: age(row.created_at),
    "CREATED": lambda row: time(row.created_at) or NOTHING,
    "DUE": lambda row: time(row.next_retry_at) or NOTHING,
    "CORRELATION": lambda row: row.correlation_id or NOTHING,
    "WHY": _why,
}
INBOX_DEFAULT = ("ID", "AGENT", "TYPE", "STATUS", "TURN", "TRIES", "AGE", "WHY")


# --- projects, agents and tools

PROJECT: Columns = {
    "PROJECT": lambda project: project.project_id,
    "STATUS": lambda project: project.status,
    "OWNER": lambda project: project.owner_id,
    "AGE": lambda project: age(project.created_at),
    "CREATED": lambda project: time(project.created_at) or NOTHING,
    "UPDATED": lambda project: time(project.updated_at) or NOTHING,
    "TITLE": lambda project: project.title,
}
PROJECT_DEFAULT = ("PROJECT", "STATUS", "OWNER", "AGE", "TITLE")


def _of_head(name: str) -> Callable[["RosterEntry"], str]:
    def text(entry: "RosterEntry") -> str:
        value = None if entry.head is None else getattr(entry.head, name)
        return NOTHING if value is None else str(value)

    return text


AGENT: Columns = {
    "AGENT": lambda entry: entry.agent_id,
    "STATUS": _of_head("status"),
    "TURN": _of_head("active_agent_turn_id"),
    "EPOCH": _of_head("turn_epoch"),
    "PROFILE": lambda entry: entry.profile_name or short_id(entry.profile_box_id),
    "PROFILE BOX": lambda entry: short_id(entry.profile_box_id),
    "WORKER TARGET": lambda entry: entry.worker_target,
    "TAGS": _tags,
    "OWNER": lambda entry: entry.owner_agent_id or NOTHING,
    "ROSTER": lambda entry: entry.status,
    "AGE": lambda entry: age(entry.created_at),
    "CREATED": lambda entry: time(entry.created_at) or NOTHING,
    "DISPLAY NAME": lambda entry: entry.display_name or NOTHING,
}
AGENT_DEFAULT = ("AGENT", "STATUS", "PROFILE", "WORKER TARGET", "TAGS", "AGE")


def _timeout(tool: "Tool") -> str:
    return NOTHING if tool.timeout_seconds is None else f"{tool.timeout_seconds:g}s"


TOOL: Columns = {
    "NAME": lambda tool: tool.tool_name,
    "COMMAND": lambda tool: tool.command or NOTHING,
    "TIMEOUT": _timeout,
    "AFTER": lambda tool: tool.after_execution or NOTHING,
    "SUBJECT": lambda tool: tool.target_subject or NOTHING,
    "DESCRIPTION": lambda tool: tool.description or "",
}
TOOL_DEFAULT = ("NAME", "COMMAND", "TIMEOUT", "AFTER", "DESCRIPTION")
