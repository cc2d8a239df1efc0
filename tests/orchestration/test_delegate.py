"""Delegating at the same time, and the ids that callers bring."""

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest

from cardbox_cli.errors import Conflict, CorrelationConflict
from cardbox_cli.execution.dispatch_requests import Caller, DispatchResult, calling_turn
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.orchestration.delegation import ask_expert, delegate, refuse_answered
from tests.execution.desk import Desk
from tests.orchestration.conftest import task

AtOnce = Callable[..., Future[Any]]
OPERATOR = Caller()


def test_the_second_of_two_concurrent_calls_succeeds_when_it_is_repeated(
    runtime: Runtime, second: Desk, at_once: AtOnce
) -> None:
    def other() -> DispatchResult:
        return delegate(second.runtime, OPERATOR, task(), agent_turn_id="turn_a").result

    with runtime.transaction():
        first = delegate(runtime, OPERATOR, task(), agent_turn_id="turn_a").result
        future = at_once(other)
    with pytest.raises(CorrelationConflict, match="another dispatch has just used the turn id 'turn_a'"):
        future.result()
    assert other().agent_id == first.agent_id
    assert len(runtime.inbox.list_by_turn("turn_a")) == 1


def test_workers_are_notified_after_the_commit(runtime: Runtime, heard: Any) -> None:
    with runtime.transaction():
        delegate(runtime, OPERATOR, task())
        assert heard.wakeups == []
    assert [wakeup.worker_target for wakeup in heard.wakeups] == ["worker_generic"]


def test_a_turn_id_can_be_used_by_one_caller_only(runtime: Runtime, asking: Caller) -> None:
    delegate(runtime, asking, task(), agent_turn_id="turn_a")
    assert delegate(runtime, asking, task(), agent_turn_id="turn_a").result.created is False
    with pytest.raises(CorrelationConflict, match="was already used for a different request"):
        delegate(runtime, OPERATOR, task(), agent_turn_id="turn_a")


def test_a_turn_id_cannot_be_the_correlation_id_of_another_turn(
    runtime: Runtime, ask: Callable[..., DispatchResult]
) -> None:
    ask("scribe", correlation_id="nightly")
    with pytest.raises(
        CorrelationConflict,
        match=r"'nightly' was already used for a different request \(a turn of agent 'scribe'\)",
    ):
        delegate(runtime, OPERATOR, task(), agent_turn_id="nightly")


def test_only_one_turn_can_answer_a_call(
    runtime: Runtime, lead: str, ask: Callable[..., DispatchResult]
) -> None:
    turn_id = ask(lead).agent_turn_id or ""
    caller = calling_turn(runtime, turn_id, tool_call_id="c")
    refuse_answered(runtime, caller)
    ask_expert(runtime, caller, "clerk", "?")
    refuse_answered(runtime, caller)
    asked = ask_expert(runtime, caller, "clerk", "?", waits=True).result
    with pytest.raises(Conflict, match=f"turn {asked.agent_turn_id} already answers the call 'c'"):
        refuse_answered(runtime, caller)


def test_the_child_inherits_the_channel_and_the_trace_of_its_parent(
    runtime: Runtime, lead: str, ask: Callable[..., DispatchResult]
) -> None:
    above = ask(lead, channel_id="night")
    asked = delegate(runtime, calling_turn(runtime, above.agent_turn_id or ""), task()).result
    row = runtime.inbox.turn_row(asked.agent_turn_id or "")
    assert row is not None
    assert (row.channel_id, row.lineage.trace_id, asked.recursion_depth) == ("night", above.trace_id, 1)
