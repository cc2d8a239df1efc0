"""`cbx render` of turns and steps, its answers, and which options go together."""

import hashlib
import json
import os
import re
import shlex
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from cardbox_cli.entry import main
from cardbox_cli.model.cards import draft_card
from cardbox_cli.providers.registry import PROVIDERS
from cardbox_cli.store.boxes import BoxStore
from cardbox_cli.store.cards import CardStore
from cardbox_cli.store.connection.database import Database
from tests.cli.conftest import Offered, lines, succeed
from tests.conftest import Cbx, Result

CLIENT = f"{shlex.quote(sys.executable)} {Path(__file__).parents[3] / 'examples/client.py'}"
PROFILE = "name: clerk\nsystem_prompt: You are a clerk.\nallowed_tools: [look]\nllm_config: {model: gpt-4o}\n"

RECIPE = """\
target_profile_config: {profile_name: clerk}
context_packing_config:
  inherit_context: {include_boxes_from_args: [work]}
"""

Ask = Callable[[], str]


@pytest.fixture
def ask(cbx: Cbx, add: Callable[..., str], box_of: Callable[..., str], tmp_path: Path) -> Ask:
    """Give the agent `clerk` a turn; its id."""
    (tmp_path / "clerk.yaml").write_text(PROFILE)
    succeed(cbx("profile", "import", str(tmp_path / "clerk.yaml")))
    succeed(cbx("agent", "provision", "clerk", "--profile", "clerk"))
    succeed(cbx("tool", "add", "look", "--exec", "cat", "--description", "Look at what is there."))
    context = box_of(add("Find the cause."))

    def dispatch() -> str:
        return succeed(cbx("dispatch", "--agent", "clerk", "--context-box", context, "-o", "id")).strip()

    return dispatch


@pytest.fixture
def ran(cbx: Cbx, ask: Ask) -> str:
    """A turn whose model called `look` and then answered."""
    turn = ask()
    succeed(
        cbx("worker", "run", "--trust-stored-commands", "--exec", f"{CLIENT} --call look '{{}}'", "--drain")
    )
    return turn


@pytest.fixture
def ran_with_notes(cbx: Cbx, ask: Ask) -> str:
    """Such a turn with a layer that lived for the calls, and said the same in both."""
    turn = ask()
    notes = ("--layer", "notes__context=Notes.")
    succeed(
        cbx(
            "worker",
            "run",
            "--trust-stored-commands",
            "--exec",
            f"{CLIENT} --call look '{{}}'",
            "--drain",
            *notes,
        )
    )
    return turn


def roles(result: Result) -> list[str]:
    return [message["role"] for message in json.loads(succeed(result))["messages"]]


class TestTurns:
    def test_render_shows_the_next_request_or_the_recorded_one(self, cbx: Cbx, ask: Ask) -> None:
        turn = ask()
        command = ("render", "--turn", turn)
        composed = cbx(*command)
        assert composed.err == "note: as cbx would compose it\n"
        assert roles(composed) == ["system", "user"]
        succeed(cbx("worker", "run", "--trust-stored-commands", "--exec", CLIENT, "--drain"))
        recorded = cbx("render", "--turn", "@last")
        assert (recorded.out, recorded.err) == (composed.out, "")
        assert roles(cbx(*command, "--at", "next")) == ["system", "user", "assistant", "assistant"]
        assert json.loads(cbx(*command, "--model", "other").out)["model"] == "other"
        assert cbx(*command, "--format", "text").out.startswith("── 1 system ──\n  You are a clerk.\n")

    def test_a_profile_with_boxes_renders_the_request_of_a_turn(self, cbx: Cbx, ask: Ask) -> None:
        turn = ask()
        box = cbx("turn", "show", turn, "-o", "json").json()["context_box_id"]
        would = cbx("render", "--profile", "CLERK", "--box", box)
        assert (succeed(would), would.err) == (cbx("render", "--turn", turn).out, "")
        assert [tool["function"]["name"] for tool in json.loads(would.out)["tools"]] == ["look"]
        alone, with_profile = (
            cbx("render", *words, "--diff", box, box, "-o", "json").json()["kept"]
            for words in ((), ("--profile", "clerk"))
        )
        assert (alone["messages"], with_profile["messages"]) == (1, 2)
        unknown = cbx("render", "--profile", "nobody", "--box", box)
        assert (unknown.code, unknown.err.splitlines()[0]) == (3, "error: no profile 'nobody' in project 'p'")
        no_box = cbx("render", "--profile", "clerk", "--diff", turn, turn)
        assert no_box.err.splitlines()[0] == (
            f"error: --diff: {turn!r} is not a box, and --profile requires boxes"
        )

    def test_the_agent_option_selects_its_current_or_last_turn(self, cbx: Cbx, ask: Ask) -> None:
        def told() -> str:
            result = cbx("render", "--agent", "clerk")
            assert result.code == 0
            return result.err.splitlines()[0]

        unknown = cbx("render", "--agent", "clerk")
        assert (unknown.code, unknown.err) == (
            3,
            "error: agent 'clerk' has no turn in project 'p'\n"
            "hint: `cbx agent list` shows the agents; `cbx turn list` shows the turns\n",
        )
        first, second = ask(), ask()
        assert told() == f"note: agent 'clerk': turn {first}, dispatched"
        succeed(cbx("worker", "run", "--trust-stored-commands", "--exec", CLIENT, "--once"))
        assert told() == f"note: agent 'clerk': turn {second}, dispatched"
        succeed(cbx("worker", "run", "--trust-stored-commands", "--exec", CLIENT, "--drain"))
        assert told() == f"note: agent 'clerk': turn {second}, ended"

    def test_a_rendered_step_equals_the_sent_request_byte_for_byte(
        self, cbx: Cbx, ask: Ask, tmp_path: Path
    ) -> None:
        turn = ask()
        command = f"tee {tmp_path}/body-$CBX_STEP | {CLIENT} --call look '{{}}'"
        succeed(cbx("worker", "run", "--trust-stored-commands", "--exec", command, "--drain"))
        first, second = sorted(tmp_path.glob("body-*"))
        assert cbx("render", "--turn", turn, "--at", "1", "-o", "jsonl").out == first.read_text()
        assert cbx("render", "--turn", turn, "-o", "jsonl").out == second.read_text()
        assert cbx("render", "--turn", turn, "--at", "1", "--verify").code == 0
        difference = cbx("render", "--turn", turn, "--diff", "1", "next", "-o", "json").json()["difference"]
        assert difference["b"]["section"] == "messages"

    def test_the_format_is_that_of_the_last_step_or_the_model(
        self, cbx: Cbx, ask: Ask, add: Callable[..., str], box_of: Callable[..., str]
    ) -> None:
        def is_anthropic(*options: str) -> bool:
            return "system" in json.loads(cbx("render", "--turn", *options).out)

        assert not is_anthropic(ask())
        succeed(
            cbx(
                "worker",
                "run",
                "--trust-stored-commands",
                "--exec",
                "printf done",
                "--format",
                "anthropic",
                "--drain",
            )
        )
        assert is_anthropic("@last")
        assert is_anthropic("@last", "--at", "next")
        assert not is_anthropic("@last", "--at", "next", "--format", "openai")
        box = box_of(add("Hi.", type="agent.thought"), add("Go on."))
        claude = ("--runtime-config", '{"model": "claude-3-7-sonnet"}', "--context-box", box)
        succeed(cbx("dispatch", "--agent", "clerk", *claude))
        assert is_anthropic("@last")
        check = ("--check", "-o", "json")
        refused, _ = cbx("dispatch", "--agent", "clerk", *claude, *check).err.splitlines()
        [found] = cbx("render", "--turn", "@last", *check).json()
        assert [found] == json.loads(refused)
        assert (found["rule"], found["provider"]) == ("first-message-not-user", "anthropic")
        assert "system" not in json.loads(cbx("render", "--box", box, "--model", "claude-3-7-sonnet").out)
        [found] = cbx("render", "--box", box, "--model", "claude-3-7-sonnet", *check).json()
        assert found["provider"] == "anthropic"

    def test_a_model_that_does_not_fit_the_format_of_a_box_causes_a_note(
        self, cbx: Cbx, box_of: Callable[..., str], add: Callable[..., str]
    ) -> None:
        words = ("render", "--box", box_of(add("x")), "--model")
        assert cbx(*words, "claude-3-7-sonnet").err == (
            "note: the model 'claude-3-7-sonnet' is Anthropic's, and this body is in the format openai: "
            "--format anthropic makes its own\n"
        )
        for model in ("gpt-4o", "llama-3", "anthropic/claude-3-7-sonnet"):
            assert cbx(*words, model).err == ""
        assert cbx(*words, "claude-3-7-sonnet", "--format", "openai").err == ""
        assert "note" not in cbx(*words, "claude-3-7-sonnet", "--check").err

    def test_check_reports_what_the_provider_would_refuse(self, cbx: Cbx, ran: str) -> None:
        check = ("render", "--turn", ran, "--check", "-o", "json")
        assert cbx(*check).json() == []
        result = cbx(*check, "--at", "next", "--format", "anthropic", "--model", "claude-opus-4-7")
        assert (result.code, [each["rule"] for each in result.json()]) == (8, ["prefill-refused"])

    def test_unknown_turns_and_steps_are_refused(self, cbx: Cbx, ran: str) -> None:
        for option, message in (
            (("--turn", "nope"), "no turn 'nope' in project 'p'"),
            (("--turn", ran, "--at", "7"), f"turn '{ran}' has no step '7'"),
            (("--turn", ran, "--at", "step"), "'step' is ambiguous; it matches "),
        ):
            result = cbx("render", *option)
            assert result.code == (5 if "ambiguous" in message else 3)
            assert result.err.startswith(f"error: {message}")


class TestWaiting:
    """A turn that called `look` and `wait`, whose results are reported."""

    CALLS = (
        '{"role": "assistant", "content": null, "tool_calls": ['
        + ", ".join(
            f'{{"id": "{name}_0", "type": "function", "function": {{"name": "look", "arguments": "{{}}"}}}}'
            for name in ("a", "b")
        )
        + "]}"
    )

    @pytest.fixture
    def suspended(self, cbx: Cbx, ask: Ask) -> str:
        turn = ask()
        succeed(cbx("tool", "add", "look", "--replace"))
        succeed(
            cbx(
                "worker",
                "run",
                "--trust-stored-commands",
                "--exec",
                f"printf %s {shlex.quote(self.CALLS)}",
                "--drain",
            )
        )
        return turn

    def test_reported_results_are_in_the_next_request(self, cbx: Cbx, suspended: str, tmp_path: Path) -> None:
        render = ("render", "--turn", suspended, "-o", "jsonl")
        composed, waits = (
            "note: as cbx would compose it\n",
            "note: waits for {}_0: its result is missing\n",
        )
        assert cbx(*render).err == composed + waits.format("a") + waits.format("b")
        check = ("render", "--turn", suspended, "--check", "-o", "json")
        assert cbx(*check).json() == []
        report = ("turn", "report", suspended, "--result", '"seen"', "--tool-call-id")
        succeed(cbx(*report, "b_0"))
        assert cbx(*render).err == composed + waits.format("a")
        assert cbx(*check).json() == []
        succeed(cbx(*report, "a_0"))
        result = cbx(*render)
        assert result.err == composed
        answered = [each.get("tool_call_id") for each in json.loads(result.out)["messages"]]
        assert answered == [None, None, None, "b_0", "a_0"]
        assert cbx(*check).json() == []
        succeed(
            cbx(
                "worker",
                "run",
                "--trust-stored-commands",
                "--exec",
                f"tee {tmp_path}/body | {CLIENT}",
                "--drain",
            )
        )
        assert (tmp_path / "body").read_text() == result.out

    def test_a_result_that_ends_the_turn_causes_a_note(self, cbx: Cbx, suspended: str) -> None:
        report = ("turn", "report", suspended, "--result", '"seen"', "--tool-call-id")
        succeed(cbx(*report, "b_0", "--after-execution", "terminate"))
        assert "ends the turn" not in cbx("render", "--turn", suspended).err
        succeed(cbx(*report, "a_0"))
        note = "note: a result ends the turn (success), so no worker will send it\n"
        assert cbx("render", "--turn", suspended).err.endswith(note)
        succeed(cbx("worker", "run", "--trust-stored-commands", "--exec", CLIENT, "--drain"))
        assert cbx("turn", "show", suspended, "-o", "json").json()["steps"][1:] == []

    def test_a_turn_rendered_during_a_tool_call_waits_for_its_result(
        self, cbx: Cbx, ask: Ask, tmp_path: Path
    ) -> None:
        turn = ask()
        home = f"{sys.executable} -m cardbox_cli"
        look = f"{home} render --turn $CBX_TURN_ID --check -o json > {tmp_path}/found 2> {tmp_path}/said"
        succeed(cbx("tool", "add", "look", "--exec", f"cat > /dev/null; {look}", "--replace"))
        succeed(
            cbx(
                "worker",
                "run",
                "--trust-stored-commands",
                "--exec",
                f"{CLIENT} --call look '{{}}'",
                "--drain",
                *("--env", "CBX_DATABASE_URL", "--env", "CBX_HOME"),
            )
        )
        assert turn
        assert json.loads((tmp_path / "found").read_text()) == []
        assert "note: waits for call_0: its result is missing" in (tmp_path / "said").read_text()


class TestExplaining:
    def test_explain_shows_the_card_and_rule_of_each_message(self, cbx: Cbx, ran: str) -> None:
        told = cbx("render", "--turn", ran, "--explain", "-o", "json").json()["explanation"]
        assert [(line["role"], line["rule"]) for line in told["messages"]] == [
            ("system", None),
            ("user", None),
            ("assistant", "output"),
            ("tool", "output"),
        ]
        request_box = told["messages"][1]["box_id"]
        assert [line["position"] for line in told["messages"]] == [0, 2, 3, 5]
        assert {line["box_id"] for line in told["messages"]} == {request_box}
        assert [tool["name"] for tool in told["tools"]] == ["look"]
        assert told["tokens"] >= sum(line["tokens"] for line in (*told["messages"], *told["tools"]))
        ids = lines(cbx("render", "--turn", ran, "--explain", "-o", "id"))
        assert ids == [line["card_id"] for line in told["messages"]]

    def test_explain_shows_the_rules_that_packed_the_context(
        self, cbx: Cbx, ask: Ask, add: Callable[..., str], box_of: Callable[..., str], tmp_path: Path
    ) -> None:
        work = box_of(add("Earlier work."))
        recipe = tmp_path / "clerk-recipe.yaml"
        recipe.write_text(RECIPE)
        packed = ("--handover", str(recipe), "--arg", f"work={work}")
        ask()
        succeed(cbx("worker", "run", "--trust-stored-commands", "--exec", CLIENT, "--drain"))
        succeed(cbx("dispatch", "--agent", "clerk", *packed))

        def rules() -> list[str | None]:
            told = cbx("render", "--turn", "@last", "--explain", "-o", "json").json()["explanation"]
            return [line["rule"] for line in told["messages"]]

        composed = rules()
        assert composed == [None, f"inherit_context work (box {work})"]
        succeed(cbx("worker", "run", "--trust-stored-commands", "--exec", CLIENT, "--drain"))
        assert rules() == composed

    def test_explain_shows_the_cards_of_layers_and_the_omitted_layers(
        self, cbx: Cbx, add: Callable[..., str], box_of: Callable[..., str], tmp_path: Path
    ) -> None:
        (tmp_path / "sum.yaml").write_text("name: sum\nsystem_prompt: Sum up.\nprocess: mapreduce_worker\n")
        profile = succeed(cbx("profile", "import", str(tmp_path / "sum.yaml"), "-o", "id")).strip()
        box = box_of(*(add(text, type="context.compression") for text in ("one", "two")), add("Go."))
        prompt = cbx("render", "--box", profile, "--explain", "-o", "json").json()["explanation"]["messages"]
        assert [(line["layer"], line["card_id"], len(line["made_of"])) for line in prompt] == [
            ("system_prompt", None, 1)
        ]
        number, role, layer, cards, *_ = lines(cbx("render", "--box", box, "--explain"))[5].split()
        assert (number, role, layer, cards[8:]) == ("1", "system", "compression__context", "+1")
        told = lines(cbx("render", "--box", profile, "--box", box, "--explain"))
        assert told[1].split() == ["process", "mapreduce_worker"]
        assert re.split("  +", told[-1]) == [
            "compression__context",
            "the process mapreduce_worker cannot have it",
        ]


class TestStats:
    def test_each_layer_has_a_bar(self, cbx: Cbx, ran: str, monkeypatch: pytest.MonkeyPatch) -> None:
        stats = ("render", "--turn", ran, "--stats")
        shown = lines(cbx(*stats))
        assert shown[0].split() == ["model", "gpt-4o"]
        assert re.fullmatch(r"window    128000 tokens, ~?0\.[01]% taken", shown[1])
        assert shown[5].split() == ["LAYER", "MESSAGES", "CHARS", "TOKENS", "SHARE"]
        assert [line.split()[0] for line in shown[6:]] == ["system_prompt", "history", "tools"]
        assert all(set(line.split()[-1]) == {"▇"} for line in shown[6:])
        with monkeypatch.context() as terminal:
            terminal.setattr("cardbox_cli.cli.terminal.table_layout._width", lambda: 70)
            narrow = lines(cbx(*stats))
        assert all(set(line.split()[-1]) == {"▇"} and len(line) <= 70 for line in narrow[6:])
        monkeypatch.setenv("TERM", "dumb")
        assert all(set(line.split()[-1]) == {"#"} for line in lines(cbx(*stats))[6:])

    def test_json_output_has_the_numbers_of_each_layer(self, cbx: Cbx, ran: str) -> None:
        found = cbx("render", "--turn", ran, "--stats", "-o", "json").json()
        keys = ["layer", "messages", "characters", "tokens", "tokens_exact", "share", "of_window"]
        assert [list(each) for each in found] == [keys] * 3
        assert [each["messages"] for each in found] == [1, 3, 1]
        # The beginning of the reply is no layer's.
        assert 0.9 < sum(each["share"] for each in found) <= 1.001
        other = cbx("render", "--turn", ran, "--stats", "--model", "m", "-o", "json").json()
        assert [each["of_window"] for each in other] == [None] * 3
        names = ["system_prompt", "checkpoint_messages", "tools"]
        assert lines(cbx("render", "--turn", ran, "--stats", "-o", "id")) == names

    def test_an_empty_box_has_no_stats(self, cbx: Cbx, box_of: Callable[..., str]) -> None:
        empty = ("render", "--box", box_of(), "--stats")
        assert cbx(*empty, "-o", "json").json() == []
        assert lines(cbx(*empty))[-1].split() == ["tokens", "0"]


class TestDiff:
    def test_the_diff_of_two_steps_shows_the_new_messages(self, cbx: Cbx, ran: str) -> None:
        result = cbx("render", "--turn", ran, "--diff", "1", "2")
        assert (result.code, result.err) == (0, "")
        kept, new, *messages = result.out.splitlines()
        assert re.fullmatch(rf"kept  2 messages, ~?\d+ tokens: all of {ran}, step_\w+", kept)
        assert re.fullmatch(
            rf"new   2 messages, ~?\d+ tokens: {ran}, step_\w+ continues where that ends", new
        )
        assert [re.sub(r"card \w+$", "card", line) for line in messages[::2]] == [
            "+++ message 3, assistant, checkpoint_messages, card",
            "+++ message 4, tool, checkpoint_messages, card",
        ]
        found = cbx("render", "--turn", ran, "--diff", "1", "2", "-o", "json").json()
        assert (found["equal"], found["continues"]) == (False, True)
        cards = [card_id for piece in found["new"] for card_id in piece["card_ids"]]
        assert lines(cbx("render", "--turn", ran, "--diff", "1", "2", "-o", "id")) == cards
        back = cbx("render", "--turn", ran, "--diff", "2", "1")
        assert (back.code, back.err[:21]) == (8, "error: the requests d")
        same = cbx("render", "--turn", ran, "--diff", "2", "2")
        assert (same.code, same.out.split(",")[0], same.err) == (0, "equal: 4 messages", "")

    def test_an_unstored_layer_is_compared_by_its_hash(self, cbx: Cbx, ran_with_notes: str, ask: Ask) -> None:
        kept, *_, one, other = cbx("render", "--turn", ran_with_notes, "--diff", "1", "2").out.splitlines()
        assert re.match(r"kept  3 messages, ~\d+ tokens and those of 1 unknown text: ", kept)
        first, second = cbx("turn", "show", ran_with_notes, "-o", "json").json()["steps"]
        for step, line in ((first, one), (second, other)):
            assert line == (
                f"- the layer notes__context of {ran_with_notes}, {step['step_id']} was compared by its hash, its "
                "tokens are not counted: it existed only for the call, and only the hash of its text is stored"
            )
        given = ("--layer", "notes__context=Notes.")
        result = cbx("render", "--turn", ran_with_notes, "--diff", "1", "2", *given)
        assert re.match(r"kept  3 messages, ~?\d+ tokens: ", result.out)
        assert "hash" not in result.out
        another = ask()
        succeed(
            cbx(
                "worker",
                "run",
                "--trust-stored-commands",
                "--exec",
                CLIENT,
                "--drain",
                "--layer",
                "notes__context=Others.",
            )
        )
        result = cbx("render", "--diff", first["step_id"], another)
        assert result.code == 8
        assert re.fullmatch(
            r"error: the requests differ: a cache loses 2 messages, ~\d+ tokens and those of 1 unknown text of "
            r"the first\n",
            result.err,
        )
        kept, one, other, empty, *_, note, other_note = result.out.splitlines()
        for line, text in ((one, b"Notes."), (other, b"Others.")):
            sha256 = hashlib.sha256(text).hexdigest()[:12]
            assert line.endswith(
                f"  message 2, system, notes__context, its text is not known, SHA-256 {sha256}…"
            )
        assert empty == ""
        assert f" of {ran_with_notes}, {first['step_id']} was " in note
        assert f" of {another}, " in other_note
        found = cbx("render", "--diff", first["step_id"], another, "-o", "json").json()
        assert found["lost_layers"] == {"a": ["notes__context"], "b": ["notes__context"]}
        assert [found["difference"][side]["text"] for side in "ab"] == ["", ""]
        one_sided = cbx("render", "--diff", first["step_id"], another, *given)
        assert "    [-Notes.-]\n" in one_sided.out

    def test_a_step_without_hashes_causes_a_note(
        self, cbx: Cbx, ran_with_notes: str, database: Database
    ) -> None:
        first, _ = cbx("turn", "show", ran_with_notes, "-o", "json").json()["steps"]
        step_id = first["step_id"]
        database.connection.execute(
            "UPDATE state.agent_steps SET metadata = '{}' WHERE step_id = %s", [step_id]
        )
        note = f"note: {step_id} has no hashes: layers that existed only for its call are not compared\n"
        same = cbx("render", "--turn", ran_with_notes, "--diff", "1", "1")
        assert (same.code, same.err) == (0, note)
        other = cbx("render", "--turn", ran_with_notes, "--diff", "1", "2")
        assert (other.code, other.err.startswith(note)) == (8, True)

    def test_two_boxes_are_compared_with_a_profile(
        self, cbx: Cbx, ran: str, add: Callable[..., str], box_of: Callable[..., str]
    ) -> None:
        profile = succeed(cbx("profile", "list", "-o", "id")).strip()
        shared, one, other = add("Hello."), add("Where is order 118?"), add("Where is order 119?")
        a, b = box_of(shared, one), box_of(shared, other)
        compare = ("render", "--box", profile, "--diff", a[-8:], "@last")
        result = cbx(*compare)
        assert result.code == 8
        assert "    Where is order [-118-]{+119+}?\n" in result.out
        assert re.search(
            r"^lost  1 message, ~?\d+ tokens: the first from there on$", result.out, re.MULTILINE
        )
        assert result.err.startswith("error: the requests differ: a cache loses 1 message, ")
        found = cbx(*compare, "-o", "json").json()
        assert list(found) == [
            "a",
            "b",
            "equal",
            "continues",
            "kept",
            "difference",
            "new",
            "a_after",
            "b_after",
            "lost_layers",
        ]
        assert (found["a"], found["b"], found["kept"]["messages"]) == (f"box {a}", f"box {b}", 2)
        keys = [
            "section",
            "number",
            "role",
            "layer",
            "card_ids",
            "tokens",
            "tokens_exact",
            "text",
            "differing",
            "sha256",
        ]
        assert [list(found["difference"][side]) for side in "ab"] == [keys] * 2
        assert [found["difference"][side]["card_ids"] for side in "ab"] == [[one], [other]]
        assert cbx(*compare, "-o", "id").out == f"{other}\n"

    def test_messages_with_equal_text_show_the_differing_keys(
        self, cbx: Cbx, add: Callable[..., str], box_of: Callable[..., str]
    ) -> None:
        a, b = (box_of(add("ok", "--tool-call-id", each, type="tool.result")) for each in ("c1", "c2"))
        result = cbx("render", "--diff", a, b)
        assert '    {"tool_call_id":"[-c1-]{+c2+}"}\n' in result.out
        found = cbx("render", "--diff", a, b, "-o", "json").json()["difference"]
        assert [found[side]["differing"] for side in "ab"] == [{"tool_call_id": "c1"}, {"tool_call_id": "c2"}]

    def test_a_query_with_turns_is_refused(self, cbx: Cbx, ran: str) -> None:
        result = cbx("render", "--diff", ran, ran, "--query", "Go on")
        assert (result.code, result.err.splitlines()[0]) == (
            2,
            "error: --query requires --box: a turn's prompt is in its context box",
        )

    def test_options_that_cannot_change_either_step_are_refused(self, cbx: Cbx, ran: str) -> None:
        layer = ("--layer", "framework__context=Rules.")
        assert cbx("render", "--turn", ran, "--diff", "2", "next", *layer).code == 8
        result = cbx("render", "--turn", ran, "--diff", "1", "2", *layer)
        assert (result.code, result.err.splitlines()[0]) == (
            2,
            "error: --layer framework__context cannot change a step that was sent",
        )

    def test_turns_and_steps_are_compared_by_id(self, cbx: Cbx, ran: str) -> None:
        first, second = cbx("turn", "show", ran, "-o", "json").json()["steps"]
        assert cbx("render", "--diff", second["step_id"], ran).code == 0
        found = cbx("render", "--diff", first["request_box_id"], first["step_id"], "-o", "json").json()
        assert found["difference"]["a"]["section"] == "model"
        for words, code, message in (
            (("--diff", "step_nope", ran), 3, "no step 'step_nope' in project 'p'"),
            (("--diff", "nope", ran), 3, "no box, turn or step 'nope' in project 'p'"),
            (("--box", "@last", "--diff", ran, ran), 2, f"--diff: '{ran}' is not a box, and --box requires boxes"),
        ):  # fmt: skip
            result = cbx("render", *words)
            assert (result.code, result.err.splitlines()[0]) == (code, f"error: {message}")


class TestVerify:
    def test_verify_reports_if_the_cards_make_the_sent_request(self, cbx: Cbx, ran: str) -> None:
        verify = ("render", "--turn", ran, "--verify")
        step = cbx("turn", "show", ran, "-o", "json").json()["steps"][1]
        [said] = lines(cbx(*verify))
        assert said.startswith(
            f"{step['step_id']}: the cards make the same request, to the byte: 4 messages, "
        )
        found = cbx(*verify, "-o", "json").json()
        assert found == {
            "agent_turn_id": ran,
            "step_id": step["step_id"],
            "request_box_id": step["request_box_id"],
            "equal": True,
            "compared_by": "sha256",
            "lost_layers": [],
            "unproved": None,
            "reasons": [],
            "kept": {
                "messages": 4,
                **{key: found["kept"][key] for key in ("tokens", "tokens_exact")},
                "uncounted": 0,
            },
            "difference": None,
        }
        assert lines(cbx(*verify, "-o", "id")) == [step["request_box_id"]]
        explained = cbx("render", "--turn", ran, "--explain", "-o", "json").json()["explanation"]
        assert found["kept"]["tokens"] == explained["tokens"]
        asked = cbx("card", "list", "--type", "task.instruction", "-o", "id").out.strip()
        succeed(cbx("card", "delete", asked, "--yes"))
        result = cbx(*verify, "--at", "1")
        assert result.code == 8
        assert f"- card {asked[-8:]} at position 2 of the request box is deleted\n" in result.out
        assert result.err.startswith("error: the cards no longer reproduce the request of step_")

    def test_an_unstored_layer_does_not_hide_an_overwritten_card(
        self, cbx: Cbx, ran_with_notes: str, database: Database
    ) -> None:
        verify = ("render", "--turn", ran_with_notes, "--at", "1", "--verify")
        said, lost = lines(cbx(*verify))
        assert (
            ": the cards make the same request, except for layers of that call alone, to the byte: " in said
        )
        assert lost == (
            "- the layer notes__context was not compared: it existed only for the call, and only the hash of its text is stored"
        )
        asked = cbx("card", "list", "--type", "task.instruction", "-o", "id").out.strip()
        overwrite = ("card", "add", "--id", asked, "--type", "task.instruction", "--text", "GO", "--repair")
        succeed(cbx(*overwrite))
        result = cbx(*verify)
        assert result.code == 8
        assert result.out.splitlines()[2:] == [
            "- the messages match the request box but not the sent request: a card was overwritten, or "
            "the profile changed",
            lost,
        ]
        database.connection.execute(
            "UPDATE state.agent_steps SET metadata = metadata #- '{request,rest_sha256}'"
        )
        said, *uncompared = lines(cbx(*verify))
        assert ": nothing differs from its request box, which does not prove what was sent: " in said
        unproved = (
            "the history, the tools, the model and its parameters were compared with their present state: the "
            "step has no hash of them, so later changes of them do not show"
        )
        assert uncompared == [lost, f"- not proved: {unproved}"]
        assert cbx(*verify, "-o", "json").json()["unproved"] == unproved

    def test_a_turn_that_sent_nothing_cannot_be_verified(self, cbx: Cbx, ask: Ask) -> None:
        turn = ask()
        result = cbx("render", "--turn", turn, "--verify")
        assert (result.code, result.err.splitlines()[0]) == (
            3,
            f"error: turn '{turn}' has no snapshot of a request",
        )
        lists = f"hint: `cbx turn show {turn[-8:]}` lists its steps; a step can be verified once it has begun"
        assert result.err.splitlines()[1] == lists
        succeed(cbx("turn", "stop", turn))
        tells = f"hint: it has ended and will send none; run `cbx turn show {turn[-8:]}` for details"
        assert cbx("render", "--turn", turn, "--verify").err.splitlines()[1] == tells


@pytest.mark.parametrize(
    ("words", "option"),
    [
        ("--share", "--share"),
        ("--no-share", "--no-share"),
        ("--process sequential", "--process"),
        ("--layout cache", "--layout"),
        ("--experience", "--experience"),
        ("--knowledge-query order", "--knowledge-query"),
        ("--layer knowledge__context", "--layer knowledge__context"),
        ("--layer todo__context", "--layer todo__context"),
        ("--layer notes__context=x", "--layer notes__context"),
        ("--layer notes__context=x --verify", "--layer notes__context"),
    ],
)
def test_options_that_change_a_sent_request_are_refused(cbx: Cbx, ran: str, words: str, option: str) -> None:
    result = cbx("render", "--turn", ran, *words.split())
    assert (result.code, result.out, result.err.splitlines()) == (
        2,
        "",
        [
            f"error: {option} cannot change a step that was sent",
            "hint: use --at next for the next request",
        ],
    )


def test_a_knowledge_layer_requires_a_query(cbx: Cbx, ran: str) -> None:
    result = cbx("render", "--turn", ran, "--at", "next", "--layer", "knowledge__context")
    assert (result.code, result.err.splitlines()[0]) == (
        2,
        "error: --layer knowledge__context requires --knowledge-query",
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("", "no request given"),
        ("--profile x", "no request given"),
        ("--profile x --turn t", "--profile requires --box, not a turn, agent or chat"),
        ("--box b --turn t", "--box and --turn cannot be combined"),
        ("--turn t --agent a", "--turn and --agent cannot be combined"),
        ("--box b --check --explain", "--check and --explain cannot be combined"),
        ("--turn t --stats --verify", "--stats and --verify cannot be combined"),
        ("--turn t --diff 1 2 --verify", "--diff and --verify cannot be combined"),
        ("--box b --at 1", "--at requires a turn or chat"),
        ("--turn t --at 1 --diff 1 2", "--at and --diff cannot be combined"),
        ("--box b --verify", "--verify needs a sent request"),
        ("--turn t --at next --verify", "--verify needs a sent request, but the next step has not begun"),
        ("--turn t --format nix", "--format: unknown format 'nix'"),
        ("--turn t --query x --diff 1 2", "--query requires --box: a turn's prompt is in its context box"),
        ("--turn t --diff 1", "Option '--diff' requires 2 arguments."),
    ],
)
def test_invalid_option_combinations_are_refused(offline: Cbx, words: str, message: str) -> None:
    result = offline("render", *words.split())
    assert (result.code, result.err.splitlines()[0]) == (2, f"error: {message}")
    assert result.err.splitlines()[1].startswith("hint: ")


def test_the_options_of_render_are_completed(ran: str, offered: Offered) -> None:
    assert set(offered("cbx render --turn ")) == {ran[-8:]}
    assert set(offered("cbx render --agent ")) == {"clerk"}
    assert set(offered("cbx render --at ")) == {"next"}
    assert ran[-8:] in offered("cbx render --diff one ")


def test_a_long_box_is_rendered_in_bounded_memory(
    cbx: Cbx, cards: CardStore, boxes: BoxStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In no format as much is held of it at any time as is printed."""
    text = "All of it is to be said, and nothing is to be kept. " * 50
    drafts = [
        draft_card(kind, f"{number} {text}")
        for number in range(1500)
        for kind in ("task.instruction", "agent.thought")
    ]
    cards.add_many(drafts)
    box_id = boxes.create([draft.card_id for draft in drafts]).box_id
    with open(os.devnull, "w", encoding="utf-8") as nowhere:
        monkeypatch.setattr(sys, "stdout", nowhere)
        for name in (*PROVIDERS, "text"):
            tracemalloc.start()
            try:
                assert main(["render", "--box", box_id, "--format", name]) == 0
                _, most = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
            assert most < len(text) * len(drafts), name


def test_each_unsupported_key_is_named_once(cbx: Cbx, tmp_path: Path) -> None:
    said = {"role": "user", "content": "Hi", "weight": 0, "mood": "sure", "name": "ann", "seat": 4}
    file = tmp_path / "chat.json"
    file.write_text(json.dumps({"messages": [said, said]}))
    box = cbx("card", "import", str(file), "--from", "openai", "-o", "id").out.strip()
    rendered = cbx("render", "--box", box, "--format", "anthropic", "--model", "claude-sonnet-4-5")
    named = ", ".join(f"the message's {key!r} is not sent" for key in ("mood", "name", "seat"))
    assert (
        rendered.err
        == f"warning: anthropic cannot represent everything (8 places): {named}; --check lists every place\n"
    )
