"""Wakeups and events as messages: what the protocol's other speakers expect to the letter."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from cardbox_cli.errors import InvalidInput
from cardbox_cli.execution.notifications.notifier import TurnAddress, TurnEvent, Wakeup, wakeup_for
from cardbox_cli.execution.notifications.protocol import event_message, wakeup_message, wakeup_subject
from cardbox_cli.model.execution.turns import InboxRow

TRACE = "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01"
WAKEUP = Wakeup(
    project_id="p",
    channel_id="public",
    agent_id="writer",
    worker_target="writers",
    agent_turn_id="turn_1",
    turn_epoch=3,
    inbox_id="turn_1",
    traceparent=TRACE,
    reason="dispatch_next",
)
TURN = TurnAddress(
    project_id="p",
    channel_id="public",
    agent_id="writer",
    agent_turn_id="turn_1",
    turn_epoch=3,
    recursion_depth=2,
    traceparent=TRACE,
)
ADDED = {"CG-Version": "v1r4", "CG-Sender": "cbx"}


def test_a_wakeup_message_follows_the_protocol() -> None:
    message = wakeup_message(WAKEUP)
    assert message.subject == "cg.v1r4.p.public.cmd.agent.writers.wakeup"
    headers = dict(message.headers)
    sent = int(headers.pop("CG-Timestamp")) / 1000
    assert abs(sent - datetime.now(UTC).timestamp()) < 3600, "milliseconds"
    assert headers == {
        "CG-Project-Id": "p",
        "CG-Agent-Id": "writer",
        "CG-Channel-Id": "public",
        "CG-Turn-Id": "turn_1",
        "CG-Turn-Epoch": "3",
        "CG-Msg-Type": "wakeup",
        "traceparent": TRACE,
        **ADDED,
    }
    assert json.loads(message.body) == {"inbox_id": "turn_1", "reason": "dispatch_next"}


def test_a_wakeup_message_omits_absent_values() -> None:
    message = wakeup_message(
        Wakeup(project_id="p", channel_id="c", agent_id="a", worker_target="w", turn_epoch=0)
    )
    assert not {"CG-Turn-Id", "traceparent"} & set(message.headers)
    assert message.body == b"{}"


@pytest.mark.parametrize(
    ("headers", "traceparent"), [({"traceparent": TRACE}, TRACE), ({}, None), (None, None)]
)
def test_an_inbox_row_determines_its_wakeup(headers: Any, traceparent: str | None) -> None:
    row = InboxRow(
        inbox_id="turn_1",
        project_id="p",
        agent_id="writer",
        channel_id="public",
        message_type="turn",
        enqueue_mode="call",
        correlation_id="turn_1",
        agent_turn_id="turn_1",
        turn_epoch=3,
        context_headers=headers,
        payload={},
        status="pending",
        retry_count=0,
        next_retry_at=datetime.now(UTC),
        last_error=None,
        defer_reason=None,
        processed_at=None,
        archived_at=None,
        created_at=None,
    )
    assert wakeup_for(row, "writers", "dispatch_next") == replace(WAKEUP, traceparent=traceparent)


def test_an_event_message_follows_the_protocol() -> None:
    message = event_message(TurnEvent(TURN, "task", {"status": "success", "error": None}))
    assert message.subject == "cg.v1r4.p.public.evt.agent.writer.task"
    assert message.headers["CG-Recursion-Depth"] == "2"
    assert message.headers["CG-Msg-Type"] == "task"
    assert json.loads(message.body) == {"status": "success"}


@pytest.mark.parametrize("name", ["", "a.b", "a b", "*", "a>", "a\nb", "a\u00a0b", "a\x00"])
def test_a_name_that_is_invalid_in_a_subject_is_refused(name: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        wakeup_subject("p", name)
    assert refused.value.message == f"worker target {name!r} cannot be part of a NATS subject"
    assert refused.value.exit_code == 4


@pytest.mark.parametrize("odd", ["x\r\nCG-Sender: y", "x\x00", "x\u2028", "x" * 1001])
@pytest.mark.parametrize("part", ["agent_id", "agent_turn_id", "traceparent"])
def test_a_value_that_is_invalid_in_a_header_is_refused(part: str, odd: str) -> None:
    with pytest.raises(InvalidInput, match="cannot be a NATS header"):
        wakeup_message(replace(WAKEUP, **{part: odd}))
    with pytest.raises(InvalidInput):
        event_message(TurnEvent(replace(TURN, **{part: odd}), "task", {}))


@given(st.text(), st.text())
def test_every_valid_name_gives_a_subject_of_eight_parts(project: str, target: str) -> None:
    try:
        subject = wakeup_subject(project, target)
    except InvalidInput:
        return
    assert subject.split(".") == ["cg", "v1r4", project, "*", "cmd", "agent", target, "wakeup"]
    assert len(subject.split()) == 1


def test_all_projects_and_all_targets_are_wildcards() -> None:
    assert wakeup_subject(None, None) == "cg.v1r4.*.*.cmd.agent.*.wakeup"
