"""What is in the way of a promotion, as a function of values; and what a promotion sees that had to wait."""

from collections.abc import Callable
from concurrent.futures import Future
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from cardbox_cli.execution.queue.promotion import SkippedRow, UnfitRow, decide_promotion
from cardbox_cli.execution.queue.turn_ends import end_turn
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.model.execution.situations import PromotionSituation
from cardbox_cli.model.execution.turns import InboxRow
from cardbox_cli.store.connection.database import jsonb
from tests.execution.desk import Desk, unwatched
from tests.execution.fixtures import Asked

NOW = datetime(2026, 1, 1, tzinfo=UTC)
BOX = "00000000-0000-7000-8000-000000000001"
ROW = InboxRow(
    inbox_id="turn_a",
    project_id="p",
    agent_id="clerk",
    channel_id="public",
    message_type="turn",
    enqueue_mode="call",
    correlation_id="turn_a",
    agent_turn_id="turn_a",
    turn_epoch=0,
    context_headers={"traceparent": f"00-{'a' * 32}-{'1' * 16}-01", "CG-Recursion-Depth": "0"},
    payload={"profile_box_id": BOX, "context_box_id": BOX, "output_box_id": BOX},
    status="queued",
    retry_count=0,
    next_retry_at=NOW,
    last_error=None,
    defer_reason=None,
    processed_at=None,
    archived_at=None,
    created_at=NOW,
)
GOOD = PromotionSituation(
    now=NOW,
    row=ROW,
    is_repeated=False,
    end_status=None,
    worker_target="w",
    has_output_box=True,
    output_user=None,
    output_start=0,
)


@pytest.mark.parametrize(
    ("changed", "is_taken", "found"),
    [
        ({}, False, None),
        ({"has_output_box": False}, False, None),
        ({"worker_target": None}, False, None),
        ({"is_repeated": True}, False, SkippedRow()),
        ({"end_status": "failed", "output_user": ("turn_o", "scribe")}, False, SkippedRow()),
        (
            {"row": msgspec.structs.replace(ROW, payload=[])},
            False,
            UnfitRow("invalid_payload_type", "its payload is not an object"),
        ),
        (
            {"output_user": ("turn_o", "scribe")},
            False,
            UnfitRow("output_box_in_use", "turn turn_o of agent 'scribe' writes to its output box"),
        ),
        (
            {"has_output_box": False},
            True,
            UnfitRow("output_box_not_found", f"the box id '{BOX}' is taken"),
        ),
        ({}, True, None),
    ],
)
def test_the_situation_decides_whether_a_turn_is_promoted(
    changed: dict[str, Any], is_taken: bool, found: Any
) -> None:
    assert decide_promotion(msgspec.structs.replace(GOOD, **changed), is_taken=is_taken) == found


class TestThatWaited:
    def test_a_turn_with_an_output_box_in_use_is_not_promoted(
        self,
        ask: Asked,
        desk: Desk,
        second: Desk,
        runtime: Runtime,
        at_once: Callable[[Callable[[], Any]], Future[Any]],
    ) -> None:
        box_id = runtime.boxes.create([]).box_id
        ask()
        task = desk.enter()
        queued = ask()
        with unwatched(runtime.database.connection) as connection:
            connection.execute(
                "UPDATE state.agent_inbox SET payload = payload || %s WHERE inbox_id = %s",
                [jsonb({"output_box_id": box_id}), queued.inbox_id],
            )
        with runtime.transaction():
            # It is asked for by a program that looks at no queue.
            runtime.turns.lock_box(box_id)
            ending = at_once(lambda: end_turn(second.runtime, task.fence, "success"))
            connection.execute(
                "UPDATE state.agent_state_head SET status = 'dispatched', turn_epoch = turn_epoch + 1,"
                " active_agent_turn_id = 'turn_s', output_box_id = %s WHERE agent_id = 'scribe'",
                [box_id],
            )
        assert ending.result().promoted_turn_id is None
        assert desk.row(queued.inbox_id or "").last_error == (
            "output_box_in_use: turn turn_s of agent 'scribe' writes to its output box"
        )
