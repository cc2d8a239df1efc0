"""`cbx completion`: the scripts that complete `cbx` in shells; `completion_candidates.py` serves them."""

from pathlib import Path
from typing import Annotated

import click
from typer import Argument

from cardbox_cli.cli.options.value_types import OneOf
from cardbox_cli.cli.verb import verb
from cardbox_cli.errors import UsageError
from cardbox_cli.text.error_messages import unknown_message

SHELLS = ("bash", "zsh", "fish")


@verb(
    "completion",
    "source <(cbx completion bash)",
    "source <(cbx completion zsh)",
    "cbx completion fish > ~/.config/fish/completions/cbx.fish",
)
def print_completion_script(
    shell: Annotated[
        str,
        Argument(metavar="|".join(SHELLS), click_type=OneOf(lambda: SHELLS, what=None), help="Your shell."),
    ],
) -> None:
    """Print the script that completes commands, options, recipes, profiles, boxes and cards."""
    if shell not in SHELLS:
        raise UsageError(unknown_message("shell", shell, SHELLS), hint=f"shells are {', '.join(SHELLS)}")
    script = Path(__file__).parents[1] / "completion_scripts" / f"cbx.{shell}"
    click.echo(script.read_text(encoding="utf-8"), nl=False)
