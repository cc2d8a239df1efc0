"""The workflow of `docs/guides/ci.md`: its steps are run as a runner runs them, and a bad pull request fails."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from cardbox_cli.store.connection.target import Target
from tests.crash.shells import cbx_for_shells

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
WORKFLOW = yaml.safe_load((EXAMPLES / "contexts-workflow.yml").read_text())["jobs"]["contexts"]
STEPS = [step for step in WORKFLOW["steps"] if "run" in step and step["name"] != "Install cbx"]

Run = Callable[..., tuple[str | None, str]]


@pytest.fixture(scope="module")
def programs() -> Iterator[Path]:
    """A folder with a `cbx` that starts at once."""
    with tempfile.TemporaryDirectory() as folder, cbx_for_shells(Path(folder, "bin")) as made:
        yield made


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository as the workflow expects it."""
    for name, folder in (
        ("incident-report.yaml", "handovers"),
        ("incident-writer.yaml", "profiles"),
        ("checkout-incident.json", "conversations"),
    ):
        (tmp_path / folder).mkdir()
        shutil.copy(EXAMPLES / name, tmp_path / folder)
    return tmp_path


@pytest.fixture
def run(checkout: Path, target: Target, programs: Path) -> Run:
    """Run the steps until one fails: its name, and what all have printed."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("CBX_", "PG"))}

    def steps(**changed: str) -> tuple[str | None, str]:
        environment = {
            **kept,
            **WORKFLOW["env"],
            **changed,
            "PATH": f"{programs}:{Path(sys.executable).parent}:{kept['PATH']}",
            "CBX_HOME": str(checkout / "home"),
            "CBX_DATABASE_URL": target.conninfo or "",
        }
        printed = ""
        for step in STEPS:
            done = subprocess.run(
                ["bash", "-e", "-c", f"exec 2>&1\n{step['run']}"],
                cwd=checkout,
                env=environment,
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
            printed += done.stdout
            if done.returncode:
                return step["name"], printed
        return None, printed

    return steps


def test_a_good_pull_request_passes(run: Run) -> None:
    failed, printed = run()
    assert failed is None, printed
    assert "1 valid recipe" in printed
    assert "1 valid profile" in printed


def test_an_invalid_profile_fails(run: Run, checkout: Path) -> None:
    (checkout / "profiles" / "other.yaml").write_text("name: other\nlayout: cheap\n")
    failed, printed = run()
    assert failed == "Recipes and profiles are valid"
    assert "profiles/other.yaml:2" in printed


def test_a_conversation_that_a_provider_refuses_fails(run: Run, checkout: Path) -> None:
    torn = '[{"role": "user", "content": "x"}, {"role": "tool", "tool_call_id": "c", "content": "y"}]'
    (checkout / "conversations" / "torn.json").write_text(torn)
    failed, printed = run()
    assert failed == "Conversations are such as a provider takes"
    assert "the lint found 1 error" in printed


def test_a_context_above_the_budget_fails(run: Run) -> None:
    failed, printed = run(BUDGET="50")
    assert failed == "Contexts are packed, checked and within the budget"
    assert "over the budget of 50" in printed


def test_the_page_shows_the_workflow() -> None:
    assert (EXAMPLES / "contexts-workflow.yml").read_text() in (
        ROOT / "docs" / "guides" / "ci.md"
    ).read_text()
