"""`cbx tool`: what agents may call, and the commands that answer."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from cardbox_cli.cli.parameters.inputs import check_choice, confirm, parse_json
from cardbox_cli.cli.session import session
from cardbox_cli.cli.terminal import output
from cardbox_cli.cli.terminal.columns import TOOL, TOOL_DEFAULT, chosen
from cardbox_cli.cli.terminal.lists import ColumnNames, Limit, Listing, held_whole, nothing_here, show_list
from cardbox_cli.cli.tree import examples, noun
from cardbox_cli.model import exact_json
from cardbox_cli.model.cards import OPERATOR

if TYPE_CHECKING:
    from cardbox_cli.model.identity import Tool

app = noun("Add, list, show and remove the tools of agents.")

ToolName = Annotated[str, typer.Argument(metavar="TOOL", help="The tool's name.")]


@app.command(
    epilog=examples(
        "  cbx tool add weather --schema weather.json --exec 'python3 weather.py' --timeout 20\n"
        "  cbx tool add approve --description 'Ask a person' --after-execution terminate"
    )
)
def add(
    name: Annotated[
        str, typer.Argument(metavar="TOOL", help="Its name: letters, digits, '_' and '-', at most 64.")
    ],
    schema: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="JSON Schema of its arguments: a file, - for stdin, or JSON. Default: it takes none.",
        ),
    ] = None,
    description: Annotated[
        str | None, typer.Option(metavar="TEXT", help="What the model is told of it.")
    ] = None,
    exec_: Annotated[
        str | None,
        typer.Option(
            "--exec",
            metavar="CMD",
            help="What answers a call: arguments on stdin, result on stdout. Default: a report does.",
        ),
    ] = None,
    timeout: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="How long a call may take.")
    ] = None,
    after_execution: Annotated[
        str,
        typer.Option(metavar="suspend|terminate", help="Whether the turn goes on with the result, or ends."),
    ] = "suspend",
    replace: Annotated[bool, typer.Option("--replace", help="Replace another tool of this name.")] = False,
) -> None:
    """Register a tool. The same again is unchanged. A profile's allowed_tools says who may call it."""
    from cardbox_cli.model.identity import AFTER_EXECUTION, NO_PARAMETERS, Tool
    from cardbox_cli.store.tools import ToolStore

    check_choice(after_execution, "--after-execution", AFTER_EXECUTION, what="value")
    options = {"exec": exec_, "timeout_seconds": _whole(timeout)}
    tool = Tool(
        tool_name=name,
        description=description,
        parameters=NO_PARAMETERS if schema is None else _schema(schema),
        target_subject=None,
        after_execution=after_execution,
        options={option: value for option, value in options.items() if value is not None},
    )
    with session().database() as database:
        done = ToolStore(database, session().project_id).add(tool, actor=OPERATOR, replace=replace)
    said = "unchanged:" if done.action == "unchanged" else done.action
    output.emit(
        {**_as_json(done.tool), "action": done.action},
        table=lambda: output.say(f"{said} {done.tool.tool_name}"),
        ids=[done.tool.tool_name],
    )


def _schema(typed: str) -> Any:
    inline = typed.startswith("@") or typed.lstrip().startswith("{")
    return parse_json(typed if inline else f"@{typed}", "--schema")


def _whole(seconds: float | None) -> float | int | None:
    return int(seconds) if seconds is not None and seconds.is_integer() else seconds


def _as_json(tool: "Tool") -> dict[str, Any]:
    import msgspec

    return msgspec.structs.asdict(tool)


@app.command("list", epilog=examples("  cbx tool list\n  cbx tool list -o json | jq -r '.[].tool_name'"))
def list_(limit: Limit = 50, columns: ColumnNames = None) -> None:
    """List the tools of the project by name."""
    from cardbox_cli.store.tools import ToolStore

    names = chosen(TOOL, TOOL_DEFAULT, columns)
    with session().database() as database:
        tools = ToolStore(database, session().project_id).all()
        read, further = held_whole(tools, limit)
        listing = Listing(
            read=read,
            further=further,
            limit=limit,
            columns=TOOL,
            names=names,
            item_id=lambda tool: tool.tool_name,
            empty=nothing_here(database, "tools", "`cbx tool add` adds one"),
        )
        show_list(listing, database)


@app.command(epilog=examples("  cbx tool show weather\n  cbx tool show weather -o json | jq .parameters"))
def show(name: ToolName) -> None:
    """Show a tool whole."""
    from cardbox_cli.store.tools import ToolStore

    with session().database() as database, database.snapshot():
        tool = ToolStore(database, session().project_id).get(name)
    output.emit(tool, table=lambda: _say(tool), ids=[tool.tool_name])


def _say(tool: "Tool") -> None:
    others = {key: value for key, value in tool.options.items() if key not in ("exec", "timeout_seconds")}
    output.facts(
        [
            ("tool", tool.tool_name),
            ("description", tool.description),
            ("command", tool.command or "none: a call waits for a report"),
            ("timeout", None if tool.timeout_seconds is None else f"{tool.timeout_seconds:g}s"),
            ("after execution", tool.after_execution),
            ("subject", tool.target_subject),
            ("options", exact_json.encode(others).decode() if others else None),
            ("schema", exact_json.encode(tool.parameters).decode()),
        ]
    )


@app.command(epilog=examples("  cbx tool remove weather --yes"))
def remove(
    name: ToolName,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Remove a tool. Calls of it that wait go on waiting."""
    from cardbox_cli.store.tools import ToolStore

    with session().database() as database:
        tools = ToolStore(database, session().project_id)
        tools.get(name)
        confirm(f"Remove the tool {name}?", yes=yes)
        tools.remove(name)
    output.emit({"removed": name}, table=lambda: output.say(f"removed {name}"), ids=[name])
