"""`cbx tool add`."""

from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from typer import Argument, Option

from cardbox_cli.cli.actor import audit
from cardbox_cli.cli.commands.tool.auditing import command_of
from cardbox_cli.cli.options.input_files import parse_json
from cardbox_cli.cli.options.value_types import AFTER, FILE, TOOL
from cardbox_cli.cli.project_database import open_database
from cardbox_cli.cli.session import session
from cardbox_cli.cli.terminal import output
from cardbox_cli.cli.verb import verb
from cardbox_cli.model.cards import OPERATOR
from cardbox_cli.model.identity import NO_PARAMETERS, Tool

if TYPE_CHECKING:
    from cardbox_cli.store.connection.database import Database
    from cardbox_cli.store.tools import Added


@verb(
    "add",
    "cbx tool add weather --schema weather.json --exec 'python3 weather.py' --timeout 20",
    "cbx tool add approve --description 'Ask a person' --after-execution terminate",
)
def add_tool(
    name: Annotated[
        str, Argument(click_type=TOOL, help="Its name: letters, digits, '_' and '-', at most 64.")
    ],
    schema: Annotated[
        str | None,
        Option(
            click_type=FILE,
            help="JSON Schema of its arguments: a file, - for stdin, or JSON. Default: it takes none.",
        ),
    ] = None,
    description: Annotated[str | None, Option(metavar="TEXT", help="Its description for the model.")] = None,
    exec_: Annotated[
        str | None,
        Option(
            "--exec",
            metavar="CMD",
            help="What answers a call: arguments on stdin, result on stdout. Default: a report does.",
        ),
    ] = None,
    timeout: Annotated[float | None, Option(metavar="SECONDS", help="How long a call may take.")] = None,
    after_execution: Annotated[
        str, Option(click_type=AFTER, help="Whether the turn goes on with the result, or ends.")
    ] = "suspend",
    replace: Annotated[bool, Option("--replace", help="Replace another tool of this name.")] = False,
) -> None:
    """Register a tool. The same again is unchanged. A profile's allowed_tools says who may call it."""
    from cardbox_cli.store.tools import ToolStore

    options = {"exec": exec_, "timeout_seconds": _whole(timeout)}
    tool = Tool(
        tool_name=name,
        description=description,
        parameters=NO_PARAMETERS if schema is None else _schema(schema),
        target_subject=None,
        after_execution=after_execution,
        options={option: value for option, value in options.items() if value is not None},
    )
    with open_database() as database, database.transaction():
        done = ToolStore(database, session().project_id).add(tool, actor=OPERATOR, replace=replace)
        if done.action != "unchanged":
            _audit(database, done)
    action = "unchanged:" if done.action == "unchanged" else done.action
    output.emit(
        {**msgspec.structs.asdict(done.tool), "action": done.action},
        table=lambda: output.print_text(f"{action} {done.tool.tool_name}"),
        ids=[done.tool.tool_name],
    )


def _audit(database: "Database", done: "Added") -> None:
    before = {} if done.before is None else {"command_before": command_of(done.before)}
    name, command = done.tool.tool_name, command_of(done.tool)
    audit(database, "tool add", tool_name=name, did=done.action, command=command, **before)


def _schema(given: str) -> Any:
    inline = given.startswith("@") or given.lstrip().startswith("{")
    return parse_json(given if inline else f"@{given}", "--schema")


def _whole(seconds: float | None) -> float | int | None:
    return int(seconds) if seconds is not None and seconds.is_integer() else seconds
