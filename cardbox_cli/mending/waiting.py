"""What active turns make of a box that is to be mended: the calls that they wait for, and the way to go on.

Reads alone. Where the database has no turns, nobody waits.
"""

from collections.abc import Sequence

import msgspec

from cardbox_cli.model.boxes import Slot
from cardbox_cli.model.card_types import TOOL_RESULT
from cardbox_cli.model.execution.turns import DISPATCHED, SUSPENDED
from cardbox_cli.model.ids import as_box_id, unique
from cardbox_cli.model.pairing import call_ids
from cardbox_cli.store.boxes import BoxStore
from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.execution.head_store import HeadStore
from cardbox_cli.store.execution.turn_store import TurnStore
from cardbox_cli.store.in_use import BoxUseStore


class ActiveUser(msgspec.Struct, frozen=True):
    """A turn whose head points to a box: as what, at which epoch, and whether it can get another."""

    agent_turn_id: str
    use: str
    turn_epoch: int
    waits: bool


def active_users(database: Database, project_id: str, box_ids: Sequence[str]) -> list[ActiveUser]:
    """The turns that agents are at, and that read or write one of these boxes."""
    heads = HeadStore(database, project_id)
    found = []
    for use, turn_id, agent_id in BoxUseStore(database, project_id).active_turns(box_ids):
        head = heads.get(agent_id)
        if head is not None and head.active_agent_turn_id == turn_id:
            waits = head.status in (DISPATCHED, SUSPENDED)
            found.append(ActiveUser(turn_id, use, head.turn_epoch, waits))
    return found


def line_of(database: Database, project_id: str, box_id: str) -> list[str]:
    """The box and those that it came of, the nearest first, 20 at most: mending goes on from box to box."""
    boxes = BoxStore(database, project_id)
    found, level = list[str](), [box_id]
    while level and len(found) < _MOST:
        found += level
        parents = (each for box in boxes.get_many(level).boxes for each in map(as_box_id, box.parent_ids))
        level = unique(each for each in parents if each is not None and each not in found)
    return found[:_MOST]


_MOST = 20


def awaited_calls(database: Database, project_id: str, box_id: str, slots: Sequence[Slot]) -> frozenset[str]:
    """The calls of the box whose results are to come: those of the active turn that writes it."""
    writers = {
        user.agent_turn_id for user in active_users(database, project_id, [box_id]) if user.use == "output"
    }
    if not writers:
        return frozenset()
    turns = TurnStore(database, project_id)
    waiting = {tool.tool_call_id for turn in writers for tool in turns.waiting_tools(turn) if tool.is_open}
    made = {
        call_id
        for slot in slots
        if slot.card is not None and slot.card.metadata.get("agent_turn_id") in writers
        for call_id in call_ids(slot.card)
    }
    answered = {slot.card.tool_call_id for slot in slots if slot.card and slot.card.type == TOOL_RESULT}
    return frozenset(waiting | (made - answered))
