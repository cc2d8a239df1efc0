"""The target of a delegation: the agent that gets the task, with its profile and boxes.

This module reads and decides. `delegation.py` creates new agents once all targets are known to be valid.
"""

import re
from functools import cached_property
from typing import Any

import msgspec
import uuid6

from cardbox_cli.errors import BadRequest, NotFound
from cardbox_cli.execution.dispatch_requests import Caller
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.model.handwritten.tasks import Strategy, Task
from cardbox_cli.model.identity import Agent, check_worker_target
from cardbox_cli.store.profiles import ProfileEntry, ProfileStore
from cardbox_cli.store.roster import AgentBoxes

_INVALID_CHARACTERS = re.compile(r"[^\w-]+", re.ASCII)
# The maximum number of characters of the profile's name in the id of a new agent.
_MAX_NAME_LENGTH = 100


class DelegationTarget(msgspec.Struct, frozen=True, kw_only=True):
    """The agent of a task, with its profile. If `is_new` is True, the agent must be created.

    The agent reads `inherited_box_id` in addition to the boxes of the task. It continues to write to
    `output_box_id`, or gets a new output box if that is None.
    """

    strategy: Strategy
    agent: Agent
    profile: ProfileEntry
    is_new: bool
    inherited_box_id: str | None = None
    output_box_id: str | None = None


class DelegationTargets:
    """The targets of tasks, within one transaction. Each profile is read once."""

    def __init__(self, runtime: Runtime, caller: Caller) -> None:
        self._runtime = runtime
        self._caller = caller
        self._profiles = ProfileStore(runtime.database, runtime.project_id)
        self._named: dict[str, ProfileEntry] = {}

    def find(self, task: Task) -> DelegationTarget:
        """Return the target of a task.

        Raises NotFound if the agent or profile does not exist, or has no box to clone. Raises BadRequest for
        an agent that waits for the end of this task.
        """
        match task.target_strategy:
            case "new":
                return self._new(task.target_ref)
            case "reuse":
                return self._reuse(self._places(task.target_ref))
            case "clone":
                return self._clone(self._places(task.target_ref))

    def _new(self, name: str) -> DelegationTarget:
        if name not in self._named:
            self._named[name] = self._profiles.get(name)
            self._profiles.refuse_lost_box(self._named[name])
        profile = self._named[name]
        caller_id = self._caller.agent_id
        agent = new_agent(profile, owner=caller_id, metadata={"spawned_by": caller_id})
        # Another program may have written a worker target that is invalid in a NATS subject.
        check_worker_target(agent.worker_target)
        return DelegationTarget(strategy="new", agent=agent, profile=profile, is_new=True)

    def _reuse(self, places: AgentBoxes) -> DelegationTarget:
        agent_id = places.agent.agent_id
        if agent_id in self._waiting:
            raise BadRequest(
                f"deadlock: turn {self._waiting[agent_id]} of agent {agent_id!r} is waiting for this task,"
                f" so {agent_id!r} cannot also run it",
                hint="use the strategy clone to copy the agent",
            )
        return DelegationTarget(
            strategy="reuse",
            agent=places.agent,
            profile=self._profile(places.agent),
            is_new=False,
            output_box_id=places.output,
        )

    @cached_property
    def _waiting(self) -> dict[str, str]:
        """The chain of waiting turns, by agent. It begins with the caller's turn if its tool call waits."""
        turn_ids: dict[str, str] = {}
        parent = self._caller.parent
        turn_id = None if parent is None or parent.tool_call_id is None else parent.agent_turn_id
        while turn_id is not None and (head := self._runtime.turns.head_of(turn_id)) is not None:
            if head.agent_id in turn_ids:
                break
            turn_ids[head.agent_id] = turn_id
            edge = self._runtime.turns.enqueue_edge(turn_id)
            turn_id = edge.source_agent_turn_id if edge is not None and edge.awaiting_call else None
        return turn_ids

    def _clone(self, places: AgentBoxes) -> DelegationTarget:
        source = places.agent
        if places.output is None or not self._runtime.boxes.filter_existing([places.output]):
            why = "it never had a turn" if places.output is None else f"the box {places.output!r} is gone"
            raise NotFound(
                f"agent {source.agent_id!r} has no output box to clone: {why}",
                hint="use the strategy new with its profile",
            )
        profile = self._profile(source)
        agent = new_agent(
            profile,
            worker_target=source.worker_target,
            tags=source.tags,
            owner=source.agent_id,
            metadata={"spawned_by": self._caller.agent_id, "derived_from": source.agent_id},
        )
        return DelegationTarget(
            strategy="clone", agent=agent, profile=profile, is_new=True, inherited_box_id=places.output
        )

    def _places(self, agent_id: str) -> AgentBoxes:
        places = self._runtime.roster.places(agent_id)
        if places is None:
            hint = "`cbx agent list` shows the agents; the strategy new takes a profile's name"
            raise self._runtime.roster.not_found(agent_id, hint)
        return places

    def _profile(self, agent: Agent) -> ProfileEntry:
        profile = self._profiles.profile_in_box(agent.profile_box_id)
        if profile is None:
            raise NotFound(
                f"the profile box {agent.profile_box_id!r} of agent {agent.agent_id!r} has no profile",
                hint="run `cbx profile import FILE`, then `cbx agent provision AGENT --profile P --update`",
            )
        return profile


def new_agent(
    profile: ProfileEntry,
    *,
    owner: str | None,
    metadata: dict[str, Any],
    worker_target: str | None = None,
    tags: list[str] | None = None,
) -> Agent:
    """Return a new agent with a unique id. Arguments that are None are taken from the profile."""
    return Agent(
        agent_id=new_agent_id(profile),
        profile_box_id=profile.profile_box_id,
        worker_target=profile.worker_target if worker_target is None else worker_target,
        tags=profile.tags if tags is None else tags,
        display_name=None,
        owner_agent_id=owner,
        status="active",
        metadata={"profile_name": profile.name, **metadata},
        created_at=None,
    )


def new_agent_id(profile: ProfileEntry) -> str:
    """Return a unique agent id, made of the valid characters of the profile's name and a UUIDv7."""
    prefix = _INVALID_CHARACTERS.sub("-", profile.name).strip("-_")[:_MAX_NAME_LENGTH] or "agent"
    return f"{prefix}_{uuid6.uuid7().hex}"
