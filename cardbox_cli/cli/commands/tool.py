"""`cbx tool`: the tools that agents may call, and their commands."""

from typing import Annotated, Any

import msgspec
from typer import Argument, Option

from cardbox_cli.cli.actor import audit
from cardbox_cli.cli.command_runtime import runtime
from cardbox_cli.cli.last_ids import resolved_or_given, resolving_turns
from cardbox_cli.cli.options.confirmation import Yes, confirm
from cardbox_cli.cli.options.input_files import parse_json
from cardbox_cli.cli.options.shared_options import Limit, ToolName, column_option
from cardbox_cli.cli.options.value_types import AFTER, FILE, HANDLER, TOOL, TURN
from cardbox_cli.cli.project_database import open_database
from cardbox_cli.cli.session import session
from cardbox_cli.cli.terminal import output
from cardbox_cli.cli.terminal.list_columns import TOOL_COLUMNS
from cardbox_cli.cli.terminal.list_output import Listing, empty_project_note, list_in_memory, show_list
from cardbox_cli.cli.terminal.table_layout import choose_columns
from cardbox_cli.cli.verb import verb
from cardbox_cli.errors import InvalidInput
from cardbox_cli.model import exact_json
from cardbox_cli.model.cards import OPERATOR
from cardbox_cli.model.identity import NO_PARAMETERS, Tool


def _redact_command(tool: Tool) -> str | None:
    """Return the tool's command without secrets, for the audit; None if calls wait for a report."""
    from cardbox_cli.execution.worker.command_output import redact

    return None if tool.command is None else redact(tool.command)


@verb(
    "add",
    "cbx tool add weather --schema weather.json --exec 'python3 weather.py' --timeout 20",
    "cbx tool add approve --description 'Ask a person' --after-execution terminate",
)
def add_tool(
    name: Annotated[
        str, Argument(click_type=TOOL, help="The tool's name: at most 64 letters, digits, '_' and '-'.")
    ],
    schema: Annotated[
        str | None,
        Option(
            click_type=FILE,
            help="JSON Schema of the tool's arguments: a file, - for stdin, or JSON. Default: no arguments.",
        ),
    ] = None,
    description: Annotated[str | None, Option(metavar="TEXT", help="The description for the model.")] = None,
    exec_: Annotated[
        str | None,
        Option(
            "--exec",
            metavar="CMD",
            help="The tool's command: arguments on stdin, result on stdout. Default: calls wait for `cbx "
            "turn report`.",
        ),
    ] = None,
    timeout: Annotated[float | None, Option(metavar="SECONDS", help="Time limit of one call.")] = None,
    after_execution: Annotated[
        str, Option(click_type=AFTER, help="suspend continues the turn with the result; terminate ends it.")
    ] = "suspend",
    read_only: Annotated[
        bool, Option("--read-only", help="Its calls change nothing, so their results may be left out.")
    ] = False,
    replace: Annotated[bool, Option("--replace", help="Replace a different tool with this name.")] = False,
) -> None:
    """Register a tool. Running this again changes nothing. Allow the tool in a profile's allowed_tools."""
    from cardbox_cli.store.tools import ToolStore

    options = {"exec": exec_, "timeout_seconds": _whole_seconds(timeout), "read_only": read_only or None}
    tool = Tool(
        tool_name=name,
        description=description,
        parameters=NO_PARAMETERS if schema is None else _parse_schema(schema),
        target_subject=None,
        after_execution=after_execution,
        options={option: value for option, value in options.items() if value is not None},
    )
    with open_database() as database, database.transaction():
        done = ToolStore(database, session().project_id).add(tool, actor=OPERATOR, replace=replace)
        if done.action != "unchanged":
            before = {} if done.before is None else {"command_before": _redact_command(done.before)}
            command = _redact_command(done.tool)
            audit(database, "tool add", tool_name=name, did=done.action, command=command, **before)
    action = "unchanged:" if done.action == "unchanged" else done.action
    output.emit(
        {**msgspec.structs.asdict(done.tool), "action": done.action},
        table=lambda: output.print_text(f"{action} {done.tool.tool_name}"),
        ids=[done.tool.tool_name],
    )


def _parse_schema(given: str) -> Any:
    inline = given.startswith("@") or given.lstrip().startswith("{")
    return parse_json(given if inline else f"@{given}", "--schema")


def _whole_seconds(seconds: float | None) -> float | int | None:
    return int(seconds) if seconds is not None and seconds.is_integer() else seconds


@verb("list", "cbx tool list", "cbx tool list -o json | jq -r '.[].tool_name'", pages=True, reads=True)
def list_tools(
    limit: Limit = 50, columns: Annotated[str | None, column_option("name,command,timeout")] = None
) -> None:
    """List the tools of the project, sorted by name."""
    from cardbox_cli.store.tools import ToolStore

    shown = choose_columns(TOOL_COLUMNS, columns)
    with open_database() as database:
        tools = ToolStore(database, session().project_id).all()
        empty = empty_project_note(database, "tools", "add one with `cbx tool add`")
        reading = list_in_memory(tools, limit)
        listing = Listing(*reading, limit, shown, item_id=lambda tool: tool.tool_name, empty=empty)
        show_list(listing, database)


@verb(
    "show", "cbx tool show weather", "cbx tool show weather -o json | jq .parameters", pages=True, reads=True
)
def show_tool(name: ToolName) -> None:
    """Show a tool and its schema."""
    from cardbox_cli.store.tools import ToolStore

    with open_database() as database, database.snapshot():
        tool = ToolStore(database, session().project_id).get(name)
    output.emit(tool, table=lambda: _print_tool(tool), ids=[tool.tool_name])


def _print_tool(tool: Tool) -> None:
    others = {key: value for key, value in tool.options.items() if key not in ("exec", "timeout_seconds")}
    output.facts(
        ("tool", tool.tool_name),
        ("description", tool.description),
        ("command", tool.command or "none: a call waits for a report"),
        ("timeout", None if tool.timeout_seconds is None else f"{tool.timeout_seconds:g}s"),
        ("after execution", tool.after_execution),
        ("subject", tool.target_subject),
        ("options", exact_json.encode(others).decode() if others else None),
        ("schema", exact_json.encode(tool.parameters).decode()),
    )


@verb(
    "call",
    """cbx tool call launch_principal --turn @last --args '{"profile_name": "clerk", "instruction": "Go"}'""",
    'cbx tool call delegate_async --turn "$CBX_TURN_ID" --args @task.json -o json | jq -r .agent_turn_id',
    "cbx tool call ask_expert --turn 1d5c8f72 --tool-call-id call_7 --args @question.json",
)
def call_tool(
    name: Annotated[str, Argument(click_type=HANDLER, help="The handler's name.")],
    turn: Annotated[
        str,
        Option(click_type=TURN, help="The calling turn. It must be active. Its agent's rights apply."),
    ],
    args: Annotated[
        str, Option("--args", metavar="JSON|@FILE", help="The arguments, a JSON object; @- for stdin.")
    ] = "{}",
    tool_call_id: Annotated[
        str | None, Option(metavar="ID", help="A pending tool call of the turn, which the result answers.")
    ] = None,
) -> None:
    """Call an internal handler on behalf of a turn, if its profile allows the call.

    cbx workers answer such calls automatically. Use this command in a worker's command or from other workers.
    """
    from cardbox_cli.orchestration.handler_calls import call_handler

    arguments = parse_json(args, "--args")
    if not isinstance(arguments, dict):
        raise InvalidInput("--args must be a JSON object", hint='for example \'{"profile_name": "clerk"}\'')
    with runtime() as run:
        turn_id = resolved_or_given(resolving_turns(run.database, run.project_id).resolve, turn)
        answer = call_handler(run, name, arguments, agent_turn_id=turn_id, tool_call_id=tool_call_id)
    values = answer if isinstance(answer, dict) else {}

    def table() -> None:
        if isinstance(answer, dict):
            output.facts(*((str(key), _format_answer(value)) for key, value in values.items()))
        else:
            output.print_text(_format_answer(answer) or "null")

    # The next command needs the first id of these.
    ids = [values[name] for name in ("agent_turn_id", "batch_id", "agent_id") if name in values]
    output.emit(answer, table=table, ids=[each for each in ids if isinstance(each, str)][:1])


def _format_answer(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return exact_json.encode(value).decode()


@verb("remove", "cbx tool remove weather --yes")
def remove_tool(name: ToolName, yes: Yes = False) -> None:
    """Remove a tool. Its pending calls keep waiting."""
    from cardbox_cli.store.tools import ToolStore

    with open_database() as database:
        tools = ToolStore(database, session().project_id)
        tool = tools.get(name)
        confirm(f"Remove the tool {name}?", yes=yes)
        with database.transaction():
            tools.remove(name)
            audit(database, "tool remove", tool_name=name, command=_redact_command(tool))
    output.emit({"removed": name}, table=lambda: output.print_text(f"removed {name}"), ids=[name])
