"""Agents in Postgres: one project's view of `resource.project_agents`, with the head of each agent.

Owns the roster entry, the idle head of a new agent, and the edge that records who created or changed it.
Other stores write the head later. Methods run in the caller's transaction.
"""

from collections.abc import Iterator
from typing import Any, Literal

import msgspec

from cardbox_cli.errors import NotFound
from cardbox_cli.model.execution.turns import new_id
from cardbox_cli.model.identity import Agent, RosterEntry
from cardbox_cli.store.connection.database import jsonb
from cardbox_cli.store.connection.project_store import (
    MAX_COUNTED,
    FurtherCount,
    NameQuery,
    ProjectStore,
    read_pages,
)
from cardbox_cli.store.connection.queries import decode_row

_TABLE = "resource.project_agents"
_HEADS = "state.agent_state_head"
_NO_AGENT = "`cbx agent list` shows the agents"
_NAMES = NameQuery("agent_ids_like", _TABLE)


class AgentFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Filter of a list of agents. None matches any value. The list continues after the id `behind`."""

    worker_target: str | None = None
    tag: str | None = None
    behind: str | None = None


class AgentBoxes(msgspec.Struct, frozen=True, kw_only=True):
    """An agent, its active turn, and the boxes of that turn, or of its last turn if it is idle."""

    agent: Agent
    status: str
    active_agent_turn_id: str | None
    active_channel_id: str | None
    profile_box_id: str
    context_box_id: str | None
    output_box_id: str | None
    memory_context_box_id: str | None
    last_output_box_id: str | None

    @property
    def output(self) -> str | None:
        """Return the box that the agent writes or last wrote, or None if it never wrote one."""
        return self.output_box_id or self.last_output_box_id

    @property
    def box_ids(self) -> frozenset[str]:
        boxes = (
            self.profile_box_id,
            self.context_box_id,
            self.output_box_id,
            self.memory_context_box_id,
            self.last_output_box_id,
        )
        return frozenset(filter(None, boxes))


class AgentStore(ProjectStore):
    def get(self, agent_id: str) -> Agent:
        """Return the agent with this id. Raises NotFound."""
        return self._require_item(self.find(agent_id), "agent", agent_id, _NO_AGENT, names=_NAMES)

    def not_found(self, agent_id: str, hint: str = _NO_AGENT) -> NotFound:
        """Return NotFound for an unknown agent. Suggests a similar id if our role may read the roster."""
        return self._not_found("agent", agent_id, hint, names=_NAMES)

    def is_absent(self, agent_id: str) -> bool:
        """Return whether no agent has this id. Returns False if our role may not read the roster."""
        return _TABLE in self.database.tables and self.find(agent_id) is None

    def find(self, agent_id: str) -> Agent | None:
        return self._agent("agent_by_id", agent_id)

    def lock(self, agent_id: str) -> Agent | None:
        """Return the agent, locked until the transaction ends, or None if the id is unknown."""
        return self._agent("lock_agent", agent_id)

    def entry(self, agent_id: str) -> RosterEntry:
        """Return the agent with this id and its head. Raises NotFound."""
        self._require(_TABLE, _HEADS)
        entry = self._one(RosterEntry, "roster_entry", agent_id=agent_id)
        return self._require_item(entry, "agent", agent_id, _NO_AGENT, names=_NAMES)

    def places(self, agent_id: str) -> AgentBoxes | None:
        """Return the agent and its boxes, or None if it is not on the roster."""
        self._require(_TABLE, _HEADS, "state.agent_state_pointers")
        return self._one(AgentBoxes, "agent_places", agent_id=agent_id)

    def list(self, where: AgentFilter, *, limit: int | None = None) -> Iterator[RosterEntry]:
        """Yield agents and their heads by id, reading page by page."""
        self._require(_TABLE, _HEADS)
        return read_pages(
            lambda after, size: self._all(RosterEntry, "list_agents", **_query(where, after), limit=size),
            limit=limit,
        )

    def further(self, where: AgentFilter, last: Agent) -> FurtherCount:
        count = self._value("count_further_agents", **_query(where, last), limit=MAX_COUNTED + 1)
        return FurtherCount.cap(count, count)

    def add(self, agent: Agent) -> Agent | None:
        """Insert a new, active agent. Returns the stored agent, or None if its id is taken.

        Waits for a concurrent transaction that adds the same agent.
        """
        self._require(_TABLE)
        return self._one(Agent, "insert_agent", **_columns(agent))

    def change(self, agent: Agent) -> Agent:
        """Overwrite a locked agent and return the stored one. Keeps the status and merges the metadata."""
        return decode_row(Agent, self._value("update_agent", **_columns(agent)))

    def begin_head(self, agent: Agent) -> None:
        """Create an idle head for a new agent. Does nothing for an agent with a head, open rows or steps."""
        self._require(_HEADS, "state.agent_inbox", "state.agent_steps")
        self._run("insert_first_head", agent_id=agent.agent_id, profile_box_id=agent.profile_box_id)

    def can_begin_head(self, agent_id: str) -> bool:
        """Return whether `begin_head` would create a head for this agent, which has none."""
        self._require(_HEADS, "state.agent_inbox", "state.agent_steps")
        return bool(self._value("never_did_anything", agent_id=agent_id))

    def record(self, action: Literal["provision", "update"], agent: Agent, *, source_agent_id: str) -> None:
        """Write the identity edge, which records the change that `source_agent_id` made to the agent."""
        self._require("state.identity_edges")
        values = {name: getattr(agent, name) for name in _RECORDED}
        edge = {"edge_id": new_id("edge"), "action": action, "source_agent_id": source_agent_id}
        metadata = jsonb({**agent.metadata, **values})
        self._run("insert_identity_edge", **edge, agent_id=agent.agent_id, metadata=metadata)

    def _agent(self, query: str, agent_id: str) -> Agent | None:
        self._require(_TABLE)
        return self._one(Agent, query, agent_id=agent_id)


# The fields of an agent that the identity edge records.
_RECORDED = ("profile_box_id", "worker_target", "tags", "display_name", "owner_agent_id")


def _columns(agent: Agent) -> dict[str, Any]:
    values = msgspec.structs.asdict(agent)
    return {**values, "tags": jsonb(agent.tags), "metadata": jsonb(agent.metadata)}


def _query(where: AgentFilter, after: Agent | None) -> dict[str, Any]:
    return {**msgspec.structs.asdict(where), "after": where.behind if after is None else after.agent_id}
