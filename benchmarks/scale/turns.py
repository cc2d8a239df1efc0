"""Turns that have ended, as a fleet's history leaves them.

Each has its inbox row, its record, a box of two cards, a step and the edges of its beginning and its end. Two
hundred agents had them in turn; twenty turns, spread over all of them, were another agent's, and twenty rows
were skipped.
"""

from collections.abc import Iterator
from functools import partial
from hashlib import md5
from pathlib import Path

from benchmarks.scale.measuring import TARGET, Measured, measure
from benchmarks.scale.sides import Side, Sides
from benchmarks.scale.telling import timed
from cardbox_cli.store.connection.database import Database

SMALL, LARGE = 10_000, 1_000_000
FREQUENT_AGENT, RARE_AGENT = "agent-7", "seldom"
# The fifth of them.
TURN = f"turn_{5:012x}{md5(b'5').hexdigest()[-20:]}"

_FILL = """
INSERT INTO state.agent_inbox (project_id, inbox_id, agent_id, message_type, enqueue_mode, correlation_id,
    agent_turn_id, turn_epoch, payload, status, next_retry_at, processed_at, created_at)
SELECT 'scale', turn_id, CASE WHEN n % ({turns} / 20) = 0 THEN 'seldom' ELSE 'agent-' || n % 200 END, 'turn',
    'call', turn_id, turn_id, 1,
    jsonb_build_object('context_box_id', box_id, 'output_box_id', box_id, 'profile_box_id', box_id),
    CASE WHEN n % ({turns} / 20) = 1 THEN 'skipped' ELSE 'consumed' END, at, at, at
FROM generate_series(1, {turns}) AS n,
    LATERAL (SELECT 'turn_' || lpad(to_hex(n), 12, '0') || right(md5(n::text), 20), md5('box' || n)::uuid,
        now() - ({turns} - n) * interval '2 seconds') AS made (turn_id, box_id, at);
INSERT INTO public.card_boxes (tenant_id, box_id, card_ids, updated_at)
SELECT i.project_id, (i.payload ->> 'output_box_id')::uuid, pair.ids, i.created_at
FROM state.agent_inbox AS i,
    (SELECT jsonb_agg(card_id) AS ids FROM (SELECT card_id FROM public.cards LIMIT 2) AS two) AS pair;
INSERT INTO cbx.box_info (project_id, box_id, title, created_at)
SELECT i.project_id, (i.payload ->> 'output_box_id')::uuid, 'What came of it', i.created_at
FROM state.agent_inbox AS i;
INSERT INTO cbx.turns (project_id, agent_turn_id, agent_id, output_start, end_status, end_epoch, created_at,
    ended_at)
SELECT i.project_id, i.agent_turn_id, i.agent_id, 0, 'success', 2, i.created_at, i.created_at
FROM state.agent_inbox AS i;
INSERT INTO state.agent_steps (project_id, agent_id, step_id, agent_turn_id, status, started_at, ended_at)
SELECT i.project_id, i.agent_id, 'step_' || i.inbox_id, i.agent_turn_id, 'completed', i.created_at,
    i.created_at
FROM state.agent_inbox AS i;
INSERT INTO state.execution_edges (project_id, edge_id, primitive, edge_phase, target_agent_id,
    target_agent_turn_id, correlation_id, recursion_depth, trace_id, created_at)
SELECT i.project_id, 'edge_' || i.inbox_id || phase, 'enqueue', phase, i.agent_id, i.agent_turn_id,
    i.inbox_id, 0, md5(i.inbox_id), i.created_at
FROM state.agent_inbox AS i, unnest(ARRAY['request', 'response']) AS phase;
INSERT INTO state.agent_state_head (project_id, agent_id)
SELECT 'scale', 'agent-' || n FROM generate_series(0, 199) AS n UNION ALL SELECT 'scale', 'seldom';
"""


def fill(database: Database, turns: int) -> None:
    """Write so many turns, the last one just now, and bring the planner's statistics up to date."""
    database.connection.execute(_FILL.replace("{turns}", str(turns)).encode())
    database.connection.execute("VACUUM ANALYZE")
    database.connection.execute("CHECKPOINT")


_LINES = {
    "turn list": "turn list",
    "turn list --agent, frequent": f"turn list --agent {FREQUENT_AGENT}",
    "turn list --agent, rare": f"turn list --agent {RARE_AGENT}",
    "turn list --status ended": "turn list --status ended",
    "turn list --status running": "turn list --status running",
    "turn show": f"turn show {TURN}",
    "inbox list": "inbox list",
    "inbox list --agent, rare": f"inbox list --agent {RARE_AGENT}",
    "inbox list --status consumed": "inbox list --status consumed",
    "inbox list --status skipped": "inbox list --status skipped",
    "inbox list --dead": "inbox list --dead",
    "agent list": "agent list",
    "why --agent, rare": f"why --agent {RARE_AGENT}",
    "why --all": "why --all",
    "box list, of turns": "box list",
    "card refs": "card refs {card_id}",
    "db gc --dry-run": "db gc --dry-run",
}
# Every turn, which takes as long as there are turns: a turn's share may not grow.
_ALL = "turn list --limit 0 -o id"


def measure_all(sides: Sides, _: Path) -> Iterator[Measured]:
    """Lists of turns."""
    for side, turns in zip(sides, (SMALL, LARGE), strict=True):
        with timed(f"wrote {turns:,} turns"), Database.connect(side.target) as database:
            fill(database, turns)
    small, large = sides
    for name, line in _LINES.items():
        yield measure(name, partial(_run, small, line), partial(_run, large, line), TARGET)
    yield measure(
        "turn list --limit 0, per 10,000", partial(_run, small, _ALL), partial(_run, large, _ALL), None
    ).per(LARGE // SMALL)


def _run(side: Side, line: str, number: int) -> None:
    side.run(line.format(card_id=side.marked[number % len(side.marked)].card_id))
