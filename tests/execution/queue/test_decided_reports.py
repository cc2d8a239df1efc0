"""A report that comes, one that is claimed, and what is overdue, as functions of values."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from cardbox_cli.errors import Conflict
from cardbox_cli.execution.queue.messages import TIMEOUT
from cardbox_cli.execution.queue.reports import decide_report, is_replay, message_of
from cardbox_cli.execution.recovery.reaping import decide_deadline, decide_expiry
from cardbox_cli.model.cards import Card
from cardbox_cli.model.content import TextContent
from cardbox_cli.model.execution.situations import ClaimedSituation
from cardbox_cli.model.execution.turns import Fence, Head, InboxRow, Lease, WaitingTool
from cardbox_cli.store.execution.report_store import ReportSituation
from tests.execution.desk import result_of

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ROW = InboxRow(
    inbox_id="report_a",
    project_id="p",
    agent_id="clerk",
    channel_id="public",
    message_type="tool_result",
    enqueue_mode="call",
    correlation_id="a",
    agent_turn_id="turn_a",
    turn_epoch=1,
    context_headers={},
    payload={"tool_result_card_id": "card_a"},
    status="processing",
    retry_count=1,
    next_retry_at=NOW,
    last_error=None,
    defer_reason=None,
    processed_at=NOW,
    archived_at=None,
    created_at=NOW,
)
HEAD = Head(
    agent_id="clerk",
    status="suspended",
    active_agent_turn_id="turn_a",
    active_channel_id="public",
    turn_epoch=1,
    active_recursion_depth=0,
    parent_step_id=None,
    trace_id=None,
    profile_box_id=None,
    context_box_id=None,
    output_box_id=None,
    waiting_tool_count=1,
    resume_deadline=None,
    updated_at=NOW,
)
LEASE = Lease(
    inbox_id="report_a",
    agent_id="clerk",
    agent_turn_id="turn_a",
    turn_epoch=1,
    owner="w",
    claimed_at=NOW,
    heartbeat_at=NOW,
    expires_at=NOW,
)


def call(name: str, status: str = "waiting", **changed: Any) -> WaitingTool:
    """A call whose result is the card of its name."""
    known = WaitingTool(
        agent_id="clerk",
        agent_turn_id="turn_a",
        turn_epoch=1,
        tool_call_id=name,
        step_id="step_1",
        tool_name="look",
        wait_status=status,
        tool_result_card_id=None if status == "waiting" else f"card_{name}",
        created_at=NOW,
        received_at=None,
        applied_at=None,
    )
    return msgspec.structs.replace(known, **changed)


def card(name: str, **content: Any) -> Card:
    """The result of the call of this name."""
    said = result_of(**content)
    return Card(
        card_id=f"card_{name}",
        project_id="p",
        type="tool.result",
        role="tool",
        author_id=None,
        content=said,
        tool_calls=None,
        tool_call_id=name,
        ttl_seconds=None,
        metadata={},
        created_at=NOW,
        expires_at=None,
        deleted_at=None,
    )


FOUND = ClaimedSituation(
    row=ROW, head=HEAD, lease=LEASE, output_start=0, calls=[call("a", "received")], results=[card("a")]
)
OTHER_STEP = call("b", "applied", step_id="step_0")
ENDS = {"after_execution": "terminate"}
TOLD = msgspec.structs.replace(card("a"), content=TextContent("done"), type="agent.thought")


def head(**changed: Any) -> Head:
    return msgspec.structs.replace(HEAD, **changed)


@pytest.mark.parametrize(
    ("changed", "outcome", "told"),
    [
        ({}, "resumed", None),
        ({"calls": [call("a")]}, "resumed", None),
        ({"calls": [call("a", "received"), call("b")]}, "waiting", "1 more result to come"),
        (
            {"calls": [call("a", "received"), call("b", "received"), call("c")]},
            "waiting",
            "2 more results to come",
        ),
        ({"calls": [call("b", "dropped"), call("a", "received")]}, "resumed", None),
        # A call of this id that was waited for before counts no more.
        ({"calls": [call("a", "applied"), call("a", "received", turn_epoch=2)]}, "resumed", None),
        ({"head": None}, "stale", "its turn is no longer active"),
        ({"head": head(active_agent_turn_id="turn_b")}, "stale", "its turn is no longer active"),
        ({"calls": None}, "stale", "its turn does not wait for that call"),
        ({"calls": [call("b")]}, "stale", "its turn does not wait for that call"),
        ({"calls": [call("a", "applied")]}, "stale", "its turn does not wait for that call"),
        ({"head": head(status="running")}, "busy", "its turn is running"),
        ({"head": head(status="dispatched"), "calls": None}, "busy", "its turn is dispatched"),
        (
            {"head": head(status="running"), "calls": [call("a", "applied")]},
            "stale",
            "its result was already applied",
        ),
        ({"results": []}, "early", "its card 'card_a' is not visible, or is not a result of the call"),
        ({"results": [TOLD]}, "early", "its card 'card_a' is not visible, or is not a result of the call"),
        (
            {"results": [card("b")]},
            "early",
            "its card 'card_a' is not visible, or is not a result of the call",
        ),
        (
            {"row": msgspec.structs.replace(ROW, payload=[])},
            "early",
            "its card '' is not visible, or is not a result of the call",
        ),
    ],
)
def test_the_situation_decides_the_outcome_of_a_report(
    changed: dict[str, Any], outcome: str, told: str | None
) -> None:
    applied = decide_report(msgspec.structs.replace(FOUND, **changed))
    assert (applied.outcome, applied.reason) == (outcome, told)
    is_applied = outcome in ("resumed", "waiting")
    assert (applied.card_id if applied.call else None) == ("card_a" if is_applied else None)
    assert applied.fence == Fence("clerk", "turn_a", 1)


@pytest.mark.parametrize(
    ("calls", "results", "end_status"),
    [
        ([call("a")], [card("a", **ENDS)], "success"),
        ([call("a")], [card("a", status="failed", **ENDS)], "failed"),
        ([call("b", "applied"), call("a")], [card("b", **ENDS), card("a")], "success"),
        ([call("b", "applied"), call("a")], [card("a", **ENDS), card("b", status="timeout")], "timeout"),
        ([OTHER_STEP, call("a")], [card("a"), card("b", **ENDS)], None),
    ],
    ids=["its own", "that failed", "another of the step", "beside a failure", "another step's"],
)
def test_a_result_may_end_the_turn(
    calls: list[WaitingTool], results: list[Card], end_status: str | None
) -> None:
    applied = decide_report(msgspec.structs.replace(FOUND, calls=calls, results=results))
    found = (applied.outcome, applied.end_status)
    assert found == (("terminate", end_status) if end_status else ("resumed", "success"))


def test_a_report_answers_the_newest_waiting_call() -> None:
    calls = [call("a", "dropped", turn_epoch=1), call("a", "received", turn_epoch=3)]
    assert decide_report(msgspec.structs.replace(FOUND, calls=calls)).call == calls[1]


@pytest.mark.parametrize(
    ("changed", "max_attempts", "outcome"),
    [
        ({}, 3, "released"),
        ({}, 2, "dead"),
        ({"lease": None}, 3, "kept"),
        ({"lease": msgspec.structs.replace(LEASE, owner="v")}, 3, "kept"),
        ({"lease": msgspec.structs.replace(LEASE, expires_at=NOW + timedelta(seconds=1))}, 2, "kept"),
        ({"row": msgspec.structs.replace(ROW, status="pending")}, 3, "over"),
        ({"row": msgspec.structs.replace(ROW, status="consumed")}, 2, "over"),
    ],
)
def test_an_expired_lease_is_released_or_dead(
    changed: dict[str, Any], max_attempts: int, outcome: str
) -> None:
    found = msgspec.structs.replace(FOUND, **changed)
    assert decide_expiry(found, LEASE, max_attempts=max_attempts) == outcome


OVERDUE = msgspec.structs.replace(HEAD, resume_deadline=NOW)
LATER = NOW + timedelta(seconds=1)


@pytest.mark.parametrize(
    ("found", "calls", "rows", "due"),
    [
        (OVERDUE, [call("a")], [], "report"),
        (OVERDUE, [call("a", "received"), call("b")], [ROW], "report"),
        (OVERDUE, [call("a", "received")], [ROW], "wait"),
        (OVERDUE, [call("a", "received")], [msgspec.structs.replace(ROW, status="error")], "lost"),
        (OVERDUE, [call("a", "received")], [msgspec.structs.replace(ROW, message_type="turn")], "lost"),
        (OVERDUE, [], [], "lost"),
        (None, [call("a")], [], "kept"),
        (msgspec.structs.replace(OVERDUE, status="running"), [call("a")], [], "kept"),
        (msgspec.structs.replace(OVERDUE, turn_epoch=2), [call("a")], [], "kept"),
        (msgspec.structs.replace(OVERDUE, active_agent_turn_id="turn_b"), [call("a")], [], "kept"),
        (msgspec.structs.replace(OVERDUE, resume_deadline=LATER), [call("a")], [], "kept"),
    ],
)
def test_an_expired_deadline_is_reported_or_lost(
    found: Head | None, calls: list[WaitingTool], rows: list[InboxRow], due: str
) -> None:
    assert decide_deadline(OVERDUE, found, calls, rows) == due


class TestThatComes:
    @pytest.mark.parametrize(
        ("waiting", "is_there"),
        [
            (call("a"), False),
            # Another program's, which reports before it stores.
            (call("a", tool_result_card_id="card_b"), False),
            (call("a", "received"), True),
            (call("a", "applied"), True),
        ],
    )
    def test_a_call_that_has_its_result_makes_a_report_a_replay(
        self, waiting: WaitingTool, is_there: bool
    ) -> None:
        assert is_replay(waiting, "card_a") == is_there

    @pytest.mark.parametrize(
        ("waiting", "told"),
        [
            (call("a", "dropped"), "turn turn_a no longer waits for the call 'a'"),
            (call("a", "unheard of"), "turn turn_a no longer waits for the call 'a'"),
            (
                call("a", "received", tool_result_card_id="card_b"),
                "the call 'a' of turn turn_a already has a different result: card card_b",
            ),
            (
                call("a", "applied", tool_result_card_id=None),
                "the call 'a' of turn turn_a already has a different result: card None",
            ),
        ],
    )
    def test_a_report_for_a_call_that_does_not_wait_is_refused(self, waiting: WaitingTool, told: str) -> None:
        with pytest.raises(Conflict) as refused:
            is_replay(waiting, "card_a")
        assert refused.value.message == told

    def test_a_report_message_has_the_fence_and_the_channel_of_its_turn(self) -> None:
        asked = msgspec.structs.replace(ROW, channel_id="aside", turn_epoch=7)
        found = ReportSituation(waiting=call("a", turn_epoch=3), asked=asked, worker_target=None)
        message = message_of(found, "card_a", result_of(status="timeout"), TIMEOUT)
        assert (message.type, message.fence, message.channel_id) == (
            TIMEOUT,
            Fence("clerk", "turn_a", 3),
            "aside",
        )
        assert (message.correlation_id, message.tool_call_id, message.step_id) == ("a", "a", "step_1")
        assert message.payload == {
            "after_execution": "suspend",
            "status": "timeout",
            "tool_result_card_id": "card_a",
        }

    def test_a_report_to_a_turn_that_lost_its_row_is_refused(self) -> None:
        found = ReportSituation(waiting=call("a"), asked=None, worker_target=None)
        with pytest.raises(Conflict, match="has lost its inbox row"):
            message_of(found, "card_a", result_of())
