"""Provision an agent in one transaction: write its roster entry, its idle head, and the edge of its creation.

An existing agent changes only with `update`. A turn that is already running keeps its profile.
"""

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from cardbox_cli.errors import Conflict
from cardbox_cli.model.cards import OPERATOR
from cardbox_cli.model.identity import PLATFORM, Agent, check_agent_id, check_label, check_worker_target
from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.profiles import ProfileEntry, ProfileStore
from cardbox_cli.store.projects import ensure_project
from cardbox_cli.store.roster import AgentStore


class AgentRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The requested settings of an agent. If a setting is None, the profile or the existing agent has it."""

    agent_id: str
    profile_name: str
    worker_target: str | None = None
    tags: list[str] | None = None
    display_name: str | None = None
    owner_agent_id: str | None = None
    metadata: Mapping[str, Any] = {}

    @property
    def given_fields(self) -> dict[str, Any]:
        """The fields of the agent that are not None, without the profile."""
        return {name: value for name in _LABELS if (value := getattr(self, name)) is not None}


_LABELS = {
    "worker_target": "worker target",
    "tags": "tags",
    "display_name": "display name",
    "owner_agent_id": "owner",
}


class ProvisionOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """A provisioned agent, and whether it was created, changed or left as it was.

    `outdated` is True if the agent still has an older version of its profile.
    """

    agent: Agent
    action: Literal["provision", "update", "unchanged"]
    outdated: bool = False


def provision(
    database: Database,
    project_id: str,
    request: AgentRequest,
    *,
    update: bool = False,
    source_agent_id: str = OPERATOR,
) -> ProvisionOutcome:
    """Make sure that the agent exists with the requested settings. Joins the caller's transaction.

    An existing agent changes only if `update` is True. Raises NotFound for an unknown profile or owner,
    InvalidInput for invalid names, and Conflict if the agent exists with other settings. Then no row changes.
    """
    _check(request)
    roster, profiles = AgentStore(database, project_id), ProfileStore(database, project_id)
    with database.transaction():
        ensure_project(database, project_id, source_agent_id)
        profile = profiles.get(request.profile_name)
        profiles.refuse_lost_box(profile)
        if request.owner_agent_id is not None and not request.owner_agent_id.startswith(PLATFORM):
            roster.get(request.owner_agent_id)
        agent = add_agent(roster, _new_agent(request, profile), source_agent_id=source_agent_id)
        if agent is not None:
            return ProvisionOutcome(agent=agent, action="provision")
        known = roster.lock(request.agent_id)
        if known is None:
            raise Conflict(f"agent {request.agent_id!r} has just been removed", hint="provision it again")
        roster.begin_head(known)
        if not update:
            _refuse_differences(known, request, profile)
            outdated = known.profile_box_id != profile.profile_box_id
            return ProvisionOutcome(agent=known, action="unchanged", outdated=outdated)
        own_version = profiles.card(known.profile_box_id)
        changed = _apply_request(known, request, profile, own_version.metadata if own_version else {})
        if changed == known:
            return ProvisionOutcome(agent=known, action="unchanged")
        agent = roster.change(changed)
        roster.record("update", agent, source_agent_id=source_agent_id)
        return ProvisionOutcome(agent=agent, action="update")


def add_agent(roster: AgentStore, agent: Agent, *, source_agent_id: str) -> Agent | None:
    """Write a new agent, its idle head and its edge. Return the stored agent, or None if its id is taken.

    Runs in the caller's transaction.
    """
    added = roster.add(agent)
    if added is not None:
        roster.begin_head(added)
        roster.record("provision", added, source_agent_id=source_agent_id)
    return added


def _check(request: AgentRequest) -> None:
    check_agent_id(request.agent_id)
    if request.worker_target is not None:
        check_worker_target(request.worker_target)
    if request.display_name is not None:
        check_label(request.display_name, "display name")
    for tag in request.tags or ():
        check_label(tag, "tag")


def _new_agent(request: AgentRequest, profile: ProfileEntry) -> Agent:
    # Another program may have written a profile whose worker target is invalid in a NATS subject.
    worker_target = profile.worker_target if request.worker_target is None else request.worker_target
    check_worker_target(worker_target)
    return Agent(
        agent_id=request.agent_id,
        profile_box_id=profile.profile_box_id,
        worker_target=worker_target,
        tags=profile.tags if request.tags is None else request.tags,
        display_name=request.display_name,
        owner_agent_id=request.owner_agent_id,
        status="active",
        metadata={**request.metadata, "profile_name": profile.name},
        created_at=None,
    )


def _refuse_differences(known: Agent, request: AgentRequest, profile: ProfileEntry) -> None:
    differing = [
        f"{_LABELS[name]} {getattr(known, name)!r}"
        for name, value in request.given_fields.items()
        if getattr(known, name) != value
    ]
    if not _has_profile(known, profile):
        differing.insert(0, f"profile {known.profile_name or known.profile_box_id!r}")
    if differing:
        raise Conflict(
            f"agent {known.agent_id!r} exists with {', '.join(differing)}",
            hint="add --update to change the agent",
            details={"agent": msgspec.to_builtins(known)},
        )


def _has_profile(known: Agent, profile: ProfileEntry) -> bool:
    """Return whether the agent has any version of this profile."""
    if known.profile_box_id == profile.profile_box_id:
        return True
    return known.profile_name is not None and known.profile_name.lower() == profile.name.lower()


def _apply_request(
    known: Agent, request: AgentRequest, profile: ProfileEntry, defaults: Mapping[str, Any]
) -> Agent:
    """Return the agent with the requested changes. Values equal to the old `defaults` follow the profile."""
    names = [name for name in ("worker_target", "tags") if defaults.get(name) == getattr(known, name)]
    inherited = {name: getattr(profile, name) for name in names}
    changed = msgspec.structs.replace(
        known,
        profile_box_id=profile.profile_box_id,
        metadata={**known.metadata, **request.metadata, "profile_name": profile.name},
        **{**inherited, **request.given_fields},
    )
    check_worker_target(changed.worker_target)
    return changed
