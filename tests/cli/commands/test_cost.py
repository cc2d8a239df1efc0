"""`cbx cost`: of turns, agents and boxes; its contract, its budget, its prices, and what it refuses."""

import json
import re
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cardbox_cli.chat.runs.recorded_runs import ChatRequests
from cardbox_cli.context.composer import WITHOUT_PROVIDERS
from cardbox_cli.context.explain import explain
from cardbox_cli.context.request import DEFAULT_OPTIONS
from cardbox_cli.execution.requests.recorded_requests import TurnRequests
from cardbox_cli.execution.requests.request_series import read_turn_requests
from cardbox_cli.orchestration.handler_registry import HANDLERS
from cardbox_cli.providers.registry import DEFAULT, provider_named
from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.views.turn_views import TurnViews
from tests.cli.commands.test_worker import Dispatch, dispatch, work
from tests.cli.conftest import Offered, lines, succeed
from tests.conftest import PROJECT, Cbx

__all__ = ["dispatch"]

CLIENT = f"{shlex.quote(sys.executable)} {Path(__file__).parents[3] / 'examples/client.py'}"
PROFILE = (
    "name: clerk\nsystem_prompt: You are a clerk.\nallowed_tools: [look, never]\n"
    "llm_config: {model: gpt-4o}\n"
)
KEY = "telegram-chat-42"
LONG = "alpha beta gamma delta " * 60

Ran = Callable[..., str]


@pytest.fixture
def ran(cbx: Cbx, add: Callable[..., str], box_of: Callable[..., str], tmp_path: Path) -> Ran:
    """Give the agent `clerk` a turn whose model calls `look` and then answers; its id."""
    (tmp_path / "clerk.yaml").write_text(PROFILE)
    succeed(cbx("profile", "import", str(tmp_path / "clerk.yaml")))
    succeed(cbx("agent", "provision", "clerk", "--profile", "clerk"))
    for tool in ("look", "never"):
        succeed(cbx("tool", "add", tool, "--exec", "cat", "--description", "Look at what is there."))
    context = box_of(add("Find the cause."))

    def run(*options: str) -> str:
        turn = succeed(cbx("dispatch", "--agent", "clerk", "--context-box", context, "-o", "id")).strip()
        command = ["--trust-stored-commands", "--exec", f"{CLIENT} --call look '{{}}'", "--drain"]
        succeed(cbx("worker", "run", *command, *options))
        return turn

    return run


@pytest.fixture
def conversation(cbx: Cbx, tmp_path: Path) -> str:
    """The box of a conversation in which a file was read twice, and had not changed."""

    def use(key: str) -> list[dict[str, object]]:
        function = {"name": "read", "arguments": '{"path": "a"}'}
        return [
            {"role": "assistant", "tool_calls": [{"id": key, "type": "function", "function": function}]},
            {"role": "tool", "tool_call_id": key, "content": LONG},
        ]

    talk = [
        {"role": "user", "content": "Read it."},
        *use("c1"),
        *use("c2"),
        {"role": "assistant", "content": "It says gamma."},
        {"role": "user", "content": "What else?"},
        {"role": "assistant", "content": "It says delta."},
        {"role": "user", "content": "Thanks."},
    ]
    (tmp_path / "talk.json").write_text(json.dumps(talk))
    return succeed(cbx("card", "import", str(tmp_path / "talk.json"), "-o", "id")).strip()


@pytest.mark.parametrize("layers", [(), ("--layer", "notes__context=Notes.", "--layout", "cache")])
def test_the_steps_of_a_turn_match_the_requests_it_sent(
    layers: tuple[str, ...], cbx: Cbx, ran: Ran, database: Database
) -> None:
    turn = TurnViews(database, PROJECT).get(ran(*layers))
    found = read_turn_requests(database, PROJECT, turn)
    requests = TurnRequests(database, PROJECT, turn, HANDLERS)
    shown = [
        requests.request(str(number), DEFAULT_OPTIONS, None, WITHOUT_PROVIDERS).request for number in (1, 2)
    ]
    assert [sent.request.messages for sent in found] == [each.messages for each in shown]
    assert [sent.request.tools for sent in found] == [each.tools for each in shown]
    assert [sent.request.lost_layers for sent in found] == [each.lost_layers for each in shown]
    answer = cbx("cost", turn.agent_turn_id, "-o", "json").json()
    assert [step["tokens"] for step in answer["steps"]] == [
        explain(each, provider_named(DEFAULT)).tokens for each in shown
    ]
    assert answer["tokens"] == sum(explain(each, provider_named(DEFAULT)).tokens for each in shown)
    assert answer["breaks"] == []


CLAUDE_LINES: list[dict[str, Any]] = [
    {"type": "user", "message": {"role": "user", "content": "Hello there"}},
    {
        "type": "assistant",
        "message": {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "content": [{"type": "text", "text": "Hi."}],
            "usage": {"input_tokens": 4, "cache_creation_input_tokens": 18764, "output_tokens": 12},
        },
    },
]


class TestReportedUsage:
    def test_a_turn_shows_what_the_provider_reported(self, cbx: Cbx, dispatch: Dispatch) -> None:
        turn = dispatch()
        client = 'echo \'{"choices":[{"message":{"role":"assistant","content":"ok"}}],"usage":{"prompt_tokens":9999}}\''
        work(cbx, client)
        answer = cbx("cost", turn, "-o", "json").json()
        assert (answer["reported"], answer["reported_requests"]) == (9999, 1)
        assert answer["steps"][0]["reported"] == 9999
        text = succeed(cbx("cost", turn))
        assert "reported  9,999 tokens by the provider, for 1 of 1 request\n" in text
        assert "differs   cbx counts " in text
        [header] = [line for line in text.splitlines() if line.startswith("#")]
        assert "REPORTED" in header

    def test_an_imported_session_shows_the_usage_in_its_file(self, cbx: Cbx, tmp_path: Path) -> None:
        lines_ = [{"sessionId": "s", "uuid": str(at), **each} for at, each in enumerate(CLAUDE_LINES)]
        (tmp_path / "c.jsonl").write_text("".join(json.dumps(each) + "\n" for each in lines_))
        box = succeed(cbx("card", "import", str(tmp_path / "c.jsonl"), "-o", "id")).strip()
        answer = cbx("cost", box, "-o", "json").json()
        assert (answer["reported"], answer["steps"][0]["reported_output"]) == (18768, 12)
        assert "18,768 tokens by the provider" in succeed(cbx("cost", box))


class TestTurns:
    def test_json_output_has_a_fixed_list_of_keys(self, cbx: Cbx, ran: Ran) -> None:
        turn = ran()
        answer = cbx("cost", turn[-8:], "-o", "json").json()
        assert set(answer) == {
            *(
                "kind",
                "id",
                "tokenizer",
                "tokens",
                "tokens_exact",
                "kept",
                "new",
                "largest_request",
                "of_window",
            ),
            *("steps", "by", "breaks", "first_break", "findings", "money", "notes"),
            *("reported", "reported_requests", "reported_estimate"),
        }
        assert (answer["kind"], answer["id"], answer["largest_request"]) == ("turn", turn, 2)
        assert set(answer["by"]) == {"layer", "type", "tool", "card"}
        assert answer["kept"] + answer["new"] == answer["tokens"]
        [never] = answer["findings"]
        assert (never["code"], never["tokens"] > 0) == ("tool-never-called", True)
        assert shlex.split(never["fix"], comments=True) == shlex.split(
            "cbx profile show clerk -o yaml --project p"
        )
        result = next(card for card in answer["by"]["card"] if card["type"] == "tool.result")
        assert (result["tool"], result["sends"]) == ("look", 1)
        page = succeed(cbx("cost", turn))
        assert "never broken" in page
        assert "tool-never-called: the tool never was sent 2 times, and never called" in page

    def test_the_cost_of_an_agent_covers_all_its_turns(self, cbx: Cbx, ran: Ran) -> None:
        turns = [ran(), ran()]
        answer = cbx("cost", "--agent", "clerk", "--by", "tool", "-o", "json")
        steps = answer.json()["steps"]
        assert [step["agent_turn_id"] for step in steps] == [turns[0]] * 2 + [turns[1]] * 2
        assert answer.err == "note: agent 'clerk': 2 turns\n"
        assert len(cbx("cost", "--agent", "clerk", "--since", "1h", "-o", "json").json()["steps"]) == 4
        refused = cbx("cost", "--agent", "clerk", "--since", "2099-01-01")
        assert (refused.code, refused.err.splitlines()[0]) == (
            3,
            "error: agent 'clerk' has no turn since 2099-01-01 in project 'p'",
        )

    def test_the_next_request_is_composed_if_nothing_was_sent(self, cbx: Cbx, ran: Ran) -> None:
        ran()
        box = lines(cbx("box", "list", "-o", "id"))[-1]
        turn = succeed(cbx("dispatch", "--agent", "clerk", "--context-box", box, "-o", "id")).strip()
        answer = cbx("cost", turn, "-o", "json")
        [step] = answer.json()["steps"]
        assert step["step_id"] is None
        assert "has sent nothing" in answer.err


class TestChats:
    """A chat is told a long text, calls a tool for a second look at it, and answers; then it is asked again."""

    @pytest.fixture
    def talked(self, cbx: Cbx) -> None:
        succeed(cbx("tool", "add", "look", "--exec", "cat", "--description", "Look at what is there."))
        call = ("--trust-stored-commands", "--exec", f"{CLIENT} --call look '{{}}'")
        succeed(cbx("chat", "run", KEY, "--text", LONG * 5, *call))
        succeed(cbx("chat", "run", KEY, "--text", "And now?", "--exec", "echo Nothing.", "--answers", "text"))

    def test_the_steps_of_a_chat_match_the_requests_it_sent(
        self, cbx: Cbx, talked: None, database: Database
    ) -> None:
        answer = cbx("cost", "--chat", KEY, "-o", "json")
        found = answer.json()
        assert (found["kind"], found["id"], answer.err) == ("chat", KEY, f"note: chat '{KEY}': 2 runs\n")
        runs = [step["agent_turn_id"] for step in found["steps"]]
        assert runs[0] == runs[1] != runs[2]
        requests = ChatRequests(database, PROJECT, KEY)
        shown = [
            requests.request(step["step_id"], DEFAULT_OPTIONS, None, WITHOUT_PROVIDERS).request
            for step in found["steps"]
        ]
        assert [step["tokens"] for step in found["steps"]] == [
            explain(each, provider_named(DEFAULT)).tokens for each in shown
        ]
        assert [card["sends"] for card in found["by"]["card"] if card["preview"].startswith("alpha")] == [3]

    def test_the_suggested_fixes_for_a_chat_work(self, cbx: Cbx, talked: None) -> None:
        found = {each["code"]: each for each in cbx("cost", "--chat", KEY, "-o", "json").json()["findings"]}
        assert set(found) == {"large-card", "cache-broken"}
        # Each run tells the model its own id, and that in the system prompt.
        compare = shlex.split(found["cache-broken"]["fix"], comments=True)
        assert (found["cache-broken"]["steps"], cbx(*compare[1:]).code) == ([3], 8)
        assert "begin with the id of the run" in found["cache-broken"]["message"]
        assert "layout" not in found["cache-broken"]["remedy"]
        # The second run was not offered the tool.
        assert "from step 2 to 3, at tool 5: " in succeed(cbx("cost", "--chat", KEY))
        afresh = found["large-card"]["fix"]
        assert afresh.startswith(f"cbx chat new --project p {KEY}  # database ")
        succeed(cbx(*shlex.split(afresh, comments=True)[1:]))
        succeed(cbx("chat", "run", KEY, "--text", "Go on.", "--exec", "echo Yes.", "--answers", "text"))
        later = cbx("cost", "--chat", KEY, "-o", "json").json()
        assert later["steps"][-1]["tokens"] < found["large-card"]["evidence"][0]["tokens"]
        assert [each["fix"] for each in later["findings"] if each["code"] == "large-card"] == [None]

    def test_the_next_request_is_composed_if_nothing_was_sent(self, cbx: Cbx) -> None:
        succeed(cbx("chat", "send", KEY, "Hello."))
        answer = cbx("cost", "--chat", KEY, "-o", "json")
        assert [step["step_id"] for step in answer.json()["steps"]] == [None]
        assert f"note: {KEY} has sent nothing" in answer.err
        refused = cbx("cost", "--chat", KEY, "--since", "2099-01-01")
        assert (refused.code, refused.err.splitlines()[0]) == (
            3,
            f"error: chat '{KEY}' has no run since 2099-01-01 in project 'p'",
        )
        assert cbx("cost", "--chat", KEY, "-p", "other").code == 3


class TestBoxes:
    def test_fixing_repeated_reads_saves_the_promised_tokens(
        self, cbx: Cbx, conversation: str, feed: Callable[[str], None]
    ) -> None:
        answer = cbx("cost", conversation, "-o", "json").json()
        assert [step["messages"] for step in answer["steps"]] == [1, 3, 5, 7, 9]
        [again] = [each for each in answer["findings"] if each["code"] == "read-again"]
        first, grep, edit = [shlex.split(piece, comments=True) for piece in again["fix"].split(" | ")]
        assert grep[:2] == ["grep", "-vxF"]
        unwanted = set(grep[3::2])
        kept = [card for card in lines(cbx(*first[1:])) if card not in unwanted]
        feed("\n".join(kept))
        made = succeed(cbx(*edit[1:])).strip()
        later = cbx("cost", made, "-o", "json").json()
        caller = next(
            card
            for card in answer["by"]["card"]
            if card["card_id"] in unwanted and card["type"] == "agent.thought"
        )
        # The call goes with its result, and the request for the second call was one request more.
        saved = answer["tokens"] - later["tokens"]
        assert saved >= again["tokens"] + caller["tokens"]
        assert "read-again" not in [each["code"] for each in later["findings"]]

    def test_the_printed_commands_give_a_waiting_turn_the_fixed_box(
        self, cbx: Cbx, conversation: str, ran: Ran, feed: Callable[[str], None]
    ) -> None:
        """By the commands that are printed, also by that of a box that came of the mended one."""
        asked = ("dispatch", "--agent", "clerk", "--context-box", conversation, "-o", "id")
        turn = succeed(cbx(*asked)).strip()
        before = cbx("cost", turn, "-o", "json").json()
        [again] = [each for each in before["findings"] if each["code"] == "read-again"]
        first, grep, edit = [shlex.split(piece, comments=True) for piece in again["fix"].split(" | ")]
        feed("\n".join(card for card in lines(cbx(*first[1:])) if card not in grep[3::2]))
        made = cbx(*edit[1:])
        note = (
            f"note: the old box is the context box of turn {turn}; to switch to the new box: `cbx turn rebox"
        )
        assert note in made.err
        shorter = cbx("box", "compress", made.out.strip(), "--summary", "Gamma.", "--keep", "1")
        found = re.search(
            rf"note: the old box comes from the context box of turn {turn}; to switch to the new box: `cbx ([^`]+)`",
            shorter.err,
        )
        assert found is not None, shorter.err
        succeed(cbx(*shlex.split(found[1])))
        after = cbx("cost", turn, "-o", "json").json()
        assert before["tokens"] - after["tokens"] > again["tokens"]
        assert "read-again" not in [each["code"] for each in after["findings"]]

    @pytest.mark.parametrize("by", ["layer", "type", "tool", "card"])
    def test_tokens_are_grouped_by_the_by_option(self, by: str, cbx: Cbx, conversation: str) -> None:
        page = succeed(cbx("cost", conversation, "--by", by, "--top", "3"))
        assert f"\n{by.upper()} " in page
        assert ("read" in page) or by in ("layer", "type")

    def test_the_profile_adds_its_model_and_tools(self, cbx: Cbx, conversation: str, ran: Ran) -> None:
        ran()
        answer = cbx("cost", conversation, "--profile", "clerk", "-o", "json").json()
        assert {step["model"] for step in answer["steps"]} == {"gpt-4o"}
        assert "tools" in answer["steps"][0]["layers"]

    def test_an_empty_box_costs_nothing(self, cbx: Cbx, box_of: Callable[..., str]) -> None:
        answer = cbx("cost", box_of(), "-o", "json").json()
        assert (answer["tokens"], answer["findings"]) == (0, [])
        succeed(cbx("cost", "@last"))

    def test_every_output_format_is_supported(self, cbx: Cbx, conversation: str) -> None:
        for format in ("table", "wide", "jsonl", "yaml"):
            assert succeed(cbx("cost", conversation, "-o", format))
        ids = lines(cbx("cost", conversation, "-o", "id", "--top", "2"))
        assert len(ids) == 2
        assert set(ids) <= set(lines(cbx("card", "list", "-o", "id")))


class TestBudget:
    def test_a_request_above_the_token_budget_exits_8(self, cbx: Cbx, conversation: str) -> None:
        assert cbx("cost", conversation, "--fail-over", "100000").code == 0
        over = cbx("cost", conversation, "--fail-over", "100", "-o", "json")
        assert over.code == 8
        assert over.error["message"].startswith("request 5 has ~")
        assert over.json()["largest_request"] == 5

    def test_a_request_above_a_percentage_of_the_window_exits_8(self, cbx: Cbx, conversation: str) -> None:
        assert cbx("cost", conversation, "--model", "gpt-4o", "--fail-over", "50%").code == 0
        over = cbx("cost", conversation, "--model", "gpt-4o", "--fail-over", "0.1%")
        assert over.code == 8
        assert over.err.strip().endswith("over the budget of 128, 0.1% of the window of gpt-4o")
        unknown = cbx("cost", conversation, "--fail-over", "50%")
        assert (unknown.code, unknown.err.splitlines()[-2]) == (
            4,
            "error: --fail-over: the context window of model 'unknown' is unknown",
        )

    @pytest.mark.parametrize("budget", ["", "0%", "101%", "-1", "1e3", "many", "٣", "٣%"])
    def test_an_invalid_budget_is_refused(self, budget: str, cbx: Cbx, conversation: str) -> None:
        refused = cbx("cost", conversation, "--fail-over", budget)
        assert (refused.code, refused.out) == (2, "")


class TestPrices:
    def test_prices_come_from_the_option_or_the_setting(
        self, cbx: Cbx, conversation: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "prices.yaml").write_text(
            "currency: EUR\nmodels:\n  gpt-4o: {input: 2.50, cached: 1.25}\n"
        )
        words = ("cost", conversation, "--model", "gpt-4o", "-o", "json")
        found = cbx(*words, "--prices", str(tmp_path / "prices.yaml")).json()
        money = found["money"]
        assert money["currency"] == "EUR"
        assert float(money["without_cache"]) == pytest.approx(found["tokens"] * 2.5e-6)
        assert float(money["amount"]) == pytest.approx((found["new"] * 2.5 + found["kept"] * 1.25) * 1e-6)
        monkeypatch.setenv("CBX_PRICES", str(tmp_path / "prices.yaml"))
        assert cbx(*words).json()["money"] == money
        unpriced = cbx("cost", conversation, "-o", "json")
        assert unpriced.json()["money"]["unpriced"] == ["unknown"]
        assert unpriced.json()["money"]["amount"] is None
        assert "warning: the price of model 'unknown'" in unpriced.err

    def test_an_invalid_price_file_is_refused(self, cbx: Cbx, conversation: str, tmp_path: Path) -> None:
        (tmp_path / "prices.yaml").write_text("currency: EUR\nmodels:\n  gpt-4o: {inputs: 1, cached: -1}\n")
        refused = cbx("cost", conversation, "--prices", str(tmp_path / "prices.yaml"))
        assert (refused.code, refused.out) == (4, "")
        assert "prices.yaml:3" in refused.err
        assert cbx("cost", conversation, "--prices", str(tmp_path / "none.yaml")).code == 3


def test_anything_except_one_box_turn_agent_or_chat_is_refused(cbx: Cbx, conversation: str) -> None:
    for words, code, message in (
        (("nothing-here",), 3, "error: no box or turn 'nothing-here' in project 'p'"),
        ((), 2, "error: pass exactly one box, turn, --agent or --chat"),
        (("--chat", "nobody"), 3, "error: no chat 'nobody' in project 'p'"),
        ((conversation, "--chat", "nobody"), 2, "error: pass exactly one box, turn, --agent or --chat"),
        ((conversation, "--agent", "clerk"), 2, "error: pass exactly one box, turn, --agent or --chat"),
        ((conversation, "--since", "1h"), 2, "error: --since requires --agent or --chat"),
        ((conversation, "--by", "colour"), 2, "error: --by: unknown grouping 'colour'"),
    ):
        refused = cbx("cost", *words)
        assert (refused.code, refused.out, refused.err.splitlines()[0]) == (code, "", message)


def test_the_turn_and_box_options_of_render_are_accepted(cbx: Cbx, conversation: str, ran: Ran) -> None:
    turn = ran()
    for bare, named in (((turn,), ("--turn", turn)), ((conversation,), ("-b", conversation[-8:]))):
        assert cbx("cost", *named, "-o", "json").json() == cbx("cost", *bare, "-o", "json").json()
    assert cbx("cost", "--turn", "@last", "-o", "json").json()["id"] == turn
    profiled = ("--profile", "clerk", "-o", "json")
    assert cbx("cost", "--box", conversation, *profiled).json() == cbx("cost", conversation, *profiled).json()
    for words, code, message in (
        (("--turn", conversation), 3, f"error: no turn {conversation!r} in project 'p'"),
        (("--box", turn), 3, f"error: no box {turn!r} in project 'p'"),
        (("--turn", turn, "--box", conversation), 2, "error: pass exactly one box, turn, --agent or --chat"),
        ((turn, "--turn", turn), 2, "error: pass exactly one box, turn, --agent or --chat"),
        ((conversation, "--profile", "clrek"), 3, "error: no profile 'clrek' in project 'p'; did you mean 'clerk'?"),
        (("--box", conversation, "--profile", "clrek"), 3, "error: no profile 'clrek' in project 'p'; did you mean 'clerk'?"),
        ((turn, "--profile", "clrek"), 2, "error: --profile requires a box, not a turn, agent or chat"),
        (("nothing", "--profile", "clerk"), 3, "error: no box or turn 'nothing' in project 'p'"),
        (("--turn", turn, "--profile", "clerk"), 2, "error: --profile requires a box, not a turn, agent or chat"),
        (("--box", conversation, "--since", "1h"), 2, "error: --since requires --agent or --chat"),
    ):  # fmt: skip
        refused = cbx("cost", *words)
        assert (refused.code, refused.out, refused.err.splitlines()[0]) == (code, "", message)


def test_boxes_of_other_projects_are_not_found(cbx: Cbx, conversation: str) -> None:
    assert cbx("cost", conversation, "--project", "q").code == 3


def test_boxes_and_groupings_are_completed(offered: Offered, conversation: str) -> None:
    assert conversation[-8:] in offered("cbx cost ")
    assert set(offered("cbx cost x --by ")) == {"layer", "type", "tool", "card"}


def test_the_cards_of_a_box_show_their_tool_and_are_sorted_by_tokens(cbx: Cbx, conversation: str) -> None:
    words = ("box", "show", conversation, "-o", "csv", "--no-header", "--columns", "#,tool,tokens")
    rows = [line.split(",") for line in lines(cbx(*words, "--sort", "tokens:desc"))]
    assert [row[1] for row in rows[:4]] == ["read"] * 4
    tokens = [int(row[2].removeprefix("~")) for row in rows]
    assert tokens == sorted(tokens, reverse=True)
    assert {row[1] for row in rows[4:]} == {""}
