"""The content of a turn's next request in Postgres, and deliverables of earlier turns.

One statement reads a request in one snapshot. If tables of cbx are missing, or our role may not read them,
several queries read the tables that exist. The caller's snapshot then keeps the results consistent.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from cardbox_cli.model.boxes import Provenance, Slot
from cardbox_cli.model.cards import Card, decode_card
from cardbox_cli.model.execution.turns import Head
from cardbox_cli.model.identity import Tool
from cardbox_cli.model.ids import canonical_box_id
from cardbox_cli.store.boxes import BoxInfoStore, slot_of
from cardbox_cli.store.connection.project_store import ProjectStore
from cardbox_cli.store.connection.queries import decode_row
from cardbox_cli.store.execution.turn_store import TurnStore
from cardbox_cli.store.tools import ToolStore

_POINTERS = ("profile", "context", "output")
# Tables that a database may lack although it has the others.
_TOOLS = "resource.tools"
_OPTIONAL_TABLES = ("cbx.box_info", "cbx.turns", _TOOLS)


class _ContextFacts(msgspec.Struct, frozen=True, kw_only=True):
    head: Head | None
    boxes: dict[str, str] | None
    answered: list[str] | None
    config: Any
    provenance: Any = None
    output_start: int | None = None
    tools: list[Tool] | None = None


class StoredContext(msgspec.Struct, frozen=True, kw_only=True):
    """The boxes of a turn, and all other content of its next request. `boxes` are the ids of existing boxes.

    `boxes` and `slots` have the keys `profile`, `context` and `output`. `answered` are the ids of steps in
    the requested states, in order. `output_start` is None if it was not recorded. `config` is empty if the
    dispatch did not set it. `head` is the head of the requested agent.
    """

    head: Head | None
    boxes: Mapping[str, str]
    slots: Mapping[str, Sequence[Slot]]
    answered: Sequence[str]
    config: dict[str, Any]
    provenance: Provenance | None
    output_start: int | None
    tools: Sequence[Tool]


class ContextStore(ProjectStore):
    def read(
        self,
        agent_turn_id: str,
        *,
        agent_id: str | None = None,
        boxes: Mapping[str, str | None] = {},
        answered: Sequence[str] = (),
    ) -> StoredContext:
        """Return the context of a turn. The head of `agent_id` names the boxes that `boxes` does not name.

        `answered` are the states of the steps to return.
        """
        knows_all = self.database.tables.issuperset(_OPTIONAL_TABLES)
        first, *rows = self._rows(
            "turn_context" if knows_all else "turn_context_of_others",
            agent_turn_id=agent_turn_id,
            agent_id=agent_id,
            answered=list(answered),
            **{f"{name}_box_id": canonical_box_id(boxes.get(name) or "") for name in _POINTERS},
        )
        facts = decode_row(_ContextFacts, first[-1])
        slots: dict[str, list[Slot]] = {}
        for pointer, place, card_id, state, card in rows:
            row = (place, card_id, state, None if state == "dangling" else card)
            slots.setdefault(pointer, []).append(slot_of(row))
        stored = StoredContext(
            head=facts.head,
            boxes=facts.boxes or {},
            slots=slots,
            answered=facts.answered or [],
            config=facts.config if isinstance(facts.config, dict) else {},
            provenance=_provenance(facts.provenance),
            output_start=facts.output_start,
            tools=facts.tools or [],
        )
        return stored if knows_all else self._complete(agent_turn_id, stored)

    def _complete(self, agent_turn_id: str, stored: StoredContext) -> StoredContext:
        """Complete the context from those tables that exist."""
        context, database = stored.boxes.get("context"), self.database
        info = BoxInfoStore(database, self.project_id)
        record = TurnStore(database, self.project_id).record(agent_turn_id)
        has_tools = _TOOLS in database.tables
        return msgspec.structs.replace(
            stored,
            provenance=None if context is None else info.provenance(context),
            output_start=None if record is None else record.output_start,
            tools=ToolStore(database, self.project_id).all() if has_tools else [],
        )


def _provenance(stored: Any) -> Provenance | None:
    try:
        return None if stored is None else msgspec.convert(stored, Provenance)
    except msgspec.ValidationError:
        # Another program wrote it in its own format.
        return None


_TABLES = ("state.agent_inbox", "state.agent_state_head", "state.agent_steps")
# Number of inbox rows to search. Only recent deliverables are needed.
_MAX_INBOX_ROWS = 10_000


class ExperienceStore(ProjectStore):
    """The deliverables of one project's turns, for the provider of a layer."""

    def experience(self, profile_box_id: str, limit: int) -> list[Card]:
        """Return the deliverables of successful turns with the same profile, last enqueued first.

        Profiles with the same name, ignoring case, count as the same, because each import of a profile
        creates a box. The profile of the turn counts, not the current one of its agent. Searches the
        project's last 10,000 inbox rows. Skips fallback deliverables, which the turn did not write itself.
        Raises SchemaMissing if the database has no turns.
        """
        self._require(*_TABLES)
        query = "kept_deliverables" if self.database.keeps_turns else "left_deliverables"
        box_id = canonical_box_id(profile_box_id)
        rows = self._column(query, profile_box_id=box_id, latest=_MAX_INBOX_ROWS, limit=limit)
        return [decode_card(row) for row in rows]
