"""Judging is total and pure: any rows whatever give one verdict, the same each time, and words that help."""

from datetime import UTC, datetime, timedelta

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cardbox_cli.diagnosis.registry import rules
from cardbox_cli.diagnosis.snapshot import Snapshot
from cardbox_cli.diagnosis.verdict import judge
from cardbox_cli.model.execution.turns import (
    Head,
    InboxRow,
    Lease,
    Step,
    TurnRecord,
    WaitingTool,
    WorkerEntry,
)
from cardbox_cli.settings import Settings

NOW = datetime(2026, 11, 22, 9, 30, tzinfo=UTC)
TURN = "turn_1"

moments = st.integers(-4000, 4000).map(lambda seconds: NOW + timedelta(seconds=seconds))
maybe = st.none() | moments
epochs = st.integers(0, 2)

heads = st.builds(
    Head,
    agent_id=st.just("a"),
    status=st.sampled_from(["idle", "dispatched", "running", "suspended", "odd"]),
    active_agent_turn_id=st.sampled_from([None, TURN, "turn_2"]),
    active_channel_id=st.none(),
    turn_epoch=epochs,
    active_recursion_depth=st.just(0),
    parent_step_id=st.none(),
    trace_id=st.none(),
    profile_box_id=st.none(),
    context_box_id=st.none(),
    output_box_id=st.none(),
    waiting_tool_count=st.integers(0, 2),
    resume_deadline=maybe,
    updated_at=maybe,
)
rows = st.builds(
    InboxRow,
    inbox_id=st.sampled_from([TURN, "inbox_1", "inbox_2"]),
    project_id=st.just("p"),
    agent_id=st.just("a"),
    channel_id=st.just("public"),
    message_type=st.sampled_from(["turn", "tool_result", "timeout", "stop"]),
    enqueue_mode=st.none(),
    correlation_id=st.sampled_from([None, TURN, "call_1"]),
    agent_turn_id=st.just(TURN),
    turn_epoch=epochs,
    context_headers=st.just({}),
    payload=st.just({}),
    status=st.sampled_from(
        ["queued", "pending", "processing", "deferred", "consumed", "error", "skipped", "odd"]
    ),
    retry_count=st.integers(0, 5),
    next_retry_at=moments,
    last_error=st.none(),
    defer_reason=st.none(),
    processed_at=maybe,
    archived_at=st.none(),
    created_at=maybe,
)
leases = st.builds(
    Lease,
    inbox_id=st.sampled_from([TURN, "inbox_1"]),
    agent_id=st.just("a"),
    agent_turn_id=st.just(TURN),
    turn_epoch=epochs,
    owner=st.just("w"),
    claimed_at=moments,
    heartbeat_at=moments,
    expires_at=moments,
)
calls = st.builds(
    WaitingTool,
    agent_id=st.just("a"),
    agent_turn_id=st.just(TURN),
    turn_epoch=epochs,
    tool_call_id=st.just("call_1"),
    step_id=st.just("step_1"),
    tool_name=st.just("search"),
    wait_status=st.sampled_from(["waiting", "received", "applied", "dropped"]),
    tool_result_card_id=st.none(),
    created_at=moments,
    received_at=st.none(),
    applied_at=st.none(),
)
steps = st.builds(
    Step,
    step_id=st.just("step_1"),
    agent_id=st.just("a"),
    agent_turn_id=st.just(TURN),
    status=st.sampled_from(["started", "completed", "failed", "suspended"]),
    trace_id=st.none(),
    parent_step_id=st.none(),
    request_box_id=st.none(),
    tool_call_ids=st.none(),
    error=st.none(),
    metadata=st.just({}),
    started_at=maybe,
    ended_at=maybe,
)
records = st.builds(
    TurnRecord,
    agent_turn_id=st.just(TURN),
    agent_id=st.just("a"),
    output_start=st.none(),
    report_to=st.none(),
    end_status=st.sampled_from([None, "success"]),
    end_epoch=st.none(),
    deliverable_card_id=st.none(),
    error_code=st.none(),
    error=st.none(),
    created_at=moments,
    ended_at=maybe,
)
workers = st.builds(
    WorkerEntry,
    worker_id=st.just("w"),
    project_id=st.none(),
    worker_target=st.just("t"),
    host=st.just("h"),
    pid=st.just(1),
    concurrency=st.integers(1, 2),
    started_at=moments,
    heartbeat_at=moments,
    expires_at=moments,
    live=st.booleans(),
)


def several(kind: st.SearchStrategy[object], most: int = 2) -> st.SearchStrategy[tuple[object, ...]]:
    return st.lists(kind, max_size=most).map(tuple)


snapshots = st.builds(
    Snapshot,
    agent_turn_id=st.just(TURN),
    agent_id=st.just("a"),
    now=st.just(NOW),
    settings=st.just(Settings()),
    keeps_turns=st.booleans(),
    head=st.none() | heads,
    rows=several(rows, 3),
    queue_length=st.integers(0, 2),
    steps=several(steps, 1),
    waiting=several(calls),
    requests=st.just(()),
    record=st.none() | records,
    audit=st.none(),
    leases=several(leases, 1),
    worker_target=st.sampled_from([None, "t"]),
    workers=several(workers, 1),
    loads=st.just({"w": 1}),
    boxes=st.just(()),
    results=st.just(()),
    children=st.just(()),
    call=st.none(),
    sharers=st.just(()),
    blocker=st.none(),
    locks=st.just(()),
)
# The first draw builds all strategies, which takes long on a machine that is busy.
SLOW = [HealthCheck.too_slow]
# Where only waiting, the owner of a lock, or starting a worker helps, or a person must say what was meant.
WITHOUT_FIX = {
    *("database-lock", "no-live-worker", "queued-behind-stuck", "awaited-stuck", "worker-elsewhere"),
    "target-misspelt",
}


@settings(deadline=None, suppress_health_check=SLOW)
@given(snapshots)
def test_any_snapshot_gets_exactly_one_verdict(snapshot: Snapshot) -> None:
    verdict = judge(snapshot)
    assert judge(snapshot) == verdict
    if verdict.rule is None:
        assert (verdict.verdict, verdict.proves) == ("unknown", "no rule matched")
    if verdict.verdict == "stuck":
        assert verdict.evidence
        assert verdict.next_actor
        assert (verdict.fix is None) == (verdict.rule in WITHOUT_FIX)
    if verdict.is_well and verdict.rule != "waiting-for-tool":
        assert verdict.fix is None
    assert "{" not in (verdict.next_actor or "")


@settings(deadline=None, suppress_health_check=SLOW)
@given(snapshots)
def test_additional_findings_never_outrank_the_cause(snapshot: Snapshot) -> None:
    verdict = judge(snapshot)
    ranks = {rule.name: rule.rank for rule in rules()}
    asides = {rule.name for rule in rules() if rule.aside(snapshot)}
    if verdict.verdict == "stuck" and verdict.rule is not None:
        worse = {seen.rule for seen in verdict.also if ranks[seen.rule] > ranks[verdict.rule]}
        assert worse <= asides


def test_unchecked_locks_are_reported() -> None:
    snapshot = Snapshot(agent_turn_id=TURN, agent_id="a", now=NOW, settings=Settings(), keeps_turns=True)
    [unseen] = judge(snapshot).also
    assert (unseen.rule, unseen.severity) == ("database-lock", "ok")
    assert unseen.proves == (
        "Locks were not checked: this database is a replica, and locks exist only on the primary."
    )
