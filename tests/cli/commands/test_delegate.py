"""cbx delegate, launch, ask and tool call: a turn is asked for on behalf of an agent, or of nobody."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Cbx

LEAD = """
name: lead
delegation_policy: {target_profiles: [clerk]}
allowed_internal_tools: [delegate_async, launch_principal, ask_expert]
"""


@pytest.fixture
def shop(cbx: Cbx, tmp_path: Path) -> Cbx:
    """Profiles `clerk`, which may ask nobody, and `lead`; and an agent of each."""
    for name, text in {"clerk": "name: clerk\n", "lead": LEAD}.items():
        (tmp_path / f"{name}.yaml").write_text(text)
        assert cbx("profile", "import", str(tmp_path / f"{name}.yaml")).code == 0
        assert cbx("agent", "provision", f"{name}-1", "--profile", name).code == 0
    return cbx


TASK = ("--strategy", "new", "--ref", "clerk", "--instruction", "Count.")


def test_a_new_agent_gets_a_task(shop: Cbx) -> None:
    made = shop("delegate", *TASK, "-o", "json").json()
    assert made["status"] == "accepted"
    assert made["created"] is True
    agent = shop("agent", "show", made["agent_id"], "-o", "json").json()
    assert (agent["owner_agent_id"], agent["metadata"]["profile_name"]) == ("sys.operator", "clerk")
    assert "Count." in shop("box", "show", made["context_box_id"]).out
    assert shop("turn", "show", "@last", "-o", "id").code == 0


def test_wait_prints_the_result_of_the_turn(shop: Cbx) -> None:
    asked = (*TASK, "--turn-id", "turn-count")
    assert shop("delegate", *asked, "-o", "id").out == "turn-count\n"
    assert shop("worker", "run", "--drain", "--exec", "printf seven").code == 0
    waited = shop("delegate", *asked, "--wait")
    assert (waited.code, waited.out) == (0, "seven\n")


def test_a_reused_turn_id_returns_the_same_turn_or_is_a_conflict(
    shop: Cbx, row_counts: Callable[[], dict[str, int]]
) -> None:
    first = shop("delegate", *TASK, "--turn-id", "turn-1", "-o", "json").json()
    before = row_counts()
    again = shop("delegate", *TASK, "--turn-id", "turn-1", "-o", "json").json()
    assert again == {**first, "created": False}
    for other in (
        ("delegate", *TASK[:-1], "Count again."),
        ("delegate", *TASK, "--caller", "lead-1"),
        ("launch", "clerk", "Count."),
        ("ask", "clerk", "Count."),
    ):
        refused = shop(*other, "--turn-id", "turn-1", "-o", "json")
        assert (refused.code, refused.error["code"]) == (5, "correlation-conflict")
        assert "was already used for a different request" in refused.error["message"]
    assert row_counts() == before


@pytest.fixture
def incomplete_box(shop: Cbx) -> str:
    """A box with a card and the id of a card that does not exist."""
    card = shop("card", "add", "--type", "task.instruction", "--text", "Hi", "-o", "id").out.strip()
    return shop("box", "create", card, "gone", "--allow-dangling", "-o", "id").out.strip()


def test_a_box_with_lost_cards_is_inherited_only_if_allowed(
    shop: Cbx, incomplete_box: str, tmp_path: Path
) -> None:
    tasks = tmp_path / "tasks.yaml"
    task = {
        "target_strategy": "new",
        "target_ref": "clerk",
        "instruction": "Go",
        "context_box_id": incomplete_box,
    }
    tasks.write_text(json.dumps({"tasks": [task]}))
    lost = f"box {incomplete_box}: card 'gone': no such card"
    for command, where in (
        (("delegate", *TASK, "--context-box", incomplete_box), "delegate: context_box_id"),
        (("fork-join", str(tasks)), "fork_join: tasks[0].context_box_id"),
    ):
        refused = shop(*command)
        assert (refused.code, refused.err.splitlines()[0]) == (3, f"error: {where}: {lost}")
        assert shop(*command, "--allow-dangling").code == 0


def test_the_output_of_a_cloned_or_asking_agent_may_not_have_lost_cards(
    shop: Cbx, incomplete_box: str
) -> None:
    given = ("--agent", "lead-1", "--output-box", incomplete_box)
    context = shop("box", "create", "@last", "-o", "id").out.strip()
    assert shop("dispatch", *given, "--context-box", context).code == 0
    for command in (
        ("delegate", "--strategy", "clone", "--ref", "lead-1", "--instruction", "Again."),
        ("ask", "clerk", "Why?", "--caller", "lead-1", "--include-history"),
    ):
        refused = shop(*command)
        assert refused.code == 3
        assert f"box {incomplete_box}: card 'gone': no such card" in refused.err
        assert shop(*command, "--allow-dangling").code == 0


def test_the_box_of_a_profile_is_not_a_context(shop: Cbx) -> None:
    profile = shop("profile", "show", "clerk", "-o", "id").out.strip()
    refused = shop("delegate", *TASK, "--context-box", profile)
    assert (refused.code, refused.err.splitlines()[0]) == (
        4,
        f"error: delegate: context_box_id: box {profile} is the box of a profile and has no conversation",
    )


def test_an_invalid_turn_id_is_refused(shop: Cbx) -> None:
    assert shop("delegate", *TASK, "--turn-id", "@last").code == 4
    assert shop("delegate", *TASK, "--turn-id", " ").code == 4


def test_a_policy_violation_is_noted_but_not_refused(shop: Cbx) -> None:
    allowed = shop("delegate", *TASK, "--caller", "lead-1")
    assert (allowed.code, "note:" in allowed.err) == (0, False)
    made = shop("delegate", *TASK, "--caller", "clerk-1", "-o", "json")
    assert made.code == 0
    assert "note: the caller's profile has no delegation_policy, so it may not delegate" in made.err
    assert shop("agent", "show", made.json()["agent_id"], "-o", "json").json()["owner_agent_id"] == "clerk-1"


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (
            ("delegate", "--strategy", "copy", "--ref", "clerk", "--instruction", "x"),
            4,
            "error: delegate: target_strategy: expected 'new', 'reuse' or 'clone', found the string 'copy'",
        ),
        (("delegate", *TASK[:-1], " "), 4, "error: delegate: instruction: is blank; describe the task"),
        (
            ("delegate", *TASK[:3], "nobody", *TASK[4:]),
            3,
            "error: delegate: target_ref: no profile 'nobody'",
        ),
        (
            ("delegate", *TASK, "--context-box", "abcdef00"),
            3,
            "error: delegate: context_box_id: no box",
        ),
        (("delegate", *TASK, "--caller", "nobody"), 3, "error: no agent 'nobody' in project 'p'"),
        (("delegate", *TASK, "--timeout", "3"), 2, "error: --timeout requires --wait"),
        (("launch", "nobody", "x"), 3, "error: launch: target_ref: no profile 'nobody'"),
        (("launch", "clerk", ""), 4, "error: launch: instruction: is blank"),
        (
            ("ask", "clerk", "?", "--include-history"),
            4,
            "error: ask: include_history: a person has no history",
        ),
        (
            ("ask", "clerk", "?", "--include-history", "--caller", "lead-1"),
            4,
            "error: ask: include_history: agent 'lead-1' has no history",
        ),
    ],
)
def test_invalid_requests_are_refused_and_write_nothing(
    shop: Cbx, row_counts: Callable[[], dict[str, int]], arguments: tuple[str, ...], code: int, message: str
) -> None:
    before = row_counts()
    refused = shop(*arguments)
    assert refused.code == code
    assert message in refused.err
    assert row_counts() == before


def test_an_archived_project_refuses_tasks_and_writes_nothing(
    shop: Cbx, row_counts: Callable[[], dict[str, int]]
) -> None:
    shop("project", "update", "--status", "archived")
    before = row_counts()
    refused = shop("delegate", *TASK, "-o", "json")
    assert (refused.code, refused.error["details"]["error_code"]) == (6, "project_archived")
    assert row_counts() == before


def test_an_expert_gets_the_history_of_its_caller(shop: Cbx) -> None:
    shop("launch", "lead", "Find the cause.", "--turn-id", "turn-lead")
    shop("worker", "run", "--drain", "--exec", "printf 'It is the lamp.'")
    lead = shop("turn", "show", "turn-lead", "-o", "json").json()["agent_id"]
    asked = shop("ask", "clerk", "Sure?", "--include-history", "--caller", lead, "-o", "json").json()
    shown = shop("box", "show", asked["context_box_id"], "-o", "json").json()
    types = [card["type"] for card in shown["cards"]]
    assert types == ["agent.thought", "task.deliverable", "task.instruction", "meta.parent_pointer"]


class TestToolCall:
    """What a command within a turn, or a worker of another make, calls."""

    ARGS = '{"profile_name": "clerk", "instruction": "Go."}'

    @pytest.fixture
    def turn(self, shop: Cbx) -> str:
        """An active turn of `lead-1`."""
        shop("card", "add", "--type", "task.instruction", "--text", "x", "--id", "c1")
        box = shop("box", "create", "c1", "-o", "id").out.strip()
        return shop("dispatch", "--agent", "lead-1", "-c", box, "-o", "id").out.strip()

    def test_a_tool_call_starts_a_child_turn(self, shop: Cbx, turn: str) -> None:
        called = shop(
            "tool", "call", "launch_principal", "--turn", turn, "--args", self.ARGS, "-o", "json"
        ).json()
        listed = {each["agent_turn_id"]: each for each in shop("turn", "list", "-o", "json").json()}
        child = listed[called["agent_turn_id"]]
        assert (child["parent_agent_turn_id"], child["recursion_depth"]) == (turn, 1)
        assert (
            "agent_turn_id"
            in shop("tool", "call", "launch_principal", "--turn", turn, "--args", self.ARGS).out
        )

    def test_a_tool_call_answers_the_waiting_call_once(self, shop: Cbx, tmp_path: Path) -> None:
        call = '{"id": "c9", "type": "function", "function": {"name": "look", "arguments": "{}"}}'
        answer = f'{{"role": "assistant", "content": null, "tool_calls": [{call}]}}'
        shop("tool", "add", "look")
        (tmp_path / "answer.json").write_text(answer)
        (tmp_path / "lead.yaml").write_text(LEAD + "allowed_tools: [look]\n")
        shop("profile", "import", str(tmp_path / "lead.yaml"))
        turn = shop("launch", "lead", "Go.", "-o", "id").out.strip()
        shop("worker", "run", "--drain", "--exec", f"cat {tmp_path}/answer.json")
        ask = ("tool", "call", "ask_expert", "--turn", turn, "--tool-call-id", "c9", "--args")
        question = '{"expert_profile": "clerk", "question": "?", "await": true}'
        assert shop(*ask, question, "-o", "json").json()["status"] == "waiting"
        again = shop(*ask, question, "-o", "json")
        assert (again.code, again.error["code"]) == (5, "conflict")
        assert "already answers the call 'c9'" in again.error["message"]

    @pytest.mark.parametrize(
        ("name", "arguments", "code", "message"),
        [
            (
                "launch_principle",
                "{}",
                3,
                "error: unknown handler 'launch_principle'; did you mean 'launch_principal'?",
            ),
            ("provision_agent", "{}", 4, "does not allow the handler 'provision_agent'"),
            ("launch_principal", "[]", 4, "error: --args must be a JSON object"),
            ("launch_principal", '{"profile": "clerk"}', 4, "error: launch_principal: 2 problems"),
            (
                "launch_principal",
                '{"profile_name": "lead", "instruction": "x"}',
                4,
                "has no 'lead' among its target_profiles",
            ),
            ("ask_expert", '{"expert_profile": "clerk", "question": "?", "await": true}', 4, "no call waits"),
        ],
    )
    def test_invalid_tool_calls_are_refused(
        self, shop: Cbx, turn: str, name: str, arguments: str, code: int, message: str
    ) -> None:
        refused = shop("tool", "call", name, "--turn", turn, "--args", arguments)
        assert refused.code == code
        assert message in refused.err

    def test_a_tool_call_from_an_ended_turn_is_refused(self, shop: Cbx, turn: str) -> None:
        shop("worker", "run", "--drain", "--exec", "printf done")
        refused = shop("tool", "call", "launch_principal", "--turn", turn, "--args", self.ARGS)
        assert (refused.code, "is not active" in refused.err) == (5, True)
        assert shop("tool", "call", "launch_principal", "--turn", "turn_none", "--args", self.ARGS).code == 3
