"""Dispatch: a turn is asked for. One transaction: it is accepted whole, or leaves no row.

One read of all that decides, the decision, one write of every row. Owns the order of these, and the
idempotency of requests. Whether a request is accepted is `admission.py`'s, its row and edge
`queue/messages.py`'s, the promotion of older turns that an idle agent has queued `queue/promotion.py`'s.
"""

import hashlib
from typing import Any, NoReturn

import msgspec

from cardbox_cli.errors import BoxConflict, Conflict, CorrelationConflict
from cardbox_cli.execution.dispatch import admission
from cardbox_cli.execution.dispatch.admission import Terms
from cardbox_cli.execution.dispatch.request import (
    Dispatched,
    DispatchRequest,
    DispatchResult,
    Refusal,
    refuse,
)
from cardbox_cli.execution.queue.messages import TURN, Message, Sender, edge_of, row_of
from cardbox_cli.execution.queue.promotion import promote_next
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.model import exact_json
from cardbox_cli.model.execution.dispatching import DispatchSituation
from cardbox_cli.model.execution.headers import new_trace_id
from cardbox_cli.model.execution.turns import DEFAULT_CHANNEL, IDLE, PENDING, QUEUED, Fence, InboxRow, new_id
from cardbox_cli.model.ids import as_box_id, new_box_id
from cardbox_cli.packing.pack import Check, Packed, pack
from cardbox_cli.store.execution.dispatches import NewTurn, Written
from cardbox_cli.store.projects import ensure_project

_TABLES = ("resource.project_agents", "state.agent_state_head", "state.agent_inbox", "state.execution_edges")

# A box that cannot exist, for ids that are none.
_NO_BOX = "00000000-0000-0000-0000-000000000000"

# The first read may have waited for the head, and so have seen what is old; the second has not waited for it.
_READS = 5


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
    # Nothing is written before the decision, but what the decision is about.
    writes_first = request.handover is not None or request.output_box_id is not None or check is not None
    try:
        with runtime.rehearsal() if dry_run else runtime.transaction(savepoint=writes_first):
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
        self._turn_id = request.agent_turn_id or new_id("turn")
        self._new_box_id = new_box_id()
        self._new_trace_id = new_trace_id()
        self._packed: Packed | None = None
        self._is_taken = False
        self._has_begun = False

    def carry_out(self) -> Dispatched:
        for table in _TABLES:
            self.runtime.database.require(table)
        if self.request.handover is not None:
            # What is packed cannot be taken back alone: nothing that the next read sees may be old.
            self._read()
        for _ in range(_READS):
            if (answer := self._try()) is not None:
                return answer
        raise Conflict(
            f"what turns agent {self.request.target_agent_id!r} has changes all the time",
            hint="run the command again",
        )

    def _try(self) -> Dispatched | None:
        """The answer to the request; None where what it was decided on does not hold any more: read again."""
        request, runtime = self.request, self.runtime
        found = self._read()
        terms = admission.admit(request, found, project_id=runtime.project_id, trace_id=self._new_trace_id)
        assert found is not None
        digest = request.request_sha256 or self._digest(terms)
        if found.earlier_inbox_id is not None:
            return self._replay(found.earlier_inbox_id, digest)
        if self._is_taken:
            self._refuse_taken(digest)
        admission.refuse_archived(found, runtime.project_id)
        if not self.queue:
            admission.refuse_busy(request, found)
        self._packed = self._packed or self._pack()
        context_box_id = (
            self._packed.context_box_id
            if self._packed
            else admission.context_box(request, found, runtime.project_id)
        )
        output_box_id = admission.output_box(request, found)
        if not self._is_prepared(found, output_box_id):
            return None
        boxes: dict[str, Any] = {
            "profile_box_id": terms.profile_box_id,
            "context_box_id": context_box_id,
            "output_box_id": output_box_id or self._new_box_id,
        }
        if self.check is not None:
            self._check(self.check, boxes)
        turn = self._turn(found, terms, boxes, digest)
        written = runtime.dispatches.write(turn)
        self._is_taken = written.still_so and not written.written
        return self._answer(found, turn, written) if written.written else None

    # --- reading

    def _read(self) -> DispatchSituation | None:
        request = self.request
        return self.runtime.dispatches.situation(
            request.target_agent_id,
            context_box_id=_box(request.context_box_id),
            output_box_id=_box(request.output_box_id),
            profile_box_id=_box(request.profile_box_id),
            correlation_id=request.correlation_id,
            source_agent_id=request.source_agent_id,
            parent_turn_id=request.parent.agent_turn_id if request.parent else None,
        )

    # --- idempotency

    def _digest(self, terms: Terms) -> str:
        """SHA-256 of what makes two requests the same."""
        given = self.request.context_box_id or ""
        seen = as_box_id(given) or given
        if self.request.handover is not None and self.request.correlation_id is not None:
            planned = self._pack(dry_run=True)
            seen = f"plan {planned.digest if planned else None}"
        request, depth = self.request, terms.lineage.depth
        asked = [request.target_agent_id, terms.profile_box_id, request.channel_id, depth, seen]
        return hashlib.sha256(exact_json.encode(asked)).hexdigest()

    def _replay(self, inbox_id: str, digest: str) -> Dispatched:
        row = self.runtime.inbox.get(inbox_id)
        edge = self.runtime.turns.enqueue_edge(row.turn_id)
        known = edge.metadata.get("request_sha256") if edge and isinstance(edge.metadata, dict) else None
        if self._is_taken and row.agent_id != self.request.target_agent_id:
            self._refuse_taken(digest)
        if row.agent_id != self.request.target_agent_id or known != digest:
            raise CorrelationConflict(
                f"the correlation id {self.request.correlation_id!r} stands for another request: "
                f"turn {row.turn_id} of agent {row.agent_id!r}",
                hint="use another correlation id, or repeat that request exactly",
                details={"agent_turn_id": row.turn_id, "agent_id": row.agent_id},
            )
        return Dispatched(result_of(self.runtime, row, created=False))

    def _refuse_taken(self, digest: str) -> NoReturn:
        """Another transaction took the id meanwhile."""
        taken = f"correlation id {self.request.correlation_id!r}"
        if self.request.correlation_id is None:
            taken = f"turn id {self.request.agent_turn_id!r}"
        raise CorrelationConflict(
            f"the {taken} was taken at the same moment",
            hint="run the command again: it answers with that turn if the request is the same",
            details={"request_sha256": digest},
        )

    def _check(self, check: Check, boxes: dict[str, Any]) -> None:
        # Most dispatches are not checked, and the rules take a while to load.
        from cardbox_cli.execution.requests.lint import lint_turn_to_be

        request = self.request
        head = self.runtime.heads.get(request.target_agent_id)
        assert head is not None
        is_packed = request.handover is not None
        check(lint_turn_to_be(self.runtime, head, request.runtime_config, is_packed=is_packed, **boxes))

    # --- writing

    def _is_prepared(self, found: DispatchSituation, output_box_id: str | None) -> bool:
        """Write what few requests need before their rows: False where they must be looked at again then."""
        runtime, request = self.runtime, self.request
        if found.project_status is None:
            ensure_project(runtime.database, runtime.project_id, request.source_agent_id)
        if output_box_id is not None and found.output_length is None:
            try:
                runtime.boxes.ensure(output_box_id)
            except BoxConflict as exc:
                refuse("output_box_not_found", exc.message)
            return False
        if self.check is not None and output_box_id is None:
            self.request = msgspec.structs.replace(request, output_box_id=self._new_box_id)
            return False
        if found.head is None and self._has_begun:
            admission.refuse_headless(request)
        if found.head is None:
            runtime.roster.begin_head(runtime.roster.get(request.target_agent_id))
            self._has_begun = True
        return found.head is not None

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

    def _turn(self, found: DispatchSituation, terms: Terms, boxes: dict[str, Any], digest: str) -> NewTurn:
        """The rows that make the turn."""
        request, parent = self.request, self.request.parent
        assigns = admission.is_free(found)
        named = {"display_name": request.display_name, "metadata": request.metadata}
        more = {name: value for name, value in named.items() if value is not None}
        message = Message(
            type=TURN,
            fence=Fence(request.target_agent_id, self._turn_id, 0),
            channel_id=request.channel_id,
            lineage=terms.lineage,
            correlation_id=request.correlation_id or self._turn_id,
            payload={**boxes, "runtime_config": request.runtime_config, **more},
            inbox_id=self._turn_id,
        )
        sender = Sender(request.source_agent_id, *((parent.agent_turn_id, parent.step_id) if parent else ()))
        joined = {} if request.batch is None else {"batch": dict(request.batch)}
        details = {"request_sha256": digest, "report_to": terms.report_to, **joined}
        row = row_of(self.runtime.project_id, message).written(self.runtime.project_id, found.now)
        edge = edge_of(message, row, sender, details)
        if assigns and found.head is not None:
            row = msgspec.structs.replace(row, status=PENDING, turn_epoch=found.head.turn_epoch + 1)
        makes_box = request.output_box_id is None
        return NewTurn(
            row=row,
            edge=edge,
            report_to=terms.report_to,
            assigns=assigns,
            makes_box=makes_box,
            output_start=(0 if makes_box else found.output_length) if assigns else None,
        )

    def _answer(self, found: DispatchSituation, turn: NewTurn, written: Written) -> Dispatched:
        """What is answered for the turn that was written; the agent, if it is idle, gets its oldest one."""
        runtime, row = self.runtime, turn.row
        promoted: InboxRow | None = None
        position: int | None = written.queue_position
        if turn.assigns:
            runtime.notify_target(row, found.worker_target, "dispatch_next")
            promoted, position = row, None
        elif found.head is not None and found.head.status == IDLE:
            promoted = promote_next(runtime, row.agent_id)
            row, position = runtime.inbox.get(row.inbox_id), None
        assigned = runtime.heads.get(row.agent_id) if self.request.emit_state and promoted else None
        if assigned is not None:
            runtime.publish_state(assigned, "dispatched", assigned.turn_epoch)
        return Dispatched(result_of(runtime, row, created=True, position=position), packed=self._packed)


def _box(box_id: str | None) -> str | None:
    """A box id for a query."""
    return None if not box_id else as_box_id(box_id) or _NO_BOX


def result_of(
    runtime: Runtime, row: InboxRow, *, created: bool, position: int | None = None
) -> DispatchResult:
    """What is answered for a turn that was asked for, by its row as it is now.

    `position` is its place in the queue, where that is known.
    """
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
