"""Dispatch: a turn is asked for. One transaction: it is accepted whole, or leaves no row.

Owns the checks and their error codes, the inbox row and the edge of a request, and its idempotency.
Promotion, which follows in the same transaction, is `promotion.py`'s.
"""

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, NoReturn

import msgspec

from cardbox_cli.errors import BoxConflict, CorrelationConflict
from cardbox_cli.execution.promotion import promote_next
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.model import exact_json
from cardbox_cli.model.boxes import BoxView
from cardbox_cli.model.cards import OPERATOR
from cardbox_cli.model.headers import as_trace_id, depth_of, new_trace_id, trace_id_of, turn_headers
from cardbox_cli.model.identity import Agent
from cardbox_cli.model.ids import as_box_id, new_box_id
from cardbox_cli.model.turns import (
    DEFAULT_CHANNEL,
    MAX_DEPTH,
    QUEUED,
    TURN,
    Edge,
    Head,
    InboxRow,
    edge_context,
    new_edge_id,
    new_turn_id,
)
from cardbox_cli.packing.pack import Packed, pack
from cardbox_cli.store.inbox import NewRow
from cardbox_cli.store.projects import ensure_project

if TYPE_CHECKING:
    from cardbox_cli.model.recipes import Recipe

DepthPolicy = Literal["descend", "peer", "root"]
_TABLES = ("resource.project_agents", "state.agent_state_head", "state.agent_inbox", "state.execution_edges")
# Agents of the platform need no row of the roster.
_TRUSTED = ("sys.", "tool.")


class Parent(msgspec.Struct, frozen=True, kw_only=True):
    """The turn on whose behalf another runs; `tool_call_id` names the call of it that waits for the end."""

    agent_turn_id: str
    step_id: str | None = None
    tool_call_id: str | None = None


class Handover(msgspec.Struct, frozen=True, kw_only=True):
    """A recipe and its arguments, from which the context box is packed in the same transaction."""

    recipe: "Recipe"
    recipe_name: str
    arguments: Mapping[str, Any]


class DispatchRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked for: exactly one of `context_box_id` and `handover` says what the turn will see.

    `profile_box_id` defaults to the agent's, `output_box_id` to a new box, `correlation_id` to the turn's id.
    """

    target_agent_id: str
    context_box_id: str | None = None
    handover: Handover | None = None
    channel_id: str = DEFAULT_CHANNEL
    source_agent_id: str = OPERATOR
    profile_box_id: str | None = None
    output_box_id: str | None = None
    correlation_id: str | None = None
    depth_policy: DepthPolicy = "descend"
    parent: Parent | None = None
    trace_id: str | None = None
    display_name: str | None = None
    runtime_config: dict[str, Any] = {}
    metadata: dict[str, Any] | None = None
    emit_state: bool = False


class DispatchResult(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it. `turn_epoch` is None while the turn is queued, at `queue_position` from 1.

    `status` is accepted, busy, rejected or error; for the last three `error_code` says why and `message` in
    words, and no row was written. `created` is False for the answer to a request that had been made before.
    """

    status: str
    error_code: str | None = None
    agent_id: str
    agent_turn_id: str | None = None
    turn_epoch: int | None = None
    queue_position: int | None = None
    context_box_id: str | None = None
    output_box_id: str | None = None
    inbox_id: str | None = None
    recursion_depth: int | None = None
    trace_id: str | None = None
    created: bool = False


class Dispatched(msgspec.Struct, frozen=True):
    """A result, what it means in words where it was not accepted, and what was packed for it."""

    result: DispatchResult
    message: str | None = None
    packed: Packed | None = None


class _Lineage(msgspec.Struct, frozen=True, kw_only=True):
    """Where a new turn stands: how deep, in which trace, and whose turn it is asked for by."""

    depth: int
    trace_id: str
    parent_agent_id: str | None


class _Refusal(Exception):
    """Leaves the transaction, so that nothing of it stays."""

    def __init__(self, status: str, error_code: str, message: str) -> None:
        self.status, self.error_code, self.message = status, error_code, message


def dispatch(
    runtime: Runtime, request: DispatchRequest, *, queue: bool = True, dry_run: bool = False
) -> Dispatched:
    """Ask for a turn. Without `queue` a busy agent is an answer of its own, and nothing is written.

    A dry run does everything and takes it back. Raises CorrelationConflict where the correlation id stands
    for another request, and what packing raises. Joins the caller's transaction if there is one.
    """
    try:
        with runtime.rehearsal() if dry_run else runtime.transaction():
            return _Dispatch(runtime, request, queue=queue).carry_out()
    except _Refusal as refusal:
        refused = DispatchResult(
            status=refusal.status,
            error_code=refusal.error_code,
            agent_id=request.target_agent_id,
            context_box_id=request.context_box_id,
        )
        return Dispatched(refused, refusal.message)


class _Dispatch:
    """One request on its way through its transaction."""

    def __init__(self, runtime: Runtime, request: DispatchRequest, *, queue: bool) -> None:
        self.runtime = runtime
        self.request = msgspec.structs.replace(
            request,
            channel_id=request.channel_id.strip() or DEFAULT_CHANNEL,
            correlation_id=request.correlation_id or None,
        )
        self.queue = queue

    def carry_out(self) -> Dispatched:
        request, runtime = self.request, self.runtime
        for table in _TABLES:
            runtime.database.require(table)
        agent = self._target()
        ensure_project(runtime.database, runtime.project_id, request.source_agent_id)
        runtime.roster.begin_head(agent)
        head = runtime.heads.lock(agent.agent_id)
        if head is None:
            _refuse(
                "error",
                "head_missing",
                f"agent {agent.agent_id!r} has lost its head: `cbx turn rebuild {agent.agent_id}`",
            )
        profile_box_id = self._profile_box(agent)
        lineage = self._lineage()
        self._check_source()
        digest = self._digest(agent, profile_box_id, lineage.depth)
        if request.correlation_id is not None:
            earlier = runtime.inbox.by_correlation(TURN, request.correlation_id)
            if earlier is not None:
                return self._replay(earlier, digest)
        if not self.queue:
            self._refuse_busy(head)
        packed = self._pack()
        context_box_id = packed.context_box_id if packed else self._context_box()
        output_box_id = self._output_box(agent.agent_id)
        row = self._enqueue(
            agent.agent_id,
            lineage,
            payload={
                "profile_box_id": profile_box_id,
                "context_box_id": context_box_id,
                "output_box_id": output_box_id,
                "runtime_config": request.runtime_config,
            },
        )
        if row is None:
            return self._replay_of_another(digest)
        report_to = self._report_to(lineage)
        self._write_edge(row, lineage, digest, report_to)
        runtime.turns.keep(row.turn_id, agent.agent_id, output_start=None, report_to=report_to)
        promoted = promote_next(runtime, agent.agent_id)
        if request.emit_state and promoted is not None:
            leased = runtime.heads.get(agent.agent_id)
            if leased is not None:
                runtime.tell_state(leased, "dispatched", leased.turn_epoch)
        return Dispatched(self._result(runtime.inbox.get(row.inbox_id), created=True), packed=packed)

    # --- checks

    def _target(self) -> Agent:
        agent_id = self.request.target_agent_id
        if not agent_id.strip():
            _refuse("rejected", "missing_agent_id", "no agent is named")
        agent = self.runtime.roster.find(agent_id)
        if agent is None:
            _refuse(
                "rejected",
                "agent_not_found",
                f"no agent {agent_id!r} in project {self.runtime.project_id!r}",
            )
        if not agent.worker_target.strip():
            _refuse("error", "worker_target_missing", f"agent {agent_id!r} has no worker target")
        return agent

    def _profile_box(self, agent: Agent) -> str:
        box_id = self.request.profile_box_id or agent.profile_box_id
        view = self._view(as_box_id(box_id))
        if view is None:
            _refuse(
                "rejected",
                "profile_not_found",
                f"the profile box {box_id!r} of agent {agent.agent_id!r} is not there",
            )
        profile = next((card for card in view.cards if card.type == "sys.profile"), None)
        if profile is None:
            _refuse("rejected", "profile_not_found", f"the box {box_id!r} holds no sys.profile card")
        self._check_recipe_profile(getattr(profile.content, "data", None), agent)
        return view.box.box_id

    def _view(self, box_id: str | None) -> BoxView | None:
        if box_id is None:
            return None
        found = self.runtime.boxes.get_many([box_id])
        return self.runtime.boxes.view(box_id) if found.boxes else None

    def _check_recipe_profile(self, profile: Any, agent: Agent) -> None:
        handover = self.request.handover
        if handover is None:
            return
        from cardbox_cli.packing.plan import target_profile_name

        wanted = target_profile_name(handover.recipe, handover.recipe.bind(handover.arguments))
        named = profile.get("name") if isinstance(profile, dict) else None
        if not isinstance(named, str) or named.lower() != wanted.lower():
            _refuse(
                "rejected",
                "profile_mismatch",
                f"the recipe packs for profile {wanted!r}, agent {agent.agent_id!r} has profile {named!r}",
            )

    def _context_box(self) -> str:
        typed = self.request.context_box_id
        if not typed:
            _refuse("rejected", "missing_context_box_id", "no context box is named")
        box_id = as_box_id(typed)
        # Held, so that nobody who found it unused changes it while the turn is being asked for.
        if box_id is None or not self.runtime.boxes.share(box_id):
            _refuse(
                "rejected",
                "context_box_not_found",
                f"no box {typed!r} in project {self.runtime.project_id!r}",
            )
        return box_id

    def _parent_row(self) -> InboxRow | None:
        parent = self.request.parent
        if parent is None:
            return None
        rows = self.runtime.inbox.of_turn(parent.agent_turn_id)
        row = next((row for row in rows if row.message_type == TURN), None)
        if row is None:
            _refuse("rejected", "parent_turn_not_found", f"no turn {parent.agent_turn_id!r}")
        return row

    def _lineage(self) -> _Lineage:
        row = self._parent_row()
        depth = -1 if row is None else depth_of(row.context_headers)
        trace_id = None if row is None else trace_id_of(row.context_headers)
        given = self.request.trace_id
        if given is not None and as_trace_id(given) is None:
            _refuse("rejected", "protocol_violation", f"the trace id {given!r} is not 32 hex digits")
        policy = self.request.depth_policy
        depth = 0 if policy == "root" else max(depth, 0) if policy == "peer" else depth + 1
        if depth >= MAX_DEPTH:
            _refuse(
                "rejected",
                "recursion_depth_exceeded",
                f"the turn would be {depth} descents deep; the limit is {MAX_DEPTH - 1}",
            )
        return _Lineage(
            depth=depth,
            trace_id=as_trace_id(given or "") or trace_id or new_trace_id(),
            parent_agent_id=None if row is None else row.agent_id,
        )

    def _check_source(self) -> None:
        source = self.request.source_agent_id
        if not source.startswith(_TRUSTED) and self.runtime.roster.find(source) is None:
            _refuse(
                "rejected",
                "invalid_source_actor",
                f"the source {source!r} is no agent of project {self.runtime.project_id!r}",
            )

    def _refuse_busy(self, head: Head) -> None:
        waiting = self.runtime.inbox.oldest_queued(head.agent_id)
        if head.status != "idle" or waiting is not None:
            turn = head.active_agent_turn_id or (waiting.turn_id if waiting else "")
            _refuse("busy", "agent_busy", f"agent {head.agent_id!r} is at turn {turn}")

    def _output_box(self, agent_id: str) -> str:
        typed = self.request.output_box_id
        if typed is None:
            return self.runtime.boxes.ensure(new_box_id()).box_id
        box_id = as_box_id(typed)
        if box_id is None:
            _refuse("rejected", "output_box_not_found", f"the output box {typed!r} is no box id")
        try:
            self.runtime.boxes.ensure(box_id)
        except BoxConflict as exc:
            _refuse("rejected", "output_box_not_found", exc.message)
        self.runtime.turns.lock_box(box_id)
        user = self.runtime.inbox.output_box_user(box_id, agent_id, to_come=True)
        if user is not None:
            _refuse(
                "rejected",
                "output_box_in_use",
                f"the output box {box_id} is that of turn {user[0]} of agent {user[1]!r}",
            )
        return box_id

    # --- idempotency

    def _digest(self, agent: Agent, profile_box_id: str, depth: int) -> str:
        """SHA-256 of what makes two requests the same."""
        typed = self.request.context_box_id or ""
        seen = as_box_id(typed) or typed
        if self.request.handover is not None and self.request.correlation_id is not None:
            planned = self._pack(dry_run=True)
            seen = f"plan {planned.digest if planned else None}"
        parts = [agent.agent_id, profile_box_id, self.request.channel_id, depth, seen]
        return hashlib.sha256(exact_json.encode(parts)).hexdigest()

    def _replay_of_another(self, digest: str) -> NoReturn:
        """Another transaction took the correlation id meanwhile: take back what was written here."""
        raise CorrelationConflict(
            f"the correlation id {self.request.correlation_id!r} was taken at the same moment",
            hint="run the command again: it answers with that turn if the request is the same",
            details={"request_sha256": digest},
        )

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
        return Dispatched(self._result(row, created=False))

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
            dry_run=dry_run,
        )

    def _enqueue(self, agent_id: str, lineage: _Lineage, *, payload: dict[str, Any]) -> InboxRow | None:
        request = self.request
        turn_id = new_turn_id()
        channel_id = request.channel_id.strip() or DEFAULT_CHANNEL
        named = {"display_name": request.display_name, "metadata": request.metadata}
        parent_turn_id, parent_step_id = self._above()
        return self.runtime.inbox.insert(
            NewRow(
                inbox_id=turn_id,
                agent_id=agent_id,
                message_type=TURN,
                status=QUEUED,
                channel_id=channel_id,
                enqueue_mode="call",
                correlation_id=request.correlation_id or turn_id,
                agent_turn_id=turn_id,
                payload={**payload, **{name: value for name, value in named.items() if value is not None}},
                context_headers=turn_headers(
                    project_id=self.runtime.project_id,
                    channel_id=channel_id,
                    agent_id=agent_id,
                    agent_turn_id=turn_id,
                    turn_epoch=0,
                    depth=lineage.depth,
                    trace_id=lineage.trace_id,
                    parent_agent_id=lineage.parent_agent_id if parent_turn_id else None,
                    parent_turn_id=parent_turn_id,
                    parent_step_id=parent_step_id,
                ),
            )
        )

    def _above(self) -> tuple[str | None, str | None]:
        """The turn and step that the new turn is below: none for a root, even one that somebody asked for."""
        parent = self.request.parent
        if parent is None or self.request.depth_policy == "root":
            return None, None
        return parent.agent_turn_id, parent.step_id

    def _report_to(self, lineage: _Lineage) -> dict[str, str] | None:
        parent = self.request.parent
        if parent is None or parent.tool_call_id is None or lineage.parent_agent_id is None:
            return None
        return {
            "agent_id": lineage.parent_agent_id,
            "agent_turn_id": parent.agent_turn_id,
            "tool_call_id": parent.tool_call_id,
        }

    def _write_edge(
        self, row: InboxRow, lineage: _Lineage, digest: str, report_to: dict[str, str] | None
    ) -> None:
        parent = self.request.parent
        parent_step_id = self._above()[1]
        self.runtime.turns.insert_edge(
            Edge(
                edge_id=new_edge_id(),
                channel_id=row.channel_id,
                primitive="enqueue",
                edge_phase="request",
                source_agent_id=self.request.source_agent_id,
                source_agent_turn_id=parent.agent_turn_id if parent else None,
                source_step_id=parent.step_id if parent else None,
                target_agent_id=row.agent_id,
                target_agent_turn_id=row.turn_id,
                correlation_id=row.correlation_id,
                enqueue_mode="call",
                recursion_depth=lineage.depth,
                trace_id=lineage.trace_id,
                parent_step_id=parent_step_id,
                metadata={
                    "message_type": TURN,
                    "enqueue_mode": "call",
                    "inbox_id": row.inbox_id,
                    "recursion_depth": lineage.depth,
                    "cg_ctx": edge_context(row),
                    "request_sha256": digest,
                    "report_to": report_to,
                },
                created_at=None,
            )
        )

    def _result(self, row: InboxRow, *, created: bool) -> DispatchResult:
        queued = row.status == QUEUED
        return DispatchResult(
            status="accepted",
            agent_id=row.agent_id,
            agent_turn_id=row.turn_id,
            turn_epoch=None if queued else row.turn_epoch,
            queue_position=self.runtime.inbox.queue_position(row) if queued else None,
            context_box_id=row.pointer("context_box_id"),
            output_box_id=row.pointer("output_box_id"),
            inbox_id=row.inbox_id,
            recursion_depth=depth_of(row.context_headers),
            trace_id=trace_id_of(row.context_headers),
            created=created,
        )


def _refuse(status: str, error_code: str, message: str) -> NoReturn:
    raise _Refusal(status, error_code, message)
