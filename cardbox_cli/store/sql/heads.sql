-- fragment: head_json
-- These columns may be null in rows of other programs.
json_build_object({fields:Head h},
    'status', coalesce(h.status, 'idle'),
    'turn_epoch', coalesce(h.turn_epoch, 0),
    'active_recursion_depth', coalesce(h.active_recursion_depth, 0)
)::text

-- name: ensure_head
-- Writes an idle head for an agent that has none.
INSERT INTO state.agent_state_head (project_id, agent_id, status, turn_epoch, updated_at)
VALUES (%(project_id)s, %(agent_id)s, 'idle', 0, {now})
ON CONFLICT DO NOTHING

-- name: head
-- The head of an agent.
SELECT {head_json}
FROM state.agent_state_head AS h
WHERE h.project_id = %(project_id)s AND h.agent_id = %(agent_id)s

-- name: lock_head
-- The head of an agent, locked: the first lock of any change of a turn.
SELECT {head_json}
FROM state.agent_state_head AS h
WHERE h.project_id = %(project_id)s AND h.agent_id = %(agent_id)s
FOR UPDATE

-- name: try_lock_head
-- The head of an agent, locked. No row if another transaction has locked it.
SELECT {head_json}
FROM state.agent_state_head AS h
WHERE h.project_id = %(project_id)s AND h.agent_id = %(agent_id)s
FOR UPDATE SKIP LOCKED

-- name: heads_in_short
-- The state of each agent of the project.
SELECT json_build_object(
    'agent_id', h.agent_id,
    'agent_turn_id', h.active_agent_turn_id,
    'status', h.status,
    'turn_epoch', coalesce(h.turn_epoch, 0),
    'updated_at', {instant(h.updated_at)}
)::text
FROM state.agent_state_head AS h
WHERE h.project_id = %(project_id)s

-- name: assign_head
-- Assigns an idle agent to a turn. Returns its new epoch. No row if it is not idle.
UPDATE state.agent_state_head AS h
SET {assigned_head}
WHERE h.project_id = %(project_id)s AND h.agent_id = %(agent_id)s AND coalesce(h.status, 'idle') = 'idle'
RETURNING h.turn_epoch

-- fragment: head_is_at
h.project_id = %(project_id)s AND h.agent_id = %(agent_id)s
    AND h.active_agent_turn_id = %(agent_turn_id)s AND h.turn_epoch = %(turn_epoch)s
    AND h.status = ANY(%(sources)s)

-- name: move_head
-- Moves the state of an active turn by compare-and-set. Returns the epoch after it.
UPDATE state.agent_state_head AS h
SET status = %(target)s, turn_epoch = h.turn_epoch + %(epoch)s, updated_at = {now},
    waiting_tool_count = %(waiting)s, resume_deadline = %(deadline)s
WHERE {head_is_at}
RETURNING h.turn_epoch

-- fragment: freed_head
-- The epoch only grows and the profile stays, as other programs do it.
status = 'idle', turn_epoch = h.turn_epoch + %(epoch)s, updated_at = {now},
    active_agent_turn_id = NULL, active_channel_id = NULL, active_recursion_depth = 0, parent_step_id = NULL,
    trace_id = NULL, context_box_id = NULL, output_box_id = NULL, expecting_correlation_id = NULL,
    waiting_tool_count = 0, resume_deadline = NULL

-- name: free_head
-- Frees the agent by compare-and-set. Returns the epoch after it.
UPDATE state.agent_state_head AS h
SET {freed_head}
WHERE {head_is_at}
RETURNING h.turn_epoch

-- name: point_head
-- Replaces the boxes of an active turn.
UPDATE state.agent_state_head AS h
SET context_box_id = coalesce(%(context_box_id)s, h.context_box_id),
    output_box_id = coalesce(%(output_box_id)s, h.output_box_id)
WHERE h.project_id = %(project_id)s AND h.agent_id = %(agent_id)s

-- name: extend_deadline
-- Sets the next deadline of a suspended turn, after the action on the previous deadline.
UPDATE state.agent_state_head AS h
SET resume_deadline = {later}, updated_at = {now}
WHERE h.project_id = %(project_id)s AND h.agent_id = %(agent_id)s
    AND h.active_agent_turn_id = %(agent_turn_id)s AND h.turn_epoch = %(turn_epoch)s

-- name: why_fence_fell
-- The recorded end of a turn, and the last action from outside its run that changed its epoch. Each may be null.
SELECT t.end_status, last.action, last.actor, last.reason, last.epoch_after
FROM (SELECT 1) AS one
LEFT JOIN cbx.turns AS t ON t.project_id = %(project_id)s AND t.agent_turn_id = %(agent_turn_id)s
LEFT JOIN LATERAL (
    SELECT a.action, a.actor, a.reason, a.epoch_after
    FROM cbx.audit AS a
    WHERE a.project_id = %(project_id)s AND a.agent_turn_id = %(agent_turn_id)s
        AND a.epoch_after IS NOT NULL
    ORDER BY a.created_at DESC, a.audit_id DESC
    LIMIT 1
) AS last ON true

-- name: free_turnless_head
-- Makes a busy head without a turn idle.
UPDATE state.agent_state_head AS h
SET status = 'idle', active_agent_turn_id = NULL, waiting_tool_count = 0, resume_deadline = NULL
WHERE h.project_id = %(project_id)s AND h.agent_id = %(agent_id)s AND h.status <> 'idle'
    AND coalesce(h.active_agent_turn_id, '') = ''

-- name: highest_epoch
-- The highest epoch of an agent in any row.
SELECT greatest(
    (SELECT h.turn_epoch FROM state.agent_state_head AS h
     WHERE h.project_id = %(project_id)s AND h.agent_id = %(agent_id)s),
    (SELECT max(i.turn_epoch) FROM state.agent_inbox AS i
     WHERE i.project_id = %(project_id)s AND i.agent_id = %(agent_id)s),
    (SELECT max(w.turn_epoch) FROM state.turn_waiting_tools AS w
     WHERE w.project_id = %(project_id)s AND w.agent_id = %(agent_id)s),
    (SELECT max(l.turn_epoch) FROM cbx.leases AS l
     WHERE l.project_id = %(project_id)s AND l.agent_id = %(agent_id)s),
    (SELECT max(t.end_epoch) FROM cbx.turns AS t
     WHERE t.project_id = %(project_id)s AND t.agent_id = %(agent_id)s),
    (SELECT max(greatest(a.epoch_before, a.epoch_after)) FROM cbx.audit AS a
     WHERE a.project_id = %(project_id)s AND a.agent_id = %(agent_id)s),
    0)

-- name: set_epoch
-- Sets the epoch, and the profile, of a rebuilt head.
UPDATE state.agent_state_head AS h
SET turn_epoch = %(turn_epoch)s, profile_box_id = coalesce(%(profile_box_id)s, h.profile_box_id)
WHERE h.project_id = %(project_id)s AND h.agent_id = %(agent_id)s AND h.status = 'idle'
