"""`cbx turn list|show|trace|wait|watch` and `cbx inbox list|show`."""

import json
import signal
from collections.abc import Callable

import pytest

from cardbox_cli.cli.last_ids import remember
from cardbox_cli.execution.dispatch_requests import Parent
from cardbox_cli.execution.queue.claims import ack, defer, fail
from cardbox_cli.execution.recovery.fixes import stop
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.model.execution.turns import Fence
from tests.cli.conftest import Shell, lines, shell, succeed
from tests.conftest import PROJECT, Cbx
from tests.execution import by_hand
from tests.execution.fixtures import Asked

KEYS = [
    "agent_turn_id",
    "agent_id",
    "status",
    "end_status",
    "turn_epoch",
    "context_box_id",
    "output_box_id",
    "deliverable_card_id",
    "inbox",
    "steps",
    "waiting_tools",
    "edges",
    "children",
    "timeline",
    "logs",
    "findings",
    "replaced_by",
]

__all__ = ["shell"]


@pytest.fixture
def work(runtime: Runtime) -> Callable[..., Fence]:
    """Let the next turn write its deliverable, and end."""

    def work(text: str = "It was the relay.") -> Fence:
        task = by_hand.take(runtime)
        by_hand.enter(runtime, task.fence)
        by_hand.write(runtime, task.fence, text, "task.deliverable")
        ack(runtime, task.row.inbox_id, owner=by_hand.OWNER)
        return task.fence

    return work


Work = Callable[..., Fence]


class TestList:
    def test_turns_are_listed_newest_first(self, cbx: Cbx, ask: Asked, work: Work) -> None:
        first, second, other = ask(), ask(), ask("scribe")
        work()
        header, *rows = lines(cbx("turn", "list"))
        assert header.split() == ["ID", "AGENT", "STATUS", "END", "EPOCH", "AGE", "TOOK", "PARENT"]
        cells = [row.split() for row in rows]
        assert [[*row[:5], row[7]] for row in cells] == [
            [(other.agent_turn_id or "")[-8:], "scribe", "dispatched", "-", "1", "-"],
            [(second.agent_turn_id or "")[-8:], "clerk", "dispatched", "-", "2", "-"],
            [(first.agent_turn_id or "")[-8:], "clerk", "ended", "success", "1", "-"],
        ]
        for options, expected in (
            (("--agent", "scribe"), [other]),
            (("--status", "ended"), [first]),
            (("--status", "dispatched"), [other, second]),
            (("--trace", first.trace_id or ""), [first]),
            (("--since", "1h", "--until", "30m"), []),
            (("--limit", "1"), [other]),
        ):
            assert lines(cbx("turn", "list", *options, "-o", "id")) == [
                each.agent_turn_id for each in expected
            ]

    def test_the_json_list_has_every_field_of_a_turn(self, cbx: Cbx, ask: Asked, work: Work) -> None:
        asked = ask()
        work()
        [turn] = cbx("turn", "list", "-o", "json").json()
        assert turn.pop("created_at").endswith("Z")
        assert turn.pop("ended_at").endswith("Z")
        assert turn.pop("deliverable_card_id")
        assert turn == {
            "agent_turn_id": asked.agent_turn_id,
            "agent_id": "clerk",
            "status": "ended",
            "end_status": "success",
            "turn_epoch": 1,
            "context_box_id": asked.context_box_id,
            "output_box_id": asked.output_box_id,
            "trace_id": asked.trace_id,
            "recursion_depth": 0,
            "parent_agent_id": None,
            "parent_agent_turn_id": None,
            "inbox_id": asked.inbox_id,
            "replaced_by": None,
        }

    def test_an_empty_list_prints_a_message(self, cbx: Cbx) -> None:
        assert cbx("turn", "list").err == "no turns in project 'p'\n"
        assert cbx("turn", "list", "--agent", "x").err == "no such turns in project 'p'\n"
        assert cbx("turn", "list", "-o", "json").json() == []

    def test_an_unknown_status_is_refused(self, cbx: Cbx) -> None:
        result = cbx("turn", "list", "--status", "done")
        assert (result.code, result.err) == (
            2,
            "error: --status: unknown state 'done'\n"
            "hint: states are queued, pending, dispatched, running, suspended, ended\n",
        )


class TestShow:
    def test_a_turn_is_shown_on_one_page(self, cbx: Cbx, ask: Asked, runtime: Runtime, work: Work) -> None:
        asked = ask()
        turn = asked.agent_turn_id or ""
        below = ask("scribe", parent=Parent(agent_turn_id=turn), source_agent_id="clerk").agent_turn_id or ""
        work("It was the\nrelay.")
        page = succeed(cbx("turn", "show", turn[-8:]))
        assert page.startswith(
            f"turn         {turn}\nagent        clerk\nstatus       ended success, epoch 1\n"
        )
        for part in (
            f"trace        {asked.trace_id}, depth 0\n",
            f"context      {asked.context_box_id}\noutput       {asked.output_box_id}\n",
            "\ninbox\nID ",
            "\nsteps\n#  ID ",
            "\nedges\nID ",
            f"\nchildren\nID        AGENT   STATUS      END\n{below[-8:]}  scribe  dispatched  -\n",
            "\ntimeline\nTIME ",
            "enqueued     given to agent 'clerk' by 'sys.operator'\n",
            "deliverable  wrote the deliverable: It was the relay.\n",
        ):
            assert part in page, part
        assert page.endswith("Z  ended        ended: success\n")
        assert f"parent   {turn} of agent clerk\n" in succeed(cbx("turn", "show", below))

    def test_the_json_page_has_all_keys(self, cbx: Cbx, ask: Asked, work: Work) -> None:
        asked = ask()
        before = cbx("turn", "show", asked.agent_turn_id or "", "-o", "json").json()
        assert list(before) == KEYS
        assert (before["status"], before["end_status"], before["deliverable_card_id"]) == (
            "dispatched",
            None,
            None,
        )
        fence = work()
        after = cbx("turn", "show", fence.agent_turn_id[-8:], "-o", "json").json()
        assert (after["status"], after["end_status"]) == ("ended", "success")
        assert after["inbox"][0]["status"] == "consumed"
        assert {type(after[key]) for key in KEYS[8:-1]} == {list}
        assert set(after["timeline"][0]) == {"at", "event", "text", "ref"}

    def test_the_page_of_a_failed_turn_shows_the_reason(self, cbx: Cbx, ask: Asked, runtime: Runtime) -> None:
        turn = ask().agent_turn_id or ""
        fail(runtime, by_hand.take(runtime).row.inbox_id, owner=by_hand.OWNER, error="no\nmodel \x1b[2J")
        page = succeed(cbx("turn", "show", turn))
        assert "status       ended failed, epoch 2: no model \\x1b[2J\n" in page
        assert "\x1b" not in page

    def test_an_unknown_turn_is_refused(self, cbx: Cbx) -> None:
        result = cbx("turn", "show", "no-such-turn")
        assert (result.code, result.err) == (
            3,
            "error: no turn 'no-such-turn' in project 'p'\nhint: `cbx turn list` shows the newest\n",
        )

    def test_last_names_the_turn_that_was_created_last(self, cbx: Cbx, ask: Asked, runtime: Runtime) -> None:
        assert cbx("turn", "show", "@last").err.startswith(
            "error: '@last' is not set: your commands have not created a turn in project 'p'\n"
        )
        turn = ask().agent_turn_id or ""
        remember(runtime.database.address, PROJECT, {"turn": turn})
        assert lines(cbx("turn", "show", "@last", "-o", "id")) == [turn]


def test_trace_draws_the_tree(cbx: Cbx, ask: Asked, work: Work) -> None:
    top = ask()
    parent = {"parent": Parent(agent_turn_id=top.agent_turn_id or ""), "source_agent_id": "clerk"}
    one, two = ask("scribe", **parent), ask("scribe", **parent)
    below = ask(
        "clerk", parent=Parent(agent_turn_id=one.agent_turn_id or ""), source_agent_id="scribe"
    ).agent_turn_id
    ask("clerk")
    work()
    for typed in (top, two):
        assert lines(cbx("turn", "trace", typed.agent_turn_id or "")) == [
            f"trace {top.trace_id}",
            f"{top.agent_turn_id}  clerk  ended success",
            f"├─ {one.agent_turn_id}  scribe  dispatched",
            f"│  └─ {below}  clerk  dispatched",
            f"└─ {two.agent_turn_id}  scribe  queued",
        ]
    nested = cbx("turn", "trace", below or "", "-o", "json").json()
    assert nested["trace_id"] == top.trace_id
    [root] = nested["turns"]
    assert [child["agent_turn_id"] for child in root["children"]] == [one.agent_turn_id, two.agent_turn_id]
    assert root["children"][0]["children"][0]["agent_turn_id"] == below


@pytest.mark.parametrize("source_turn", [None, ""])
def test_trace_includes_children_with_other_trace_ids(
    cbx: Cbx, ask: Asked, runtime: Runtime, source_turn: str | None
) -> None:
    """Other programs begin a trace for each child. The only mark of its parent is in the request's context.

    The services of CommonGround write NULL for the source of such an edge.
    """
    top = ask()
    parent = {
        "parent": Parent(agent_turn_id=top.agent_turn_id or "", tool_call_id="c"),
        "source_agent_id": "clerk",
    }
    one, two = ask("scribe", **parent), ask("scribe", **parent)
    below = ask("clerk", parent=Parent(agent_turn_id=two.agent_turn_id or ""), source_agent_id="scribe")
    other = ask("clerk")
    for number, turn in enumerate((one, two, below)):
        trace = f"{number + 1:032x}"
        values = {"trace": trace, "turn": turn.agent_turn_id}
        runtime.database.connection.execute(
            "UPDATE state.execution_edges SET trace_id = %(trace)s WHERE target_agent_turn_id = %(turn)s",
            values,
        )
        runtime.database.connection.execute(
            "UPDATE state.agent_inbox SET context_headers = (context_headers - 'CG-Parent-Turn-Id')"
            " || jsonb_build_object('traceparent', '00-' || %(trace)s || '-0000000000000001-01')"
            " WHERE inbox_id = %(turn)s",
            values,
        )
    runtime.database.connection.execute(
        "UPDATE state.execution_edges SET source_agent_turn_id = %s WHERE target_agent_turn_id = %s",
        [source_turn, two.agent_turn_id],
    )
    for typed in (top, one, below):
        answer = cbx("turn", "trace", typed.agent_turn_id or "", "-o", "json").json()
        [root] = answer["turns"]
        assert root["agent_turn_id"] == top.agent_turn_id
        assert [child["agent_turn_id"] for child in root["children"]] == [
            one.agent_turn_id,
            two.agent_turn_id,
        ]
        [deep] = root["children"][1]["children"]
        assert (deep["agent_turn_id"], deep["trace_id"]) == (below.agent_turn_id, f"{3:032x}")
    drawn = lines(cbx("turn", "trace", top.agent_turn_id or ""))
    assert f"│  └─ {below.agent_turn_id}" not in "".join(drawn)
    assert f"   └─ {below.agent_turn_id}  clerk  queued  trace {3:032x}" in drawn
    assert other.agent_turn_id not in "".join(drawn)


class TestWait:
    def test_wait_prints_the_deliverable(self, cbx: Cbx, ask: Asked, work: Work) -> None:
        turn = ask().agent_turn_id or ""
        work("It was the relay.")
        assert succeed(cbx("turn", "wait", turn[-8:], "--timeout", "5")) == "It was the relay.\n"
        seen = cbx("turn", "wait", turn, "-o", "json").json()
        assert (list(seen), seen["end_status"]) == (KEYS, "success")
        assert lines(cbx("turn", "wait", turn, "-o", "id")) == [seen["deliverable_card_id"]]

    def test_wait_reports_an_end_without_success(self, cbx: Cbx, ask: Asked, runtime: Runtime) -> None:
        turn = ask().agent_turn_id or ""
        stop(runtime, turn, actor="me", reason="enough")
        result = cbx("turn", "wait", turn)
        assert (result.code, result.out) == (8, "")
        assert result.err == (
            f"error: turn {turn} ended: canceled: enough\nhint: `cbx turn show {turn}` shows the details\n"
        )
        as_json = cbx("turn", "wait", turn, "-o", "json")
        assert (as_json.code, as_json.json()["end_status"]) == (8, "canceled")
        assert as_json.error["details"] == {"agent_turn_id": turn, "end_status": "canceled"}

    def test_wait_respects_its_timeout(self, cbx: Cbx, ask: Asked) -> None:
        turn = ask().agent_turn_id or ""
        result = cbx("turn", "wait", turn, "--timeout", "0.1")
        assert (result.code, result.out) == (124, "")
        assert f"turn {turn} did not end within 0.1 s: it is dispatched" in result.err
        assert cbx("turn", "wait", turn, "--timeout", "-1").code == 2
        assert cbx("turn", "wait", turn, "--timeout", "nan").code == 2


class TestWatch:
    def test_watch_prints_all_events_of_an_ended_turn(self, cbx: Cbx, ask: Asked, work: Work) -> None:
        turn = ask().agent_turn_id or ""
        work()
        told = lines(cbx("turn", "watch", turn))
        assert [line.split()[2] for line in told] == ["enqueued", "step", "deliverable", "step-end", "ended"]
        events = [json.loads(line) for line in lines(cbx("turn", "watch", turn, "-o", "jsonl"))]
        assert events == cbx("turn", "show", turn, "-o", "json").json()["timeline"]
        assert cbx("turn", "watch", turn, "-o", "json").json() == events

    def test_watch_has_the_exit_code_of_wait(self, cbx: Cbx, ask: Asked, runtime: Runtime) -> None:
        turn = ask().agent_turn_id or ""
        stop(runtime, turn, actor="me", reason=None)
        result = cbx("turn", "watch", turn)
        assert result.code == 8
        assert "ended: canceled" in result.out

    def test_watch_prints_events_until_the_turn_ends(self, shell: Shell, ask: Asked, work: Work) -> None:
        turn = ask().agent_turn_id or ""
        with shell.started("turn", "watch", turn, "--interval", "0.1") as watching:
            assert watching.stdout is not None
            assert b"enqueued" in watching.stdout.readline()
            work()
            rest = watching.stdout.read().decode()
            assert watching.wait() == 0
        assert [line.split()[2] for line in rest.splitlines()][-1] == "ended"

    def test_watch_ends_on_ctrl_c_and_on_a_closed_pipe(self, shell: Shell, ask: Asked) -> None:
        turn = ask().agent_turn_id or ""
        with shell.started("turn", "watch", turn) as watching:
            assert watching.stdout is not None
            watching.stdout.readline()
            watching.send_signal(signal.SIGINT)
            assert watching.wait() == 130
        with shell.started("turn", "watch", turn) as watching:
            assert watching.stdout is not None
            watching.stdout.readline()
            watching.stdout.close()
            assert watching.wait() == 141


class TestInbox:
    def test_inbox_rows_are_listed_newest_first(self, cbx: Cbx, ask: Asked, runtime: Runtime) -> None:
        dead, waiting = ask(), ask()
        other = ask("scribe")
        first = by_hand.take(runtime).row
        fail(runtime, first.inbox_id, owner=by_hand.OWNER, error="no model")
        header, *rows = lines(cbx("inbox", "list"))
        assert header.split() == ["ID", "AGENT", "TYPE", "STATUS", "TURN", "TRIES", "AGE", "WHY"]
        assert [row.split()[1:4] for row in rows] == [
            ["scribe", "turn", "pending"],
            ["clerk", "turn", "pending"],
            ["clerk", "turn", "error"],
        ]
        assert rows[2].endswith("no model")
        for options, expected in (
            (("--dead",), [dead]),
            (("--status", "error"), [dead]),
            (("--status", "pending"), [other, waiting]),
            (("--status", "consumed"), []),
            (("--agent", "clerk"), [waiting, dead]),
            (("--type", "stop"), []),
            (("--type", "turn", "--limit", "1"), [other]),
        ):
            assert lines(cbx("inbox", "list", *options, "-o", "id")) == [each.inbox_id for each in expected]

    def test_a_row_is_shown_with_all_details(self, cbx: Cbx, ask: Asked, runtime: Runtime) -> None:
        asked = ask()
        task = by_hand.take(runtime)
        page = succeed(cbx("inbox", "show", (asked.inbox_id or "")[-8:]))
        assert page.startswith(f"inbox row    {asked.inbox_id}\nagent        clerk\ntype         turn\n")
        assert "claimed by   w, until 20" in page
        defer(runtime, task.row, owner=by_hand.OWNER, reason="the model is busy")
        page = succeed(cbx("inbox", "show", asked.inbox_id or ""))
        assert "status       deferred\n" in page
        assert "tries        1\n" in page
        assert "the model is busy\n" in page
        shown = cbx("inbox", "show", asked.inbox_id or "", "-o", "json").json()
        assert (shown["payload"]["context_box_id"], shown["status"]) == (asked.context_box_id, "deferred")

    def test_invalid_arguments_are_refused_with_a_hint(self, cbx: Cbx) -> None:
        for command, code, said in (
            (
                ("show", "nope"),
                3,
                "no inbox row 'nope' in project 'p'\nhint: `cbx inbox list` shows the newest",
            ),
            (
                ("list", "--dead", "--status", "queued"),
                2,
                "--dead and --status queued cannot be combined\nhint: remove one of them",
            ),
            (("list", "--status", "done"), 2, "--status: unknown state 'done'"),
        ):
            result = cbx("inbox", *command)
            assert result.code == code
            assert said in result.err
        assert cbx("inbox", "list").err == "no inbox rows in project 'p'\n"
