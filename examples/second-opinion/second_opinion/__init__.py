"""`second_opinion`: a reviewer reads what an agent has done so far; its verdict is the result of the call.

A handler of its own with a recipe of its own. It runs in the transaction in which the worker stores what
comes of the call: whatever it raises, nothing stays of what it did.
"""

from functools import cache
from pathlib import Path
from typing import Any

from cardbox_cli.errors import BadRequest, NotAccepted
from cardbox_cli.execution.dispatch import dispatch
from cardbox_cli.execution.dispatch_requests import Caller, DispatchRequest, Handover
from cardbox_cli.execution.handlers import Awaiting, Handler
from cardbox_cli.execution.provision import AgentRequest, provision
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.packing.recipe_files import LoadedRecipe, read_recipe

REVIEWER = "reviewer"


@cache
def _recipe() -> LoadedRecipe:
    return read_recipe(str(Path(__file__).with_name("second-opinion.yaml")), folders=())


def _ask(runtime: Runtime, caller: Caller, arguments: dict[str, Any]) -> Awaiting:
    doubt = arguments.get("doubt")
    if not isinstance(doubt, str) or not doubt.strip():
        raise BadRequest("second_opinion: doubt: expected a text that is not blank")
    if caller.output_box_id is None or caller.parent is None:
        raise BadRequest("second_opinion: nothing has been done yet")
    # One reviewer for all; `provision` leaves one that is there as it is.
    provision(runtime.database, runtime.project_id, AgentRequest(agent_id=REVIEWER, profile_name=REVIEWER))
    given = {"profile_name": REVIEWER, "work_box_ids": [caller.output_box_id], "doubt": doubt}
    loaded = _recipe()
    asked = dispatch(
        runtime,
        DispatchRequest(
            target_agent_id=REVIEWER,
            handover=Handover(recipe=loaded.recipe, recipe_name=loaded.name, arguments=given),
            source_agent_id=caller.agent_id,
            channel_id=caller.channel_id,
            # The turn of the caller and its call: the end of the reviewer's turn answers that.
            parent=caller.parent,
        ),
    )
    if asked.result.status != "accepted":
        raise NotAccepted(f"second_opinion: {asked.message}")
    return Awaiting(seconds=3600)


HANDLER = Handler(
    name="second_opinion",
    description="Have a reviewer read what you have done so far. Its verdict is the result of this call.",
    parameters={
        "type": "object",
        "properties": {"doubt": {"type": "string", "description": "What you are not sure of."}},
        "required": ["doubt"],
        "additionalProperties": False,
    },
    function=_ask,
)
