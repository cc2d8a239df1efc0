"""What is kept of the stderr of a turn's commands, and where nothing can be kept."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cardbox_cli.execution.recovery.fixes import reclaim
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.execution.worker.runner import RunOutcome
from cardbox_cli.limits import TURN_LOGS
from cardbox_cli.model.execution.turns import CommandLog
from cardbox_cli.store.execution.turn_store import LogStore
from tests.execution.fixtures import Asked
from tests.execution.worker.conftest import WORKER
from tests.execution.worker.test_runner import LOOKS, fallback, look, once

__all__ = ["look"]

Run = Callable[..., RunOutcome]


@pytest.fixture
def logs(runtime: Runtime) -> LogStore:
    return LogStore(runtime.database, runtime.project_id)


def test_each_command_has_a_log(
    runtime: Runtime, ask: Asked, run: Run, look: Callable[..., None], logs: LogStore
) -> None:
    look("echo looking >&2; echo 'token: abc' >&2; exit 3")
    turn = ask().agent_turn_id or ""
    rest = run(f"echo thinking >&2; {LOOKS}")
    kept = logs.list_by_turn(turn)
    steps = [step.step_id for step in runtime.turns.steps(turn)]
    assert [(log.step_id, log.tool_name, log.tool_call_id, log.exit_code, log.stderr) for log in kept] == [
        (steps[0], None, None, 0, "thinking\n"),
        (steps[0], "look", "c1", 3, "looking\ntoken: [redacted]\n"),
        (steps[1], None, None, 0, "thinking\n"),
    ]
    assert [log.stderr_bytes for log in kept] == [9, 19, 9]
    assert {(log.worker_id, log.turn_epoch) for log in kept} == {(WORKER, 1)}
    assert all(log.started_at < log.ended_at for log in kept)
    assert logs.list_by_turn(turn, step_id=steps[1]) == kept[2:]
    assert (rest.kind, rest.message) == ("ended", "success")


@pytest.mark.parametrize(
    ("command", "exit_code", "outcome"),
    [
        ("cat >/dev/null; exit 7", 7, "ended with exit code 7"),
        ("kill -9 $$", -9, "was killed by signal 9"),
        ("sleep 100", None, "was stopped"),
        ("true", 0, None),
    ],
)
def test_a_command_without_output_has_a_log_only_if_it_failed(
    ask: Asked, run: Run, logs: LogStore, command: str, exit_code: int | None, outcome: str | None
) -> None:
    turn = ask().agent_turn_id or ""
    run(command, timeout=0.3 if command == "sleep 100" else 120)
    assert [(log.exit_code, log.outcome, log.stderr) for log in logs.list_by_turn(turn)] == (
        [] if outcome is None else [(exit_code, outcome, "")]
    )


def test_the_setting_limits_the_size_of_a_log(runtime: Runtime, ask: Asked, run: Run, logs: LogStore) -> None:
    turn = ask()
    run("cat >/dev/null; seq 10000 >&2; echo 'sk-0123456789abcdef' >&2; exit 1", stderr_kept=100)
    [log] = logs.list_by_turn(turn.agent_turn_id or "")
    assert (log.stderr[-22:], len(log.stderr)) == ("9999\n10000\n[redacted]\n", 100)
    assert log.stderr_bytes == 48_914
    # The deliverable holds as much as ever.
    assert "9300\n" in fallback(runtime, turn.output_box_id)["diagnostics"]["stderr_tail"]
    other = ask().agent_turn_id or ""
    run("cat >/dev/null; echo why >&2; exit 1", stderr_kept=0)
    assert logs.list_by_turn(other) == []


def test_a_provider_error_contains_no_secret(runtime: Runtime, ask: Asked, run: Run) -> None:
    turn = ask()
    rest = run("""echo '{"error": {"message": "bad key sk-0123456789abcdef", "type": "auth"}}'""")
    assert (rest.error_code, "bad key [redacted]" in rest.message) == ("provider_error", True)
    assert "0123456789abcdef" not in str(fallback(runtime, turn.output_box_id))


def test_the_oldest_logs_of_a_turn_are_deleted_first(
    runtime: Runtime, ask: Asked, run: Run, look: Callable[..., None], logs: LogStore
) -> None:
    turn = ask().agent_turn_id or ""
    run("cat >/dev/null; echo why >&2; exit 1")
    [kept] = logs.list_by_turn(turn)

    def add(number: int, size: int) -> None:
        text = {"log_id": f"log_{number}", "stderr": "x" * size, "stderr_bytes": size}
        logs.add(CommandLog(**{name: getattr(kept, name) for name in kept.__struct_fields__} | text))

    half = TURN_LOGS.value << 19
    for number, size in enumerate((10, half - 1000, half - 1000), 1):
        add(number, size)
    assert [log.log_id for log in logs.list_by_turn(turn)] == [kept.log_id, "log_1", "log_2", "log_3"]
    add(3, 5)
    add(4, 5000)
    assert [log.log_id for log in logs.list_by_turn(turn)] == ["log_3", "log_4"]


def test_a_turn_that_was_reclaimed_has_no_logs(
    ask: Asked, runtime: Runtime, run: Run, logs: LogStore, tmp_path: Path
) -> None:
    turn = ask().agent_turn_id or ""

    def take() -> None:
        reclaim(runtime, turn, expect_epoch=1, actor="t", reason="r")
        (tmp_path / "go").touch()

    with once(tmp_path / "begun", take):
        rest = run(
            f"cat >/dev/null; echo why >&2; touch {tmp_path}/begun; until test -e {tmp_path}/go; do sleep 0.02; done; exit 1"
        )
    assert (rest.kind, logs.list_by_turn(turn)) == ("lost", [])


class TestWhereNothingCanBeKept:
    """A turn runs without the table, and without a right to it."""

    def test_a_turn_runs_without_the_logs_table(self, runtime: Runtime, ask: Asked, run: Run) -> None:
        turn = ask()
        runtime.database.connection.execute("DROP TABLE cbx.logs")
        runtime.database.clear_table_cache()
        rest = run("cat >/dev/null; echo why >&2; exit 1")
        assert (rest.kind, rest.error_code) == ("ended", "command_failed")
        assert fallback(runtime, turn.output_box_id)["diagnostics"]["stderr_tail"] == "why\n"

    @pytest.mark.parametrize("missing", ["INSERT", "SELECT"])
    def test_a_turn_runs_without_a_right_to_the_logs_table(
        self, runtime: Runtime, ask: Asked, run: Run, logs: LogStore, missing: str
    ) -> None:
        turn = ask().agent_turn_id or ""
        with as_role_without(runtime, missing):
            assert run("cat >/dev/null; echo why >&2; exit 1").error_code == "command_failed"
        assert logs.list_by_turn(turn) == []


@contextmanager
def as_role_without(runtime: Runtime, privilege: str) -> Iterator[None]:
    """What is done inside is done as a role that may do anything but this with the logs of turns."""
    connection = runtime.database.connection
    connection.execute("CREATE ROLE logless")
    try:
        for schema in ("public", "resource", "state", "cbx"):
            connection.execute(f"GRANT USAGE ON SCHEMA {schema} TO logless")
            connection.execute(f"GRANT ALL ON ALL TABLES IN SCHEMA {schema} TO logless")
        connection.execute(f"REVOKE {privilege} ON cbx.logs FROM logless")
        connection.execute("SET ROLE logless")
        yield
    finally:
        connection.execute("RESET ROLE")
        connection.execute("DROP OWNED BY logless")
        connection.execute("DROP ROLE logless")
