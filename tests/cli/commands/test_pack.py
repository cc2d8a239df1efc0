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

    def test_a_recipe_without_its_option_is_suggested(self, offline: Cbx) -> None:
        for word in ("recipe.yaml", "delegate"):
            result = offline("pack", word, "-a", "a=x")
            assert (result.code, result.err.splitlines()) == (
                2,
                [
                    "error: Missing option '--recipe' / '--handover' / '-H'.",
                    f"hint: did you mean `cbx pack --recipe {word}`?",
                ],
            )
        for words in (("pack",), ("dispatch", "recipe.yaml"), ("pack", "--arg", "a=x")):
            assert offline(*words).err.endswith("--help` shows the options and examples\n"), words

    def test_an_unused_argument_causes_a_warning(self, pack: Callable[..., Result]) -> None:
        result = pack("-a", "a=x", "-a", "d=y")
        assert result.code == 0
        assert result.err.splitlines() == [
            "warning: recipe 'abc' does not use the argument 'd'",
            "note: recipe 'abc' packs nothing for the argument 'b': it has no value",
            "note: recipe 'abc' packs nothing for the argument 'c': it has no value",
        ]

    def test_a_missing_optional_argument_is_reported(self, cbx: Cbx, pack: Callable[..., Result]) -> None:
        note = "note: recipe 'abc' packs nothing for the argument 'c': it has no value\n"
        packed = pack("-a", "a=x", "-a", "b=y", "-o", "json")
        assert (packed.code, packed.err, packed.json()["missing_arguments"]) == (0, note, ["c"])
        succeed(cbx("agent", "provision", "clerk-1", "--profile", "clerk"))
        dispatched = cbx("dispatch", "--agent", "clerk-1", "-H", "abc.yaml", "-a", "a=x", "-a", "b=y")
        assert (dispatched.code, dispatched.err) == (0, note)

    def test_a_misspelled_argument_without_declarations_is_named(self, pack: Callable[..., Result]) -> None:
        Path("said.yaml").write_text(
            "target_profile_config: {profile_name: clerk}\n"
            "context_packing_config:\n"
            "  pack_arguments: [{arg_key: instruction}]\n"
            "  inherit_context: {include_parent: true}\n"
        )
        result = pack("-H", "said.yaml", "-a", "instrution=x")
        assert (result.code, result.err.splitlines()[0]) == (
            0,
            "warning: recipe 'said' does not use the argument 'instrution'; did you mean 'instruction'?",
        )

    @pytest.mark.parametrize("command", ["pack", "dispatch"])
    def test_a_recipe_whose_only_argument_is_missing_is_refused(
        self, cbx: Cbx, pack: Callable[..., Result], command: str, row_counts: Callable[[], dict[str, int]]
    ) -> None:
        succeed(cbx("agent", "provision", "clerk-1", "--profile", "clerk"))
        Path("one.yaml").write_text(RECIPE.replace(", {arg_key: b}, {arg_key: c}", ""))
        before = row_counts()
        agent = ("--agent", "clerk-1") if command == "dispatch" else ()
        result = cbx(command, *agent, "--handover", "one.yaml")
        assert (result.code, result.out) == (4, "")
        assert result.err.startswith("error: recipe 'one' packs no card: no value for 'a'\n")
        assert row_counts() == before


class TestDeclaredScalars:
    """`--arg amount=120` is what the recipe declares."""

    RECIPE = """\
target_profile_config: {profile_name: clerk}
arguments:
  amount: {type: number}
  count: {type: integer}
  urgent: {type: boolean}
  name: {type: string}
  other: {}
context_packing_config:
  pack_arguments: [{arg_key: amount}, {arg_key: count}, {arg_key: urgent}, {arg_key: name}, {arg_key: other}]
"""

    def test_text_of_a_declared_scalar_is_that_scalar(self, cbx: Cbx, pack: Callable[..., Result]) -> None:
        Path("scalars.yaml").write_text(self.RECIPE)
        Path("count.txt").write_text("7\n")
        options = ("-a", "amount=120", "-a", "count=@count.txt", "-a", "urgent=true")
        answer = pack("-H", "scalars.yaml", *options, "-a", "name=120", "-a", "other=120", "-o", "id")
        assert packed(cbx, answer) == ["120", "7", "true", "120", "120"]

    @pytest.mark.parametrize(
        ("option", "expected"),
        [
            ("amount=many", "a number, found the string 'many'"),
            ("count=1.5", "an integer, found the string '1.5'"),
            ("urgent=yes", "true or false, found the string 'yes'"),
            ("name:=120", "a string, found the number 120"),
        ],
    )
    def test_other_text_is_refused(self, pack: Callable[..., Result], option: str, expected: str) -> None:
        Path("scalars.yaml").write_text(self.RECIPE)
        result = pack("-H", "scalars.yaml", "-a", option)
        name = option.partition("=")[0].rstrip(":")
        assert (result.code, result.err.splitlines()[0]) == (
            4,
            f"error: argument {name!r}: expected {expected}",
        )


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


class TestInheritedBoxes:
    RECIPE = """\
target_profile_config: {profile_name: clerk}
arguments: {conversation: {type: box_id, required: true}}
context_packing_config: {inherit_context: {include_boxes_from_args: [conversation]}}
"""

    @pytest.fixture
    def recipe(self, pack: Callable[..., Result], cbx: Cbx) -> str:
        Path("talk.yaml").write_text(self.RECIPE)
        succeed(cbx("agent", "provision", "clerk-1", "--profile", "clerk"))
        return "talk.yaml"

    def test_last_is_the_imported_conversation_after_a_profile_is_imported(
        self, cbx: Cbx, recipe: str, feed: Feed
    ) -> None:
        feed(json.dumps({"messages": [{"role": "user", "content": "Refund me."}]}))
        [box] = lines(cbx("card", "import", "-", "-o", "id"))
        feed("name: clerk\ntags: [new]\n")
        succeed(cbx("profile", "import", "-"))
        given = ("--agent", "clerk-1", "-H", recipe, "--arg", "conversation=@last", "-o", "json")
        context = cbx("dispatch", *given).json()["context_box_id"]
        assert cbx("box", "show", context, "-o", "json").json()["parent_ids"] == [box]

    @pytest.mark.parametrize("command", ["pack", "dispatch"])
    def test_the_boxes_of_profiles_and_steps_are_refused(
        self, cbx: Cbx, recipe: str, add: Callable[..., str], box_of: BoxOf, command: str
    ) -> None:
        [profile] = lines(cbx("profile", "show", "clerk", "-o", "id"))
        succeed(cbx("dispatch", "--agent", "clerk-1", "--context-box", box_of(add("Hi")), "-o", "id"))
        succeed(cbx("worker", "run", "--drain", "--exec", "printf hello"))
        steps = cbx("turn", "show", "@last", "-o", "json").json()["steps"]
        agent = ("--agent", "clerk-1") if command == "dispatch" else ()
        for box, what in (
            (profile, "is the box of a profile and has no conversation"),
            (steps[0]["request_box_id"], "is a snapshot of the request of a step"),
        ):
            result = cbx(command, *agent, "-H", recipe, "-a", f"conversation={box}")
            assert (result.code, result.out) == (4, "")
            assert result.err.splitlines()[0] == f"error: argument 'conversation': box {box} {what}"
            assert "allow_internal_boxes: true" in result.err

    def test_a_box_with_lost_cards_is_refused_unless_allowed(self, cbx: Cbx, recipe: str) -> None:
        box = succeed(cbx("box", "create", "gone", "--allow-dangling", "-o", "id")).strip()
        named = ("-a", f"conversation={box}")
        for command in (("pack", "-H", recipe), ("dispatch", "--agent", "clerk-1", "-H", recipe)):
            result = cbx(*command, *named)
            assert (result.code, result.out) == (3, "")
            rule = f"inherit_context conversation (box {box})"
            assert result.err.splitlines()[0] == f"error: {rule}: card 'gone': no such card"
            assert cbx(*command, *named, "--allow-dangling").code == 0
        misplaced = cbx("dispatch", "--agent", "clerk-1", "-c", box, "--allow-dangling")
        assert (misplaced.code, misplaced.err.splitlines()[0]) == (
            2,
            "error: --allow-dangling requires --recipe",
        )


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
