"""Calls whose models name them alike, as many do by counting: each has an id of its own in the project."""

import json
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from cardbox_cli.context.request import ComposeOptions
from cardbox_cli.execution.dispatch_requests import DispatchResult
from cardbox_cli.execution.provision import AgentRequest, provision
from cardbox_cli.execution.queue.claims import ClaimedWork, begin, claim
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.execution.worker.ledger import read_turn
from cardbox_cli.execution.worker.runner import CancellationToken, Run, RunOutcome
from cardbox_cli.execution.worker.step_answers import StepAnswer
from cardbox_cli.execution.worker.step_requests import begin_step
from cardbox_cli.execution.worker.turn_ledger import TurnLedger, read_step_answer, store_answer
from cardbox_cli.execution.worker.worker_program import Program, ToolCommands
from cardbox_cli.model.execution.turns import TurnEnd
from cardbox_cli.model.identity import Tool
from cardbox_cli.store.profiles import ProfileStore
from cardbox_cli.store.tools import ToolStore
from tests.conftest import PROJECT
from tests.execution.desk import Desk

Ask = Callable[..., DispatchResult]
AtOnce = Callable[[Callable[[], Any]], Future[Any]]
CALLS = ("call_1", "call_0")

_MADE = [
    {"id": call_id, "type": "function", "function": {"name": "look", "arguments": "{}"}} for call_id in CALLS
]
ANSWER = json.dumps({"role": "assistant", "content": None, "tool_calls": _MADE})
MODEL = f"""case $(cat) in *'"role":"tool"'*) echo Done. ;; *) printf '%s' '{ANSWER}' ;; esac"""


def take(desk: Desk) -> ClaimedWork:
    [claimed] = claim(desk.runtime, target=None, owner=desk.owner)
    return begin(desk.runtime, claimed.row, owner=desk.owner)


def run(desk: Desk, work: ClaimedWork) -> RunOutcome:
    """Run a turn by a model that calls a tool twice, which others answer, and is done when they have."""
    program = Program(command=MODEL, tools=ToolCommands(trusts_stored=True))
    ledger = TurnLedger(work, owner=desk.owner)
    return Run(lambda action: action(desk.runtime), ledger, program, CancellationToken()).run()


def offer_look(runtime: Runtime) -> None:
    """Both agents may call the tool `look`, which answers by reports."""
    profiles = ProfileStore(runtime.database, PROJECT)
    for agent_id in ("clerk", "scribe"):
        profile = {"name": agent_id, "worker_target": "worker_generic", "tags": [], "allowed_tools": None}
        profiles.save(profile, author_id="t")
        asked = AgentRequest(agent_id=agent_id, profile_name=agent_id)
        provision(runtime.database, PROJECT, asked, update=True)
    made = Tool(
        tool_name="look",
        description=None,
        parameters={"type": "object"},
        target_subject="desk",
        after_execution=None,
        options={},
    )
    ToolStore(runtime.database, PROJECT).add(made, actor="t")


def test_two_workers_that_store_equal_ids_both_get_their_results(
    runtime: Runtime, desk: Desk, second: Desk, ask: Ask, at_once: AtOnce
) -> None:
    offer_look(runtime)
    first_turn, second_turn = str(ask("clerk").agent_turn_id), str(ask("scribe").agent_turn_id)
    work, other = take(desk), take(second)
    state = read_turn(runtime, work.fence)
    step = begin_step(runtime, state, format="openai", options=ComposeOptions())
    answer = read_step_answer(runtime, state, step, ANSWER.encode())
    assert isinstance(answer, StepAnswer)
    assert [call.tool_call_id for call in answer.calls] == list(CALLS)
    with runtime.transaction():
        store_answer(runtime, state, step, answer)
        # The other worker has read its own answer by now, which holds ids that it cannot see to be taken.
        waiting = at_once(lambda: run(second, other))
    assert waiting.result().kind == "suspended"
    assert run(desk, work).kind == "suspended"

    assert list(desk.waits(first_turn)) == sorted(CALLS)
    own = list(desk.waits(second_turn))
    assert len(own) == 2
    assert not set(own) & set(CALLS)
    for turn_id in (first_turn, second_turn):
        for call_id in desk.waits(turn_id):
            assert desk.report(turn_id, call_id).created
    while claimed := claim(desk.runtime, target=None, owner=desk.owner):
        task = begin(desk.runtime, claimed[0].row, owner=desk.owner)
        if task.kind == "run":
            assert run(desk, task).message == "success"
    assert [desk.end_of(turn_id) for turn_id in (first_turn, second_turn)] == ["success", "success"]


def test_an_answer_that_is_stored_twice_keeps_its_ids(runtime: Runtime, desk: Desk, ask: Ask) -> None:
    """A worker whose connection broke at the commit does not know that it has stored the answer."""
    offer_look(runtime)
    ask()
    state = read_turn(runtime, take(desk).fence)
    step = begin_step(runtime, state, format="openai", options=ComposeOptions())
    answer = read_step_answer(runtime, state, step, ANSWER.encode())
    assert isinstance(answer, StepAnswer)
    ends: list[TurnEnd | None] = [store_answer(runtime, state, step, answer) for _ in range(2)]
    assert ends == [None, None]
    own = read_turn(runtime, state.fence)
    assert [call.tool_call_id for call in own.pending] == list(CALLS)
