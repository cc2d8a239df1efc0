"""The moves of a worker, made one by one."""

from datetime import timedelta

import msgspec

from cardbox_cli.execution.queue.claims import ClaimedWork, begin, claim
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.model.cards import draft_card
from cardbox_cli.model.content import JsonContent
from cardbox_cli.model.execution.turns import Fence, new_id

OWNER = "w"

# One that keeps nothing of its request.
_STEP = """
    INSERT INTO state.agent_steps
        (project_id, agent_id, step_id, agent_turn_id, channel_id, parent_step_id, trace_id, status, profile_box_id,
         context_box_id, output_box_id, metadata, started_at)
    VALUES (%(project_id)s, %(agent_id)s, %(step_id)s, %(active_agent_turn_id)s, %(active_channel_id)s,
        %(parent_step_id)s, %(trace_id)s, 'started', %(profile_box_id)s, %(context_box_id)s, %(output_box_id)s, '{}',
        clock_timestamp())
"""


def take(runtime: Runtime, owner: str = OWNER) -> ClaimedWork:
    """Claim the one row that is due, and find out what it asks for."""
    [claimed] = claim(runtime, target=None, owner=owner)
    return begin(runtime, claimed.row, owner=owner)


def enter(runtime: Runtime, fence: Fence) -> str:
    """Begin the first step of a turn; its id."""
    with runtime.transaction():
        runtime.heads.hold(fence)
        runtime.heads.move(fence, "enter")
        return begin_step(runtime, fence)


def begin_step(runtime: Runtime, fence: Fence) -> str:
    """Begin a step of a running turn; its id."""
    step_id = new_id("step")
    with runtime.transaction():
        head = runtime.heads.hold(fence)
        values = {**msgspec.structs.asdict(head), "step_id": step_id, "project_id": runtime.project_id}
        runtime.database.connection.execute(_STEP, values)
    return step_id


def write(runtime: Runtime, fence: Fence, text: str | dict[str, object], type: str = "agent.thought") -> str:
    """Write a card to the output box of a turn; its id."""
    content = text if isinstance(text, str) else JsonContent(text)
    card = draft_card(
        type,
        content,
        author_id=fence.agent_id,
        metadata={"agent_turn_id": fence.agent_turn_id},
    )
    with runtime.transaction():
        head = runtime.heads.hold(fence)
        runtime.cards.add(card)
        runtime.boxes.append(head.output_box_id or "", [card.card_id], fence=fence)
    return card.card_id


def suspend(runtime: Runtime, fence: Fence, step_id: str, calls: dict[str, str]) -> None:
    """Let a running turn wait for these calls, given with the names of their tools."""
    with runtime.transaction():
        runtime.heads.hold(fence)
        runtime.turns.move_step(fence.agent_id, step_id, "suspended", tool_call_ids=list(calls))
        assert runtime.steps.suspend(fence, step_id, calls, inbox_id="", wait=timedelta(minutes=5))
        runtime.inbox.close(fence.agent_turn_id)
