"""Who uses boxes and cards: the refusal to change what somebody works with."""

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from cardbox_cli.errors import BoxConflict, CardConflict
from cardbox_cli.model.boxes import BoxTurn
from cardbox_cli.model.chats import BOX_CARDS, transcript_box
from cardbox_cli.model.execution.turns import Fence
from cardbox_cli.store.audit import AuditStore
from cardbox_cli.store.connection.project_store import ProjectStore
from cardbox_cli.store.connection.tables import CHATS

# Who uses boxes: turns that wait or run, and agents; and the refusal to change a box under them.
#
# What a turn reads stays as it was when the turn was asked for, and what a turn writes, it alone writes. The
# caller holds the box, so that no turn can be asked for meanwhile. Where the database has no turns nothing is
# in use.


_BOX_TABLES = frozenset({"state.agent_inbox", "state.agent_state_head"})
_AGENTS = frozenset({"state.agent_state_pointers", "resource.project_agents"})
# How many inbox rows are looked at for turns that have ended.
_LATEST = 10_000


class BoxUseStore(ProjectStore):
    """The use of one project's boxes. Box ids are canonical."""

    def refuse_change(self, box_ids: Sequence[str]) -> None:
        """Raise BoxConflict if a turn that has not ended reads one of these, or an active one writes it."""
        for box_id, use, turn_id, agent_id, active in self._turns(box_ids):
            if use in ("context", "profile"):
                raise _in_use(box_id, f"the {use} box of turn {turn_id}", agent_id, active=active)
            if use == "output" and active:
                raise _in_use(box_id, f"the output box of turn {turn_id}", agent_id, active=True)
        for box_id in box_ids:
            self._refuse_chat(box_id)

    def refuse_delete(self, box_id: str) -> None:
        """Raise BoxConflict if a turn that waits or runs, or an agent, names the box."""
        for _, use, turn_id, agent_id, active in self._turns([box_id]):
            raise _in_use(box_id, f"the {use} box of turn {turn_id}", agent_id, active=active)
        self._refuse_chat(box_id)
        if not self.database.tables.issuperset(_BOX_TABLES | _AGENTS):
            return
        row = self._row("agents_using_box", box_id=box_id)
        if row is not None:
            use, agent_id = row
            hint = "a box can be deleted when no agent names it"
            raise BoxConflict(f"box {box_id} is the {use} of agent {agent_id!r}", hint=hint)

    def _refuse_chat(self, box_id: str) -> None:
        """Raise BoxConflict for a box of a chat, which `cbx chat` alone changes."""
        if not self.database.tables.issuperset(CHATS):
            return
        use, chat_key = self._row("chats_using_box", box_id=box_id) or (None, None)
        if use is None:
            use, chat_key = self._transcript(box_id)
        if use is not None:
            raise BoxConflict(
                f"box {box_id} is the {use} of chat {chat_key!r}",
                hint=f"`cbx chat` changes it; `cbx box fork {box_id}` makes a copy to change",
                details={"box_id": box_id, "chat_key": chat_key},
            )

    def _transcript(self, box_id: str) -> tuple[str, str] | tuple[None, None]:
        """What a box of a transcript is called, and its chat: the ids of these follow from their places."""
        chat_key, entries = self._row("chat_of_first_card", box_id=box_id) or ("", 0)
        starts = range(0, entries, BOX_CARDS)
        if any(transcript_box(self.project_id, chat_key, start) == box_id for start in starts):
            return "transcript", chat_key
        return None, None

    def turns_of(self, box_ids: Sequence[str]) -> dict[str, list[BoxTurn]]:
        """The turns that read or write these boxes, newest first, by box.

        All that wait or run, and of those that have ended the ones among the last 10,000 inbox rows.
        """
        if not box_ids or not self.database.tables.issuperset(_BOX_TABLES):
            return {}
        found: dict[str, list[BoxTurn]] = {}
        rows = self._rows("turns_of_boxes", box_ids=list(box_ids), latest=_LATEST)
        for box_id, use, turn_id, agent_id in rows:
            found.setdefault(box_id, []).append(BoxTurn(turn_id, agent_id, use))
        return found

    def active_turns(self, box_ids: Sequence[str]) -> list[tuple[str, str, str]]:
        """The turns that agents are at and that name one of the boxes: as what, the turn, the agent."""
        return [(use, turn, agent) for _, use, turn, agent, active in self._turns(box_ids) if active]

    def _turns(self, box_ids: Sequence[str]) -> list[tuple[Any, ...]]:
        if not box_ids or not self.database.tables.issuperset(_BOX_TABLES):
            return []
        return self._rows("turns_using_boxes", box_ids=list(box_ids))


def _in_use(box_id: str, what: str, agent_id: str, *, active: bool) -> BoxConflict:
    state = "is active" if active else "waits to run"
    return BoxConflict(
        f"box {box_id} is {what} of agent {agent_id!r}, which {state}",
        hint=f"it can be changed when that has ended; `cbx box fork {box_id}` makes a copy to change now",
        details={"box_id": box_id, "agent_id": agent_id},
    )


# Who sees cards: turns that have not ended; and the refusal to change a card under them.
#
# A box that such a turn reads or writes is kept by `boxes.py`; here are the cards in it, and the results that
# wait to come into it. Whoever changes cards that are stored asks here, in the same transaction. Where the
# database has no turns nobody sees any.


_CARD_TABLES = frozenset({"state.agent_inbox", "state.agent_state_head"})

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
        if not card_ids or not self.database.tables.issuperset(_CARD_TABLES):
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
