"""How commands tell counts of tokens: bare where they are exact, with a `~` where they are estimated."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import lines, succeed
from tests.conftest import Cbx

# 4 tokens of gpt-4o, and estimated at 7.
TEXT = "internationalization and localization"
KEYS = ("tokens", "tokens_exact", "tokenizer")
EXACT, ESTIMATED = (4, True, "o200k_base"), (7, False, "estimate-2")
RECIPE = """\
target_profile_config: {profile_name: clerk}
context_packing_config: {pack_arguments: [{arg_key: a}]}
"""


def of(answer: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(answer.get(key) for key in KEYS)


@pytest.mark.parametrize(
    ("options", "shown", "told"),
    [
        (["--model", "gpt-4o"], "4", EXACT),
        (["--model", "claude-opus-4-5"], "~7", ESTIMATED),
        ([], "~7", (None, None, None)),
    ],
)
def test_the_tokens_of_a_box_are_counted_for_the_named_model(
    cbx: Cbx,
    add: Callable[..., str],
    box_of: Callable[..., str],
    options: list[str],
    shown: str,
    told: tuple[Any, ...],
) -> None:
    box = box_of(add(TEXT))
    said = lines(cbx("box", "show", box, "--columns", "#,tokens", *options))
    assert f"cards    1, {shown} tokens" in said
    assert said[-1].split() == ["0", shown]
    assert of(cbx("box", "show", box, "-o", "json", *options).json()) == told


@pytest.mark.parametrize(
    ("model", "mark", "told"), [("gpt-4o", "", EXACT), ("claude-opus-4-5", "~", ESTIMATED)]
)
def test_packed_and_rendered_tokens_are_counted_for_the_profile_model(
    cbx: Cbx, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str, mark: str, told: tuple[Any, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("clerk.yaml").write_text(f"name: clerk\nsystem_prompt: {TEXT}\nllm_config: {{model: {model}}}\n")
    Path("ask.yaml").write_text(RECIPE)
    [profile] = lines(cbx("profile", "import", "clerk.yaml", "-o", "id"))
    pack = ("pack", "--handover", "ask.yaml", "-a", f"a={TEXT}")
    count = told[0]

    for option in ("--dry-run", "--explain"):
        planned = succeed(cbx(*pack, option))
        assert re.search(rf"^cards +1, {mark}{count} tokens$", planned, re.MULTILINE)
        assert re.search(rf"user +{mark}{count} +pack_arguments", planned)
    answer = cbx(*pack, "--dry-run", "-o", "json").json()
    assert (of(answer), answer["plan"][0]["tokens"]) == (told, count)

    # Each message 3 + 1 beside its text, and 3 for the reply.
    rendered = lines(cbx("render", "--box", profile, "--box", "@last", "--explain"))
    assert f"tokens    {mark}{2 * (count + 4) + 3}" in rendered
    assert [line.split()[7] for line in rendered[5:7]] == [f"{mark}{count + 4}"] * 2

    stats = cbx("render", "--box", profile, "--box", "@last", "--stats", "-o", "json").json()
    assert [(layer["tokens"], layer["tokens_exact"]) for layer in stats] == [(count + 4, not mark)] * 2

    # What need not be explained is not counted for long.
    assert re.search(r"^cards +1, ~7 tokens$", succeed(cbx(*pack)), re.MULTILINE)
