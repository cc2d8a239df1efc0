"""Databases as earlier versions made them, from frozen dumps, with rows in all of their large tables."""

import re
from pathlib import Path

DUMPS = sorted(path.stem for path in (Path(__file__).parent / "dumps").glob("*.sql"))

_CARDS = """
INSERT INTO public.projects (project_id, title, owner_id) VALUES ('p', 'p', 't');
INSERT INTO public.cards (tenant_id, card_id, content, metadata)
    SELECT 'p', 'card-' || i, jsonb_build_object('__type__', 'TextContent', 'text', 'about ' || i),
        jsonb_build_object('type', CASE i % 100 WHEN 0 THEN 'rare' ELSE 'chat.message' END, 'role', 'user')
    FROM generate_series(1, {rows}) AS i;
INSERT INTO public.card_boxes (tenant_id, box_id, card_ids)
    SELECT 'p', md5(i::text)::uuid, jsonb_build_array('card-' || i) FROM generate_series(1, {rows}) AS i;
INSERT INTO cbx.box_info (project_id, box_id, title) VALUES ('p', md5('1')::uuid, 'the first');
INSERT INTO resource.profiles (project_id, profile_box_id, name, worker_target)
    VALUES ('p', md5('1')::uuid, 'clerk', 'w');
"""
_TURNS = """
INSERT INTO resource.project_agents (project_id, agent_id, profile_box_id, worker_target)
    VALUES ('p', 'clerk-1', md5('1')::uuid, 'w');
INSERT INTO state.agent_state_head (project_id, agent_id) VALUES ('p', 'clerk-1');
INSERT INTO state.agent_inbox (project_id, inbox_id, agent_id, message_type, correlation_id, agent_turn_id, status)
    SELECT 'p', 'inbox-' || i, 'clerk-1', 'turn', 'turn-' || i, 'turn-' || i, 'consumed'
    FROM generate_series(1, {rows}) AS i;
INSERT INTO state.execution_edges (project_id, edge_id, primitive, edge_phase, correlation_id, recursion_depth)
    SELECT 'p', 'edge-' || i, 'enqueue', 'request', 'turn-' || i, 0 FROM generate_series(1, {rows}) AS i;
INSERT INTO state.agent_steps (project_id, agent_id, step_id, agent_turn_id, status)
    SELECT 'p', 'clerk-1', 'step-' || i, 'turn-' || i, 'completed' FROM generate_series(1, {rows}) AS i;
INSERT INTO cbx.turns (project_id, agent_turn_id, agent_id, end_status)
    SELECT 'p', 'turn-' || i, 'clerk-1', 'success' FROM generate_series(1, {rows}) AS i;
"""


def version(dump: str) -> int:
    """The schema version that a database of this dump says it has."""
    found = re.match(r"version_(\d+)", dump)
    assert found is not None
    return int(found[1])


def script(dump: str, rows: int) -> str:
    """What makes such a database, with so many rows in each table that grows."""
    tables = (Path(__file__).parent / "dumps" / f"{dump}.sql").read_text(encoding="utf-8")
    filling = _CARDS + (_TURNS if version(dump) >= 3 else "")
    return tables + filling.replace("{rows}", str(rows))
