"""`cbx dispatch`: requests a turn, and awaits it with --wait."""

from contextlib import nullcontext
from typing import TYPE_CHECKING, Annotated, Any, cast

import msgspec
from typer import Option

from cardbox_cli.cli.actor import actor, own_turn
from cardbox_cli.cli.command_runtime import runtime
from cardbox_cli.cli.last_ids import remember_made, resolved_or_given, resolving_boxes, resolving_turns
from cardbox_cli.cli.options import recipe_arguments
from cardbox_cli.cli.options.input_files import parse_json
from cardbox_cli.cli.options.shared_options import EndTimeout, check_waiting
from cardbox_cli.cli.options.value_types import AGENT, BOX, RECIPE, TURN, OneOf
from cardbox_cli.cli.terminal.lint_report import gate
from cardbox_cli.cli.terminal.turn_report import await_end, print_dispatched, refuse
from cardbox_cli.cli.verb import verb
from cardbox_cli.errors import InvalidInput, UsageError
from cardbox_cli.model.cards import OPERATOR
from cardbox_cli.model.ids import check_new_id

if TYPE_CHECKING:
    from cardbox_cli.execution.dispatch_requests import DispatchResult, Handover, Parent
    from cardbox_cli.execution.runtime import Runtime


@verb(
    "dispatch",
    "cbx dispatch --agent clerk --context-box 8b1f22c0",
    "cbx dispatch --agent clerk --handover delegate -a profile_name=clerk -a instruction=@task.md",
    "cbx dispatch --agent clerk --context-box @last --wait --timeout 120 > answer.txt",
    "cbx dispatch --agent clerk --context-box $BOX --check -o id",
    "cbx dispatch --agent clerk --context-box $BOX --correlation-id nightly-$(date +%F) -o id",
    reads="dry_run",
    panels={
        "What the turn reads and writes": "context_box handover arg args allow_dangling output_box "
        "runtime_config",
        "Sender, lineage and labels": "source_agent parent_turn tool_call_id depth_policy channel "
        "correlation_id display_name",
        "Checks": "check force dry_run no_queue",
        "After the dispatch": "emit_state wait timeout",
    },
)
def dispatch_turn(
    agent: Annotated[str, Option("--agent", click_type=AGENT, help="The agent that runs the turn.")],
    context_box: Annotated[
        str | None, Option("--context-box", "-c", click_type=BOX, help="The context box. Or pass --recipe.")
    ] = None,
    handover: Annotated[
        str | None,
        Option(
            "--recipe",
            "--handover",
            "-H",
            click_type=RECIPE,
            help="Build the context from this recipe: a file or a name.",
        ),
    ] = None,
    arg: recipe_arguments.Arguments = None,
    args: recipe_arguments.ArgumentFiles = None,
    allow_dangling: recipe_arguments.AllowDangling = False,
    output_box: Annotated[
        str | None, Option(click_type=BOX, help="The output box of the turn. Default: a new box.")
    ] = None,
    channel: Annotated[str, Option(metavar="NAME", help="A label for routing.")] = "public",
    source_agent: Annotated[
        str, Option(metavar="AGENT", help="The sender: an agent, or a name that begins with sys. or tool.")
    ] = OPERATOR,
    parent_turn: Annotated[
        str | None, Option(click_type=TURN, help="The parent turn, which requested this turn.")
    ] = None,
    tool_call_id: Annotated[
        str | None, Option(metavar="ID", help="The tool call of the parent turn that waits for this turn.")
    ] = None,
    depth_policy: Annotated[
        str,
        Option(
            click_type=OneOf(lambda: ("descend", "peer", "root"), what="policy"),
            help="How to count the delegation depth relative to the parent.",
        ),
    ] = "descend",
    correlation_id: Annotated[
        str | None, Option(metavar="ID", help="Your own id. Repeating the request returns the first turn.")
    ] = None,
    display_name: Annotated[str | None, Option(metavar="NAME", help="A display name.")] = None,
    runtime_config: Annotated[
        str | None, Option(metavar="JSON|@FILE", help="Settings for the worker, a JSON object.")
    ] = None,
    no_queue: Annotated[
        bool, Option("--no-queue", help="If the agent is busy, exit 6 instead of queueing the turn.")
    ] = False,
    check: Annotated[
        bool, Option("--check", help="Refuse a request that the provider would reject: exit 8 on errors.")
    ] = False,
    force: Annotated[
        bool, Option("--force", help="With --check: print the findings, but dispatch anyway.")
    ] = False,
    dry_run: Annotated[bool, Option("--dry-run", help="Check everything without writing anything.")] = False,
    emit_state: Annotated[
        bool, Option("--emit-state", help="Also publish the event that the agent was dispatched.")
    ] = False,
    wait: Annotated[bool, Option("--wait", help="Wait for the end and print the deliverable.")] = False,
    timeout: EndTimeout = None,
) -> None:
    """Send a turn to an agent. It starts at once if the agent is idle, otherwise after the queued turns.

    Exit 6 if the turn was not accepted (busy, rejected or an error); then nothing was written.
    """
    from cardbox_cli.execution.dispatch import dispatch
    from cardbox_cli.execution.dispatch_requests import DepthPolicy, DispatchRequest

    _check_context(context_box, handover, has_arguments=bool(arg or args), allow_dangling=allow_dangling)
    _check_correlation_id(correlation_id)
    check_waiting(timeout, wait=wait, dry_run=dry_run)
    passing = gate("dispatches", check=check, force=force)
    packing = _load_handover(handover, arg or [], args or [], allow_dangling=allow_dangling)
    config = _parse_config(runtime_config)
    with runtime() as run:
        request = DispatchRequest(
            target_agent_id=agent,
            context_box_id=_resolve_box(run, context_box),
            handover=_resolve_boxes(run, packing),
            channel_id=channel,
            source_agent_id=source_agent,
            output_box_id=_resolve_box(run, output_box),
            correlation_id=correlation_id,
            depth_policy=cast("DepthPolicy", depth_policy),
            parent=_find_parent(run, parent_turn, tool_call_id),
            display_name=display_name,
            runtime_config=config,
            emit_state=emit_state,
        )
        with run.transaction() if force else nullcontext():
            dispatched = dispatch(run, request, queue=not no_queue, dry_run=dry_run, check=passing)
            if passing is not None and passing.overruled and not dry_run:
                _audit_force(run, dispatched.result, passing.overruled)
        if dispatched.result.status != "accepted":
            refuse(dispatched)
        if packing is not None:
            recipe_arguments.announce_argument_use(packing.recipe, packing.recipe_name, packing.arguments)
        if not dry_run:
            remember_made(turn_id=dispatched.result.agent_turn_id, box_id=dispatched.result.context_box_id)
        if wait:
            await_end(run, dispatched.result, timeout)
            return
    print_dispatched(dispatched.result, dry_run=dry_run)


def _audit_force(run: "Runtime", result: "DispatchResult", overruled: list[str]) -> None:
    from cardbox_cli.model.execution.turns import Fence

    if result.status == "accepted" and result.agent_turn_id is not None:
        run.audit.write_of_turn(
            Fence(result.agent_id, result.agent_turn_id, result.turn_epoch or 0),
            action="dispatch --force",
            actor=actor(run.database),
            reason=None,
            epoch_after=None,
            detail={"overruled": overruled},
        )


def _check_context(
    context_box: str | None, handover: str | None, *, has_arguments: bool, allow_dangling: bool
) -> None:
    if (context_box is None) == (handover is None):
        raise UsageError(
            "pass either --context-box BOX or --recipe RECIPE",
            hint="list boxes with `cbx box list`, or recipes with `cbx handover list`",
        )
    if handover is None and (has_arguments or allow_dangling):
        given = "--arg and --args require" if has_arguments else "--allow-dangling requires"
        raise UsageError(f"{given} --recipe", hint="pass --recipe instead of --context-box")


def _check_correlation_id(correlation_id: str | None) -> None:
    if correlation_id is not None:
        if not correlation_id.strip():
            raise UsageError("--correlation-id is empty", hint="is the shell variable set?")
        check_new_id(correlation_id, "--correlation-id", "use letters, digits and -")


def _load_handover(
    name: str | None, given: list[str], files: list[str], *, allow_dangling: bool
) -> "Handover | None":
    if name is None:
        return None
    from cardbox_cli.execution.dispatch_requests import Handover

    loaded = recipe_arguments.load_recipe(name)
    arguments = recipe_arguments.parse_arguments(given, files, loaded.recipe)
    return Handover(
        recipe=loaded.recipe,
        recipe_name=loaded.name,
        arguments=arguments,
        turn=own_turn(),
        allow_dangling=allow_dangling,
    )


def _resolve_boxes(run: "Runtime", packing: "Handover | None") -> "Handover | None":
    """Return the handover with full box ids in its arguments."""
    if packing is None:
        return None
    boxes = resolving_boxes(run.database, run.project_id)
    arguments = recipe_arguments.resolve_boxes(dict(packing.arguments), packing.recipe, boxes)
    return msgspec.structs.replace(packing, arguments=arguments)


def _parse_config(text: str | None) -> dict[str, Any]:
    if text is None:
        return {}
    config = parse_json(text, "--runtime-config")
    if not isinstance(config, dict):
        raise InvalidInput("--runtime-config must be a JSON object", hint="for example '{\"timeout\": 60}'")
    return config


def _resolve_box(run: "Runtime", box: str | None) -> str | None:
    if box is None:
        return None
    return resolved_or_given(resolving_boxes(run.database, run.project_id).resolve, box)


def _find_parent(run: "Runtime", turn: str | None, tool_call_id: str | None) -> "Parent | None":
    from cardbox_cli.execution.dispatch_requests import Parent

    if turn is None:
        if tool_call_id is not None:
            raise UsageError("--tool-call-id requires --parent-turn", hint="add --parent-turn TURN")
        return None
    resolved = resolved_or_given(resolving_turns(run.database, run.project_id).resolve, turn)
    return Parent(agent_turn_id=resolved, tool_call_id=tool_call_id)
