"""Who uses boxes: turns that wait or run, and agents; and the refusal to change a box under them.

What a turn reads stays as it was when the turn was asked for, and what a turn writes, it alone writes. The
caller holds the box, so that no turn can be asked for meanwhile. Where the database has no turns nothing is
in use.
"""

from collections.abc import Sequence
from typing import Any

from cardbox_cli.errors import BoxConflict
from cardbox_cli.model.boxes import BoxTurn
from cardbox_cli.model.chats import BOX_CARDS, transcript_box
from cardbox_cli.store.connection.project_store import ProjectStore
from cardbox_cli.store.connection.tables import CHATS

_TABLES = frozenset({"state.agent_inbox", "state.agent_state_head"})
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
        if not self.database.tables.issuperset(_TABLES | _AGENTS):
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
        if not box_ids or not self.database.tables.issuperset(_TABLES):
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
        if not box_ids or not self.database.tables.issuperset(_TABLES):
            return []
        return self._rows("turns_using_boxes", box_ids=list(box_ids))


def _in_use(box_id: str, what: str, agent_id: str, *, active: bool) -> BoxConflict:
    state = "is active" if active else "waits to run"
    return BoxConflict(
        f"box {box_id} is {what} of agent {agent_id!r}, which {state}",
        hint=f"it can be changed when that has ended; `cbx box fork {box_id}` makes a copy to change now",
        details={"box_id": box_id, "agent_id": agent_id},
    )
