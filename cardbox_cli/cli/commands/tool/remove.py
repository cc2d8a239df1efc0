"""`cbx tool remove`."""

from cardbox_cli.cli.actor import audit
from cardbox_cli.cli.commands.tool.auditing import command_of
from cardbox_cli.cli.options.confirmation import Yes, confirm
from cardbox_cli.cli.options.shared_options import ToolName
from cardbox_cli.cli.project_database import open_database
from cardbox_cli.cli.session import session
from cardbox_cli.cli.terminal import output
from cardbox_cli.cli.verb import verb


@verb("remove", "cbx tool remove weather --yes")
def remove_tool(name: ToolName, yes: Yes = False) -> None:
    """Remove a tool. Calls of it that wait go on waiting."""
    from cardbox_cli.store.tools import ToolStore

    with open_database() as database:
        tools = ToolStore(database, session().project_id)
        tool = tools.get(name)
        confirm(f"Remove the tool {name}?", yes=yes)
        with database.transaction():
            tools.remove(name)
            audit(database, "tool remove", tool_name=name, command=command_of(tool))
    output.emit({"removed": name}, table=lambda: output.print_text(f"removed {name}"), ids=[name])
