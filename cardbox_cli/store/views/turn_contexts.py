"""What the next request of a turn is made of, in Postgres: one statement reads all of it, as of one moment.

Where tables of cbx are missing, or may not be read, what they would hold is read for itself, if at all: then
the caller's snapshot makes one moment of it.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from cardbox_cli.model.boxes import Provenance, Slot
from cardbox_cli.model.cards import Card, decode_card
from cardbox_cli.model.execution.turns import Head
from cardbox_cli.model.identity import Tool
from cardbox_cli.model.ids import as_box_id
from cardbox_cli.store.boxes import BoxInfoStore, slot_of
from cardbox_cli.store.connection.project_store import ProjectStore
from cardbox_cli.store.connection.queries import decoded
from cardbox_cli.store.execution.turn_store import TurnStore
from cardbox_cli.store.tools import ToolStore

_POINTERS = ("profile", "context", "output")
# Tables that a database may lack which has the others.
_TOOLS = "resource.tools"
_OWN = ("cbx.box_info", "cbx.turns", _TOOLS)


class _Facts(msgspec.Struct, frozen=True, kw_only=True):
    head: Head | None
    boxes: dict[str, str] | None
    answered: list[str] | None
    config: Any
    provenance: Any = None
    output_start: int | None = None
    tools: list[Tool] | None = None


class StoredContext(msgspec.Struct, frozen=True, kw_only=True):
    """A turn's boxes and all else that its next request is made of. `boxes` are the ids of those that exist.

    Both are by what the turn calls them: `profile`, `context`, `output`. `answered` are the ids of its steps
    that were asked for, in order; `output_start` is None where it was never noted, `config` empty where
    the dispatch asked nothing of the worker. `head` is that of the agent that was asked for.
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
    """What the requests of one project's turns are made of."""

    def read(
        self,
        agent_turn_id: str,
        *,
        agent_id: str | None = None,
        boxes: Mapping[str, str | None] = {},
        answered: Sequence[str] = (),
    ) -> StoredContext:
        """The context of a turn, in these boxes, and in those of the head of `agent_id` that are not named.

        `answered` are the states of the steps that are asked for.
        """
        knows_all = self.database.tables.issuperset(_OWN)
        first, *rows = self._rows(
            "turn_context" if knows_all else "turn_context_of_others",
            agent_turn_id=agent_turn_id,
            agent_id=agent_id,
            answered=list(answered),
            **{
                f"{name}_box_id": as_box_id(boxes.get(name) or "")
                for name in ("profile", "context", "output")
            },
        )
        facts = decoded(_Facts, first[-1])
        slots: dict[str, list[Slot]] = {}
        for pointer, place, card_id, state, card in rows:
            found = (place, card_id, state, None if state == "dangling" else card)
            slots.setdefault(pointer, []).append(slot_of(found))
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
        return stored if knows_all else self._completed(agent_turn_id, stored)

    def _completed(self, agent_turn_id: str, stored: StoredContext) -> StoredContext:
        """With what those of the tables hold that are there."""
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


def _provenance(found: Any) -> Provenance | None:
    try:
        return None if found is None else msgspec.convert(found, Provenance)
    except msgspec.ValidationError:
        # Another program wrote it: nobody knows.
        return None


# What turns with one profile delivered: a look at inbox rows, profiles' boxes, the ends of turns and cards.
#
# The rows are read as they are, another program's too; nothing is kept of them.


_TABLES = ("state.agent_inbox", "state.agent_state_head", "state.agent_steps")
# How many inbox rows are looked at: experience is what was done lately.
_LATEST = 10_000


class ExperienceStore(ProjectStore):
    """The deliverables of one project's turns, as a layer's provider gives them."""

    def experience(self, profile_box_id: str, limit: int) -> list[Card]:
        """What turns with the same profile delivered that ended in success, the last enqueued first.

        The same profile is one of the same name in any case: importing a name again makes a new box. What
        counts is the profile that the turn ran with, whatever its agent has had since. Looks at the project's
        last 10,000 inbox rows. A deliverable that stands for one that the turn did not make is none. Raises
        SchemaMissing where the database has no turns.
        """
        for table in _TABLES:
            self.database.require(table)
        query = "kept_deliverables" if self.database.keeps_turns else "left_deliverables"
        rows = self._rows(query, profile_box_id=as_box_id(profile_box_id), latest=_LATEST, limit=limit)
        return [decode_card(row) for (row,) in rows]
