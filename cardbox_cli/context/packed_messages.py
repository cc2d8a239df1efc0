"""Messages of a long history, held small: for those who go through them in order, a few times at most."""

import zlib
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import overload

from cardbox_cli.context.messages import Message
from cardbox_cli.model import exact_json

# So many are packed together: fewer pack less well, and of more there is more to unpack at a time.
AT_ONCE = 100
# zlib's fastest level: messages take a fifth of their size.
_LEVEL = 1


class PackedMessages(Sequence[Message]):
    """Messages that are made anew, equal and never the same, each time that they are read.

    The last that were added, up to AT_ONCE, are held as they are; so are those around them.
    """

    def __init__(self) -> None:
        self._before: Sequence[Message] = ()
        self._packed: list[bytes] = []
        self._last: list[Message] = []
        self._behind: Sequence[Message] = ()

    def add(self, message: Message) -> None:
        """A message behind those that were added."""
        if len(self._last) == AT_ONCE:
            self._packed.append(_pack(self._last))
            self._last = []
        self._last.append(message)

    def between(self, before: Sequence[Message], behind: Sequence[Message]) -> "PackedMessages":
        """The same ones between others."""
        around = PackedMessages()
        around._before, around._behind = before, behind
        around._packed, around._last = self._packed, self._last
        return around

    def __len__(self) -> int:
        packed = len(self._packed) * AT_ONCE
        return len(self._before) + packed + len(self._last) + len(self._behind)

    def __iter__(self) -> Iterator[Message]:
        unpacked = chain.from_iterable(map(_unpack, self._packed))
        return chain(self._before, unpacked, self._last, self._behind)

    @overload
    def __getitem__(self, place: int) -> Message: ...

    @overload
    def __getitem__(self, place: slice) -> Sequence[Message]: ...

    def __getitem__(self, place: int | slice) -> Message | Sequence[Message]:
        if isinstance(place, slice):
            return list(self)[place]
        at = range(len(self))[place] - len(self._before)
        if at < 0:
            return self._before[at]
        chunk, at_in_chunk = divmod(at, AT_ONCE)
        if chunk < len(self._packed):
            return _unpack(self._packed[chunk])[at_in_chunk]
        at -= len(self._packed) * AT_ONCE
        return self._last[at] if at < len(self._last) else self._behind[at - len(self._last)]


def _pack(messages: Sequence[Message]) -> bytes:
    fields = [(each.layer, each.body, each.card_id, each.group) for each in messages]
    return zlib.compress(exact_json.encode(fields), _LEVEL)


def _unpack(packed: bytes) -> list[Message]:
    return [Message(*fields) for fields in exact_json.decode(zlib.decompress(packed))]
