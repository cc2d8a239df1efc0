"""Dispatch: a turn is asked for. One transaction: it is accepted whole, or leaves no row.

Owns the order of a request's steps, and its idempotency. Whether it is accepted is `admission.py`'s, its row
and edge `queue/messages.py`'s, promotion, which follows in the same transaction, `queue/promotion.py`'s.
"""

import hashlib
from typing import Any

import msgspec

from cardbox_cli.errors import CorrelationConflict
from cardbox_cli.execution.dispatch.admission import Admission
from cardbox_cli.execution.dispatch.request import (
    Dispatched,
    DispatchRequest,
    DispatchResult,
    Refusal,
    refuse,
)
from cardbox_cli.execution.queue.messages import TURN, Message, Sender, send
from cardbox_cli.execution.queue.promotion import promote_next
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.model import exact_json
from cardbox_cli.model.execution.headers import Lineage
from cardbox_cli.model.execution.turns import DEFAULT_CHANNEL, QUEUED, Fence, Head, InboxRow, new_id
from cardbox_cli.model.identity import Agent
from cardbox_cli.model.ids import as_box_id
from cardbox_cli.model.text.command_lines import argument
from cardbox_cli.packing.pack import Check, Packed, pack
from cardbox_cli.store.projects import ensure_project

_TABLES = ("resource.project_agents", "state.agent_state_head", "state.agent_inbox", "state.execution_edges")


def dispatch(
    runtime: Runtime,
    request: DispatchRequest,
    *,
    queue: bool = True,
    dry_run: bool = False,
    check: Check | None = None,
) -> Dispatched:
    """Ask for a turn. Without `queue` a busy agent is an answer of its own, and nothing is written.

    A dry run does everything and takes it back. `check` gets what the rules of the turn's model find in its
    first request, unless that turn is there already; what it raises leaves no row. Raises CorrelationConflict
    where the correlation id stands for another request, and what packing raises. Joins the caller's
    transaction if there is one.
    """
    try:
        with runtime.rehearsal() if dry_run else runtime.transaction():
            return _Dispatch(runtime, request, queue=queue, check=check).carry_out()
    except Refusal as refusal:
        refused = DispatchResult(
            status=refusal.status,
            error_code=refusal.error_code,
            agent_id=request.target_agent_id,
            context_box_id=request.context_box_id,
        )
        return Dispatched(refused, refusal.message)


class _Dispatch:
    """One request on its way through its transaction."""

    def __init__(
        self, runtime: Runtime, request: DispatchRequest, *, queue: bool, check: Check | None
    ) -> None:
        self.runtime = runtime
        self.request = msgspec.structs.replace(
            request,
            channel_id=request.channel_id.strip() or DEFAULT_CHANNEL,
            correlation_id=request.correlation_id or None,
        )
        self.queue = queue
        self.check = check
        self._admission = Admission(runtime, self.request)

    def carry_out(self) -> Dispatched:
        request, runtime = self.request, self.runtime
        for table in _TABLES:
            runtime.database.require(table)
        agent = self._admission.target()
        ensure_project(runtime.database, runtime.project_id, request.source_agent_id)
        runtime.roster.begin_head(agent)
        head = runtime.heads.lock(agent.agent_id)
        if head is None:
            refuse(
                "head_missing",
                f"agent {agent.agent_id!r} has lost its head: `cbx turn rebuild {argument(agent.agent_id)}`",
                "error",
            )
        profile_box_id = self._admission.profile_box(agent)
        lineage = self._admission.lineage()
        self._admission.check_source()
        digest = request.request_sha256 or self._digest(agent, profile_box_id, lineage.depth)
        if request.correlation_id is not None:
            earlier = runtime.inbox.by_correlation(TURN.name, request.correlation_id)
            if earlier is not None:
                return self._replay(earlier, digest)
        self._admission.refuse_archived()
        if not self.queue:
            self._admission.refuse_busy(head)
        packed = self._pack()
        context_box_id = packed.context_box_id if packed else self._admission.context_box()
        output_box_id = self._admission.output_box(agent.agent_id)
        boxes: dict[str, Any] = {
            "profile_box_id": profile_box_id,
            "context_box_id": context_box_id,
            "output_box_id": output_box_id,
        }
        if self.check is not None:
            self._check(self.check, head, boxes)
        payload = {**boxes, "runtime_config": request.runtime_config}
        report_to = self._admission.report_to()
        joined = {} if request.batch is None else {"batch": dict(request.batch)}
        details = {"request_sha256": digest, "report_to": report_to, **joined}
        row = self._send(agent.agent_id, lineage, payload, **details)
        if row is None:
            # Another transaction took it meanwhile: what was written here is taken back.
            taken = f"correlation id {request.correlation_id!r}"
            if request.correlation_id is None:
                taken = f"turn id {request.agent_turn_id!r}"
            raise CorrelationConflict(
                f"the {taken} was taken at the same moment",
                hint="run the command again: it answers with that turn if the request is the same",
                details={"request_sha256": digest},
            )
        runtime.turns.begin_record(row.turn_id, agent.agent_id, output_start=None, report_to=report_to)
        promoted = promote_next(runtime, agent.agent_id)
        assigned = runtime.heads.get(agent.agent_id) if request.emit_state and promoted is not None else None
        if assigned is not None:
            runtime.publish_state(assigned, "dispatched", assigned.turn_epoch)
        return Dispatched(result_of(runtime, runtime.inbox.get(row.inbox_id), created=True), packed=packed)

    # --- idempotency

    def _digest(self, agent: Agent, profile_box_id: str, depth: int) -> str:
        """SHA-256 of what makes two requests the same."""
        given = self.request.context_box_id or ""
        seen = as_box_id(given) or given
        if self.request.handover is not None and self.request.correlation_id is not None:
            planned = self._pack(dry_run=True)
            seen = f"plan {planned.digest if planned else None}"
        parts = [agent.agent_id, profile_box_id, self.request.channel_id, depth, seen]
        return hashlib.sha256(exact_json.encode(parts)).hexdigest()

    def _replay(self, row: InboxRow, digest: str) -> Dispatched:
        edge = self.runtime.turns.enqueue_edge(row.turn_id)
        known = edge.metadata.get("request_sha256") if edge and isinstance(edge.metadata, dict) else None
        if row.agent_id != self.request.target_agent_id or known != digest:
            raise CorrelationConflict(
                f"the correlation id {self.request.correlation_id!r} stands for another request: "
                f"turn {row.turn_id} of agent {row.agent_id!r}",
                hint="use another correlation id, or repeat that request exactly",
                details={"agent_turn_id": row.turn_id, "agent_id": row.agent_id},
            )
        return Dispatched(result_of(self.runtime, row, created=False))

    def _check(self, check: Check, head: Head, boxes: dict[str, Any]) -> None:
        # Most dispatches are not checked, and the rules take a while to load.
        from cardbox_cli.execution.requests.lint import lint_turn_to_be

        request = self.request
        is_packed = request.handover is not None
        check(lint_turn_to_be(self.runtime, head, request.runtime_config, is_packed=is_packed, **boxes))

    # --- writing

    def _pack(self, *, dry_run: bool = False) -> Packed | None:
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

    def _send(
        self, agent_id: str, lineage: Lineage, payload: dict[str, Any], **details: Any
    ) -> InboxRow | None:
        request, parent = self.request, self.request.parent
        turn_id = request.agent_turn_id or new_id("turn")
        named = {"display_name": request.display_name, "metadata": request.metadata}
        message = Message(
            type=TURN,
            fence=Fence(agent_id, turn_id, 0),
            channel_id=request.channel_id,
            lineage=lineage,
            correlation_id=request.correlation_id or turn_id,
            payload={**payload, **{name: value for name, value in named.items() if value is not None}},
            inbox_id=turn_id,
        )
        sender = Sender(request.source_agent_id, *((parent.agent_turn_id, parent.step_id) if parent else ()))
        return send(self.runtime, message, sender, details)


def result_of(runtime: Runtime, row: InboxRow, *, created: bool) -> DispatchResult:
    """What is answered for a turn that was asked for, by its row as it is now."""
    queued, lineage = row.status == QUEUED, row.lineage
    return DispatchResult(
        status="accepted",
        agent_id=row.agent_id,
        agent_turn_id=row.turn_id,
        turn_epoch=None if queued else row.turn_epoch,
        queue_position=runtime.inbox.queue_position(row) if queued else None,
        context_box_id=row.pointer("context_box_id"),
        output_box_id=row.pointer("output_box_id"),
        inbox_id=row.inbox_id,
        recursion_depth=lineage.depth,
        trace_id=lineage.trace_id,
        created=created,
    )
