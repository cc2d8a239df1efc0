"""The messages of a lint's subject as Anthropic gets them, for the rules that look at them.

Decides nothing. Most rules need but a few messages, or their blocks by kind.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import islice
from typing import Any

import msgspec

from cardbox_cli.context.lint.subject import Subject
from cardbox_cli.context.messages import Message
from cardbox_cli.context.parts import kind
from cardbox_cli.context.providers.anthropic.body import conversation, results_first
from cardbox_cli.context.providers.anthropic.encoding import as_blocks
from cardbox_cli.context.providers.turns import runs
from cardbox_cli.context.request import RequestEntry


class MergedMessage(msgspec.Struct, frozen=True):
    """A message as it is sent: its role, its blocks with the messages they come from, their kinds."""

    role: str
    blocks: list[tuple[Any, Message]]
    kinds: list[str]


class SentMessages:
    """What is sent of a subject's messages. Ask for that of a subject by `subject.view(SentMessages)`."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self._messages, self.renamed = conversation(subject.request.messages, subject.request.model)

    @property
    def merged(self) -> Iterator[MergedMessage]:
        """The messages as they are sent, which are many."""
        return map(_merged, runs(self._messages))

    def at(self, index: int) -> MergedMessage | None:
        """The message of this index, which may count from the end."""
        if index >= 0:
            run = next(islice(runs(self._messages), index, None), None)
        else:
            run = next(islice(runs(reversed(self._messages)), -index - 1, None), [])[::-1]
        return _merged(run) if run else None

    @property
    def prefill(self) -> MergedMessage | None:
        """The last message, where it is the assistant's."""
        last = self.at(-1)
        return last if last is not None and last.role == "assistant" and last.blocks else None

    def place_in(self, message: MergedMessage, index: int) -> RequestEntry | None:
        """Where the card stands that a block of a message comes from."""
        return self._subject.place(message.blocks[index][1]) if message.blocks else None

    @cached_property
    def blocks(self) -> dict[str, list[tuple[Any, Message]]]:
        """The content blocks by kind, with the messages that they come from.

        A message that is one text has none here.
        """
        kinds: dict[str, list[tuple[Any, Message]]] = {}
        for message in self._messages:
            content = message.body["content"]
            for block in content if isinstance(content, list) else ():
                kinds.setdefault(kind(block), []).append((block, message))
        return kinds


def _merged(run: Sequence[Message]) -> MergedMessage:
    role = run[0].body["role"]
    blocks = [(block, message) for message in run for block in as_blocks(message.body["content"])]
    if role == "user" and len(blocks) > 1:
        blocks.sort(key=lambda pair: results_first(pair[0]))
    return MergedMessage(role, blocks, [kind(block) for block, _ in blocks])
