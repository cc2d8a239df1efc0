"""`cbx why` beside its rules: how it answers people and programs, whole projects, and databases of others."""

import re
import shlex
from collections.abc import Callable
from pathlib import Path

from cardbox_cli.diagnosis.registry import rules
from cardbox_cli.settings import Settings
from cardbox_cli.store.connection.database import Database
from cardbox_cli.store.connection.tables import OWN_EXECUTION
from tests.conftest import Cbx
from tests.diagnosis.conftest import World

KEYS = ["turn", "verdict", "rule", "severity", "evidence", "next_actor", "due_at", "fix", "also"]


def test_the_json_has_these_keys(world: World) -> None:
    found = world.why(world.ask())
    assert list(found) == KEYS
    assert list(found["evidence"][0]) == ["table", "row", "shows"]


def test_a_page_for_people(world: World) -> None:
    turn = world.ask()
    world.worker()
    world.later(31)
    answer = world.cbx("why", turn)
    assert answer.code == 8
    lines = answer.out.splitlines()
    assert lines[0] == f"turn {turn} is stuck: lost-doorbell"
    assert lines[1] == "The turn is due for longer than CBX_UNCLAIMED (30 s), and no worker has claimed it."
    assert lines[3].split() == ["TABLE", "ROW", "SHOWS"]
    assert f"fix   cbx turn nudge {turn}" in lines
    assert answer.err == f"error: turn {turn} is stuck: lost-doorbell\n"


def test_a_short_id_names_the_turn(world: World) -> None:
    turn = world.ask()
    assert world.why(turn[-8:])["turn"] == turn


def test_an_unknown_turn_is_not_found(world: World) -> None:
    answer = world.cbx("why", "turn_nowhere")
    assert (answer.code, answer.err) == (
        3,
        "error: no turn 'turn_nowhere' in project 'p'\nhint: `cbx turn list` shows the newest\n",
    )


def test_one_thing_alone_is_asked_for(cbx: Cbx) -> None:
    for words in (
        ["why", "turn_1", "--agent", "a"],
        ["why", "turn_1", "--all"],
        ["why", "--agent", "a", "--all"],
    ):
        answer = cbx(*words)
        assert (answer.code, answer.err) == (
            2,
            "error: name one turn, or --agent, or --all\nhint: `cbx turn list` shows the turns\n",
        )


def test_an_agent_is_asked_about_by_its_turn(world: World) -> None:
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
        "error: no agent 'nobody' in project 'p'\nhint: `cbx agent list` shows them\n",
    )


def test_a_fix_names_the_project_that_the_environment_does_not(world: World) -> None:
    turn = world.ask()
    world.worker()
    world.later(31)
    world.sql("UPDATE cbx.workers SET project_id = NULL")
    import os

    os.environ["CBX_PROJECT"] = "elsewhere"
    found = world.cbx("--project", "p", "why", turn, "-o", "json").json()
    assert found["fix"] == f"cbx turn nudge {turn} --project p"
    world.fix(found)


def test_a_state_that_no_rule_knows_is_no_health(world: World) -> None:
    turn = world.ask()
    world.sql("UPDATE state.agent_state_head SET status = 'meditating' WHERE agent_id = 'clerk'")
    answer = world.cbx("why", turn, "-o", "json")
    assert answer.code == 8
    found = answer.json()
    assert (found["verdict"], found["rule"]) == ("unknown", None)
    assert world.cbx("why", turn).out.splitlines()[1] == "no rule matched"


def test_all_says_when_nothing_is_stuck(world: World) -> None:
    world.ask()
    world.ask()
    answer = world.cbx("why", "--all")
    assert (answer.code, answer.out) == (0, "")
    assert answer.err == "nothing is stuck\n1 agent at a turn, 1 turn queued, 1 looked at\n"


def test_all_is_one_line_for_a_cause_and_counts_what_waits_behind_it(world: World) -> None:
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
    assert "1 agent at a turn, 3 turns queued, 1 looked at" in answer.err


def test_another_project_is_not_seen(world: World) -> None:
    turn = world.ask()
    world.later(31)
    assert world.cbx("--project", "q", "why", turn).code == 3
    assert world.cbx("--project", "q", "why", "--all", "-o", "json").json() == []


def test_it_writes_nothing(world: World, row_counts: Callable[[], dict[str, int]]) -> None:
    turn = world.ask()
    world.later(31)
    before = row_counts(), world.sql("SELECT xmin, xmax, * FROM state.agent_state_head")
    world.why(turn)
    world.problems()
    assert (row_counts(), world.sql("SELECT xmin, xmax, * FROM state.agent_state_head")) == before


class TestWithoutTheTablesOfCbx:
    """Leases and workers are unknown: a silent turn is suspect, and never called dead."""

    def forget(self, world: World) -> None:
        for table in OWN_EXECUTION:
            world.sql(f"DROP TABLE {table}")

    def test_a_silent_run_is_suspect(self, world: World) -> None:
        turn = world.ask()
        world.enter()
        self.forget(world)
        world.later(61)
        assert world.why(turn)["rule"] == "running"
        world.later(300)
        found = world.why(turn)
        assert (found["rule"], found["severity"]) == ("suspect-while-running", "warning")
        assert "this database keeps no leases" in str(found["evidence"])
        assert "dead" not in found["rule"]

    def test_an_unclaimed_turn_has_lost_its_doorbell(self, world: World) -> None:
        turn = world.ask()
        self.forget(world)
        world.later(31)
        found = world.why(turn)
        assert found["rule"] == "lost-doorbell"
        refused = world.cbx(*shlex.split(found["fix"])[1:])
        assert (refused.code, "`cbx db init`" in refused.err) == (7, True)
        assert world.cbx("db", "init", "--yes").code == 0
        world.fix(found)

    def test_a_project_is_surveyed(self, world: World) -> None:
        turn = world.ask()
        self.forget(world)
        assert world.problems() == {}
        world.later(31)
        assert world.problems() == {turn: "lost-doorbell"}

    def test_a_promotion_of_another_system_may_take_a_moment(self, world: World) -> None:
        from tests.diagnosis.test_rules import nobody_promoted_it

        turn = nobody_promoted_it(world)
        self.forget(world)
        world.sql("UPDATE state.agent_state_head SET updated_at = now()")
        assert world.why(turn)["rule"] == "being-promoted"
        world.later(6)
        assert world.why(turn)["rule"] == "queued-on-idle"


# --- the documentation


ROW = re.compile(r"^\| `([a-z-]+)` \| (\w+) \| (.*?) \| (.*?) \|$", re.MULTILINE)


def test_the_documentation_has_every_rule() -> None:
    page = (Path(__file__).parents[2] / "docs" / "why.md").read_text(encoding="utf-8")
    shown = [tuple(cell.replace("\\|", "|") for cell in row) for row in ROW.findall(page)]
    known = [
        (
            rule.name,
            rule.verdict,
            rule.proves.format_map(Settings().in_words),
            rule.fix.shown if rule.fix else "—",
        )
        for rule in rules()
    ]
    assert shown == known


def test_names_are_unique() -> None:
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


def test_what_is_finished_is_not_read(world: World) -> None:
    """`--all` reads no whole table of finished rows, however many there are."""
    from tests.store.test_plans import Explaining, scanned_whole

    turn = world.ask()
    world.later(31)
    for statement in FILL.split(";"):
        world.sql(statement)
    from cardbox_cli.diagnosis.diagnose import Diagnoser

    with Explaining.connect(world.runtime.database.target) as database:
        assert isinstance(database, Explaining)
        database.plans = {}
        survey = Diagnoser(database, "p", world.runtime.settings).survey()
    assert [each.turn for each in survey.problems] == [turn]
    assert survey.looked_at == 1
    large = {"agent_inbox", "execution_edges", "turns", "agent_steps", "cards", "card_boxes"}
    read_whole = [f"{name}: {plan}" for name, plan in database.plans.items() if scanned_whole(plan) & large]
    assert not read_whole, "\n".join(read_whole)


def test_the_database_is_asked_by_one_statement_for_all_turns(world: World, database: Database) -> None:
    """Ten turns cost no more statements than one."""
    from cardbox_cli.diagnosis.diagnose import Diagnoser
    from tests.store.test_plans import Explaining

    def statements() -> int:
        with Explaining.connect(world.runtime.database.target) as counting:
            assert isinstance(counting, Explaining)
            counting.plans = {}
            Diagnoser(counting, "p", world.runtime.settings).survey()
            return len(counting.plans)

    world.ask()
    one = statements()
    for number in range(10):
        world.runtime.heads.ensure(f"agent_{number}")
    assert statements() == one
