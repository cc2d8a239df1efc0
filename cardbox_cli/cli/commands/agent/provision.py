"""`cbx agent provision`."""

from typing import Annotated

import msgspec
from typer import Argument, Option

from cardbox_cli.cli.options.value_types import AGENT, PROFILE
from cardbox_cli.cli.project_database import open_database
from cardbox_cli.cli.session import session
from cardbox_cli.cli.standard_streams import announce
from cardbox_cli.cli.terminal import output
from cardbox_cli.cli.verb import verb

_DONE = {"provision": "provisioned", "update": "updated", "unchanged": "unchanged:"}


@verb(
    "provision",
    "cbx agent provision writer-1 --profile incident-writer",
    "cbx agent provision writer-1 --profile incident-writer --worker-target gpu --update",
)
def provision_agent(
    agent: Annotated[str, Argument(click_type=AGENT, help="Its id: one word without '.', '*' and '>'.")],
    profile: Annotated[str, Option(click_type=PROFILE, help="The name of the profile that it works by.")],
    worker_target: Annotated[
        str | None, Option(metavar="T", help="The pool of workers that serve it. Default: the profile's.")
    ] = None,
    display_name: Annotated[str | None, Option(metavar="TEXT", help="What people call it.")] = None,
    tag: Annotated[
        list[str] | None, Option(metavar="TEXT", help="A tag; repeat for several. Default: the profile's.")
    ] = None,
    owner: Annotated[
        str | None, Option(click_type=AGENT, help="The agent, or sys.…, that it belongs to.")
    ] = None,
    update: Annotated[
        bool, Option("--update", help="Change an agent that exists, and bring its profile up to date.")
    ] = False,
) -> None:
    """Make an agent, idle, on the roster of the project. The same again is unchanged.

    An agent that exists otherwise is changed only with --update. It keeps the version of its profile until
    then, and what is not named stays, but for a worker target and tags that it has from its profile.
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
        announce(f"note: {agent} keeps an older version of its profile; --update gives it the newest")
    made = done.agent
    text = f"{_DONE[done.action]} {made.agent_id} (profile {made.profile_name or made.profile_box_id}, "
    output.emit(
        {**msgspec.structs.asdict(made), "action": done.action, "outdated": done.outdated},
        table=lambda: output.print_text(f"{text}worker target {made.worker_target})"),
        ids=[made.agent_id],
    )
