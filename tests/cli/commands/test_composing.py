"""The options that say how a request is composed."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from cardbox_cli.model.cards import card_text
from cardbox_cli.store.boxes import BoxStore
from cardbox_cli.store.profiles import ProfileStore
from tests.cli.conftest import lines, succeed
from tests.conftest import Cbx

Contents = Callable[..., list[str]]


@pytest.fixture
def profile(cbx: Cbx, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    Path("clerk.yaml").write_text("name: clerk\nsystem_prompt: Be brief.\nlayers: {notes__context: Notes.}\n")
    [box] = lines(cbx("profile", "import", "clerk.yaml", "-o", "id"))
    return box


@pytest.fixture
def context(cbx: Cbx, add: Callable[..., str]) -> str:
    """A box with a todo item, a summary and a question."""
    [box] = lines(cbx("box", "create", add("What now?"), "-o", "id"))
    succeed(cbx("todo", "add", box, "look"))
    summary = add("Earlier: hello.", "--role", "system", type="context.compression")
    succeed(cbx("box", "append", box, summary))
    return box


@pytest.fixture
def contents(cbx: Cbx, profile: str, context: str) -> Contents:
    """What the messages of the request say, under options."""

    def render(*options: str) -> list[str]:
        body = cbx("render", "--box", profile, "--box", context, *options).json()
        return [message["content"] for message in body["messages"]]

    return render


TODO, SUMMARY, ASKED = "Todo list:\n- [ ] look", "Earlier: hello.", "What now?"


def test_layers_are_composed_in_the_order_of_the_layout(contents: Contents) -> None:
    assert contents() == ["Be brief.", TODO, SUMMARY, "Notes.", ASKED]
    assert contents("--layout", "cache") == ["Be brief.", SUMMARY, "Notes.", ASKED, TODO]


def test_a_given_layer_replaces_the_collected_layer(contents: Contents, tmp_path: Path) -> None:
    (tmp_path / "rules.md").write_text("Rules.")
    given = ("--layer", "framework__context=@rules.md", "--layer", "todo__context=Mine.")
    assert contents(*given) == ["Be brief.", "Rules.", "Mine.", SUMMARY, "Notes.", ASKED]
    assert contents("--layer", "todo__context=", "--query", "Go on") == [
        *("Be brief.", SUMMARY, "Notes.", ASKED, "Go on")
    ]


def test_the_share_option_overrides_the_project_setting(cbx: Cbx, contents: Contents) -> None:
    assert contents("--no-share") == ["Be brief.", ASKED]
    assert contents("--no-share", "--layer", "todo__context") == ["Be brief.", TODO, ASKED]
    succeed(cbx("project", "update", "p", "--no-share"))
    assert contents() == ["Be brief.", ASKED]
    assert contents("--share") == ["Be brief.", TODO, SUMMARY, "Notes.", ASKED]


def test_knowledge_and_experience_are_searched_on_request(
    cbx: Cbx, contents: Contents, add: Callable[..., str]
) -> None:
    add("The stopcock is below the sink.", type="agent.thought")
    found = contents("--knowledge-query", "stopcock")
    assert found[1].endswith("[1] The stopcock is below the sink.")
    told = cbx("render", "--box", "@last", "--experience", "--explain", "-o", "json").json()
    assert told["explanation"]["layers_left_out"] == [
        {"layer": "experience__context", "reason": "nothing was found"}
    ]


def test_an_empty_requested_layer_is_reported(cbx: Cbx, context: str) -> None:
    shown = cbx("render", "--box", context, "--layer", "notes__context", "--knowledge-query", "nowhere")
    assert shown.err.splitlines()[:2] == [
        "note: the layer knowledge__context is left out: nothing was found",
        "note: the layer notes__context is left out: nothing was found",
    ]


def test_a_process_without_history_gets_only_the_query(
    cbx: Cbx, contents: Contents, context: str, add: Callable[..., str]
) -> None:
    succeed(cbx("box", "append", context, add("By the way.", type="chat.message")))
    assert contents("--process", "mapreduce_worker", "--query", "Go on") == ["Be brief.", ASKED, "Go on"]
    told = cbx("render", "--box", context, "--process", "mapreduce_worker", "--explain", "-o", "json").json()
    reasons = {each["reason"] for each in told["explanation"]["left_out"]}
    assert "history, and a mapreduce_worker takes none" in reasons


@pytest.mark.parametrize(
    ("options", "code", "error"),
    [
        (["--layer", "todo=x"], 4, "'todo' is not a layer: names of layers end in '__context'"),
        (["--layer", "a__context=1", "--layer", "a__context=2"], 2, "--layer: 'a__context' is given twice"),
        (["--layer", "knowledge__context"], 2, "--layer knowledge__context requires --knowledge-query"),
        (
            ["--layer", "knowledge__context=x", "--knowledge-query", "y"],
            2,
            "--knowledge-query and --layer knowledge__context=… cannot be combined",
        ),
        (["--knowledge-query", " "], 2, "--knowledge-query is empty"),
        (["--query", ""], 2, "--query is empty"),
        (["--model", ""], 2, "--model is empty"),
        (["--query", "What now?"], 4, "the query repeats the last user message of the history"),
        (["--process", "chain"], 2, "--process: unknown kind 'chain'"),
        (["--layout", "fast"], 2, "--layout: unknown layout 'fast'"),
        (
            ["--process", "mapreduce_worker", "--layer", "todo__context"],
            4,
            "the process mapreduce_worker cannot have the requested layer 'todo__context'",
        ),
        (["--layer", "todo__context=@gone"], 3, "no file 'gone'"),
    ],
)
def test_invalid_composition_options_are_refused(
    cbx: Cbx, context: str, options: list[str], code: int, error: str
) -> None:
    refused = cbx("render", "--box", context, *options, "-o", "json")
    assert (refused.code, refused.out) == (code, "")
    assert json.loads(refused.err)["error"]["message"].startswith(error)


class TestMaxTokens:
    """`render --max-tokens` and `pack --max-tokens`."""

    LONG = "word " * 300

    def box(self, cbx: Cbx) -> str:
        ids = [
            cbx("card", "add", "--type", kind, "--text", text, "-o", "id").out.strip()
            for kind, text in (
                ("task.instruction", "first"),
                ("agent.thought", self.LONG),
                ("task.instruction", "last"),
            )
        ]
        return cbx("box", "create", *ids, "-o", "id").out.strip()

    def test_a_request_is_fitted_and_the_omitted_cards_are_counted(self, cbx: Cbx) -> None:
        answer = cbx("render", "--box", self.box(cbx), "--max-tokens", "50")
        assert [message["content"] for message in answer.json()["messages"]] == ["last"]
        assert "2 cards left out (" in answer.err
        assert "tokens instead of ~" in answer.err

    def test_explain_lists_the_omitted_cards(self, cbx: Cbx) -> None:
        answer = cbx("render", "--box", self.box(cbx), "--max-tokens", "50", "--explain", "-o", "json").json()
        reasons = [left["reason"] for left in answer["explanation"]["left_out"]]
        assert reasons == ["the oldest, to fit 50 tokens", "the oldest, to fit 50 tokens"]
        assert answer["explanation"]["tokens"] <= 50

    def test_a_limit_below_the_mandatory_content_is_refused(self, cbx: Cbx) -> None:
        answer = cbx("render", "--box", self.box(cbx), "--max-tokens", "3")
        assert (answer.code, "the parts of the request that cbx must keep take ~" in answer.err) == (4, True)

    def test_max_tokens_refuses_options_that_it_cannot_be_combined_with(self, cbx: Cbx) -> None:
        box = self.box(cbx)
        for words in (["--fit", "oldest"], ["--max-tokens", "9", "--diff", box, box]):
            assert cbx("render", "--box", box, *words).code == 2
        assert cbx("render", "--box", box, "--max-tokens", "9", "--fit", "x").err.splitlines() == [
            "error: --fit: unknown strategy 'x'",
            "hint: strategies are oldest, largest-results, duplicates",
        ]

    def test_a_packed_box_is_fitted_and_keeps_its_arguments(
        self, cbx: Cbx, profiles: ProfileStore, boxes: BoxStore, row_counts: Callable[[], dict[str, int]]
    ) -> None:
        profiles.save({"name": "clerk", "worker_target": "w", "tags": []}, author_id="t")
        words = ("pack", "--handover", "delegate", "--arg", "profile_name=clerk")
        words = (
            *words,
            "--arg",
            "instruction=Now",
            "--arg",
            f"input_box_ids={self.box(cbx)}",
            "--max-tokens",
            "80",
        )
        before = row_counts()
        assert cbx(*words, "--dry-run").code == 0
        assert row_counts() == before
        answer = cbx(*words, "-o", "json")
        assert answer.code == 0, answer.err
        packed = answer.json()
        assert [left["reason"] for left in packed["left_out"]] == ["the oldest, to fit 80 tokens"] * 2
        texts = [card_text(card.content) for card in boxes.view(packed["context_box_id"]).cards[:2]]
        assert texts == ["last", "Now"]
        assert "2 cards left out" in answer.err
        again = cbx(
            "render", "--profile", "clerk", "--box", packed["context_box_id"], "--stats", "-o", "json"
        )
        assert sum(share["tokens"] for share in again.json()) <= 80

    def test_the_tools_of_the_worker_count_towards_the_limit_of_a_pack(
        self, cbx: Cbx, profiles: ProfileStore
    ) -> None:
        succeed(cbx("tool", "add", "look", "--exec", "cat", "--description", self.LONG))
        words = ["pack", "--handover", "delegate", "--arg", "instruction=Now", "--max-tokens", "80"]
        for name, tools, code in (("idle", [], 0), ("clerk", ["look"], 4)):
            profiles.save(
                {"name": name, "worker_target": "w", "tags": [], "allowed_tools": tools}, author_id="t"
            )
            packed = cbx(*words, "--arg", f"profile_name={name}")
            assert (packed.code, "the parts of the request that cbx must keep take" in packed.err) == (
                code,
                code == 4,
            )
