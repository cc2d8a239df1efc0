-- fragment: batch_json
json_build_object({fields:Batch b})::text

-- fragment: batch_task_json
json_build_object({fields:BatchTask k})::text

-- name: batches_are_writable
-- Returns whether this role may read and write batches.
SELECT bool_and(has_table_privilege(t.name, r.needed))
FROM unnest(ARRAY['cbx.batches', 'cbx.batch_tasks']) AS t (name),
    unnest(ARRAY['SELECT', 'INSERT', 'UPDATE']) AS r (needed)

-- name: projects_with_open_batches
-- The projects with a running batch, or with one that has ended and still needs a report or a stop.
-- across-projects: it looks for projects
SELECT b.project_id FROM cbx.batches AS b WHERE b.status = 'running' OR b.report_due
UNION
SELECT k.project_id FROM cbx.batch_tasks AS k WHERE k.stop_due

-- name: insert_batch
-- Writes a batch and returns it. Returns no row if its id is taken.
WITH made AS (
    INSERT INTO cbx.batches AS b
        (project_id, batch_id, status, fail_fast, task_count, request_sha256, source_agent_id, parent_turn_id,
         parent_step_id, parent_tool_call_id, channel_id, recursion_depth, trace_id, deadline_at, created_at)
    VALUES (%(project_id)s, %(batch_id)s, %(status)s, %(fail_fast)s, %(task_count)s, %(request_sha256)s,
        %(source_agent_id)s, %(parent_turn_id)s, %(parent_step_id)s, %(parent_tool_call_id)s, %(channel_id)s,
        %(recursion_depth)s, %(trace_id)s, %(deadline_at)s, %(created_at)s)
    ON CONFLICT DO NOTHING
    RETURNING b.*
)
SELECT {batch_json} FROM made AS b

-- name: insert_batch_tasks
-- Writes the tasks of a batch, each given as an object of its columns.
INSERT INTO cbx.batch_tasks
    (project_id, batch_id, task_index, status, target_strategy, target_ref, agent_id, context_box_id,
     output_box_id, deliverable_card_id, error_code, error, next_try_at, dispatched_at, ended_at)
SELECT %(project_id)s, k.batch_id, k.task_index, k.status, k.target_strategy, k.target_ref, k.agent_id,
    k.context_box_id, k.output_box_id, k.deliverable_card_id, k.error_code, k.error, k.next_try_at, k.dispatched_at,
    k.ended_at
FROM jsonb_to_recordset(%(tasks)s::jsonb) AS k (batch_id text, task_index integer, status text, target_strategy text,
    target_ref text, agent_id text, context_box_id uuid, output_box_id uuid, deliverable_card_id text,
    error_code text, error text, next_try_at timestamptz, dispatched_at timestamptz, ended_at timestamptz)

-- name: batch
-- The batch with this id.
SELECT {batch_json}
FROM cbx.batches AS b
WHERE b.project_id = %(project_id)s AND b.batch_id = %(batch_id)s

-- name: lock_batch
-- The batch with this id, locked. After this lock, a transaction only locks the tasks and the parent's call.
SELECT {batch_json}
FROM cbx.batches AS b
WHERE b.project_id = %(project_id)s AND b.batch_id = %(batch_id)s
FOR UPDATE

-- name: lock_batch_of_child
-- The batch that has not recorded the end of this turn, locked. Most turns belong to no batch.
SELECT {batch_json}
FROM cbx.batches AS b
WHERE b.project_id = %(project_id)s AND b.batch_id = (
    SELECT k.batch_id FROM cbx.batch_tasks AS k
    WHERE k.project_id = %(project_id)s AND k.agent_turn_id = %(agent_turn_id)s
        AND (k.status = 'dispatched' OR k.stop_due))
FOR UPDATE

-- name: tasks_of_batch
-- The tasks of a batch in order.
SELECT {batch_task_json}
FROM cbx.batch_tasks AS k
WHERE k.project_id = %(project_id)s AND k.batch_id = %(batch_id)s
ORDER BY k.task_index

-- name: count_batch_tasks
-- The number of tasks of a batch in each state.
SELECT k.status, count(*)
FROM cbx.batch_tasks AS k
WHERE k.project_id = %(project_id)s AND k.batch_id = %(batch_id)s
GROUP BY k.status

-- name: lock_batch_task
-- Locks the head of a task's agent, unless another transaction has locked it. Returns the time, whether the head is
-- locked or missing, and when the task is due. That is null if the task is not pending or its batch is not running.
WITH head AS MATERIALIZED (
    SELECT h.agent_id
    FROM state.agent_state_head AS h
    WHERE h.project_id = %(project_id)s AND h.agent_id = %(agent_id)s
    FOR UPDATE SKIP LOCKED
)
SELECT {moment},
    EXISTS (SELECT FROM head) OR NOT EXISTS (
        SELECT FROM state.agent_state_head AS h
        WHERE h.project_id = %(project_id)s AND h.agent_id = %(agent_id)s),
    (SELECT k.next_try_at
     FROM cbx.batch_tasks AS k
     JOIN cbx.batches AS b ON b.project_id = k.project_id AND b.batch_id = k.batch_id
     WHERE k.project_id = %(project_id)s AND k.batch_id = %(batch_id)s AND k.task_index = %(task_index)s
         AND k.status = 'pending' AND b.status = 'running')

-- name: due_batch_tasks
-- The tasks of running batches, or of the given batch, whose dispatch is due.
SELECT {batch_task_json}
FROM cbx.batch_tasks AS k
JOIN cbx.batches AS b ON b.project_id = k.project_id AND b.batch_id = k.batch_id
WHERE k.project_id = %(project_id)s AND k.status = 'pending' AND k.next_try_at <= %(now)s
    AND b.status = 'running' AND b.deadline_at > %(now)s
    AND (%(batch_id)s::text IS NULL OR k.batch_id = %(batch_id)s)
ORDER BY k.next_try_at, k.batch_id, k.task_index
LIMIT %(limit)s

-- name: dispatch_batch_task
-- Records the turn of a task. Returns no row if the task is no longer pending.
UPDATE cbx.batch_tasks AS k
SET status = 'dispatched', agent_turn_id = %(agent_turn_id)s, output_box_id = %(output_box_id)s,
    context_box_id = %(context_box_id)s, dispatched_at = %(now)s
WHERE k.project_id = %(project_id)s AND k.batch_id = %(batch_id)s AND k.task_index = %(task_index)s
    AND k.status = 'pending'
RETURNING k.task_index

-- name: renew_batch_task
-- Counts a new turn for an ended task of a running batch, or makes it pending if `agent_turn_id` is null. No row if
-- the task has another turn by now.
UPDATE cbx.batch_tasks AS k
SET status = CASE WHEN %(agent_turn_id)s::text IS NULL THEN 'pending' ELSE 'dispatched' END,
    agent_turn_id = %(agent_turn_id)s, output_box_id = %(output_box_id)s, deliverable_card_id = NULL,
    error_code = NULL, error = NULL, attempts = 0, next_try_at = %(now)s, dispatched_at = %(now)s, ended_at = NULL
WHERE k.project_id = %(project_id)s AND k.batch_id = %(batch_id)s AND k.task_index = %(task_index)s
    AND k.agent_turn_id IS NOT DISTINCT FROM %(old_turn_id)s AND k.status NOT IN ('pending', 'dispatched', 'success')
RETURNING k.task_index

-- name: batch_retried_by
-- The batch that a batch retries, from the edge of its request.
SELECT e.metadata ->> 'retry_of'
FROM state.execution_edges AS e
WHERE e.project_id = %(project_id)s AND md5(e.correlation_id) = md5(%(batch_id)s) AND e.correlation_id = %(batch_id)s
    AND e.primitive = 'join' AND e.edge_phase = 'request'

-- name: put_off_batch_task
-- Records that a task's dispatch was refused, and when to try again.
UPDATE cbx.batch_tasks AS k
SET attempts = k.attempts + 1, next_try_at = %(next_try_at)s, error_code = %(error_code)s, error = %(error)s
WHERE k.project_id = %(project_id)s AND k.batch_id = %(batch_id)s AND k.task_index = %(task_index)s
    AND k.status = 'pending'

-- name: fail_batch_task
-- Ends a task whose dispatch was refused permanently. The caller has locked its batch.
UPDATE cbx.batch_tasks AS k
SET status = 'failed', attempts = k.attempts + 1, error_code = %(error_code)s, error = %(error)s, ended_at = %(now)s
WHERE k.project_id = %(project_id)s AND k.batch_id = %(batch_id)s AND k.task_index = %(task_index)s
    AND k.status = 'pending'

-- name: end_batch_task
-- Records the end of a child, and that it need not be stopped. A canceled task keeps its state. The caller has locked
-- the batch.
UPDATE cbx.batch_tasks AS k
SET stop_due = false,
    status = CASE WHEN k.status = 'dispatched' THEN %(status)s ELSE k.status END,
    deliverable_card_id = coalesce(k.deliverable_card_id, %(deliverable_card_id)s),
    error_code = CASE WHEN k.status = 'dispatched' THEN %(error_code)s ELSE k.error_code END,
    error = CASE WHEN k.status = 'dispatched' THEN %(error)s ELSE k.error END,
    ended_at = coalesce(k.ended_at, %(now)s)
WHERE k.project_id = %(project_id)s AND k.agent_turn_id = %(agent_turn_id)s
    AND (k.status = 'dispatched' OR k.stop_due)

-- name: end_batch
-- Ends a batch. Returns no row if it has ended already. Cancels its open tasks with `open_code`, and records that
-- their running turns must be stopped.
WITH ended AS (
    UPDATE cbx.batches AS b
    SET status = %(status)s, error_code = %(error_code)s, error = %(error)s, ended_at = %(now)s,
        report_due = b.parent_tool_call_id IS NOT NULL
    WHERE b.project_id = %(project_id)s AND b.batch_id = %(batch_id)s AND b.status = 'running'
    RETURNING b.*
), canceled AS (
    UPDATE cbx.batch_tasks AS k
    SET status = 'canceled', error_code = %(open_code)s, error = %(open_error)s, ended_at = %(now)s,
        stop_due = k.status = 'dispatched'
    WHERE k.project_id = %(project_id)s AND k.batch_id = %(batch_id)s AND k.status IN ('pending', 'dispatched')
        AND EXISTS (SELECT FROM ended)
)
SELECT {batch_json} FROM ended AS b

-- name: overdue_batches
-- The running batches, or the given one, whose deadline has passed.
SELECT {batch_json}
FROM cbx.batches AS b
WHERE b.project_id = %(project_id)s AND b.status = 'running' AND b.deadline_at <= %(now)s
    AND (%(batch_id)s::text IS NULL OR b.batch_id = %(batch_id)s)
ORDER BY b.deadline_at, b.batch_id
LIMIT %(limit)s

-- name: deserted_batches
-- The running batches, or those of the given parent turn, whose parent turn has ended.
SELECT {batch_json}
FROM cbx.batches AS b
JOIN cbx.turns AS t ON t.project_id = b.project_id AND t.agent_turn_id = b.parent_turn_id
WHERE b.project_id = %(project_id)s AND b.status = 'running' AND t.end_status IS NOT NULL
    AND (%(agent_turn_id)s::text IS NULL OR b.parent_turn_id = %(agent_turn_id)s)
ORDER BY b.deadline_at, b.batch_id
LIMIT %(limit)s

-- name: settled_batches
-- The running batches, or the given one, that have no open task.
SELECT b.batch_id
FROM cbx.batches AS b
WHERE b.project_id = %(project_id)s AND b.status = 'running'
    AND (%(batch_id)s::text IS NULL OR b.batch_id = %(batch_id)s)
    AND NOT EXISTS (
        SELECT FROM cbx.batch_tasks AS k
        WHERE k.project_id = %(project_id)s AND k.batch_id = b.batch_id AND k.status IN ('pending', 'dispatched'))
ORDER BY b.batch_id
LIMIT %(limit)s

-- name: silent_children
-- The tasks, or those of the given batch, whose turn may have ended without an update of the task. Either the end of
-- the turn is recorded, or the turn is not its agent's active turn and has no open row.
SELECT {batch_task_json}
FROM cbx.batch_tasks AS k
LEFT JOIN cbx.turns AS t ON t.project_id = k.project_id AND t.agent_turn_id = k.agent_turn_id
LEFT JOIN state.agent_state_head AS h ON h.project_id = k.project_id AND h.agent_id = k.agent_id
WHERE k.project_id = %(project_id)s AND k.status = 'dispatched'
    AND (%(batch_id)s::text IS NULL OR k.batch_id = %(batch_id)s)
    AND (t.end_status IS NOT NULL OR h.active_agent_turn_id IS DISTINCT FROM k.agent_turn_id
        AND NOT EXISTS (
            SELECT FROM state.agent_inbox AS i
            WHERE i.project_id = %(project_id)s AND i.agent_turn_id = k.agent_turn_id AND i.message_type = 'turn'
                AND i.status IN {open_statuses}))
ORDER BY k.batch_id, k.task_index
LIMIT %(limit)s

-- name: children_to_stop
-- The tasks, or those of the given batch, whose turn must be stopped because the batch has ended.
SELECT {batch_task_json}
FROM cbx.batch_tasks AS k
WHERE k.project_id = %(project_id)s AND k.stop_due
    AND (%(batch_id)s::text IS NULL OR k.batch_id = %(batch_id)s)
ORDER BY k.batch_id, k.task_index
LIMIT %(limit)s

-- name: batches_to_report
-- The batches, or those of the given parent turn, whose end is not yet reported to the parent's call.
SELECT {batch_json}
FROM cbx.batches AS b
WHERE b.project_id = %(project_id)s AND b.report_due
    AND (%(agent_turn_id)s::text IS NULL OR b.parent_turn_id = %(agent_turn_id)s)
ORDER BY b.batch_id
LIMIT %(limit)s

-- name: hold_batches_of_turn
-- The batches that a turn created, locked.
SELECT {batch_json}
FROM cbx.batches AS b
WHERE b.project_id = %(project_id)s AND b.parent_turn_id = %(agent_turn_id)s
ORDER BY b.batch_id
FOR UPDATE

-- name: note_batch_reported
-- Records that the parent's call no longer needs a report of the batch's end.
UPDATE cbx.batches AS b SET report_due = false
WHERE b.project_id = %(project_id)s AND b.batch_id = %(batch_id)s

-- name: point_batch
-- Sets the box of the children's deliverables, unless the batch has one. Returns the batch's box.
UPDATE cbx.batches AS b SET join_box_id = coalesce(b.join_box_id, %(join_box_id)s::uuid)
WHERE b.project_id = %(project_id)s AND b.batch_id = %(batch_id)s
RETURNING b.join_box_id::text

-- name: extend_suspended
-- Lets a suspended turn wait at least until this deadline.
UPDATE state.agent_state_head AS h
SET resume_deadline = greatest(h.resume_deadline, %(deadline)s::timestamptz)
WHERE h.project_id = %(project_id)s AND h.agent_id = %(agent_id)s AND h.active_agent_turn_id = %(agent_turn_id)s
    AND h.turn_epoch = %(turn_epoch)s AND h.status = 'suspended' AND h.resume_deadline IS NOT NULL

-- fragment: batch_matches
    b.project_id = %(project_id)s
    AND (%(status)s::text IS NULL OR b.status = %(status)s)
    AND (%(parent_turn_id)s::text IS NULL OR b.parent_turn_id = %(parent_turn_id)s)
    AND (%(since)s::timestamptz IS NULL OR b.created_at >= %(since)s)
    AND (%(until)s::timestamptz IS NULL OR b.created_at < %(until)s)
    AND (%(after_time)s::timestamptz IS NULL
         OR (b.created_at, b.batch_id) < (%(after_time)s::timestamptz, %(after_id)s::text))

-- name: list_batches
-- A page of the project's batches, newest first, after the position (created_at, batch_id) if one is given.
SELECT {batch_json} FROM cbx.batches AS b WHERE {batch_matches}
ORDER BY b.created_at DESC, b.batch_id DESC LIMIT %(limit)s

-- name: count_further_batches
-- The number of rows after a position, up to a limit.
SELECT count(*) FROM (SELECT b.batch_id FROM cbx.batches AS b WHERE {batch_matches} LIMIT %(limit)s) AS further

-- name: running_batches_in_short
-- The state of the running batches and of the 20 newest batches.
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

-- name: count_tasks_of_batches
-- The number of tasks of each of these batches in each state.
SELECT k.batch_id, k.status, count(*)
FROM cbx.batch_tasks AS k
WHERE k.project_id = %(project_id)s AND k.batch_id = ANY(%(batch_ids)s)
GROUP BY k.batch_id, k.status

-- name: find_batch_ids
-- Up to six batches whose ids begin or end with a part, or whose last 8 characters match `shown`.
SELECT b.batch_id FROM cbx.batches AS b
WHERE b.project_id = %(project_id)s
    AND (b.batch_id LIKE %(beginning)s OR b.batch_id LIKE 'batch\_' || %(beginning)s
        OR reverse(b.batch_id) LIKE %(reversed_end)s OR right(b.batch_id, 8) LIKE %(shown)s::text)
ORDER BY b.batch_id
LIMIT 6

-- name: children_of_batches
-- The batch and the task index of each of these turns that is a child of a batch.
SELECT k.agent_turn_id, k.batch_id, k.task_index
FROM cbx.batch_tasks AS k
WHERE k.project_id = %(project_id)s AND k.agent_turn_id = ANY(%(turn_ids)s)

-- name: batch_progress
-- The state of the turn of each child of a batch, and the number of steps that it has begun.
SELECT k.task_index, CASE WHEN h.active_agent_turn_id = k.agent_turn_id THEN h.status ELSE i.status END, s.steps
FROM cbx.batch_tasks AS k
LEFT JOIN state.agent_state_head AS h ON h.project_id = k.project_id AND h.agent_id = k.agent_id
LEFT JOIN state.agent_inbox AS i ON i.project_id = k.project_id AND i.agent_turn_id = k.agent_turn_id
    AND i.message_type = 'turn'
CROSS JOIN LATERAL (
    SELECT count(*) AS steps
    FROM state.agent_steps AS s
    WHERE s.project_id = %(project_id)s AND s.agent_turn_id = k.agent_turn_id
) AS s
WHERE k.project_id = %(project_id)s AND k.batch_id = %(batch_id)s
ORDER BY k.task_index, i.created_at DESC
