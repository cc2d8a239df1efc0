"""`cbx demo`: the main job on a bundled conversation, each command shown and really run."""

import io
import re
import shlex
import shutil
import sys
from contextlib import redirect_stdout
from pathlib import Path

from cardbox_cli.cli.root import root
from cardbox_cli.cli.session import Session, announce, session
from cardbox_cli.cli.verb import verb
from cardbox_cli.model.ids import short_id
from cardbox_cli.shipped import shipped

# The comment, and the command: `NAME=$(…)` keeps what it prints, `$NAME` uses it.
_STEPS = (
    (
        "A real agent conversation becomes cards, and a box that lists them in order.",
        "INCIDENT=$(cbx -p demo card import {examples}/checkout-incident.json --from openai -o id)",
    ),
    ("What is in this box? Its last places:", "cbx -p demo box show $INCIDENT --tail 12"),
    (
        "Another agent shall write the report. Its profile is a box, too.",
        "WRITER=$(cbx -p demo profile import {examples}/incident-writer.yaml -o id)",
    ),
    (
        "A handover recipe says what that agent gets to see: here the newest 14 cards, and the task.",
        "cbx handover validate {examples}/incident-report.yaml",
    ),
    (
        "Pack it: one transaction, one new context box.",
        "CONTEXT=$(cbx -p demo pack --handover {examples}/incident-report.yaml --arg incident_box=$INCIDENT "
        "--arg instruction='Write the incident report.' --arg "
        'result_fields:=\'[{{"name": "cause", "description": "the root cause, with its evidence"}}, '
        '{{"name": "timeline", "description": "what happened when, UTC"}}]\' -o id)',
    ),
    ("Why is each card there? The rule that brought it:", "cbx -p demo box show $CONTEXT --why"),
    (
        "What will the agent see? Each message with its layer, its card and its cost:",
        "cbx -p demo render --box $WRITER --box $CONTEXT --explain",
    ),
    ("And the exact request, ready to send:", "cbx -p demo render --box $WRITER --box $CONTEXT"),
    ("Nothing was torn apart on the way, and nothing has changed since:", "cbx -p demo box verify $CONTEXT"),
)
_NEXT = """\
That was the main job. Try next:
  cbx -p demo card search timeout                 find cards by what they say
  cbx -p demo box show {context} -o json       the same as data, for jq
  cbx -p demo render --box {context} --format text
  cbx handover show delegate                      the recipes that ship
  cbx card import YOUR-CHAT.json --from openai    your own conversation
  cbx db psql                                     the tables themselves
  cbx db status                                   where all this is kept"""


@verb("cbx demo", "cbx demo | less")
def command() -> None:
    """Import a conversation, pack a context from it by a recipe, and render the LLM request that results.

    Runs in the project 'demo'; running it again adds only a new context.
    """
    values = {"examples": str(shipped("examples"))}
    for comment, written in _STEPS:
        _run(comment, written.format(**values), values)
    _print_text(_NEXT.format(context=short_id(values["CONTEXT"])))
    if shutil.which("cbx") is None:
        announce(f'cbx is not on your PATH yet: PATH="{Path(sys.executable).parent}:$PATH"')


def _run(comment: str, written: str, values: dict[str, str]) -> None:
    _print_text(f"# {comment}")
    _print_text(f"$ {written}")
    assigned = re.fullmatch(r"(\w+)=\$\((.*)\)", written, re.DOTALL)
    line = assigned[2] if assigned else written
    words = [_filled(word, values) for word in shlex.split(line)]
    sys.stdout.flush()
    if assigned:
        values[assigned[1]] = _captured(words[1:])
        _print_text(f"{assigned[1]}={values[assigned[1]]}")
    else:
        _cbx(words[1:])
    _print_text()


def _filled(word: str, values: dict[str, str]) -> str:
    return re.sub(r"\$([A-Z]+)", lambda found: values[found[1]], word)


def _captured(arguments: list[str]) -> str:
    with redirect_stdout(io.StringIO()) as captured:
        _cbx(arguments)
    return captured.getvalue().strip()


def _cbx(arguments: list[str]) -> None:
    """Run one command as its own `cbx` would, on this run's database; its failure ends the demo."""
    own = Session(database_url=session().database_url, pages=False, process=session().process)
    root().main(arguments, prog_name="cbx", standalone_mode=False, obj=own)


def _print_text(text: str = "") -> None:
    sys.stdout.write(text + "\n")
