"""The table of all commands of `cbx`, their groups in the root's help, and the command tree.

Help and the completion of names read only this table. They import no command.
"""

import click

from cardbox_cli import __version__
from cardbox_cli.cli.help_topics import FIXES, TOPICS, topic_page
from cardbox_cli.cli.tree import LazyGroup, Noun

# The scripts of `cbx completion` set this variable to the name of their shell.
COMPLETING = "_CBX_COMPLETE"

# The value of a single verb is its line in `cbx --help`. A noun also has a line for each of its verbs.
COMMANDS: dict[str, str | Noun] = {
    "demo": "Try cbx on a bundled conversation.",
    "card": Noun(
        "Add, search, import, export and check cards.",
        {
            "add": "Write a card.",
            "list": "List cards, newest first.",
            "search": "Find cards by the text in them, newest first.",
            "show": "Show complete cards.",
            "edit": "Edit a card's text in VISUAL or EDITOR (new card).",
            "refs": "List the boxes that hold a card.",
            "delete": "Hide cards from readers.",
            "import": "Import conversations as cards, with a box for each.",
            "export": "Print a box as a conversation.",
            "lint": "Check conversation files for what a provider would reject.",
        },
        modules={
            "card_changes": "add edit delete",
            "card_views": "list search show refs",
            "card_files": "import export",
            "card_lint": "lint",
        },
    ),
    "box": Noun(
        "Create, show, diff, edit and repair boxes.",
        {
            "create": "Create a box of cards, in the given order.",
            "list": "List boxes, most recently changed first.",
            "show": "Show the cards of a box, in order.",
            "append": "Append cards to a box.",
            "replace": "Set the cards of a box.",
            "edit": "Edit a box's list of cards in VISUAL or EDITOR.",
            "fork": "Copy a box (new box, same cards).",
            "diff": "Show the differences between two boxes.",
            "verify": "Check a box's references, tool results and digest.",
            "repair": "Fix what a provider would reject (new box).",
            "compress": "Replace older messages with a summary (new box).",
            "expand": "Undo compress (new box).",
            "delete": "Delete a box, not its cards.",
        },
        modules={
            "box_changes": "create append replace fork edit delete",
            "box_show": "show",
            "box_views": "list diff verify",
            "box_repair": "repair compress expand",
        },
    ),
    "todo": Noun(
        "Manage the to-do list of a box.",
        {
            "add": "Add items to the to-do list of a box.",
            "done": "Mark items as done.",
            "reopen": "Mark items as not done.",
            "list": "List the to-do items of a box.",
        },
    ),
    "project": Noun(
        "Manage projects (tenants).",
        {
            "create": "Create a project with a title and an owner.",
            "update": "Change a project's title, owner or composing rules.",
            "list": "List the projects of the database, sorted by id.",
            "show": "Show a project and its settings.",
        },
    ),
    "profile": Noun(
        "Manage profiles (agent settings).",
        {
            "import": "Store profiles from YAML files.",
            "list": "List the profiles of the project, sorted by name.",
            "show": "Show a profile's names, boxes and configuration.",
            "validate": "Check profile files and print each error with its line.",
        },
    ),
    "agent": Noun(
        "Manage agents (the roster).",
        {
            "provision": "Create an idle agent, or change one.",
            "list": "List the agents of the project and their states.",
            "show": "Show an agent and its state.",
        },
    ),
    "tool": Noun(
        "Manage tools, and call internal handlers.",
        {
            "add": "Register a tool.",
            "list": "List the tools of the project, sorted by name.",
            "show": "Show a tool and its schema.",
            "call": "Call an internal handler on behalf of a turn.",
            "remove": "Remove a tool.",
        },
    ),
    "handover": Noun(
        "List, show and validate recipes.",
        {
            "list": "List the recipes that --recipe NAME finds.",
            "show": "Show a recipe and its arguments.",
            "validate": "Check recipe files and print each error with its line.",
            "schema": "Print the JSON Schema of recipes, for editors and CI.",
        },
    ),
    "pack": "Build a context box from a recipe.",
    "dispatch": "Send a turn to an agent.",
    "delegate": "Give a task to a new, existing or cloned agent.",
    "launch": "Start a new agent with a profile on a task.",
    "ask": "Ask a new agent with a profile one question.",
    "fork-join": "Give tasks to many agents and join their results.",
    "batch": Noun(
        "List, watch, retry and cancel batches of tasks.",
        {
            "list": "List batches, newest first.",
            "show": "Show a batch and the results of its children.",
            "watch": "Watch a batch until it ends.",
            "retry": "Run the children again that did not succeed.",
            "cancel": "End a batch as failed and stop its children.",
        },
    ),
    "worker": Noun(
        "Run turns with your model command.",
        {"run": "Run turns with your model command.", "list": "List the workers that serve this project."},
    ),
    "reap": "Run overdue housekeeping once, for example from cron.",
    "chat": Noun(
        "Run chat agents and manage their memory.",
        {
            "open": "Talk to an agent, one line at a time.",
            "send": "Append a user's message to a chat.",
            "reply": "Append a sent reply to a chat.",
            "run": "Answer a chat's newest message with your model command.",
            "correct": "Correct the message that a run is answering.",
            "list": "List chats, or the archived contexts of a chat.",
            "show": "Show a chat's context, transcript and runs.",
            "transcript": "Print the transcript of a chat.",
            "new": "Archive a chat's context and begin a new one.",
            "load": "Continue with an archived context of a chat.",
            "clear": "Empty a chat's context without archiving it.",
            "memory": "Show or set the permanent memory of a chat.",
            "persona": "Show or set the personas of the project's chats.",
            "why": "Explain what a chat remembers, or why nothing.",
            "tools": "Print the tools that let a model manage its chat's context.",
            "call": "Run one of these tools.",
            "import": "Import chats from transcript files.",
            "export": "Export a chat to transcript files.",
        },
        modules={
            "chat_messages": "send reply correct",
            "chat_runs": "run open",
            "chat_contexts": "new load clear memory persona tools call",
            "chat_views": "list show transcript why",
            "chat_files": "import export",
        },
    ),
    "render": "Print, explain, check or diff the exact request to a model.",
    "cost": "Show where tokens went and what was wasted.",
    "turn": Noun(
        "List, watch, replay and fix turns.",
        {
            "list": "List turns, newest first.",
            "show": "Show everything about a turn on one page.",
            "trace": "Show the turns of a trace as a tree.",
            "logs": "Show what a turn's commands wrote to stderr.",
            "watch": "Print the events of a turn until it ends.",
            "wait": "Wait until a turn ends and print its deliverable.",
            "report": "Answer a pending tool call.",
            "nudge": "Notify the workers of a turn again.",
            "retry": "Retry a failed turn as a new turn.",
            "replay": "Run a turn again and compare the results.",
            "fork": "Branch from a step with a new instruction or profile.",
            "stop": "End a turn at once as canceled.",
            "reclaim": "Take a turn back from its worker.",
            "requeue": "Put a turn back into its agent's queue.",
            "fail": "End a turn as failed, with a reason.",
            "rebox": "Change the context or output box of a waiting turn.",
            "rebuild": "Recreate an agent's missing state row.",
        },
        modules={
            "turn_views": "list show trace logs",
            "turn_progress": "watch wait report",
            "turn_fixes": "nudge retry stop reclaim requeue fail rebox rebuild",
            "turn_replay": "replay fork",
        },
        epilog=FIXES,
    ),
    "inbox": Noun(
        "Work with the raw queue of agents.",
        {
            "list": "List inbox rows, newest first.",
            "show": "Show an inbox row and its lease.",
            "claim": "Claim due rows under a lease.",
            "ack": "Mark a claimed row as done.",
            "fail": "Mark a claimed row as dead.",
            "defer": "Return a claimed row to the queue for later.",
            "retry": "Try a dead row again.",
            "cancel": "Cancel the turn of a queued row before it begins.",
        },
    ),
    "why": "Explain why a turn is stuck and how to fix it.",
    "audit": "List manual changes: fixes, deletions, purges.",
    "serve": "Open the inspector in a browser (and a read-only HTTP API).",
    "mcp": "Serve read-only tools to a coding agent.",
    "token": Noun(
        "Manage access tokens of `cbx serve`.",
        {
            "create": "Create a token and print it once.",
            "list": "List the tokens of the project.",
            "revoke": "Revoke a token.",
        },
    ),
    "shell": "Run commands line by line on one connection.",
    "completion": "Print the completion script for your shell.",
    "config": "Show settings and their sources.",
    "db": Noun(
        "Manage the database and the embedded server.",
        {
            "start": "Start the embedded server.",
            "stop": "Stop the embedded server; its data stay.",
            "status": "Show the database in use and what it contains.",
            "url": "Print the database's address for other programs.",
            "psql": "Open psql on the database.",
            "init": "Create missing tables, or print their SQL.",
            "upgrade": "Upgrade an older database to this schema version.",
            "distribute": "Distribute the tables over a Citus cluster by project.",
            "index-text": "Build the indexes for fast text search.",
            "gc": "Permanently delete expired cards.",
            "destroy": "Stop the embedded server and delete all its data.",
        },
    ),
}


# The groups of `cbx --help`: every command appears in one of them.
GROUPS = {
    "Get started": "demo",
    "Inspect and check": "render cost why serve audit",
    "Contexts": "card box handover pack todo",
    "Agents": "project profile agent tool",
    "Run": "dispatch delegate ask launch fork-join worker turn batch inbox reap chat",
    "Set up": "db config token mcp shell completion",
}
_IMPORT = ("card import", "Import a conversation (OpenAI, Claude Code, Codex, …).")
_LEARN_MORE = (
    ("cbx --version", "The version of cbx."),
    ("cbx help COMMAND", "Its options and examples."),
    ("cbx help topics", "Ids, output formats, exit codes, settings, recipes, fixes."),
    ("cbx help options", "The options of every command: -p, -o, --database-url, …"),
)

# Root commands that share a module.
_SHARED = dict.fromkeys(("delegate", "launch", "ask", "fork-join"), "delegation")


class Root(LazyGroup):
    """The group of all commands. `cbx help NAME` prints the help of a command, or the page of a topic."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args[:1] == ["help"]:
            if args[1:] and args[1] in TOPICS:
                click.echo(topic_page(args[1], ctx))
                ctx.exit()
            args = [*args[1:], "--help"]
        return super().parse_args(ctx, args)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for group, names in GROUPS.items():
            lines = [(name, self.entries[name]) for name in names.split()]
            with formatter.section(group):
                formatter.write_dl([*lines, _IMPORT] if group == "Get started" else lines, col_max=12)
        with formatter.section("Learn more"):
            formatter.write_dl(_LEARN_MORE)


def root() -> LazyGroup:
    return Root(
        COMMANDS,
        _module_of,
        name="cbx",
        help="Inspect, build, send and debug the contexts of LLM agents, in Postgres.",
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
