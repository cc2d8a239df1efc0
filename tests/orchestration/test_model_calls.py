"""A model calls handlers: the worker offers and answers them, in the step in which they are called."""

import json
import time
from asyncio import CancelledError
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest

from cardbox_cli.errors import Conflict, NotFound
from cardbox_cli.execution.dispatch_requests import DispatchResult
from cardbox_cli.execution.handlers import Awaiting, Ending, Handler
from cardbox_cli.execution.recovery.reaping import reap
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.execution.worker.runner import RunOutcome
from cardbox_cli.model.cards import card_text
from cardbox_cli.model.identity import INTERNAL_TOOLS, HandlerTool
from cardbox_cli.orchestration.handler_registry import HANDLERS
from cardbox_cli.store.roster import AgentFilter
from cardbox_cli.store.tools import ToolStore
from tests.conftest import PROJECT, Cbx
from tests.execution.desk import Desk
from tests.foreign.writer import Deployment, Turn
from tests.orchestration.conftest import AddProfile, calls, finish, says

Ask = Callable[..., DispatchResult]
Run = Callable[..., RunOutcome]

TASK = {"target_strategy": "new", "target_ref": "clerk", "instruction": "Count the words."}


def turn_of(asked: DispatchResult) -> str:
    assert asked.agent_turn_id is not None
    return asked.agent_turn_id


def test_a_model_delegates_and_continues(runtime: Runtime, lead: str, ask: Ask, run: Run) -> None:
    turn_id = turn_of(ask(lead))
    rest = run(says({"delegate_async": TASK}, "I have asked."))
    assert (rest.kind, rest.message, rest.steps) == ("ended", "success", 2)
    told = calls(runtime, turn_id)["delegate_async"]
    assert set(told) == {
        "status",
        "agent_id",
        "agent_turn_id",
        "turn_epoch",
        "context_box_id",
        "output_box_id",
    }
    assert (told["status"], told["turn_epoch"]) == ("accepted", 1)
    row = runtime.inbox.turn_row(told["agent_turn_id"])
    assert row is not None
    assert (row.lineage.depth, row.lineage.parent_turn_id, row.lineage.parent_agent_id) == (
        1,
        turn_id,
        "lead",
    )
    edge = runtime.turns.enqueue_edge(row.turn_id)
    assert edge is not None
    assert (edge.source_agent_id, edge.source_agent_turn_id, edge.metadata["report_to"]) == (
        "lead",
        turn_id,
        None,
    )
    assert edge.source_step_id == runtime.turns.steps(turn_id)[0].step_id


def test_an_awaited_expert_answers_the_call(
    runtime: Runtime, lead: str, ask: Ask, run: Run, desk: Desk
) -> None:
    turn_id = turn_of(ask(lead))
    question = {"expert_profile": "clerk", "question": "Is it legal?", "await": True}
    rest = run(says({"ask_expert": question}, "Thanks."))
    assert (rest.kind, len(rest.waiting)) == ("suspended", 1)
    assert desk.standing("lead")[0] == "suspended"
    finish(desk, "It is legal.")
    assert run(says({"ask_expert": question}, "Thanks.")).message == "success"
    assert calls(runtime, turn_id)["ask_expert"]["deliverable"] == "It is legal."


def test_an_expert_that_another_program_ends_answers_the_call_once(
    runtime: Runtime, lead: str, ask: Ask, run: Run, desk: Desk
) -> None:
    turn_id = turn_of(ask(lead))
    command = says({"ask_expert": {"expert_profile": "clerk", "question": "?", "await": True}}, "Thanks.")
    run(command)
    _run_elsewhere(runtime, child_of(runtime, turn_id), "Said elsewhere.")
    assert list(desk.waits(turn_id).values()) == ["waiting"]
    assert len(reap(runtime).reported) == 1
    assert reap(runtime).reported == []
    assert run(command).message == "success"
    assert calls(runtime, turn_id)["ask_expert"]["deliverable"] == "Said elsewhere."


def test_an_expert_that_ends_after_the_timeout_does_not_answer(
    runtime: Runtime, lead: str, ask: Ask, run: Run, desk: Desk
) -> None:
    turn_id = turn_of(ask(lead))
    command = says({"ask_expert": {"expert_profile": "clerk", "question": "?", "await": True}}, "Pity.")
    run(command)
    desk.later(runtime.settings.turn_time + 1)
    assert len(reap(runtime).timed_out) == 1
    child = child_of(runtime, turn_id)
    finish(desk, "Too late.")
    assert run(command).message == "success"
    assert calls(runtime, turn_id)["ask_expert"]["code"] == "tool_timeout"
    assert desk.audited(child) == ["report-dropped"]


def test_an_expert_that_fails_answers_with_an_error(runtime: Runtime, lead: str, ask: Ask, run: Run) -> None:
    turn_id = turn_of(ask(lead))
    command = says({"ask_expert": {"expert_profile": "clerk", "question": "?", "await": True}}, "Pity.")
    run(command)
    run("cat >/dev/null; exit 3")
    assert run(command).message == "success"
    assert calls(runtime, turn_id)["ask_expert"]["code"] == "turn_failed"


def test_the_history_for_the_expert_excludes_the_call_itself(
    runtime: Runtime, lead: str, ask: Ask, run: Run
) -> None:
    turn_id = turn_of(ask(lead))
    history = {"expert_profile": "clerk", "question": "Right?", "include_history": True}
    run(
        says(
            {"launch_principal": {"profile_name": "clerk", "instruction": "Go."}},
            {"ask_expert": history},
            "So.",
        )
    )
    told = calls(runtime, turn_id)["ask_expert"]
    cards = runtime.boxes.view(told["context_box_id"]).cards
    assert [card.type for card in cards] == [
        "agent.thought",
        "tool.call",
        "tool.result",
        "task.instruction",
        "meta.parent_pointer",
    ]
    assert card_text(cards[3].content) == "Right?"


def test_each_call_of_one_answer_is_handled_separately(
    runtime: Runtime, lead: str, ask: Ask, run: Run, desk: Desk
) -> None:
    turn_id = turn_of(ask(lead))
    several = {
        "delegate_async": TASK,
        "ask_expert": {"expert_profile": "clerk", "question": "?", "await": True},
        "provision_agent": {"profile": "clerk", "agent_id": "helper", "owner": None},
    }
    rest = run(says(several, "All."))
    assert (rest.kind, len(rest.waiting)) == ("suspended", 1)
    told = calls(runtime, turn_id)
    assert set(told) == {"delegate_async", "provision_agent"}
    assert told["provision_agent"] == {"status": "accepted", "agent_id": "helper", "action": "provision"}
    assert runtime.roster.get("helper").owner_agent_id == "lead"


BAD = [
    ("delegate_async", "no object", "invalid_arguments", "the arguments are not a JSON object"),
    (
        "delegate_async",
        '{"a": [1e5000]}',
        "invalid_arguments",
        "the arguments.a[0]: is a number of more than",
    ),
    (
        "delegate_async",
        {**TASK, "target_strategy": "copy"},
        "bad_request",
        "delegate_async: target_strategy: expected 'new', 'reuse' or 'clone', found the string 'copy'",
    ),
    ("delegate_async", {**TASK, "context": "b"}, "bad_request", "delegate_async: context: unknown key"),
    ("delegate_async", {**TASK, "instruction": " "}, "bad_request", "delegate_async: instruction: is blank"),
    (
        "delegate_async",
        {**TASK, "target_ref": "nobody"},
        "not_found",
        "delegate_async: target_ref: no profile",
    ),
    (
        "delegate_async",
        {**TASK, "context_box_id": "00000000-0000-4000-8000-000000000000"},
        "not_allowed",
        "delegate_async: context_box_id: unauthorized box_id",
    ),
    ("delegate_async", {}, "bad_request", "delegate_async: 3 problems"),
    (
        "ask_expert",
        {"expert_profile": "clerk", "question": "?", "await": "yes"},
        "bad_request",
        "ask_expert: await: ",
    ),
    (
        "ask_expert",
        {"expert_profile": "clerk", "question": "?", "awaits": True},
        "bad_request",
        "did you mean 'await'?",
    ),
    ("provision_agent", {"profile": "clerk", "agent_id": "a.b"}, "invalid_input", "the agent id 'a.b'"),
    (
        "provision_agent",
        {"profile": "clerk", "agent_id": "scribe", "owner": "nobody"},
        "not_found",
        "no agent 'nobody'",
    ),
    ("fetch", {}, "unknown_tool", "this agent has no tool 'fetch'"),
]


@pytest.mark.parametrize(("name", "arguments", "code", "message"), BAD)
def test_an_invalid_call_gives_an_error_result_and_the_turn_continues(
    runtime: Runtime, lead: str, ask: Ask, run: Run, name: str, arguments: Any, code: str, message: str
) -> None:
    turn_id = turn_of(ask(lead))
    agents = len(list(runtime.roster.list(AgentFilter())))
    rest = run(says({name: arguments}, "Well."))
    assert (rest.kind, rest.message) == ("ended", "success")
    error = calls(runtime, turn_id)[name]
    assert error["code"] == code
    assert message in error["message"]
    assert len(list(runtime.roster.list(AgentFilter()))) == agents


@pytest.mark.parametrize(
    ("name", "given", "told"),
    [
        ("fork_join", {"tasks": [{}] * 200_000}, "got=200000, max=8"),
        ("delegate_async", {**TASK, **{f"k{number}": 1 for number in range(20_000)}}, "100 problems"),
        ("delegate_async", {**TASK, "target_ref": "x" * 500_000}, "no profile 'xxx"),
        ("delegate_async", {**TASK, "instruction": "x" * 2_000_000}, "larger than 1 MiB"),
    ],
    ids=["tasks", "keys", "name", "size"],
)
def test_the_work_and_the_error_size_of_a_call_are_limited(
    runtime: Runtime, lead: str, ask: Ask, run: Run, tmp_path: Path, name: str, given: Any, told: str
) -> None:
    turn_id = turn_of(ask(lead))
    call = {"id": "c", "type": "function", "function": {"name": name, "arguments": json.dumps(given)}}
    (tmp_path / "answer").write_text(json.dumps({"role": "assistant", "content": None, "tool_calls": [call]}))
    (tmp_path / "end").write_text("I could not.")
    began = time.process_time()
    command = f"cat > /dev/null; cd {tmp_path} && cat answer; mv end answer; true"
    assert run(command).message == "success"
    error = calls(runtime, turn_id)[name]
    assert told in error["message"]
    assert len(error["message"]) < 11_000
    assert time.process_time() - began < 5


def test_a_handler_that_the_profile_does_not_list_is_not_called(
    runtime: Runtime, add_profile: AddProfile, lead: str, ask: Ask, run: Run
) -> None:
    turn_id = turn_of(ask("scribe"))
    run(says({"delegate_async": TASK}, "Well."))
    assert calls(runtime, turn_id)["delegate_async"]["code"] == "unknown_tool"


def test_depth_grows_with_each_delegation_up_to_the_limit(
    runtime: Runtime, lead: str, ask: Ask, run: Run
) -> None:
    again = {**TASK, "target_ref": "lead"}
    ask(lead)
    depths = []
    for _ in range(20):
        rest = run(says({"delegate_async": again}, "Done."))
        told = calls(runtime, rest.agent_turn_id)["delegate_async"]
        if "code" in told:
            break
        row = runtime.inbox.turn_row(told["agent_turn_id"])
        assert row is not None
        head = runtime.heads.get(told["agent_id"])
        assert head is not None
        assert head.active_recursion_depth == row.lineage.depth
        depths.append(row.lineage.depth)
    assert depths == list(range(1, 20))
    assert told["code"] == "not_accepted"
    assert "recursion_depth_exceeded" in told["message"]


def test_internal_tools_of_another_deployment_are_not_offered(
    runtime: Runtime, add_profile: AddProfile, cbx: Cbx, context_box: str
) -> None:
    elsewhere = Deployment(runtime.database.connection)
    for name in (*INTERNAL_TOOLS, "look"):
        elsewhere.tool(name)
    assert len(ToolStore(runtime.database, PROJECT).all()) == len(INTERNAL_TOOLS) + 1

    def offered() -> list[str]:
        shown = cbx("render", "-b", context_box, "--profile", "all", "-o", "json").json()
        return [tool["function"]["name"] for tool in shown["tools"]]

    add_profile("all", allowed_tools=None)
    assert offered() == ["look"]
    add_profile("all", allowed_tools=None, allowed_internal_tools=["ask_expert", "submit_result"])
    assert offered() == ["look", "ask_expert", "submit_result"]


def test_the_stored_request_matches_the_sent_request(
    runtime: Runtime, lead: str, ask: Ask, run: Run, cbx: Cbx, tmp_path: Any
) -> None:
    turn_id = turn_of(ask(lead))
    run(f"tee {tmp_path}/request >/dev/null; printf done")
    names = [tool["function"]["name"] for tool in json.loads((tmp_path / "request").read_text())["tools"]]
    assert names == ["delegate_async", "launch_principal", "ask_expert", "fork_join", "provision_agent"]
    verified = cbx("render", "--turn", turn_id, "--verify")
    assert verified.code == 0, verified.err


def test_the_names_of_the_built_in_handlers_are_reserved() -> None:
    # A tool of this name that somebody registered stays one where no profile names the handler.
    assert set(HANDLERS.passed_in) - INTERNAL_TOOLS == {"submit_result"}
    for handler in HANDLERS.passed_in.values():
        assert handler.parameters["additionalProperties"] is False
        assert isinstance(handler.tool(), HandlerTool)
    with pytest.raises(NotFound, match="did you mean 'ask_expert'"):
        HANDLERS.find("ask_experts")


# --- handlers of others


class _Speechless(Exception):
    def __str__(self) -> str:
        raise RuntimeError


def _odd(runtime: Runtime, caller: Any, arguments: dict[str, Any]) -> Any:
    """A handler that writes, and then fails, or answers what cannot be stored."""
    box_id = runtime.boxes.create([], title="left behind").box_id
    match arguments["do"]:
        case "fail":
            raise RuntimeError("no luck")
        case "collide":
            raise Conflict("another transaction was in the way") from psycopg.errors.DeadlockDetected()
        case "answer what is no JSON":
            return {"at": object()}
        case "wait":
            return Awaiting(*map(eval, arguments["for"]))
        case "end":
            return Ending("bye", {})
        case "say too much":
            return "x" * ((16 << 20) + 1)
        case "leave":
            raise SystemExit(3)
        case "be cancelled":
            raise CancelledError
        case "say nothing":
            raise _Speechless
        case "spoil":
            with suppress(psycopg.Error):
                runtime.database.connection.execute("SELECT 1 / 0")
        case "commit":
            runtime.database.connection.commit()
    return {"box_id": box_id, "who": caller.agent_id, "call": caller.parent.tool_call_id}


ODD = Handler(name="odd", description="Odd.", parameters={"type": "object", "properties": {}}, function=_odd)


@pytest.fixture
def odd(monkeypatch: pytest.MonkeyPatch, add_profile: AddProfile, runtime: Runtime) -> None:
    """The handler `odd` is installed, and the clerk may call it."""
    monkeypatch.setitem(HANDLERS.passed_in, "odd", ODD)
    add_profile("clerk", allowed_internal_tools=["odd"])
    box_id = runtime.database.connection.execute("SELECT profile_box_id FROM resource.profiles").fetchone()
    runtime.database.connection.execute("UPDATE resource.project_agents SET profile_box_id = %s", box_id)


FAILING = [
    ({"do": "fail"}, "RuntimeError: no luck"),
    ({"do": "answer what is no JSON"}, "Unstorable: the result.at: is a object, which is not a JSON value"),
    ({"do": "end"}, "ValueError: it returned Ending, but is not declared to end its turn"),
    ({"do": "say too much"}, "ValueError: the result is larger than 16 MiB"),
    ({"do": "leave"}, "SystemExit: 3"),
    ({"do": "be cancelled"}, "CancelledError: "),
    ({"do": "say nothing"}, "_Speechless: its message cannot be read"),
    ({"do": "commit"}, "ProgrammingError: "),
    ({"do": "spoil"}, "ValueError: one of its SQL statements failed, and it ignored the error"),
    *(
        (
            {"do": "wait", "for": [each]},
            "ValueError: the seconds of Awaiting are a number from 0 to 31,536,000, not ",
        )
        for each in ("float('inf')", "float('nan')", "-1", "1e9", "10 ** 400", "True", "None", "'60'")
    ),
]


@pytest.mark.parametrize(("arguments", "why"), FAILING, ids=[str(arguments) for arguments, _ in FAILING])
@pytest.mark.usefixtures("odd")
def test_a_failing_handler_writes_nothing(
    runtime: Runtime, ask: Ask, run: Run, arguments: dict[str, Any], why: str
) -> None:
    turn_id = turn_of(ask())
    rest = run(says({"odd": arguments}, "Well."))
    assert rest.message == "success"
    told = calls(runtime, turn_id)["odd"]
    assert told["code"] == "handler_failed"
    assert told["message"].startswith(f"the handler 'odd' failed: {why}")
    titles = runtime.database.connection.execute(
        "SELECT count(*) FROM cbx.box_info WHERE title = 'left behind'"
    )
    assert titles.fetchone() == (0,)


@pytest.mark.usefixtures("odd")
def test_a_failing_handler_called_by_a_person_reports_an_error(cbx: Cbx, ask: Ask, run: Run) -> None:
    turn_id = turn_of(ask())
    run(says({"odd": {"do": "wait", "for": ["60"]}}))
    for do, why in (("leave", "SystemExit: 3"), ("answer what is no JSON", "Unstorable: the result.at: ")):
        failed = cbx("tool", "call", "odd", "--turn", turn_id, "--args", json.dumps({"do": do}))
        assert failed.code == 4
        assert failed.err.startswith(f"error: the handler 'odd' failed: {why}")


@pytest.mark.usefixtures("odd")
def test_a_conflict_in_a_handler_leaves_the_call_unanswered(runtime: Runtime, ask: Ask, run: Run) -> None:
    turn_id = turn_of(ask())
    with pytest.raises(Conflict, match="in the way"):
        run(says({"odd": {"do": "collide"}}, "Well."))
    assert calls(runtime, turn_id) == {}


@pytest.mark.usefixtures("odd")
def test_a_handler_knows_its_caller(runtime: Runtime, ask: Ask, run: Run) -> None:
    turn_id = turn_of(ask())
    run(says({"odd": {"do": "well"}}, "Well."))
    told = calls(runtime, turn_id)["odd"]
    assert told["who"] == "clerk"
    assert told["call"] == runtime.turns.steps(turn_id)[0].tool_call_ids[0]


# --- helpers


def child_of(runtime: Runtime, turn_id: str) -> str:
    [edge] = [each for each in runtime.turns.edges(turn_id) if each.source_agent_turn_id == turn_id]
    assert edge.target_agent_turn_id is not None
    return edge.target_agent_turn_id


def _run_elsewhere(runtime: Runtime, turn_id: str, words: str) -> None:
    """A worker of another program runs a turn, and tells nobody of cbx."""
    row = runtime.inbox.turn_row(turn_id)
    assert row is not None
    turn = Turn(
        agent_id=row.agent_id,
        agent_turn_id=turn_id,
        inbox_id=row.inbox_id,
        turn_epoch=0,
        profile_box_id=row.pointer("profile_box_id") or "",
        context_box_id=row.pointer("context_box_id") or "",
        output_box_id=row.pointer("output_box_id") or "",
        trace_id=row.lineage.trace_id or "",
        depth=row.lineage.depth,
    )
    program = Deployment(runtime.database.connection)
    program.finish(program.begin(program.now(turn)), words)


def test_the_cards_of_a_turn_are_not_reread_for_each_result(
    lead: str, ask: Ask, run: Run, tmp_path: Path
) -> None:
    ask(lead)
    function = {"name": "nowhere", "arguments": json.dumps({"a": ["x" * 1000] * 300})}
    made = [{"id": f"c{number}", "type": "function", "function": function} for number in range(64)]
    (tmp_path / "answer").write_text(json.dumps({"role": "assistant", "content": None, "tool_calls": made}))
    (tmp_path / "end").write_text("I could not.")
    began = time.process_time()
    assert run(f"cat > /dev/null; cd {tmp_path}; cat answer; mv end answer; true").message == "success"
    assert time.process_time() - began < 2
