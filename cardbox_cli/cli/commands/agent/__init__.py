"""`cbx agent`: who can be given turns: a name, the profile that it works by, the workers that serve it."""

from typing import TYPE_CHECKING, Annotated

import typer

from cardbox_cli.cli.session import announce, session
from cardbox_cli.cli.terminal import output
from cardbox_cli.cli.terminal.columns import AGENT, AGENT_DEFAULT, chosen
from cardbox_cli.cli.terminal.describe import age, time
from cardbox_cli.cli.terminal.lists import ColumnNames, Limit, Listing, nothing_here, show_list
from cardbox_cli.cli.tree import examples, noun
from cardbox_cli.model import exact_json

if TYPE_CHECKING:
    from cardbox_cli.execution.provision import Provisioned
    from cardbox_cli.model.execution.turns import Head
    from cardbox_cli.model.identity import RosterEntry

app = noun("Provision, list and show agents.")

AgentId = Annotated[str, typer.Argument(metavar="AGENT", help="The agent's id.")]

_DONE = {"provision": "provisioned", "update": "updated", "unchanged": "unchanged:"}


@app.command(
    epilog=examples(
        "  cbx agent provision writer-1 --profile incident-writer\n"
        "  cbx agent provision writer-1 --profile incident-writer --worker-target gpu --update"
    )
)
def provision(
    agent: Annotated[str, typer.Argument(metavar="AGENT", help="Its id: one word without '.', '*' and '>'.")],
    profile: Annotated[
        str, typer.Option(metavar="PROFILE", help="The name of the profile that it works by.")
    ],
    worker_target: Annotated[
        str | None,
        typer.Option(metavar="T", help="The pool of workers that serve it. Default: the profile's."),
    ] = None,
    display_name: Annotated[str | None, typer.Option(metavar="TEXT", help="What people call it.")] = None,
    tag: Annotated[
        list[str] | None,
        typer.Option(metavar="TEXT", help="A tag; repeat for several. Default: the profile's."),
    ] = None,
    owner: Annotated[
        str | None, typer.Option(metavar="AGENT", help="The agent, or sys.…, that it belongs to.")
    ] = None,
    update: Annotated[
        bool, typer.Option("--update", help="Change an agent that exists, and bring its profile up to date.")
    ] = False,
) -> None:
    """Make an agent, idle, on the roster of the project. The same again is unchanged.

    An agent that exists otherwise is changed only with --update. It keeps the version of its profile until
    then, and what is not said stays, but for a worker target and tags that it has from its profile.
    """
    from cardbox_cli.execution.provision import AgentRequest
    from cardbox_cli.execution.provision import provision as provision_agent

    request = AgentRequest(
        agent_id=agent,
        profile_name=profile,
        worker_target=worker_target,
        tags=tag or None,
        display_name=display_name,
        owner_agent_id=owner,
    )
    with session().database() as database:
        done = provision_agent(database, session().project_id, request, update=update)
    if done.outdated:
        announce(f"note: {agent} keeps an older version of its profile; --update gives it the newest")
    _emit(done)


def _emit(done: "Provisioned") -> None:
    import msgspec

    agent = done.agent
    said = f"{_DONE[done.action]} {agent.agent_id} (profile {agent.profile_name or agent.profile_box_id}, "
    output.emit(
        {**msgspec.structs.asdict(agent), "action": done.action, "outdated": done.outdated},
        table=lambda: output.say(f"{said}worker target {agent.worker_target})"),
        ids=[agent.agent_id],
    )


@app.command(
    "list",
    epilog=examples(
        "  cbx agent list\n"
        "  cbx agent list --worker-target gpu -o id\n"
        "  cbx agent list --columns agent,status,turn,epoch"
    ),
)
def list_(
    limit: Limit = 50,
    worker_target: Annotated[
        str | None, typer.Option(metavar="T", help="Only those that this pool of workers serves.")
    ] = None,
    tag: Annotated[str | None, typer.Option(metavar="TEXT", help="Only those with this tag.")] = None,
    columns: ColumnNames = None,
) -> None:
    """List the agents of the project by id, each with what it does now."""
    from cardbox_cli.store.roster import AgentFilter, RosterStore

    names = chosen(AGENT, AGENT_DEFAULT, columns)
    where = AgentFilter(worker_target=worker_target, tag=tag)
    with session().database() as database:
        roster = RosterStore(database, session().project_id)
        listing = Listing(
            read=lambda size: roster.list(where, limit=size),
            further=lambda last: roster.further(where, last),
            limit=limit,
            columns=AGENT,
            names=names,
            item_id=lambda entry: entry.agent_id,
            empty=nothing_here(
                database,
                "such agents" if worker_target or tag else "agents",
                "`cbx agent provision AGENT --profile NAME` makes one",
            ),
        )
        show_list(listing, database)


@app.command(epilog=examples("  cbx agent show writer-1\n  cbx agent show writer-1 -o json | jq .head"))
def show(agent: AgentId) -> None:
    """Show an agent: who it is, and what it does now."""
    from cardbox_cli.store.roster import RosterStore

    with session().database() as database, database.snapshot():
        entry = RosterStore(database, session().project_id).entry(agent)
    output.emit(entry, table=lambda: _say(entry), ids=[entry.agent_id])


def _say(entry: "RosterEntry") -> None:
    others = {key: value for key, value in entry.metadata.items() if key != "profile_name"}
    output.facts(
        [
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
        ]
    )
    output.say()
    if entry.head is None:
        output.say("no head: it was never given a turn, or its head was lost")
    else:
        _say_head(entry.head)


def _say_head(head: "Head") -> None:
    output.facts(
        [
            ("status", f"{head.status}, since {age(head.updated_at)}"),
            ("turn", head.active_agent_turn_id),
            ("epoch", str(head.turn_epoch)),
            ("context box", head.context_box_id),
            ("output box", head.output_box_id),
            ("waits for", f"{head.waiting_tool_count} tools" if head.waiting_tool_count else None),
            ("resumes by", time(head.resume_deadline)),
        ]
    )
