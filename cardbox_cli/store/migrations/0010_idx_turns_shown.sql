-- The same of turns.
-- no-transaction: cbx.idx_turns_shown

-- changes: cbx.turns
CREATE INDEX CONCURRENTLY IF NOT EXISTS idx_turns_shown ON cbx.turns
    (project_id, right(agent_turn_id, 8));
