"""What really happened to the turns of a database: written down by its own triggers, replayed, and judged.

Owns what must hold at every moment of the life of agents and their turns. Trusts nothing that the program
says: only rows, in the order in which the database changed them.
"""

from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import msgspec

from cardbox_cli.model.execution import turns as t
from cardbox_cli.model.execution.turns import HEAD_MOVES, INBOX_MOVES
from cardbox_cli.store.connection.database import Database

HEADS, INBOX, LEASES, TURNS, BOXES = "agent_state_head", "agent_inbox", "leases", "turns", "card_boxes"
Row = dict[str, Any]


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """A change of one row: None before is an insert, None after a delete. `writer` is None for the test."""

    number: int
    transaction: int
    writer: str | None
    source: str
    before: Row | None
    after: Row | None

    @property
    def row(self) -> Row:
        row = self.after or self.before
        assert row is not None
        return row


def begin(database: Database) -> None:
    """Write down everything from now on. Agents made earlier are not known."""
    database.script(Path(__file__).with_suffix(".sql").read_text())


def read(database: Database) -> list[Event]:
    """All that happened until now, in order."""
    rows = database.connection.execute(
        "SELECT number, transaction::text::bigint, writer, source, before, after FROM history.events"
        " ORDER BY number"
    ).fetchall()
    return [Event(**dict(zip(Event.__struct_fields__, row, strict=True))) for row in rows]


def violations(events: Iterable[Event]) -> list[str]:
    """Everything in this history that may not be, in words, each with the number of its event."""
    found: list[str] = []
    ordered = sorted(_with_owners_of_boxes(events), key=lambda event: (event.row["agent_id"], event.number))
    for agent_id, of_agent in groupby(ordered, key=lambda event: event.row["agent_id"]):
        found.extend(f"{agent_id}: {each}" for each in _Replay().all(list(of_agent)))
    return found


def asked_and_ended(events: Iterable[Event]) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """The turns of each agent in the order in which they were asked for, and in which they ended."""
    asked: dict[str, list[str]] = {}
    ended: dict[str, list[str]] = {}
    for event in events:
        row = event.row
        if event.source == INBOX and event.before is None and row["message_type"] == "turn":
            asked.setdefault(row["agent_id"], []).append(row["agent_turn_id"])
        if event.source == TURNS and row["end_status"] is not None:
            ended.setdefault(row["agent_id"], []).append(row["agent_turn_id"])
    return asked, ended


def _with_owners_of_boxes(events: Iterable[Event]) -> Iterator[Event]:
    """The events, those of output boxes as their agents', those of other boxes left out."""
    owners: dict[str, str] = {}
    for event in events:
        if event.source == HEADS and event.row["output_box_id"] is not None:
            owners[event.row["output_box_id"]] = event.row["agent_id"]
        if event.source != BOXES:
            yield event
        elif (owner := owners.get(event.row["box_id"])) is not None:
            yield msgspec.structs.replace(event, after={**event.row, "agent_id": owner})


def _transactions(events: Iterable[Event]) -> Iterator[tuple[int, list[Event]]]:
    """The events by transaction. A new report joins the one that it falls amid: who reports holds no head."""
    group: list[Event] = []
    for event in events:
        if group and event.transaction != group[0].transaction and not _is_new_report(event):
            yield group[0].transaction, group
            group = []
        group.append(event)
    if group:
        yield group[0].transaction, group


def _is_new_report(event: Event) -> bool:
    return event.source == INBOX and event.before is None and event.row["message_type"] != "turn"


class _Replay:
    """One agent, event by event. What must hold between transactions is looked at after each of them."""

    def __init__(self) -> None:
        self.head: Row = {}
        self.inbox: dict[str, Row] = {}
        self.leases: dict[str, Row] = {}
        self.holders: dict[str, str | None] = {}
        self.turns: dict[str, Row] = {}

    def all(self, events: list[Event]) -> Iterator[str]:
        done: set[int] = set()
        for transaction, group in _transactions(events):
            for event in group:
                yield from (f"event {event.number}: {each}" for each in self._happen(event))
            if transaction in done:
                yield f"event {event.number}: two transactions changed the agent at the same time"
            done.add(transaction)
            yield from (f"after event {event.number}: {each}" for each in self._standing())

    # --- single changes

    def _happen(self, event: Event) -> Iterator[str]:
        before, after = event.before, event.after
        if event.source == HEADS:
            yield from _head_problems(before, after)
            if before and after and _is_workers_own(before, after):
                yield from self._foreign(event, f"took the head from {before['status']} to {after['status']}")
            self.head = after or {}
        elif event.source == INBOX:
            yield from _inbox_problems(before, after)
            _put(self.inbox, "inbox_id", before, after)
        elif event.source == LEASES:
            yield from _lease_problems(before, after)
            _put(self.leases, "inbox_id", before, after)
            if before is None:
                self.holders[event.row["inbox_id"]] = event.writer
        elif event.source == BOXES:
            yield from self._foreign(event, "wrote to the output box")
            if self.head.get("output_box_id") != event.row["box_id"]:
                yield f"the output box {event.row['box_id']} was written to, and no turn of it is active"
        else:
            yield from _turn_problems(before, after)
            _put(self.turns, "agent_turn_id", before, after)

    def _foreign(self, event: Event, what: str) -> Iterator[str]:
        """What only the holder of a lease of the active turn may do."""
        turn_id = self.head.get("active_agent_turn_id")
        holders = [self.holders[key] for key, row in self.leases.items() if row["agent_turn_id"] == turn_id]
        if event.writer not in holders:
            yield f"{event.writer} {what} of turn {turn_id}, whose leases {holders} have"

    # --- between transactions

    def _standing(self) -> Iterator[str]:
        status, turn_id = self.head.get("status"), self.head.get("active_agent_turn_id")
        carriers = [lease for lease in self.leases.values() if self._carries(lease)]
        if len(carriers) > 1:
            yield f"{len(carriers)} leases carry a turn at once: {carriers}"
        if status == t.RUNNING and not carriers:
            yield f"turn {turn_id} runs without a lease"
        claimed = {key for key, row in self.inbox.items() if row["status"] == t.PROCESSING}
        if claimed != self.leases.keys():
            yield f"leases of {sorted(self.leases)}, but claimed are {sorted(claimed)}"
        turns = [row for row in self.inbox.values() if row["message_type"] == "turn"]
        taken = [row["agent_turn_id"] for row in turns if row["status"] in (*t.DUE, t.PROCESSING)]
        if taken and taken != [turn_id]:
            yield f"the turns {taken} are due or claimed, and the agent is at {turn_id}"
        queued = [row["agent_turn_id"] for row in turns if row["status"] == t.QUEUED]
        if status == t.IDLE and queued:
            yield f"the agent is idle, and {queued} are queued"
        if turn_id is not None and self.turns.get(turn_id, {}).get("end_status") is not None:
            yield f"turn {turn_id} has ended and is active"

    def _carries(self, lease: Row) -> bool:
        """A turn's own row carries it whenever it is claimed, a report from when it has resumed its turn."""
        if self.inbox.get(lease["inbox_id"], {}).get("message_type") == "turn":
            return True
        at = lease["agent_turn_id"], lease["turn_epoch"]
        return self.head.get("status") in (t.DISPATCHED, t.RUNNING) and at == (
            self.head.get("active_agent_turn_id"),
            self.head.get("turn_epoch"),
        )


def _is_workers_own(before: Row, after: Row) -> bool:
    """Whether only who has a claim makes this move: all but a lease, and what takes a turn away."""
    moves = [HEAD_MOVES[name] for name in ("enter", "suspend", "resume", "end")]
    step = before["status"], after["status"], after["turn_epoch"] - before["turn_epoch"]
    return any(step == (source, move.target, move.epoch) for move in moves for source in move.sources)


def _put(rows: dict[str, Row], key: str, before: Row | None, after: Row | None) -> None:
    if before is not None:
        rows.pop(before[key], None)
    if after is not None:
        rows[after[key]] = after


def _head_problems(before: Row | None, after: Row | None) -> Iterator[str]:
    if after is None:
        yield "the head was deleted"
        return
    if before is None:
        if after["status"] != t.IDLE:
            yield f"the head began as {after}"
        return
    added = after["turn_epoch"] - before["turn_epoch"]
    if added < 0:
        yield f"the epoch shrank from {before['turn_epoch']} to {after['turn_epoch']}"
    step = before["status"], after["status"], added
    if not any(
        step == (source, move.target, move.epoch) for move in HEAD_MOVES.values() for source in move.sources
    ):
        yield f"no move of a head leads from {before} to {after}"
    is_same_turn = before["active_agent_turn_id"] == after["active_agent_turn_id"]
    if not is_same_turn and t.IDLE not in (before["status"], after["status"]):
        yield f"the head went from {before} to another turn, {after}"


def _inbox_problems(before: Row | None, after: Row | None) -> Iterator[str]:
    if after is None:
        yield f"an inbox row was deleted: {before}"
        return
    if before is None:
        # A turn that its agent is assigned to at once has an epoch from the beginning.
        is_queued = after["message_type"] == "turn" and after["turn_epoch"] == 0
        if after["status"] != (t.QUEUED if is_queued else t.PENDING):
            yield f"an inbox row began as {after}"
        return
    if after["turn_epoch"] < before["turn_epoch"]:
        yield f"the epoch of an inbox row shrank: {before}, {after}"
    step = before["status"], after["status"]
    moves = {(source, move.target) for move in INBOX_MOVES.values() for source in move.sources}
    if before["status"] != after["status"] and step not in moves:
        yield f"no move of an inbox row leads from {before} to {after}"


def _lease_problems(before: Row | None, after: Row | None) -> Iterator[str]:
    if before is None or after is None:
        return
    if before["owner"] != after["owner"] or before["claimed_at"] != after["claimed_at"]:
        yield f"a lease was taken over: {before}, {after}"
    if after["turn_epoch"] < before["turn_epoch"]:
        yield f"the epoch of a lease shrank: {before}, {after}"


def _turn_problems(before: Row | None, after: Row | None) -> Iterator[str]:
    if after is None:
        yield f"the record of a turn was deleted: {before}"
    elif before is None:
        if after["end_status"] is not None:
            yield f"a turn began with its end: {after}"
    elif before["end_status"] is not None:
        yield f"the end of a turn was written twice: {before}, {after}"
    elif after["end_status"] is None or after["deliverable_card_id"] is None:
        yield f"a turn ended without end or deliverable: {after}"
