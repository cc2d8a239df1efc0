"""A project in which agents may ask each other."""

import json
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cardbox_cli.execution.dispatch_requests import Caller, DispatchResult, calling_turn
from cardbox_cli.execution.provision import AgentRequest, provision
from cardbox_cli.execution.queue.turn_ends import end_turn
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.model.cards import draft_card
from cardbox_cli.model.content import ToolResultContent
from cardbox_cli.model.handwritten.tasks import Task
from cardbox_cli.store.profiles import ProfileStore
from tests.conftest import PROJECT
from tests.execution.desk import Desk
from tests.execution.worker.conftest import run  # noqa: F401  # a fixture

AddProfile = Callable[..., None]

_MODEL = Path(__file__).parent / "scripted_model.py"


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
        allowed_internal_tools=[
            "delegate_async",
            "launch_principal",
            "ask_expert",
            "fork_join",
            "provision_agent",
        ],
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


def says(*answers: str | dict[str, Any]) -> str:
    """The command of a model that gives these answers one after the other: texts, or the arguments of calls by
    the names of their handlers. It counts its own earlier answers in the request."""
    return f"{shlex.quote(sys.executable)} {shlex.quote(str(_MODEL))} {shlex.quote(json.dumps(answers))}"


def calls(runtime: Runtime, turn_id: str) -> dict[str, Any]:
    """What came of the calls of a turn, by their handlers: results, or errors."""
    row = runtime.inbox.turn_row(turn_id)
    assert row is not None
    found = {}
    for card in runtime.boxes.view(row.pointer("output_box_id") or "").cards:
        if isinstance(card.content, ToolResultContent):
            of = card.content
            found[card.metadata["function_name"]] = of.result if of.status == "success" else of.error
    return found
