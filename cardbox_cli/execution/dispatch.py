import msgspec

from cardbox_cli.errors import BoxConflict, Conflict
from cardbox_cli.execution import admission
from cardbox_cli.execution.admission import Asked, Decided, result_of
from cardbox_cli.execution.dispatch_requests import (
    Dispatched,
    DispatchRequest,
    DispatchResult,
    Refusal,
    refuse,
)
from cardbox_cli.execution.queue.messages import TURN, Message, Sender, edge_of, row_of
from cardbox_cli.execution.queue.promotion import promote_next
from cardbox_cli.execution.requests.request_checks import lint_turn_to_be
from cardbox_cli.execution.requests.turn_requests import Source, read_source
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.model.execution.situations import DispatchSituation
from cardbox_cli.model.execution.turns import IDLE, PENDING, Fence, InboxRow, new_id
from cardbox_cli.model.ids import new_box_id
from cardbox_cli.packing.pack import Check, planned_slots
from cardbox_cli.store.execution.dispatch_store import NewTurn, Written
from cardbox_cli.store.projects import ensure_project

# Dispatch: a turn is asked for. One transaction: it is accepted whole, or leaves no row.
#
# One read of all that decides, the decision, one write of every row; a dry run only reads. Owns the order of
# these. What is decided is `asked.py`'s, the row and edge `queue/messages.py`'s, the promotion of older turns
# that an idle agent has queued `queue/promotion.py`'s.


_TABLES = ("resource.project_agents", "state.agent_state_head", "state.agent_inbox", "state.execution_edges")

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

    A dry run answers what would come of it now, without the ids of what it does not make: it locks and writes
    nothing, so that a replica can be asked. `check` gets what the rules of the turn's model find in its first
    request, unless that turn is there already; what it raises leaves no row. Raises CorrelationConflict where
    the correlation id stands for another request, and what packing raises. Joins the caller's transaction if
    there is one.
    """
    for table in _TABLES:
        runtime.database.require(table)
    # Nothing is written before the decision, but what the decision is about.
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
        return Dispatched(refused, _explained(runtime, request, refusal))


def _explained(runtime: Runtime, request: DispatchRequest, refusal: Refusal) -> str:
    """Why a request is not accepted. What is read besides for that, the decision need not know."""
    if refusal.error_code == admission.NO_AGENT:
        return runtime.roster.absent(request.target_agent_id).message
    return refusal.message


def _rehearse(runtime: Runtime, request: DispatchRequest, *, queue: bool, check: Check | None) -> Dispatched:
    # Nearly all dispatches are meant.

    return rehearse(Asked(runtime, request, queue=queue, packs=False), check)


class _Dispatch:
    """One request on its way through its transaction."""

    def __init__(
        self, runtime: Runtime, request: DispatchRequest, *, queue: bool, check: Check | None
    ) -> None:
        self.runtime = runtime
        self.asked = Asked(runtime, request, queue=queue, packs=True)
        self.check = check
        self._turn_id = request.agent_turn_id or new_id("turn")
        self._new_box_id = new_box_id()
        self._has_begun = False

    def carry_out(self) -> Dispatched:
        if self.asked.request.handover is not None:
            # What is packed cannot be taken back alone: nothing that the next read sees may be old.
            self.asked.read(hold=True)
        for _ in range(_READS):
            if (answer := self._try()) is not None:
                return answer
        raise Conflict(
            f"what turns agent {self.asked.request.target_agent_id!r} has changes all the time",
            hint="run the command again",
        )

    def _try(self) -> Dispatched | None:
        """The answer to the request; None where what it was decided on does not hold any more: read again."""
        decided = self.asked.decide(self.asked.read(hold=True))
        if isinstance(decided, Dispatched):
            return decided
        if not self._is_prepared(decided):
            return None
        if self.check is not None:
            self._check(self.check, decided)
        turn = self._turn(decided)
        written = self.runtime.dispatches.write(turn)
        self.asked.is_taken = written.still_so and not written.written
        return self._answer(decided.found, turn, written) if written.written else None

    def _check(self, check: Check, decided: Decided) -> None:
        # Most dispatches are not checked, and the rules take a while to load.

        request, boxes = self.asked.request, self.runtime.boxes
        head = self.runtime.heads.get(request.target_agent_id)
        assert head is not None
        assert decided.context_box_id is not None
        assert decided.output_box_id is not None
        context = read_source(boxes, decided.context_box_id)
        if request.handover is not None:
            # It is packed in this transaction, and has an id for nobody else.
            context = msgspec.structs.replace(context, box_id="")
        check(
            lint_turn_to_be(
                self.runtime,
                head,
                request.runtime_config,
                profile=read_source(boxes, decided.terms.profile_box_id),
                context=context,
                output=read_source(boxes, decided.output_box_id),
            )
        )

    # --- writing

    def _is_prepared(self, decided: Decided) -> bool:
        """Write what few requests need before their rows: False where they must be looked at again then."""
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

    def _turn(self, decided: Decided) -> NewTurn:
        """The rows that make the turn."""
        request, found, terms = self.asked.request, decided.found, decided.terms
        parent = request.parent
        assigns = admission.is_free(found)
        named = {"display_name": request.display_name, "metadata": request.metadata}
        more = {name: value for name, value in named.items() if value is not None}
        message = Message(
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

    def _boxes(self, decided: Decided) -> dict[str, str | None]:
        """What the turn reads and writes."""
        return {
            "profile_box_id": decided.terms.profile_box_id,
            "context_box_id": decided.context_box_id,
            "output_box_id": decided.output_box_id or self._new_box_id,
        }

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
        assigned = runtime.heads.get(row.agent_id) if self.asked.request.emit_state and promoted else None
        if assigned is not None:
            runtime.publish_state(assigned, "dispatched", assigned.turn_epoch)
        return Dispatched(result_of(runtime, row, created=True, position=position), packed=self.asked.packed)


# What a dispatch would answer now: everything is looked at, nothing is locked or written.


def rehearse(asked: Asked, check: Check | None) -> Dispatched:
    """The answer to a request, in the caller's snapshot. Raises as `dispatch` does, and Refusal."""
    decided = asked.decide(asked.read(hold=False))
    if isinstance(decided, Dispatched):
        return decided
    request, roster = asked.request, asked.runtime.roster
    if decided.found.head is None and not roster.can_begin_head(request.target_agent_id):
        admission.refuse_headless(request)
    if check is not None:
        _check(asked, decided, check)
    return Dispatched(_result(asked, decided), packed=asked.packed)


def _check(asked: Asked, decided: Decided, check: Check) -> None:
    runtime, boxes = asked.runtime, asked.runtime.boxes
    output = Source(decided.output_box_id or "", [])
    if decided.output_box_id is not None and decided.found.output_length is not None:
        output = read_source(boxes, decided.output_box_id)
    check(
        lint_turn_to_be(
            runtime,
            runtime.heads.get(asked.request.target_agent_id),
            asked.request.runtime_config,
            profile=read_source(boxes, decided.terms.profile_box_id),
            context=_context(asked, decided),
            output=output,
        )
    )


def _context(asked: Asked, decided: Decided) -> Source:
    packed, runtime = asked.packed, asked.runtime
    if packed is None:
        assert decided.context_box_id is not None
        return read_source(runtime.boxes, decided.context_box_id)
    slots = planned_slots(runtime.database, runtime.project_id, packed.plan)
    return Source("", slots, packed.provenance)


def _result(asked: Asked, decided: Decided) -> DispatchResult:
    found, lineage = decided.found, decided.terms.lineage
    is_free = admission.is_free(found)
    ahead = 0 if is_free else asked.runtime.inbox.count_queued(asked.request.target_agent_id)
    if found.head is None or found.head.status == IDLE:
        # The first of the queue is next, be it this one.
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
