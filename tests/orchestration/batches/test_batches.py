"""A batch from its request to its end: what each event makes of it, and what its parent reads."""

from collections.abc import Callable
from typing import Any

import pytest

from cardbox_cli.errors import BadRequest, CorrelationConflict, NotAllowed, NotFound, StaleEpoch
from cardbox_cli.execution.dispatch_requests import Caller, calling_turn
from cardbox_cli.execution.queue.turn_ends import end_turn
from cardbox_cli.execution.recovery.reaping import reap
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.model.content import ToolResultContent
from cardbox_cli.model.execution.turns import END_STATUSES, MAX_DEPTH, EndStatus, Head, InboxRow
from cardbox_cli.orchestration.batch_manager import cancel, catch_up
from tests.execution.by_hand import write
from tests.execution.desk import Desk
from tests.orchestration.batches.conftest import Family, Fork, end_child
from tests.orchestration.conftest import AddProfile, task

MakeFamily = Callable[..., Family]
Parent = Callable[..., Caller]


def row_of(runtime: Runtime, agent_turn_id: str | None) -> InboxRow:
    """The inbox row of a child's turn."""
    row = runtime.inbox.turn_row(agent_turn_id or "")
    assert row is not None
    return row


def head_of(runtime: Runtime, agent_id: str) -> Head:
    """The head of an agent that there is."""
    head = runtime.heads.get(agent_id)
    assert head is not None
    return head


def result_card(runtime: Runtime, call: str = "tc_fork") -> ToolResultContent:
    """The one result of a call."""
    rows = runtime.database.connection.execute(
        "SELECT card_id FROM public.cards WHERE tool_call_id = %s AND metadata ->> 'type' = 'tool.result'",
        [call],
    ).fetchall()
    [(card_id,)] = rows
    content = runtime.cards.get(card_id).content
    assert isinstance(content, ToolResultContent)
    return content


class TestBeginning:
    def test_each_task_has_an_agent_a_context_and_a_turn(self, runtime: Runtime, family: MakeFamily) -> None:
        made = family(3)
        assert made.statuses == ["dispatched"] * 3
        assert (made.batch.status, made.batch.task_count) == ("running", 3)
        assert len({each.agent_id for each in made.tasks}) == 3
        said = [runtime.boxes.view(each.context_box_id).cards[0].content for each in made.tasks]
        assert [getattr(content, "text", None) for content in said] == ["Part 0.", "Part 1.", "Part 2."]

    def test_a_batch_and_its_children_share_a_trace(self, runtime: Runtime, family: MakeFamily) -> None:
        made = family(2)
        edges = runtime.database.connection.execute(
            "SELECT primitive, edge_phase, correlation_id, trace_id FROM state.execution_edges ORDER BY created_at"
        ).fetchall()
        assert edges[0] == ("join", "request", made.batch_id, made.batch.trace_id)
        children = [("enqueue", "request", each.correlation_id, made.batch.trace_id) for each in made.tasks]
        assert edges[1:] == children

    def test_children_are_one_level_below_their_parent(
        self, runtime: Runtime, parent: Parent, family: MakeFamily
    ) -> None:
        caller = parent()
        made = family(1, caller)
        assert caller.parent is not None
        above = runtime.inbox.turn_row(caller.parent.agent_turn_id)
        child = runtime.inbox.turn_row(made.tasks[0].agent_turn_id or "")
        assert above is not None
        assert child is not None
        assert (child.lineage.depth, child.lineage.parent_turn_id) == (1, above.turn_id)
        assert child.lineage.trace_id == above.lineage.trace_id

    def test_a_repeated_call_creates_one_batch(self, parent: Parent, fork: Fork, runtime: Runtime) -> None:
        first = fork(2, parent())
        assert fork(2, parent()) == first
        assert fork(2, parent("tc_other")) != first
        with pytest.raises(CorrelationConflict, match="already created a different batch"):
            fork(3, parent())

    def test_a_batch_with_too_many_tasks_is_refused_and_writes_nothing(
        self, runtime: Runtime, fork: Fork
    ) -> None:
        with pytest.raises(BadRequest, match=r"tasks fanout exceeds max limit \(got=9, max=8\)"):
            fork(9)
        assert list(runtime.batches.newest()) == []

    def test_one_agent_cannot_do_two_tasks(self, fork: Fork) -> None:
        tasks = [task("reuse", "scribe"), task("new", "clerk"), task("reuse", "scribe")]
        with pytest.raises(
            BadRequest, match=r"tasks\[2\]\.target_ref: duplicate reuse .*'scribe' already does tasks\[0\]"
        ):
            fork(tasks)

    def test_an_error_in_one_task_prevents_the_whole_batch(self, runtime: Runtime, fork: Fork) -> None:
        agents = runtime.database.connection.execute(
            "SELECT count(*) FROM resource.project_agents"
        ).fetchone()
        with pytest.raises(NotFound, match=r"fork_join: tasks\[1\]\.target_ref: .*'nobody'"):
            fork([task(), task("new", "nobody")])
        assert (
            runtime.database.connection.execute("SELECT count(*) FROM resource.project_agents").fetchone()
            == agents
        )
        assert list(runtime.batches.newest()) == []

    def test_a_model_without_a_delegation_policy_is_refused(
        self, runtime: Runtime, fork: Fork, add_profile: AddProfile, ask: Callable[..., Any]
    ) -> None:
        caller = calling_turn(runtime, ask("clerk").agent_turn_id)
        with pytest.raises(
            NotAllowed, match=r"tasks\[0\]\.target_ref: the caller's profile has no delegation_policy"
        ):
            fork(1, caller)

    def test_children_beyond_the_maximum_depth_are_refused(
        self, runtime: Runtime, parent: Parent, fork: Fork
    ) -> None:
        caller = parent()
        runtime.database.connection.execute(
            "UPDATE state.agent_inbox SET context_headers = jsonb_set(context_headers, '{CG-Recursion-Depth}', %s)",
            [f'"{MAX_DEPTH - 1}"'],
        )
        with pytest.raises(BadRequest, match="recursion_depth_exceeded"):
            fork(1, caller)


class TestEnding:
    @pytest.mark.parametrize("last", END_STATUSES)
    def test_the_last_child_ends_the_batch(self, family: MakeFamily, last: EndStatus) -> None:
        made = family(2)
        made.end(1, "success")
        assert made.batch.status == "running"
        made.end(0, last)
        assert made.statuses == [last, "success"]
        assert made.batch.status == ("success" if last == "success" else "partial")

    def test_the_first_failure_ends_a_fail_fast_batch_and_cancels_the_others(
        self, runtime: Runtime, family: MakeFamily
    ) -> None:
        made = family(3, fail_fast=True)
        running = made.start(1)
        made.end(0, "failed")
        assert made.batch.status == "failed"
        assert made.statuses == ["failed", "canceled", "canceled"]
        with pytest.raises(StaleEpoch):
            write(runtime, running, "Too late.")
        for index in (1, 2):
            record = runtime.turns.record(made.tasks[index].agent_turn_id or "")
            assert record is not None
            assert (record.end_status, made.tasks[index].error_code) == ("canceled", "batch_failed_fast")
        assert not any(each.stop_due for each in made.tasks)

    def test_a_queued_child_of_a_failed_batch_never_begins(
        self, runtime: Runtime, family: MakeFamily, desk: Desk
    ) -> None:
        busy = family([task("reuse", "scribe")])
        made = family([task(), task("reuse", "scribe")], fail_fast=True)
        assert row_of(runtime, made.tasks[1].agent_turn_id).status == "queued"
        made.end(0, "timeout")
        assert row_of(runtime, made.tasks[1].agent_turn_id).status == "skipped"
        busy.end(0)
        assert head_of(runtime, "scribe").status == "idle"

    def test_a_batch_times_out_after_its_deadline(
        self, runtime: Runtime, family: MakeFamily, desk: Desk
    ) -> None:
        made = family(2, deadline_seconds=60)
        running = made.start(0)
        desk.later(59)
        assert reap(runtime).batches == []
        desk.later(2)
        reaped = reap(runtime)
        assert reaped.batches == [made.batch_id]
        assert sorted(reaped.stopped) == sorted(each.agent_turn_id or "" for each in made.tasks)
        assert (made.batch.status, made.batch.error_code) == ("timeout", "batch_timeout")
        assert made.statuses == ["canceled", "canceled"]
        with pytest.raises(StaleEpoch):
            write(runtime, running, "Too late.")
        assert reap(runtime).total == 0

    def test_a_canceled_batch_has_failed(self, runtime: Runtime, family: MakeFamily) -> None:
        made = family(2)
        assert cancel(runtime, made.batch_id, reason="not needed") is True
        assert cancel(runtime, made.batch_id, reason="not needed") is False
        assert (made.batch.status, made.batch.error_code, made.batch.error) == (
            "failed",
            "canceled",
            "not needed",
        )
        assert all(runtime.turns.head_of(each.agent_turn_id or "") is None for each in made.tasks)

    def test_nothing_changes_after_the_end_of_a_batch(self, runtime: Runtime, family: MakeFamily) -> None:
        made = family(2)
        made.end(0, "failed", "What there is.")
        made.end(1)
        before = (made.batch, made.tasks)
        assert runtime.followers
        catch_up(runtime)
        cancel(runtime, made.batch_id, reason="late")
        assert (made.batch, made.tasks) == before

    def test_a_manual_stop_ends_a_child(self, runtime: Runtime, family: MakeFamily) -> None:
        from cardbox_cli.execution.recovery.fixes import stop

        made = family(1)
        stop(runtime, made.tasks[0].agent_turn_id or "", actor="me", reason="enough")
        assert (made.statuses, made.batch.status) == (["canceled"], "failed")


class TestRefusals:
    def test_a_permanently_refused_child_fails_at_once(self, runtime: Runtime, fork: Fork) -> None:
        runtime.database.connection.execute(
            "INSERT INTO public.projects (project_id, title, owner_id, status, created_at)"
            " VALUES ('p', 'p', 'o', 'active', now()) ON CONFLICT (project_id) DO UPDATE SET status = 'active'"
        )
        made = Family(runtime, _undispatched(runtime, fork, 2))
        runtime.database.connection.execute("UPDATE public.projects SET status = 'archived'")
        catch_up(runtime)
        assert made.statuses == ["failed", "failed"]
        assert {each.error_code for each in made.tasks} == {"dispatch_rejected:project_archived"}
        assert made.batch.status == "failed"

    def test_a_temporarily_refused_child_is_retried_up_to_a_limit(
        self, runtime: Runtime, fork: Fork, desk: Desk, ask: Callable[..., Any]
    ) -> None:
        ask("scribe", output_box_id=runtime.boxes.create([]).box_id)
        box_id = head_of(runtime, "scribe").output_box_id
        made = Family(runtime, _undispatched(runtime, fork, 1))
        runtime.database.connection.execute("UPDATE cbx.batch_tasks SET output_box_id = %s", [box_id])
        waits = []
        while made.batch.is_running:
            catch_up(runtime)
            [child] = made.tasks
            if child.status == "pending":
                waits.append(round((child.next_try_at - runtime.database.now()).total_seconds()))
                assert catch_up(runtime).dispatched == []
                desk.later(waits[-1] + 1)
        assert waits == [2, 4, 8, 16]
        assert (made.statuses, made.tasks[0].error_code) == (["failed"], "dispatch_retry_exhausted")

    def test_a_refused_child_is_dispatched_when_the_reason_is_gone(
        self, runtime: Runtime, fork: Fork, desk: Desk, ask: Callable[..., Any]
    ) -> None:
        turn = ask("scribe", output_box_id=runtime.boxes.create([]).box_id)
        made = Family(runtime, _undispatched(runtime, fork, 1))
        runtime.database.connection.execute(
            "UPDATE cbx.batch_tasks SET output_box_id = %s", [turn.output_box_id]
        )
        assert catch_up(runtime).dispatched == []
        end_turn(runtime, head_of(runtime, "scribe").fence, "success")
        desk.later(3)
        assert catch_up(runtime).dispatched == [made.tasks[0].agent_turn_id]
        assert made.statuses == ["dispatched"]


def _undispatched(runtime: Runtime, fork: Fork, count: int) -> str:
    """A batch whose maker died between its first commit and the next."""
    with runtime.database.transaction():
        batch_id = fork(count)
        runtime._deferred.clear()
    assert {each.status for each in runtime.batches.tasks(batch_id)} == {"pending"}
    return batch_id


class TestParents:
    def test_the_parent_gets_one_result_in_task_order_and_resumes(
        self, runtime: Runtime, desk: Desk, parent: Parent, family: MakeFamily
    ) -> None:
        caller = parent()
        work = desk.enter()
        made = family(2, caller)
        desk.suspend(work, "tc_fork")
        made.end(1, "success", "Second.")
        made.end(0, "success", "First.")
        assert desk.take().outcome == "resumed its turn"
        content = result_card(runtime)
        boxes = [each.output_box_id for each in made.tasks]
        assert content.result == {
            "status": "success",
            "results": [
                {"task_index": 0, "status": "success", "summary": "First.", "output_box_id": boxes[0]},
                {"task_index": 1, "status": "success", "summary": "Second.", "output_box_id": boxes[1]},
            ],
        }
        assert content.status == "success"

    def test_the_error_lists_the_failed_children_too(
        self, runtime: Runtime, desk: Desk, parent: Parent, family: MakeFamily
    ) -> None:
        caller = parent()
        work = desk.enter()
        made = family(2, caller)
        desk.suspend(work, "tc_fork")
        made.end(0, "failed", "Half.")
        made.end(1, "success", "All.")
        assert desk.take().outcome == "resumed its turn"
        content = result_card(runtime)
        assert content.status == "partial"
        assert content.error["code"] == "batch_failed"
        assert content.error["detail"]["results"] == content.result["results"]
        assert content.error["detail"]["batch_id"] == made.batch_id
        assert content.result["results"][0]["error"] == {"code": "was_failed", "message": "it failed"}

    def test_a_batch_that_ends_early_is_reported_when_its_parent_waits(
        self, runtime: Runtime, desk: Desk, parent: Parent, family: MakeFamily
    ) -> None:
        caller = parent()
        work = desk.enter()
        made = family(1, caller)
        made.end(0)
        assert made.batch.report_due
        reap(runtime)
        assert made.batch.report_due
        desk.suspend(work, "tc_fork")
        assert not made.batch.report_due
        assert desk.take().outcome == "resumed its turn"
        assert result_card(runtime).status == "success"

    def test_a_parent_waits_at_least_as_long_as_its_batch(
        self, runtime: Runtime, desk: Desk, parent: Parent, family: MakeFamily
    ) -> None:
        caller = parent()
        work = desk.enter()
        made = family(1, caller, deadline_seconds=900)
        desk.suspend(work, "tc_fork", seconds=120)
        deadline = desk.head("lead").resume_deadline
        assert deadline is not None
        assert deadline > made.batch.deadline_at
        desk.later(901)
        reaped = reap(runtime)
        assert (reaped.batches, reaped.timed_out) == ([made.batch_id], [])
        assert desk.take().outcome == "resumed its turn"
        assert result_card(runtime).error["code"] == "batch_timeout"

    def test_the_batches_of_a_stopped_parent_end_with_it(
        self, runtime: Runtime, desk: Desk, parent: Parent, family: MakeFamily
    ) -> None:
        from cardbox_cli.execution.recovery.fixes import stop

        caller = parent()
        work = desk.enter()
        made = family(2, caller)
        desk.suspend(work, "tc_fork")
        stop(runtime, work.fence.agent_turn_id, actor="me", reason="enough")
        assert (made.batch.status, made.batch.error_code) == ("failed", "canceled")
        assert all(runtime.turns.head_of(each.agent_turn_id or "") is None for each in made.tasks)
        assert reap(runtime).total == 0

    def test_a_requeued_parent_gets_the_result_of_the_same_batch(
        self, runtime: Runtime, desk: Desk, parent: Parent, family: MakeFamily
    ) -> None:
        from cardbox_cli.execution.recovery.fixes import requeue

        caller = parent()
        work = desk.enter()
        made = family(1, caller)
        desk.suspend(work, "tc_fork")
        requeue(
            runtime, work.fence.agent_turn_id, expect_epoch=work.fence.turn_epoch, actor="me", reason="again"
        )
        made.end(0, "success", "Done.")
        again = desk.enter()
        assert again.fence.agent_turn_id == work.fence.agent_turn_id
        desk.suspend(again, "tc_fork")
        assert desk.take().outcome == "resumed its turn"
        assert result_card(runtime).result["results"][0]["summary"] == "Done."

    def test_a_failed_batch_also_ends_the_batches_of_its_children(
        self, runtime: Runtime, desk: Desk, parent: Parent, family: MakeFamily, add_profile: AddProfile
    ) -> None:
        caller = parent()
        made = family([task("new", "lead"), task()], caller, fail_fast=True)
        child = calling_turn(runtime, made.tasks[0].agent_turn_id or "", tool_call_id="tc_deeper")
        below = family(2, child)
        depth = row_of(runtime, below.tasks[0].agent_turn_id).lineage.depth
        assert depth == 2
        made.end(1, "failed")
        assert (made.batch.status, below.batch.status) == ("failed", "failed")
        assert all(runtime.turns.head_of(each.agent_turn_id or "") is None for each in below.tasks)


class TestForeignWorkers:
    def test_an_unreported_end_is_found_by_the_next_poll(self, runtime: Runtime, family: MakeFamily) -> None:
        made = family(2)
        fence = made.start(0)
        write(runtime, fence, "Their work.", type="task.deliverable")
        # Their worker frees the agent and closes its row and step, and knows nothing of batches.
        runtime.database.connection.execute(
            "UPDATE state.agent_state_head SET status = 'idle', active_agent_turn_id = NULL WHERE agent_id = %s",
            [fence.agent_id],
        )
        runtime.database.connection.execute(
            "UPDATE state.agent_inbox SET status = 'consumed' WHERE agent_turn_id = %s", [fence.agent_turn_id]
        )
        runtime.database.connection.execute(
            "UPDATE state.agent_steps SET status = 'completed' WHERE agent_turn_id = %s",
            [fence.agent_turn_id],
        )
        assert made.statuses == ["dispatched", "dispatched"]
        catch_up(runtime)
        assert made.statuses == ["success", "dispatched"]
        assert made.tasks[0].deliverable_card_id is not None
        end_child(runtime, made.fence(1), "success")
        assert made.batch.status == "success"

    def test_turns_end_without_the_batch_tables(
        self, runtime: Runtime, ask: Callable[..., Any], desk: Desk
    ) -> None:
        runtime.database.connection.execute("DROP TABLE cbx.batches, cbx.batch_tasks")
        runtime.database.clear_table_cache()
        turn = ask()
        end_turn(runtime, desk.enter().fence, "success")
        assert desk.end_of(turn.agent_turn_id) == "success"
        assert reap(runtime).total == 0
