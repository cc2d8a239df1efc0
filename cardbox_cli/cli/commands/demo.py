"""`cbx demo`: the main workflow on a bundled conversation. Each command is printed and really run."""

import io
import os
import re
import shlex
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path

from cardbox_cli.cli.command_table import root
from cardbox_cli.cli.session import Session, session
from cardbox_cli.cli.standard_streams import announce
from cardbox_cli.cli.verb import verb
from cardbox_cli.errors import Findings
from cardbox_cli.model.ids import short_id
from cardbox_cli.settings import POLL, PROJECT, UNCLAIMED
from cardbox_cli.shipped import shipped_path

# The comment, and the commands: `NAME=$(…)` keeps what it prints, `$NAME` uses it.
_STEPS = (
    (
        "An agent's conversation becomes cards, and a box that lists them.",
        "BOX=$(cbx card import $EXAMPLES/checkout-incident.json --from openai -o id)",
    ),
    (
        "Another agent should write the report. A profile configures it.",
        "PROFILE=$(cbx profile import $EXAMPLES/incident-writer.yaml -o id)",
        "cbx agent provision writer --profile incident-writer",
    ),
    (
        "A recipe decides what it sees: the newest 14 cards, and the task.",
        "CONTEXT=$(cbx pack --handover $EXAMPLES/incident-report.yaml -o id \\\n"
        "    --arg incident_box=$BOX --arg instruction='Write the report.')",
    ),
    (
        "The tokens of the request. Without --stats, this prints the request.",
        "cbx render --profile incident-writer --box $CONTEXT --stats",
    ),
    (
        "Send it. Nothing happens. Why?",
        "TURN=$(cbx dispatch --agent writer --context-box $CONTEXT -o id)",
        "sleep 1; cbx why $TURN",
    ),
    (
        "Start a worker with any command that reads a request and prints an answer.",
        "cbx worker run --target writers --drain --exec 'python3 $EXAMPLES/client.py'",
        "cbx turn wait $TURN",
    ),
)
_NEXT = """\
# Next: import your own conversation with `cbx card import YOUR-CHAT.json`,
# or explore this one: `export CBX_PROJECT=demo; cbx turn show {turn}`."""


@verb("demo", "cbx demo", "cbx demo | less")
def run_demo() -> None:
    """Import a conversation, pack a context with a recipe, and run a turn that is stuck at first.

    It runs in the project 'demo'. Running it again adds only a new context and turn. The worker's command
    answers without a model.
    """
    values = {"EXAMPLES": str(shipped_path("examples"))}
    with _environment(values):
        _print_text(f"$ export CBX_PROJECT=demo CBX_UNCLAIMED=1 CBX_POLL=1 EXAMPLES={values['EXAMPLES']}")
        for comment, *commands in _STEPS:
            _print_text(f"# {comment}")
            for each in commands:
                _run(each, values)
    _print_text(_NEXT.format(turn=short_id(values["TURN"])))
    if shutil.which("cbx") is None:
        announce(f'cbx is not on your PATH yet: PATH="{Path(sys.executable).parent}:$PATH"')


@contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    """Set the variables of the first line, and put this Python first on PATH, as in an activated venv."""
    before = dict(os.environ)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    os.environ |= {**values, PROJECT.name: "demo", UNCLAIMED.name: "1", POLL.name: "1", "PATH": path}
    try:
        yield
    finally:
        os.environ.clear()
        os.environ |= before


def _run(command: str, values: dict[str, str]) -> None:
    _print_text(f"$ {command}")
    sys.stdout.flush()
    if pause := re.match(r"sleep (\d+); ", command):
        time.sleep(float(pause[1]))
        command = command[pause.end() :]
    assigned = re.fullmatch(r"(\w+)=\$\((.*)\)", command, re.DOTALL)
    line = (assigned[2] if assigned else command).replace("\\\n", "")
    words = [re.sub(r"\$([A-Z]+)", lambda name: values[name[1]], word) for word in shlex.split(line)][1:]
    if assigned:
        with redirect_stdout(io.StringIO()) as captured:
            _cbx(words)
        values[assigned[1]] = captured.getvalue().strip()
    else:
        _cbx(words)


def _cbx(words: list[str]) -> None:
    """Run one command on this run's database, as a separate `cbx` would. A failure ends the demo."""
    own = Session(database_url=session().database_url, pages=False, process=session().process)
    try:
        root().main(words, prog_name="cbx", standalone_mode=False, obj=own)
    except Findings as exc:
        if words[0] != "why":
            raise
        announce(f"error: {exc.message}")


def _print_text(text: str) -> None:
    sys.stdout.write(text + "\n")
