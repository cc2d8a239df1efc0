-- fragment: known_types
('turn', 'tool_result', 'timeout', 'stop')

-- fragment: report_types
('tool_result', 'timeout')

-- fragment: open_statuses
('queued', 'pending', 'deferred', 'processing')

-- fragment: inbox_json
json_build_object({fields:InboxRow i})::text

-- fragment: lease_json
json_build_object({fields:Lease l})::text

-- fragment: new_row
-- Inserts an inbox row that is due at once, if the relation in the FROM clause that the query adds has a row.
INSERT INTO state.agent_inbox AS i
    (project_id, inbox_id, agent_id, channel_id, message_type, enqueue_mode, correlation_id, agent_turn_id,
     turn_epoch, context_headers, payload, status, next_retry_at, created_at)
SELECT %(project_id)s, %(inbox_id)s, %(agent_id)s, %(channel_id)s, %(message_type)s, %(enqueue_mode)s,
    %(correlation_id)s, %(agent_turn_id)s, %(turn_epoch)s, %(context_headers)s, %(payload)s, %(status)s,
    {now}, {now}

-- fragment: edge_of_row
-- Records the sender of the inbox row in `written`.
edge AS (
    INSERT INTO state.execution_edges
        (project_id, edge_id, channel_id, primitive, edge_phase, source_agent_id, source_agent_turn_id,
         source_step_id, target_agent_id, target_agent_turn_id, correlation_id, enqueue_mode, recursion_depth,
         trace_id, parent_step_id, metadata, created_at)
    SELECT %(project_id)s, %(edge_id)s, %(channel_id)s, %(primitive)s, %(edge_phase)s, %(source_agent_id)s,
        %(source_agent_turn_id)s, %(source_step_id)s, %(agent_id)s, %(agent_turn_id)s, %(correlation_id)s,
        %(enqueue_mode)s, %(depth)s, %(edge_trace_id)s, %(edge_parent_step_id)s, %(metadata)s, {now}
    FROM written
    ON CONFLICT DO NOTHING
)

-- name: insert_inbox
-- Writes an inbox row. Returns no row if its id or its correlation id is taken.
INSERT INTO state.agent_inbox AS i
    (project_id, inbox_id, agent_id, channel_id, message_type, enqueue_mode, correlation_id, agent_turn_id,
     turn_epoch, context_headers, payload, status, next_retry_at, created_at)
VALUES
    (%(project_id)s, %(inbox_id)s, %(agent_id)s, %(channel_id)s, %(message_type)s, %(enqueue_mode)s,
     %(correlation_id)s, %(agent_turn_id)s, %(turn_epoch)s, %(context_headers)s, %(payload)s, %(status)s,
     {now}, {moment})
ON CONFLICT DO NOTHING
RETURNING i.next_retry_at, i.created_at

-- name: inbox_row
-- The row with this id.
SELECT {inbox_json}
FROM state.agent_inbox AS i
WHERE i.project_id = %(project_id)s AND i.inbox_id = %(inbox_id)s

-- name: lock_inbox_row
-- The row with this id, locked. The caller has locked the head of its agent.
SELECT {inbox_json}
FROM state.agent_inbox AS i
WHERE i.project_id = %(project_id)s AND i.inbox_id = %(inbox_id)s
FOR UPDATE

-- name: inbox_by_correlation
-- The row with this type that has this correlation id.
SELECT {inbox_json}
FROM state.agent_inbox AS i
WHERE i.project_id = %(project_id)s AND i.message_type = %(message_type)s
    AND md5(i.correlation_id) = md5(%(correlation_id)s) AND i.correlation_id = %(correlation_id)s

-- name: inbox_of_turn
-- The rows of a turn, oldest first.
SELECT {inbox_json}
FROM state.agent_inbox AS i
WHERE i.project_id = %(project_id)s AND i.agent_turn_id = %(agent_turn_id)s
ORDER BY i.created_at, i.inbox_id

-- name: turn_row
-- The row that dispatched a turn, or the oldest one if there are several.
SELECT {inbox_json}
FROM state.agent_inbox AS i
WHERE i.project_id = %(project_id)s AND i.agent_turn_id = %(agent_turn_id)s AND i.message_type = 'turn'
ORDER BY i.created_at, i.inbox_id
LIMIT 1

-- name: queue_position
-- The position of a queued row among those of its agent, from 1.
SELECT count(*)
FROM state.agent_inbox AS i
WHERE i.project_id = %(project_id)s AND i.agent_id = %(agent_id)s AND i.status = 'queued'
    AND i.message_type = 'turn' AND (i.created_at, i.inbox_id) <= (%(created_at)s::timestamptz, %(inbox_id)s)

-- name: count_queued
-- The number of queued turns of an agent.
SELECT count(*) FROM {queued_of_agent}

-- name: move_inbox
-- Changes the state of the rows that are in one of the given states. Finished rows get an archive time.
WITH i AS (
    UPDATE state.agent_inbox AS i
    SET status = %(target)s,
        turn_epoch = coalesce(%(turn_epoch)s, i.turn_epoch),
        retry_count = i.retry_count + %(attempts)s,
        next_retry_at = coalesce({later}, i.next_retry_at),
        last_error = coalesce(%(error)s, i.last_error),
        defer_reason = CASE WHEN %(target)s = 'deferred' THEN %(error)s ELSE i.defer_reason END,
        processed_at = CASE WHEN %(target)s IN ('pending', 'deferred', 'queued') THEN NULL
                            WHEN %(target)s = 'consumed' THEN coalesce(i.processed_at, {now})
                            ELSE i.processed_at END,
        archived_at = CASE WHEN %(target)s IN ('consumed', 'error', 'skipped')
                           THEN coalesce(i.archived_at, {now}) END
    WHERE i.project_id = %(project_id)s AND i.inbox_id = ANY(%(inbox_ids)s) AND i.status = ANY(%(sources)s)
    RETURNING i.*
)
SELECT {inbox_json} FROM i

-- name: close_inbox_of_turn
-- Consumes the open rows of a turn that has ended.
UPDATE state.agent_inbox AS i
SET status = 'consumed', processed_at = coalesce(i.processed_at, {now}), archived_at = coalesce(i.archived_at, {now})
WHERE i.project_id = %(project_id)s AND i.agent_turn_id = %(agent_turn_id)s
    AND i.status IN ('pending', 'deferred', 'processing')
RETURNING i.inbox_id

-- fragment: clock
-- The time, evaluated once instead of for each row.
clock AS MATERIALIZED (SELECT {now} AS now)

-- fragment: oldest_due
-- The row that the agent `asked` must process next: the oldest of its rows that are due at {1}. While a turn of the
-- agent is claimed, other turns are not due. Each state is read in the order of its index.
SELECT due.inbox_id, due.next_retry_at, due.created_at
FROM (
    (SELECT i.inbox_id, i.next_retry_at, i.created_at
    FROM state.agent_inbox AS i
    WHERE i.project_id = %(project_id)s AND i.agent_id = asked.agent_id AND i.status = 'pending'
        AND i.next_retry_at <= {1} AND (i.message_type <> 'turn' OR NOT {runs_a_turn})
    ORDER BY i.created_at, i.inbox_id
    LIMIT 1)
    UNION ALL
    (SELECT i.inbox_id, i.next_retry_at, i.created_at
    FROM state.agent_inbox AS i
    WHERE i.project_id = %(project_id)s AND i.agent_id = asked.agent_id AND i.status = 'deferred'
        AND i.next_retry_at <= {1} AND (i.message_type <> 'turn' OR NOT {runs_a_turn})
    ORDER BY i.created_at, i.inbox_id
    LIMIT 1)
) AS due
ORDER BY due.created_at, due.inbox_id
LIMIT 1

-- fragment: runs_a_turn
EXISTS (
            SELECT FROM state.agent_inbox AS b
            WHERE b.project_id = %(project_id)s AND b.agent_id = asked.agent_id
                AND b.status = 'processing' AND b.message_type = 'turn')

-- fragment: claimed
-- Claims the rows of `picked`, whose heads this statement has locked.
claimed AS (
    UPDATE state.agent_inbox AS i
    SET status = 'processing', processed_at = clock.now
    FROM picked, clock
    WHERE i.project_id = %(project_id)s AND i.inbox_id = picked.inbox_id AND i.status IN ('pending', 'deferred')
    RETURNING i.*
)

-- fragment: new_lease
-- Replaces a lease of a previous owner, which no longer has the row.
ON CONFLICT (project_id, inbox_id) DO UPDATE
SET owner = excluded.owner, turn_epoch = excluded.turn_epoch, claimed_at = excluded.claimed_at,
    heartbeat_at = excluded.heartbeat_at, expires_at = excluded.expires_at

-- fragment: leased
-- Inserts the leases of `claimed`. On a single server, the statement that claims also does this, because a second one
-- would make a claim take half as long again.
leased AS (
    INSERT INTO cbx.leases AS l
        (project_id, inbox_id, agent_id, agent_turn_id, turn_epoch, owner, claimed_at, heartbeat_at, expires_at)
    SELECT %(project_id)s, i.inbox_id, i.agent_id, i.agent_turn_id, i.turn_epoch, %(owner)s, clock.now, clock.now,
        {later}
    FROM claimed AS i, clock
    {new_lease}
)

-- fragment: rows_claimed
SELECT {inbox_json} FROM claimed AS i ORDER BY i.created_at, i.inbox_id

-- fragment: window
-- The number of due rows that a claim examines. This is not a parameter, because the planner must know it.
1000

-- fragment: due_picked
-- Picks up to `limit` due rows of agents of a target: the oldest row of each agent, those due for the longest time
-- first. Skips agents whose head another transaction has locked. Examines only the `window` rows of the project that
-- are due for the longest time, so that its cost does not grow with the number of waiting rows.
{clock}, picked AS MATERIALIZED (
    SELECT seen.inbox_id
    FROM (
        SELECT i.agent_id, i.inbox_id, i.next_retry_at, i.created_at
        FROM state.agent_inbox AS i
        WHERE i.project_id = %(project_id)s AND i.status IN ('pending', 'deferred')
            AND i.next_retry_at <= (SELECT now FROM clock)
        ORDER BY i.next_retry_at, i.created_at, i.inbox_id
        LIMIT {window}
    ) AS seen
    JOIN resource.project_agents AS asked ON asked.project_id = %(project_id)s AND asked.agent_id = seen.agent_id
        AND (%(target)s::text IS NULL OR asked.worker_target = %(target)s)
    -- OFFSET keeps the comparison in the subquery, because the planner does not know that it is nearly always true.
    CROSS JOIN LATERAL (
        SELECT oldest.inbox_id
        FROM ({oldest_due((SELECT now FROM clock))}) AS oldest
        WHERE oldest.inbox_id = seen.inbox_id
        OFFSET 0
    ) AS is_oldest
    JOIN state.agent_state_head AS h ON h.project_id = %(project_id)s AND h.agent_id = seen.agent_id
    ORDER BY seen.next_retry_at, seen.created_at, seen.inbox_id
    LIMIT %(limit)s
    FOR UPDATE OF h SKIP LOCKED
)

-- name: claim_due
-- Claims the picked rows, and leases them to an owner.
WITH {due_picked}, {claimed}, {leased}
{rows_claimed}

-- name: take_due
-- Claims the picked rows on shards, where `insert_leases` follows as a separate statement.
WITH {due_picked}, {claimed}
{rows_claimed}

-- name: insert_leases
-- Inserts the leases of rows that were just claimed.
INSERT INTO cbx.leases AS l
    (project_id, inbox_id, agent_id, agent_turn_id, turn_epoch, owner, claimed_at, heartbeat_at, expires_at)
SELECT %(project_id)s, g.inbox_id, g.agent_id, g.agent_turn_id, g.turn_epoch, %(owner)s, {now}, {now}, {later}
FROM unnest(%(inbox_ids)s::text[], %(agent_ids)s::text[], %(agent_turn_ids)s::text[], %(turn_epochs)s::bigint[])
    AS g (inbox_id, agent_id, agent_turn_id, turn_epoch)
{new_lease}

-- name: more_due
-- Returns whether the project has more due rows than a claim examines.
SELECT EXISTS (
    SELECT FROM state.agent_inbox AS i
    WHERE i.project_id = %(project_id)s AND i.status IN ('pending', 'deferred')
        AND i.next_retry_at <= {now}
    ORDER BY i.next_retry_at, i.created_at, i.inbox_id
    OFFSET {window})

-- name: due_by_agent
-- The oldest due row of each agent that is not `served`, up to a limit. The recursion walks through two indexes, from
-- agent to agent: agents of the target, and agents with an open row. The cost grows with the smaller number of the
-- two, not with the number of rows.
WITH RECURSIVE asked AS (
    SELECT ''::text COLLATE "C" AS agent_id
    UNION ALL
    SELECT (
        SELECT i.agent_id
        FROM state.agent_inbox AS i
        WHERE i.project_id = %(project_id)s AND i.status IN {open_statuses}
            AND i.agent_id >= (
                SELECT a.agent_id
                FROM resource.project_agents AS a
                WHERE a.project_id = %(project_id)s AND a.agent_id > asked.agent_id
                    AND (%(target)s::text IS NULL OR a.worker_target = %(target)s)
                ORDER BY a.agent_id
                LIMIT 1)
        ORDER BY i.agent_id
        LIMIT 1)
    FROM asked
    WHERE asked.agent_id IS NOT NULL
)
SELECT oldest.inbox_id
FROM asked
JOIN resource.project_agents AS a ON a.project_id = %(project_id)s AND a.agent_id = asked.agent_id
    AND (%(target)s::text IS NULL OR a.worker_target = %(target)s)
CROSS JOIN LATERAL ({oldest_due(%(now)s::timestamptz)}) AS oldest
WHERE asked.agent_id <> ALL(%(served)s::text[])
ORDER BY oldest.next_retry_at, oldest.created_at, oldest.inbox_id
LIMIT %(limit)s

-- fragment: named_picked
-- Picks up to `limit` of the given rows that are still due, those due for the longest time first. Skips rows of agents
-- whose head another transaction has locked.
{clock}, picked AS MATERIALIZED (
    SELECT asked.inbox_id
    FROM state.agent_inbox AS asked
    JOIN state.agent_state_head AS h ON h.project_id = %(project_id)s AND h.agent_id = asked.agent_id
    WHERE asked.project_id = %(project_id)s AND asked.inbox_id = ANY(%(inbox_ids)s)
        AND asked.status IN ('pending', 'deferred') AND asked.next_retry_at <= (SELECT now FROM clock)
        AND (asked.message_type <> 'turn' OR NOT {runs_a_turn})
    ORDER BY asked.next_retry_at, asked.created_at, asked.inbox_id
    LIMIT %(limit)s
    FOR UPDATE OF h SKIP LOCKED
)

-- name: claim_due_by_agent
-- Claims the picked rows, and leases them to an owner.
WITH {named_picked}, {claimed}, {leased}
{rows_claimed}

-- name: take_due_by_agent
-- Claims the picked rows on shards.
WITH {named_picked}, {claimed}
{rows_claimed}

-- name: consume_claimed
-- Consumes the claimed rows of an owner. Locks the heads first and in order, as every statement does.
WITH locked AS MATERIALIZED (
    SELECT h.agent_id
    FROM state.agent_state_head AS h
    WHERE h.project_id = %(project_id)s AND h.agent_id IN (
        SELECT l.agent_id FROM cbx.leases AS l
        WHERE l.project_id = %(project_id)s AND l.inbox_id = ANY(%(inbox_ids)s) AND l.owner = %(owner)s)
    ORDER BY h.agent_id
    FOR UPDATE OF h
), mine AS (
    DELETE FROM cbx.leases AS l
    WHERE l.project_id = %(project_id)s AND l.inbox_id = ANY(%(inbox_ids)s) AND l.owner = %(owner)s
        AND (SELECT count(*) FROM locked) >= 0
    RETURNING l.inbox_id
)
UPDATE state.agent_inbox AS i
SET status = 'consumed', archived_at = coalesce(i.archived_at, {now})
FROM mine
WHERE i.project_id = %(project_id)s AND i.inbox_id = mine.inbox_id AND i.status = 'processing'
RETURNING i.inbox_id

-- name: due_projects
-- The projects with due work for a target. A claim is for one project.
-- across-projects: it looks for projects
SELECT DISTINCT i.project_id
FROM state.agent_inbox AS i
JOIN resource.project_agents AS a ON a.project_id = i.project_id AND a.agent_id = i.agent_id
WHERE i.status IN ('pending', 'deferred') AND i.next_retry_at <= {now} AND a.worker_target = %(target)s

-- name: unsettled_projects
-- The projects with open rows or active turns of a target, which could be overdue.
-- across-projects: it looks for projects
SELECT i.project_id
FROM state.agent_inbox AS i
JOIN resource.project_agents AS a ON a.project_id = i.project_id AND a.agent_id = i.agent_id
WHERE i.status IN {open_statuses} AND a.worker_target = %(target)s
UNION
SELECT h.project_id
FROM state.agent_state_head AS h
JOIN resource.project_agents AS a ON a.project_id = h.project_id AND a.agent_id = h.agent_id
WHERE h.status <> 'idle' AND a.worker_target = %(target)s

-- name: unfinished
-- The number of due or claimed rows of a target, and the agents whose due rows cannot be claimed because they have no
-- head. Retries that are not due yet do not count.
SELECT
    count(*) FILTER (WHERE i.status = 'processing' OR h.agent_id IS NOT NULL),
    array_agg(DISTINCT i.agent_id) FILTER (WHERE i.status <> 'processing' AND h.agent_id IS NULL)
FROM state.agent_inbox AS i
JOIN resource.project_agents AS a ON a.project_id = i.project_id AND a.agent_id = i.agent_id
LEFT JOIN state.agent_state_head AS h ON h.project_id = i.project_id AND h.agent_id = i.agent_id
WHERE i.project_id = %(project_id)s AND a.worker_target = %(target)s
    AND (i.status = 'processing' OR i.status IN ('pending', 'deferred') AND i.next_retry_at <= {now})

-- name: idle_agents_with_queued
-- The agents that are idle, or have no head, although a turn is queued for them.
SELECT DISTINCT i.agent_id
FROM state.agent_inbox AS i
LEFT JOIN state.agent_state_head AS h ON h.project_id = i.project_id AND h.agent_id = i.agent_id
WHERE i.project_id = %(project_id)s AND i.status = 'queued' AND i.message_type = 'turn'
    AND coalesce(h.status, 'idle') = 'idle'

-- name: unclaimed_since
-- For each target, the oldest row that has been due for at least `age`. Its notification may be lost.
SELECT DISTINCT ON (a.worker_target) {inbox_json}
FROM state.agent_inbox AS i
JOIN resource.project_agents AS a ON a.project_id = i.project_id AND a.agent_id = i.agent_id
WHERE i.project_id = %(project_id)s AND i.status IN ('pending', 'deferred')
    AND i.next_retry_at <= {now} - %(age)s::interval
ORDER BY a.worker_target, i.created_at, i.inbox_id

-- name: lease
-- The lease of a claimed row.
SELECT {lease_json}
FROM cbx.leases AS l
WHERE l.project_id = %(project_id)s AND l.inbox_id = %(inbox_id)s

-- name: lock_lease
-- The lease of a claimed row, locked.
SELECT {lease_json}
FROM cbx.leases AS l
WHERE l.project_id = %(project_id)s AND l.inbox_id = %(inbox_id)s
FOR UPDATE

-- name: leases_of_turn
-- The leases of the rows of a turn.
SELECT {lease_json}
FROM cbx.leases AS l
WHERE l.project_id = %(project_id)s AND l.agent_id = %(agent_id)s AND l.agent_turn_id = %(agent_turn_id)s
ORDER BY l.claimed_at, l.inbox_id

-- name: drop_leases
-- Ends leases of any owner.
DELETE FROM cbx.leases AS l
WHERE l.project_id = %(project_id)s AND l.inbox_id = ANY(%(inbox_ids)s)

-- name: extend_leases
-- Extends the leases of a live owner, and updates the times that other programs examine. Returns the rows that it
-- still has, with their epochs. The statement waits for no lock: a row that another session has locked must not cost
-- another turn its lease. A locked lease is extended by the next heartbeat. A locked head keeps its time.
WITH held AS MATERIALIZED (
    SELECT l.inbox_id, l.agent_id, l.turn_epoch
    FROM cbx.leases AS l
    WHERE l.project_id = %(project_id)s AND l.inbox_id = ANY(%(inbox_ids)s) AND l.owner = %(owner)s
), free_heads AS MATERIALIZED (
    SELECT h.agent_id
    FROM state.agent_state_head AS h
    WHERE h.project_id = %(project_id)s AND h.agent_id IN (SELECT held.agent_id FROM held)
    FOR UPDATE SKIP LOCKED
), free_leases AS MATERIALIZED (
    SELECT l.inbox_id
    FROM cbx.leases AS l
    WHERE l.project_id = %(project_id)s AND l.inbox_id = ANY(%(inbox_ids)s) AND l.owner = %(owner)s
        AND (SELECT count(*) FROM free_heads) >= 0
    FOR UPDATE SKIP LOCKED
), free_rows AS MATERIALIZED (
    SELECT i.inbox_id
    FROM state.agent_inbox AS i
    WHERE i.project_id = %(project_id)s AND i.inbox_id = ANY(%(inbox_ids)s) AND i.status = 'processing'
        AND (SELECT count(*) FROM free_leases) >= 0
    FOR UPDATE SKIP LOCKED
), extended AS (
    UPDATE cbx.leases AS l
    SET heartbeat_at = {now}, expires_at = {later}
    FROM free_leases AS f
    WHERE l.project_id = %(project_id)s AND l.inbox_id = f.inbox_id
), rows AS (
    UPDATE state.agent_inbox AS i
    SET processed_at = {now}
    FROM free_rows AS f, held
    WHERE i.project_id = %(project_id)s AND i.inbox_id = f.inbox_id AND held.inbox_id = f.inbox_id
), heads AS (
    UPDATE state.agent_state_head AS h
    SET updated_at = {now}
    FROM free_heads AS f, held
    WHERE h.project_id = %(project_id)s AND h.agent_id = f.agent_id AND held.agent_id = f.agent_id
        AND h.turn_epoch = held.turn_epoch AND h.status = 'running'
)
SELECT held.inbox_id, held.turn_epoch FROM held

-- name: lease_owners
-- The owners of the leases that have not expired.
SELECT DISTINCT l.owner FROM cbx.leases AS l
WHERE l.project_id = %(project_id)s AND l.expires_at > {now}

-- name: expire_leases
-- Ends the leases of these owners now.
UPDATE cbx.leases AS l SET expires_at = {now}
WHERE l.project_id = %(project_id)s AND l.owner = ANY(%(owners)s) AND l.expires_at > {now}

-- name: expired_leases
-- The leases that have expired, oldest first, and those on rows that are no longer claimed. No owner can extend its
-- leases while the database is down, so after a restart each has one more lease's time.
SELECT {lease_json}
FROM cbx.leases AS l
WHERE l.project_id = %(project_id)s
    AND (l.expires_at <= {now}
        AND (l.heartbeat_at >= %(started_at)s
            OR %(started_at)s + (l.expires_at - l.heartbeat_at) <= {now})
        OR NOT EXISTS (
        SELECT FROM state.agent_inbox AS i
        WHERE i.project_id = %(project_id)s AND i.inbox_id = l.inbox_id AND i.status = 'processing'))
ORDER BY l.expires_at
LIMIT %(limit)s

-- name: carry_turn
-- Sets the new epoch of a turn in its row and its lease.
WITH i AS (
    UPDATE state.agent_inbox AS i
    SET turn_epoch = %(turn_epoch)s
    WHERE i.project_id = %(project_id)s AND i.inbox_id = %(inbox_id)s
    RETURNING i.*
), lease AS (
    UPDATE cbx.leases AS l
    SET turn_epoch = %(turn_epoch)s
    WHERE l.project_id = %(project_id)s AND l.inbox_id = %(inbox_id)s
)
SELECT {inbox_json} FROM i

-- name: point_inbox
-- Replaces box pointers in the row of a turn.
UPDATE state.agent_inbox AS i
SET payload = i.payload || %(pointers)s::jsonb
WHERE i.project_id = %(project_id)s AND i.agent_turn_id = %(agent_turn_id)s AND i.message_type = 'turn'

-- name: point_report
-- Points a report that can be claimed to another result, and makes it due at once.
WITH i AS (
    UPDATE state.agent_inbox AS i
    SET payload = %(payload)s::jsonb, next_retry_at = least(i.next_retry_at, %(now)s::timestamptz)
    WHERE i.project_id = %(project_id)s AND i.inbox_id = %(inbox_id)s AND i.status IN ('pending', 'deferred')
    RETURNING i.*
)
SELECT {inbox_json} FROM i

-- name: open_inbox_of_agent
-- The open rows of an agent, oldest first.
SELECT {inbox_json}
FROM state.agent_inbox AS i
WHERE i.project_id = %(project_id)s AND i.agent_id = %(agent_id)s
    AND i.status IN {open_statuses}
ORDER BY i.created_at, i.inbox_id

-- fragment: inbox_matches
    i.project_id = %(project_id)s
    AND (%(agent_id)s::text IS NULL OR i.agent_id = %(agent_id)s)
    AND (%(status)s::text IS NULL OR i.status = %(status)s)
    AND (%(message_type)s::text IS NULL OR i.message_type = %(message_type)s)
    AND (%(after_time)s::timestamptz IS NULL
         OR (i.created_at, i.inbox_id) < (%(after_time)s::timestamptz, %(after_id)s::text))

-- name: list_inbox
-- A page of the project's inbox rows, newest first, after the position (created_at, inbox_id) if one is given.
SELECT {inbox_json} FROM state.agent_inbox AS i WHERE {inbox_matches}
ORDER BY i.created_at DESC, i.inbox_id DESC LIMIT %(limit)s

-- name: list_open_inbox
-- `list_inbox` for a status that few rows have.
SELECT {inbox_json} FROM state.agent_inbox AS i WHERE i.status IN {open_statuses} AND {inbox_matches}
ORDER BY i.created_at DESC, i.inbox_id DESC LIMIT %(limit)s

-- name: list_dead_inbox
-- `list_inbox` for dead letters.
SELECT {inbox_json} FROM state.agent_inbox AS i WHERE i.status = 'error' AND {inbox_matches}
ORDER BY i.created_at DESC, i.inbox_id DESC LIMIT %(limit)s

-- name: list_skipped_inbox
-- `list_inbox` for skipped rows.
SELECT {inbox_json} FROM state.agent_inbox AS i WHERE i.status = 'skipped' AND {inbox_matches}
ORDER BY i.created_at DESC, i.inbox_id DESC LIMIT %(limit)s

-- name: count_further_inbox
-- The number of rows after a position, up to a limit.
SELECT count(*) FROM (SELECT 1 FROM state.agent_inbox AS i WHERE {inbox_matches} LIMIT %(limit)s) AS further

-- name: inbox_id_exists
-- Returns whether a row with this id exists.
SELECT true FROM state.agent_inbox AS i WHERE i.project_id = %(project_id)s AND i.inbox_id = %(wanted)s

-- name: find_inbox_ids
-- Up to six ids for each match. The id begins with the wanted text, with or without its prefix, or ends with it, or
-- its last 8 characters begin with it.
(SELECT i.inbox_id FROM state.agent_inbox AS i
 WHERE i.project_id = %(project_id)s AND i.inbox_id LIKE %(beginning)s LIMIT 6)
UNION
(SELECT i.inbox_id FROM state.agent_inbox AS i
 WHERE i.project_id = %(project_id)s AND i.inbox_id LIKE 'inbox\_' || %(beginning)s LIMIT 6)
UNION
(SELECT i.inbox_id FROM state.agent_inbox AS i
 WHERE i.project_id = %(project_id)s AND i.inbox_id LIKE 'turn\_' || %(beginning)s LIMIT 6)
UNION
(SELECT i.inbox_id FROM state.agent_inbox AS i
 WHERE i.project_id = %(project_id)s AND i.inbox_id LIKE %(end)s LIMIT 6)
UNION
(SELECT i.inbox_id FROM state.agent_inbox AS i
 WHERE i.project_id = %(project_id)s AND right(i.inbox_id, 8) LIKE %(beginning)s LIMIT 6)
