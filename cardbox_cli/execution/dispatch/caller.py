"""On whose behalf turns are asked for: an agent at a call of a turn of its, an agent that a person names, or
a person alone.

Owns what is known of the caller before anything is asked: its profile, and the boxes that it sees.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from cardbox_cli.context.request import profile_of
from cardbox_cli.errors import Conflict, NotFound
from cardbox_cli.execution.dispatch.request import Parent
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.model.cards import OPERATOR
from cardbox_cli.model.execution.turns import DEFAULT_CHANNEL
from cardbox_cli.model.identity import PLATFORM
from cardbox_cli.store.profiles import ProfileStore
from cardbox_cli.text import argument


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """Who asks; by default a person at a terminal.

    `parent` is the turn, step and call in which an agent asks, `profile` what its profile says (None where it
    has none), `output_box_id` the box that it writes, or wrote last. `is_model`: nobody else decided it, so
    what its profile does not allow, and what is not among `visible_box_ids`, is refused.
    """

    agent_id: str = OPERATOR
    parent: Parent | None = None
    channel_id: str = DEFAULT_CHANNEL
    profile: Mapping[str, Any] | None = None
    visible_box_ids: frozenset[str] = frozenset()
    output_box_id: str | None = None
    is_model: bool = False

    @property
    def is_agent(self) -> bool:
        """Whether it is an agent, and no person or platform."""
        return not self.agent_id.startswith(PLATFORM)


def calling_turn(
    runtime: Runtime, agent_turn_id: str, *, step_id: str | None = None, tool_call_id: str | None = None
) -> Caller:
    """The agent of an active turn, which asks at this step and call of it.

    Raises NotFound for an unknown turn, Conflict for one that is not active.
    """
    head = runtime.turns.head_of(agent_turn_id)
    if head is None:
        if runtime.inbox.turn_row(agent_turn_id) is None:
            raise NotFound(f"no turn {agent_turn_id!r}", hint="`cbx turn list` shows the turns")
        hint = f"`cbx turn show {argument(agent_turn_id)}` tells where it is; only an active turn calls"
        raise Conflict(f"turn {agent_turn_id} is not active", hint=hint)
    parent = Parent(agent_turn_id=agent_turn_id, step_id=step_id, tool_call_id=tool_call_id)
    asking = _agent(runtime, head.agent_id)
    channel_id = head.active_channel_id or DEFAULT_CHANNEL
    return msgspec.structs.replace(asking, parent=parent, channel_id=channel_id, is_model=True)


def named_caller(runtime: Runtime, agent_id: str) -> Caller:
    """Whom a person names at a terminal. Raises NotFound for an unknown agent."""
    return Caller(agent_id=agent_id) if agent_id.startswith(PLATFORM) else _agent(runtime, agent_id)


def _agent(runtime: Runtime, agent_id: str) -> Caller:
    places = runtime.roster.places(agent_id)
    if places is None:
        raise runtime.roster.absent(agent_id, "`cbx agent list` shows the agents")
    card = ProfileStore(runtime.database, runtime.project_id).card(places.profile_box_id)
    return Caller(
        agent_id=agent_id,
        profile=None if card is None else profile_of([card]),
        visible_box_ids=places.box_ids,
        output_box_id=places.output,
    )
