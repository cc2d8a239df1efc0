"""An agent that can be asked, and what asks it."""

from collections.abc import Callable

import pytest

from cardbox_cli.execution.dispatch import DispatchRequest, DispatchResult, dispatch
from cardbox_cli.execution.provision import AgentRequest, provision
from cardbox_cli.execution.runtime import Call, Runtime
from cardbox_cli.execution.settings import Settings
from cardbox_cli.model.cards import draft_card
from cardbox_cli.store.database import Database
from cardbox_cli.store.profiles import ProfileStore
from tests.conftest import PROJECT

Asked = Callable[..., DispatchResult]


class Heard:
    """For whom a runtime rang, in order."""

    def __init__(self) -> None:
        self.calls: list[Call] = []


@pytest.fixture
def heard() -> Heard:
    return Heard()


@pytest.fixture
def runtime(database: Database, heard: Heard) -> Runtime:
    """Project PROJECT with agents `clerk` and `scribe`, both of profile `clerk` and target `worker_generic`."""
    ProfileStore(database, PROJECT).save(
        {"name": "clerk", "worker_target": "worker_generic", "tags": [], "system_prompt": "You are a clerk."},
        author_id="t",
    )
    for agent_id in ("clerk", "scribe"):
        provision(database, PROJECT, AgentRequest(agent_id=agent_id, profile_name="clerk"))
    return Runtime(database, PROJECT, settings=Settings(), ring=heard.calls.append)


@pytest.fixture
def context_box(runtime: Runtime) -> str:
    """A box that holds one instruction."""
    card = draft_card("task.instruction", "Find the cause.")
    runtime.cards.add(card)
    return runtime.boxes.create([card.card_id]).box_id


@pytest.fixture
def ask(runtime: Runtime, context_box: str) -> Asked:
    """Dispatch a turn to `clerk`, or as the arguments say."""

    def ask(agent_id: str = "clerk", /, **wishes: object) -> DispatchResult:
        request = DispatchRequest(target_agent_id=agent_id, **{"context_box_id": context_box, **wishes})  # type: ignore[arg-type]
        return dispatch(runtime, request).result

    return ask
