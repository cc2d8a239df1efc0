"""A turn as its next step finds it, read from its boxes at its fence."""

import msgspec

from cardbox_cli.execution.requests.source import context_of
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.execution.tool_calls import Author
from cardbox_cli.execution.worker.runs.ledger import RunState
from cardbox_cli.model.execution.turns import STEP_ANSWERED, Fence, Head


class TurnState(RunState, frozen=True, kw_only=True):
    """A turn as its next step finds it."""

    head: Head

    @property
    def fence(self) -> Fence:
        """The fence that it was read at."""
        return self.head.fence


def read_turn(runtime: Runtime, fence: Fence) -> TurnState:
    """The turn at `fence`. Raises StaleEpoch where it is elsewhere, NotFound for a box that is gone."""
    # A step counts against the limit once the model has answered.
    stored = runtime.contexts.read(fence.agent_turn_id, agent_id=fence.agent_id, answered=STEP_ANSWERED)
    head = stored.head
    if head is None or head.fence != fence:
        raise runtime.heads.stale(fence, head)
    named = {"output": head.output_box_id, "context": head.context_box_id, "profile": head.profile_box_id}
    return TurnState(
        head=head,
        steps=len(stored.answered),
        step_id=stored.answered[-1] if stored.answered else None,
        **msgspec.structs.asdict(context_of(stored, runtime.project_id, named, runtime.handlers)),
    )


def author_of(turn: TurnState) -> Author:
    """On whose behalf results of the last step's calls are written."""
    return author_in(turn.head, turn.step_id or "")


def author_in(head: Head, step_id: str) -> Author:
    """On whose behalf cards of this step of the head's turn are written."""
    return Author(
        agent_id=head.agent_id,
        agent_turn_id=head.fence.agent_turn_id,
        step_id=step_id,
        trace_id=head.trace_id,
        parent_step_id=head.parent_step_id,
    )
