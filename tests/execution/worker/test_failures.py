"""Whose failure an unanswered step is, and what cbx does about it."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from cardbox_cli.execution.queue.claims import begin, claim
from cardbox_cli.execution.recovery.fixes import stop
from cardbox_cli.execution.recovery.reaping import reap
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.execution.worker.failures import Cause, cause_of_error, retry_after
from cardbox_cli.execution.worker.runner import CancellationToken, Run, RunOutcome
from cardbox_cli.execution.worker.turn_ledger import TurnLedger
from cardbox_cli.execution.worker.worker_program import Program
from cardbox_cli.store.profiles import ProfileStore
from tests.conftest import PROJECT
from tests.execution.fixtures import Asked

READS = "cat >/dev/null; "


@pytest.fixture
def attempt(runtime: Runtime) -> Callable[..., RunOutcome]:
    """Claim the due turn at a later time, and run it as one of several workers."""

    def attempt(
        command: str, *, owner: str = "w1", after: str = "0 s", leaving: bool = False, **limits: Any
    ) -> RunOutcome:
        runtime.database.connection.execute(f"SET cbx.clock_offset = '{after}'".encode())
        [claimed] = claim(runtime, target=None, owner=owner)
        work = begin(runtime, claimed.row, owner=owner)
        assert work.kind == "run", work.outcome
        token = CancellationToken(Event())
        if leaving:
            token.leaving.set()
        program = Program(command=command, **limits)
        return Run(lambda action: action(runtime), TurnLedger(work, owner=owner), program, token).run()

    return attempt


def set_retry(runtime: Runtime, retry: dict[str, Any]) -> None:
    box_id = (
        ProfileStore(runtime.database, PROJECT)
        .save({"name": "clerk", "worker_target": "worker_generic", "tags": [], "retry": retry}, author_id="t")
        .profile_box_id
    )
    runtime.database.connection.execute("UPDATE resource.project_agents SET profile_box_id = %s", [box_id])


@pytest.mark.parametrize(
    ("command", "limits"),
    [
        ("exit 9", {}),
        ("echo 'HTTP 429 Too Many Requests' >&2; echo 'Retry-After: 2' >&2; exit 22", {}),
        ("echo 'curl: (22) The requested URL returned error: 529' >&2; exit 22", {}),
        ("echo 'curl: (7) Failed to connect to localhost port 1' >&2; exit 7", {}),
        ("echo 'openai.APITimeoutError: Request timed out.' >&2; exit 1", {}),
        ("""echo '{"error": {"type": "overloaded_error", "message": "Overloaded"}}'""", {}),
        ("""echo '{"error": {"code": 503, "message": "The model is busy", "status": "UNAVAILABLE"}}'""", {}),
        ("sleep 100", {"timeout": 0.1}),
    ],
)
def test_a_transient_failure_defers_the_turn(
    runtime: Runtime, ask: Asked, attempt: Callable[..., RunOutcome], command: str, limits: dict[str, Any]
) -> None:
    turn = ask()
    outcome = attempt(READS + command, **limits)
    assert outcome.kind == "deferred"
    assert outcome.failure is not None
    assert outcome.failure.cause == "transient"
    [row] = runtime.inbox.list_by_turn(turn.agent_turn_id or "")
    head = runtime.heads.get("clerk")
    assert (row.status, row.retry_count, head.status if head else None) == ("deferred", 0, "dispatched")
    assert row.next_retry_at > runtime.database.now()
    assert head is not None
    assert head.updated_at == row.next_retry_at
    assert reap(runtime).total == 0
    assert attempt(READS + "echo done", after="90 s").end is not None
    record = runtime.turns.record(turn.agent_turn_id or "")
    assert record is not None
    assert record.end_status == "success"


def test_the_turn_fails_after_three_attempts(
    runtime: Runtime, ask: Asked, attempt: Callable[..., RunOutcome]
) -> None:
    ask()
    kinds = [attempt(READS + "exit 9", after=after).kind for after in ("0 s", "90 s")]
    last = attempt(READS + "exit 9", after="180 s")
    assert (kinds, last.kind, last.error_code) == (["deferred"] * 2, "ended", "command_failed")
    assert last.message.startswith("the command ended with exit code 9 (3 attempts in 18")


def test_an_answered_step_starts_the_count_again(
    ask: Asked, attempt: Callable[..., RunOutcome], tmp_path: Path
) -> None:
    ask()
    attempt(READS + "exit 9")
    attempt(READS + "exit 9", after="90 s")
    call = {"id": "c", "type": "function", "function": {"name": "x", "arguments": "{}"}}
    answer = json.dumps({"role": "assistant", "content": None, "tool_calls": [call]})
    once = f"test -e {tmp_path}/called && exit 9; touch {tmp_path}/called; echo '{answer}'"
    assert attempt(READS + once, after="180 s").kind == "deferred"


def test_the_profile_sets_the_attempts(
    runtime: Runtime, ask: Asked, attempt: Callable[..., RunOutcome]
) -> None:
    set_retry(runtime, {"attempts": 1})
    ask()
    outcome = attempt(READS + "exit 9")
    assert (outcome.kind, outcome.error_code) == ("ended", "command_failed")


def test_a_wait_beyond_the_limit_of_the_profile_fails_the_turn(
    runtime: Runtime, ask: Asked, attempt: Callable[..., RunOutcome]
) -> None:
    set_retry(runtime, {"max_elapsed_seconds": 60})
    ask()
    outcome = attempt(READS + "echo 'error 429, retry-after: 61' >&2; exit 1")
    assert outcome.kind == "ended"
    assert "another try would begin after 6" in outcome.message
    assert "the limit is 60 s (retry.max_elapsed_seconds)" in outcome.message


@pytest.mark.parametrize(
    "command", ["kill -9 $$", "kill -TERM $$", "exit 127", "exit 143", "echo banner; exit 1"]
)
def test_a_failure_of_the_worker_hands_the_turn_back(
    runtime: Runtime, ask: Asked, attempt: Callable[..., RunOutcome], command: str
) -> None:
    turn = ask()
    outcomes = [
        attempt(command, owner=owner, after=f"{minutes} minutes")
        for minutes, owner in enumerate(("w1", "w1", "w1", "w1", "w2"))
    ]
    assert {outcome.kind for outcome in outcomes} == {"deferred"}
    [row] = runtime.inbox.list_by_turn(turn.agent_turn_id or "")
    assert row.retry_count == 0
    last = attempt(command, owner="w3", after="1 hour")
    assert (last.kind, last.error_code) == ("ended", "worker_failed")
    assert last.message.startswith("3 workers could not run it; the last failure: the command ")


def test_a_client_that_runs_out_of_memory_is_a_failure_of_the_worker(
    ask: Asked, attempt: Callable[..., RunOutcome]
) -> None:
    ask()
    outcome = attempt(READS + "echo 'torch.OutOfMemoryError: CUDA out of memory' >&2; exit 1")
    assert outcome.failure is not None
    assert (outcome.kind, outcome.failure.cause) == ("deferred", "worker")


@pytest.mark.parametrize("command", ["kill -TERM $$", "exit 1", "true"])
def test_a_failure_while_the_worker_leaves_fails_no_turn(
    runtime: Runtime, ask: Asked, attempt: Callable[..., RunOutcome], command: str
) -> None:
    turn = ask()
    assert attempt(READS + command, leaving=True).kind == "handed_back"
    [row] = runtime.inbox.list_by_turn(turn.agent_turn_id or "")
    assert (row.status, row.retry_count) == ("pending", 0)


@pytest.mark.parametrize(
    ("output", "cause"),
    [
        ('{"error": {"type": "invalid_request_error", "message": "messages: no tool_use"}}', "refusal"),
        ('{"error": {"code": "insufficient_quota", "message": "429: check your billing"}}', "refusal"),
    ],
)
def test_a_refusal_of_the_provider_is_final(
    ask: Asked, attempt: Callable[..., RunOutcome], output: str, cause: Cause
) -> None:
    ask()
    outcome = attempt(f"{READS}echo '{output}'")
    assert outcome.failure is not None
    assert (outcome.kind, outcome.error_code, outcome.failure.cause) == ("ended", "provider_error", cause)


@pytest.mark.parametrize(
    ("error", "seconds"),
    [
        ("Retry-After: 2", 2),
        ('{"retry_after": 1.5}', 1.5),
        ('"retryDelay": "34s"', 34),
        ("retry-after-ms: 250", 0.25),
        ("Please try again in 400ms.", 0.4),
        ("Retry-After: Wed, 25 Nov 2026 12:00:30 GMT", 30),
        ("it failed", None),
    ],
)
def test_the_wait_that_a_provider_asks_for_is_read(error: str, seconds: float | None) -> None:
    assert retry_after(error, datetime(2026, 11, 25, 12, tzinfo=UTC)) == seconds


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        ("KeyError: 'choices'", "answer"),
        ("the tool answered 5030 rows", "answer"),
        ("HTTP/1.1 502 Bad Gateway", "transient"),
        ("Error code: 401 - invalid key", "refusal"),
    ],
)
def test_the_text_of_an_error_shows_its_cause(error: str, cause: Cause) -> None:
    assert cause_of_error(error) == cause


def test_a_deferred_turn_can_be_stopped(
    runtime: Runtime, ask: Asked, attempt: Callable[..., RunOutcome]
) -> None:
    turn = ask()
    attempt(READS + "exit 9")
    stop(runtime, turn.agent_turn_id or "", reason="too slow", actor="t")
    record = runtime.turns.record(turn.agent_turn_id or "")
    assert record is not None
    assert record.end_status == "canceled"
