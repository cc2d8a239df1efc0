"""Profiles that say how a turn ends, run by real commands: by a call of a tool, and with all result fields."""

import json
import shlex
import sys
from collections.abc import Callable
from typing import Any

import pytest

from cardbox_cli.context.composer import WITHOUT_PROVIDERS
from cardbox_cli.context.lint.rule import LintFinding
from cardbox_cli.context.request import ComposeOptions
from cardbox_cli.diagnosis.diagnoser import Diagnoser
from cardbox_cli.execution.dispatch_requests import DispatchResult
from cardbox_cli.execution.queue.claims import begin, claim
from cardbox_cli.execution.queue.reports import report_result
from cardbox_cli.execution.recovery.retrying import retry_turn
from cardbox_cli.execution.requests.recorded_requests import TurnRequests
from cardbox_cli.execution.requests.request_checks import lint_turn
from cardbox_cli.execution.requests.turn_requests import read_context
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.execution.worker.ledger import read_turn
from cardbox_cli.execution.worker.runner import RunOutcome
from cardbox_cli.execution.worker.step_answers import StepAnswer
from cardbox_cli.execution.worker.step_requests import begin_step
from cardbox_cli.execution.worker.turn_ledger import read_step_answer, store_answer
from cardbox_cli.inspect.turns import TurnView, view_turn
from cardbox_cli.model.cards import draft_card
from cardbox_cli.model.content import FieldSchema, FieldsSchemaContent, ToolResultContent
from cardbox_cli.model.identity import Tool
from cardbox_cli.orchestration.handler_registry import HANDLERS
from cardbox_cli.store.profiles import ProfileStore
from cardbox_cli.store.tools import ToolStore
from cardbox_cli.store.views.turn_views import TurnViews
from tests.conftest import PROJECT
from tests.execution.fixtures import Asked
from tests.execution.worker.conftest import WORKER
from tests.execution.worker.test_runner import cards, fallback, written

Run = Callable[..., RunOutcome]
Says = Callable[..., str]

REMINDER = "The task is not finished by this answer. Finish it with a call of 'submit'."

# A model that says or does one thing after the other: a text, or {TOOL: ARGUMENTS}. What it was asked last is
# appended to the file that it gets.
MODEL = f"""{shlex.quote(sys.executable)} -c '
import json, os, sys
said = json.load(sys.stdin)["messages"]
done = sum(m["role"] == "assistant" for m in said)
with open(sys.argv[1], "a") as file:
    print(json.dumps([said[-1]["role"], said[-1]["content"]]), file=file)
does = json.loads(sys.argv[2])
act = does[min(done, len(does) - 1)]
calls = [] if isinstance(act, str) else [
    {{"id": "", "type": "function", "function": {{"name": name, "arguments": json.dumps(arguments)}}}}
    for name, arguments in act.items()]
print(json.dumps({{"role": "assistant", "content": act if isinstance(act, str) else None, "tool_calls": calls}}))
' """


@pytest.fixture
def profile(runtime: Runtime) -> Callable[..., None]:
    """Give the agents a profile that says more."""

    def save(**keys: Any) -> None:
        said = {"name": "clerk", "worker_target": "worker_generic", "tags": [], "allowed_tools": None, **keys}
        entry = ProfileStore(runtime.database, PROJECT).save(said, author_id="t")
        runtime.database.connection.execute(
            "UPDATE resource.project_agents SET profile_box_id = %s", [entry.profile_box_id]
        )

    return save


@pytest.fixture
def tool(runtime: Runtime) -> Callable[..., None]:
    """Register a tool."""

    def add(name: str, command: str | None = "echo ok", after_execution: str | None = None) -> None:
        options = {} if command is None else {"exec": command}
        made = Tool(
            tool_name=name,
            description=None,
            parameters={"type": "object"},
            target_subject=None,
            after_execution=after_execution,
            options=options,
        )
        ToolStore(runtime.database, PROJECT).add(made, actor="t")

    return add


@pytest.fixture
def says(tmp_path: Any) -> Says:
    """The command of a model that does these things, one in each step, and then the last again."""

    def command(*does: Any) -> str:
        return f"{MODEL} {tmp_path}/asked {shlex.quote(json.dumps(does))}"

    return command


@pytest.fixture
def asked(tmp_path: Any) -> Callable[[], list[Any]]:
    """What the model was asked last, in each of its steps."""
    return lambda: [json.loads(line) for line in (tmp_path / "asked").read_text().splitlines()]


def types(runtime: Runtime, turn: DispatchResult) -> list[str]:
    return [card_type for card_type, _ in written(runtime, turn.output_box_id)]


def page(runtime: Runtime, turn: DispatchResult) -> TurnView:
    return view_turn(TurnViews(runtime.database, PROJECT).read_all(turn.agent_turn_id or ""))


# --- must_end_with


def test_an_answer_without_the_required_call_does_not_end_the_turn(
    runtime: Runtime,
    ask: Asked,
    run: Run,
    profile: Callable[..., None],
    tool: Callable[..., None],
    says: Says,
    asked: Callable[[], list[Any]],
) -> None:
    tool("submit", after_execution="terminate")
    profile(must_end_with=["submit"])
    turn = ask()
    rest = run(says("All done!", {"submit": {"total": 118}}))
    assert (rest.kind, rest.message, rest.steps) == ("ended", "success", 2)
    assert written(runtime, turn.output_box_id) == [
        ("agent.thought", "All done!"),
        ("sys.must_end_with_required", REMINDER),
        ("agent.thought", ""),
        ("tool.call", '{"tool_name":"submit","arguments":{"total":118},"status":"called"}'),
        ("tool.result", "ok"),
        ("task.deliverable", '{"total":118}'),
    ]
    # The model is told as by a user: system texts come from the profile, the layers and what was packed.
    assert asked() == [["user", "Find the cause."], ["user", REMINDER]]
    reminder = cards(runtime, turn.output_box_id)[1]
    steps = runtime.turns.steps(rest.agent_turn_id)
    assert (reminder.role, reminder.author_id) == ("system", "clerk")
    assert reminder.metadata["agent_turn_id"] == rest.agent_turn_id
    assert reminder.metadata["step_id"] == steps[0].step_id
    assert [step.status for step in steps] == ["completed", "completed"]
    told = [event.text for event in page(runtime, turn).timeline]
    assert f"was reminded to finish the task: {REMINDER}" in told


@pytest.mark.parametrize("printed", ["All done!", '{"role": "assistant", "content": "All done!"}'])
def test_a_turn_without_the_required_call_fails_at_its_last_step(
    runtime: Runtime,
    ask: Asked,
    run: Run,
    profile: Callable[..., None],
    tool: Callable[..., None],
    printed: str,
) -> None:
    tool("submit")
    profile(must_end_with=["submit"])
    turn = ask()
    rest = run(f"printf %s {shlex.quote(printed)}", max_steps=2)
    why = "the model did not finish within 2 steps: no call of 'submit' has succeeded (must_end_with)"
    assert (rest.kind, rest.error_code, rest.message, rest.steps) == ("ended", "max_steps_reached", why, 2)
    told = ["agent.thought", "sys.must_end_with_required"]
    assert types(runtime, turn) == [*told, *told, "task.deliverable"]
    assert fallback(runtime, turn.output_box_id)["message"] == why
    record = runtime.turns.record(rest.agent_turn_id)
    assert record is not None
    assert (record.end_status, record.error_code) == ("failed", "max_steps_reached")


@pytest.mark.parametrize(
    ("does", "end", "steps"),
    [
        # The call may be followed by words, and by nothing else.
        ([{"submit": {}}, "Done."], "success", 2),
        ([{"submit": {}, "look": {}}, "Done."], "success", 2),
        ([{"submit": {}}, {"look": {}}, "Done."], "failed", 4),
        ([{"look": {}}, "Done."], "failed", 4),
        # A call that fails is none, and a result that ends the turn does so whosever it is.
        ([{"break": {}}, "Done."], "failed", 4),
        ([{"stop": {}}], "success", 1),
    ],
)
def test_only_a_successful_required_call_ends_the_turn(
    runtime: Runtime,
    ask: Asked,
    run: Run,
    profile: Callable[..., None],
    tool: Callable[..., None],
    says: Says,
    does: list[Any],
    end: str,
    steps: int,
) -> None:
    for name, command in (("submit", "echo ok"), ("look", "echo seen"), ("break", "exit 3")):
        tool(name, command)
    tool("stop", after_execution="terminate")
    profile(must_end_with=["submit", "break"])
    ask()
    rest = run(says(*does), max_steps=4)
    assert rest.end is not None
    assert (rest.end.end_status, rest.steps) == (end, steps)


def test_card_lines_without_the_required_call_do_not_end_the_turn(
    runtime: Runtime,
    ask: Asked,
    run: Run,
    profile: Callable[..., None],
    tool: Callable[..., None],
    says: Says,
) -> None:
    tool("submit")
    profile(must_end_with=["submit"])
    said = (
        ("agent.plan", {"__type__": "TextContent", "text": "a"}),
        ("task.deliverable", {"__type__": "JsonContent", "data": {"b": 1}}),
    )
    lines = "\n".join(json.dumps({"type": each, "content": content}) for each, content in said)
    turn = ask()
    assert run(f"printf '%s\\n' {shlex.quote(lines)}", answers="cards", max_steps=1).kind == "ended"
    assert written(runtime, turn.output_box_id)[:3] == [
        ("agent.plan", "a"),
        ("agent.thought", '{"b":1}'),
        ("sys.must_end_with_required", REMINDER),
    ]


def test_a_reported_result_of_the_required_call_ends_the_turn(
    runtime: Runtime,
    ask: Asked,
    run: Run,
    profile: Callable[..., None],
    tool: Callable[..., None],
    says: Says,
) -> None:
    tool("submit", None)
    profile(must_end_with=["submit"])
    turn = ask()
    rest = run(says("Done.", {"submit": {"a": 1}}))
    assert rest.kind == "suspended"
    content = ToolResultContent("success", "terminate", result="taken")
    report_result(runtime, turn.agent_turn_id or "", rest.waiting[0], content, source_agent_id="sys.operator")
    [row] = claim(runtime, target=None, owner=WORKER)
    assert begin(runtime, row.row, owner=WORKER).outcome == "ended its turn: success"
    assert written(runtime, turn.output_box_id)[-1] == ("task.deliverable", '{"a":1}')


@pytest.mark.parametrize("allowed", [[], ["look"], None])
def test_a_turn_without_the_required_tool_fails_before_its_first_step(
    runtime: Runtime,
    ask: Asked,
    run: Run,
    profile: Callable[..., None],
    tool: Callable[..., None],
    allowed: Any,
) -> None:
    tool("look")
    profile(must_end_with=["submit", "hand_in"], allowed_tools=allowed)
    turn = ask()
    rest = run("cat >/dev/null; exit 3")
    assert (rest.kind, rest.error_code, rest.steps) == ("ended", "must_end_with_not_offered", 0)
    assert rest.message == (
        "its profile requires a turn to end with a call of 'submit' or 'hand_in' (must_end_with), but the agent "
        "is not offered that tool: register it with `cbx tool add` and list it in allowed_tools, or list a "
        "handler in allowed_internal_tools"
    )
    assert runtime.turns.steps(turn.agent_turn_id or "") == []


@pytest.mark.parametrize("said", ["submit", {"submit": 1}, [7, None, ""], None, []])
def test_an_invalid_list_in_a_foreign_profile_requires_nothing(
    ask: Asked, run: Run, profile: Callable[..., None], said: Any
) -> None:
    profile(must_end_with=said)
    ask()
    assert run("printf done").message == "success"


def test_step_requests_are_shown_and_verified_with_the_reminder(
    runtime: Runtime,
    ask: Asked,
    run: Run,
    profile: Callable[..., None],
    tool: Callable[..., None],
    says: Says,
) -> None:
    tool("submit", after_execution="terminate")
    profile(must_end_with=["submit"], system_prompt="You are a clerk.")
    turn = ask()
    run(says("Done.", {"submit": {}}))
    found = TurnViews(runtime.database, PROJECT).get(turn.agent_turn_id or "")
    requests = TurnRequests(runtime.database, PROJECT, found, HANDLERS)
    shown = requests.request("2", ComposeOptions(), None, WITHOUT_PROVIDERS)
    assert [(each.body["role"], each.body["content"]) for each in shown.request.messages] == [
        ("system", "You are a clerk."),
        ("user", "Find the cause."),
        ("assistant", "Done."),
        ("user", REMINDER),
    ]
    for step in ("1", "2"):
        _, verified = requests.verify(step, ComposeOptions(), None)
        assert (verified.equal, verified.compared_by, verified.reasons) == (True, "sha256", [])
    context = read_context(runtime.database, PROJECT, found.agent_turn_id, found, handlers=HANDLERS)
    told: list[LintFinding] = lint_turn(runtime.database, PROJECT, context.boxes, {}, HANDLERS)
    assert [each.rule for each in told if each.rule == "system-in-history"] == []


def test_an_answer_that_is_stored_twice_causes_one_reminder(
    runtime: Runtime, ask: Asked, profile: Callable[..., None], tool: Callable[..., None]
) -> None:
    """A worker whose connection broke at the commit does not know that it has stored the answer."""
    tool("submit")
    profile(must_end_with=["submit"])
    turn = ask()
    [claimed] = claim(runtime, target=None, owner=WORKER)
    begin(runtime, claimed.row, owner=WORKER)
    state = read_turn(runtime, claimed.row.fence)
    step = begin_step(runtime, state, format="openai", options=ComposeOptions())
    answer = read_step_answer(runtime, state, step, b"Done.")
    assert isinstance(answer, StepAnswer)
    for _ in range(2):
        assert store_answer(runtime, state, step, answer) is None
        assert types(runtime, turn) == ["agent.thought", "sys.must_end_with_required"]


# --- result fields


@pytest.fixture
def asked_for(runtime: Runtime, ask: Asked) -> Callable[..., DispatchResult]:
    """Ask for a turn whose result must contain these fields."""

    def ask_for(*names: str) -> DispatchResult:
        schema = FieldsSchemaContent([FieldSchema(name) for name in names])
        drafts = [draft_card("task.instruction", "Add up."), draft_card("task.result_fields", schema)]
        ids = [runtime.cards.add(draft).card.card_id for draft in drafts]
        return ask(context_box_id=runtime.boxes.create(ids).box_id)

    return ask_for


@pytest.mark.parametrize("required", [True, False, None, "yes"])
def test_a_missing_field_is_a_finding_and_a_missing_required_one_is_partial(
    runtime: Runtime,
    asked_for: Callable[..., DispatchResult],
    run: Run,
    profile: Callable[..., None],
    required: Any,
) -> None:
    profile(**({} if required is None else {"require_result_fields": required}))
    turn = asked_for("total", "due")
    rest = run("""printf '{"total": 118}'""")
    end = "partial" if required is True else "success"
    assert (rest.kind, rest.message) == ("ended", end)
    seen = page(runtime, turn)
    assert seen.end_status == end
    assert [(each.rule, each.message) for each in seen.findings] == [
        ("result_fields_missing", "the deliverable lacks the field 'due'")
    ]
    assert types(runtime, turn) == ["agent.thought", "task.deliverable"]
    record = runtime.turns.record(rest.agent_turn_id)
    assert record is not None
    assert (record.error_code, record.error) == (
        ("result_fields_missing", "the deliverable lacks the field 'due'")
        if end == "partial"
        else (None, None)
    )


def test_a_deliverable_with_all_fields_is_a_success(
    runtime: Runtime, asked_for: Callable[..., DispatchResult], run: Run, profile: Callable[..., None]
) -> None:
    profile(require_result_fields=True)
    turn = asked_for("total")
    assert run("printf 'Total: 118'").message == "success"
    assert page(runtime, turn).findings == []


@pytest.mark.parametrize(
    ("arguments", "end", "findings"),
    [
        ({"total": 118, "due": None}, "success", []),
        ({"total": 118}, "partial", ["the deliverable lacks the field 'due'"]),
        ({}, "partial", ["the deliverable lacks the fields 'total', 'due'"]),
    ],
)
def test_the_arguments_of_the_required_call_are_the_deliverable(
    runtime: Runtime,
    asked_for: Callable[..., DispatchResult],
    run: Run,
    profile: Callable[..., None],
    tool: Callable[..., None],
    says: Says,
    arguments: dict[str, Any],
    end: str,
    findings: list[str],
) -> None:
    tool("submit", after_execution="terminate")
    profile(must_end_with=["submit"], require_result_fields=True)
    turn = asked_for("total", "due")
    assert run(says({"submit": arguments})).message == end
    assert [each.message for each in page(runtime, turn).findings] == findings


def test_a_failed_turn_is_not_checked_for_fields(
    runtime: Runtime, asked_for: Callable[..., DispatchResult], run: Run, profile: Callable[..., None]
) -> None:
    profile(require_result_fields=True)
    turn = asked_for("total")
    assert run("cat >/dev/null; exit 3").error_code == "command_failed"
    assert page(runtime, turn).findings == []


def test_a_partial_turn_shows_its_missing_field_and_can_be_retried(
    runtime: Runtime, asked_for: Callable[..., DispatchResult], run: Run, profile: Callable[..., None]
) -> None:
    profile(require_result_fields=True)
    turn = asked_for("total")
    run("printf nothing")
    found = Diagnoser(runtime.database, PROJECT, runtime.settings, HANDLERS).turn(turn.agent_turn_id or "")
    assert found.verdict == "ended"
    assert found.evidence[0].shows.endswith("the deliverable lacks the field 'total'")
    assert "retries the turn" in (found.next_actor or "")
    assert (
        retry_turn(runtime, turn.agent_turn_id or "", source_agent_id="sys.operator").result.status
        == "accepted"
    )
