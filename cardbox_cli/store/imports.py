"""Import of conversations of any number and length into boxes, in one transaction.

The database builds, compares and stores their id lists, so that a conversation of a million messages needs
no memory here. The caller decides which box ids a conversation may have.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import count, islice, takewhile
from typing import NamedTuple

import msgspec

from cardbox_cli.model.cards import CardDraft
from cardbox_cli.store.boxes import BoxInfoStore, BoxStore
from cardbox_cli.store.cards import CardStore, WriteCounts
from cardbox_cli.store.connection.database import Database, jsonb
from cardbox_cli.store.connection.project_store import ProjectStore
from cardbox_cli.store.in_use import BoxUseStore

# Cards per COPY: enough to be fast, few enough for the server to sort in memory.
_BATCH_SIZE = 5000
# Number of version ids per query.
_VERSIONS_PER_QUERY = 32


class ImportedConversation(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation to find in an existing box, or to store in a new one.

    `versions` returns the id of the box for a version number, from 1. `parent_versions` does so for the
    conversation that it branched off from. `same_as` is the label of an earlier conversation with the same
    cards. Such a conversation needs no box, and its cards are not written.
    """

    label: int
    title: str | None
    versions: Callable[[int], str]
    parent_versions: Callable[[int], str] | None
    same_as: int | None = None


class ImportStore(ProjectStore):
    """An import in one transaction. Each conversation's cards have its label."""

    def __init__(self, database: Database, project_id: str) -> None:
        super().__init__(database, project_id)
        self._cards = CardStore(database, project_id)
        self._boxes = BoxStore(database, project_id)
        self._info = BoxInfoStore(database, project_id)
        self._use = BoxUseStore(database, project_id)

    def begin(self) -> None:
        """Wait for other imports into the project, and create temporary tables. Needs a transaction."""
        self.database.value("lock_import", project_id=self.project_id)
        for name in ("make_import_ids", "empty_import_ids", "make_import_lists", "empty_import_lists"):
            self.database.run(name)

    def add(self, drafts: Iterable[tuple[int, CardDraft]]) -> dict[int, WriteCounts]:
        """Write a stream of labelled cards and record their ids in order. Returns the counts by label."""
        counts: dict[int, WriteCounts] = {}
        remaining = iter(drafts)
        while added := self._cards.add_labelled(islice(remaining, _BATCH_SIZE)):
            self.database.run("note_import_ids")
            for label, number in added.items():
                counts[label] = counts.get(label, WriteCounts(0, 0)) + number
        return counts

    def assign_boxes(self, conversations: Sequence[ImportedConversation]) -> dict[int, str]:
        """Return the box id of each conversation by label, and create or extend the box if necessary.

        A conversation takes the first of its versions that has its messages, or that it continues. Otherwise
        its box is new. The parents of a new box are the preceding version, and the box of the conversation
        that it branched off from. Raises BoxConflict if a turn reads or writes a box to extend.
        """
        self.database.run("fill_import_lists")
        placed: dict[int, str] = {}
        own = [each for each in conversations if each.same_as is None]
        # Branches come second, so that the boxes of their parents exist.
        for are_branches in (False, True):
            lines = _BoxQueues(each for each in own if (each.parent_versions is not None) == are_branches)
            while turn := lines.next_turn():
                agreed = self._place(turn)
                for box_id, each in turn.items():
                    if box_id in agreed:
                        placed[each.conversation.label] = box_id
                    else:
                        lines.join(each.conversation, each.version + 1)
        same = {each.label: placed[each.same_as] for each in conversations if each.same_as is not None}
        return placed | same

    def _place(self, turn: dict[str, "_Attempt"]) -> set[str]:
        """Return the boxes that now contain their conversations."""
        parents = [self._parents(each.conversation, each.version) for each in turn.values()]
        wanted = {
            "labels": [each.conversation.label for each in turn.values()],
            "box_ids": list(turn),
            "parent_ids": [None if not boxes else jsonb(boxes) for boxes in parents],
        }
        made = set(self._column("insert_import_boxes", **wanted))
        self._info.save_titles((box_id, turn[box_id].conversation.title) for box_id in turn if box_id in made)
        if len(made) == len(turn):
            return made
        grown = set(self._column("grow_import_boxes", **wanted))
        self._use.refuse_change(list(grown))
        return made | grown | set(self._column("import_boxes_in_place", **wanted))

    def _parents(self, conversation: ImportedConversation, version: int) -> list[str]:
        parents = [] if version == 1 else [conversation.versions(version - 1)]
        if conversation.parent_versions is not None:
            parents += self._newest(conversation.parent_versions)
        return parents

    def _newest(self, versions: Callable[[int], str]) -> list[str]:
        """Return the last of these boxes that exists, if any."""
        newest: list[str] = []
        for first in count(1, _VERSIONS_PER_QUERY):
            ids = [versions(number) for number in range(first, first + _VERSIONS_PER_QUERY)]
            existing = self._boxes.filter_existing(ids)
            known = list(takewhile(existing.__contains__, ids))
            newest = known[-1:] or newest
            if len(known) < _VERSIONS_PER_QUERY:
                break
        return newest


class _Attempt(NamedTuple):
    conversation: ImportedConversation
    version: int


class _BoxQueues:
    """Queues of conversations, one per box id. A rejected conversation joins its next version's queue."""

    def __init__(self, conversations: Iterable[ImportedConversation]) -> None:
        self._lines: dict[str, deque[_Attempt]] = {}
        for each in conversations:
            self.join(each, 1)

    def join(self, conversation: ImportedConversation, version: int) -> None:
        self._lines.setdefault(conversation.versions(version), deque()).append(
            _Attempt(conversation, version)
        )

    def next_turn(self) -> dict[str, _Attempt]:
        """Remove the first of each queue and return them by box."""
        turn = {box_id: line.popleft() for box_id, line in self._lines.items()}
        self._lines = {box_id: line for box_id, line in self._lines.items() if line}
        return turn
