"""Recipe files: where they are found, the exact words for what is refused, and the recipes that ship."""

import json
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from cardbox_cli.errors import InvalidRecipe, NotFound
from cardbox_cli.model.handwritten.recipes import Recipe, recipe_schema
from cardbox_cli.packing.recipe_files import (
    list_recipes,
    parse_recipe,
    read_recipe,
    recipe_from_mapping,
)

SMALL = "context_packing_config: {}\n"
SHIPPED = ["delegate", "expert", "principal", "review"]


def refused(text: str) -> InvalidRecipe:
    with pytest.raises(InvalidRecipe) as caught:
        parse_recipe(text, "r.yaml")
    return caught.value


EMPTY = "is empty; set a value or remove the key"
TYPES = "'string', 'integer', 'number', 'boolean', 'object', 'array', 'box_id', 'box_ids' or 'any'"
STEP_CHOICES = "'pack_arguments', 'inherit_context' or 'include_parent'"
STEP_ORDER = "name each of pack_arguments, inherit_context, include_parent at most once"


@pytest.mark.parametrize(
    ("where", "value", "message"),
    [
        ("", "- a", "expected a mapping, found a list"),
        ("", "~", "expected a mapping, found null"),
        ("", "{context_packing_config: }", f"@context_packing_config: {EMPTY}"),
        ("", "{context_packing_confg: {}}",
         "@context_packing_confg: unknown key; did you mean 'context_packing_config'?"),
        ("description", "[x]", "expected a string, found a list"),
        ("target_profile_config", "{}", "the key 'profile_name' is missing"),
        ("target_profile_config", "{profile_name: ' '}", "@.profile_name: must not be empty"),
        ("target_profile_config", "{profile_name: 12}",
         "@.profile_name: expected a string, found the number 12"),
        ("target_profile_config", "", EMPTY),
        ("pack_arguments", "[]", "unknown key; it belongs under 'context_packing_config'"),
        ("zzz", "[]", "unknown key; known here: description, target_profile_config, arguments, "
         "context_packing_config, authorized_inherit_box_ids, allow_internal_boxes"),
        ("allow_internal_boxes", "'yes'", "expected true or false, found the string 'yes'"),
        ("authorized_inherit_box_ids", "", EMPTY),
        ("authorized_inherit_box_ids", "[7]", "@[0]: expected a string, found the number 7"),
        ("authorized_inherit_box_ids", "['']", "@[0]: must not be empty"),
        ("authorized_inherit_box_ids", "x", "expected a list, found the string 'x'"),
        ("arguments", "[a]", "expected a mapping, found a list"),
        ("arguments", "{a: }", f"@.a: {EMPTY}"),
        ("arguments", "{a: string}", "@.a: expected a mapping, found the string 'string'"),
        ("arguments", "{a: {required: 1}}",
         "@.a.required: expected true or false, found the number 1"),
        ("arguments", "{a: {requird: true}}", "@.a.requird: unknown key; did you mean 'required'?"),
        ("arguments", "{a: {type: text}}", f"@.a.type: expected {TYPES}, "
         "found the string 'text'"),
        ("arguments", "{a: {type: strin}}", f"@.a.type: expected {TYPES}, "
         "found the string 'strin'; did you mean 'string'?"),
        ("arguments", "{a: {default: }}", f"@.a.default: {EMPTY}"),
        ("arguments", "{a: {type: integer, default: x}}",
         "@.a.default: expected an integer, found the string 'x'"),
        ("arguments", "{a: {required: true, default: x}}",
         "@.a.default: cannot be combined with required: true; remove one of the two"),
    ],
)  # fmt: skip
def test_an_invalid_top_level_value_is_refused(where: str, value: str, message: str) -> None:
    text = f"{where}: {value}\n{SMALL}" if where else value
    assert refused(text).message == in_full(where, message)


@pytest.mark.parametrize(
    ("where", "value", "message"),
    [
        ("include_parent", "true", "unknown key; it belongs under 'inherit_context'"),
        ("pack_argments", "[]", "unknown key; did you mean 'pack_arguments'?"),
        ("pack_arguments", "", EMPTY),
        ("pack_arguments", "{arg_key: a}", "expected a list, found a mapping"),
        ("pack_arguments", "[instruction]", "@[0]: expected a mapping, found the string 'instruction'"),
        ("pack_arguments", "[~]", "@[0]: expected a mapping, found null"),
        ("pack_arguments", "[{}]", "@[0]: the key 'arg_key' is missing"),
        ("pack_arguments", "[{arg_key: a}, {arg_kye: b}]",
         "@[1].arg_kye: unknown key; did you mean 'arg_key'?"),
        ("pack_arguments", "[{arg_key: ''}]", "@[0].arg_key: must not be empty"),
        ("pack_arguments", "[{arg_key: [a]}]", "@[0].arg_key: expected a string, found a list"),
        ("pack_arguments", "[{arg_key: a, as_card_type: }]",
         f"@[0].as_card_type: {EMPTY}"),
        ("pack_arguments", "[{arg_key: a, card_metadata: x}]",
         "@[0].card_metadata: expected a mapping, found the string 'x'"),
        ("pack_arguments", "[{arg_key: a, card_metadata: {role: 5}}]",
         "@[0].card_metadata.role: expected a string, found the number 5"),
        ("pack_arguments", "[{arg_key: a, card_metadata: {day: 2026-01-01}}]",
         "@[0].card_metadata.day: '2026-01-01' is a date in YAML, and JSON has no dates; quote it"),
        ("inherit_context", "{include_parent: 'yes'}",
         "@.include_parent: expected true or false, found the string 'yes'"),
        ("inherit_context", "{include_boxes_from_args: ids}",
         "@.include_boxes_from_args: expected a list, found the string 'ids'"),
        ("inherit_context", "{include_card_types: []}", "@.include_card_types: must not be empty"),
        ("inherit_context", "{exclude_card_types: []}", "@.exclude_card_types: must not be empty"),
        ("inherit_context", "{include_card_types: [a, b], exclude_card_types: [b]}",
         "@.exclude_card_types: 'b' is also in include_card_types"),
        ("inherit_context", "{max_cards: 0}", "@.max_cards: must be 1 or more, found the number 0"),
        ("inherit_context", "{max_cards: 1.5}", "@.max_cards: expected an integer, found the number 1.5"),
        ("inherit_context", "{max_cards: true}", "@.max_cards: expected an integer, found true"),
        ("inherit_context", "{max_tokens: }", f"@.max_tokens: {EMPTY}"),
        ("inherit_context", "{'a b.c': 1}", "@.'a b.c': unknown key; known here: include_boxes_from_args, "
         "include_parent, include_card_types, exclude_card_types, answered_calls_only, max_cards, max_tokens"),
        ("order", "[include_parent, pack_arguments, inherit_context, include_parent]",
         f"'include_parent' appears twice; {STEP_ORDER}"),
        ("order", "[include_parnt]", f"@[0]: expected {STEP_CHOICES}, found the string 'include_parnt'; "
         "did you mean 'include_parent'?"),
    ],
)  # fmt: skip
def test_an_invalid_packing_config_is_refused(where: str, value: str, message: str) -> None:
    text = f"context_packing_config: {{{where}: {value}}}"
    assert refused(text).message == in_full(f"context_packing_config.{where}", message)


def in_full(where: str, message: str) -> str:
    """The message on line 1; after "@" it begins with the rest of the path."""
    if message.startswith("@"):
        return f"r.yaml:1: {where}{message[1:]}"
    return f"r.yaml:1: {where}: {message}" if where else f"r.yaml:1: {message}"


def test_all_problems_of_a_file_are_reported_with_their_positions() -> None:
    error = refused(
        "arguments:\n"
        "  limit: {type: integr}\n"
        "context_packing_config:\n"
        "  pack_arguments:\n"
        "    - arg_key: instruction\n"
        "    - arg_kye: notes\n"
        "  inherit_context:\n"
        "    include_parent: yes\n"
        "  order: !!set {}\n"
        "arguments: {}\n"
    )
    assert error.message.splitlines() == [
        "r.yaml: 5 problems",
        f"r.yaml:2:11: arguments.limit.type: expected {TYPES}, "
        "found the string 'integr'; did you mean 'integer'?",
        "r.yaml:6:7: context_packing_config.pack_arguments[1].arg_kye: unknown key; did you mean 'arg_key'?",
        "r.yaml:8:21: context_packing_config.inherit_context.include_parent: 'yes' is a boolean to some "
        "YAML readers and a string to others; write true or false, or quote it",
        "r.yaml:9:10: context_packing_config.order: the tag '!!set' is not supported; remove it",
        "r.yaml:10:1: arguments: is repeated; the first one is on line 1",
    ]
    assert error.hint == "`cbx handover schema` prints the keys of a recipe"
    assert (error.code, error.exit_code) == ("invalid-recipe", 4)
    assert error.details["problems"][1] == {
        "file": "r.yaml",
        "line": 6,
        "column": 7,
        "path": "context_packing_config.pack_arguments[1].arg_kye",
        "message": "unknown key; did you mean 'arg_key'?",
    }


class TestRecipeMappings:
    def test_problems_are_located_by_path(self) -> None:
        with pytest.raises(InvalidRecipe) as caught:
            recipe_from_mapping({"context_packing_config": {"pack_arguments": [{"arg_kye": 1}]}})
        assert caught.value.message == (
            "handover: context_packing_config.pack_arguments[0].arg_kye: unknown key; did you mean 'arg_key'?"
        )
        [problem] = caught.value.details["problems"]
        assert (problem["line"], problem["column"]) == (None, None)

    def test_several_problems_are_reported_together(self) -> None:
        with pytest.raises(InvalidRecipe) as caught:
            recipe_from_mapping({"context_packing_config": {"order": {1}}, 5: 6})  # type: ignore[dict-item]
        assert caught.value.message.splitlines() == [
            "handover: 2 problems",
            "handover: a key must be a string, found the number 5",
            "handover: context_packing_config.order: is a set, which is not a JSON value",
        ]

    def test_a_mapping_and_a_file_give_the_same_recipe(self) -> None:
        text = Path(read_recipe("review", folders=[]).source or "").read_text()
        assert recipe_from_mapping(yaml.safe_load(text)) == parse_recipe(text, "r.yaml")


class TestRecipeSearch:
    def test_folders_are_searched_in_order_before_the_built_in_recipes(self, tmp_path: Path) -> None:
        near, far = tmp_path / "near", tmp_path / "far"
        for folder, names in {near: ["a.yaml"], far: ["a.yml", "b.yml", "delegate.yaml"]}.items():
            folder.mkdir()
            for name in names:
                (folder / name).write_text(SMALL)
        folders = [tmp_path / "missing", near, far]
        assert read_recipe("a", folders=folders).source == near / "a.yaml"
        assert read_recipe("b", folders=folders).source == far / "b.yml"
        assert read_recipe("delegate", folders=folders).source == far / "delegate.yaml"
        assert read_recipe("expert", folders=folders).name == "expert"
        listed = {each.name: each for each in list_recipes(folders)}
        assert list(listed) == sorted(["a", "b", *SHIPPED])
        assert (listed["delegate"].shipped, listed["expert"].shipped) == (False, True)

    def test_a_path_is_read_without_a_search(self, tmp_path: Path) -> None:
        path = tmp_path / "mine.yaml"
        path.write_text(f"# mine\n{SMALL}")
        loaded = read_recipe(str(path), folders=[])
        assert (loaded.name, loaded.source, loaded.text) == ("mine", path, f"# mine\n{SMALL}")

    def test_an_unknown_name_is_refused_with_a_suggestion(self) -> None:
        with pytest.raises(NotFound) as caught:
            read_recipe("delgate", folders=[])
        assert caught.value.message == "unknown recipe 'delgate'; did you mean 'delegate'?"
        assert caught.value.hint == (
            "use one of delegate, expert, principal, review, or the path of a file, such as ./delgate.yaml"
        )
        assert caught.value.details == {"name": "delgate", "known": SHIPPED}

    @pytest.mark.parametrize("path", ["missing.yaml", "./missing", "missing/x.yml"])
    def test_a_missing_recipe_file_is_refused(self, path: str) -> None:
        with pytest.raises(NotFound) as caught:
            read_recipe(path, folders=[])
        assert caught.value.message == f"no recipe file {str(Path(path))!r}"

    def test_a_folder_is_refused_as_a_recipe(self, tmp_path: Path) -> None:
        with pytest.raises(InvalidRecipe) as caught:
            read_recipe(str(tmp_path), folders=[])
        assert caught.value.message == f"{tmp_path}: cannot be read: Is a directory"

    def test_bytes_that_are_not_utf8_are_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "r.yaml"
        path.write_bytes(b"\xff\xfe")
        with pytest.raises(InvalidRecipe) as caught:
            read_recipe(str(path), folders=[])
        assert caught.value.message == f"{path}:1: the byte 0xff is not UTF-8 text"

    def test_a_broken_recipe_does_not_hide_the_others(self, tmp_path: Path) -> None:
        (tmp_path / "broken.yaml").write_text("a: 1\nb: 2\n")
        broken = next(each for each in list_recipes([tmp_path]) if each.name == "broken")
        assert broken.problem == f"{tmp_path / 'broken.yaml'}: 2 problems"
        assert [each.problem for each in list_recipes([])] == [None] * len(SHIPPED)


class TestBuiltInRecipes:
    @pytest.mark.parametrize("name", SHIPPED)
    def test_each_recipe_is_documented_and_works_for_any_profile(self, name: str) -> None:
        loaded = read_recipe(name, folders=[])
        header = [line for line in loaded.text.splitlines() if line.startswith("#")]
        assert any(f"cbx pack --handover {name} " in line for line in header)
        assert loaded.recipe.description
        assert loaded.recipe.target_profile_config is None
        declared = loaded.recipe.arguments or {}
        assert set(declared) == set(loaded.recipe.used_arguments)
        assert all(declaration.description for declaration in declared.values())
        assert loaded.recipe.bind({name: SAMPLE[name] for name in SAMPLE if name in declared})

    def test_the_delegate_recipe_packs_instruction_boxes_and_parent(self) -> None:
        config = read_recipe("delegate", folders=[]).recipe.context_packing_config
        [rule] = config.pack_arguments
        assert (rule.arg_key, rule.as_card_type) == ("instruction", "task.instruction")
        assert config.inherit_context.include_boxes_from_args == ("input_box_ids",)
        assert config.inherit_context.include_parent is True
        assert config.order == ("inherit_context", "pack_arguments", "include_parent")


SAMPLE = {
    "profile_name": "anyone",
    "instruction": "do it",
    "question": "why?",
    "input_box_ids": "018f",
    "history_box_ids": ["018f"],
    "work_box_ids": ["018f", "018e"],
    "result_fields": [{"name": "a", "description": "b"}],
}


def keys_of(schema: dict[str, Any]) -> set[str]:
    return {key for section in [schema, *schema["$defs"].values()] for key in section["properties"]}


KEYS = st.sampled_from(sorted(keys_of(recipe_schema())))
LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | KEYS
DOCUMENTS = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS | st.text(max_size=3), inner)
)


@settings(deadline=None)
@given(DOCUMENTS)
def test_any_document_is_either_a_valid_recipe_or_refused(document: Any) -> None:
    attempts: list[Callable[[], Recipe]] = [
        lambda: parse_recipe(json.dumps(document), "r.json"),
        lambda: parse_recipe(yaml.safe_dump(document, allow_unicode=True), "r.yaml"),
        lambda: recipe_from_mapping(document),
    ]
    for attempt in attempts:
        with suppress(InvalidRecipe):
            assert attempt().digest()


@settings(deadline=None)
@given(st.lists(st.sampled_from(["arg_key", "as_card_type", "typo"]), min_size=1))
def test_problems_have_the_line_numbers_of_their_rules(keys: list[str]) -> None:
    rules = "".join(f"    - {key}: a\n" for key in keys)
    text = f"context_packing_config:\n  pack_arguments:\n{rules}"
    wrong = {3 + number for number, key in enumerate(keys) if key != "arg_key"}
    try:
        parse_recipe(text, "r.yaml")
        told: set[int] = set()
    except InvalidRecipe as error:
        told = {problem["line"] for problem in error.details["problems"]}
    assert told == wrong


def test_pydantic_is_loaded_only_when_a_recipe_is_read() -> None:
    code = "import sys, cardbox_cli.packing.recipe_files; sys.exit('pydantic' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_metadata_without_effect_on_the_request_is_a_warning() -> None:
    """Roles and metadata that count for nothing, or for something else than one may think."""

    def doubts(kind: str, metadata: str) -> list[str]:
        rule = f"{{arg_key: a, as_card_type: {kind}, card_metadata: {metadata}}}"
        found = parse_recipe(f"context_packing_config: {{pack_arguments: [{rule}]}}", "r.yaml").warnings()
        assert all(where[:3] == ("context_packing_config", "pack_arguments", 0) for where, _ in found)
        return [": ".join([str(where[-1]), message]) for where, message in found]

    assert doubts("task.instruction", "{role: user}") == []
    assert doubts("task.result_fields", "{role: system}") == doubts("tool.result", "{role: tool}") == []
    [system] = doubts("task.instruction", "{role: system}")
    assert system.startswith("role: the role 'system' makes it system text within the history")
    assert doubts("tool.result", "{role: user}") == [
        "role: the role 'user' is ignored: a tool.result is the message of its tool"
    ]
    assert doubts("sys.profile", "{role: system}") == [
        "role: a card of type 'sys.profile' is not a message (makes the system prompt): its role has no effect"
    ]
    assert doubts("task.instruction", "{type: x, trace_id: y, rol: user, colour: red}") == [
        "type: is ignored: packing writes it",
        "trace_id: makes the card look like one of that turn or step",
        "rol: is stored with the card, but no model sees it; did you mean 'role'?",
        "colour: is stored with the card, but no model sees it",
    ]


DECLARING = """\
arguments:
  amount: {type: number, required: true}
  conversation: {type: box_id, required: true}
  note: {type: string}
context_packing_config:
  pack_arguments: [{arg_key: %s}]
  inherit_context: {include_boxes_from_args: [%s]}
"""


@pytest.mark.parametrize(
    ("packed", "inherited", "problems"),
    [
        ("amout", "conversation",
         ["6:21: context_packing_config.pack_arguments[0].arg_key: 'amout' is not declared under "
          "'arguments'; did you mean 'amount'?"]),
        ("amount", "conversaton",
         ["7:47: context_packing_config.inherit_context.include_boxes_from_args[0]: 'conversaton' is not "
          "declared under 'arguments'; did you mean 'conversation'?"]),
        ("amount", "zzz",
         ["3:3: arguments.conversation: is required, but no rule uses it; use it in a rule, or remove it",
          "7:47: context_packing_config.inherit_context.include_boxes_from_args[0]: 'zzz' is not declared "
          "under 'arguments'; declare it there, or remove the rule"]),
        ("note", "conversation",
         ["2:3: arguments.amount: is required, but no rule uses it; use it in a rule, or remove it"]),
        ("' amount'", "conversation",
         ["6:21: context_packing_config.pack_arguments[0].arg_key: ' amount' is not declared under "
          "'arguments'; did you mean 'amount'?"]),
    ],
)  # fmt: skip
def test_rules_and_declared_arguments_must_agree(packed: str, inherited: str, problems: list[str]) -> None:
    error = refused(DECLARING % (packed, inherited))
    told = [f"{each['line']}:{each['column']}: {each['path']}: {each['message']}"
            for each in error.details["problems"]]  # fmt: skip
    assert told == problems
    assert (error.code, error.exit_code) == ("invalid-recipe", 4)


def test_no_rule_may_use_an_argument_if_none_is_declared() -> None:
    error = refused("arguments: {}\ncontext_packing_config: {pack_arguments: [{arg_key: a}]}\n")
    assert error.message == (
        "r.yaml:2: context_packing_config.pack_arguments[0].arg_key: 'a' is not declared under 'arguments'; "
        "declare it there, or remove the rule"
    )


def test_the_name_of_the_profile_need_not_be_declared() -> None:
    rules = "context_packing_config: {pack_arguments: [{arg_key: profile_name}]}\n"
    declared = "arguments: {profile_name: {required: true}}\n"
    for text in (rules, f"arguments: {{}}\n{rules}", declared):
        assert parse_recipe(text, "r.yaml").missing_arguments({}) == []
