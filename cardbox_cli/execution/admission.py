"""The decision about a request for a turn: refuse it, repeat an earlier result, or accept it as a new turn.

This module is pure: `dispatch.py` reads all facts before the decision and writes after it. A refused request
raises `Refusal`, which has an error code. A repeated request gets the turn of the earlier request.
"""

import hashlib
from typing import TypeAlias

import msgspec

from cardbox_cli.errors import CbxError, CorrelationConflict
from cardbox_cli.execution.dispatch_requests import NO_AGENT, DispatchRequest, refuse
from cardbox_cli.model import exact_json
from cardbox_cli.model.execution.headers import Lineage
from cardbox_cli.model.execution.situations import DispatchSituation
from cardbox_cli.model.execution.turns import IDLE, MAX_DEPTH, Edge, InboxRow
from cardbox_cli.model.identity import ARCHIVED, PLATFORM
from cardbox_cli.packing.pack import PackResult
from cardbox_cli.text.command_lines import quote_argument

# A turn with the same correlation id, and the edge by which it was dispatched.
EarlierTurn: TypeAlias = tuple[InboxRow, Edge | None]


class DispatchFacts(msgspec.Struct, kw_only=True):
    """The facts on which a decision is based. `found` is None if the agent is unknown.

    `trace_id` is the requested trace. A turn without one gets `new_trace_id`. `plan` is the planned or packed
    context of a handover, and `plan_error` is the error that planning raised. `is_taken` is True if another
    dispatch has just used the turn id or the correlation id. `has_lost_head` is True if the head is lost.
    """

    project_id: str
    trace_id: str | None = None
    new_trace_id: str
    plan: PackResult | None = None
    plan_error: CbxError | None = None
    found: DispatchSituation | None = None
    earlier: EarlierTurn | None = None
    is_taken: bool = False
    has_lost_head: bool = False


class DispatchDecision(msgspec.Struct, frozen=True, kw_only=True):
    """The decision to accept a request as a new turn, and the rows on which the decision is based.

    `context_box_id` is None if the context is only planned. `output_box_id` is None if the turn gets a new
    box. `report_to` names the tool call that waits for the turn. Equal requests have equal `request_sha256`.
    """

    found: DispatchSituation
    profile_box_id: str
    lineage: Lineage
    report_to: dict[str, str] | None
    request_sha256: str
    context_box_id: str | None
    output_box_id: str | None


def decide(request: DispatchRequest, facts: DispatchFacts, *, queue: bool) -> DispatchDecision | InboxRow:
    """Accept the request as a new turn, or return the inbox row of the turn that an equal request has got.

    If `queue` is False, refuses a busy agent. Raises Refusal, CorrelationConflict and `facts.plan_error`.
    """
    found = _situation(request, facts)
    profile_box_id, lineage = _profile_box(request, found), _lineage(request, found, facts)
    source, project_id = request.source_agent_id, facts.project_id
    if not source.startswith(PLATFORM) and not found.is_source_known:
        refuse("invalid_source_actor", f"the source {source!r} is not an agent of project {project_id!r}")
    digest = request.request_sha256 or _digest(request, facts, profile_box_id, lineage.depth)
    if facts.earlier is not None or facts.is_taken:
        return _earlier(request, facts, digest)
    if found.project_status == ARCHIVED:
        refuse("project_archived", f"project {project_id!r} is archived")
    if not queue and not is_free(found):
        active = found.head.active_agent_turn_id if found.head else None
        turn = active or found.queued_turn_id or ""
        refuse("agent_busy", f"agent {request.target_agent_id!r} is busy with turn {turn}", "busy")
    decision = DispatchDecision(
        found=found,
        profile_box_id=profile_box_id,
        lineage=lineage,
        report_to=_report_to(request, found),
        request_sha256=digest,
        context_box_id=_context_box(request, found, facts),
        output_box_id=_output_box(request, found),
    )
    if facts.has_lost_head and found.head is None:
        agent_id = request.target_agent_id
        rebuild = f"`cbx turn rebuild {quote_argument(agent_id)}`"
        refuse("head_missing", f"agent {agent_id!r} has lost its head: {rebuild}", "error")
    return decision


def is_free(found: DispatchSituation) -> bool:
    """True if a new turn can start at once: the agent is idle and has no queued turn."""
    return (found.head is None or found.head.status == IDLE) and found.queued_turn_id is None


def _situation(request: DispatchRequest, facts: DispatchFacts) -> DispatchSituation:
    agent_id, found = request.target_agent_id, facts.found
    if not agent_id.strip():
        refuse("missing_agent_id", "the agent is missing")
    if found is None:
        refuse(NO_AGENT, f"no agent {agent_id!r} in project {facts.project_id!r}")
    if not found.worker_target.strip():
        refuse("worker_target_missing", f"agent {agent_id!r} has no worker target", "error")
    return found


def _profile_box(request: DispatchRequest, found: DispatchSituation) -> str:
    """Return the profile box of the turn. Raises Refusal if the recipe packs for another profile."""
    agent_id, named = request.target_agent_id, request.profile_box_id or found.own_profile_box_id
    if found.profile_box_id is None:
        refuse("profile_not_found", f"the profile box {named!r} of agent {agent_id!r} does not exist")
    cards = found.profile_cards or ()
    present = [card for card in cards if card.expires_at is None or card.expires_at > found.now]
    if not present:
        refuse("profile_not_found", f"the profile box {named!r} has no sys.profile card")
    if request.handover is not None:
        target, name = request.handover.profile_name, present[0].name
        if not isinstance(name, str) or name.lower() != target.lower():
            what = f"the recipe packs for profile {target!r}, but agent {agent_id!r} has profile {name!r}"
            refuse("profile_mismatch", what)
    return found.profile_box_id


def _lineage(request: DispatchRequest, found: DispatchSituation, facts: DispatchFacts) -> Lineage:
    """Return the depth, trace and parent of the turn. It has no parent if its depth policy is `root`."""
    parent, row = request.parent, found.parent
    if parent is not None and row is None:
        refuse("parent_turn_not_found", f"no turn {parent.agent_turn_id!r}")
    above = None if row is None else row.lineage
    if request.trace_id is not None and facts.trace_id is None:
        refuse("protocol_violation", f"the trace id {request.trace_id!r} is not 32 hex digits")
    depths = {"root": 0, "peer": above.depth if above else 0, "descend": above.depth + 1 if above else 0}
    depth = depths[request.depth_policy]
    if depth >= MAX_DEPTH:
        refuse("recursion_depth_exceeded", f"delegation depth {depth} exceeds the limit of {MAX_DEPTH - 1}")
    lineage = Lineage(
        depth=depth, trace_id=facts.trace_id or (above and above.trace_id) or facts.new_trace_id
    )
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
    ids = {"agent_turn_id": parent.agent_turn_id, "tool_call_id": parent.tool_call_id}
    return {"agent_id": row.agent_id, **ids}


def _digest(request: DispatchRequest, facts: DispatchFacts, profile_box_id: str, depth: int) -> str:
    """Return a SHA-256 that equal requests share. Raises `facts.plan_error` if the digest needs the plan."""
    seen = (facts.found and facts.found.context_box_id) or request.context_box_id or ""
    if request.correlation_id is not None and facts.plan_error is not None:
        raise facts.plan_error
    if request.correlation_id is not None and facts.plan is not None:
        seen = f"plan {facts.plan.digest}"
    request_parts = [request.target_agent_id, profile_box_id, request.channel_id, depth, seen]
    return hashlib.sha256(exact_json.encode(request_parts)).hexdigest()


def _earlier(request: DispatchRequest, facts: DispatchFacts, digest: str) -> InboxRow:
    """Return the earlier turn's row. Raises CorrelationConflict unless it belongs to an equal request."""
    row, edge = facts.earlier or (None, None)
    if row is None or (facts.is_taken and row.agent_id != request.target_agent_id):
        correlation_id, turn_id = request.correlation_id, request.agent_turn_id
        taken = f"turn id {turn_id!r}" if correlation_id is None else f"correlation id {correlation_id!r}"
        raise CorrelationConflict(
            f"another dispatch has just used the {taken}",
            hint="run the command again: if the request is the same, cbx returns the existing turn",
            details={"request_sha256": digest},
        )
    known = edge.metadata.get("request_sha256") if edge and isinstance(edge.metadata, dict) else None
    if row.agent_id != request.target_agent_id or known != digest:
        raise CorrelationConflict(
            f"correlation id {request.correlation_id!r} was already used for a different request "
            f"(turn {row.turn_id} of agent {row.agent_id!r})",
            hint="use another correlation id, or repeat the first request exactly",
            details={"agent_turn_id": row.turn_id, "agent_id": row.agent_id},
        )
    return row


def _context_box(request: DispatchRequest, found: DispatchSituation, facts: DispatchFacts) -> str | None:
    if facts.plan_error is not None:
        raise facts.plan_error
    if facts.plan is not None:
        return facts.plan.context_box_id
    given = request.context_box_id
    if not given:
        refuse("missing_context_box_id", "the context box is missing")
    if not found.has_context_box:
        refuse("context_box_not_found", f"no box {given!r} in project {facts.project_id!r}")
    return found.context_box_id


def _output_box(request: DispatchRequest, found: DispatchSituation) -> str | None:
    """Return the id of the requested output box, which may not exist yet, or None for a new box.

    Raises Refusal if a turn of another agent writes to the box.
    """
    if request.output_box_id is None:
        return None
    if found.output_box_id is None:
        refuse("output_box_not_found", f"invalid output box id {request.output_box_id!r}")
    if found.output_user is not None:
        turn_id, agent_id = found.output_user
        what = f"turn {turn_id} of agent {agent_id!r} writes the output box {found.output_box_id}"
        refuse("output_box_in_use", what)
    return found.output_box_id
