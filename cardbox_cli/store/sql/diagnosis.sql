-- fragment: known_statuses
('queued', 'pending', 'deferred', 'processing', 'consumed', 'error', 'skipped')

-- name: why_lock_timeout
-- Limits how long the reads of this transaction wait for a locked table.
SELECT set_config('lock_timeout', '1s', true)

-- name: why_places
-- The agents of these turns, from any row that names the turn.
SELECT i.agent_turn_id, i.agent_id
FROM state.agent_inbox AS i
WHERE i.project_id = %(project_id)s AND i.agent_turn_id = ANY(%(turns)s)
UNION
SELECT {turn_of_row}, i.agent_id
FROM state.agent_inbox AS i
WHERE i.project_id = %(project_id)s AND i.agent_turn_id IS NULL AND {turn_of_row} = ANY(%(turns)s)
UNION
SELECT h.active_agent_turn_id, h.agent_id
FROM state.agent_state_head AS h
WHERE h.project_id = %(project_id)s AND h.active_agent_turn_id = ANY(%(turns)s)
UNION
SELECT s.agent_turn_id, s.agent_id
FROM state.agent_steps AS s
WHERE s.project_id = %(project_id)s AND s.agent_turn_id = ANY(%(turns)s)
UNION
SELECT e.target_agent_turn_id, e.target_agent_id
FROM state.execution_edges AS e
WHERE e.project_id = %(project_id)s AND e.target_agent_turn_id = ANY(%(turns)s) AND e.primitive = 'enqueue'
    AND e.target_agent_id IS NOT NULL

-- name: why_places_recorded
-- The agents of these turns, from the records of cbx.
SELECT t.agent_turn_id, t.agent_id
FROM cbx.turns AS t
WHERE t.project_id = %(project_id)s AND t.agent_turn_id = ANY(%(turns)s)

-- name: why_turn_of_agent
-- The agent's active turn, or else its next one, or else its last one. One row at most.
(SELECT coalesce(h.active_agent_turn_id, ''), 1 AS choice
 FROM state.agent_state_head AS h
 WHERE h.project_id = %(project_id)s AND h.agent_id = %(agent_id)s
    AND (h.active_agent_turn_id IS NOT NULL OR h.status <> 'idle'))
UNION ALL
(SELECT {turn_of_row}, 2
 FROM state.agent_inbox AS i
 WHERE i.project_id = %(project_id)s AND i.agent_id = %(agent_id)s AND i.message_type = 'turn'
    AND i.status IN {open_statuses}
 ORDER BY i.created_at, i.inbox_id
 LIMIT 1)
UNION ALL
(SELECT {turn_of_row}, 3
 FROM state.agent_inbox AS i
 WHERE i.project_id = %(project_id)s AND i.agent_id = %(agent_id)s AND i.message_type = 'turn'
 ORDER BY i.created_at DESC, i.inbox_id DESC
 LIMIT 1)
ORDER BY choice
LIMIT 1

-- name: why_active
-- The active turns of all agents. The turn is '' for a busy agent whose head has no turn.
SELECT coalesce(h.active_agent_turn_id, ''), h.agent_id
FROM state.agent_state_head AS h
WHERE h.project_id = %(project_id)s AND h.status <> 'idle'

-- name: why_open
-- The turns that have an open row that is not queued, but are not the active turn of their agent.
SELECT DISTINCT {turn_of_row}, i.agent_id
FROM state.agent_inbox AS i
LEFT JOIN state.agent_state_head AS h ON h.project_id = i.project_id AND h.agent_id = i.agent_id
WHERE i.project_id = %(project_id)s AND i.status IN {open_statuses}
    AND (i.status <> 'queued' OR i.message_type <> 'turn')
    AND h.active_agent_turn_id IS DISTINCT FROM {turn_of_row}

-- name: why_next
-- The first queued turn of each agent without an active one.
SELECT DISTINCT ON (i.agent_id) {turn_of_row}, i.agent_id
FROM state.agent_inbox AS i
LEFT JOIN state.agent_state_head AS h ON h.project_id = i.project_id AND h.agent_id = i.agent_id
WHERE i.project_id = %(project_id)s AND i.status = 'queued' AND i.message_type = 'turn'
    AND coalesce(h.status, 'idle') = 'idle'
ORDER BY i.agent_id, i.created_at, i.inbox_id

-- name: why_queued_without_box
-- The queued turns whose context box is gone, or whose rows name no boxes.
SELECT {turn_of_row}, i.agent_id
FROM state.agent_inbox AS i
WHERE i.project_id = %(project_id)s AND i.status = 'queued' AND i.message_type = 'turn'
    AND (i.payload ->> 'profile_box_id' IS NULL OR i.payload ->> 'context_box_id' IS NULL
        OR i.payload ->> 'output_box_id' IS NULL
        OR NOT EXISTS (
            SELECT FROM public.card_boxes AS b
            WHERE b.tenant_id = %(project_id)s AND b.box_id =
                CASE WHEN i.payload ->> 'context_box_id' ~* {uuid_pattern}
                     THEN (i.payload ->> 'context_box_id')::uuid END))
LIMIT %(limit)s

-- name: why_queued_boxes
-- The boxes that the first queued turns read: turn, agent and box.
SELECT i.turn_id, i.agent_id, box.id
FROM (
    SELECT {turn_of_row} AS turn_id, i.agent_id, i.payload
    FROM state.agent_inbox AS i
    WHERE i.project_id = %(project_id)s AND i.status = 'queued' AND i.message_type = 'turn'
    ORDER BY i.created_at, i.inbox_id
    LIMIT %(limit)s
) AS i
CROSS JOIN LATERAL (VALUES (i.payload ->> 'profile_box_id'), (i.payload ->> 'context_box_id')) AS box (id)
WHERE box.id ~* {uuid_pattern}

-- name: why_dropped
-- The turns whose consumed rows are among the newest, and that neither finished a step nor delivered anything.
SELECT {turn_of_row}, i.agent_id
FROM (
    SELECT n.project_id, n.agent_turn_id, n.correlation_id, n.inbox_id, n.agent_id, n.status, n.message_type
    FROM state.agent_inbox AS n
    WHERE n.project_id = %(project_id)s
    ORDER BY n.created_at DESC, n.inbox_id DESC
    LIMIT %(limit)s
) AS i
WHERE i.status = 'consumed' AND i.message_type = 'turn'
    AND (SELECT true FROM state.agent_steps AS s
         WHERE s.project_id = %(project_id)s AND s.agent_turn_id = i.agent_turn_id
             AND s.status IN ('completed', 'failed')
         LIMIT 1) IS NULL
    AND (SELECT true FROM public.cards AS c
         WHERE c.tenant_id = %(project_id)s AND c.metadata ->> 'agent_turn_id' = i.agent_turn_id
             AND c.metadata ->> 'type' = 'task.deliverable' AND c.deleted_at IS NULL
         LIMIT 1) IS NULL

-- name: why_strange
-- The turns of rows with an unknown status, among the newest rows.
SELECT DISTINCT {turn_of_row}, i.agent_id
FROM (
    SELECT n.agent_turn_id, n.correlation_id, n.inbox_id, n.agent_id, n.status
    FROM state.agent_inbox AS n
    WHERE n.project_id = %(project_id)s
    ORDER BY n.created_at DESC, n.inbox_id DESC
    LIMIT %(limit)s
) AS i
WHERE i.status NOT IN {known_statuses}

-- name: why_dead
-- The turns of the newest dead rows.
SELECT DISTINCT dead.turn_id, dead.agent_id
FROM (
    SELECT {turn_of_row} AS turn_id, i.agent_id
    FROM state.agent_inbox AS i
    WHERE i.project_id = %(project_id)s AND i.status = 'error' AND i.message_type IN {known_types}
    ORDER BY i.created_at DESC, i.inbox_id DESC
    LIMIT %(limit)s
) AS dead

-- name: why_unended
-- The turns without a recorded end and without an open row. Skips turns that a worker of another system finished, if
-- no call waits for their end.
SELECT t.agent_turn_id, t.agent_id
FROM cbx.turns AS t
LEFT JOIN state.agent_inbox AS i ON i.project_id = t.project_id AND i.inbox_id = t.agent_turn_id
WHERE t.project_id = %(project_id)s AND t.end_status IS NULL
    AND (i.inbox_id IS NULL
         OR i.status NOT IN {open_statuses} AND (t.report_to IS NOT NULL OR {last_step_status} IS DISTINCT FROM 'over'))
LIMIT %(limit)s

-- name: why_ended
-- The given turns whose end is recorded.
SELECT t.agent_turn_id
FROM cbx.turns AS t
WHERE t.project_id = %(project_id)s AND t.agent_turn_id = ANY(%(turns)s) AND t.end_status IS NOT NULL

-- name: why_bare_edges
-- The turns of the newest requests without an inbox row. Ids of edges sort by time.
SELECT recent.target_agent_turn_id, recent.target_agent_id
FROM (
    SELECT e.project_id, e.target_agent_turn_id, e.target_agent_id, e.correlation_id
    FROM state.execution_edges AS e
    WHERE e.project_id = %(project_id)s AND e.primitive = 'enqueue' AND e.edge_phase = 'request'
    ORDER BY e.edge_id DESC
    LIMIT %(limit)s
) AS recent
LEFT JOIN LATERAL (
    SELECT true AS there
    FROM state.agent_inbox AS i
    WHERE i.project_id = %(project_id)s AND i.inbox_id IN (recent.target_agent_turn_id, recent.correlation_id)
    LIMIT 1
) AS row ON true
WHERE recent.target_agent_turn_id IS NOT NULL AND recent.target_agent_id IS NOT NULL AND row.there IS NULL

-- name: why_orphans
-- The turns of leases on unclaimed rows.
SELECT DISTINCT coalesce(l.agent_turn_id, l.inbox_id), l.agent_id
FROM cbx.leases AS l
WHERE l.project_id = %(project_id)s
    AND NOT EXISTS (
        SELECT FROM state.agent_inbox AS i
        WHERE i.project_id = %(project_id)s AND i.inbox_id = l.inbox_id AND i.status = 'processing')

-- name: why_active_count
-- The number of agents with an active turn, and the number of queued turns.
SELECT
    (SELECT count(*) FROM state.agent_state_head AS h
     WHERE h.project_id = %(project_id)s AND h.status <> 'idle'),
    (SELECT count(*) FROM state.agent_inbox AS i
     WHERE i.project_id = %(project_id)s AND i.status = 'queued' AND i.message_type = 'turn')

-- name: why_heads
-- The heads of these agents.
SELECT {head_json}
FROM state.agent_state_head AS h
WHERE h.project_id = %(project_id)s AND h.agent_id = ANY(%(agents)s)

-- name: why_rows
-- The inbox rows of these turns, in no order. The agents narrow the search, because turns have no index in some
-- databases.
SELECT {inbox_json}
FROM state.agent_inbox AS i
WHERE i.project_id = %(project_id)s AND i.agent_id = ANY(%(agents)s) AND i.agent_turn_id = ANY(%(turns)s)
UNION ALL
SELECT {inbox_json}
FROM state.agent_inbox AS i
WHERE i.project_id = %(project_id)s AND i.agent_id = ANY(%(agents)s) AND i.agent_turn_id IS NULL
    AND {turn_of_row} = ANY(%(turns)s)

-- name: why_queues
-- The length of the queue of each of these agents.
SELECT i.agent_id, count(*)
FROM state.agent_inbox AS i
WHERE i.project_id = %(project_id)s AND i.agent_id = ANY(%(agents)s) AND i.status = 'queued'
    AND i.message_type = 'turn'
GROUP BY i.agent_id

-- name: why_steps
-- The steps of these turns.
SELECT {step_json}
FROM state.agent_steps AS s
WHERE s.project_id = %(project_id)s AND s.agent_turn_id = ANY(%(turns)s)
ORDER BY s.started_at, s.step_id

-- name: why_waiting
-- The calls for which these turns wait or waited, of every epoch.
SELECT {waiting_json}
FROM state.turn_waiting_tools AS w
WHERE w.project_id = %(project_id)s AND w.agent_id = ANY(%(agents)s) AND w.agent_turn_id = ANY(%(turns)s)
ORDER BY w.created_at, w.tool_call_id

-- name: why_edges
-- The edges that requested these turns.
SELECT {edge_json}
FROM state.execution_edges AS e
WHERE e.project_id = %(project_id)s AND e.target_agent_turn_id = ANY(%(turns)s) AND e.primitive = 'enqueue'
ORDER BY e.created_at, e.edge_id

-- name: why_audit
-- The last action on each of these turns from outside its run.
SELECT DISTINCT ON (a.agent_turn_id) {audit_json}
FROM cbx.audit AS a
WHERE a.project_id = %(project_id)s AND a.agent_turn_id = ANY(%(turns)s)
ORDER BY a.agent_turn_id, a.created_at DESC, a.audit_id DESC

-- name: why_leases
-- The leases of these agents' rows.
SELECT {lease_json}
FROM cbx.leases AS l
WHERE l.project_id = %(project_id)s AND l.agent_id = ANY(%(agents)s)

-- name: why_roster
-- The worker target of each of these agents.
SELECT r.agent_id, r.worker_target
FROM resource.project_agents AS r
WHERE r.project_id = %(project_id)s AND r.agent_id = ANY(%(agents)s)

-- name: why_workers
-- The workers that serve this project under one of these targets.
SELECT {worker_json}
FROM cbx.workers AS w
WHERE (w.project_id = %(project_id)s OR w.project_id IS NULL) AND w.worker_target = ANY(%(targets)s)
ORDER BY w.worker_id

-- name: why_loads
-- The number of rows that each of these workers has claimed.
-- across-projects: a worker may serve all projects
SELECT l.owner, count(*)
FROM cbx.leases AS l
WHERE l.owner = ANY(%(workers)s) AND l.expires_at > {now}
GROUP BY l.owner

-- name: why_lost_cards
-- The references of these boxes to cards that no reader sees, each once, in order.
SELECT lost.box_id, lost.card_id, lost.kind
FROM (
    SELECT b.box_id::text AS box_id, slot.card_id, min(slot.place) AS place,
        CASE WHEN c.card_id IS NULL THEN 'dangling' WHEN c.deleted_at IS NOT NULL THEN 'deleted'
             ELSE 'expired' END AS kind
    FROM public.card_boxes AS b
    CROSS JOIN LATERAL jsonb_array_elements_text({ids}) WITH ORDINALITY AS slot (card_id, place)
    LEFT JOIN LATERAL (
        SELECT c.card_id, c.deleted_at, c.expires_at
        FROM public.cards AS c
        WHERE c.tenant_id = %(project_id)s AND c.card_id = slot.card_id
        LIMIT 1
    ) AS c ON true
    WHERE b.tenant_id = %(project_id)s AND b.box_id = ANY(%(boxes)s::uuid[])
        AND (c.card_id IS NULL OR NOT ({visible}))
    GROUP BY 1, 2, 4
) AS lost
ORDER BY lost.box_id, lost.place

-- name: why_setups
-- The current profile of each of these agents, by its name, or else by its box: name and worker target.
SELECT DISTINCT ON (r.agent_id) r.agent_id, p.name, p.worker_target
FROM resource.project_agents AS r
JOIN resource.profiles AS p ON p.project_id = r.project_id
    AND (lower(p.name) = lower(r.metadata ->> 'profile_name') OR p.profile_box_id = r.profile_box_id::text)
WHERE r.project_id = %(project_id)s AND r.agent_id = ANY(%(agents)s)
ORDER BY r.agent_id, p.profile_box_id = r.profile_box_id::text

-- name: why_live_workers
-- The live workers of all projects, and the project that each serves.
SELECT w.worker_id, w.worker_target, w.project_id
FROM cbx.workers AS w
WHERE w.expires_at > %(now)s
ORDER BY w.worker_id

-- name: why_step_pace
-- The number of the last 100 ended steps of up to 50 agents with a profile, without steps that waited for calls, and
-- their p95 in seconds. Ids of steps sort by time.
SELECT count(*), percentile_cont(0.95) WITHIN GROUP (ORDER BY last.seconds)
FROM (
    SELECT step.seconds
    FROM (SELECT %(agent_id)s::text AS agent_id
          UNION
          (SELECT r.agent_id FROM resource.project_agents AS r
           WHERE r.project_id = %(project_id)s AND r.profile_box_id = %(profile_box_id)s::uuid LIMIT 50)) AS agent
    CROSS JOIN LATERAL (
        SELECT s.ended_at, extract(epoch FROM s.ended_at - s.started_at)::float8 AS seconds
        FROM state.agent_steps AS s
        WHERE s.project_id = %(project_id)s AND s.agent_id = agent.agent_id
            AND s.profile_box_id = %(profile_box_id)s::uuid AND s.request_box_id IS NOT NULL
            AND isfinite(s.started_at) AND isfinite(s.ended_at)
            AND NOT EXISTS (
                SELECT FROM state.turn_waiting_tools AS w
                WHERE w.project_id = %(project_id)s AND w.agent_turn_id = s.agent_turn_id AND w.step_id = s.step_id)
        ORDER BY s.step_id DESC
        LIMIT 100
    ) AS step
    ORDER BY step.ended_at DESC
    LIMIT 100
) AS last

-- name: why_call_paces
-- For each of these tools the number of the last 100 answered calls that an agent waited for, and their p95 in seconds.
SELECT last.tool_name, count(*), percentile_cont(0.95) WITHIN GROUP (ORDER BY last.seconds)
FROM (
    SELECT w.tool_name, extract(epoch FROM w.received_at - w.created_at)::float8 AS seconds,
        row_number() OVER (PARTITION BY w.tool_name ORDER BY w.received_at DESC) AS place
    FROM state.turn_waiting_tools AS w
    WHERE w.project_id = %(project_id)s AND w.agent_id = %(agent_id)s AND w.tool_name = ANY(%(tools)s)
        AND isfinite(w.created_at) AND isfinite(w.received_at)
) AS last
WHERE last.place <= 100
GROUP BY last.tool_name

-- name: why_results
-- The results of these calls among the cards of these turns. Ids of calls are not unique, for example after an import.
SELECT c.metadata ->> 'agent_turn_id', c.tool_call_id, c.card_id, c.created_at
FROM public.cards AS c
WHERE c.tenant_id = %(project_id)s AND c.tool_call_id = ANY(%(calls)s) AND c.metadata ->> 'type' = 'tool.result'
    AND c.metadata ->> 'agent_turn_id' = ANY(%(turns)s) AND c.deleted_at IS NULL
ORDER BY c.created_at, c.card_id

-- name: why_waits_for
-- For each suspended turn among these, the turns that should answer its calls. For each queued turn, the active turn
-- of its agent.
SELECT e.target_agent_turn_id, e.target_agent_id
FROM state.agent_state_head AS h
JOIN state.turn_waiting_tools AS w ON w.project_id = h.project_id AND w.agent_id = h.agent_id
    AND w.agent_turn_id = h.active_agent_turn_id AND w.turn_epoch = h.turn_epoch AND w.wait_status = 'waiting'
JOIN state.execution_edges AS e ON e.project_id = h.project_id AND e.source_agent_turn_id = w.agent_turn_id
    AND e.primitive = 'enqueue' AND e.edge_phase = 'request'
    AND coalesce(e.metadata -> 'report_to' ->> 'tool_call_id', e.metadata -> 'batch' ->> 'tool_call_id')
        = w.tool_call_id
WHERE h.project_id = %(project_id)s AND h.status <> 'idle' AND h.status = 'suspended'
    AND h.active_agent_turn_id = ANY(%(turns)s)
    AND e.target_agent_turn_id IS NOT NULL AND e.target_agent_id IS NOT NULL
UNION
SELECT h.active_agent_turn_id, h.agent_id
FROM state.agent_inbox AS i
JOIN state.agent_state_head AS h ON h.project_id = i.project_id AND h.agent_id = i.agent_id AND h.status <> 'idle'
WHERE i.project_id = %(project_id)s AND i.status = 'queued' AND i.message_type = 'turn'
    AND i.agent_turn_id = ANY(%(turns)s) AND h.active_agent_turn_id IS NOT NULL

-- name: why_delivered
-- The deliverables that these turns wrote.
SELECT c.metadata ->> 'agent_turn_id', c.card_id, c.metadata ->> 'step_id'
FROM public.cards AS c
WHERE c.tenant_id = %(project_id)s AND c.metadata ->> 'agent_turn_id' = ANY(%(turns)s)
    AND c.metadata ->> 'type' = 'task.deliverable' AND c.deleted_at IS NULL
ORDER BY c.created_at, c.card_id

-- name: why_freed
-- The time when each of these agents last ended a turn. A turn that was promoted later cannot have been due earlier.
SELECT p.agent_id, p.updated_at
FROM state.agent_state_pointers AS p
WHERE p.project_id = %(project_id)s AND p.agent_id = ANY(%(agents)s) AND isfinite(p.updated_at)

-- name: why_arguments
-- The beginnings of the arguments of these calls, from the cards of these turns.
SELECT c.metadata ->> 'agent_turn_id', c.tool_call_id, left((c.content -> 'arguments')::text, %(length)s)
FROM public.cards AS c
WHERE c.tenant_id = %(project_id)s AND c.tool_call_id = ANY(%(calls)s) AND c.metadata ->> 'type' = 'tool.call'
    AND c.metadata ->> 'agent_turn_id' = ANY(%(turns)s) AND c.deleted_at IS NULL
    AND c.content -> 'arguments' IS NOT NULL
ORDER BY c.created_at, c.card_id

-- name: why_children
-- The turns that these turns requested, with the call that their end answers.
SELECT e.target_agent_turn_id, e.target_agent_id, e.source_agent_turn_id,
    coalesce(e.metadata -> 'report_to' ->> 'tool_call_id', e.metadata -> 'batch' ->> 'tool_call_id'),
    e.metadata -> 'batch' IS NOT NULL
FROM state.execution_edges AS e
WHERE e.project_id = %(project_id)s AND e.source_agent_turn_id = ANY(%(turns)s) AND e.primitive = 'enqueue'
    AND e.edge_phase = 'request' AND e.target_agent_turn_id IS NOT NULL AND e.target_agent_id IS NOT NULL
ORDER BY e.created_at, e.edge_id

-- name: why_calls
-- The state of each of these calls: whether its turn still waits, and the status of its last report.
SELECT asked.agent_id, asked.agent_turn_id, asked.tool_call_id, w.wait_status, i.status
FROM unnest(%(agents)s::text[], %(turns)s::text[], %(calls)s::text[])
    AS asked (agent_id, agent_turn_id, tool_call_id)
LEFT JOIN LATERAL (
    SELECT w.wait_status
    FROM state.turn_waiting_tools AS w
    WHERE w.project_id = %(project_id)s AND w.agent_id = asked.agent_id
        AND w.agent_turn_id = asked.agent_turn_id AND w.tool_call_id = asked.tool_call_id
    ORDER BY w.turn_epoch DESC
    LIMIT 1
) AS w ON true
LEFT JOIN LATERAL (
    SELECT i.status
    FROM state.agent_inbox AS i
    WHERE i.project_id = %(project_id)s AND i.message_type IN {report_types}
        AND md5(i.correlation_id) = md5(asked.tool_call_id) AND i.correlation_id = asked.tool_call_id
    ORDER BY i.created_at DESC
    LIMIT 1
) AS i ON true

-- name: why_sharers
-- The active turns that write to these boxes.
SELECT h.output_box_id::text, h.agent_id, h.active_agent_turn_id
FROM state.agent_state_head AS h
WHERE h.project_id = %(project_id)s AND h.status <> 'idle' AND h.output_box_id = ANY(%(boxes)s::uuid[])
    AND h.active_agent_turn_id IS NOT NULL

-- name: why_primary
-- Returns whether this is a primary, where locks on rows can be examined.
SELECT NOT pg_is_in_recovery()

-- name: why_read_only
-- The source of the setting that makes new transactions of all sessions read-only here, unless this is a replica.
SELECT s.source
FROM pg_settings AS s
WHERE s.name = 'default_transaction_read_only' AND s.setting = 'on' AND NOT pg_is_in_recovery()
    AND s.source IN ('environment variable', 'configuration file', 'command line', 'global', 'database')

-- fragment: holder
JOIN pg_locks AS l ON l.locktype = 'transactionid' AND l.granted AND l.mode = 'ExclusiveLock'
    AND l.pid IS DISTINCT FROM pg_backend_pid() AND l.transactionid

-- name: why_row_locks
-- The sessions that have locked rows of these agents, inbox rows or boxes. A locked row has a running transaction's id.
SELECT 'state.agent_state_head', h.agent_id, 'row', true, coalesce(l.pid, 0)
FROM state.agent_state_head AS h
{holder} = h.xmax
WHERE h.project_id = %(project_id)s AND h.agent_id = ANY(%(agents)s)
UNION ALL
SELECT 'state.agent_inbox', i.inbox_id, 'row', true, coalesce(l.pid, 0)
FROM state.agent_inbox AS i
{holder} = i.xmax
WHERE i.project_id = %(project_id)s AND i.inbox_id = ANY(%(inbox_ids)s)
UNION ALL
SELECT 'public.card_boxes', b.box_id::text, 'row', true, coalesce(l.pid, 0)
FROM public.card_boxes AS b
{holder} = b.xmax
WHERE b.tenant_id = %(project_id)s AND b.box_id = ANY(%(boxes)s::uuid[])

-- name: why_record_locks
-- The sessions that have locked the records of these turns.
SELECT 'cbx.turns', t.agent_turn_id, 'row', true, coalesce(l.pid, 0)
FROM cbx.turns AS t
{holder} = t.xmax
WHERE t.project_id = %(project_id)s AND t.agent_turn_id = ANY(%(turns)s)

-- name: why_table_locks
-- The sessions that keep others from writing to a table that turns need, or that wait for such a lock. Reads only the
-- catalog.
SELECT n.nspname || '.' || c.relname, NULL, l.mode, l.granted, coalesce(l.pid, 0)
FROM pg_locks AS l
JOIN pg_class AS c ON c.oid = l.relation
JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE l.locktype = 'relation' AND l.pid IS DISTINCT FROM pg_backend_pid()
    AND l.database = (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database())
    AND l.mode IN ('ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
    AND n.nspname || '.' || c.relname = ANY(%(tables)s)
ORDER BY NOT l.granted, 1, 5

-- name: why_sessions
-- The activity of these sessions, and of all that wait for a lock or block such a session. A session that waits for a
-- row has a tuple lock, which shows the table.
WITH locks AS MATERIALIZED (
    SELECT l.pid, l.locktype, l.relation, l.granted, l.waitstart FROM pg_locks AS l WHERE l.pid IS NOT NULL
)
SELECT a.pid, nullif(a.application_name, ''), a.state,
    extract(epoch FROM %(now)s - a.xact_start)::float8, extract(epoch FROM %(now)s - a.query_start)::float8, a.query,
    CASE WHEN w.pid IS NULL THEN ARRAY[]::integer[] ELSE pg_blocking_pids(a.pid) END,
    (SELECT n.nspname || '.' || c.relname
     FROM locks AS l
     JOIN pg_class AS c ON c.oid = l.relation
     JOIN pg_namespace AS n ON n.oid = c.relnamespace
     WHERE w.pid IS NOT NULL AND l.pid = a.pid AND (l.locktype = 'tuple' OR l.locktype = 'relation' AND NOT l.granted)
     ORDER BY l.granted, l.locktype
     LIMIT 1),
    extract(epoch FROM %(now)s - w.waitstart)::float8
FROM pg_stat_activity AS a
LEFT JOIN locks AS w ON w.pid = a.pid AND NOT w.granted
WHERE a.pid = ANY(%(pids)s) OR w.pid IS NOT NULL
    OR a.pid IN (SELECT unnest(pg_blocking_pids(b.pid)) FROM locks AS b WHERE NOT b.granted)

-- name: why_batches
-- The batches that these turns created.
SELECT {batch_json}
FROM cbx.batches AS b
WHERE b.project_id = %(project_id)s AND b.parent_turn_id = ANY(%(turns)s)
ORDER BY b.created_at, b.batch_id

-- name: why_batch_tasks
-- The tasks of these batches.
SELECT k.batch_id, k.task_index, k.status, k.agent_turn_id, k.next_try_at
FROM cbx.batch_tasks AS k
WHERE k.project_id = %(project_id)s AND k.batch_id = ANY(%(batches)s)
ORDER BY k.batch_id, k.task_index

-- name: why_foreign_batches
-- The batches of another system's manager that these turns created.
SELECT {foreign_batch_json}
FROM state.pmo_batches AS f
WHERE f.project_id = %(project_id)s AND f.parent_agent_turn_id = ANY(%(turns)s)
ORDER BY f.created_at, f.batch_id

-- name: why_foreign_batch_tasks
-- The tasks of these batches, and the turns of their children.
SELECT g.batch_id, g.metadata -> 'task_index', g.status, g.current_agent_turn_id, g.next_retry_at
FROM state.pmo_batch_tasks AS g
WHERE g.project_id = %(project_id)s AND g.batch_id = ANY(%(batches)s)
ORDER BY g.batch_id, g.created_at, g.batch_task_id

-- name: why_foreign_children
-- The turns that run for these turns as children of batches of another system's manager, and the call that waits.
SELECT g.current_agent_turn_id, g.agent_id, f.parent_agent_turn_id, f.parent_tool_call_id
FROM state.pmo_batches AS f
JOIN state.pmo_batch_tasks AS g ON g.project_id = f.project_id AND g.batch_id = f.batch_id
WHERE f.project_id = %(project_id)s AND f.status = 'running' AND f.parent_agent_turn_id = ANY(%(turns)s)
    AND g.status = 'dispatched' AND g.current_agent_turn_id IS NOT NULL
ORDER BY g.created_at, g.batch_task_id

-- name: why_batches_amiss
-- The parents of batches with an overdue action. Such a batch is past its deadline or has ended without a report. Or
-- it has a task that has been due for longer than `age`, or a child whose end is not recorded.
SELECT b.parent_turn_id, b.source_agent_id
FROM cbx.batches AS b
WHERE b.project_id = %(project_id)s AND b.parent_turn_id IS NOT NULL AND (b.status = 'running' OR b.report_due)
    AND (b.report_due OR b.deadline_at <= %(now)s OR EXISTS (
        SELECT FROM cbx.batch_tasks AS k
        LEFT JOIN cbx.turns AS t ON t.project_id = k.project_id AND t.agent_turn_id = k.agent_turn_id
        WHERE k.project_id = %(project_id)s AND k.batch_id = b.batch_id
            AND (k.status = 'pending' AND k.next_try_at <= %(now)s - %(age)s::interval
                 OR k.status = 'dispatched' AND t.end_status IS NOT NULL)))
LIMIT %(limit)s

-- name: why_foreign_batches_running
-- The parents of running batches of another system's manager.
SELECT f.parent_agent_turn_id, f.parent_agent_id
FROM state.pmo_batches AS f
WHERE f.project_id = %(project_id)s AND f.status = 'running'
ORDER BY f.deadline_at, f.batch_id
LIMIT %(limit)s
