-- fragment: foreign_batch_json
json_build_object(
    'batch_id', f.batch_id,
    'status', f.status,
    'task_count', f.task_count,
    'fail_fast', coalesce(f.metadata ->> 'fail_fast', 'false') = 'true',
    'parent_turn_id', f.parent_agent_turn_id,
    'parent_tool_call_id', f.parent_tool_call_id,
    'deadline_at', {instant(f.deadline_at)},
    'created_at', {instant(f.created_at)},
    'updated_at', {instant(f.updated_at)}
)::text

-- name: foreign_batch
-- The batch with this id, of another system's manager.
SELECT {foreign_batch_json}
FROM state.pmo_batches AS f
WHERE f.project_id = %(project_id)s AND f.batch_id = %(batch_id)s

-- name: list_foreign_batches
-- A page of the batches of another system's manager, newest first, after the position if one is given.
SELECT {foreign_batch_json}
FROM state.pmo_batches AS f
WHERE f.project_id = %(project_id)s
    AND (%(status)s::text IS NULL OR f.status = %(status)s)
    AND (%(parent_turn_id)s::text IS NULL OR f.parent_agent_turn_id = %(parent_turn_id)s)
    AND (%(since)s::timestamptz IS NULL OR f.created_at >= %(since)s)
    AND (%(until)s::timestamptz IS NULL OR f.created_at < %(until)s)
    AND (%(after_time)s::timestamptz IS NULL
         OR (f.created_at, f.batch_id) < (%(after_time)s::timestamptz, %(after_id)s::text))
ORDER BY f.created_at DESC, f.batch_id DESC
LIMIT %(limit)s

-- name: tasks_of_foreign_batches
-- The tasks of these batches, in the order of their index if they have one.
SELECT json_build_object(
    'batch_id', g.batch_id,
    'task_index', g.metadata -> 'task_index',
    'status', g.status,
    'agent_id', g.agent_id,
    'agent_turn_id', g.current_agent_turn_id,
    'output_box_id', g.output_box_id,
    'error_detail', g.error_detail,
    'digest', g.metadata #> '{result_view,digest}'
)::text
FROM state.pmo_batch_tasks AS g
WHERE g.project_id = %(project_id)s AND g.batch_id = ANY(%(batch_ids)s)
ORDER BY g.batch_id, g.created_at, g.batch_task_id

-- name: find_foreign_batch_ids
-- Up to six batches of another system's manager whose ids begin or end with a part.
SELECT f.batch_id
FROM state.pmo_batches AS f
WHERE f.project_id = %(project_id)s
    AND (f.batch_id LIKE %(beginning)s OR reverse(f.batch_id) LIKE %(reversed_end)s)
ORDER BY f.batch_id
LIMIT 6

-- name: foreign_children
-- The batch and the task index of each of these turns that is a child of another system's batch.
SELECT g.current_agent_turn_id, g.batch_id, g.metadata -> 'task_index'
FROM state.pmo_batch_tasks AS g
WHERE g.project_id = %(project_id)s AND g.current_agent_turn_id = ANY(%(turn_ids)s)
