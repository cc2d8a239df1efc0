"""Anthropic's rule about the ids of tool calls: each once in a request, of letters, digits, `_` and `-`.

Renames calls and their results together, paired by the ids that they came with, as `model/pairing.py` pairs
cards: renaming never makes a pair, nor parts one. Pure; what needs no change is given back as it is.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import msgspec

from cardbox_cli.context.messages import Message
from cardbox_cli.context.parts import kind, text_at
from cardbox_cli.context.providers.anthropic.blocks import block_id, is_result
from cardbox_cli.context.providers.provider import RenamedCall


def allowed_ids(ids: Iterable[str]) -> dict[str, str]:
    """Another id for each of these that has other characters than Anthropic allows.

    All ids still differ then: where an id is taken, a number stands behind it.
    """
    every = {call_id: block_id(call_id) for call_id in ids}
    others = {call_id: allowed for call_id, allowed in every.items() if allowed != call_id}
    taken = every.keys() - others.keys()
    times: dict[str, int] = {}
    for call_id, allowed in others.items():
        new = allowed
        while new in taken:
            times[allowed] = times.get(allowed, 1) + 1
            new = f"{allowed}_{times[allowed]}"
        taken.add(new)
        others[call_id] = new
    return others


def ids_in(blocks: Iterable[Any]) -> Iterator[str]:
    """The ids of the calls of client's tools among blocks, and those that results answer."""
    for block in blocks:
        key = _key(block)
        if key is not None:
            yield block[key]


def with_id(block: Any, name: Callable[[str], str]) -> Any:
    """The block with what `name` makes of the id of the call that it is or answers, if it is such a block."""
    key = _key(block)
    if key is None or (new := name(block[key])) == block[key]:
        return block
    return {**block, key: new}


def _key(block: Any) -> str | None:
    """Where a block has the id of a call, if it does."""
    if _is_call(block):
        return "id"
    return "tool_use_id" if is_result(block) else None


def _is_call(block: Any) -> bool:
    """Whether it is a call with an id, whatever else it lacks."""
    return kind(block) == "tool_use" and bool(text_at(block, "id"))


def with_unique_ids(messages: Sequence[Message]) -> tuple[list[Message], list[RenamedCall]]:
    """Messages of content blocks whose calls have ids that are unique, the repeated `x` as `x_2`, `x_3`, …"""
    naming = Naming(lambda: messages)
    return list(naming.renamed()), naming.changes


def _are_fine(messages: Iterable[Message]) -> bool:
    """Whether nothing has to be renamed: the cheap question, as most often the answer is yes."""
    called: set[str] = set()
    for message in messages:
        for block in _blocks(message):
            name = kind(block)
            if name == "tool_use" and _is_call(block):
                if block["id"] in called or not is_allowed(block["id"]):
                    return False
                called.add(block["id"])
            elif name == "tool_result" and is_result(block) and not is_allowed(block["tool_use_id"]):
                return False
    return True


def is_allowed(call_id: str) -> bool:
    """Whether a tool-call id has the characters that Anthropic allows, and no other."""
    return block_id(call_id) == call_id


class Naming:
    """Gives the calls of messages unique ids. `messages` goes through them, as often as it is asked for.

    `changes` has what was renamed, once all messages of `renamed` have been asked for.
    """

    def __init__(self, messages: Callable[[], Iterable[Message]]) -> None:
        self.changes: list[RenamedCall] = []
        self._messages = messages

    def renamed(self) -> Iterator[Message]:
        """The messages with the ids that their calls and results are given."""
        if _are_fine(self._messages()):
            return iter(self._messages())
        one_pass = _Pass(self._messages(), self.changes)
        return (one_pass.renamed(place, message) for place, message in enumerate(self._messages()))


class _Pass:
    """One pass over the messages: which ids were given, and which calls wait for their results."""

    def __init__(self, messages: Iterable[Message], changes: list[RenamedCall]) -> None:
        self._changes = changes
        self._given: set[str] = set()
        self._times: dict[str, int] = {}
        ids = {call_id: None for message in messages for call_id in ids_in(_blocks(message))}
        self._allowed = allowed_ids(ids)
        # No new id may be one that a later call has.
        self._wanted = {self._allowed.get(call_id, call_id) for call_id in ids}
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
        if not _is_call(block):
            return with_id(block, self._answered)
        old, new = block["id"], self._new_id(block["id"])
        self._waiting.setdefault(old, []).append((place, new))
        if new != old:
            self._changes.append(RenamedCall(card_id=card_id, old=old, new=new))
        return with_id(block, lambda _: new)

    def _new_id(self, old: str) -> str:
        new = allowed = self._allowed.get(old, old)
        while new in self._given or (new != allowed and new in self._wanted):
            self._times[allowed] = self._times.get(allowed, 1) + 1
            new = f"{allowed}_{self._times[allowed]}"
        self._given.add(new)
        return new

    def _answered(self, old: str) -> str:
        """The new id of the call that a result of this id answers: the nearest; in one message the first."""
        waiting = self._waiting.get(old)
        if not waiting:
            return self._allowed.get(old, old)
        nearest = waiting[-1][0]
        first = next(index for index, (place, _) in enumerate(waiting) if place == nearest)
        return waiting.pop(first)[1]


def _blocks(message: Message) -> list[Any]:
    content = message.body["content"]
    return content if isinstance(content, list) else []
