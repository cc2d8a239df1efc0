"""`cbx agent show`."""

from typing import Annotated

from typer import Argument

from cardbox_cli.cli.options.value_types import AGENT
from cardbox_cli.cli.project_database import open_database
from cardbox_cli.cli.session import session
from cardbox_cli.cli.terminal import output
from cardbox_cli.cli.verb import verb
from cardbox_cli.model import exact_json
from cardbox_cli.model.execution.turns import Head
from cardbox_cli.model.identity import RosterEntry
from cardbox_cli.model.text.quantities import age, time

AgentId = Annotated[str, Argument(click_type=AGENT, help="The agent's id.")]


@verb(
    "show",
    "cbx agent show writer-1",
    "cbx agent show writer-1 -o json | jq .head",
    pages=True,
    reads=True,
)
def show_agent(agent: AgentId) -> None:
    """Show an agent: who it is, and what it does now."""
    from cardbox_cli.store.roster import RosterStore

    with open_database() as database, database.snapshot():
        entry = RosterStore(database, session().project_id).entry(agent)
    output.emit(entry, table=lambda: _print_text(entry), ids=[entry.agent_id])


def _print_text(entry: RosterEntry) -> None:
    others = {key: value for key, value in entry.metadata.items() if key != "profile_name"}
    output.facts(
        ("agent", entry.agent_id),
        ("display name", entry.display_name),
        ("profile", entry.profile_name),
        ("profile box", entry.profile_box_id),
        ("worker target", entry.worker_target),
        ("tags", ", ".join(map(str, entry.tags)) or None),
        ("owner", entry.owner_agent_id),
        ("roster", entry.status),
        ("created", time(entry.created_at)),
        ("metadata", exact_json.encode(others).decode() if others else None),
    )
    output.print_text()
    if entry.head is None:
        output.print_text("no head: it was never given a turn, or its head was lost")
    else:
        _print_head(entry.head)


def _print_head(head: Head) -> None:
    output.facts(
        ("status", f"{head.status}, since {age(head.updated_at)}"),
        ("turn", head.active_agent_turn_id),
        ("epoch", str(head.turn_epoch)),
        ("context box", head.context_box_id),
        ("output box", head.output_box_id),
        ("waits for", f"{head.waiting_tool_count} tools" if head.waiting_tool_count else None),
        ("resumes by", time(head.resume_deadline)),
    )
