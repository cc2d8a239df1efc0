"""What a dispatch would answer now: everything is looked at, nothing is locked or written."""

from cardbox_cli.execution.dispatch import admission
from cardbox_cli.execution.dispatch.asked import Asked, Decided
from cardbox_cli.execution.dispatch.request import Dispatched, DispatchResult
from cardbox_cli.execution.requests.lint import lint_turn_to_be
from cardbox_cli.execution.requests.request import Source
from cardbox_cli.execution.requests.source import read_source
from cardbox_cli.model.execution.turns import IDLE
from cardbox_cli.packing.pack import Check, planned_slots


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
