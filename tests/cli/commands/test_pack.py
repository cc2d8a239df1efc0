"""`cbx pack`: how arguments are given on the command line, and what it says. What packing does is packing's."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import lines, succeed
from tests.conftest import Cbx, Result

Feed = Callable[[str | bytes], None]
BoxOf = Callable[..., str]

RECIPE = """\
target_profile_config: {profile_name: clerk}
context_packing_config:
  pack_arguments: [{arg_key: a}, {arg_key: b}, {arg_key: c}]
"""


@pytest.fixture
def pack(cbx: Cbx, feed: Feed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Pack by a recipe that makes a card of each of the arguments a, b and c."""
    monkeypatch.chdir(tmp_path)
    Path("abc.yaml").write_text(RECIPE)
    feed("name: clerk\n")
    succeed(cbx("profile", "import", "-"))
    return lambda *options: cbx("pack", "--handover", "abc.yaml", *options)


def packed(cbx: Cbx, result: Result) -> list[Any]:
    """The contents of the cards of a packed box, without their class."""
    [box] = lines(result)
    contents = [card["content"] for card in cbx("box", "show", box, "-o", "json").json()["cards"]]
    return [content.get("text", content.get("data")) for content in contents]


class TestArguments:
    def test_arguments_are_text_or_json_and_can_come_from_a_file(
        self, cbx: Cbx, pack: Callable[..., Result]
    ) -> None:
        Path("b.txt").write_text("from a\nfile")
        Path("c.json").write_text('{"n": 1.10}')
        arguments = ("-a", "a=x=y: {z}", "-a", "b=@b.txt", "-a", "c:=@c.json", "-o", "id")
        assert packed(cbx, pack(*arguments)) == ["x=y: {z}", "from a\nfile", {"n": 1.10}]
        assert packed(cbx, pack("-a", "a:=[1]", "-a", "b:=true", "-a", "c:=3.50", "-o", "id")) == [
            [1],
            "true",
            "3.50",
        ]

    def test_arguments_with_the_same_key_become_a_list(self, cbx: Cbx, pack: Callable[..., Result]) -> None:
        assert packed(cbx, pack("-a", "a=x", "-a", "a:=2", "-o", "id")) == [["x", 2]]

    def test_arguments_from_files_are_overridden_by_options(
        self, cbx: Cbx, pack: Callable[..., Result], feed: Feed
    ) -> None:
        Path("args.yaml").write_text("a: [1, 2]\nb: file\n")
        feed('{"b": "stdin", "c": "stdin"}')
        arguments = ("--args", "args.yaml", "--args", "-", "-a", "c=option", "-o", "id")
        assert packed(cbx, pack(*arguments)) == [[1, 2], "stdin", "option"]

    def test_malformed_arguments_are_refused(self, pack: Callable[..., Result]) -> None:
        Path("list.yaml").write_text("- 1\n")
        for options, code, message in (
            (("-a", "x"), 2, "--arg 'x' is not KEY=VALUE"),
            (("-a", "=x"), 2, "--arg '=x' is not KEY=VALUE"),
            (("-a", "a:={"), 4, "--arg a: not JSON at line 1 column 2: "),
            (("-a", "a=@absent"), 3, "no file 'absent'"),
            (("--args", "absent"), 3, "no file 'absent'"),
            (("--args", "list.yaml"), 4, "list.yaml must be a mapping of arguments"),
            (("--source-agent", " "), 2, "--source-agent is empty"),
        ):
            result = pack(*options)
            assert (result.code, result.out) == (code, "")
            assert result.err.startswith(f"error: {message}"), options

    def test_an_unused_argument_causes_a_warning(self, pack: Callable[..., Result]) -> None:
        result = pack("-a", "a=x", "-a", "d=y")
        assert result.code == 0
        assert result.err == "warning: recipe 'abc' does not use the argument 'd'\n"


class TestDryRun:
    def test_a_dry_run_writes_nothing_and_predicts_the_digest(
        self, pack: Callable[..., Result], row_counts: Callable[[], dict[str, int]]
    ) -> None:
        before = row_counts()
        plan = pack("-a", "a=x", "--dry-run", "-o", "json").json()
        assert plan["context_box_id"] is None
        assert [(card["rule"], card["new"], card["type"]) for card in plan["plan"]] == [
            ("pack_arguments[0] a", True, "task.instruction")
        ]
        assert lines(pack("-a", "a=x", "--dry-run"))[0] == "context box  (dry run: nothing was written)"
        assert row_counts() == before
        done = pack("-a", "a=x", "--explain", "-o", "json").json()
        assert done["digest"] == plan["digest"]
        assert {**done["plan"][0], "card_id": ""} == {**plan["plan"][0], "card_id": ""}

    def test_a_failing_pack_writes_nothing(
        self, cbx: Cbx, pack: Callable[..., Result], row_counts: Callable[[], dict[str, int]]
    ) -> None:
        before = row_counts()
        assert pack("-a", "a=x", "-a", "profile_name=nobody").code == 3
        delegated = ("-a", "profile_name=clerk", "-a", "instruction=x", "-a", "input_box_ids=8b1f22c0")
        assert cbx("pack", "-H", "delegate", *delegated).code == 3
        assert row_counts() == before


class TestBoxesAsArguments:
    RECIPE = """\
target_profile_config: {profile_name: clerk}
arguments:
  one: {type: box_id}
  work: {}
  note: {type: string}
context_packing_config:
  pack_arguments: [{arg_key: one}, {arg_key: note}]
  inherit_context: {include_boxes_from_args: [work]}
"""

    @pytest.fixture
    def box(self, pack: Callable[..., Result], add: Callable[..., str], box_of: BoxOf) -> str:
        Path("boxes.yaml").write_text(self.RECIPE)
        return box_of(add("First."))

    def test_box_arguments_accept_short_ids_and_last(
        self, cbx: Cbx, box: str, add: Callable[..., str], box_of: BoxOf
    ) -> None:
        last = box_of(add("Second."))
        Path("last").write_text("from a file")
        Path("work.yaml").write_text(f"work: ['{box[-6:]}', '@last']\n")
        given = ("-a", f"one={box[-6:]}", "-a", "note=@last")
        for work in (("-a", f"work={box[-6:]}", "-a", "work=@last"), ("--args", "work.yaml")):
            answer = cbx("pack", "-H", "boxes.yaml", *given, *work, "-o", "json", "--dry-run").json()
            assert answer["parent_ids"] == [box, last]
            assert [line["content"]["text"] for line in answer["plan"]] == [
                box,
                "from a file",
                "First.",
                "Second.",
            ]

    def test_an_unknown_box_argument_is_reported_as_typed(self, cbx: Cbx, box: str) -> None:
        result = cbx("pack", "-H", "boxes.yaml", "-a", "work=8b1f22c0")
        assert (result.code, result.err) == (
            3,
            "error: no box '8b1f22c0' in project 'p' (argument 'work')\nhint: `cbx box list` shows the newest boxes\n",
        )
        nowhere = cbx("-p", "q", "pack", "-H", "boxes.yaml", "-a", "work=@last")
        assert (nowhere.code, nowhere.err.splitlines()[0]) == (
            3,
            "error: '@last' is not set: your commands have not created a box in project 'q'",
        )

    def test_a_dispatch_accepts_short_box_ids_as_arguments(self, cbx: Cbx, box: str) -> None:
        succeed(cbx("agent", "provision", "clerk", "--profile", "clerk"))
        given = ("--handover", "boxes.yaml", "-a", f"work={box[-8:]}", "-a", f"one={box[-6:]}", "-o", "json")
        context = cbx("dispatch", "--agent", "clerk", *given).json()["context_box_id"]
        assert cbx("box", "show", context, "-o", "json").json()["parent_ids"] == [box]


def test_the_documented_steps_make_a_request(cbx: Cbx, pack: Callable[..., Result], box_of: BoxOf) -> None:
    [box] = lines(pack("-a", "a=What now?", "-o", "id"))
    [profile] = lines(cbx("profile", "list", "-o", "id"))
    request = cbx("render", "--box", profile, "--box", box, "--model", "m-1")
    assert json.loads(succeed(request)) == {
        "model": "m-1",
        "messages": [{"role": "user", "content": "What now?"}],
    }
    assert "\n── 1 user ──\n  What now?\n" in "\n" + succeed(cbx("render", "--box", box, "--format", "text"))
    assert cbx("render", "--box", box).err == (
        "note: the model is unknown; pass --model, or add the box of the profile\n"
    )
    assert cbx("render", "--box", box, "--format", "nope").code == 2
