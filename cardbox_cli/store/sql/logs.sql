-- fragment: log_tail_json
json_build_object({fields:LogTail l},
    'stderr_tail', right(l.stderr, 2000)
)::text

-- name: logs_are_readable
-- Returns whether this role may read the logs of turns.
SELECT has_table_privilege('cbx.logs', 'SELECT')

-- name: logs_are_writable
-- Returns whether this role may write logs of turns, and delete old ones.
SELECT has_table_privilege('cbx.logs', 'SELECT') AND has_table_privilege('cbx.logs', 'INSERT')
    AND has_table_privilege('cbx.logs', 'UPDATE') AND has_table_privilege('cbx.logs', 'DELETE')

-- name: insert_log
-- Writes the stderr of a command unless it is stored already.
INSERT INTO cbx.logs
    (project_id, agent_turn_id, log_id, step_id, tool_call_id, tool_name, turn_epoch, worker_id, exit_code, stderr,
     stderr_bytes, started_at, ended_at)
VALUES (%(project_id)s, %(agent_turn_id)s, %(log_id)s, %(step_id)s, %(tool_call_id)s, %(tool_name)s, %(turn_epoch)s,
    %(worker_id)s, %(exit_code)s, %(stderr)s, %(stderr_bytes)s, %(started_at)s, %(ended_at)s)
ON CONFLICT DO NOTHING

-- name: trim_logs
-- Deletes the oldest logs of a turn, so that all have at most `limit` bytes. A row counts 256 bytes more.
DELETE FROM cbx.logs AS l
WHERE l.project_id = %(project_id)s AND l.agent_turn_id = %(agent_turn_id)s
    AND l.log_id IN (
        SELECT newer.log_id
        FROM (
            SELECT k.log_id, sum(octet_length(k.stderr) + 256) OVER (ORDER BY k.log_id DESC) AS bytes
            FROM cbx.logs AS k
            WHERE k.project_id = %(project_id)s AND k.agent_turn_id = %(agent_turn_id)s
        ) AS newer
        WHERE newer.bytes > %(limit)s)

-- name: logs_of_turn
-- The logs of a turn, or of one step of it, in order.
SELECT json_build_object({fields:CommandLog l})::text
FROM cbx.logs AS l
WHERE l.project_id = %(project_id)s AND l.agent_turn_id = %(agent_turn_id)s
    AND (%(step_id)s::text IS NULL OR l.step_id = %(step_id)s)
ORDER BY l.log_id

-- name: log_tails
-- The logs of a turn in order, with the last 2,000 characters of each.
SELECT {log_tail_json}
FROM cbx.logs AS l
WHERE l.project_id = %(project_id)s AND l.agent_turn_id = %(agent_turn_id)s
ORDER BY l.log_id

-- name: why_failure_logs
-- For each of these turns, the last characters of its last log of the model's command or of a failed command.
SELECT DISTINCT ON (l.agent_turn_id) {log_tail_json}
FROM cbx.logs AS l
WHERE l.project_id = %(project_id)s AND l.agent_turn_id = ANY(%(turns)s)
    AND (l.tool_name IS NULL OR l.exit_code IS DISTINCT FROM 0)
ORDER BY l.agent_turn_id, l.log_id DESC
