"""A request for a turn on its way to an answer: what is decided of it, whether rows follow or not.

Owns the idempotency of requests. Whether one is accepted is `admission.py`'s. Writes nothing but what is
packed.
"""

import hashlib
from typing import NoReturn

import msgspec

from cardbox_cli.errors import CorrelationConflict
from cardbox_cli.execution.dispatch import admission
from cardbox_cli.execution.dispatch.admission import Terms
from cardbox_cli.execution.dispatch.request import Dispatched, DispatchRequest, DispatchResult
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.model import exact_json
from cardbox_cli.model.execution.dispatching import DispatchSituation
from cardbox_cli.model.execution.headers import new_trace_id
from cardbox_cli.model.execution.turns import DEFAULT_CHANNEL, QUEUED, InboxRow
from cardbox_cli.model.ids import as_box_id
from cardbox_cli.packing.pack import Packed, pack

# A box that cannot exist, for ids that are none.
_NO_BOX = "00000000-0000-0000-0000-000000000000"


class Decided(msgspec.Struct, frozen=True, kw_only=True):
    """A request that is accepted as a new turn.

    `context_box_id` is None for a context that is not packed yet, `output_box_id` for a new box.
    `request_sha256` is of what makes two requests the same.
    """

    found: DispatchSituation
    terms: Terms
    request_sha256: str
    context_box_id: str | None
    output_box_id: str | None


class Asked:
    """A request, and what was found out about it. Without `packs` a recipe is planned and nothing written."""

    def __init__(self, runtime: Runtime, request: DispatchRequest, *, queue: bool, packs: bool) -> None:
        self.runtime = runtime
        self.request = msgspec.structs.replace(
            request,
            channel_id=request.channel_id.strip() or DEFAULT_CHANNEL,
            correlation_id=request.correlation_id or None,
        )
        self.packed: Packed | None = None
        # Another transaction had the id when this request was to be written.
        self.is_taken = False
        self._queue = queue
        self._packs = packs
        self._new_trace_id = new_trace_id()

    def read(self, *, hold: bool) -> DispatchSituation | None:
        """All that decides; with `hold` its locks are had."""
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

    def decide(self, found: DispatchSituation | None) -> Decided | Dispatched:
        """The terms of a new turn, or the answer to a request that was made before.

        Raises Refusal, CorrelationConflict, and what packing raises.
        """
        request, project_id = self.request, self.runtime.project_id
        terms = admission.admit(request, found, project_id=project_id, trace_id=self._new_trace_id)
        assert found is not None
        digest = request.request_sha256 or self._digest(terms)
        if found.earlier_inbox_id is not None:
            return self._replay(found.earlier_inbox_id, digest)
        if self.is_taken:
            self._refuse_taken(digest)
        admission.refuse_archived(found, project_id)
        if not self._queue:
            admission.refuse_busy(request, found)
        self.packed = self.packed or self._pack(dry_run=not self._packs)
        context_box_id = (
            self.packed.context_box_id if self.packed else admission.context_box(request, found, project_id)
        )
        return Decided(
            found=found,
            terms=terms,
            request_sha256=digest,
            context_box_id=context_box_id,
            output_box_id=admission.output_box(request, found),
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
        if self.is_taken and row.agent_id != self.request.target_agent_id:
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

    # --- packing

    def _pack(self, *, dry_run: bool) -> Packed | None:
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
