"""A project in which agents may ask each other."""

from collections.abc import Callable
from typing import Any

import pytest

from cardbox_cli.execution.dispatch.caller import Caller, calling_turn
from cardbox_cli.execution.dispatch.request import DispatchResult
from cardbox_cli.execution.provision import AgentRequest, provision
from cardbox_cli.execution.queue.ending import end_turn
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.model.cards import draft_card
from cardbox_cli.model.handwritten.tasks import Task
from cardbox_cli.store.profiles import ProfileStore
from tests.conftest import PROJECT
from tests.execution.desk import Desk

AddProfile = Callable[..., None]


@pytest.fixture
def add_profile(runtime: Runtime) -> AddProfile:
    """Import a profile of this name; `delegation_policy` and the like as named."""

    def add(name: str, **more: Any) -> None:
        profile = {"name": name, "worker_target": "worker_generic", "tags": [], **more}
        ProfileStore(runtime.database, PROJECT).save(profile, author_id="t")

    return add


@pytest.fixture
def lead(runtime: Runtime, add_profile: AddProfile) -> str:
    """An agent whose profile may ask everybody, and use every handler."""
    add_profile(
        "lead",
        delegation_policy={"target_profiles": None, "target_tags": []},
        allowed_internal_tools=["delegate_async", "launch_principal", "ask_expert", "provision_agent"],
    )
    provision(runtime.database, PROJECT, AgentRequest(agent_id="lead", profile_name="lead"))
    return "lead"


@pytest.fixture
def asking(runtime: Runtime, lead: str, ask: Callable[..., DispatchResult]) -> Caller:
    """The agent `lead` in a turn of its."""
    turn_id = ask(lead).agent_turn_id
    assert turn_id is not None
    return calling_turn(runtime, turn_id)


def task(strategy: str = "new", ref: str = "clerk", instruction: str = "Do it.", **more: Any) -> Task:
    return Task.model_validate(
        {"target_strategy": strategy, "target_ref": ref, "instruction": instruction, **more}
    )


def finish(desk: Desk, words: str) -> None:
    """The turn that is due delivers these words."""
    work, runtime = desk.enter(), desk.runtime
    head = runtime.heads.get(work.fence.agent_id)
    assert head is not None
    draft = draft_card(
        "task.deliverable",
        words,
        role="assistant",
        author_id=head.agent_id,
        metadata={"agent_turn_id": work.fence.agent_turn_id},
    )
    with runtime.transaction():
        runtime.cards.add(draft)
        runtime.boxes.append(head.output_box_id or "", [draft.card_id], fence=work.fence)
        end_turn(runtime, work.fence, "success")
