"""`provision_agent`: see to it that an agent is there; the same again changes nothing."""

from typing import TYPE_CHECKING, Any

from pydantic import Field

from cardbox_cli.errors import NotAllowed
from cardbox_cli.execution.handlers import Handler
from cardbox_cli.execution.provision import AgentRequest, provision
from cardbox_cli.model.handwritten.validation import Trimmed
from cardbox_cli.orchestration.handlers.arguments import Arguments, read_arguments
from cardbox_cli.orchestration.policy import refusal_of
from cardbox_cli.orchestration.targets import fresh_id
from cardbox_cli.store.profiles import ProfileStore

if TYPE_CHECKING:
    from cardbox_cli.execution.dispatch.caller import Caller
    from cardbox_cli.execution.runtime import Runtime

_NAME = "provision_agent"


class _Arguments(Arguments):
    profile: Trimmed = Field(description="The name of the profile that the agent works by.")
    agent_id: Trimmed | None = Field(default=None, description="The agent's id; without one, a new agent.")
    owner: Trimmed | None = Field(default=None, description="The agent that it belongs to; without one, you.")


def _handle(runtime: "Runtime", caller: "Caller", arguments: dict[str, Any]) -> Any:
    asked = read_arguments(_Arguments, _NAME, arguments)
    profile = ProfileStore(runtime.database, runtime.project_id).get(asked.profile)
    refused = refusal_of(caller.profile, profile.name, profile.tags) if caller.is_model else None
    if refused is not None:
        raise NotAllowed(
            f"{_NAME}: profile: {refused}", hint="`cbx profile show` shows its delegation_policy"
        )
    request = AgentRequest(
        agent_id=asked.agent_id or fresh_id(profile),
        profile_name=profile.name,
        owner_agent_id=asked.owner or caller.agent_id,
    )
    done = provision(runtime.database, runtime.project_id, request, source_agent_id=caller.agent_id)
    return {"status": "accepted", "agent_id": done.agent.agent_id, "action": done.action}


HANDLER = Handler(
    name=_NAME,
    description="Make an agent of a profile, idle, that can be given tasks later. One that is there already "
    "as asked for stays as it is.",
    parameters=_Arguments.parameters(),
    function=_handle,
)
