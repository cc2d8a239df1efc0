"""Dispatch a turn in one transaction: accept the request and write every row, or write none.

A dispatch reads once, decides, and writes once. A dry run only reads. `admission.py` decides,
`queue/messages.py` makes the row and its edge, `queue/promotion.py` promotes older turns of an idle agent.
"""

import msgspec

from cardbox_cli.context.lint.rule import LintFinding
from cardbox_cli.errors import BadRequest, BoxConflict, Conflict, NotFound
from cardbox_cli.execution.admission import DispatchDecision, DispatchFacts, decide, is_free
from cardbox_cli.execution.dispatch_requests import (
    NO_AGENT,
    DispatchOutcome,
    DispatchRequest,
    DispatchResult,
    Handover,
    Refusal,
    refuse,
)
from cardbox_cli.execution.queue.messages import TURN, InboxMessage, Sender, edge_of, row_of
from cardbox_cli.execution.queue.promotion import promote_next
from cardbox_cli.execution.requests.request_checks import lint_new_turn
from cardbox_cli.execution.requests.turn_requests import BoxSource
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.model.execution.headers import canonical_trace_id, new_trace_id
from cardbox_cli.model.execution.turns import DEFAULT_CHANNEL, IDLE, PENDING, QUEUED, Fence, InboxRow, new_id
from cardbox_cli.model.ids import new_box_id
from cardbox_cli.packing.pack import Check, Packing
from cardbox_cli.store.execution.dispatch_store import NewTurn
from cardbox_cli.store.projects import ensure_project

_TABLES = ("resource.project_agents", "state.agent_state_head", "state.agent_inbox", "state.execution_edges")

# A dispatch reads again if its facts may be out of date, for example after it has waited for a lock.
_MAX_READS = 6


def dispatch(
    runtime: Runtime,
    request: DispatchRequest,
    *,
    queue: bool = True,
    dry_run: bool = False,
    check: Check | None = None,
) -> DispatchOutcome:
    """Dispatch a turn. If `queue` is False and the agent is busy, the result has the status busy.

    A refused dispatch writes nothing, and its result has an error code. A dry run returns the result that a
    dispatch would have now, without new ids. It locks nothing, so it works on a replica. `check` receives the
    lint findings of the turn's first request, and raises an error to prevent the dispatch. Joins the caller's
    transaction. Raises the errors of packing, and CorrelationConflict if the correlation id belongs to a
    different request.
    """
    for table in _TABLES:
        runtime.database.require(table)
    request = msgspec.structs.replace(
        request,
        channel_id=request.channel_id.strip() or DEFAULT_CHANNEL,
        correlation_id=request.correlation_id or None,
        agent_turn_id=request.agent_turn_id or new_id("turn"),
    )
    # Each of these three can write rows before the request is refused. The refusal must roll them back.
    writes_first = request.handover is not None or request.output_box_id is not None or check is not None
    try:
        with runtime.database.snapshot() if dry_run else runtime.transaction(savepoint=writes_first):
            return _dispatch(runtime, request, queue=queue, dry_run=dry_run, check=check)
    except Refusal as refusal:
        message = refusal.message
        if refusal.error_code == NO_AGENT:
            # This message suggests a similar agent.
            message = runtime.roster.not_found(request.target_agent_id).message
        result = DispatchResult(
            status=refusal.status,
            error_code=refusal.error_code,
            agent_id=request.target_agent_id,
            context_box_id=request.context_box_id,
        )
        return DispatchOutcome(result, message)


def _dispatch(
    runtime: Runtime, request: DispatchRequest, *, queue: bool, dry_run: bool, check: Check | None
) -> DispatchOutcome:
    facts = DispatchFacts(project_id=runtime.project_id, new_trace_id=new_trace_id())
    packing = None if request.handover is None else _packing(runtime, request, request.handover)
    for _ in range(_MAX_READS):
        _read(runtime, request, facts, dry_run=dry_run)
        if packing is not None and facts.plan is None and facts.plan_error is None:
            _plan(packing, facts)
            if not dry_run:
                # A written pack cannot be undone alone. The head is locked now, so first read current facts.
                continue
        decision = decide(request, facts, queue=queue)
        if isinstance(decision, InboxRow):
            return DispatchOutcome(dispatch_result(runtime, decision, created=False))
        if not dry_run and _add_missing_rows(runtime, request, decision):
            # An agent that still has no head has lost it.
            facts.has_lost_head = decision.found.head is None
            continue
        if check is not None:
            check(_lint(runtime, request, facts, decision, packing))
        if dry_run:
            return DispatchOutcome(_preview(runtime, request, decision), packed=facts.plan)
        if packing is not None and facts.plan is not None and facts.plan.context_box_id is None:
            facts.plan = packing.write(facts.plan)
        if (result := _write(runtime, request, facts, decision)) is not None:
            return DispatchOutcome(result, packed=facts.plan)
    raise Conflict(
        f"could not dispatch: the queue of agent {request.target_agent_id!r} kept changing", hint="try again"
    )


def _packing(runtime: Runtime, request: DispatchRequest, handover: Handover) -> Packing:
    return Packing(
        runtime.database,
        runtime.project_id,
        handover.recipe,
        handover.recipe_name,
        handover.arguments,
        source_agent_id=request.source_agent_id,
        turn=handover.turn,
        allow_dangling=handover.allow_dangling,
    )


def _plan(packing: Packing, facts: DispatchFacts) -> None:
    try:
        facts.plan = packing.pack(dry_run=True)
    except (BadRequest, NotFound) as exc:
        # `decide` raises this error, unless it first refuses the request for another reason.
        facts.plan_error = exc


def _read(runtime: Runtime, request: DispatchRequest, facts: DispatchFacts, *, dry_run: bool) -> None:
    facts.found = found = runtime.dispatches.situation(
        request.target_agent_id,
        context_box_id=request.context_box_id,
        output_box_id=request.output_box_id,
        profile_box_id=request.profile_box_id,
        correlation_id=request.correlation_id,
        source_agent_id=request.source_agent_id,
        parent_turn_id=request.parent.agent_turn_id if request.parent else None,
        hold=not dry_run,
    )
    facts.trace_id = canonical_trace_id(request.trace_id or "")
    if found is not None and found.earlier_inbox_id is not None:
        row = runtime.inbox.get(found.earlier_inbox_id)
        facts.earlier = row, runtime.turns.enqueue_edge(row.turn_id)
    if dry_run and found is not None and found.head is None:
        facts.has_lost_head = not runtime.roster.can_begin_head(request.target_agent_id)


def _add_missing_rows(runtime: Runtime, request: DispatchRequest, decision: DispatchDecision) -> bool:
    """Write the project, output box and head if they are missing. Return True if facts must be read again."""
    found = decision.found
    if found.project_status is None:
        ensure_project(runtime.database, runtime.project_id, request.source_agent_id)
    has_output = decision.output_box_id is None or found.output_length is not None
    if decision.output_box_id is not None and not has_output:
        try:
            runtime.boxes.ensure(decision.output_box_id)
        except BoxConflict as exc:
            refuse("output_box_not_found", exc.message)
    if found.head is None:
        runtime.roster.begin_head(runtime.roster.get(request.target_agent_id))
    return found.head is None or not has_output


def _lint(
    runtime: Runtime,
    request: DispatchRequest,
    facts: DispatchFacts,
    decision: DispatchDecision,
    packing: Packing | None,
) -> list[LintFinding]:
    """Return the lint findings of the turn's first request. Its context may only be planned."""
    planned = None
    if packing is not None and facts.plan is not None:
        planned = BoxSource("", packing.slots(facts.plan.plan), facts.plan.provenance)
    boxes = {
        "profile": decision.profile_box_id,
        "context": decision.context_box_id if planned is None else None,
        "output": decision.output_box_id,
    }
    return lint_new_turn(runtime, request.target_agent_id, request.runtime_config, boxes, planned=planned)


def _preview(runtime: Runtime, request: DispatchRequest, decision: DispatchDecision) -> DispatchResult:
    found, starts = decision.found, is_free(decision.found)
    ahead = 0 if starts else runtime.inbox.count_queued(request.target_agent_id)
    if found.head is None or found.head.status == IDLE:
        # The agent is idle, so the first turn of the queue starts at once.
        ahead = max(ahead - 1, 0)
    return DispatchResult(
        status="accepted",
        agent_id=request.target_agent_id,
        turn_epoch=(found.head.turn_epoch if found.head else 0) + 1 if starts else None,
        queue_position=None if starts else ahead + 1,
        context_box_id=decision.context_box_id,
        output_box_id=decision.output_box_id,
        recursion_depth=decision.lineage.depth,
        trace_id=decision.lineage.trace_id,
        created=True,
    )


def _write(
    runtime: Runtime, request: DispatchRequest, facts: DispatchFacts, decision: DispatchDecision
) -> DispatchResult | None:
    """Write the turn, and promote the agent's oldest queued turn if it is idle. None if the facts changed."""
    turn = _new_turn(request, facts, decision)
    written = runtime.dispatches.write(turn)
    facts.is_taken = written.still_so and not written.written
    if not written.written:
        return None
    found, row = decision.found, turn.row
    position: int | None = written.queue_position
    promoted: InboxRow | None = None
    if turn.assigns:
        runtime.notify_target(row, found.worker_target, "dispatch_next")
        promoted = row
    elif found.head is not None and found.head.status == IDLE:
        promoted = promote_next(runtime, row.agent_id)
        row, position = runtime.inbox.get(row.inbox_id), None
    assigned = runtime.heads.get(row.agent_id) if request.emit_state and promoted else None
    if assigned is not None:
        runtime.publish_state(assigned, "dispatched", assigned.turn_epoch)
    return dispatch_result(runtime, row, created=True, position=position)


def _new_turn(request: DispatchRequest, facts: DispatchFacts, decision: DispatchDecision) -> NewTurn:
    found, parent, turn_id = decision.found, request.parent, request.agent_turn_id or ""
    starts, makes_box = is_free(found), decision.output_box_id is None
    named = {"display_name": request.display_name, "metadata": request.metadata}
    message = InboxMessage(
        type=TURN,
        fence=Fence(request.target_agent_id, turn_id, 0),
        channel_id=request.channel_id,
        lineage=decision.lineage,
        correlation_id=request.correlation_id or turn_id,
        payload={
            "profile_box_id": decision.profile_box_id,
            "context_box_id": decision.context_box_id if facts.plan is None else facts.plan.context_box_id,
            "output_box_id": decision.output_box_id or new_box_id(),
            "runtime_config": request.runtime_config,
            **{name: value for name, value in named.items() if value is not None},
        },
        inbox_id=turn_id,
    )
    sender = Sender(request.source_agent_id, *((parent.agent_turn_id, parent.step_id) if parent else ()))
    joined = {} if request.batch is None else {"batch": dict(request.batch)}
    details = {"request_sha256": decision.request_sha256, "report_to": decision.report_to, **joined}
    row = row_of(facts.project_id, message).build_row(facts.project_id, found.now)
    edge = edge_of(message, row, sender, details)
    if starts and found.head is not None:
        row = msgspec.structs.replace(row, status=PENDING, turn_epoch=found.head.turn_epoch + 1)
    return NewTurn(
        row=row,
        edge=edge,
        report_to=decision.report_to,
        assigns=starts,
        makes_box=makes_box,
        output_start=(0 if makes_box else found.output_length) if starts else None,
    )


def dispatch_result(
    runtime: Runtime, row: InboxRow, *, created: bool, position: int | None = None
) -> DispatchResult:
    """Return the result that describes a stored turn. `position` is its queue position, if known."""
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
