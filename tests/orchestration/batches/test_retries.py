"""`cbx batch retry`: while a batch runs it counts new turns, after its end another batch does."""

import json
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from cardbox_cli.errors import Conflict
from cardbox_cli.execution.dispatch_requests import Caller
from cardbox_cli.execution.recovery.retrying import retry_turn
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.orchestration.batch_manager import cancel, catch_up
from cardbox_cli.orchestration.batch_retry import retry_batch
from tests.conftest import Cbx
from tests.orchestration.batches.conftest import Family, end_child
from tests.orchestration.batches.test_batches import MakeFamily
from tests.orchestration.batches.test_commands import place

__all__ = ["place"]

FAILING_ON_TWO = "read -r N <<<$(jq -r '.messages[0].content' | wc -w); "
FAILING_ON_TWO += "[ $N = 2 ] && { echo boom on $N >&2; exit 7; }; echo $N"


def work(cbx: Cbx, command: str) -> None:
    done = cbx(
        "worker", "run", "--target", "counters", "--exec", f"bash -c {shlex.quote(command)}", "--drain"
    )
    assert done.code == 0, done.err


def retry(runtime: Runtime, made: Family, *, only_failed: bool = False) -> Family:
    return Family(
        runtime, retry_batch(runtime, made.batch_id, only_failed=only_failed, actor="sys.tester").batch_id
    )


class TestWhileTheBatchRuns:
    def test_the_batch_counts_the_new_turn_of_a_failed_child(
        self, runtime: Runtime, family: MakeFamily
    ) -> None:
        made = family(2)
        made.end(0, "failed")
        old = made.tasks[0].agent_turn_id
        assert retry(runtime, made).batch_id == made.batch_id
        assert made.statuses == ["dispatched", "dispatched"]
        assert made.tasks[0].agent_turn_id != old
        made.end(0, words="again")
        made.end(1, words="once")
        assert made.batch.status == "success"

    def test_a_batch_of_a_call_counts_the_new_turn(
        self, runtime: Runtime, family: MakeFamily, parent: Callable[..., Caller]
    ) -> None:
        made = family(2, parent())
        made.end(0, "failed")
        retry(runtime, made)
        made.end(0, words="again")
        made.end(1, words="once")
        assert made.batch.status == "success"
        assert made.batch.parent_tool_call_id == "tc_fork"

    def test_a_success_of_turn_retry_is_counted_instead_of_a_third_run(
        self, runtime: Runtime, family: MakeFamily
    ) -> None:
        made = family(2)
        made.end(0, "failed")
        again = retry_turn(runtime, made.tasks[0].agent_turn_id or "", source_agent_id="sys.operator").result
        head = runtime.turns.head_of(again.agent_turn_id or "")
        assert head is not None
        end_child(runtime, head.fence, "success", "by hand")
        retry(runtime, made)
        catch_up(runtime, made.batch_id)
        assert (made.statuses[0], made.tasks[0].agent_turn_id) == ("success", again.agent_turn_id)

    def test_a_batch_without_failures_is_refused(self, runtime: Runtime, family: MakeFamily) -> None:
        made = family(2)
        made.end(0)
        with pytest.raises(Conflict, match=r"no child of batch .* ended without success"):
            retry(runtime, made)


class TestAfterTheEnd:
    def test_a_new_batch_carries_over_the_results(self, runtime: Runtime, family: MakeFamily) -> None:
        made = family(3)
        made.end(0, words="zero")
        made.end(1, "failed")
        made.end(2, words="two")
        kept = made.batch
        new = retry(runtime, made)
        assert new.batch_id != made.batch_id
        assert new.statuses == ["success", "dispatched", "success"]
        new.end(1, words="one")
        assert (new.batch.status, made.batch) == ("success", kept)
        assert [each.deliverable_card_id for each in new.tasks][::2] == [
            each.deliverable_card_id for each in made.tasks
        ][::2]

    def test_the_parent_keeps_its_one_result(
        self, runtime: Runtime, family: MakeFamily, parent: Callable[..., Caller]
    ) -> None:
        made = family(1, parent())
        made.end(0, "failed")
        new = retry(runtime, made)
        assert new.batch.parent_turn_id is None
        new.end(0)
        assert new.batch.status == "success"
        assert made.batch.status == "failed"

    def test_a_batch_is_retried_once_and_its_retry_after_it(
        self, runtime: Runtime, family: MakeFamily
    ) -> None:
        made = family(1)
        made.end(0, "failed")
        new = retry(runtime, made)
        with pytest.raises(Conflict, match=f"is already retried as {new.batch_id}"):
            retry(runtime, made)
        new.end(0, "failed")
        third = retry(runtime, new)
        third.end(0)
        assert third.batch.status == "success"

    def test_children_that_never_began_run_too_unless_only_failed_ones_are_wanted(
        self, runtime: Runtime, family: MakeFamily
    ) -> None:
        made = family(2, fail_fast=True)
        made.end(0, "failed")
        catch_up(runtime)
        assert made.statuses == ["failed", "canceled"]
        new = retry(runtime, made, only_failed=True)
        assert new.statuses == ["dispatched", "canceled"]

    def test_a_canceled_batch_runs_again(self, runtime: Runtime, family: MakeFamily) -> None:
        made = family(2)
        cancel(runtime, made.batch_id, reason="r")
        new = retry(runtime, made)
        assert new.statuses == ["dispatched", "dispatched"]

    def test_the_old_turn_is_replaced(self, runtime: Runtime, family: MakeFamily) -> None:
        made = family(1)
        made.end(0, "failed")
        new = retry(runtime, made)
        old = made.tasks[0].agent_turn_id or ""
        [successor] = runtime.audit.successors([old])[old]
        assert successor.agent_turn_id == new.tasks[0].agent_turn_id


class TestCommand:
    def test_a_child_repeated_by_turn_retry_is_shown_with_that_turn(self, cbx: Cbx, place: Path) -> None:
        batch = cbx("fork-join", "tasks.yaml", "-o", "id").out.strip()
        work(cbx, FAILING_ON_TWO)
        failed = cbx("turn", "list", "--end", "failed", "-o", "id").out.strip()
        again = cbx("turn", "retry", failed, "-o", "id").out.strip()
        work(cbx, "echo 2")
        new = cbx("batch", "retry", batch, "-o", "id").out.strip()
        shown = cbx("batch", "show", new, "-o", "json").json()
        assert (shown["status"], shown["results"][1]["agent_turn_id"]) == ("success", again)

    def test_show_names_inputs_causes_and_the_retry_which_mends_the_batch(
        self, cbx: Cbx, place: Path
    ) -> None:
        batch = cbx("fork-join", "tasks.yaml", "-o", "id").out.strip()
        work(cbx, FAILING_ON_TWO)
        done = cbx("batch", "watch", batch)
        assert done.code == 8
        [row] = [line for line in done.out.splitlines() if line.split()[:2] == ["1", "failed"]]
        assert "word word" in row
        assert row.endswith("(command_failed) the command ended with exit code 7: boom on 2")
        shown = cbx("batch", "show", batch, "-o", "json").json()
        assert [each["input"] for each in shown["results"]] == ["word", "word word", "word word word"]
        assert [each["stderr"] for each in shown["results"]] == [None, "boom on 2", None]
        assert shown["retry"] == f"cbx batch retry {batch}" or shown["retry"].startswith(
            f"cbx batch retry {batch} --project "
        )
        new = cbx(*shlex.split(shown["retry"], comments=True)[1:], "-o", "id").out.strip()
        work(cbx, "jq -r '.messages[0].content' | wc -w")
        assert cbx("batch", "watch", new).code == 0
        after = cbx("batch", "show", new, "-o", "json").json()
        assert (after["status"], after["retry_of"], after["retry"]) == ("success", batch, None)
        assert [each["carried_from"] for each in after["results"]] == [batch, None, batch]
        assert [each["agent_turn_id"] for each in after["results"]][::2] == [
            each["agent_turn_id"] for each in shown["results"]
        ][::2]
        before = cbx("batch", "show", batch, "-o", "json").json()
        assert (before["status"], before["retried_as"], before["retry"]) == ("partial", new, None)
        box = cbx("batch", "watch", new, "--join-box", "-o", "id").out.strip()
        cards = json.loads(cbx("box", "show", box, "-o", "json").out)["cards"]
        assert [card["content"]["text"].strip() for card in cards] == ["1", "2", "3"]
        assert cbx("turn", "list", "--end", "failed", "-o", "id").out == ""
