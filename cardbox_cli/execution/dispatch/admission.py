"""Admission: whether a request for a turn is accepted, and on what terms. Each check has its error code.

Reads, locks what must not change until the turn is asked for, and makes the output box; dispatching is
`dispatch.py`'s.
"""

from functools import cached_property
from typing import Any

import msgspec

from cardbox_cli.errors import BoxConflict
from cardbox_cli.execution.dispatch.request import DispatchRequest, refuse
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.model.boxes import BoxView
from cardbox_cli.model.card_types import PROFILE
from cardbox_cli.model.execution.headers import Lineage, as_trace_id, new_trace_id
from cardbox_cli.model.execution.turns import MAX_DEPTH, Head, InboxRow
from cardbox_cli.model.identity import ARCHIVED, PLATFORM, Agent
from cardbox_cli.model.ids import as_box_id, new_box_id
from cardbox_cli.packing.plan import target_profile_name
from cardbox_cli.store.projects import ProjectsStore


class Admission:
    """The checks of one request, within its transaction. All raise Refusal."""

    def __init__(self, runtime: Runtime, request: DispatchRequest) -> None:
        self._runtime = runtime
        self._request = request

    def target(self) -> Agent:
        """The agent that is asked."""
        agent_id = self._request.target_agent_id
        if not agent_id.strip():
            refuse("missing_agent_id", "no agent is named")
        agent = self._runtime.roster.find(agent_id)
        if agent is None:
            refuse("agent_not_found", f"no agent {agent_id!r} in project {self._runtime.project_id!r}")
        if not agent.worker_target.strip():
            refuse("worker_target_missing", f"agent {agent_id!r} has no worker target", "error")
        return agent

    def profile_box(self, agent: Agent) -> str:
        """The box of the profile that the turn runs with: the agent's, and the recipe's."""
        box_id = self._request.profile_box_id or agent.profile_box_id
        view = self._view(as_box_id(box_id))
        if view is None:
            refuse(
                "profile_not_found", f"the profile box {box_id!r} of agent {agent.agent_id!r} is not there"
            )
        profile = next((card for card in view.cards if card.type == PROFILE), None)
        if profile is None:
            refuse("profile_not_found", f"the box {box_id!r} holds no sys.profile card")
        self._check_recipe_profile(getattr(profile.content, "data", None), agent)
        return view.box.box_id

    def _view(self, box_id: str | None) -> BoxView | None:
        if box_id is None:
            return None
        found = self._runtime.boxes.get_many([box_id])
        return self._runtime.boxes.view(box_id) if found.boxes else None

    def _check_recipe_profile(self, profile: Any, agent: Agent) -> None:
        handover = self._request.handover
        if handover is None:
            return
        wanted = target_profile_name(handover.recipe, handover.recipe.bind(handover.arguments))
        named = profile.get("name") if isinstance(profile, dict) else None
        if not isinstance(named, str) or named.lower() != wanted.lower():
            refuse(
                "profile_mismatch",
                f"the recipe packs for profile {wanted!r}, agent {agent.agent_id!r} has profile {named!r}",
            )

    def context_box(self) -> str:
        """The box that the turn reads, held."""
        given = self._request.context_box_id
        if not given:
            refuse("missing_context_box_id", "no context box is named")
        box_id = as_box_id(given)
        # Held, so that nobody who found it unused changes it while the turn is being asked for.
        if box_id is None or not self._runtime.boxes.share(box_id):
            refuse("context_box_not_found", f"no box {given!r} in project {self._runtime.project_id!r}")
        return box_id

    @cached_property
    def _parent_row(self) -> InboxRow | None:
        parent = self._request.parent
        if parent is None:
            return None
        row = self._runtime.inbox.turn_row(parent.agent_turn_id)
        if row is None:
            refuse("parent_turn_not_found", f"no turn {parent.agent_turn_id!r}")
        return row

    def lineage(self) -> Lineage:
        """Where the turn stands below its parent; a root has none, even one that somebody asked for."""
        request, row = self._request, self._parent_row
        above = None if row is None else row.lineage
        if request.trace_id is not None and as_trace_id(request.trace_id) is None:
            refuse("protocol_violation", f"the trace id {request.trace_id!r} is not 32 hex digits")
        depths = {"root": 0, "peer": above.depth if above else 0, "descend": above.depth + 1 if above else 0}
        depth = depths[request.depth_policy]
        if depth >= MAX_DEPTH:
            refuse(
                "recursion_depth_exceeded",
                f"the turn would be {depth} descents deep; the limit is {MAX_DEPTH - 1}",
            )
        trace_id = as_trace_id(request.trace_id or "") or (above.trace_id if above else None)
        lineage = Lineage(depth=depth, trace_id=trace_id or new_trace_id())
        if request.parent is None or row is None or request.depth_policy == "root":
            return lineage
        return msgspec.structs.replace(
            lineage,
            parent_agent_id=row.agent_id,
            parent_turn_id=request.parent.agent_turn_id,
            parent_step_id=request.parent.step_id,
        )

    def check_source(self) -> None:
        """Whoever asks is on the roster, or of the platform."""
        source = self._request.source_agent_id
        if not source.startswith(PLATFORM) and self._runtime.roster.find(source) is None:
            refuse(
                "invalid_source_actor",
                f"the source {source!r} is no agent of project {self._runtime.project_id!r}",
            )

    def refuse_archived(self) -> None:
        """The project is not archived."""
        database = self._runtime.database
        if "public.projects" not in database.tables:
            return
        project = ProjectsStore(database).find(self._runtime.project_id)
        if project is not None and project.status == ARCHIVED:
            refuse("project_archived", f"project {project.project_id!r} is archived")

    def refuse_busy(self, head: Head) -> None:
        """The agent is idle, and nothing is queued for it."""
        waiting = self._runtime.inbox.oldest_queued(head.agent_id)
        if head.status != "idle" or waiting is not None:
            turn = head.active_agent_turn_id or (waiting.turn_id if waiting else "")
            refuse("agent_busy", f"agent {head.agent_id!r} is at turn {turn}", "busy")

    def output_box(self, agent_id: str) -> str:
        """The box that the turn writes, made if it is not there, and that no other agent's turn writes."""
        given = self._request.output_box_id
        if given is None:
            return self._runtime.boxes.ensure(new_box_id()).box_id
        box_id = as_box_id(given)
        if box_id is None:
            refuse("output_box_not_found", f"the output box {given!r} is no box id")
        try:
            self._runtime.boxes.ensure(box_id)
        except BoxConflict as exc:
            refuse("output_box_not_found", exc.message)
        self._runtime.turns.lock_box(box_id)
        user = self._runtime.inbox.output_box_user(box_id, agent_id, to_come=True)
        if user is not None:
            refuse(
                "output_box_in_use", f"the output box {box_id} is that of turn {user[0]} of agent {user[1]!r}"
            )
        return box_id

    def report_to(self) -> dict[str, str] | None:
        """The call that waits for the end of the turn."""
        parent, row = self._request.parent, self._parent_row
        if parent is None or parent.tool_call_id is None or row is None:
            return None
        return {
            "agent_id": row.agent_id,
            "agent_turn_id": parent.agent_turn_id,
            "tool_call_id": parent.tool_call_id,
        }
