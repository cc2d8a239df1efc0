"""The target of a delegation: which agent gets the task, and what it brings with it.

Reads and decides; the fresh agents are made by `delegation.py` once all targets are known to be good.
"""

import re
from functools import cached_property

import msgspec
import uuid6

from cardbox_cli.errors import BadRequest, NotFound
from cardbox_cli.execution.dispatch_requests import Caller
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.model.handwritten.tasks import Strategy, Task
from cardbox_cli.model.identity import Agent, check_worker_target
from cardbox_cli.store.profiles import ProfileEntry, ProfileStore
from cardbox_cli.store.roster import Places

_NO_WORD = re.compile(r"[^\w-]+", re.ASCII)
# The profile's part of the id of a fresh agent, in characters.
_LONGEST = 100


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """The agent of a task, with its profile; a fresh one `is_new` and to be made.

    `inherited_box_id` is what it reads besides what it is given, `output_box_id` the box that it goes on
    writing (None: a new one).
    """

    strategy: Strategy
    agent: Agent
    profile: ProfileEntry
    is_new: bool
    inherited_box_id: str | None = None
    output_box_id: str | None = None


class Targets:
    """The targets of tasks, within one transaction. A profile is read once, however many tasks name it."""

    def __init__(self, runtime: Runtime, caller: Caller) -> None:
        self._runtime = runtime
        self._caller = caller
        self._profiles = ProfileStore(runtime.database, runtime.project_id)
        self._named: dict[str, ProfileEntry] = {}

    def of(self, task: Task) -> Target:
        """The target of a task. Raises NotFound for one that is not there, or has nothing to be cloned, and
        BadRequest for an agent that waits for the end of this very task."""
        match task.target_strategy:
            case "new":
                return self._new(task.target_ref)
            case "reuse":
                return self._reused(self._places(task.target_ref))
            case "clone":
                return self._cloned(self._places(task.target_ref))

    def _new(self, name: str) -> Target:
        if name not in self._named:
            self._named[name] = self._profiles.get(name)
            self._profiles.refuse_lost_box(self._named[name])
        profile = self._named[name]
        agent = _fresh(profile, owner=self._caller.agent_id)
        # A profile of another program may bring a worker target that no subject can hold.
        check_worker_target(agent.worker_target)
        return Target(strategy="new", agent=agent, profile=profile, is_new=True)

    def _reused(self, places: Places) -> Target:
        agent_id = places.agent.agent_id
        if agent_id in self._waiting:
            raise BadRequest(
                f"agent {agent_id!r} would wait for itself: its turn {self._waiting[agent_id]} goes on"
                " when this task has ended, which begins when that turn has ended",
                hint="the strategy clone makes another agent of it",
            )
        return Target(
            strategy="reuse",
            agent=places.agent,
            profile=self._profile(places.agent),
            is_new=False,
            output_box_id=places.output,
        )

    @cached_property
    def _waiting(self) -> dict[str, str]:
        """The turns that go on when the tasks have ended, by their agents: the caller's where it waits, that
        which waits for the end of the caller's, and so on."""
        found: dict[str, str] = {}
        parent = self._caller.parent
        if parent is None or parent.tool_call_id is None:
            return found
        turn_id: str | None = parent.agent_turn_id
        while turn_id is not None and (head := self._runtime.turns.head_of(turn_id)) is not None:
            if head.agent_id in found:
                break
            found[head.agent_id] = turn_id
            edge = self._runtime.turns.enqueue_edge(turn_id)
            turn_id = edge.source_agent_turn_id if edge is not None and edge.awaiting_call else None
        return found

    def _cloned(self, places: Places) -> Target:
        source = places.agent
        if places.output is None or not self._runtime.boxes.existing([places.output]):
            why = "it never had a turn" if places.output is None else f"the box {places.output!r} is gone"
            raise NotFound(
                f"agent {source.agent_id!r} has no output box to be cloned from: {why}",
                hint="use the strategy new with its profile",
            )
        profile = self._profile(source)
        fresh = _fresh(profile, owner=source.agent_id)
        agent = msgspec.structs.replace(
            fresh,
            worker_target=source.worker_target,
            tags=source.tags,
            metadata={**fresh.metadata, "derived_from": source.agent_id},
        )
        return Target(
            strategy="clone", agent=agent, profile=profile, is_new=True, inherited_box_id=places.output
        )

    def _places(self, agent_id: str) -> Places:
        places = self._runtime.roster.places(agent_id)
        if places is None:
            hint = "`cbx agent list` shows the agents; the strategy new takes a profile's name"
            raise self._runtime.roster.absent(agent_id, hint)
        return places

    def _profile(self, agent: Agent) -> ProfileEntry:
        held = self._profiles.held_by(agent.profile_box_id)
        if held is None:
            raise NotFound(
                f"the profile box {agent.profile_box_id!r} of agent {agent.agent_id!r} holds no profile",
                hint="`cbx profile import` it again, then `cbx agent provision --update`",
            )
        return held


def _fresh(profile: ProfileEntry, *, owner: str) -> Agent:
    """An agent of a profile that is not there yet, under an id that nobody has."""
    return Agent(
        agent_id=fresh_id(profile),
        profile_box_id=profile.profile_box_id,
        worker_target=profile.worker_target,
        tags=profile.tags,
        display_name=None,
        owner_agent_id=owner,
        status="active",
        metadata={"profile_name": profile.name, "spawned_by": owner},
        created_at=None,
    )


def fresh_id(profile: ProfileEntry) -> str:
    """An id that no agent has: the profile's name, as far as ids can hold it, and a UUIDv7."""
    word = _NO_WORD.sub("-", profile.name).strip("-_")[:_LONGEST] or "agent"
    return f"{word}_{uuid6.uuid7().hex}"
