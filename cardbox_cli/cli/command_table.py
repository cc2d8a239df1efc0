"""The table of all commands of `cbx`, and the command tree that they make.

Help and the completion of names read this table alone, and import no command.
"""

import click

from cardbox_cli import __version__
from cardbox_cli.cli.tree import LazyGroup, Noun

# Set by the scripts of `cbx completion`: the shell that asks.
COMPLETING = "_CBX_COMPLETE"

# A single verb with its line in `cbx --help`, or a noun with the lines of its verbs in its own help.
COMMANDS: dict[str, str | Noun] = {
    "demo": "See the whole main job on a bundled conversation.",
    "card": Noun(
        "Add, show, list, search, delete, import and export cards.",
        {
            "add": "Write a card.",
            "list": "List cards, newest first.",
            "search": "Find cards by their words, newest first.",
            "show": "Show cards whole.",
            "edit": "Edit a card's text in VISUAL or EDITOR; makes a new card.",
            "refs": "List the boxes that hold a card.",
            "delete": "Hide cards from readers.",
            "import": "Import conversations: cards, and a box each.",
            "export": "Print a box as a conversation.",
            "lint": "Check conversation files for what a provider would refuse.",
        },
        modules={
            "card_changes": "add edit delete",
            "card_views": "list search show refs",
            "card_files": "import export",
            "card_lint": "lint",
        },
    ),
    "box": Noun(
        "Make, show, change and verify boxes of cards.",
        {
            "create": "Make a box of cards, in the order given.",
            "list": "List boxes, the last changed first.",
            "show": "Show what is in a box, in order.",
            "append": "Append cards to a box.",
            "replace": "Set the cards of a box.",
            "edit": "Edit the list of a box in VISUAL or EDITOR.",
            "fork": "Make a new box with the same cards.",
            "diff": "Show how one box differs from another.",
            "verify": "Check a box: references, calls and results, digest.",
            "repair": "Make a new box that providers do not refuse.",
            "compress": "Make a new box with a summary in the place of what is old.",
            "expand": "Make a new box with what summaries stand for.",
            "delete": "Remove a box. Its cards stay.",
        },
        modules={
            "box_changes": "create append replace fork edit delete",
            "box_show": "show",
            "box_list_diff_verify": "list diff verify",
            "box_repair": "repair compress expand",
        },
    ),
    "todo": Noun(
        "Keep the todo list of a box: add, settle and list its items.",
        {
            "add": "Add items to the todo list of a box.",
            "done": "Mark items as done.",
            "reopen": "Mark items as not done after all.",
            "list": "List the todo items of a box.",
        },
    ),
    "project": Noun(
        "Create, change, list and show projects.",
        {
            "create": "Create a project with a title and an owner.",
            "update": "Change a project, or how its contexts are composed.",
            "list": "List the projects of the database by id.",
            "show": "Show what is known of a project.",
        },
    ),
    "profile": Noun(
        "Import, list and show the profiles of agents.",
        {
            "import": "Store profiles from YAML files.",
            "list": "List the profiles of the project by name.",
            "show": "Show a profile: its names and boxes, and its configuration.",
            "validate": "Check profiles: everything that is wrong, with file and line.",
        },
    ),
    "agent": Noun(
        "Provision, list and show agents.",
        {
            "provision": "Make an agent, idle, on the roster; or change one.",
            "list": "List the agents of the project, each with what it does now.",
            "show": "Show an agent: who it is, and what it does now.",
        },
    ),
    "tool": Noun(
        "Add, list, show and remove tools; call internal handlers.",
        {
            "add": "Register a tool.",
            "list": "List the tools of the project by name.",
            "show": "Show a tool whole.",
            "call": "Call an internal handler on behalf of a turn.",
            "remove": "Remove a tool.",
        },
    ),
    "handover": Noun(
        "List, show and validate handover recipes.",
        {
            "list": "List the recipes that --handover NAME finds.",
            "show": "Show a recipe, and what arguments it takes.",
            "validate": "Check recipes: everything that is wrong, with file and line.",
            "schema": "Print the JSON Schema of recipes, for editors and CI.",
        },
    ),
    "pack": "Pack a new context box by a handover recipe.",
    "dispatch": "Dispatch a turn into an agent's inbox.",
    "delegate": "Hand a task to an agent: new, existing, or cloned.",
    "launch": "Launch a fresh agent of a profile on a task of its own.",
    "ask": "Ask a fresh agent of a profile one question.",
    "fork-join": "Hand many tasks to agents at once; join their results.",
    "batch": Noun(
        "List, show, watch and cancel batches of tasks.",
        {
            "list": "List batches, newest first.",
            "show": "Show a batch and the results of its children.",
            "watch": "Watch a batch until it has ended.",
            "cancel": "End a batch as failed, and stop its children.",
        },
    ),
    "worker": Noun(
        "Run turns by a command of yours; list the workers.",
        {
            "run": "Run turns: a command of yours answers for the model.",
            "list": "List the workers that serve this project.",
        },
    ),
    "reap": "Do what is overdue: expired leases, deadlines, promotions.",
    "chat": Noun(
        "Answer chats; show and steer what they remember.",
        {
            "open": "Talk to an agent by hand, a line at a time.",
            "send": "Append a user's message to a chat.",
            "reply": "Append what was sent to a chat.",
            "run": "Answer a chat's newest unanswered message by a command.",
            "correct": "Correct the message that a run is answering.",
            "list": "List the archived contexts of a chat, or the chats.",
            "show": "Show a chat: its context, its transcript, its runs.",
            "transcript": "Print what was said in a chat.",
            "new": "Archive a chat's context, and begin a new one.",
            "load": "Go on with an archived context of a chat.",
            "clear": "Empty a chat's context without archiving it.",
            "memory": "Show or set what a chat remembers in any case.",
            "persona": "Show or set the personas of the project's chats.",
            "why": "Explain why a chat remembers, or does not.",
            "tools": "Print the tools by which a model steers its chat's context.",
            "call": "Execute a call of one of those tools.",
            "import": "Import chats from files of the on-disk layout.",
            "export": "Write a chat as files of the on-disk layout.",
        },
        modules={
            "chat_messages": "send reply correct",
            "chat_runs": "run open",
            "chat_contexts": "new load clear memory persona tools call",
            "chat_views": "list show transcript why",
            "chat_files": "import export",
        },
    ),
    "render": "Show the exact LLM request of boxes or of a turn.",
    "cost": "Show what requests cost, and what was wasted.",
    "turn": Noun(
        "List, show, trace, await, stop and free turns; report to them.",
        {
            "list": "List turns, newest first.",
            "show": "Show one turn on one page.",
            "trace": "Show the turns of a trace as a tree.",
            "logs": "Show what the commands of a turn wrote on stderr.",
            "watch": "Print what happens to a turn, until it has ended.",
            "wait": "Wait until a turn has ended, and print what it delivered.",
            "report": "Report the result of a tool call to a turn that waits.",
            "nudge": "Notify the workers of a turn again.",
            "retry": "Ask anew for a turn that ended otherwise than in success.",
            "replay": "Run a turn again, and compare what came.",
            "fork": "Go on from a step of a turn, otherwise than it did.",
            "stop": "End a turn at once as canceled.",
            "reclaim": "Take a turn away from whoever runs it.",
            "requeue": "Put a turn back into its agent's queue.",
            "fail": "End a turn as failed, with a reason.",
            "rebox": "Give a turn that waits another context or output box.",
            "rebuild": "Make the lost head of an agent anew.",
        },
        modules={
            "turn_views": "list show trace logs",
            "turn_watch_wait_report": "watch wait report",
            "turn_fixes": "nudge retry stop reclaim requeue fail rebox rebuild",
            "turn_replay": "replay fork",
        },
    ),
    "inbox": Noun(
        "List, show, claim and give back what agents must process.",
        {
            "list": "List inbox rows, newest first.",
            "show": "Show an inbox row whole, and who has claimed it.",
            "claim": "Claim due rows for the time of a lease.",
            "ack": "Give a claimed row back as done.",
            "fail": "Give a claimed row back as dead.",
            "defer": "Give a claimed row back, to be tried again later.",
            "retry": "Try a dead row again.",
            "cancel": "End the turn of a queued row before it begins.",
        },
    ),
    "why": "Explain why a turn stands still, and how to free it.",
    "audit": "List what people did: fixes, deletions, tools, purges.",
    "serve": "Serve an inspector for browsers, and a read API.",
    "mcp": "Give a coding agent tools that read this project.",
    "token": Noun(
        "Make, list and revoke tokens for what is served.",
        {
            "create": "Make a token, which is printed once.",
            "list": "List the tokens of the project.",
            "revoke": "Let a token open nothing any more.",
        },
    ),
    "shell": "Run commands line by line: one process, one connection.",
    "completion": "Print the script that completes cbx in your shell.",
    "config": "Show the settings in force, and where each comes from.",
    "db": Noun(
        "Start, inspect, upgrade and remove the database.",
        {
            "start": "Start the embedded server.",
            "stop": "Stop the embedded server. Nothing is lost.",
            "status": "Show which database commands use, and what it holds.",
            "url": "Print the database's address for other programs.",
            "psql": "Open psql on the database.",
            "init": "Add the tables that are missing, or print their SQL.",
            "upgrade": "Bring an older database to this cbx's schema version.",
            "distribute": "Spread the tables over the nodes of a Citus cluster, by project.",
            "index-text": "Build the indexes that make searching fast.",
            "gc": "Purge expired cards for ever.",
            "destroy": "Stop the embedded server and delete all of its data.",
        },
    ),
}


# Verbs that stand alone in help, and share a module.
_SHARED = dict.fromkeys(("delegate", "launch", "ask", "fork-join"), "delegate_launch_ask_fork_join")


class Root(LazyGroup):
    """The group of all commands. `cbx help COMMAND` is another way to ask for `cbx COMMAND --help`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, [*args[1:], "--help"] if args[:1] == ["help"] else args)


def root() -> LazyGroup:
    """The command tree."""
    return Root(
        COMMANDS,
        _module_of,
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


def _module_of(command: str) -> str:
    return f"cardbox_cli.cli.commands.{_SHARED.get(command) or command.replace('-', '_')}"


def _version(context: click.Context, _: click.Parameter, value: bool) -> None:
    if value and not context.resilient_parsing:
        click.echo(f"cbx {__version__}")
        context.exit()
