"""The decision about a request for a turn: refuse it, repeat an earlier result, or accept it on terms.

The checks decide from the rows that `store/execution/dispatch_store.py` read, and raise Refusal with an error
code each. This module also makes repeated requests idempotent. It writes only packed contexts.
"""

import hashlib
from typing import NoReturn

import msgspec

from cardbox_cli.errors import CorrelationConflict
from cardbox_cli.execution.dispatch_requests import (
    NO_AGENT,
    DispatchOutcome,
    DispatchRequest,
    DispatchResult,
    refuse,
)
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.model import exact_json
from cardbox_cli.model.execution.headers import Lineage, canonical_trace_id, new_trace_id
from cardbox_cli.model.execution.situations import DispatchSituation
from cardbox_cli.model.execution.turns import DEFAULT_CHANNEL, IDLE, MAX_DEPTH, QUEUED, InboxRow
from cardbox_cli.model.identity import ARCHIVED, PLATFORM
from cardbox_cli.model.ids import canonical_box_id
from cardbox_cli.packing.pack import PackResult, pack
from cardbox_cli.packing.plan import target_profile_name
from cardbox_cli.text.command_lines import quote_argument


class DispatchTerms(msgspec.Struct, frozen=True, kw_only=True):
    """The terms of an accepted request, without its boxes. The call `report_to` waits for the turn's end."""

    profile_box_id: str
    lineage: Lineage
    report_to: dict[str, str] | None


def admit(
    request: DispatchRequest, found: DispatchSituation | None, *, project_id: str, trace_id: str
) -> DispatchTerms:
    """Return the terms of a request. `trace_id` is for a turn that does not belong to a trace yet."""
    found = _target(request, found, project_id)
    profile_box_id = _profile_box(request, found)
    lineage = _lineage(request, found, trace_id)
    source = request.source_agent_id
    if not source.startswith(PLATFORM) and not found.is_source_known:
        refuse("invalid_source_actor", f"the source {source!r} is not an agent of project {project_id!r}")
    return DispatchTerms(profile_box_id=profile_box_id, lineage=lineage, report_to=_report_to(request, found))


def refuse_headless(request: DispatchRequest) -> NoReturn:
    """Refuse an agent whose head is lost."""
    agent_id = request.target_agent_id
    refuse(
        "head_missing",
        f"agent {agent_id!r} has lost its head: `cbx turn rebuild {quote_argument(agent_id)}`",
        "error",
    )


def refuse_archived(found: DispatchSituation, project_id: str) -> None:
    """Refuse an archived project."""
    if found.project_status == ARCHIVED:
        refuse("project_archived", f"project {project_id!r} is archived")


def refuse_busy(request: DispatchRequest, found: DispatchSituation) -> None:
    """Refuse an agent that has an active or a queued turn."""
    if not is_free(found):
        active = found.head.active_agent_turn_id if found.head else None
        turn = active or found.queued_turn_id or ""
        refuse("agent_busy", f"agent {request.target_agent_id!r} is busy with turn {turn}", "busy")


def is_free(found: DispatchSituation) -> bool:
    """True if a new turn can start at once: the agent is idle and has no queued turn."""
    return (found.head is None or found.head.status == IDLE) and found.queued_turn_id is None


def context_box(request: DispatchRequest, found: DispatchSituation, project_id: str) -> str:
    """Return the id of the context box."""
    given = request.context_box_id
    if not given:
        refuse("missing_context_box_id", "the context box is missing")
    box_id = canonical_box_id(given)
    if box_id is None or not found.has_context_box:
        refuse("context_box_not_found", f"no box {given!r} in project {project_id!r}")
    return box_id


def output_box(request: DispatchRequest, found: DispatchSituation) -> str | None:
    """Return the id of the requested output box, which may not exist yet; None for a new box.

    Refuses a box that another agent's turn writes.
    """
    given = request.output_box_id
    if given is None:
        return None
    box_id = canonical_box_id(given)
    if box_id is None:
        refuse("output_box_not_found", f"invalid output box id {given!r}")
    if found.output_user is not None:
        turn_id, agent_id = found.output_user
        refuse("output_box_in_use", f"turn {turn_id} of agent {agent_id!r} writes the output box {box_id}")
    return box_id


def _target(request: DispatchRequest, found: DispatchSituation | None, project_id: str) -> DispatchSituation:
    agent_id = request.target_agent_id
    if not agent_id.strip():
        refuse("missing_agent_id", "the agent is missing")
    if found is None:
        refuse(NO_AGENT, f"no agent {agent_id!r} in project {project_id!r}")
    if not found.worker_target.strip():
        refuse("worker_target_missing", f"agent {agent_id!r} has no worker target", "error")
    return found


def _profile_box(request: DispatchRequest, found: DispatchSituation) -> str:
    """Return the profile box of the turn. Refuses a profile other than the recipe's."""
    agent_id, named = request.target_agent_id, request.profile_box_id or found.own_profile_box_id
    if found.profile_box_id is None:
        refuse("profile_not_found", f"the profile box {named!r} of agent {agent_id!r} does not exist")
    cards = found.profile_cards or ()
    present = [card for card in cards if card.expires_at is None or card.expires_at > found.now]
    if not present:
        refuse("profile_not_found", f"the profile box {named!r} has no sys.profile card")
    handover = request.handover
    if handover is not None:
        wanted = target_profile_name(handover.recipe, handover.recipe.bind(handover.arguments))
        name = present[0].name
        if not isinstance(name, str) or name.lower() != wanted.lower():
            refuse(
                "profile_mismatch",
                f"the recipe packs for profile {wanted!r}, but agent {agent_id!r} has profile {name!r}",
            )
    return found.profile_box_id


def _lineage(request: DispatchRequest, found: DispatchSituation, trace_id: str) -> Lineage:
    """Return the depth, trace and parent of the turn. A root has no parent, even if a turn requested it."""
    parent, row = request.parent, found.parent
    if parent is not None and row is None:
        refuse("parent_turn_not_found", f"no turn {parent.agent_turn_id!r}")
    above = None if row is None else row.lineage
    if request.trace_id is not None and canonical_trace_id(request.trace_id) is None:
        refuse("protocol_violation", f"the trace id {request.trace_id!r} is not 32 hex digits")
    depths = {"root": 0, "peer": above.depth if above else 0, "descend": above.depth + 1 if above else 0}
    depth = depths[request.depth_policy]
    if depth >= MAX_DEPTH:
        refuse(
            "recursion_depth_exceeded",
            f"delegation depth {depth} exceeds the limit of {MAX_DEPTH - 1}",
        )
    known = canonical_trace_id(request.trace_id or "") or (above.trace_id if above else None)
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


# A box that cannot exist; queries get it for invalid ids.
_NO_BOX = "00000000-0000-0000-0000-000000000000"


class DispatchDecision(msgspec.Struct, frozen=True, kw_only=True):
    """The decision to accept a request as a new turn.

    `context_box_id` is None if the context is only planned, `output_box_id` is None for a new box. Equal
    requests have equal `request_sha256`.
    """

    found: DispatchSituation
    terms: DispatchTerms
    request_sha256: str
    context_box_id: str | None
    output_box_id: str | None


class DispatchAttempt:
    """One request and the state of its decision. Without `packs`, a recipe is only planned."""

    def __init__(self, runtime: Runtime, request: DispatchRequest, *, queue: bool, packs: bool) -> None:
        self.runtime = runtime
        self.request = msgspec.structs.replace(
            request,
            channel_id=request.channel_id.strip() or DEFAULT_CHANNEL,
            correlation_id=request.correlation_id or None,
        )
        self.packed: PackResult | None = None
        # True once the write found that another transaction has taken the id.
        self.is_taken = False
        self._queue = queue
        self._packs = packs
        self._new_trace_id = new_trace_id()

    def read(self, *, hold: bool) -> DispatchSituation | None:
        """Read all rows that decide; with `hold`, lock them."""
        request = self.request
        return self.runtime.dispatches.situation(
            request.target_agent_id,
            context_box_id=_box(request.context_box_id),
            output_box_id=_box(request.output_box_id),
            profile_box_id=_box(request.profile_box_id),
            correlation_id=request.correlation_id,
            source_agent_id=request.source_agent_id,
            parent_turn_id=request.parent.agent_turn_id if request.parent else None,
            hold=hold,
        )

    def decide(self, found: DispatchSituation | None) -> DispatchDecision | DispatchOutcome:
        """Return the decision about a new turn, or the result of the same request made before.

        Raises Refusal, CorrelationConflict, and what packing raises.
        """
        request, project_id = self.request, self.runtime.project_id
        terms = admit(request, found, project_id=project_id, trace_id=self._new_trace_id)
        assert found is not None
        digest = request.request_sha256 or self._digest(terms)
        if found.earlier_inbox_id is not None:
            return self._replay(found.earlier_inbox_id, digest)
        if self.is_taken:
            self._refuse_taken(digest)
        refuse_archived(found, project_id)
        if not self._queue:
            refuse_busy(request, found)
        self.packed = self.packed or self._pack(dry_run=not self._packs)
        context_box_id = (
            self.packed.context_box_id if self.packed else context_box(request, found, project_id)
        )
        return DispatchDecision(
            found=found,
            terms=terms,
            request_sha256=digest,
            context_box_id=context_box_id,
            output_box_id=output_box(request, found),
        )

    # --- idempotency

    def _digest(self, terms: DispatchTerms) -> str:
        """Return a SHA-256 that equal requests share."""
        given = self.request.context_box_id or ""
        seen = canonical_box_id(given) or given
        if self.request.handover is not None and self.request.correlation_id is not None:
            planned = self._pack(dry_run=True)
            seen = f"plan {planned.digest if planned else None}"
        request, depth = self.request, terms.lineage.depth
        request_parts = [request.target_agent_id, terms.profile_box_id, request.channel_id, depth, seen]
        return hashlib.sha256(exact_json.encode(request_parts)).hexdigest()

    def _replay(self, inbox_id: str, digest: str) -> DispatchOutcome:
        row = self.runtime.inbox.get(inbox_id)
        edge = self.runtime.turns.enqueue_edge(row.turn_id)
        known = edge.metadata.get("request_sha256") if edge and isinstance(edge.metadata, dict) else None
        if self.is_taken and row.agent_id != self.request.target_agent_id:
            self._refuse_taken(digest)
        if row.agent_id != self.request.target_agent_id or known != digest:
            raise CorrelationConflict(
                f"correlation id {self.request.correlation_id!r} was already used for a different request "
                f"(turn {row.turn_id} of agent {row.agent_id!r})",
                hint="use another correlation id, or repeat that request exactly",
                details={"agent_turn_id": row.turn_id, "agent_id": row.agent_id},
            )
        return DispatchOutcome(dispatch_result(self.runtime, row, created=False))

    def _refuse_taken(self, digest: str) -> NoReturn:
        taken = f"correlation id {self.request.correlation_id!r}"
        if self.request.correlation_id is None:
            taken = f"turn id {self.request.agent_turn_id!r}"
        raise CorrelationConflict(
            f"another dispatch has just used the {taken}",
            hint="run the command again: if the request is the same, it returns that turn",
            details={"request_sha256": digest},
        )

    # --- packing

    def _pack(self, *, dry_run: bool) -> PackResult | None:
        handover = self.request.handover
        if handover is None:
            return None
        return pack(
            self.runtime.database,
            self.runtime.project_id,
            recipe=handover.recipe,
            recipe_name=handover.recipe_name,
            arguments=handover.arguments,
            source_agent_id=self.request.source_agent_id,
            turn=handover.turn,
            dry_run=dry_run,
        )


def _box(box_id: str | None) -> str | None:
    return None if not box_id else canonical_box_id(box_id) or _NO_BOX


def dispatch_result(
    runtime: Runtime, row: InboxRow, *, created: bool, position: int | None = None
) -> DispatchResult:
    """Return the result for a turn from its row as it is now; `position` is its queue position, if known."""
    queued, lineage = row.status == QUEUED, row.lineage
    return DispatchResult(
        status="accepted",
        agent_id=row.agent_id,
        agent_turn_id=row.turn_id,
        turn_epoch=None if queued else row.turn_epoch,
        queue_position=(position or runtime.inbox.queue_position(row)) if queued else None,
        context_box_id=row.pointer("context_box_id"),
        output_box_id=row.pointer("output_box_id"),
        inbox_id=row.inbox_id,
        recursion_depth=lineage.depth,
        trace_id=lineage.trace_id,
        created=created,
    )
