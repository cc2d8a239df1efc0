"""Why a command failed: `cbx turn logs`, and what else shows it; `cbx turn retry`, `turn list --end`."""

from collections.abc import Callable
from typing import Any

import pytest

from cardbox_cli.store.connection.database import Database
from tests.cli.commands.test_worker import CALLING, Dispatch, dispatch, shown, work
from tests.cli.conftest import lines, succeed
from tests.conftest import Cbx

__all__ = ["dispatch", "shown"]

SECRET = "sk-0123456789abcdef"
FAILING = f"cat >/dev/null; printf 'begun\\n\\033[2Jkey {SECRET} is refused\\n' >&2; exit 3"


@pytest.fixture
def failed(cbx: Cbx, dispatch: Dispatch) -> str:
    """A turn whose command failed."""
    turn = dispatch()
    result = work(cbx, FAILING)
    told = [line for line in result.err.splitlines() if "its stderr ends:" in line or line.startswith("   ")]
    assert told[0].endswith(": the command ended with exit code 3; its stderr ends:")
    assert told[1:] == ["    begun", "    \\x1b[2Jkey [redacted] is refused"]
    return turn


def test_every_view_of_a_failed_turn_shows_the_cause(
    cbx: Cbx, failed: str, shown: Callable[[str], Any]
) -> None:
    header, *text = succeed(cbx("turn", "logs", failed)).splitlines()
    assert "  step 1: the command of the model ended with exit code 3 after 0s; " in header
    assert text == ["  begun", "  \\x1b[2Jkey [redacted] is refused"]
    [log] = cbx("turn", "logs", "@last", "--step", "1", "-o", "json").json()
    assert list(log) == [
        *("step", "log_id", "agent_turn_id", "step_id", "tool_call_id", "tool_name", "turn_epoch"),
        *("worker_id", "exit_code", "stderr_bytes", "started_at", "ended_at", "stderr"),
    ]
    assert (log["step"], log["stderr"]) == (1, "begun\n\x1b[2Jkey [redacted] is refused\n")
    assert lines(cbx("turn", "logs", failed, "-o", "id")) == [log["log_id"]]

    tail = "the command of the model ended with exit code 3; its stderr ends:\n  begun\n  \\x1b[2Jkey [redacted] is refused\n"
    page = succeed(cbx("turn", "show", failed))
    assert page.endswith(f"  \\x1b[2Jkey [redacted] is refused\n{tail}")
    assert page.splitlines()[-4].split()[:4] == [log["step_id"][-8:], "model", "3", str(log["stderr_bytes"])]
    [kept] = shown(failed)["logs"]
    assert (kept["exit_code"], kept["stderr_tail"]) == (3, log["stderr"])

    waited = cbx("turn", "wait", failed)
    assert (waited.code, waited.out) == (8, "")
    assert waited.err == (
        f"{tail}error: turn {failed} ended: failed: the command ended with exit code 3\n"
        f"hint: `cbx turn logs {failed}` shows what its commands wrote, `cbx turn show {failed}` shows the details\n"
    )

    why = cbx("why", failed, "-o", "json").json()
    assert (why["verdict"], why["rule"], why["fix"]) == ("ended", "ended", None)
    assert [evidence["shows"].partition(", ended ")[0] for evidence in why["evidence"]] == [
        "failed",
        "last step (1): failed: the command ended with exit code 3",
        "the command of the model ended with exit code 3; its stderr ends: begun / \x1b[2Jkey [redacted] is refused",
    ]
    assert why["next_actor"] == (
        f"the requester: `cbx turn logs {failed}` shows the reason, `cbx turn retry {failed}` retries the turn"
    )
    card = cbx("card", "show", shown(failed)["deliverable_card_id"]).out
    assert SECRET not in card
    assert "key [redacted] is refused" in card


def test_each_step_and_tool_has_its_own_log(cbx: Cbx, dispatch: Dispatch) -> None:
    succeed(cbx("tool", "add", "lookup", "--exec", "echo looking >&2; echo 1"))
    turn = dispatch()
    work(cbx, f"echo thinking >&2; {CALLING}")
    text = succeed(cbx("turn", "logs", turn))
    heads = [line.partition("  ")[2].partition(" after")[0] for line in text.splitlines() if "step" in line]
    assert heads == [
        "step 1: the command of the model ended with exit code 0",
        "step 1: tool 'lookup' ended with exit code 0",
        "step 2: the command of the model ended with exit code 0",
    ]
    logs = cbx("turn", "logs", turn, "--step", "1", "-o", "json").json()
    assert [log["stderr"] for log in logs] == ["thinking\n", "looking\n"]
    assert cbx("turn", "logs", turn, "--step", "3").err.startswith(f"error: turn '{turn}' has no step '3'\n")
    # What went well is no news.
    assert cbx("turn", "wait", turn).err == ""
    assert "its stderr ends" not in cbx("turn", "show", turn).out


def test_the_stderr_of_a_command_without_an_answer_is_shown(cbx: Cbx, dispatch: Dispatch) -> None:
    turn, silent = dispatch(), dispatch()
    work(cbx, "echo no answer >&2", "--once")
    work(cbx, "true", "--once")
    tail = "the command of the model ended with exit code 0; its stderr ends:\n  no answer\n"
    assert cbx("turn", "wait", turn).err.startswith(f"{tail}error: ")
    assert cbx("turn", "show", turn).out.endswith(tail)
    assert f"`cbx turn logs {turn}`" in cbx("why", turn, "-o", "json").json()["next_actor"]
    assert cbx("turn", "wait", silent).err.startswith("error: ")
    assert f"`cbx turn show {silent}`" in cbx("why", silent, "-o", "json").json()["next_actor"]


def test_a_turn_without_logs_prints_a_note(cbx: Cbx, dispatch: Dispatch) -> None:
    turn = dispatch()
    nothing = cbx("turn", "logs", turn)
    assert (nothing.code, nothing.out) == (0, "")
    assert nothing.err == f"no stderr of turn {turn} is stored\n"
    assert cbx("turn", "logs", turn, "-o", "json").json() == []


def test_a_database_without_the_log_table_reports_it(
    cbx: Cbx, database: Database, dispatch: Dispatch, shown: Callable[[str], Any]
) -> None:
    database.connection.execute("DROP TABLE cbx.logs")
    turn = dispatch()
    work(cbx, FAILING)
    refused = cbx("turn", "logs", turn)
    assert (refused.code, refused.err) == (
        7,
        "error: the database has no table cbx.logs\nhint: add it with `cbx db init --yes`\n",
    )
    assert shown(turn)["logs"] == []
    assert cbx("turn", "wait", turn).err == (
        f"error: turn {turn} ended: failed: the command ended with exit code 3\n"
        f"hint: `cbx turn show {turn}` shows the details\n"
    )
    assert f"`cbx turn show {turn}` shows the reason" in cbx("why", turn, "-o", "json").json()["next_actor"]
    assert succeed(cbx("db", "gc", "--dry-run")) == "nothing to purge\n"


def test_a_failed_turn_can_be_retried(
    cbx: Cbx, failed: str, dispatch: Dispatch, shown: Callable[[str], Any]
) -> None:
    assert lines(cbx("turn", "list", "--end", "failed", "-o", "id")) == [failed]
    assert cbx("turn", "list", "--end", "success").err == "no such turns in project 'p'\n"
    retried = succeed(cbx("turn", "retry", failed))
    assert "state        dispatched, epoch " in retried
    new = lines(cbx("turn", "show", "@last", "-o", "id"))[0]
    assert new != failed
    assert shown(new)["context_box_id"] == shown(failed)["context_box_id"]
    assert shown(new)["output_box_id"] != shown(failed)["output_box_id"]
    going = cbx("turn", "retry", new)
    assert (going.code, going.err) == (
        5,
        f"error: turn {new} has not ended: it is dispatched\nhint: run `cbx why {new}` to see what it waits for\n",
    )
    work(cbx, "echo done")
    over = cbx("turn", "retry", new, "-o", "json")
    assert (over.code, over.error["message"]) == (5, f"turn {new} ended in success")
    assert lines(cbx("turn", "list", "--end", "success", "--limit", "1", "-o", "id")) == [new]
    assert lines(cbx("turn", "list", "--end", "failed", "--status", "ended", "--all", "-o", "id")) == [failed]
    both = cbx("turn", "list", "--end", "failed", "--status", "running")
    assert (both.code, both.err.splitlines()[0]) == (
        2,
        "error: --end and --status running cannot be combined",
    )


def test_logs_are_purged_after_their_retention_time(cbx: Cbx, failed: str, database: Database) -> None:
    purged = {"expired": 0, "deleted": 0, "box_info": 0, "logs": 1}
    assert succeed(cbx("db", "gc", "--yes")) == "nothing to purge\n"
    database.connection.execute("UPDATE cbx.logs SET ended_at = ended_at - interval '31 days'")
    assert cbx("db", "gc", "--dry-run", "-o", "json").json()["purged"] == purged
    assert succeed(cbx("db", "gc", "--yes")) == (
        "purged 0 expired cards and the stderr of 1 command of old turns\n"
    )
    assert cbx("turn", "logs", failed, "-o", "json").json() == []
