-- fragment: audit_json
json_build_object({fields:AuditEntry a},
    'agent_id', nullif(a.agent_id, '')
)::text

-- name: write_audit
-- Records an action on a turn or on something else.
INSERT INTO cbx.audit AS a
    (project_id, audit_id, agent_id, agent_turn_id, action, actor, reason, epoch_before, epoch_after, detail,
     created_at)
VALUES (%(project_id)s, %(audit_id)s, %(agent_id)s, %(agent_turn_id)s, %(action)s, %(actor)s, %(reason)s,
    %(epoch_before)s, %(epoch_after)s, %(detail)s, {moment})

-- name: audit_of_turn
-- The actions on a turn, in order.
SELECT {audit_json}
FROM cbx.audit AS a
WHERE a.project_id = %(project_id)s AND a.agent_turn_id = %(agent_turn_id)s
ORDER BY a.created_at, a.audit_id

-- name: successors_of_turns
-- The turns that repeat these turns, or repeat a repetition of them: (turn, new turn, action, end), oldest first.
WITH RECURSIVE successors (root, agent_turn_id, action, created_at) AS (
    SELECT a.agent_turn_id, a.detail ->> 'new_turn_id', a.action, a.created_at
    FROM cbx.audit AS a
    WHERE a.project_id = %(project_id)s AND a.agent_turn_id = ANY(%(turn_ids)s)
        AND a.action IN ('retry', 'replay')
    UNION
    SELECT s.root, a.detail ->> 'new_turn_id', a.action, a.created_at
    FROM successors AS s
    JOIN cbx.audit AS a ON a.project_id = %(project_id)s AND a.agent_turn_id = s.agent_turn_id
    WHERE a.action IN ('retry', 'replay')
)
SELECT s.root, s.agent_turn_id, s.action, t.end_status
FROM successors AS s
LEFT JOIN cbx.turns AS t ON t.project_id = %(project_id)s AND t.agent_turn_id = s.agent_turn_id
WHERE s.agent_turn_id IS NOT NULL
ORDER BY s.created_at, s.agent_turn_id

-- fragment: audit_matches
    a.project_id = %(project_id)s
    AND (%(agent_id)s::text IS NULL OR a.agent_id = %(agent_id)s)
    AND (%(agent_turn_id)s::text IS NULL OR a.agent_turn_id = %(agent_turn_id)s)
    AND (%(action)s::text IS NULL OR a.action = %(action)s)
    AND (%(since)s::timestamptz IS NULL OR a.created_at >= %(since)s)
    AND (%(until)s::timestamptz IS NULL OR a.created_at < %(until)s)
    AND (%(after_time)s::timestamptz IS NULL
         OR (a.created_at, a.audit_id) < (%(after_time)s::timestamptz, %(after_id)s::text))

-- name: list_audit
-- A page of the project's actions, newest first, after the position (created_at, audit_id) if one is given.
SELECT {audit_json} FROM cbx.audit AS a WHERE {audit_matches}
ORDER BY a.created_at DESC, a.audit_id DESC LIMIT %(limit)s

-- name: count_further_audit
-- The number of rows after a position, up to a limit.
SELECT count(*) FROM (SELECT a.audit_id FROM cbx.audit AS a WHERE {audit_matches} LIMIT %(limit)s) AS further
