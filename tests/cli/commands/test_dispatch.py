"""`cbx dispatch`, the verbs that free a turn, reports, and working through the inbox from a shell."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cardbox_cli.store.connection.database import Database
from tests.conftest import Cbx, Result

CLERK = "name: clerk\nsystem_prompt: You are a clerk.\n"
Counts = Callable[[], dict[str, int]]


def succeed(result: Result) -> Result:
    assert result.code == 0, result.err
    return result


@pytest.fixture
def clerk(cbx: Cbx, tmp_path: Path) -> Cbx:
    """The command line, in a project with the agent `clerk`."""
    file = tmp_path / "clerk.yaml"
    file.write_text(CLERK)
    succeed(cbx("profile", "import", str(file)))
    succeed(cbx("agent", "provision", "clerk", "--profile", "clerk"))
    return cbx


@pytest.fixture
def box(clerk: Cbx) -> str:
    """A context box."""
    card = succeed(
        clerk("card", "add", "--type", "task.instruction", "--text", "Find it", "-o", "id")
    ).out.strip()
    return succeed(clerk("box", "create", card, "-o", "id")).out.strip()


@pytest.fixture
def dispatched(clerk: Cbx, box: str) -> dict[str, Any]:
    """A turn that is dispatched."""
    answer: dict[str, Any] = succeed(
        clerk("dispatch", "--agent", "clerk", "--context-box", box, "-o", "json")
    ).json()
    return answer


KEYS = [
    "status",
    "error_code",
    "agent_id",
    "agent_turn_id",
    "turn_epoch",
    "queue_position",
    "context_box_id",
    "output_box_id",
    "inbox_id",
    "recursion_depth",
    "trace_id",
    "created",
]


class TestDispatch:
    def test_json_output_has_a_fixed_list_of_keys(self, dispatched: dict[str, Any]) -> None:
        assert list(dispatched) == KEYS
        assert dispatched["status"] == "accepted"
        assert dispatched["turn_epoch"] == 1
        assert dispatched["inbox_id"] == dispatched["agent_turn_id"]

    def test_a_second_turn_is_queued(self, clerk: Cbx, box: str, dispatched: dict[str, Any]) -> None:
        second = succeed(clerk("dispatch", "--agent", "clerk", "-c", box, "-o", "json")).json()
        assert (second["turn_epoch"], second["queue_position"]) == (None, 1)
        assert "queued, place 2" in succeed(clerk("dispatch", "--agent", "clerk", "-c", box)).out

    def test_no_queue_refuses_a_busy_agent(
        self, clerk: Cbx, box: str, dispatched: dict[str, Any], row_counts: Counts
    ) -> None:
        before = row_counts()
        refused = clerk("dispatch", "--agent", "clerk", "-c", box, "--no-queue", "-o", "json")
        assert refused.code == 6
        assert (refused.json()["status"], refused.json()["error_code"]) == ("busy", "agent_busy")
        assert refused.error["code"] == "not-accepted"
        assert row_counts() == before

    def test_a_dispatch_with_a_recipe_packs_the_context(self, clerk: Cbx, box: str) -> None:
        answer = succeed(
            clerk(
                *("dispatch", "--agent", "clerk", "--handover", "delegate", "-a", "profile_name=clerk"),
                *("-a", "instruction=Look", "-o", "json"),
            )
        ).json()
        shown = succeed(clerk("box", "show", answer["context_box_id"])).out
        assert "Look" in shown

    def test_a_failing_pack_keeps_its_exit_code(self, clerk: Cbx, box: str, row_counts: Counts) -> None:
        before = row_counts()
        failed = clerk("dispatch", "--agent", "clerk", "-H", "delegate", "-a", "profile_name=nobody")
        assert failed.code in (3, 4)
        assert row_counts() == before

    @pytest.mark.parametrize(
        ("options", "code", "says"),
        [
            (["--agent", "nobody", "-c", "{box}"], 3, "no agent 'nobody'"),
            (["--agent", " ", "-c", "{box}"], 6, "missing_agent_id"),
            (["--agent", "clerk", "-c", "01234567-89ab-7def-8123-456789abcdef"], 6, "context_box_not_found"),
            (["--agent", "clerk", "-c", "{box}", "--source-agent", "x"], 6, "invalid_source_actor"),
            (["--agent", "clerk", "-c", "{box}", "--parent-turn", "turn_0000"], 6, "parent_turn_not_found"),
            (["--agent", "clerk", "-c", "{box}", "--output-box", "x"], 6, "output_box_not_found"),
            (["--agent", "clerk"], 2, "either --context-box BOX or --recipe RECIPE"),
            (["--agent", "clerk", "-c", "{box}", "-H", "delegate"], 2, "either --context-box BOX or"),
            (["--agent", "clerk", "-c", "{box}", "-a", "x=y"], 2, "--arg and --args require --recipe"),
            (["--agent", "clerk", "-c", "{box}", "--correlation-id", ""], 2, "--correlation-id is empty"),
            (["--agent", "clerk", "-c", "{box}", "--timeout", "3"], 2, "--timeout requires --wait"),
            (
                ["--agent", "clerk", "-c", "{box}", "--wait", "--dry-run"],
                2,
                "--wait and --dry-run cannot be combined",
            ),
            (["--agent", "clerk", "-c", "{box}", "--depth-policy", "up"], 2, "unknown policy 'up'"),
            (
                ["--agent", "clerk", "-c", "{box}", "--tool-call-id", "c"],
                2,
                "--tool-call-id requires --parent-turn",
            ),
            (
                ["--agent", "clerk", "-c", "{box}", "--runtime-config", "[]"],
                4,
                "--runtime-config must be a JSON object",
            ),
        ],
    )
    def test_a_refused_dispatch_writes_nothing(
        self, clerk: Cbx, box: str, row_counts: Counts, options: list[str], code: int, says: str
    ) -> None:
        before = row_counts()
        refused = clerk("dispatch", *(option.format(box=box) for option in options))
        assert refused.code == code
        assert says in refused.err
        assert "hint: " in refused.err
        assert row_counts() == before

    def test_a_dry_run_writes_nothing(self, clerk: Cbx, box: str, row_counts: Counts) -> None:
        before = row_counts()
        out = succeed(clerk("dispatch", "--agent", "clerk", "-c", box, "--dry-run")).out
        assert "(dry run: nothing was written)" in out
        assert row_counts() == before

    def test_a_repeated_correlation_id_returns_the_same_turn(
        self, clerk: Cbx, box: str, row_counts: Counts
    ) -> None:
        request = ["dispatch", "--agent", "clerk", "-c", box, "--correlation-id", "nightly", "-o", "json"]
        first = succeed(clerk(*request)).json()
        before = row_counts()
        again = succeed(clerk(*request)).json()
        assert again == {**first, "created": False}
        assert row_counts() == before

    def test_a_correlation_id_used_for_a_different_request_is_a_conflict(self, clerk: Cbx, box: str) -> None:
        request = ["dispatch", "--agent", "clerk", "-c", box, "--correlation-id", "nightly"]
        succeed(clerk(*request))
        refused = clerk(*request, "--channel", "night", "-o", "json")
        assert refused.code == 5
        assert refused.error["code"] == "correlation-conflict"

    def test_a_recipe_is_packed_once_for_a_correlation_id(
        self, clerk: Cbx, box: str, row_counts: Counts
    ) -> None:
        request = [
            *("dispatch", "--agent", "clerk", "-H", "delegate", "-a", "profile_name=clerk"),
            *("-a", "instruction=Look", "--correlation-id", "once", "-o", "json"),
        ]
        first = succeed(clerk(*request)).json()
        before = row_counts()
        assert succeed(clerk(*request)).json() == {**first, "created": False}
        assert row_counts() == before
        other = [word.replace("=Look", "=Elsewhere") for word in request]
        assert clerk(*other).code == 5


class TestInbox:
    def test_an_acknowledged_claim_ends_the_turn(self, clerk: Cbx, dispatched: dict[str, Any]) -> None:
        row = succeed(clerk("inbox", "claim", "-o", "jsonl")).json()
        assert (row["inbox_id"], row["status"]) == (dispatched["inbox_id"], "processing")
        succeed(clerk("inbox", "ack", row["inbox_id"]))
        turn = succeed(clerk("turn", "show", row["inbox_id"], "-o", "json")).json()
        assert (turn["status"], turn["end_status"]) == ("ended", "success")
        assert turn["deliverable_card_id"] is not None

    def test_a_claim_without_work_exits_3(self, clerk: Cbx) -> None:
        nothing = clerk("inbox", "claim", "--wait", "--timeout", "0")
        assert nothing.code == 3
        assert "no row is due" in nothing.err

    def test_only_the_owner_of_a_claim_can_acknowledge_it(
        self, clerk: Cbx, dispatched: dict[str, Any]
    ) -> None:
        succeed(clerk("inbox", "claim", "--owner", "a"))
        refused = clerk("inbox", "ack", dispatched["inbox_id"], "--owner", "b", "-o", "json")
        assert refused.code == 5
        assert refused.error["code"] == "lease-lost"
        assert "it is claimed by 'a'" in refused.err

    def test_a_failed_turn_is_dead_and_can_be_retried(self, clerk: Cbx, dispatched: dict[str, Any]) -> None:
        succeed(clerk("inbox", "claim"))
        failed = succeed(clerk("inbox", "fail", dispatched["inbox_id"], "--reason", "no ink")).out
        assert "no ink" in failed
        turn = succeed(clerk("turn", "show", dispatched["agent_turn_id"], "-o", "json")).json()
        assert turn["end_status"] == "failed"
        dead = succeed(clerk("inbox", "list", "--dead", "-o", "id")).out.split()
        assert dead == [dispatched["inbox_id"]]
        again = succeed(clerk("inbox", "retry", dead[0], "-o", "json")).json()
        assert again["agent_turn_id"] != dispatched["agent_turn_id"]
        assert again["payload"]["context_box_id"] == dispatched["context_box_id"]

    def test_a_deferred_turn_can_be_claimed_again(self, clerk: Cbx, dispatched: dict[str, Any]) -> None:
        succeed(clerk("inbox", "claim"))
        succeed(clerk("inbox", "defer", dispatched["inbox_id"], "--reason", "later", "--delay", "0"))
        row = succeed(clerk("inbox", "claim", "-o", "jsonl")).json()
        assert (row["retry_count"], row["turn_epoch"]) == (1, 2)

    def test_only_dead_rows_are_retried(self, clerk: Cbx, dispatched: dict[str, Any]) -> None:
        refused = clerk("inbox", "retry", dispatched["inbox_id"])
        assert refused.code == 5
        assert "is pending, not dead" in refused.err

    def test_a_queued_row_can_be_cancelled(self, clerk: Cbx, box: str, dispatched: dict[str, Any]) -> None:
        second = succeed(clerk("dispatch", "--agent", "clerk", "-c", box, "-o", "id")).out.strip()
        assert "skipped" in succeed(clerk("inbox", "cancel", second)).out
        assert succeed(clerk("turn", "show", second, "-o", "json")).json()["end_status"] == "canceled"
        refused = clerk("inbox", "cancel", dispatched["inbox_id"])
        assert (refused.code, "not queued" in refused.err) == (5, True)


class TestFixes:
    def test_a_reclaim_with_a_stale_epoch_is_refused(self, clerk: Cbx, dispatched: dict[str, Any]) -> None:
        turn = dispatched["agent_turn_id"]
        succeed(clerk("inbox", "claim", "--owner", "w"))
        fixed = clerk("turn", "reclaim", turn, "--expect-epoch", "1", "--reason", "gone")
        assert "the command of worker w may still be running" in succeed(fixed).err
        refused = clerk("turn", "reclaim", turn, "--expect-epoch", "1", "--reason", "gone", "-o", "json")
        assert (refused.code, refused.error["code"]) == (5, "stale-epoch")
        lost = clerk("inbox", "ack", turn, "--owner", "w")
        assert (lost.code, "it is pending" in lost.err) == (5, True)

    def test_stop_ends_a_turn_immediately_and_promotes_the_next(
        self, clerk: Cbx, box: str, dispatched: dict[str, Any]
    ) -> None:
        second = succeed(clerk("dispatch", "--agent", "clerk", "-c", box, "-o", "id")).out.strip()
        stopped = succeed(clerk("turn", "stop", dispatched["agent_turn_id"], "-o", "json")).json()
        assert (stopped["end"]["end_status"], stopped["promoted_turn_id"]) == ("canceled", second)
        refused = clerk("turn", "stop", dispatched["agent_turn_id"])
        assert (refused.code, "has ended: canceled" in refused.err) == (5, True)

    @pytest.mark.parametrize("verb", ["reclaim", "requeue", "fail"])
    def test_a_fix_requires_an_epoch_and_a_reason(
        self, clerk: Cbx, dispatched: dict[str, Any], verb: str
    ) -> None:
        refused = clerk("turn", verb, dispatched["agent_turn_id"])
        assert (refused.code, "Missing option" in refused.err) == (2, True)

    def test_requeue_starts_the_turn_again(self, clerk: Cbx, dispatched: dict[str, Any]) -> None:
        fixed = succeed(
            clerk(
                *("turn", "requeue", dispatched["agent_turn_id"], "--expect-epoch", "1", "--reason", "r"),
                *("-o", "json"),
            )
        ).json()
        assert (fixed["status"], fixed["turn_epoch"]) == ("dispatched", 3)

    def test_fail_stores_the_reason_in_the_deliverable(self, clerk: Cbx, dispatched: dict[str, Any]) -> None:
        turn = dispatched["agent_turn_id"]
        succeed(clerk("turn", "fail", turn, "--expect-epoch", "1", "--reason", "its box is lost"))
        shown = succeed(clerk("turn", "show", turn, "-o", "json")).json()
        card = succeed(clerk("card", "show", shown["deliverable_card_id"], "-o", "json")).json()
        assert card["content"]["data"]["message"] == "its box is lost"

    def test_rebox_gives_the_turn_another_context(
        self, clerk: Cbx, box: str, dispatched: dict[str, Any]
    ) -> None:
        other = succeed(clerk("box", "fork", box, "-o", "id")).out.strip()
        turn = dispatched["agent_turn_id"]
        succeed(clerk("turn", "rebox", turn, "--expect-epoch", "1", "--reason", "r", "--context-box", other))
        assert succeed(clerk("turn", "show", turn, "-o", "json")).json()["context_box_id"] == other
        assert clerk("turn", "rebox", turn, "--expect-epoch", "2", "--reason", "r").code == 4

    def test_a_lost_head_is_rebuilt(self, clerk: Cbx, dispatched: dict[str, Any], database: Database) -> None:
        assert clerk("turn", "rebuild", "clerk").code == 5
        database.connection.execute("DELETE FROM state.agent_state_head")
        rebuilt = succeed(clerk("turn", "rebuild", "clerk", "-o", "json")).json()
        assert (rebuilt["status"], rebuilt["turn_epoch"]) == ("dispatched", 2)
        assert rebuilt["certain"]
        assert rebuilt["guessed"]
        assert succeed(clerk("inbox", "claim", "-o", "id")).out.strip() == dispatched["inbox_id"]
        succeed(clerk("inbox", "ack", dispatched["inbox_id"]))


class TestReap:
    def test_reap_reports_when_nothing_is_overdue(self, clerk: Cbx, dispatched: dict[str, Any]) -> None:
        assert succeed(clerk("reap")).out == "nothing was overdue\n"

    def test_reap_releases_an_expired_lease(
        self, clerk: Cbx, dispatched: dict[str, Any], database: Database
    ) -> None:
        succeed(clerk("inbox", "claim"))
        database.connection.execute("UPDATE cbx.leases SET expires_at = now() - interval '1 second'")
        assert succeed(clerk("reap", "-o", "json")).json()["released"] == [dispatched["inbox_id"]]


class TestReport:
    @pytest.mark.parametrize(
        ("options", "code", "says"),
        [
            (["--result", "1"], 3, "does not wait for a call 'call_1'"),
            ([], 2, "--status success requires --result and forbids --error"),
            (
                ["--result", "1", "--error", "x", "--status", "success"],
                2,
                "--status success requires --result and forbids --error",
            ),
            (["--status", "failed"], 2, "--status failed requires --error"),
            (["--status", "odd", "--error", "x"], 2, "unknown status 'odd'"),
            (["--error", " "], 2, "--error is empty"),
            (["--result", "@/proc/nowhere"], 3, "no file '/proc/nowhere'"),
            (["--result", "@/dev/zero"], 4, "it is a device or a socket, not a file"),
            (["--result", "1", "--result-text", "1"], 2, "--result and --result-text cannot be combined"),
            (["--result-text", "…"], 2, "--result-text … is a placeholder"),
        ],
    )
    def test_a_malformed_report_writes_nothing(
        self,
        clerk: Cbx,
        dispatched: dict[str, Any],
        row_counts: Counts,
        options: list[str],
        code: int,
        says: str,
    ) -> None:
        before = row_counts()
        refused = clerk("turn", "report", dispatched["agent_turn_id"], "--tool-call-id", "call_1", *options)
        assert (refused.code, says in refused.err) == (code, True), refused.err
        assert row_counts() == before
