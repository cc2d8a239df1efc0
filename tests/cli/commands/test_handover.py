"""`cbx handover`: recipes, without a database."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from cardbox_cli.model.handwritten.recipes import recipe_schema
from cardbox_cli.shipped import shipped_path
from tests.cli.conftest import lines, succeed
from tests.conftest import Cbx

Feed = Callable[[str | bytes], None]

SHIPPED = ["delegate", "expert", "principal", "review"]
MINE = """\
description: Mine
arguments: {note: {type: string, required: true, description: What to say}}
context_packing_config: {pack_arguments: [{arg_key: note}]}
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that commands run in, without recipes."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CBX_HANDOVERS", raising=False)
    return tmp_path


class TestList:
    def test_the_shipped_recipes_are_listed(self, offline: Cbx) -> None:
        listed = offline("handover", "list", "-o", "json").json()
        assert [recipe["name"] for recipe in listed] == SHIPPED
        for recipe in listed:
            assert recipe["shipped"] is True
            assert recipe["description"]
            assert recipe["problem"] is None

    def test_a_local_recipe_hides_others_and_shows_its_path(
        self, offline: Cbx, here: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("CBX_HANDOVERS", "elsewhere")
        for folder, description in (("handovers", "Here"), ("elsewhere", "There")):
            (here / folder).mkdir()
            for name in ("mine", "review"):
                (here / folder / f"{name}.yaml").write_text(f"description: {description}\n")
        (here / "elsewhere" / "theirs.yml").write_text("description: There\n")
        (here / "handovers" / "broken.yaml").write_text("descripton: x\n")
        listed = {recipe["name"]: recipe for recipe in offline("handover", "list", "-o", "json").json()}
        assert list(listed) == sorted([*SHIPPED, "broken", "mine", "theirs"])
        assert [listed[name]["description"] for name in ("mine", "review", "theirs")] == [
            "Here",
            "Here",
            "There",
        ]
        assert listed["theirs"]["source"] == "elsewhere/theirs.yml"
        problem = "handovers/broken.yaml:1: descripton: unknown key; did you mean 'description'?"
        assert listed["broken"]["problem"] == problem
        table = lines(offline("handover", "list"))
        assert f"broken     handovers/broken.yaml  broken: {problem}" in table
        assert "mine       handovers/mine.yaml    Here" in table


class TestShow:
    def test_show_prints_the_recipe_file_unchanged(self, offline: Cbx) -> None:
        result = offline("handover", "show", "delegate")
        assert succeed(result) == (shipped_path("handovers") / "delegate.yaml").read_text()
        assert result.err == (
            "--arg profile_name=…  string, required. The profile of the agent that does the task\n"
            "--arg instruction=…  string, required. What to do\n"
            "--arg input_box_ids=…  box_ids, optional. The boxes whose cards it inherits, in this order\n"
        )

    def test_json_output_has_the_parsed_recipe(self, offline: Cbx, here: Path, feed: Feed) -> None:
        (here / "mine.yaml").write_text(MINE)
        feed(MINE)
        for name, source in (("mine.yaml", "mine.yaml"), ("-", None)):
            result = offline("handover", "show", name, "-o", "json")
            assert result.err == ""
            answer = result.json()
            assert (answer["name"], answer["source"]) == ("mine" if source else "stdin", source)
            assert answer["recipe"] == yaml.safe_load(MINE)
            assert answer["arguments"]["note"]["required"] is True
            assert len(answer["digest"]) == 64

    def test_an_unknown_recipe_is_refused_with_a_suggestion(self, offline: Cbx) -> None:
        result = offline("handover", "show", "delegat")
        assert (result.code, result.out) == (3, "")
        assert result.err == (
            "error: unknown recipe 'delegat'; did you mean 'delegate'?\n"
            "hint: use one of delegate, expert, principal, review,"
            " or the path of a file, such as ./delegat.yaml\n"
        )
        assert offline("handover", "show", "./absent.yaml").err.startswith(
            "error: no recipe file 'absent.yaml'\n"
        )


class TestValidate:
    def test_the_shipped_recipes_are_valid(self, offline: Cbx) -> None:
        files = [str(path) for path in sorted(shipped_path("handovers").glob("*.yaml"))]
        assert succeed(offline("handover", "validate", *files)) == "4 valid recipes\n"
        assert lines(offline("handover", "validate", *SHIPPED, "-o", "id")) == SHIPPED

    def test_every_problem_in_every_file_is_reported(self, offline: Cbx, here: Path) -> None:
        (here / "good.yaml").write_text(MINE)
        (here / "one.yaml").write_text("descripton: x\n")
        (here / "two.yaml").write_text("arguments: {a: {type: strin}}\ndescription: 1\n")
        result = offline("handover", "validate", "one.yaml", "good.yaml", "two.yaml")
        assert (result.code, result.out) == (4, "")
        assert result.err.splitlines() == [
            "error: one.yaml:1: descripton: unknown key; did you mean 'description'?",
            "  two.yaml: 2 problems",
            result.err.splitlines()[2],
            "  two.yaml:2:1: description: expected a string, found the number 1",
            "hint: `cbx handover schema` prints the keys of a recipe",
        ]
        assert result.err.splitlines()[2].startswith("  two.yaml:1:17: arguments.a.type: ")
        problems = offline("handover", "validate", "one.yaml", "two.yaml", "-o", "json").error["details"][
            "problems"
        ]
        assert [(each["file"], each["line"], each["path"]) for each in problems] == [
            ("one.yaml", 1, "descripton"),
            ("two.yaml", 1, "arguments.a.type"),
            ("two.yaml", 2, "description"),
        ]

    def test_a_rule_with_a_misspelled_argument_is_an_error(self, offline: Cbx, here: Path) -> None:
        (here / "refund.yaml").write_text(
            "arguments:\n"
            "  amount: {type: number, required: true}\n"
            "  conversation: {type: box_id, required: true}\n"
            "context_packing_config:\n"
            "  pack_arguments: [{arg_key: amout}]\n"
            "  inherit_context: {include_boxes_from_args: [conversaton]}\n"
        )
        result = offline("handover", "validate", "refund.yaml")
        assert (result.code, result.out) == (4, "")
        rules = "context_packing_config"
        assert result.err.splitlines()[:3] == [
            "error: refund.yaml: 2 problems",
            f"  refund.yaml:5:21: {rules}.pack_arguments[0].arg_key: 'amout' is not declared under "
            "'arguments'; did you mean 'amount'?",
            f"  refund.yaml:6:47: {rules}.inherit_context.include_boxes_from_args[0]: 'conversaton' is not "
            "declared under 'arguments'; did you mean 'conversation'?",
        ]

    def test_strict_makes_every_warning_an_error(self, offline: Cbx, here: Path) -> None:
        (here / "odd.yaml").write_text(
            "arguments: {idle: {}, a: {}}\n"
            "context_packing_config:\n"
            "  pack_arguments:\n"
            "    - {arg_key: a, as_card_type: task.instrution, card_metadata: {rol: x, role: usr}}\n"
        )
        place = "context_packing_config.pack_arguments[0]"
        told = [
            "odd.yaml:1: arguments.idle: no rule uses it",
            f"odd.yaml:4: {place}.as_card_type: unknown card type 'task.instrution'; "
            "did you mean 'task.instruction'?",
            f"odd.yaml:4: {place}.card_metadata.role: unknown role 'usr'; did you mean 'user'?",
            f"odd.yaml:4: {place}.card_metadata.rol: is stored with the card, but no model sees it; "
            "did you mean 'role'?",
        ]
        lax = offline("handover", "validate", "odd.yaml", "-o", "json")
        assert (lax.code, lax.err.splitlines()) == (0, [f"warning: {each}" for each in told])
        assert [warning["line"] for warning in lax.json()["warnings"]] == [1, 4, 4, 4]
        strict = offline("handover", "validate", "odd.yaml", "--strict")
        assert (strict.code, strict.out) == (4, "")
        assert strict.err.splitlines()[0] == "error: odd.yaml: 4 problems"
        assert "odd.yaml:1:13: arguments.idle: no rule uses it" in strict.err
        (here / "good.yaml").write_text(MINE)
        assert (
            succeed(offline("handover", "validate", "--strict", "good.yaml", *SHIPPED)) == "5 valid recipes\n"
        )

    def test_a_recipe_is_read_from_standard_input(self, offline: Cbx, feed: Feed) -> None:
        feed(MINE)
        assert offline("handover", "validate", "-").code == 0
        feed("descripton: x\n")
        assert offline("handover", "validate", "-").err.startswith(
            "error: standard input:1: descripton: unknown key"
        )

    def test_a_file_that_is_not_utf_8_is_refused(self, offline: Cbx, feed: Feed, here: Path) -> None:
        bad = b"description: caf\xe9\n"
        (here / "bad.yaml").write_bytes(bad)
        feed(bad)
        for name, place in (("bad.yaml", "bad.yaml"), ("-", "standard input")):
            result = offline("handover", "validate", name)
            assert (result.code, result.out) == (4, "")
            assert result.err.splitlines()[0] == f"error: {place}:1: the byte 0xe9 is not UTF-8 text"


class TestSchema:
    def test_the_command_prints_the_schema_of_recipes(self, offline: Cbx) -> None:
        assert json.loads(succeed(offline("handover", "schema"))) == recipe_schema()
        assert yaml.safe_load(succeed(offline("handover", "schema", "-o", "yaml"))) == recipe_schema()
