"""Dispatch a turn in one transaction: accept the request and write every row, or write none.

A dispatch reads once, decides, and writes once. A dry run only reads. `admission.py` decides,
`queue/messages.py` makes the row and its edge, `queue/promotion.py` promotes older turns of an idle agent.
"""

import msgspec

from cardbox_cli.errors import BoxConflict, Conflict
from cardbox_cli.execution import admission
from cardbox_cli.execution.admission import DispatchAttempt, DispatchDecision, dispatch_result
from cardbox_cli.execution.dispatch_requests import (
    NO_AGENT,
    DispatchOutcome,
    DispatchRequest,
    DispatchResult,
    Refusal,
    refuse,
)
from cardbox_cli.execution.queue.messages import TURN, InboxMessage, Sender, edge_of, row_of
from cardbox_cli.execution.queue.promotion import promote_next
from cardbox_cli.execution.requests.request_checks import lint_new_turn
from cardbox_cli.execution.requests.turn_requests import BoxSource, read_source
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.model.execution.situations import DispatchSituation
from cardbox_cli.model.execution.turns import IDLE, PENDING, Fence, InboxRow, new_id
from cardbox_cli.model.ids import new_box_id
from cardbox_cli.packing.pack import Check, planned_slots
from cardbox_cli.store.execution.dispatch_store import NewTurn, TurnWrite
from cardbox_cli.store.projects import ensure_project

_TABLES = ("resource.project_agents", "state.agent_state_head", "state.agent_inbox", "state.execution_edges")

# A read that waited for the lock of the head may have seen old rows; the next read does not wait.
_MAX_READS = 5


def dispatch(
    runtime: Runtime,
    request: DispatchRequest,
    *,
    queue: bool = True,
    dry_run: bool = False,
    check: Check | None = None,
) -> DispatchOutcome:
    """Dispatch a turn. Without `queue`, the result for a busy agent has the status busy.

    A refused dispatch writes nothing, and its result has an error code. A dry run returns the result that a
    dispatch would have now, without new ids; it locks nothing, so it works on a replica. `check` gets the
    lint findings of a new turn's first request; if it raises, no row is written. Raises CorrelationConflict
    if the correlation id belongs to a different request, and what packing raises. Joins the caller's
    transaction.
    """
    for table in _TABLES:
        runtime.database.require(table)
    # Only these can write rows before the decision, which a refusal must take back.
    writes_first = request.handover is not None or request.output_box_id is not None or check is not None
    try:
        if dry_run:
            with runtime.database.snapshot():
                return _rehearse(runtime, request, queue=queue, check=check)
        with runtime.transaction(savepoint=writes_first):
            return _Dispatch(runtime, request, queue=queue, check=check).carry_out()
    except Refusal as refusal:
        refused = DispatchResult(
            status=refusal.status,
            error_code=refusal.error_code,
            agent_id=request.target_agent_id,
            context_box_id=request.context_box_id,
        )
        return DispatchOutcome(refused, _refusal_message(runtime, request, refusal))


def _refusal_message(runtime: Runtime, request: DispatchRequest, refusal: Refusal) -> str:
    """Return the message of a refusal; for an unknown agent it suggests a similar one."""
    if refusal.error_code == NO_AGENT:
        return runtime.roster.not_found(request.target_agent_id).message
    return refusal.message


def _rehearse(
    runtime: Runtime, request: DispatchRequest, *, queue: bool, check: Check | None
) -> DispatchOutcome:
    return preview_dispatch(DispatchAttempt(runtime, request, queue=queue, packs=False), check)


class _Dispatch:
    """The dispatch of one request within its transaction."""

    def __init__(
        self, runtime: Runtime, request: DispatchRequest, *, queue: bool, check: Check | None
    ) -> None:
        self.runtime = runtime
        self.asked = DispatchAttempt(runtime, request, queue=queue, packs=True)
        self.check = check
        self._turn_id = request.agent_turn_id or new_id("turn")
        self._new_box_id = new_box_id()
        self._has_begun = False

    def carry_out(self) -> DispatchOutcome:
        if self.asked.request.handover is not None:
            # Packing cannot be undone alone, so the heads are locked first: no later read can see old rows.
            self.asked.read(hold=True)
        for _ in range(_MAX_READS):
            if (answer := self._try()) is not None:
                return answer
        raise Conflict(
            f"could not dispatch: the queue of agent {self.asked.request.target_agent_id!r} kept changing",
            hint="try again",
        )

    def _try(self) -> DispatchOutcome | None:
        """Return the outcome of the request; None if the rows changed since they were read."""
        decided = self.asked.decide(self.asked.read(hold=True))
        if isinstance(decided, DispatchOutcome):
            return decided
        if not self._is_prepared(decided):
            return None
        if self.check is not None:
            self._check(self.check, decided)
        turn = self._turn(decided)
        written = self.runtime.dispatches.write(turn)
        self.asked.is_taken = written.still_so and not written.written
        return self._answer(decided.found, turn, written) if written.written else None

    def _check(self, check: Check, decided: DispatchDecision) -> None:
        request, boxes = self.asked.request, self.runtime.boxes
        head = self.runtime.heads.get(request.target_agent_id)
        assert head is not None
        assert decided.context_box_id is not None
        assert decided.output_box_id is not None
        context = read_source(boxes, decided.context_box_id)
        if request.handover is not None:
            # This transaction packs the box: nobody else can see its id.
            context = msgspec.structs.replace(context, box_id="")
        check(
            lint_new_turn(
                self.runtime,
                head,
                request.runtime_config,
                profile=read_source(boxes, decided.terms.profile_box_id),
                context=context,
                output=read_source(boxes, decided.output_box_id),
            )
        )

    # --- writing

    def _is_prepared(self, decided: DispatchDecision) -> bool:
        """Write what must exist before the rows of the turn; False if the dispatch must read again."""
        runtime, request, found = self.runtime, self.asked.request, decided.found
        if found.project_status is None:
            ensure_project(runtime.database, runtime.project_id, request.source_agent_id)
        if decided.output_box_id is not None and found.output_length is None:
            try:
                runtime.boxes.ensure(decided.output_box_id)
            except BoxConflict as exc:
                refuse("output_box_not_found", exc.message)
            return False
        if self.check is not None and decided.output_box_id is None:
            self.asked.request = msgspec.structs.replace(request, output_box_id=self._new_box_id)
            return False
        if found.head is None and self._has_begun:
            admission.refuse_headless(request)
        if found.head is None:
            runtime.roster.begin_head(runtime.roster.get(request.target_agent_id))
            self._has_begun = True
        return found.head is not None

    def _turn(self, decided: DispatchDecision) -> NewTurn:
        """Return the rows of the new turn."""
        request, found, terms = self.asked.request, decided.found, decided.terms
        parent = request.parent
        assigns = admission.is_free(found)
        named = {"display_name": request.display_name, "metadata": request.metadata}
        more = {name: value for name, value in named.items() if value is not None}
        message = InboxMessage(
            type=TURN,
            fence=Fence(request.target_agent_id, self._turn_id, 0),
            channel_id=request.channel_id,
            lineage=terms.lineage,
            correlation_id=request.correlation_id or self._turn_id,
            payload={**self._boxes(decided), "runtime_config": request.runtime_config, **more},
            inbox_id=self._turn_id,
        )
        sender = Sender(request.source_agent_id, *((parent.agent_turn_id, parent.step_id) if parent else ()))
        joined = {} if request.batch is None else {"batch": dict(request.batch)}
        details = {"request_sha256": decided.request_sha256, "report_to": terms.report_to, **joined}
        row = row_of(self.runtime.project_id, message).as_inbox_row(self.runtime.project_id, found.now)
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

    def _boxes(self, decided: DispatchDecision) -> dict[str, str | None]:
        return {
            "profile_box_id": decided.terms.profile_box_id,
            "context_box_id": decided.context_box_id,
            "output_box_id": decided.output_box_id or self._new_box_id,
        }

    def _answer(self, found: DispatchSituation, turn: NewTurn, written: TurnWrite) -> DispatchOutcome:
        """Return the outcome for the written turn, after promoting an idle agent's oldest queued turn."""
        runtime, row = self.runtime, turn.row
        promoted: InboxRow | None = None
        position: int | None = written.queue_position
        if turn.assigns:
            runtime.notify_target(row, found.worker_target, "dispatch_next")
            promoted, position = row, None
        elif found.head is not None and found.head.status == IDLE:
            promoted = promote_next(runtime, row.agent_id)
            row, position = runtime.inbox.get(row.inbox_id), None
        assigned = runtime.heads.get(row.agent_id) if self.asked.request.emit_state and promoted else None
        if assigned is not None:
            runtime.publish_state(assigned, "dispatched", assigned.turn_epoch)
        return DispatchOutcome(
            dispatch_result(runtime, row, created=True, position=position), packed=self.asked.packed
        )


def preview_dispatch(asked: DispatchAttempt, check: Check | None) -> DispatchOutcome:
    """Return the outcome that a dispatch would have now, and write nothing; in the caller's snapshot.

    Raises what `dispatch` raises, and Refusal.
    """
    decided = asked.decide(asked.read(hold=False))
    if isinstance(decided, DispatchOutcome):
        return decided
    request, roster = asked.request, asked.runtime.roster
    if decided.found.head is None and not roster.can_begin_head(request.target_agent_id):
        admission.refuse_headless(request)
    if check is not None:
        _check(asked, decided, check)
    return DispatchOutcome(_result(asked, decided), packed=asked.packed)


def _check(asked: DispatchAttempt, decided: DispatchDecision, check: Check) -> None:
    runtime, boxes = asked.runtime, asked.runtime.boxes
    output = BoxSource(decided.output_box_id or "", [])
    if decided.output_box_id is not None and decided.found.output_length is not None:
        output = read_source(boxes, decided.output_box_id)
    check(
        lint_new_turn(
            runtime,
            runtime.heads.get(asked.request.target_agent_id),
            asked.request.runtime_config,
            profile=read_source(boxes, decided.terms.profile_box_id),
            context=_context(asked, decided),
            output=output,
        )
    )


def _context(asked: DispatchAttempt, decided: DispatchDecision) -> BoxSource:
    packed, runtime = asked.packed, asked.runtime
    if packed is None:
        assert decided.context_box_id is not None
        return read_source(runtime.boxes, decided.context_box_id)
    slots = planned_slots(runtime.database, runtime.project_id, packed.plan)
    return BoxSource("", slots, packed.provenance)


def _result(asked: DispatchAttempt, decided: DispatchDecision) -> DispatchResult:
    found, lineage = decided.found, decided.terms.lineage
    is_free = admission.is_free(found)
    ahead = 0 if is_free else asked.runtime.inbox.count_queued(asked.request.target_agent_id)
    if found.head is None or found.head.status == IDLE:
        # The agent is idle, so the first turn of the queue starts at once.
        ahead = max(ahead - 1, 0)
    epoch = found.head.turn_epoch if found.head else 0
    return DispatchResult(
        status="accepted",
        agent_id=asked.request.target_agent_id,
        turn_epoch=epoch + 1 if is_free else None,
        queue_position=None if is_free else ahead + 1,
        context_box_id=decided.context_box_id,
        output_box_id=decided.output_box_id,
        recursion_depth=lineage.depth,
        trace_id=lineage.trace_id,
        created=True,
    )
