"""`cbx agent`: the agents that turns are dispatched to: name, profile and worker target."""

from typing import TYPE_CHECKING, Annotated

import msgspec
from typer import Argument, Option

from cardbox_cli.cli.options.shared_options import Limit, column_option
from cardbox_cli.cli.options.value_types import AGENT, PROFILE
from cardbox_cli.cli.project_database import open_database
from cardbox_cli.cli.session import session
from cardbox_cli.cli.standard_streams import announce
from cardbox_cli.cli.terminal import output
from cardbox_cli.cli.terminal.list_columns import AGENT_COLUMNS
from cardbox_cli.cli.terminal.list_output import Listing, empty_project_note, filter_readers, show_list
from cardbox_cli.cli.terminal.table_layout import choose_columns
from cardbox_cli.cli.verb import verb
from cardbox_cli.model import exact_json
from cardbox_cli.text.times import format_age, format_time

if TYPE_CHECKING:
    from cardbox_cli.model.identity import RosterEntry

_DONE = {"provision": "provisioned", "update": "updated", "unchanged": "unchanged:"}


@verb(
    "provision",
    "cbx agent provision writer-1 --profile incident-writer",
    "cbx agent provision writer-1 --profile incident-writer --worker-target gpu --update",
)
def provision_agent(
    agent: Annotated[
        str, Argument(click_type=AGENT, help="The agent's id: one word without '.', '*' or '>'.")
    ],
    profile: Annotated[str, Option(click_type=PROFILE, help="The name of the agent's profile.")],
    worker_target: Annotated[
        str | None, Option(metavar="TARGET", help="The agent's pool of workers. Default: the profile's pool.")
    ] = None,
    display_name: Annotated[str | None, Option(metavar="TEXT", help="A display name.")] = None,
    tag: Annotated[
        list[str] | None, Option(metavar="TEXT", help="A tag. Repeatable. Default: the tags of the profile.")
    ] = None,
    owner: Annotated[
        str | None, Option(click_type=AGENT, help="The owner: an agent, or a name that begins with sys.")
    ] = None,
    update: Annotated[
        bool,
        Option(
            "--update", help="Change an existing agent, and update it to the newest version of its profile."
        ),
    ] = False,
) -> None:
    """Create an idle agent in the project. Running the command again changes nothing.

    If the agent exists with different settings, the command fails unless you pass --update. Options that you
    omit keep their value, except a worker target and tags that come from the profile.
    """
    from cardbox_cli.execution.provision import AgentRequest, provision

    request = AgentRequest(
        agent_id=agent,
        profile_name=profile,
        worker_target=worker_target,
        tags=tag or None,
        display_name=display_name,
        owner_agent_id=owner,
    )
    with open_database() as database:
        done = provision(database, session().project_id, request, update=update)
    if done.outdated:
        announce(f"note: agent {agent} uses an older version of its profile; --update switches to the newest")
    made = done.agent
    text = f"{_DONE[done.action]} {made.agent_id} (profile {made.profile_name or made.profile_box_id}, "
    output.emit(
        {**msgspec.structs.asdict(made), "action": done.action, "outdated": done.outdated},
        table=lambda: output.print_text(f"{text}worker target {made.worker_target})"),
        ids=[made.agent_id],
    )


@verb(
    "list",
    "cbx agent list",
    "cbx agent list --worker-target gpu -o id",
    "cbx agent list --columns agent,status,turn,epoch",
    pages=True,
    reads=True,
)
def list_agents(
    limit: Limit = 50,
    worker_target: Annotated[
        str | None, Option(metavar="TARGET", help="Only agents with this worker target.")
    ] = None,
    tag: Annotated[str | None, Option(metavar="TEXT", help="Only agents with this tag.")] = None,
    columns: Annotated[str | None, column_option("agent,status,profile")] = None,
) -> None:
    """List the agents of the project with their states, sorted by id."""
    from cardbox_cli.store.roster import AgentFilter, AgentStore

    shown = choose_columns(AGENT_COLUMNS, columns)
    where = AgentFilter(worker_target=worker_target, tag=tag)
    with open_database() as database:
        roster = AgentStore(database, session().project_id)
        what = "such agents" if worker_target or tag else "agents"
        empty = empty_project_note(
            database, what, "create one with `cbx agent provision AGENT --profile NAME`"
        )
        reading = filter_readers(roster.list, roster.further, where)
        listing = Listing(*reading, limit, shown, item_id=lambda entry: entry.agent_id, empty=empty)
        show_list(listing, database)


AgentId = Annotated[str, Argument(click_type=AGENT, help="The agent's id.")]


@verb("show", "cbx agent show writer-1", "cbx agent show writer-1 -o json | jq .head", pages=True, reads=True)
def show_agent(agent: AgentId) -> None:
    """Show an agent and its state."""
    from cardbox_cli.store.roster import AgentStore

    with open_database() as database, database.snapshot():
        entry = AgentStore(database, session().project_id).entry(agent)
    output.emit(entry, table=lambda: _print_agent(entry), ids=[entry.agent_id])


def _print_agent(entry: "RosterEntry") -> None:
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
        ("created", format_time(entry.created_at)),
        ("metadata", exact_json.encode(others).decode() if others else None),
    )
    output.print_text()
    if entry.head is None:
        output.print_text("no state row: the agent never had a turn, or the row was lost")
        return
    head = entry.head
    output.facts(
        ("status", f"{head.status}, since {format_age(head.updated_at)}"),
        ("turn", head.active_agent_turn_id),
        ("epoch", str(head.turn_epoch)),
        ("context box", head.context_box_id),
        ("output box", head.output_box_id),
        ("waits for", f"{head.waiting_tool_count} tools" if head.waiting_tool_count else None),
        ("resumes by", format_time(head.resume_deadline)),
    )
