"""What `why` says of turns that wait for batches: of cbx, and of another system's manager."""

from tests.diagnosis.conftest import CALL, World

THEIRS = """
CREATE TABLE state.pmo_batches (
    batch_id text PRIMARY KEY, project_id text NOT NULL, parent_agent_id text NOT NULL,
    parent_agent_turn_id text NOT NULL, parent_tool_call_id text NOT NULL, parent_turn_epoch bigint NOT NULL,
    parent_channel_id text, task_count integer NOT NULL, status text NOT NULL DEFAULT 'running',
    deadline_at timestamptz, metadata jsonb NOT NULL, created_at timestamptz, updated_at timestamptz);
CREATE TABLE state.pmo_batch_tasks (
    batch_task_id text PRIMARY KEY, batch_id text, project_id text NOT NULL, agent_id text NOT NULL,
    status text NOT NULL DEFAULT 'pending', retryable boolean NOT NULL DEFAULT true,
    next_retry_at timestamptz NOT NULL DEFAULT now(), attempt_count integer NOT NULL DEFAULT 0,
    current_agent_turn_id text, current_turn_epoch bigint, payload_hash text, profile_box_id uuid,
    context_box_id uuid, output_box_id uuid, error_box_id uuid, error_detail text, metadata jsonb NOT NULL,
    created_at timestamptz, updated_at timestamptz)
"""


def theirs(world: World) -> tuple[str, str]:
    """A turn that waits for a batch of another system's manager, and the turn of its one child."""
    for statement in THEIRS.split(";"):
        world.sql(statement)
    world.ask()
    parent = world.suspend()
    child = world.ask("scribe")
    world.sql(
        "INSERT INTO state.pmo_batches (batch_id, project_id, parent_agent_id, parent_agent_turn_id,"
        " parent_tool_call_id, parent_turn_epoch, task_count, deadline_at, metadata, created_at, updated_at)"
        " VALUES ('batch_theirs', 'p', 'clerk', %(parent)s, %(call)s, 1, 1, now() + interval '200 s', '{}', now(),"
        " now())",
        parent=parent,
        call=CALL,
    )
    world.sql(
        "INSERT INTO state.pmo_batch_tasks (batch_task_id, batch_id, project_id, agent_id, status,"
        " current_agent_turn_id, metadata, created_at, updated_at)"
        " VALUES ('task_1', 'batch_theirs', 'p', 'scribe', 'dispatched', %(child)s, '{\"task_index\": 0}', now(), now())",
        child=child,
    )
    return parent, child


def test_a_turn_waits_for_a_running_batch(world: World) -> None:
    parent, batch = world.fork()
    found = world.why(parent)
    assert (found["rule"], found["verdict"], found["fix"]) == ("batch-running", "waiting", None)
    tables = {each["table"]: each["row"] for each in found["evidence"]}
    assert tables["cbx.batches"] == batch
    assert {each["row"] for each in found["evidence"]} >= {f"{batch}/0", f"{batch}/1"}
    turns = [task.agent_turn_id for task in world.runtime.batches.tasks(batch)]
    assert all(str(turn) in found["next_actor"] for turn in turns)
    assert world.problems() == {}


def test_a_stuck_grandchild_is_named_as_the_cause(world: World) -> None:
    parent, batch = world.fork()
    [first, _] = world.runtime.batches.tasks(batch)
    child, call = world.wait_for_call()
    assert child == first.agent_turn_id
    world._run(world.claim("w").row, "w", "printf done")
    grandchild = world.delegate(child, call=call)
    world.worker()
    world.later(31)
    found = world.why(parent)
    assert (found["rule"], found["verdict"]) == ("awaited-stuck", "stuck")
    named = next(each for each in found["evidence"] if each["table"] == "cbx why")
    assert (named["row"], f"its cause is turn {grandchild}" in named["shows"]) == (child, True)
    assert world.problems() == {grandchild: "lost-doorbell"}
    world.fix(found)


def test_a_batch_of_another_system_is_diagnosed_but_never_changed(world: World) -> None:
    parent, child = theirs(world)
    before = world.sql("SELECT t::text FROM state.pmo_batch_tasks AS t") + world.sql(
        "SELECT b::text FROM state.pmo_batches AS b"
    )
    assert world.why(parent)["rule"] == "foreign-batch-running"
    assert world.problems() == {}
    assert world.cbx("reap").code == 0

    world.drain()
    world.later(6)
    found = world.why(parent)
    assert (found["rule"], found["verdict"], found["fix"]) == ("foreign-child-untold", "stuck", None)
    assert found["due_at"] is not None
    assert any(child in each["shows"] and "ended success" in each["shows"] for each in found["evidence"])
    assert world.problems() == {parent: "foreign-child-untold"}

    world.sql("UPDATE state.pmo_batch_tasks SET current_agent_turn_id = NULL, status = 'pending'")
    world.later(200)
    assert world.why(parent)["rule"] == "foreign-batch-overdue"
    world.sql(
        "UPDATE state.pmo_batch_tasks SET current_agent_turn_id = %(child)s, status = 'dispatched'",
        child=child,
    )
    after = world.sql("SELECT t::text FROM state.pmo_batch_tasks AS t") + world.sql(
        "SELECT b::text FROM state.pmo_batches AS b"
    )
    assert after == before


def test_a_batch_of_another_system_is_shown_but_cannot_be_canceled(world: World) -> None:
    _, child = theirs(world)
    answer = world.cbx("batch", "list", "--columns", "full_id,ended,manager")
    assert answer.out.splitlines()[1:] == ["batch_theirs    0/1  pmo"]
    shown = world.cbx("batch", "show", "batch_theirs", "-o", "json")
    assert f'"agent_turn_id": "{child}"' in shown.out
    refused = world.cbx("batch", "cancel", "batch_theirs")
    assert (refused.code, "another system manages batch" in refused.err) == (5, True)
