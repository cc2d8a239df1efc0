"""What a recipe means: its digest, its arguments, its schema. Its refusals are with the recipe files."""

import itertools
from decimal import Decimal
from typing import Any

import pytest

from cardbox_cli.errors import BadRequest
from cardbox_cli.model.handwritten.recipes import STEPS, Recipe, recipe_schema


def recipe(**keys: Any) -> Recipe:
    return Recipe.model_validate({"context_packing_config": {}, **keys})


def packing(**keys: Any) -> Recipe:
    return recipe(context_packing_config=keys)


def declaring(**declarations: Any) -> Recipe:
    """A recipe that declares these arguments, and uses them all."""
    rules = [{"arg_key": name} for name in declarations]
    return recipe(arguments=declarations, context_packing_config={"pack_arguments": rules})


class TestRecipeDefaults:
    def test_an_empty_config_packs_nothing(self) -> None:
        config = recipe().context_packing_config
        assert (config.pack_arguments, config.order) == ((), STEPS)
        assert config.inherit_context.include_boxes_from_args == ()
        assert config.inherit_context.include_parent is False
        assert recipe().authorized_inherit_box_ids is None

    def test_a_rule_makes_user_instructions_by_default(self) -> None:
        [rule] = packing(pack_arguments=[{"arg_key": "a"}]).context_packing_config.pack_arguments
        assert (rule.as_card_type, dict(rule.card_metadata)) == ("task.instruction", {"role": "user"})

    def test_other_metadata_of_a_rule_is_stored(self) -> None:
        metadata = {"lang": "en", "deep": {"n": [1, None]}}
        [rule] = packing(
            pack_arguments=[{"arg_key": "a", "card_metadata": metadata}]
        ).context_packing_config.pack_arguments
        assert dict(rule.card_metadata) == {"role": "user", **metadata}

    def test_the_profile_name_is_trimmed(self) -> None:
        config = recipe(target_profile_config={"profile_name": " a b "}).target_profile_config
        assert config is not None
        assert config.profile_name == "a b"

    def test_an_empty_allow_list_differs_from_a_missing_one(self) -> None:
        assert recipe(authorized_inherit_box_ids=[]).authorized_inherit_box_ids == ()

    @pytest.mark.parametrize("order", list(itertools.permutations(STEPS)))
    def test_every_permutation_is_an_order(self, order: tuple[str, ...]) -> None:
        assert packing(order=list(order)).context_packing_config.order == order


class TestRecipeDigest:
    def test_the_digest_is_stable_between_versions(self) -> None:
        pinned = "c732ef46d7d6f557"
        assert packing(pack_arguments=[{"arg_key": "instruction"}]).digest().startswith(pinned)

    @pytest.mark.parametrize(
        ("one", "other"),
        [
            ({}, {"order": list(STEPS)}),
            ({}, {"pack_arguments": [], "inherit_context": {"include_parent": False}}),
            (
                {"pack_arguments": [{"arg_key": "a"}]},
                {
                    "pack_arguments": [
                        {
                            "card_metadata": {"role": "user"},
                            "as_card_type": "task.instruction",
                            "arg_key": "a",
                        }
                    ]
                },
            ),
            (
                {"inherit_context": {"include_card_types": ["a", "b"]}},
                {"inherit_context": {"include_card_types": ["b", "a", "b"]}},
            ),
        ],
    )
    def test_notation_does_not_change_the_digest(self, one: dict[str, Any], other: dict[str, Any]) -> None:
        assert packing(**one).digest() == packing(**other).digest()

    def test_descriptions_do_not_change_the_digest(self) -> None:
        plain = declaring(a={})
        described = recipe(
            description="x",
            arguments={"a": {"description": "y"}},
            context_packing_config={"pack_arguments": [{"arg_key": "a"}]},
        )
        assert described.digest() == plain.digest()

    def test_the_notation_of_a_box_id_does_not_change_the_digest(self) -> None:
        dashed = "018F2A3B-4C5D-7E6F-8A9B-0C1D2E3F4A5B"
        bare = dashed.replace("-", "").lower()
        assert (
            recipe(authorized_inherit_box_ids=[dashed]).digest()
            == recipe(authorized_inherit_box_ids=[bare]).digest()
        )

    def test_each_difference_in_meaning_changes_the_digest(self) -> None:
        recipes = [
            recipe(),
            recipe(target_profile_config={"profile_name": "a"}),
            recipe(authorized_inherit_box_ids=[]),
            recipe(authorized_inherit_box_ids=["a"]),
            declaring(),
            declaring(a={}),
            declaring(a={"default": "x"}),
            declaring(a={"type": "string"}),
            packing(pack_arguments=[{"arg_key": "a"}]),
            packing(pack_arguments=[{"arg_key": "a", "as_card_type": "x"}]),
            packing(pack_arguments=[{"arg_key": "a", "card_metadata": {"role": "system"}}]),
            packing(pack_arguments=[{"arg_key": "a", "card_metadata": {"x": None}}]),
            packing(pack_arguments=[{"arg_key": "a"}, {"arg_key": "b"}]),
            packing(pack_arguments=[{"arg_key": "b"}, {"arg_key": "a"}]),
            packing(inherit_context={"include_boxes_from_args": ["a"]}),
            packing(inherit_context={"include_parent": True}),
            packing(inherit_context={"include_card_types": ["a"]}),
            packing(inherit_context={"exclude_card_types": ["a"]}),
            packing(inherit_context={"max_cards": 1}),
            packing(inherit_context={"max_tokens": 1}),
            packing(order=list(reversed(STEPS))),
        ]
        assert len({each.digest() for each in recipes}) == len(recipes)


FITTING: dict[str, list[Any]] = {
    "string": ["", "x"],
    "integer": [0, -5, 10**30],
    "number": [1, 1.5],
    "boolean": [True, False],
    "object": [{}, {"a": 1}],
    "array": [[], [None]],
    "box_id": ["018f", 7],
    "box_ids": ["018f", 7, [], ["018f", 7]],
    "any": [None, "", 0, [], {}],
}


class TestArgumentBinding:
    @pytest.mark.parametrize(
        ("kind", "value"), [(kind, value) for kind in FITTING for value in FITTING[kind]]
    )
    def test_a_value_of_the_declared_type_is_accepted(self, kind: str, value: Any) -> None:
        assert declaring(a={"type": kind}).bind({"a": value}) == {"a": value}

    @pytest.mark.parametrize(
        ("kind", "value", "message"),
        [
            ("string", 1, "argument 'a': expected a string, found the number 1"),
            ("string", None, "argument 'a': expected a string, found null"),
            ("string", ["x"], "argument 'a': expected a string, found a list"),
            ("integer", "3", "argument 'a': expected an integer, found the string '3'"),
            ("integer", True, "argument 'a': expected an integer, found true"),
            ("integer", 1.5, "argument 'a': expected an integer, found the number 1.5"),
            (
                "number",
                "x" * 99,
                f"argument 'a': expected a number, found the string '{'x' * 39}…{'x' * 18}'",
            ),
            ("number", False, "argument 'a': expected a number, found false"),
            ("number", float("nan"), "argument 'a': expected a number, found the number nan"),
            ("boolean", "true", "argument 'a': expected true or false, found the string 'true'"),
            ("boolean", 0, "argument 'a': expected true or false, found the number 0"),
            ("object", [], "argument 'a': expected a mapping, found a list"),
            ("array", {}, "argument 'a': expected a list, found a mapping"),
            ("array", "x", "argument 'a': expected a list, found the string 'x'"),
            ("box_id", "", "argument 'a': expected a box id, found the string ''"),
            ("box_id", ["018f"], "argument 'a': expected a box id, found a list"),
            ("box_id", True, "argument 'a': expected a box id, found true"),
            ("box_ids", None, "argument 'a': expected a box id or a list of box ids, found null"),
            (
                "box_ids",
                ["018f", ["x"]],
                "argument 'a': expected a box id or a list of box ids, found a list with a list",
            ),
            (
                "box_ids",
                ["018f", ""],
                "argument 'a': expected a box id or a list of box ids, found a list with the string ''",
            ),
            ("object", object(), "argument 'a': expected a mapping, found a object"),
        ],
    )
    def test_a_value_of_another_type_is_refused(self, kind: str, value: Any, message: str) -> None:
        with pytest.raises(BadRequest) as caught:
            declaring(a={"type": kind}).bind({"a": value})
        assert caught.value.message == message

    def test_all_problems_are_reported_at_once(self) -> None:
        bound = declaring(
            instruction={"required": True, "type": "string"},
            limit={"type": "integer"},
            note={"required": True},
        )
        with pytest.raises(BadRequest) as caught:
            bound.bind({"instrution": "x", "limit": "3", "zzz": 1})
        error = caught.value
        assert error.message.splitlines() == [
            "5 problems with the arguments",
            "unknown argument 'instrution'; did you mean 'instruction'?",
            "unknown argument 'zzz'",
            "argument 'instruction' is missing",
            "argument 'note' is missing",
            "argument 'limit': expected an integer, found the string '3'",
        ]
        assert error.hint == "`cbx handover show RECIPE` lists its arguments; pass JSON values as NAME:=JSON"
        assert [problem["argument"] for problem in error.details["problems"]] == [
            "instrution",
            "zzz",
            "instruction",
            "note",
            "limit",
        ]

    def test_a_single_problem_is_reported_in_one_sentence(self) -> None:
        with pytest.raises(BadRequest) as caught:
            declaring(a={"required": True}).bind({})
        assert caught.value.message == "argument 'a' is missing"

    def test_null_satisfies_a_required_argument(self) -> None:
        assert declaring(a={"required": True}).bind({"a": None}) == {"a": None}

    def test_defaults_are_copied_for_each_binding(self) -> None:
        bound = declaring(a={"default": [1]}, b={"default": "x"}, c={})
        first = bound.bind({"b": "y"})
        assert first == {"a": [1], "b": "y"}
        first["a"].append(2)
        assert bound.bind({}) == {"a": [1], "b": "x"}

    def test_without_declarations_any_argument_is_accepted(self) -> None:
        loose = packing(pack_arguments=[{"arg_key": "instruction"}])
        given = {"instrution": "x", "profile_name": "p"}
        assert loose.bind(given) == given
        assert loose.unused_arguments(given) == ["instrution"]
        assert loose.missing_arguments(given) == ["instruction"]

    def test_an_argument_with_a_default_is_not_missing(self) -> None:
        bound = declaring(a={"default": "x"}, b={}, c={})
        assert bound.missing_arguments({}) == ["b", "c"]
        assert bound.missing_arguments({"b": None, "c": ""}) == []

    @pytest.mark.parametrize(
        ("kind", "text", "value"),
        [
            ("integer", "120", 120),
            ("integer", " -3\n", -3),
            ("integer", "9" * 40, int("9" * 40)),
            ("number", "120", 120),
            ("number", "1.5", 1.5),
            ("number", "1e3", Decimal("1e3")),
            ("boolean", "true", True),
            ("boolean", "false", False),
        ],
    )
    def test_text_is_read_as_the_declared_scalar(self, kind: str, text: str, value: Any) -> None:
        declared = declaring(a={"type": kind})
        read = declared.read_text("a", text)
        assert (read, type(read)) == (value, type(value))
        assert declared.bind({"a": read}) == {"a": value}

    @pytest.mark.parametrize(
        ("kind", "text"),
        [
            ("integer", "1.5"),
            ("integer", "1_000"),
            ("integer", "true"),
            ("number", "NaN"),
            ("number", "1,5"),
            ("number", ""),
            ("boolean", "1"),
            ("boolean", "yes"),
            ("boolean", "True"),
        ],
    )
    def test_other_text_stays_text_and_is_refused(self, kind: str, text: str) -> None:
        declared = declaring(a={"type": kind})
        assert declared.read_text("a", text) == text
        with pytest.raises(BadRequest, match=r"found (the|an empty) string"):
            declared.bind({"a": text})

    @pytest.mark.parametrize("kind", ["string", "any", "box_id", "box_ids", "object", "array"])
    def test_text_for_other_types_stays_text(self, kind: str) -> None:
        assert declaring(a={"type": kind}).read_text("a", "120") == "120"
        assert recipe().read_text("a", "120") == "120"


class TestRecipeSchema:
    def test_the_schema_has_an_id_and_a_title(self) -> None:
        schema = recipe_schema()
        assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
        assert schema["$id"] == "urn:cbx:handover-recipe"
        assert schema["title"] == "cbx handover recipe"
        assert schema["additionalProperties"] is False

    def test_every_key_is_described(self) -> None:
        schema = recipe_schema()
        keys = [
            f"{section.get('title')}.{key}"
            for section in [schema, *schema["$defs"].values()]
            for key, described in section["properties"].items()
            if not described.get("description")
        ]
        assert keys == []

    def test_the_schema_has_no_null(self) -> None:
        assert "null" not in str(recipe_schema())
        assert "None" not in str(recipe_schema())
