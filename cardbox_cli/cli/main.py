"""The command `cbx`: the table of its commands, and the way in."""

import os
import sys
from collections.abc import Sequence
from io import TextIOWrapper

import click

from cardbox_cli import __version__
from cardbox_cli.cli import boundary
from cardbox_cli.cli.commands import Entry, LazyGroup
from cardbox_cli.cli.session import Session, common_options
from cardbox_cli.cli.streams import open_closed_streams

# Set by the scripts of `cbx completion`: the shell that asks.
COMPLETING = "_CBX_COMPLETE"

COMMANDS = {
    "demo": Entry("cardbox_cli.cli.demo", "See the whole main job on a bundled conversation."),
    "card": Entry("cardbox_cli.cli.card", "Add, show, list, search, delete, import and export cards."),
    "box": Entry("cardbox_cli.cli.box", "Make, show, change and verify boxes of cards."),
    "todo": Entry("cardbox_cli.cli.todo", "Keep the todo list of a box: add, settle and list its items."),
    "project": Entry("cardbox_cli.cli.project", "Create, change, list and show projects."),
    "profile": Entry("cardbox_cli.cli.profile", "Import, list and show the profiles of agents."),
    "agent": Entry("cardbox_cli.cli.agent", "Provision, list and show agents."),
    "tool": Entry("cardbox_cli.cli.tool", "Add, list, show and remove the tools of agents."),
    "handover": Entry("cardbox_cli.cli.handover", "List, show and validate handover recipes."),
    "pack": Entry("cardbox_cli.cli.pack", "Pack a new context box by a handover recipe."),
    "dispatch": Entry("cardbox_cli.cli.dispatch", "Dispatch a turn into an agent's inbox."),
    "worker": Entry("cardbox_cli.cli.worker", "Run turns by a command of yours; list the workers."),
    "reap": Entry("cardbox_cli.cli.reap", "Do what is overdue: expired leases, deadlines, promotions."),
    "render": Entry("cardbox_cli.cli.render", "Show the exact LLM request of boxes or of a turn."),
    "turn": Entry("cardbox_cli.cli.turn", "List, show, trace, await, stop and free turns; report to them."),
    "inbox": Entry("cardbox_cli.cli.inbox", "List, show, claim and give back what agents must process."),
    "why": Entry("cardbox_cli.cli.why", "Explain why a turn stands still, and how to free it."),
    "shell": Entry("cardbox_cli.cli.shell", "Run commands line by line: one process, one connection."),
    "completion": Entry("cardbox_cli.cli.completion", "Print the script that completes cbx in your shell."),
    "db": Entry("cardbox_cli.cli.db", "Start, inspect, upgrade and remove the database."),
}


def root(kind: type[LazyGroup] = LazyGroup) -> LazyGroup:
    """The command tree."""
    return kind(
        name="cbx",
        entries=COMMANDS,
        help="Inspect, pack and render the contexts of LLM agents: cards and boxes in Postgres.",
        epilog="`cbx COMMAND --help` has examples. Start with `cbx demo`.",
        params=[
            *common_options(),
            click.Option(
                ["--version"],
                is_flag=True,
                is_eager=True,
                expose_value=False,
                callback=_version,
                help="Show the version.",
            ),
        ],
        context_settings={"help_option_names": ["--help", "-h"]},
        no_args_is_help=True,
    )


def _version(context: click.Context, _: click.Parameter, value: bool) -> None:
    if value and not context.resilient_parsing:
        click.echo(f"cbx {__version__}")
        context.exit()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `cbx` on `arguments` (default: the command line's); the exit code."""
    argv = list(sys.argv[1:] if arguments is None else arguments)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    session = Session()

    return boundary.run(
        lambda: root().main(argv, prog_name="cbx", standalone_mode=False, obj=session), argv, session
    )


def script() -> None:
    """The console script. Its completion in a shell runs it, too."""
    open_closed_streams()
    if COMPLETING in os.environ:
        from cardbox_cli.cli.completing import answer

        sys.exit(answer(os.environ[COMPLETING]))
    sys.exit(main())
