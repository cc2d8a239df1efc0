"""What models take, as their providers' pages have it: each a request as it was logged, linted by its file."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Cbx

ANTHROPIC = {"max_tokens": 64, "messages": [{"role": "user", "content": "Hi"}]}
OPENAI = {"messages": [{"role": "user", "content": "Hi"}]}


def claude(model: str, **more: Any) -> dict[str, Any]:
    return {"model": f"claude-{model}", **ANTHROPIC, **more}


def gpt(model: str, **more: Any) -> dict[str, Any]:
    return {"model": model, **OPENAI, **more}


def effort(level: str) -> dict[str, Any]:
    return {"output_config": {"effort": level}}


REFUSED = [
    ("answer-too-long", claude("haiku-4-5", max_tokens=64_001)),
    ("answer-too-long", claude("opus-4-1", max_tokens=32_001)),
    ("parameter-refused", claude("opus-4-6", **effort("xhigh"))),
    ("parameter-refused", claude("opus-4-5", **effort("max"))),
    ("parameter-refused", claude("haiku-4-5", **effort("low"))),
    ("parameters-exclusive", claude("sonnet-4-6", temperature=0.5, top_p=0.9)),
    ("parameters-exclusive", claude("opus-4-1", temperature=0.5, top_p=0.9)),
    ("parameter-refused", gpt("gpt-5.1", reasoning_effort="minimal")),
    ("parameter-refused", gpt("gpt-5", reasoning_effort="none")),
    ("parameter-refused", gpt("o1-mini", reasoning_effort="low")),
]
TAKEN = [
    claude("haiku-4-5", max_tokens=64_000),
    claude("3-7-sonnet-20250219", max_tokens=128_000),
    claude("opus-4-7", **effort("xhigh")),
    claude("opus-5", **effort("max")),
    claude("haiku-5-5", **effort("xhigh")),
    claude("sonnet-4-0", temperature=0.5, top_p=0.9),
    gpt("gpt-5.2", reasoning_effort="xhigh"),
    gpt("gpt-5-pro", reasoning_effort="high"),
]


def found(cbx: Cbx, path: Path, request: dict[str, Any]) -> list[tuple[str, str]]:
    file = path / "request.json"
    file.write_text(json.dumps(request))
    result = cbx("card", "lint", str(file), "-o", "json")
    return [(each["severity"], each["rule"]) for each in json.loads(result.out)]


@pytest.mark.parametrize(("rule", "request_"), REFUSED)
def test_a_parameter_that_the_model_refuses_is_an_error(
    cbx: Cbx, tmp_path: Path, rule: str, request_: dict[str, Any]
) -> None:
    assert found(cbx, tmp_path, request_) == [("error", rule)]


def test_a_parameter_that_the_model_accepts_has_no_findings(cbx: Cbx, tmp_path: Path) -> None:
    for request in TAKEN:
        assert found(cbx, tmp_path, request) == []


def test_a_batch_only_answer_length_is_a_warning(cbx: Cbx, tmp_path: Path) -> None:
    for model in ("opus-4-6", "opus-5-5", "sonnet-4-6", "haiku-5-5"):
        assert found(cbx, tmp_path, claude(model, max_tokens=128_000)) == []
        assert found(cbx, tmp_path, claude(model, max_tokens=200_000)) == [("warning", "answer-for-batches")]
