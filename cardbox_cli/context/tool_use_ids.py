"""Anthropic's rule about the ids of tool calls: each once in a request, of letters, digits, `_` and `-`.

Renames calls and their results together, paired as `model/pairing.py` pairs cards. Pure; the messages that
need no change are given back as they are.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from cardbox_cli.context.blocks import Block, block_id, is_call, is_result, kind
from cardbox_cli.context.messages import Message


class Renamed(msgspec.Struct, frozen=True, kw_only=True):
    """A call that is sent under another id than its message has, and the card that makes it."""

    card_id: str | None
    old: str
    new: str


def with_unique_ids(messages: Sequence[Message]) -> tuple[list[Message], list[Renamed]]:
    """Messages of content blocks whose calls have ids that are unique, the repeated `x` as `x_2`, `x_3`, …"""
    if _are_fine(messages):
        return list(messages), []
    naming = _Naming(messages)
    return [naming.renamed(place, message) for place, message in enumerate(messages)], naming.changes


def _are_fine(messages: Sequence[Message]) -> bool:
    """Whether nothing has to be renamed, at a glance."""
    called: set[str] = set()
    for message in messages:
        for block in _blocks(message):
            name = kind(block)
            if name == "tool_use" and is_call(block):
                if block["id"] in called or not _is_spelled_well(block["id"]):
                    return False
                called.add(block["id"])
            elif name == "tool_result" and is_result(block) and not _is_spelled_well(block["tool_use_id"]):
                return False
    return True


def _is_spelled_well(call_id: str) -> bool:
    return block_id(call_id) == call_id


class _Naming:
    """One pass over the messages: which ids were given, and which calls wait for their results."""

    def __init__(self, messages: Sequence[Message]) -> None:
        self.changes: list[Renamed] = []
        self._given: set[str] = set()
        self._times: dict[str, int] = {}
        # No new id may be one that a later call has.
        self._spelled = {
            block_id(block["id"]) for message in messages for block in _blocks(message) if is_call(block)
        }
        # old id -> (place of the message, new id) of the calls without a result
        self._waiting: dict[str, list[tuple[int, str]]] = {}

    def renamed(self, place: int, message: Message) -> Message:
        """The message with the ids that its calls and results are given."""
        before = _blocks(message)
        after = [self._block(place, block, message.card_id) for block in before]
        if all(new is old for new, old in zip(after, before, strict=True)):
            return message
        return msgspec.structs.replace(message, body={**message.body, "content": after})

    def _block(self, place: int, block: Any, card_id: str | None) -> Any:
        if is_call(block):
            new = self._new_id(block["id"])
            self._waiting.setdefault(block["id"], []).append((place, new))
            if new != block["id"]:
                self.changes.append(Renamed(card_id=card_id, old=block["id"], new=new))
            return _with(block, "id", new)
        if is_result(block):
            return _with(block, "tool_use_id", self._answered(block["tool_use_id"]))
        return block

    def _new_id(self, old: str) -> str:
        new = spelled = block_id(old)
        while new in self._given or (new != spelled and new in self._spelled):
            self._times[spelled] = self._times.get(spelled, 1) + 1
            new = f"{spelled}_{self._times[spelled]}"
        self._given.add(new)
        return new

    def _answered(self, old: str) -> str:
        """The new id of the call that a result of this id answers: the nearest; in one message the first."""
        waiting = self._waiting.get(old)
        if not waiting:
            return block_id(old)
        nearest = waiting[-1][0]
        first = next(index for index, (place, _) in enumerate(waiting) if place == nearest)
        return waiting.pop(first)[1]


def _blocks(message: Message) -> list[Any]:
    content = message.body["content"]
    return content if isinstance(content, list) else []


def _with(block: Block, key: str, value: str) -> Block:
    return block if block[key] == value else {**block, key: value}
