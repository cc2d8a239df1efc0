"""Profile files: their normal form, and the exact words for what is refused."""

from decimal import Decimal
from typing import Any

import pytest

from cardbox_cli.errors import InvalidInput
from cardbox_cli.model.handwritten.profiles import parse_profile

FULL = """\
name: ' Researcher '
worker_target: worker_generic
tags: search, , web
description: Finds things
system_prompt: |
  You find things.
delegation_policy:
  target_tags: [expert]
  target_profiles:
  note: kept
allowed_tools: [web.search]
allowed_internal_tools: [delegate_async]
must_end_with: [submit]
llm_config:
  model: small
  temperature: 0.70
  tool_choice: null
x-team: {lead: ann}
"""


def test_the_normal_form_keeps_all_given_values() -> None:
    assert parse_profile(FULL, "p.yaml") == {
        "name": "Researcher",
        "worker_target": "worker_generic",
        "tags": ["search", "web"],
        "description": "Finds things",
        "system_prompt": "You find things.\n",
        "delegation_policy": {"target_tags": ["expert"], "target_profiles": None, "note": "kept"},
        "allowed_tools": ["web.search"],
        "allowed_internal_tools": ["delegate_async"],
        "must_end_with": ["submit"],
        "llm_config": {"model": "small", "temperature": Decimal("0.70"), "tool_choice": None},
        "x-team": {"lead": "ann"},
    }


def test_only_worker_target_and_tags_get_defaults() -> None:
    assert parse_profile("name: a", "p.yaml") == {"name": "a", "worker_target": "worker_generic", "tags": []}


def test_only_null_allows_all_tools() -> None:
    assert parse_profile("name: a\nallowed_tools: null", "p.yaml")["allowed_tools"] is None
    assert "allowed_tools" not in parse_profile("name: a", "p.yaml")
    with pytest.raises(InvalidInput, match="llm_config: is empty"):
        parse_profile("name: a\nllm_config:", "p.yaml")


@pytest.mark.parametrize("key", ["system_prompt", "system_prompt_template"])
def test_the_prompt_keeps_its_key(key: str) -> None:
    profile = parse_profile(f"name: a\n{key}: Hello", "p.yaml")
    assert {name: profile[name] for name in profile if "prompt" in name} == {key: "Hello"}


@pytest.mark.parametrize(
    ("tags", "normal"),
    [("[]", []), ("[' a ', b]", ["a", "b"]), ("a", ["a"]), ("'a,b , c'", ["a", "b", "c"]), ("''", [])],
)
def test_tags_are_a_list_or_one_string(tags: str, normal: list[Any]) -> None:
    assert parse_profile(f"name: a\ntags: {tags}", "p.yaml")["tags"] == normal


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "p.yaml: the file is empty except for comments"),
        ("[a]", "p.yaml:1: expected a mapping, found a list"),
        ("description: x", "p.yaml:1: the key 'name' is missing"),
        ("name:", "p.yaml:1: name: is empty; set a value or remove the key"),
        ("name: '  '", "p.yaml:1: name: must not be empty"),
        ("name: 7", "p.yaml:1: name: expected a string, found the number 7"),
        ('name: "a\\nb"', "p.yaml:1: name: contains the invisible character '\\n': 'a\\nb'"),
        ("name: a\nname: b", "p.yaml:2: name: is repeated; the first one is on line 1"),
        ("name: a\ntags: 5", "p.yaml:2: tags: expected a list, found the number 5"),
        ("name: a\ntags: [1]", "p.yaml:2: tags[0]: expected a string, found the number 1"),
        ("name: a\ndescription: []", "p.yaml:2: description: expected a string, found a list"),
        ("name: a\nllm_config: x", "p.yaml:2: llm_config: expected a mapping, found the string 'x'"),
        ("name: a\nmust_end_with: x", "p.yaml:2: must_end_with: expected a list, found the string 'x'"),
        ("name: a\nallowed_tools: ['']", "p.yaml:2: allowed_tools[0]: must not be empty"),
        (
            "name: a\ndelegation_policy: {target_profiles: x}",
            "p.yaml:2: delegation_policy.target_profiles: expected a list, found the string 'x'",
        ),
        (
            "name: a\ndelegation_policy:\n",
            "p.yaml:2: delegation_policy: is empty; set a value or remove the key",
        ),
        (
            "name: a\nsystem_prompt: x\nsystem_prompt_template: y",
            "p.yaml:3: system_prompt_template: is another name of system_prompt; keep only one of them",
        ),
        (
            "name: a\nx: 2026-01-01",
            "p.yaml:2: x: '2026-01-01' is a date in YAML, and JSON has no dates; quote it",
        ),
    ],
)
def test_an_invalid_profile_is_refused(text: str, message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_profile(text, "p.yaml")
    assert caught.value.message == message
    assert caught.value.code == "invalid-input"


@pytest.mark.parametrize("target", ["a.b", "a b", "", "*", ">", "a\tb"])
def test_a_worker_target_that_is_not_one_word_is_refused(target: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_profile(f'name: a\nworker_target: "{target}"', "p.yaml")
    assert caught.value.message == (
        f"p.yaml:2: worker_target: must be one word without '.', '*' and '>', found the string {target!r}"
    )


def test_all_problems_are_reported_at_once() -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_profile("worker_target: a.b\ntags: 5\nllm_config: []", "p.yaml")
    assert caught.value.message.splitlines() == [
        "p.yaml: 4 problems",
        "p.yaml:1:1: the key 'name' is missing",
        "p.yaml:1:1: worker_target: must be one word without '.', '*' and '>', found the string 'a.b'",
        "p.yaml:2:1: tags: expected a list, found the number 5",
        "p.yaml:3:1: llm_config: expected a mapping, found a list",
    ]
    assert [problem["line"] for problem in caught.value.details["problems"]] == [1, 1, 2, 3]


@pytest.mark.parametrize(
    "layers",
    [
        "{framework__context: Rules., notes__context: Notes.}",
        "{experience__context: true, todo__context: true}",
        "{knowledge__context: {query: stopcock}}",
        "{knowledge__context: All of it.}",
    ],
)
def test_layers_are_texts_or_requests(layers: str) -> None:
    assert parse_profile(f"name: a\nlayers: {layers}", "p.yaml")["layers"]


@pytest.mark.parametrize(
    ("layers", "problem"),
    [
        ("{notes: x}", "'notes' does not end in '__context'"),
        ("{todo__context: ' '}", "'todo__context' is blank; set a text or remove the key"),
        ("{todo__context: 5}", "'todo__context' must be a string, or true to collect it; found the number 5"),
        (
            "{framework__context: true}",
            "'framework__context' must be a string, because cbx cannot collect it; found true",
        ),
        (
            "{notes__context: true}",
            "'notes__context' must be a string, because cbx cannot collect it; found true",
        ),
        ("{knowledge__context: true}", "'knowledge__context' must be a string or {query: WORDS}; found true"),
        (
            "{knowledge__context: {query: ''}}",
            "'knowledge__context' needs words to search for as its 'query'; found the string ''",
        ),
        (
            "{knowledge__context: {query: x, limit: 3}}",
            "'knowledge__context' has the unknown key 'limit'; known here: query, boxes",
        ),
        ("{a: x, b__context: 1}", "'a' does not end in '__context'; 'b__context' must be a string, "),
    ],
)
def test_the_problem_of_a_layer_is_reported(layers: str, problem: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_profile(f"name: a\nlayers: {layers}", "p.yaml")
    assert caught.value.message.startswith(f"p.yaml:2: layers: {problem}")


def test_a_layer_that_the_process_cannot_have_is_refused() -> None:
    with pytest.raises(InvalidInput, match="layers: a mapreduce_worker cannot have todo__context"):
        parse_profile("name: a\nprocess: mapreduce_worker\nlayers: {todo__context: true}", "p.yaml")
