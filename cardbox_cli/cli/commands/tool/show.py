"""`cbx tool show`."""

from cardbox_cli.cli.options.shared_options import ToolName
from cardbox_cli.cli.project_database import open_database
from cardbox_cli.cli.session import session
from cardbox_cli.cli.terminal import output
from cardbox_cli.cli.verb import verb
from cardbox_cli.model import exact_json
from cardbox_cli.model.identity import Tool


@verb(
    "show",
    "cbx tool show weather",
    "cbx tool show weather -o json | jq .parameters",
    pages=True,
    reads=True,
)
def show_tool(name: ToolName) -> None:
    """Show a tool whole."""
    from cardbox_cli.store.tools import ToolStore

    with open_database() as database, database.snapshot():
        tool = ToolStore(database, session().project_id).get(name)
    output.emit(tool, table=lambda: _print_text(tool), ids=[tool.tool_name])


def _print_text(tool: Tool) -> None:
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
