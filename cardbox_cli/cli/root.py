"""The table of the commands of `cbx`, and the command tree that they make."""

import click

from cardbox_cli import __version__
from cardbox_cli.cli.tree import LazyGroup

# Set by the scripts of `cbx completion`: the shell that asks.
COMPLETING = "_CBX_COMPLETE"

# Each is a module or folder of `commands/`, and its line in `cbx --help`.
COMMANDS = {
    "demo": "See the whole main job on a bundled conversation.",
    "card": "Add, show, list, search, delete, import and export cards.",
    "box": "Make, show, change and verify boxes of cards.",
    "todo": "Keep the todo list of a box: add, settle and list its items.",
    "project": "Create, change, list and show projects.",
    "profile": "Import, list and show the profiles of agents.",
    "agent": "Provision, list and show agents.",
    "tool": "Add, list, show and remove tools; call internal handlers.",
    "handover": "List, show and validate handover recipes.",
    "pack": "Pack a new context box by a handover recipe.",
    "dispatch": "Dispatch a turn into an agent's inbox.",
    "delegate": "Hand a task to an agent: new, existing, or cloned.",
    "launch": "Launch a fresh agent of a profile on a task of its own.",
    "ask": "Ask a fresh agent of a profile one question.",
    "fork-join": "Hand many tasks to agents at once; join their results.",
    "batch": "List, show, watch and cancel batches of tasks.",
    "worker": "Run turns by a command of yours; list the workers.",
    "reap": "Do what is overdue: expired leases, deadlines, promotions.",
    "chat": "Answer chats; show and steer what they remember.",
    "render": "Show the exact LLM request of boxes or of a turn.",
    "cost": "Show what requests cost, and what was wasted.",
    "turn": "List, show, trace, await, stop and free turns; report to them.",
    "inbox": "List, show, claim and give back what agents must process.",
    "why": "Explain why a turn stands still, and how to free it.",
    "audit": "List what people did: fixes, deletions, tools, purges.",
    "serve": "Serve an inspector for browsers, and a read API.",
    "mcp": "Give a coding agent tools that read this project.",
    "token": "Make, list and revoke tokens for what is served.",
    "shell": "Run commands line by line: one process, one connection.",
    "completion": "Print the script that completes cbx in your shell.",
    "config": "Show the settings in force, and where each comes from.",
    "db": "Start, inspect, upgrade and remove the database.",
}


class Root(LazyGroup):
    """The group of all commands. `cbx help COMMAND` is another way to ask for `cbx COMMAND --help`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, [*args[1:], "--help"] if args[:1] == ["help"] else args)


def root() -> LazyGroup:
    """The command tree."""
    return Root(
        "cardbox_cli.cli.commands",
        COMMANDS,
        name="cbx",
        help="Inspect, pack and render the contexts of LLM agents: cards and boxes in Postgres.",
        epilog="`cbx help COMMAND`, or `cbx COMMAND --help`, has examples. Start with `cbx demo`.",
        params=[
            click.Option(
                ["--version", "-V"],
                is_flag=True,
                is_eager=True,
                expose_value=False,
                callback=_version,
                help="Show the version.",
            )
        ],
    )


def _version(context: click.Context, _: click.Parameter, value: bool) -> None:
    if value and not context.resilient_parsing:
        click.echo(f"cbx {__version__}")
        context.exit()
