"""Admission: whether a request for a turn is accepted, and on what terms. Each check has its error code.

Pure: decides by the situation that `store/execution/dispatches.py` read. Every function raises Refusal.
"""

from typing import NoReturn

import msgspec

from cardbox_cli.execution.dispatch.request import DispatchRequest, refuse
from cardbox_cli.model.execution.dispatching import DispatchSituation
from cardbox_cli.model.execution.headers import Lineage, as_trace_id
from cardbox_cli.model.execution.turns import IDLE, MAX_DEPTH
from cardbox_cli.model.identity import ARCHIVED, PLATFORM
from cardbox_cli.model.ids import as_box_id
from cardbox_cli.packing.plan import target_profile_name
from cardbox_cli.text import argument

# The code of a request for an agent that there is not.
NO_AGENT = "agent_not_found"


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """On what terms a request is accepted, whatever the turn will read and write.

    `report_to` is the call that waits for its end.
    """

    profile_box_id: str
    lineage: Lineage
    report_to: dict[str, str] | None


def admit(
    request: DispatchRequest, found: DispatchSituation | None, *, project_id: str, trace_id: str
) -> Terms:
    """The terms of a request. `trace_id` is for a turn that is in no trace yet."""
    found = _target(request, found, project_id)
    profile_box_id = _profile_box(request, found)
    lineage = _lineage(request, found, trace_id)
    source = request.source_agent_id
    if not source.startswith(PLATFORM) and not found.is_source_known:
        refuse("invalid_source_actor", f"the source {source!r} is no agent of project {project_id!r}")
    return Terms(profile_box_id=profile_box_id, lineage=lineage, report_to=_report_to(request, found))


def refuse_headless(request: DispatchRequest) -> NoReturn:
    """The agent has its head, or is given its first one."""
    agent_id = request.target_agent_id
    refuse(
        "head_missing",
        f"agent {agent_id!r} has lost its head: `cbx turn rebuild {argument(agent_id)}`",
        "error",
    )


def refuse_archived(found: DispatchSituation, project_id: str) -> None:
    """The project is not archived."""
    if found.project_status == ARCHIVED:
        refuse("project_archived", f"project {project_id!r} is archived")


def refuse_busy(request: DispatchRequest, found: DispatchSituation) -> None:
    """The agent is idle, and nothing is queued for it."""
    if not is_free(found):
        active = found.head.active_agent_turn_id if found.head else None
        turn = active or found.queued_turn_id or ""
        refuse("agent_busy", f"agent {request.target_agent_id!r} is at turn {turn}", "busy")


def is_free(found: DispatchSituation) -> bool:
    """Whether the agent can be assigned to a turn at once: it is idle, and nothing is queued for it."""
    return (found.head is None or found.head.status == IDLE) and found.queued_turn_id is None


def context_box(request: DispatchRequest, found: DispatchSituation, project_id: str) -> str:
    """The box that the turn reads."""
    given = request.context_box_id
    if not given:
        refuse("missing_context_box_id", "no context box is named")
    box_id = as_box_id(given)
    if box_id is None or not found.has_context_box:
        refuse("context_box_not_found", f"no box {given!r} in project {project_id!r}")
    return box_id


def output_box(request: DispatchRequest, found: DispatchSituation) -> str | None:
    """The box that the turn writes, be it there or not, and that no other agent's turn writes; None: any."""
    given = request.output_box_id
    if given is None:
        return None
    box_id = as_box_id(given)
    if box_id is None:
        refuse("output_box_not_found", f"the output box {given!r} is no box id")
    if found.output_user is not None:
        turn_id, agent_id = found.output_user
        refuse(
            "output_box_in_use", f"the output box {box_id} is that of turn {turn_id} of agent {agent_id!r}"
        )
    return box_id


def _target(request: DispatchRequest, found: DispatchSituation | None, project_id: str) -> DispatchSituation:
    agent_id = request.target_agent_id
    if not agent_id.strip():
        refuse("missing_agent_id", "no agent is named")
    if found is None:
        refuse(NO_AGENT, f"no agent {agent_id!r} in project {project_id!r}")
    if not found.worker_target.strip():
        refuse("worker_target_missing", f"agent {agent_id!r} has no worker target", "error")
    return found


def _profile_box(request: DispatchRequest, found: DispatchSituation) -> str:
    """The box of the profile that the turn runs with: the agent's, and the recipe's."""
    agent_id, named = request.target_agent_id, request.profile_box_id or found.own_profile_box_id
    if found.profile_box_id is None:
        refuse("profile_not_found", f"the profile box {named!r} of agent {agent_id!r} is not there")
    cards = found.profile_cards or ()
    present = [card for card in cards if card.expires_at is None or card.expires_at > found.now]
    if not present:
        refuse("profile_not_found", f"the box {named!r} holds no sys.profile card")
    handover = request.handover
    if handover is not None:
        wanted = target_profile_name(handover.recipe, handover.recipe.bind(handover.arguments))
        name = present[0].name
        if not isinstance(name, str) or name.lower() != wanted.lower():
            refuse(
                "profile_mismatch",
                f"the recipe packs for profile {wanted!r}, agent {agent_id!r} has profile {name!r}",
            )
    return found.profile_box_id


def _lineage(request: DispatchRequest, found: DispatchSituation, trace_id: str) -> Lineage:
    """Where the turn stands below its parent; a root has none, even one that somebody asked for."""
    parent, row = request.parent, found.parent
    if parent is not None and row is None:
        refuse("parent_turn_not_found", f"no turn {parent.agent_turn_id!r}")
    above = None if row is None else row.lineage
    if request.trace_id is not None and as_trace_id(request.trace_id) is None:
        refuse("protocol_violation", f"the trace id {request.trace_id!r} is not 32 hex digits")
    depths = {"root": 0, "peer": above.depth if above else 0, "descend": above.depth + 1 if above else 0}
    depth = depths[request.depth_policy]
    if depth >= MAX_DEPTH:
        refuse(
            "recursion_depth_exceeded",
            f"the turn would be {depth} descents deep; the limit is {MAX_DEPTH - 1}",
        )
    known = as_trace_id(request.trace_id or "") or (above.trace_id if above else None)
    lineage = Lineage(depth=depth, trace_id=known or trace_id)
    if parent is None or row is None or request.depth_policy == "root":
        return lineage
    return msgspec.structs.replace(
        lineage,
        parent_agent_id=row.agent_id,
        parent_turn_id=parent.agent_turn_id,
        parent_step_id=parent.step_id,
    )


def _report_to(request: DispatchRequest, found: DispatchSituation) -> dict[str, str] | None:
    parent, row = request.parent, found.parent
    if parent is None or parent.tool_call_id is None or row is None:
        return None
    return {
        "agent_id": row.agent_id,
        "agent_turn_id": parent.agent_turn_id,
        "tool_call_id": parent.tool_call_id,
    }
