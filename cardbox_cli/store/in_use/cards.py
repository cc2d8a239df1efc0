"""Who sees cards: turns that have not ended; and the refusal to change a card under them.

A box that such a turn reads or writes is kept by `boxes.py`; here are the cards in it, and the results that
wait to come into it. Whoever changes cards that are stored asks here, in the same transaction. Where the
database has no turns nobody sees any.
"""

from collections.abc import Sequence
from typing import Literal

import msgspec

from cardbox_cli.errors import CardConflict
from cardbox_cli.model.execution.turns import Fence
from cardbox_cli.store.audit import AuditStore
from cardbox_cli.store.connection.project_store import ProjectStore

_TABLES = frozenset({"state.agent_inbox", "state.agent_state_head"})

Change = Literal["delete", "repair"]


class Force(msgspec.Struct, frozen=True, kw_only=True):
    """A person changes cards although turns see them; the audit says who."""

    actor: str


class CardUse(msgspec.Struct, frozen=True, kw_only=True):
    """A turn that has not ended, and a card that it sees: in the box of this `use`, None for a `report`."""

    card_id: str
    box_id: str | None
    use: str
    agent_turn_id: str
    agent_id: str
    turn_epoch: int
    active: bool

    @property
    def words(self) -> str:
        """Where the turn has the card."""
        where = f"in the {self.use} box {self.box_id}" if self.box_id else "the reported result of a call"
        state = "is active" if self.active else "waits to run"
        return f"{where} of turn {self.agent_turn_id} of agent {self.agent_id!r}, which {state}"


class CardUseStore(ProjectStore):
    """The use of one project's cards."""

    def check_change(self, card_ids: Sequence[str], change: Change, force: Force | None) -> None:
        """Raise CardConflict if a turn that has not ended sees one of these; with `force`, write the audit.

        Call it behind the change: a turn may have been asked for until then.
        """
        uses = self.uses(card_ids)
        if uses and force is None:
            raise _seen(uses[0], change)
        if uses and force is not None:
            self._audit(uses, change, force)

    def uses(self, card_ids: Sequence[str]) -> list[CardUse]:
        """The turns that have not ended and see these cards, the active ones first."""
        if not card_ids or not self.database.tables.issuperset(_TABLES):
            return []
        rows = self._rows("turns_seeing_cards", card_ids=list(card_ids))
        names = CardUse.__struct_fields__
        return [CardUse(**dict(zip(names, row, strict=True))) for row in rows]

    def _audit(self, uses: Sequence[CardUse], change: Change, force: Force) -> None:
        self.database.require("cbx.audit")
        by_turn: dict[Fence, list[CardUse]] = {}
        for use in uses:
            fence = Fence(use.agent_id, use.agent_turn_id, use.turn_epoch)
            by_turn.setdefault(fence, []).append(use)
        audit = AuditStore(self.database, self.project_id)
        for fence, seen in by_turn.items():
            cards = [{"card_id": use.card_id, "box_id": use.box_id, "use": use.use} for use in seen]
            audit.write_of_turn(
                fence,
                action=f"card {change}",
                actor=force.actor,
                reason=None,
                epoch_after=None,
                detail={"cards": cards},
            )


def _seen(use: CardUse, change: Change) -> CardConflict:
    better = "`cbx card edit` makes a new card" if change == "repair" else "delete it when that has ended"
    return CardConflict(
        f"card {use.card_id!r} is {use.words}",
        hint=f"{better}; --force {change}s it under the turn, and the audit says so",
        details={
            "card_id": use.card_id,
            "box_id": use.box_id,
            "agent_turn_id": use.agent_turn_id,
            "agent_id": use.agent_id,
        },
    )
