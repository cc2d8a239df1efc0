"""Conversations on their way into boxes, any number and length of them, in one transaction.

Their id lists are made, compared and stored in the database, so that a conversation of a million messages
costs this process nothing. Which boxes a conversation may become is the importer's business.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import count, islice, takewhile
from typing import NamedTuple

import msgspec

from cardbox_cli.model.cards import CardDraft
from cardbox_cli.store.boxes import BoxInfoStore, BoxStore
from cardbox_cli.store.cards import CardStore, Counts
from cardbox_cli.store.connection.database import Database, jsonb
from cardbox_cli.store.connection.project_store import ProjectStore
from cardbox_cli.store.in_use import BoxUseStore

# Cards per COPY: enough to be fast, few enough for the server to sort in memory.
_BATCH = 5000
# How many ids of versions are looked for at a time.
_VERSIONS = 32


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation to be found in a box, or put into one.

    `versions` names the boxes that it may be, oldest first, without end; `parent_versions` those of the
    conversation that it branched off from. `same_as` is the label of an earlier one that has the same cards:
    it needs no box, and none of its cards is written.
    """

    label: int
    title: str | None
    versions: Callable[[int], str]
    parent_versions: Callable[[int], str] | None
    same_as: int | None = None


class ImportStore(ProjectStore):
    """The import of one transaction. Cards come in under labels, one for each conversation."""

    def __init__(self, database: Database, project_id: str) -> None:
        super().__init__(database, project_id)
        self._cards = CardStore(database, project_id)
        self._boxes = BoxStore(database, project_id)
        self._info = BoxInfoStore(database, project_id)
        self._use = BoxUseStore(database, project_id)

    def begin(self) -> None:
        """Wait for other imports into the project to end, and make room. Needs a transaction."""
        self.database.value("lock_import", project_id=self.project_id)
        for name in ("make_import_ids", "empty_import_ids", "make_import_lists", "empty_import_lists"):
            self.database.run(name)

    def add(self, drafts: Iterable[tuple[int, CardDraft]]) -> dict[int, Counts]:
        """Stream labelled cards in, and note their ids in order; the counts of each label."""
        counts: dict[int, Counts] = {}
        remaining = iter(drafts)
        while added := self._cards.add_labelled(islice(remaining, _BATCH)):
            self.database.run("note_import_ids")
            for label, number in added.items():
                counts[label] = counts.get(label, Counts(0, 0)) + number
        return counts

    def place(self, conversations: Sequence[Wanted]) -> dict[int, str]:
        """The box of each conversation, by label: one that it is, one that it continues, or a new one.

        Each goes to its first version that agrees with it; where none does, a new box has the last one,
        and the box that it branched off from, as its parents. Raises BoxConflict where a box would grow that
        a turn reads or writes.
        """
        self.database.run("fill_import_lists")
        placed: dict[int, str] = {}
        own = [each for each in conversations if each.same_as is None]
        # Those that others branch off from come first, so that their boxes are there to be parents.
        for are_branches in (False, True):
            lines = _Lines(each for each in own if (each.parent_versions is not None) == are_branches)
            while turn := lines.next_turn():
                agreed = self._place(turn)
                for box_id, each in turn.items():
                    if box_id in agreed:
                        placed[each.conversation.label] = box_id
                    else:
                        lines.join(each.conversation, each.version + 1)
        same = {each.label: placed[each.same_as] for each in conversations if each.same_as is not None}
        return placed | same

    def _place(self, turn: dict[str, "_Try"]) -> set[str]:
        """Those of the boxes that now hold their conversations."""
        parents = [self._parents(each.conversation, each.version) for each in turn.values()]
        wanted = {
            "labels": [each.conversation.label for each in turn.values()],
            "box_ids": list(turn),
            "parent_ids": [None if not boxes else jsonb(boxes) for boxes in parents],
        }
        made = set(self._column("insert_import_boxes", **wanted))
        self._info.keep_titles((box_id, turn[box_id].conversation.title) for box_id in turn if box_id in made)
        if len(made) == len(turn):
            return made
        grown = set(self._column("grow_import_boxes", **wanted))
        self._use.refuse_change(list(grown))
        return made | grown | set(self._column("import_boxes_in_place", **wanted))

    def _parents(self, conversation: Wanted, version: int) -> list[str]:
        parents = [] if version == 1 else [conversation.versions(version - 1)]
        if conversation.parent_versions is not None:
            parents += self._newest(conversation.parent_versions)
        return parents

    def _newest(self, versions: Callable[[int], str]) -> list[str]:
        """The last of these boxes that exists, if one does."""
        newest: list[str] = []
        for first in count(1, _VERSIONS):
            asked = [versions(number) for number in range(first, first + _VERSIONS)]
            there = self._boxes.existing(asked)
            known = list(takewhile(there.__contains__, asked))
            newest = known[-1:] or newest
            if len(known) < _VERSIONS:
                break
        return newest


class _Try(NamedTuple):
    """A conversation and the version of its box that it tries."""

    conversation: Wanted
    version: int


class _Lines:
    """Conversations in lines, one for each box. Who finds no place in it joins the line for the next."""

    def __init__(self, conversations: Iterable[Wanted]) -> None:
        self._lines: dict[str, deque[_Try]] = {}
        for each in conversations:
            self.join(each, 1)

    def join(self, conversation: Wanted, version: int) -> None:
        """Stand at the end of the line for this version of the conversation's box."""
        self._lines.setdefault(conversation.versions(version), deque()).append(_Try(conversation, version))

    def next_turn(self) -> dict[str, _Try]:
        """The first of each line, who leaves it, by the box."""
        turn = {box_id: line.popleft() for box_id, line in self._lines.items()}
        self._lines = {box_id: line for box_id, line in self._lines.items() if line}
        return turn
