"""`cbx fork-join` and `cbx batch list|show|watch|cancel`, and a model's own fork run by `cbx worker run`."""

import json
import re
import sys
from io import BytesIO, TextIOWrapper
from pathlib import Path

import pytest

from cardbox_cli.cli.terminal.batch_report import progress_lines
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.orchestration.batch_progress import progress_of
from tests.conftest import Cbx
from tests.orchestration.conftest import says

TASKS = """
matrix: {doc: {glob: "docs/*.txt"}}
tasks:
  - target_strategy: new
    target_ref: counter
    instruction: "${doc.text}"
"""
COUNT = "python3 -c \"import json,sys; print(len(json.load(sys.stdin)['messages'][-2]['content'].split()))\""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cbx: Cbx) -> Path:
    """A folder with three documents of one, two and three words, a file of tasks, and a profile."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "docs").mkdir()
    for number in (1, 2, 3):
        (tmp_path / "docs" / f"{number}.txt").write_text("word " * number)
    (tmp_path / "tasks.yaml").write_text(TASKS)
    (tmp_path / "counter.yaml").write_text("name: counter\nworker_target: counters\n")
    assert cbx("profile", "import", "counter.yaml").code == 0
    return tmp_path


def work(cbx: Cbx, command: str = COUNT, target: str = "counters") -> None:
    assert (
        cbx("worker", "run", "--target", target, "--exec", command, "--answers", "auto", "--drain").code == 0
    )


class TestForkJoin:
    def test_the_results_of_the_children_are_joined_in_order(self, cbx: Cbx, place: Path) -> None:
        batch = cbx("fork-join", "tasks.yaml", "-o", "id").out.strip()
        assert cbx("batch", "show", "@last", "-o", "id").out.strip() == batch
        work(cbx)
        done = cbx("batch", "watch", batch, "-o", "json")
        seen = json.loads(done.out)
        assert list(seen)[:5] == ["batch_id", "status", "task_count", "deadline_at", "results"]
        keys = ["task_index", "status", "summary", "output_box_id", "agent_turn_id", "error"]
        keys += ["agent_id", "input", "stderr", "carried_from"]
        assert [list(each) for each in seen["results"]] == [keys] * 3
        assert [(each["task_index"], each["summary"]) for each in seen["results"]] == [
            (0, "1"),
            (1, "2"),
            (2, "3"),
        ]
        assert (done.code, seen["status"]) == (0, "success")
        assert json.loads(cbx("batch", "show", batch[-8:], "-o", "json").out) == seen

    def test_a_join_box_contains_the_deliverables(self, cbx: Cbx, place: Path, runtime: Runtime) -> None:
        batch = cbx("fork-join", "tasks.yaml", "-o", "id").out.strip()
        work(cbx)
        box = cbx("batch", "watch", batch, "--join-box", "-o", "id").out.strip()
        assert cbx("batch", "watch", batch, "--join-box", "-o", "id").out.strip() == box
        assert cbx("box", "show", "@last", "-o", "id").out.strip() == box
        texts = [getattr(card.content, "text", "").strip() for card in runtime.boxes.view(box).cards]
        assert texts == ["1", "2", "3"]
        late = cbx("fork-join", "tasks.yaml", "--wait", "--join-box", "--timeout", "0", "-o", "id")
        assert (late.code, late.out) == (124, "")

    def test_a_dry_run_shows_the_plan_and_writes_nothing(
        self, cbx: Cbx, place: Path, runtime: Runtime
    ) -> None:
        answer = cbx("fork-join", "tasks.yaml", "--dry-run", "--deadline", "60", "-o", "json")
        plan = json.loads(answer.out)
        assert (answer.code, plan["task_count"], plan["fail_fast"]) == (0, 3, False)
        assert [task["instruction"].split() for task in plan["tasks"]] == [["word"] * n for n in (1, 2, 3)]
        assert "3 tasks" in cbx("fork-join", "tasks.yaml", "--dry-run").out
        assert list(runtime.batches.newest()) == []
        agents = runtime.database.connection.execute(
            "SELECT count(*) FROM resource.project_agents"
        ).fetchone()
        assert agents == (2,)

    def test_json_lines_are_read_from_stdin(
        self, cbx: Cbx, place: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        line = json.dumps({"target_strategy": "new", "target_ref": "counter", "instruction": "One."})
        monkeypatch.setattr(sys, "stdin", TextIOWrapper(BytesIO(f"{line}\n{line}\n".encode())))
        answer = cbx("fork-join", "-", "--dry-run", "-o", "json")
        assert json.loads(answer.out)["task_count"] == 2

    def test_more_tasks_than_the_default_limit_require_the_setting(
        self, cbx: Cbx, place: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (place / "many.yaml").write_text(
            "matrix: {n: [1, 2, 3, 4, 5, 6, 7, 8, 9]}\n"
            "tasks: [{target_strategy: new, target_ref: counter, instruction: '${n}'}]\n"
        )
        refused = cbx("fork-join", "many.yaml", "--dry-run")
        assert (refused.code, "got=9, max=8" in refused.err, "CBX_MAX_TASKS" in refused.err) == (
            4,
            True,
            True,
        )
        monkeypatch.setenv("CBX_MAX_TASKS", "9")
        assert cbx("fork-join", "many.yaml", "--dry-run").code == 0

    @pytest.mark.parametrize(
        ("words", "told"),
        [
            (("--join-box",), "--join-box requires --wait"),
            (("--timeout", "3"), "--timeout requires --wait"),
            (("--wait", "--dry-run"), "--wait and --dry-run cannot be combined"),
        ],
    )
    def test_conflicting_options_are_refused(
        self, cbx: Cbx, place: Path, words: tuple[str, ...], told: str
    ) -> None:
        refused = cbx("fork-join", "tasks.yaml", *words)
        assert (refused.code, told in refused.err) == (2, True)

    def test_a_failed_child_causes_exit_code_8(self, cbx: Cbx, place: Path) -> None:
        batch = cbx("fork-join", "tasks.yaml", "--fail-fast", "-o", "id").out.strip()
        cbx("worker", "run", "--target", "counters", "--exec", "cat >/dev/null; false", "--once")
        done = cbx("batch", "watch", batch)
        assert (done.code, f"batch {batch} ended: failed" in done.err) == (8, True)
        assert [line.split()[1] for line in done.out.splitlines()[-3:]].count("canceled") == 2

    def test_events_are_printed_as_json_lines(self, cbx: Cbx, place: Path) -> None:
        batch = cbx("fork-join", "tasks.yaml", "-o", "id").out.strip()
        work(cbx)
        events = [json.loads(line) for line in cbx("batch", "watch", batch, "-o", "jsonl").out.splitlines()]
        assert [event["event"] for event in events] == ["task", "task", "task", "end"]
        assert [(event["state"], event["steps"]) for event in events[:3]] == [("success", 1)] * 3
        assert events[3]["status"] == "success"


def test_the_progress_display_has_a_line_for_each_child(cbx: Cbx, place: Path, runtime: Runtime) -> None:
    batch = cbx("fork-join", "tasks.yaml", "-o", "id").out.strip()
    cbx("worker", "run", "--target", "counters", "--exec", "cat >/dev/null; exit 3", "--once")
    [head, first, second, third] = progress_lines(progress_of(runtime, batch))
    assert re.fullmatch(rf"batch {batch}  1 of 3 ended, \d+s", head)
    assert re.fullmatch(r" +0  failed      1 step     +\d+s  \w{8}  .*exit code 3.*", first)
    assert re.fullmatch(r" +1  dispatched  0 steps    +\d+s  \w{8}", second)
    assert third.split()[1] == "dispatched"


class TestBatches:
    def test_batches_are_listed_newest_first_with_their_progress(self, cbx: Cbx, place: Path) -> None:
        first, second = (cbx("fork-join", "tasks.yaml", "-o", "id").out.strip() for _ in range(2))
        assert cbx("batch", "list", "-o", "id").out.split() == [second, first]
        cbx("worker", "run", "--target", "counters", "--exec", COUNT, "--once")
        rows = json.loads(cbx("batch", "list", "-o", "json").out)
        assert [(row["batch_id"], row["ended_count"], row["task_count"]) for row in rows] == [
            (second, 0, 3),
            (first, 1, 3),
        ]
        cbx("batch", "cancel", first)
        assert cbx("batch", "list", "--status", "failed", "-o", "id").out.split() == [first]
        assert cbx("batch", "list", "--status", "timeout").out == ""

    def test_a_cancellation_is_audited_and_cannot_be_repeated(self, cbx: Cbx, place: Path) -> None:
        batch = cbx("fork-join", "tasks.yaml", "-o", "id").out.strip()
        done = cbx("batch", "cancel", batch, "--reason", "not needed", "-o", "json")
        assert json.loads(done.out)["error"] == {"code": "canceled", "message": "not needed"}
        [entry] = json.loads(cbx("audit", "--action", "batch cancel", "-o", "json").out)
        assert entry["detail"] == {"batch_id": batch, "reason": "not needed"}
        again = cbx("batch", "cancel", batch)
        assert (again.code, "has ended: failed" in again.err) == (5, True)

    def test_a_database_without_batch_tables_is_reported_and_still_runs_turns(
        self, cbx: Cbx, place: Path, runtime: Runtime
    ) -> None:
        runtime.database.connection.execute("DROP TABLE cbx.batches, cbx.batch_tasks")
        for words in (("batch", "list"), ("fork-join", "tasks.yaml"), ("batch", "show", "batch_1")):
            refused = cbx(*words)
            assert (refused.code, "cbx.batches" in refused.err, "cbx db init" in refused.err) == (
                7,
                True,
                True,
            )
        assert cbx("reap").code == 0
        asked = cbx("launch", "counter", "Count three words.", "-o", "id")
        work(cbx)
        assert cbx("turn", "wait", asked.out.strip()).code == 0


FORK = {
    "fork_join": {
        "tasks": [
            {"target_strategy": "new", "target_ref": "counter", "instruction": "Count one."},
            {"target_strategy": "new", "target_ref": "counter", "instruction": "Count two."},
        ]
    }
}


def test_a_model_forks_and_resumes_with_one_joined_result(cbx: Cbx, place: Path, runtime: Runtime) -> None:
    """Parent, children and parent again by one worker; the trace draws the batch between them."""
    (place / "lead.yaml").write_text(
        "name: lead\nworker_target: leads\nallowed_internal_tools: [fork_join]\n"
        "delegation_policy: {target_profiles: [counter]}\n"
    )
    assert cbx("profile", "import", "lead.yaml").code == 0
    turn = cbx("launch", "lead", "Count.", "-o", "id").out.strip()
    work(cbx, says(FORK, "Counted."), "leads")
    assert json.loads(cbx("turn", "show", turn, "-o", "json").out)["status"] == "suspended"
    assert cbx("why", turn).out.splitlines()[0] == f"turn {turn} is waiting: batch-running"
    work(cbx, "printf done")
    work(cbx, says(FORK, "Counted."), "leads")
    assert cbx("turn", "wait", turn).out == "Counted.\n"
    [batch] = runtime.batches.newest()
    lines = [
        re.sub(r"  counter_\w+|  lead_\w+", "", line) for line in cbx("turn", "trace", turn).out.splitlines()
    ]
    children = [each.agent_turn_id for each in runtime.batches.tasks(batch.batch_id)]
    assert lines[1:] == [
        f"{turn}  ended success",
        f"└─ {batch.batch_id}  success, 2 of 2 ended",
        f"   ├─ 0: {children[0]}  ended success",
        f"   └─ 1: {children[1]}  ended success",
    ]
    card = runtime.database.connection.execute(
        "SELECT content FROM cards WHERE metadata ->> 'type' = 'tool.result'"
    ).fetchall()
    [(content,)] = card
    assert [each["summary"] for each in content["result"]["results"]] == ["done", "done"]


def test_an_invalid_fork_of_a_model_gives_a_failed_result_with_paths(
    cbx: Cbx, place: Path, runtime: Runtime
) -> None:
    (place / "lead.yaml").write_text(
        "name: lead\nworker_target: leads\nallowed_internal_tools: [fork_join]\n"
        "delegation_policy: {target_profiles: [counter]}\n"
    )
    assert cbx("profile", "import", "lead.yaml").code == 0
    turn = cbx("launch", "lead", "Count.", "-o", "id").out.strip()
    good = FORK["fork_join"]["tasks"][0]
    wrong = {"fork_join": {"tasks": [good, {**good, "box": "b"}], "quick": True}}
    foreign = {"fork_join": {"tasks": [{**good, "target_ref": "lead"}]}}
    many = {"fork_join": {"tasks": [good] * 9}}
    work(cbx, says(wrong, foreign, many, "I give up."), "leads")
    assert cbx("turn", "wait", turn).out == "I give up.\n"
    rows = runtime.database.connection.execute(
        "SELECT content #>> '{error,message}' FROM cards WHERE metadata ->> 'type' = 'tool.result' ORDER BY created_at"
    ).fetchall()
    unknown, denied, too_many = (row[0] for row in rows)
    assert "fork_join: 2 problems" in unknown
    assert "tasks[1].box: unknown key" in unknown
    assert "quick: unknown key" in unknown
    assert "tasks[0].target_ref: the caller's delegation_policy has no 'lead'" in denied
    assert "got=9, max=8" in too_many
    assert list(runtime.batches.newest()) == []
