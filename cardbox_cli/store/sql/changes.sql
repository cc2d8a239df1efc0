-- name: heads_in_short
-- How the agents of the project stand.
SELECT json_build_object(
    'agent_id', h.agent_id,
    'agent_turn_id', h.active_agent_turn_id,
    'status', h.status,
    'turn_epoch', coalesce(h.turn_epoch, 0),
    'updated_at', {instant(h.updated_at)}
)::text
FROM state.agent_state_head AS h
WHERE h.project_id = %(project_id)s

-- name: running_batches_in_short
-- How the batches stand that run, and the newest others.
SELECT json_build_object(
    'batch_id', b.batch_id,
    'status', b.status,
    'ended', (SELECT count(*) FROM cbx.batch_tasks AS t
              WHERE t.project_id = %(project_id)s AND t.batch_id = b.batch_id AND t.ended_at IS NOT NULL),
    'tasks', b.task_count
)::text
FROM cbx.batches AS b
WHERE b.project_id = %(project_id)s AND (b.status = 'running' OR b.batch_id IN (
    SELECT n.batch_id FROM cbx.batches AS n WHERE n.project_id = %(project_id)s
    ORDER BY n.created_at DESC, n.batch_id DESC LIMIT 20))
