"""The package of the documentation that adds a handler: installed, found, offered, called and answered."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from cardbox_cli.shipped import shipped_path
from tests.conftest import Cbx

CLIENT = """
asked=$(cat)
case $asked in
*'You review.'*) echo 'No: the lamp is on.' ;;
*'"role":"tool"'* | *'"role": "tool"'*) echo 'Then it is on.' ;;
*) echo '{"role": "assistant", "content": "The lamp is off.", "tool_calls": [{"id": "c", "type": "function",
  "function": {"name": "second_opinion", "arguments": "{\\"doubt\\": \\"Is it off?\\"}"}}]}' ;;
esac
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which the package is installed."""
    source, target = (tmp_path_factory.mktemp(name) for name in ("source", "packages"))
    # A copy: building writes beside what it builds.
    shutil.copytree(shipped_path("examples") / "second-opinion", source, dirs_exist_ok=True)
    offline = (
        "--no-deps",
        "--no-build-isolation",
        "--no-index",
        "--no-cache-dir",
        "--disable-pip-version-check",
    )
    install = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        *offline,
        "--target",
        str(target),
        str(source),
    ]
    subprocess.run(install, check=True, timeout=120)
    return target


def run(arguments: list[str], environment: Mapping[str, str]) -> str:
    """What `cbx` prints, in a process of its own, which finds the package."""
    command = [sys.executable, "-m", "cardbox_cli", *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_example_handler_is_offered_called_and_answered(
    installed: Path, cbx: Cbx, tmp_path: Path
) -> None:
    profiles = {
        "worker": "name: worker\nallowed_internal_tools: [second_opinion]\n",
        "reviewer": "name: reviewer\nsystem_prompt: You review.\n",
    }
    for name, text in profiles.items():
        (tmp_path / f"{name}.yaml").write_text(text)
        cbx("profile", "import", str(tmp_path / f"{name}.yaml"))
    cbx("launch", "worker", "Is the lamp on?", "--turn-id", "turn-lamp")
    (tmp_path / "client.sh").write_text(CLIENT)
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    run(["worker", "run", "--drain", "--exec", f"sh {tmp_path}/client.sh"], environment)
    waited = cbx("turn", "wait", "turn-lamp", "--timeout", "5")
    assert (waited.code, waited.out) == (0, "Then it is on.\n")
    shown = cbx("turn", "show", "turn-lamp").out
    assert "second_opinion" in shown
    trace = cbx("turn", "trace", "turn-lamp").out
    assert "reviewer" in trace


def test_a_handler_that_is_not_installed_is_reported_and_not_offered(cbx: Cbx, tmp_path: Path) -> None:
    (tmp_path / "worker.yaml").write_text(
        "name: worker\nallowed_internal_tools: [second_opinion, ask_expret]\n"
    )
    warned = cbx("profile", "import", str(tmp_path / "worker.yaml"))
    assert warned.code == 0
    assert "no handler 'second_opinion' is installed here" in warned.err
    assert "no handler 'ask_expret' is installed here; did you mean 'ask_expert'?" in warned.err
    cbx("launch", "worker", "Is the lamp on?", "--turn-id", "turn-lamp")
    assert cbx("render", "--turn", "turn-lamp", "-o", "json").json().get("tools", []) == []
