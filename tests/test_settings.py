"""The table of settings: what it refuses, who may know a variable's name, and the page made of it."""

import ast
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from cardbox_cli import settings
from cardbox_cli.errors import UsageError
from cardbox_cli.settings import (
    EXECUTION_SETTINGS,
    SETTINGS,
    TEST_VARIABLES,
    WORKER_VARIABLES,
    Settings,
    Variable,
    read_settings,
)
from tests.sharded import cluster

ROOT = Path(__file__).parents[1]
NAMES = {variable.name for variable in (*SETTINGS, *WORKER_VARIABLES, *TEST_VARIABLES)}
NAME = r"(?<!_)CBX_[A-Z_]*[A-Z]"


def refusal(environ: dict[str, str], **options: float) -> tuple[str, str | None]:
    with pytest.raises(UsageError) as caught:
        read_settings(environ, **options)
    assert caught.value.exit_code == 2
    return caught.value.message, caught.value.hint


class TestSettingsTable:
    def test_every_variable_is_in_the_table_once(self) -> None:
        made = [value for value in vars(settings).values() if isinstance(value, Variable)]
        assert len(made) == len(NAMES)
        assert {variable.name for variable in made} == NAMES

    def test_execution_settings_match_the_fields_of_settings(self) -> None:
        assert [field.name for field in fields(Settings)] == list(EXECUTION_SETTINGS)
        for field, variable in EXECUTION_SETTINGS.items():
            assert variable.name == f"CBX_{field.upper()}"
            assert getattr(Settings(), field) == variable.default

    def test_variable_names_appear_only_in_the_settings_module(self) -> None:
        spelled = []
        for path in (ROOT / "cardbox_cli").rglob("*.py"):
            if path.name != "settings.py":
                for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                    text = node.value if isinstance(node, ast.Constant) else getattr(node, "arg", None)
                    if isinstance(text, str) and re.fullmatch(NAME, text):
                        spelled.append((path, text))
        assert spelled == []

    def test_texts_name_only_existing_variables(self) -> None:
        pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "cardbox_cli").rglob("*.py")]
        named = {name for page in pages for name in re.findall(NAME, page.read_text(encoding="utf-8"))}
        assert {"CBX_LEASE", "CBX_HOME"} <= named
        assert named <= NAMES | {cluster.URL, cluster.CRASH}

    def test_the_settings_page_is_generated_from_the_table(self) -> None:
        printed = subprocess.run(
            [sys.executable, ROOT / "scripts" / "settings-page"], capture_output=True, check=True
        )
        assert printed.stdout.decode() == (ROOT / "docs" / "reference" / "settings.md").read_text(
            encoding="utf-8"
        )


class TestSettingValues:
    def test_an_option_overrides_a_variable_and_a_variable_the_default(self) -> None:
        environ = {"CBX_MAX_STEPS": "3", "CBX_LEASE": "90.5", "CBX_POLL": ""}
        assert read_settings(environ) == Settings(max_steps=3, lease=90.5)
        assert read_settings(environ, max_steps=4).max_steps == 4
        assert read_settings({}) == Settings()

    @pytest.mark.parametrize("text", ["soon", "nan", "inf", "0", "-1", "0.99", "86401", " "])
    def test_a_variable_out_of_bounds_is_refused(self, text: str) -> None:
        assert refusal({"CBX_LEASE": text})[1] == "correct the value, or omit it: the default is 60"
        assert refusal({"CBX_LEASE": text})[0].startswith("CBX_LEASE is ")
        assert refusal({"CBX_LEASE": text})[0].endswith("; it must be a number of seconds from 1 to 86400")

    @pytest.mark.parametrize("text", ["2.5", "0", "many", "1000001"])
    def test_a_variable_that_is_not_a_whole_number_is_refused(self, text: str) -> None:
        assert refusal({"CBX_MAX_ATTEMPTS": text})[0].endswith(
            "; it must be a whole number from 1 to 1000000"
        )

    @pytest.mark.parametrize(
        "given", [{"lease": 0}, {"poll": float("nan")}, {"max_steps": 0}, {"max_attempts": 2.5}], ids=str
    )
    def test_an_invalid_value_from_python_is_refused(self, given: dict[str, Any]) -> None:
        [(field, value)] = given.items()
        with pytest.raises(UsageError, match=f"^{field} is {value!r}; it must be a "):
            Settings(**given)

    def test_an_invalid_option_is_refused(self) -> None:
        assert refusal({}, max_steps=0)[0] == "--max-steps is 0; it must be a whole number from 1 to 10000"


class TestConflictingValues:
    @pytest.mark.parametrize(
        ("environ", "message", "hint"),
        [
            (
                {"CBX_LEASE": "3", "CBX_HEARTBEAT": "15"},
                "CBX_HEARTBEAT of 15 s cannot be combined with CBX_LEASE of 3 s: a worker would lose the turns that it runs",
                "CBX_HEARTBEAT is at most half of CBX_LEASE: set CBX_HEARTBEAT to 1.5 or less, or CBX_LEASE to 30 or more",
            ),
            (
                {"CBX_BACKOFF": "61"},
                "CBX_BACKOFF of 61 s cannot be combined with CBX_BACKOFF_CAP of 60 s (the default): the first wait would be longer than the longest",
                "CBX_BACKOFF is at most CBX_BACKOFF_CAP: set CBX_BACKOFF to 60 or less, or CBX_BACKOFF_CAP to 61 or more",
            ),
            (
                {"CBX_UNCLAIMED": "4"},
                "CBX_POLL of 5 s (the default) cannot be combined with CBX_UNCLAIMED of 4 s: work would count as overlooked before a worker polls",
                "CBX_POLL is at most CBX_UNCLAIMED: set CBX_POLL to 4 or less, or CBX_UNCLAIMED to 5 or more",
            ),
        ],
    )
    def test_conflicting_values_are_refused_with_both_sources(
        self, environ: dict[str, str], message: str, hint: str
    ) -> None:
        assert refusal(environ) == (message, hint)

    def test_python_callers_get_field_names_in_errors(self) -> None:
        with pytest.raises(UsageError) as caught:
            Settings(lease=3, heartbeat=15)
        assert caught.value.message.startswith("heartbeat of 15 s cannot be combined with lease of 3 s: ")

    def test_boundary_values_are_accepted(self) -> None:
        environ = {"CBX_LEASE": "40", "CBX_BACKOFF": "60", "CBX_POLL": "30"}
        assert read_settings(environ) == Settings(lease=40, backoff=60, poll=30)
