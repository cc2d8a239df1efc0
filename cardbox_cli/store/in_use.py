"""Use of boxes and cards by turns, agents and chats. Refuses changes of boxes and cards in use.

The box that a turn reads does not change after dispatch, and only the turn writes its output box. Call the
checks in the transaction of the change, after the write has locked the box or the cards. Then no turn can be
dispatched in between. If the database has no tables for turns, nothing is in use.
"""

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

_TURN_TABLES = frozenset({"state.agent_inbox", "state.agent_state_head"})
_AGENTS = frozenset({"state.agent_state_pointers", "resource.project_agents"})
# Number of inbox rows that are searched for ended turns.
_MAX_INBOX_ROWS = 10_000


class BoxUseStore(ProjectStore):
    """The use of one project's boxes. Box ids are canonical."""

    def refuse_change(self, box_ids: Sequence[str]) -> None:
        """Raise BoxConflict if an unfinished turn reads a box, an active one writes it, or a chat uses it."""
        for box_id, use, turn_id, agent_id, active in self._turns(box_ids):
            if use in ("context", "profile") or (use == "output" and active):
                raise _box_in_use_error(box_id, use, turn_id, agent_id, active=active)
        for box_id in box_ids:
            self._refuse_chat(box_id)

    def refuse_delete(self, box_id: str) -> None:
        """Raise BoxConflict if an unfinished turn, a chat or an agent refers to the box."""
        for _, use, turn_id, agent_id, active in self._turns([box_id]):
            raise _box_in_use_error(box_id, use, turn_id, agent_id, active=active)
        self._refuse_chat(box_id)
        if not self.database.tables.issuperset(_TURN_TABLES | _AGENTS):
            return
        row = self._row("agents_using_box", box_id=box_id)
        if row is not None:
            use, agent_id = row
            hint = "a box can be deleted when no agent refers to it"
            raise BoxConflict(f"box {box_id} is the {use} of agent {agent_id!r}", hint=hint)

    def _refuse_chat(self, box_id: str) -> None:
        """Raise BoxConflict for a box of a chat, which only `cbx chat` changes."""
        if not self.database.tables.issuperset(CHATS):
            return
        use, chat_key = self._row("chats_using_box", box_id=box_id) or (None, None)
        if use is None:
            use, chat_key = self._transcript(box_id)
        if use is not None:
            raise BoxConflict(
                f"box {box_id} is the {use} of chat {chat_key!r}",
                hint=f"change a copy: `cbx box fork {box_id}`",
                details={"box_id": box_id, "chat_key": chat_key},
            )

    def _transcript(self, box_id: str) -> tuple[str, str] | tuple[None, None]:
        """Return "transcript" and the chat's key if the box is part of a chat's transcript, else Nones."""
        chat_key, entries = self._row("chat_of_first_card", box_id=box_id) or ("", 0)
        starts = range(0, entries, BOX_CARDS)
        if any(transcript_box(self.project_id, chat_key, start) == box_id for start in starts):
            return "transcript", chat_key
        return None, None

    def turns_of(self, box_ids: Sequence[str]) -> dict[str, list[BoxTurn]]:
        """Return the turns that read or write these boxes, newest first, by box.

        Includes all unfinished turns, and ended ones among the last 10,000 inbox rows.
        """
        if not box_ids or not self.database.tables.issuperset(_TURN_TABLES):
            return {}
        turns: dict[str, list[BoxTurn]] = {}
        rows = self._rows("turns_of_boxes", box_ids=list(box_ids), latest=_MAX_INBOX_ROWS)
        for box_id, use, turn_id, agent_id in rows:
            turns.setdefault(box_id, []).append(BoxTurn(turn_id, agent_id, use))
        return turns

    def active_turns(self, box_ids: Sequence[str]) -> list[tuple[str, str, str]]:
        """Return the use, turn and agent of each active turn that refers to one of the boxes."""
        return [(use, turn, agent) for _, use, turn, agent, active in self._turns(box_ids) if active]

    def _turns(self, box_ids: Sequence[str]) -> list[tuple[Any, ...]]:
        if not box_ids or not self.database.tables.issuperset(_TURN_TABLES):
            return []
        return self._rows("turns_using_boxes", box_ids=list(box_ids))


def _box_in_use_error(box_id: str, use: str, turn_id: str, agent_id: str, *, active: bool) -> BoxConflict:
    state = "is active" if active else "waits to run"
    return BoxConflict(
        f"box {box_id} is the {use} box of turn {turn_id} of agent {agent_id!r}, which {state}",
        hint=f"wait for the turn to end, or change a copy: `cbx box fork {box_id}`",
        details={"box_id": box_id, "agent_id": agent_id},
    )


Change = Literal["delete", "repair"]


class ForcedBy(msgspec.Struct, frozen=True, kw_only=True):
    """Permission to change cards although turns see them. The audit names `actor`."""

    actor: str


class CardUse(msgspec.Struct, frozen=True, kw_only=True):
    """A card that an unfinished turn sees. `use` is the turn's use of the box, or `report` without a box."""

    card_id: str
    box_id: str | None
    use: str
    agent_turn_id: str
    agent_id: str
    turn_epoch: int
    active: bool

    @property
    def description(self) -> str:
        where = f"in the {self.use} box {self.box_id}" if self.box_id else "the reported result of a call"
        state = "is active" if self.active else "waits to run"
        return f"{where} of turn {self.agent_turn_id} of agent {self.agent_id!r}, which {state}"


class CardUseStore(ProjectStore):
    def check_change(self, card_ids: Sequence[str], change: Change, force: ForcedBy | None) -> None:
        """Raise CardConflict if an unfinished turn sees one of these cards. With `force`, audit that instead.

        Call it after the change, because a turn may be dispatched until then.
        """
        uses = self.uses(card_ids)
        if uses and force is None:
            raise _visible_card(uses[0], change)
        if uses and force is not None:
            self._audit(uses, change, force)

    def uses(self, card_ids: Sequence[str]) -> list[CardUse]:
        """Return the unfinished turns that see these cards, active ones first."""
        if not card_ids or not self.database.tables.issuperset(_TURN_TABLES):
            return []
        rows = self._rows("turns_seeing_cards", card_ids=list(card_ids))
        names = CardUse.__struct_fields__
        return [CardUse(**dict(zip(names, row, strict=True))) for row in rows]

    def _audit(self, uses: Sequence[CardUse], change: Change, force: ForcedBy) -> None:
        self.database.require("cbx.audit")
        by_turn: dict[Fence, list[CardUse]] = {}
        for use in uses:
            fence = Fence(use.agent_id, use.agent_turn_id, use.turn_epoch)
            by_turn.setdefault(fence, []).append(use)
        audit, action = AuditStore(self.database, self.project_id), f"card {change}"
        for fence, seen in by_turn.items():
            cards = [{"card_id": use.card_id, "box_id": use.box_id, "use": use.use} for use in seen]
            detail = {"cards": cards}
            audit.write_of_turn(
                fence, action=action, actor=force.actor, reason=None, epoch_after=None, detail=detail
            )


def _visible_card(use: CardUse, change: Change) -> CardConflict:
    better = "make a new card with `cbx card edit`" if change == "repair" else "wait for the turn to end"
    return CardConflict(
        f"card {use.card_id!r} is {use.description}",
        hint=f"{better}, or pass --force to {change} it now, which the audit records",
        details={name: getattr(use, name) for name in ("card_id", "box_id", "agent_turn_id", "agent_id")},
    )
