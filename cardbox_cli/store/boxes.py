"""Boxes in Postgres: one project's view of `public.card_boxes`, with what `box_info` keeps of them.

Boxes hold ids and never cards. Writes to one box are serial: each locks its row. Methods take part in the
caller's transaction; alone, each is its own.
"""

from collections.abc import Collection, Sequence
from datetime import UTC
from typing import TYPE_CHECKING

import msgspec

from cardbox_cli.errors import BoxConflict, InvalidInput
from cardbox_cli.model.boxes import (
    Box,
    Provenance,
    decode_box,
)
from cardbox_cli.model.execution.turns import Fence, Head
from cardbox_cli.model.ids import as_box_id, hash_ids, new_box_id
from cardbox_cli.store.box_reads import NO_BOX, BoxReads, as_uuid
from cardbox_cli.store.cards import CardStore
from cardbox_cli.store.connection.database import Database, jsonb
from cardbox_cli.store.execution.heads import HeadStore
from cardbox_cli.store.projects import check_first_write

if TYPE_CHECKING:
    pass


class BoxStore(BoxReads):
    """The boxes of one project."""

    def __init__(self, database: Database, project_id: str) -> None:
        super().__init__(database, project_id)
        self._cards = CardStore(database, project_id)

    def create(
        self,
        card_ids: Sequence[str],
        *,
        parent_ids: Sequence[str] | None = None,
        title: str | None = None,
        box_id: str | None = None,
        provenance: Provenance | None = None,
        allow_dangling: bool = False,
    ) -> Box:
        """Make a box of these ids. Raises NotFound for ids that are no cards here unless they are allowed.

        `box_id` is for derived ids only; BoxConflict when it is taken.
        """
        with self.database.transaction(savepoint=False):
            if not allow_dangling:
                self._cards.refuse_absent(card_ids)
            box = self._insert(box_id or new_box_id(), card_ids, parent_ids or ())
            if box is None:
                raise BoxConflict(f"the box id {box_id!r} is taken", hint="leave the id out to get a new one")
            self._info.keep(box.box_id, title, provenance)
        return msgspec.structs.replace(box, title=title if self.database.keeps_box_info else None)

    def append(
        self,
        box_id: str,
        card_ids: Sequence[str],
        *,
        allow_dangling: bool = False,
        fence: Fence | None = None,
        held: Head | None = None,
        of_chat: bool = False,
    ) -> int:
        """Append ids; the box's new length. Concurrent appends are serial, none is lost.

        Raises NotFound for an unknown box, or an id that is no card here unless that is allowed, and
        BoxConflict for a box that a turn reads or writes, or a chat has. A turn itself appends to its output
        box with its `fence`; then StaleEpoch is raised when that has fallen. A use case that has the head of
        the turn `held` passes that, and one that holds the head of a chat says that the box is `of_chat`.
        """
        is_free = fence is None and held is None and not of_chat
        # To append to a box that others use is taken back; else nothing is written before it is refused.
        with self.database.transaction(savepoint=is_free):
            if fence is not None:
                held = HeadStore(self.database, self.project_id).hold(fence)
            if held is not None:
                _check_output(held, box_id)
            length = self._value(
                "append_to_box",
                box_id=as_uuid(box_id),
                card_ids=jsonb(list(card_ids)),
                allow_dangling=allow_dangling,
            )
            if length is None:
                if not allow_dangling:
                    self._cards.refuse_absent(card_ids)
                raise self._absent("box", box_id, NO_BOX)
            if is_free:
                # Only now that the box is held: a turn may have been asked for until then.
                self._use.refuse_change([as_uuid(box_id)])
        return int(length)

    def ensure(self, box_id: str) -> Box:
        """The box of this id, made empty if it is not there. BoxConflict if another project has it."""
        canonical = as_box_id(box_id)
        if canonical is None:
            raise InvalidInput(f"the box id {box_id!r} is no UUID")
        with self.database.transaction():
            made = self._insert(canonical, (), ())
            if made is not None:
                return made
            found = self.get_many([canonical])
            if not found.boxes:
                raise BoxConflict(f"the box id {box_id!r} is taken")
        return found.boxes[0]

    def put(self, box_id: str, card_id: str) -> None:
        """See to it that the box holds a card; it is made if it is not there. Raises as `ensure`.

        The caller holds the turn that writes to the box.
        """
        canonical = as_box_id(box_id)
        if not self._value("put_into_box", box_id=canonical, card_ids=jsonb([card_id])):
            self.ensure(box_id)
            self._value("put_into_box", box_id=canonical, card_ids=jsonb([card_id]))

    def replace(
        self, box_id: str, card_ids: Sequence[str], *, if_ids: str | None = None, allow_dangling: bool = False
    ) -> Box:
        """Set the id list. With `if_ids` (`hash_ids` of the list as it was read) only if it is still that.

        Raises BoxConflict when the list changed meanwhile, for the box of a profile, and for one that a turn
        reads or writes; nothing is written.
        """
        with self.database.transaction():
            box = self.lock(box_id)
            self.check_replaceable(box.box_id)
            if if_ids is not None and hash_ids(box.card_ids) != if_ids:
                raise BoxConflict(
                    f"box {box.box_id} has changed: its ids hash to {hash_ids(box.card_ids)}, not {if_ids}",
                    hint="read it again with `cbx box show`, then replace",
                )
            if not allow_dangling:
                self._cards.refuse_absent(card_ids)
            row = self._value("replace_box", box_id=box.box_id, card_ids=jsonb(list(card_ids)))
            provenance = self.provenance(box.box_id)
            if provenance is not None:
                self._info.keep(box.box_id, box.title, provenance.moved(box.card_ids, card_ids))
        return msgspec.structs.replace(decode_box(row), title=box.title)

    def fork(self, box_id: str, *, title: str | None = None) -> Box:
        """A new box with the same ids and provenance, and this box as its parent."""
        with self.database.transaction():
            box = self.get(box_id)
            return self.derive(msgspec.structs.replace(box, title=title or box.title), box.card_ids)

    def derive(self, box: Box, card_ids: Sequence[str], *, may_be_gone: Collection[str] = ()) -> Box:
        """A new box of these ids, with the title and the provenance of `box`, which is its parent.

        Raises NotFound for ids that are no cards here, unless `box` holds them or they `may_be_gone`.
        """
        held = {*box.card_ids, *may_be_gone}
        with self.database.transaction():
            self._cards.refuse_absent([card_id for card_id in card_ids if card_id not in held])
            provenance = self.provenance(box.box_id)
            return self.create(
                card_ids,
                parent_ids=[box.box_id],
                title=box.title,
                provenance=None if provenance is None else provenance.moved(box.card_ids, card_ids),
                allow_dangling=True,
            )

    def rewrite(self, box: Box, card_ids: Sequence[str], *, if_ids: str) -> Box:
        """Set the id list of `box` if it still hashes to `if_ids`. Raises as `replace` and `derive` do."""
        held = set(box.card_ids)
        with self.database.transaction():
            self._cards.refuse_absent([card_id for card_id in card_ids if card_id not in held])
            return self.replace(box.box_id, card_ids, if_ids=if_ids, allow_dangling=True)

    def check_replaceable(self, box_id: str) -> None:
        """Raise BoxConflict for a box that `replace` does not change: a profile's, or one in use."""
        self._refuse_profile_box(box_id)
        self._use.refuse_change([box_id])

    def delete(self, box_id: str) -> None:
        """Remove the box; its cards stay. Refused while a profile, a turn or an agent points to it."""
        with self.database.transaction():
            box = self.lock(box_id)
            self._refuse_profile_box(box.box_id)
            self._use.refuse_delete(box.box_id)
            self._value("delete_box", box_id=box.box_id)
            self._info.forget(box.box_id)

    def _insert(self, box_id: str, card_ids: Sequence[str], parent_ids: Sequence[str]) -> Box | None:
        """The box, written; None where its id is taken."""
        check_first_write(self.database, self.project_id)
        written = self._value(
            "insert_box",
            box_id=box_id,
            card_ids=jsonb(list(card_ids)),
            parent_ids=jsonb(list(parent_ids)) if parent_ids else None,
        )
        if written is None:
            return None
        return Box(
            box_id=box_id,
            project_id=self.project_id,
            title=None,
            card_ids=list(card_ids),
            parent_ids=list(parent_ids),
            updated_at=written.astimezone(UTC),
        )

    def lock(self, box_id: str) -> Box:
        """The box, held until the end of the transaction. Raises NotFound."""
        row = self._found(self._value("lock_box", box_id=as_uuid(box_id)), "box", box_id, NO_BOX)
        return self.with_titles([decode_box(row)])[0]

    def _refuse_profile_box(self, box_id: str) -> None:
        if "resource.profiles" not in self.database.tables:
            return
        name = self._value("boxes_of_profile", box_id=box_id)
        if name is not None:
            hint = "import the profile with a change; the name then points to a new box"
            raise BoxConflict(f"box {box_id} holds the profile {name!r}", hint=hint)


def _check_output(head: Head, box_id: str) -> None:
    if head.output_box_id != as_uuid(box_id):
        hint = f"that is box {head.output_box_id}"
        raise BoxConflict(f"box {box_id} is not the output box of turn {head.fence.agent_turn_id}", hint=hint)
