"""`submit_result`: the fields of a result are handed in by a call, and the turn ends."""

from collections.abc import Callable
from typing import Any

import pytest

from cardbox_cli.execution.dispatch_requests import DispatchResult
from cardbox_cli.execution.provision import AgentRequest, provision
from cardbox_cli.execution.requests.turn_requests import read_context
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.execution.worker.runner import RunOutcome
from cardbox_cli.model.cards import Card, draft_card
from cardbox_cli.model.content import FieldSchema, FieldsSchemaContent, JsonContent, ToolResultContent
from cardbox_cli.orchestration.handler_registry import HANDLERS
from cardbox_cli.store.roster import AgentFilter
from cardbox_cli.store.views.turn_views import TurnViews
from tests.conftest import PROJECT, Cbx
from tests.orchestration.conftest import AddProfile, calls, says

Run = Callable[..., RunOutcome]
Ask = Callable[[], str]

GOOD = {
    "fields": [
        {"name": "note", "value": None},
        {"name": "due", "value": "May"},
        {"name": "total", "value": 118},
    ]
}
STORED = [{"name": "total", "value": 118}, {"name": "due", "value": "May"}, {"name": "note", "value": None}]


@pytest.fixture
def asked(runtime: Runtime, add_profile: AddProfile, ask: Callable[..., DispatchResult]) -> Ask:
    """Dispatch a turn that is asked for a total and a due date, and ends by `submit_result`; its id."""
    add_profile(
        "adder",
        allowed_tools=None,
        allowed_internal_tools=["submit_result"],
        must_end_with=["submit_result"],
    )
    provision(runtime.database, PROJECT, AgentRequest(agent_id="adder", profile_name="adder"))
    schema = FieldsSchemaContent([FieldSchema("total", "The sum."), FieldSchema("due")])
    drafts = [draft_card("task.instruction", "Add up."), draft_card("task.result_fields", schema)]

    def dispatch() -> str:
        with runtime.transaction():
            for draft in drafts:
                runtime.cards.add(draft)
            box = runtime.boxes.create([draft.card_id for draft in drafts])
        return ask("adder", context_box_id=box.box_id).agent_turn_id or ""

    return dispatch


def own(runtime: Runtime, turn_id: str) -> list[Card]:
    return runtime.boxes.view(TurnViews(runtime.database, PROJECT).get(turn_id).output_box_id or "").cards


@pytest.mark.parametrize(
    "arguments",
    [
        GOOD,
        {"fields": {"note": None, "due": "May", "total": 118}},
        {"fields": [{"note": None}, {"due": "May"}, {"total": 118}]},
    ],
)
def test_the_submitted_fields_are_the_deliverable_requested_ones_first(
    runtime: Runtime, asked: Ask, run: Run, arguments: dict[str, Any]
) -> None:
    turn_id = asked()
    rest = run(says("118.", {"submit_result": arguments}))
    assert (rest.kind, rest.message, rest.steps) == ("ended", "success", 2)
    cards = own(runtime, turn_id)
    assert [card.type for card in cards][-4:] == [
        "agent.thought",
        "tool.call",
        "tool.result",
        "task.deliverable",
    ]
    result, deliverable = cards[-2].content, cards[-1].content
    assert isinstance(result, ToolResultContent)
    assert (result.status, result.after_execution, result.result) == (
        "success",
        "terminate",
        {"status": "accepted"},
    )
    assert isinstance(deliverable, JsonContent)
    assert deliverable.data == {"fields": STORED}
    assert rest.end is not None
    assert rest.end.deliverable_card_id == cards[-1].card_id


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"fields": [{"name": "total", "value": 1}]}, "submit_result: fields: missing 'due'"),
        ({"fields": {}}, "submit_result: fields: "),
        ({"fields": []}, "submit_result: fields: "),
        ({}, "submit_result: the key 'fields' is missing"),
        ({"fields": "118"}, "submit_result: fields: "),
        ({"fields": ["118"]}, "submit_result: fields[0]: "),
        ({"fields": [{"name": "total"}]}, "submit_result: fields[0]: the key 'value' is missing"),
        (
            {"fields": [*GOOD["fields"], {"name": "due", "value": "June"}]},
            "submit_result: fields: more than once 'due'",
        ),
    ],
)
def test_invalid_fields_are_refused_and_the_turn_continues(
    runtime: Runtime, asked: Ask, run: Run, arguments: dict[str, Any], why: str
) -> None:
    turn_id = asked()
    rest = run(says({"submit_result": arguments}, {"submit_result": GOOD}))
    assert (rest.message, rest.steps) == ("success", 2)
    first = next(card.content for card in own(runtime, turn_id) if card.type == "tool.result")
    assert isinstance(first, ToolResultContent)
    assert (first.status, first.after_execution, first.error["code"]) == ("failed", "suspend", "bad_request")
    assert why in first.error["message"]


def test_submit_result_together_with_other_calls_is_refused(
    runtime: Runtime, asked: Ask, run: Run, cbx: Cbx, tmp_path: Any
) -> None:
    trace = tmp_path / "ran"
    cbx("tool", "add", "look", "--exec", f"touch {trace}")
    turn_id = asked()
    agents = len(list(runtime.roster.list(AgentFilter())))
    rest = run(says({"look": {}, "submit_result": GOOD}, {"submit_result": GOOD}))
    assert (rest.message, rest.steps) == ("success", 2)
    assert not trace.exists()
    assert len(list(runtime.roster.list(AgentFilter()))) == agents
    assert calls(runtime, turn_id)["look"]["code"] == "not_called_alone"
    results = [card.content for card in own(runtime, turn_id) if card.type == "tool.result"]
    assert [each.status for each in results if isinstance(each, ToolResultContent)] == [
        "failed",
        "failed",
        "success",
    ]


def test_the_tool_description_lists_the_requested_fields(runtime: Runtime, asked: Ask) -> None:
    found = TurnViews(runtime.database, PROJECT).get(asked())
    [tool] = read_context(runtime.database, PROJECT, found.agent_turn_id, found, handlers=HANDLERS).tools
    fields = tool.parameters["properties"]["fields"]
    assert fields["description"].endswith("Asked for: total: The sum.; due")


def test_a_registered_tool_named_submit_result_is_offered_without_the_handler(
    runtime: Runtime, add_profile: AddProfile, cbx: Cbx, context_box: str
) -> None:
    cbx("tool", "add", "submit_result", "--exec", "cat")

    def offered() -> list[str | None]:
        shown = cbx("render", "-b", context_box, "--profile", "all", "-o", "json").json()
        return [tool["function"].get("description") for tool in shown["tools"]]

    add_profile("all", allowed_tools=None)
    assert offered() == [None]
    add_profile("all", allowed_tools=None, allowed_internal_tools=["submit_result"])
    [described] = offered()
    assert described is not None
    assert described.startswith("Hand in the result")


def test_submit_result_cannot_be_called_from_outside(asked: Ask, cbx: Cbx) -> None:
    refused = cbx("tool", "call", "submit_result", "--turn", asked())
    assert refused.code == 4
    assert "because it ends the turn" in refused.err
