-- fragment: active_turn_of_other
-- The active turns of other agents. The query adds a condition on the output box.
SELECT h.active_agent_turn_id AS agent_turn_id, h.agent_id
FROM state.agent_state_head AS h
WHERE h.project_id = %(project_id)s AND h.status <> 'idle' AND h.agent_id <> %(agent_id)s

-- fragment: output_user
-- A turn of another agent, active or waiting, that writes to the box. No row if the box is null.
{active_turn_of_other}
    AND h.output_box_id = %(output_box_id)s::uuid AND %(output_box_id)s::uuid IS NOT NULL
UNION
SELECT i.agent_turn_id, i.agent_id
FROM state.agent_inbox AS i
WHERE i.project_id = %(project_id)s AND i.agent_id <> %(agent_id)s AND i.message_type = 'turn'
    AND i.status IN {open_statuses}
    AND i.payload ->> 'output_box_id' = %(output_box_id)s::uuid::text AND %(output_box_id)s::uuid IS NOT NULL
LIMIT 1

-- name: output_user
-- A turn of another agent, active or waiting, that writes to the box, and its agent.
{output_user}

-- fragment: queued_of_agent
state.agent_inbox AS i
WHERE i.project_id = %(project_id)s AND i.agent_id = %(agent_id)s AND i.status = 'queued'
    AND i.message_type = 'turn'

-- fragment: dispatched_head
SELECT coalesce(h.status, 'idle') AS status, coalesce(h.turn_epoch, 0) AS turn_epoch, h.active_agent_turn_id
FROM state.agent_state_head AS h
WHERE h.project_id = %(project_id)s AND h.agent_id = %(agent_id)s

-- fragment: dispatched_context
SELECT b.box_id
FROM public.card_boxes AS b
WHERE b.tenant_id = %(project_id)s AND b.box_id = %(context_box_id)s::uuid AND (SELECT count(*) FROM head) >= 0

-- fragment: dispatched_output
SELECT b.box_id, b.card_ids
FROM public.card_boxes AS b
WHERE b.tenant_id = %(project_id)s AND b.box_id = %(output_box_id)s::uuid AND (SELECT count(*) FROM context) >= 0

-- fragment: held_rows
-- Locks the head, then the context box, then the output box. The statement does not see commits that happened while
-- it waited for a lock. Therefore the statement that writes checks all conditions again.
head AS MATERIALIZED ({dispatched_head} FOR UPDATE),
context AS MATERIALIZED ({dispatched_context} FOR SHARE),
output AS MATERIALIZED ({dispatched_output} FOR UPDATE)

-- fragment: seen_rows
head AS MATERIALIZED ({dispatched_head}),
context AS MATERIALIZED ({dispatched_context}),
output AS MATERIALIZED ({dispatched_output})

-- fragment: dispatch_facts
agent AS (
    SELECT r.worker_target, r.profile_box_id
    FROM resource.project_agents AS r
    WHERE r.project_id = %(project_id)s AND r.agent_id = %(agent_id)s
), profile AS (
    SELECT b.box_id, b.card_ids
    FROM public.card_boxes AS b
    WHERE b.tenant_id = %(project_id)s
        AND b.box_id = coalesce(%(profile_box_id)s::uuid, (SELECT r.profile_box_id FROM agent AS r))
), found AS MATERIALIZED (
    SELECT json_build_object(
        'worker_target', r.worker_target,
        'own_profile_box_id', r.profile_box_id,
        'head', (SELECT row_to_json(head) FROM head),
        'has_context_box', EXISTS (SELECT FROM context),
        'output_length', (SELECT jsonb_array_length({ids}) FROM output AS b),
        'queued_turn_id', (SELECT {turn_of_row} FROM {queued_of_agent} ORDER BY i.created_at, i.inbox_id LIMIT 1),
        'project_status', (SELECT p.status FROM project AS p),
        'profile_box_id', (SELECT b.box_id FROM profile AS b),
        'profile_cards', (
            SELECT json_agg(
                json_build_object('name', c.content -> 'data' -> 'name', 'expires_at', {instant(c.expires_at)})
                ORDER BY slot.place)
            FROM profile AS b
            CROSS JOIN LATERAL jsonb_array_elements_text({ids}) WITH ORDINALITY AS slot (card_id, place)
            CROSS JOIN {card_of_slot}
            WHERE {card_type} = 'sys.profile' AND c.deleted_at IS NULL),
        'is_source_known', EXISTS (
            SELECT FROM resource.project_agents AS s
            WHERE s.project_id = %(project_id)s AND s.agent_id = %(source_agent_id)s),
        'parent', (
            SELECT json_build_object('agent_id', i.agent_id, 'context_headers', i.context_headers)
            FROM state.agent_inbox AS i
            WHERE i.project_id = %(project_id)s AND i.agent_turn_id = %(parent_turn_id)s
                AND i.message_type = 'turn'
            ORDER BY i.created_at, i.inbox_id
            LIMIT 1),
        'earlier_inbox_id', (
            SELECT i.inbox_id
            FROM state.agent_inbox AS i
            WHERE i.project_id = %(project_id)s AND i.message_type = 'turn'
                AND md5(i.correlation_id) = md5(%(correlation_id)s) AND i.correlation_id = %(correlation_id)s),
        'output_user', (
            SELECT json_build_array(used.agent_turn_id, used.agent_id) FROM ({output_user}) AS used)
    )::text AS situation
    FROM agent AS r
)
SELECT {moment}, found.situation FROM found

-- fragment: known_project
project AS (
    SELECT p.status FROM public.projects AS p WHERE p.project_id = %(project_id)s
)

-- fragment: no_project
project AS (
    SELECT NULL::text AS status
)

-- name: dispatch_situation
-- Returns the time when all locks were held, and the facts that decide on a dispatch. No row for an unknown agent.
WITH {known_project}, {held_rows}, {dispatch_facts}

-- name: dispatch_situation_without_projects
-- `dispatch_situation` for a database without a table of projects.
WITH {no_project}, {held_rows}, {dispatch_facts}

-- name: dispatch_outlook
-- `dispatch_situation` without locks, so that a replica can answer it.
WITH {known_project}, {seen_rows}, {dispatch_facts}

-- name: dispatch_outlook_without_projects
-- `dispatch_outlook` for a database without a table of projects.
WITH {no_project}, {seen_rows}, {dispatch_facts}

-- fragment: assigned_head
status = 'dispatched', active_agent_turn_id = %(agent_turn_id)s, turn_epoch = coalesce(h.turn_epoch, 0) + 1,
    active_channel_id = %(channel_id)s, active_recursion_depth = %(depth)s, updated_at = %(now)s::timestamptz,
    parent_step_id = %(parent_step_id)s, trace_id = %(trace_id)s,
    profile_box_id = %(profile_box_id)s::uuid, context_box_id = %(context_box_id)s::uuid,
    output_box_id = %(output_box_id)s::uuid,
    expecting_correlation_id = NULL, waiting_tool_count = 0, resume_deadline = NULL

-- fragment: turn_rows
-- `free` is the head, which the caller has locked. It has no row if a condition of the decision no longer holds. If
-- the id or the correlation id of the inbox row is taken, nothing is written.
free AS MATERIALIZED (
    SELECT h.project_id
    FROM state.agent_state_head AS h
    WHERE h.project_id = %(project_id)s AND h.agent_id = %(agent_id)s
        AND (NOT %(assigns)s OR coalesce(h.status, 'idle') = 'idle' AND NOT EXISTS (SELECT FROM {queued_of_agent}))
        AND (%(makes_box)s OR NOT EXISTS ({output_user}))
), written AS (
    {new_row} FROM free
    ON CONFLICT DO NOTHING
    RETURNING i.inbox_id
), box AS (
    INSERT INTO public.card_boxes (tenant_id, box_id, card_ids, parent_ids, updated_at)
    SELECT %(project_id)s, %(output_box_id)s::uuid, '[]', NULL, %(now)s::timestamptz
    FROM written
    WHERE %(makes_box)s
), assigned AS (
    UPDATE state.agent_state_head AS h
    SET {assigned_head}
    FROM written
    WHERE h.project_id = %(project_id)s AND h.agent_id = %(agent_id)s AND %(assigns)s
), {edge_of_row}

-- fragment: turn_written
SELECT EXISTS (SELECT FROM free), EXISTS (SELECT FROM written),
    (SELECT count(*) + 1 FROM {queued_of_agent}
        AND (i.created_at, i.inbox_id) < (%(now)s::timestamptz, %(inbox_id)s))

-- name: write_turn
-- Writes every row of a dispatched turn, and assigns the agent if allowed. Returns whether the decision still held,
-- whether the turn was written, and its position in the queue.
WITH {turn_rows}, record AS (
    INSERT INTO cbx.turns AS t (project_id, agent_turn_id, agent_id, output_start, report_to, created_at)
    SELECT %(project_id)s, %(agent_turn_id)s, %(agent_id)s, %(output_start)s, %(report_to)s, %(now)s::timestamptz
    FROM written
    {or_complete_record}
)
{turn_written}

-- name: write_turn_without_record
-- `write_turn` for a database without a table of records.
WITH {turn_rows}
{turn_written}

-- fragment: queued_turn
-- Locks the oldest queued row, then its output box. The caller has locked the head. The statement does not see
-- commits that happened while it waited for a lock.
queued AS MATERIALIZED (
    SELECT i.*,
        CASE WHEN length(replace(i.payload ->> 'output_box_id', '-', '')) = 32
                AND replace(i.payload ->> 'output_box_id', '-', '') !~* '[^0-9a-f]'
                AND (length(i.payload ->> 'output_box_id') = 32
                     OR i.payload ->> 'output_box_id' LIKE '________-____-____-____-____________')
            THEN (i.payload ->> 'output_box_id')::uuid END AS output_box_id
    FROM {queued_of_agent}
        AND i.agent_id IN (
            SELECT h.agent_id
            FROM state.agent_state_head AS h
            WHERE h.project_id = %(project_id)s AND h.agent_id = %(agent_id)s AND coalesce(h.status, 'idle') = 'idle')
    ORDER BY i.created_at, i.inbox_id
    LIMIT 1
    FOR UPDATE OF i
), output AS MATERIALIZED (
    SELECT b.box_id, b.card_ids
    FROM public.card_boxes AS b
    WHERE b.tenant_id = %(project_id)s AND b.box_id = (SELECT q.output_box_id FROM queued AS q)
    FOR UPDATE
)

-- fragment: promotion_facts
found AS MATERIALIZED (
    SELECT json_build_object(
        'row', ({inbox_json})::json,
        'is_repeated', EXISTS (
            SELECT FROM state.agent_inbox AS o
            WHERE o.project_id = %(project_id)s AND o.agent_id = %(agent_id)s
                AND o.agent_turn_id = i.agent_turn_id AND o.message_type = 'turn'
                AND (o.created_at, o.inbox_id) < (i.created_at, i.inbox_id)),
        'end_status', (SELECT t.end_status FROM record AS t),
        'worker_target', (
            SELECT r.worker_target
            FROM resource.project_agents AS r
            WHERE r.project_id = %(project_id)s AND r.agent_id = %(agent_id)s),
        'has_output_box', EXISTS (SELECT FROM output),
        'output_user', (
            SELECT json_build_array(used.agent_turn_id, used.agent_id)
            FROM (
                {active_turn_of_other} AND h.output_box_id = (SELECT q.output_box_id FROM queued AS q) LIMIT 1
            ) AS used),
        'output_start', (
            SELECT coalesce(min(slot.place) FILTER (WHERE slot.card_id IN (
                SELECT c.card_id
                FROM public.cards AS c
                WHERE c.tenant_id = %(project_id)s
                    AND c.metadata ->> 'agent_turn_id' = (SELECT {turn_of_row} FROM queued AS i))) - 1, count(*))
            FROM output AS b
            CROSS JOIN LATERAL jsonb_array_elements_text({ids}) WITH ORDINALITY AS slot (card_id, place))
    )::text AS situation
    FROM queued AS i
)
SELECT {moment}, found.situation FROM found

-- name: promotion_situation
-- Returns the time and the facts that decide on the promotion of an idle agent's oldest queued turn. No row if it has
-- no queued turn.
WITH {queued_turn}, record AS (
    SELECT t.end_status
    FROM cbx.turns AS t
    WHERE t.project_id = %(project_id)s AND t.agent_turn_id = (SELECT {turn_of_row} FROM queued AS i)
), {promotion_facts}

-- name: promotion_situation_without_records
-- `promotion_situation` for a database without a table of records.
WITH {queued_turn}, record AS (
    SELECT NULL::text AS end_status
), {promotion_facts}

-- fragment: promoted_rows
box AS (
    INSERT INTO public.card_boxes AS b (tenant_id, box_id, card_ids, parent_ids, updated_at)
    SELECT %(project_id)s, %(output_box_id)s::uuid, '[]', NULL, %(now)s::timestamptz
    WHERE %(makes_box)s
    ON CONFLICT DO NOTHING
    RETURNING b.box_id
), assigned AS (
    UPDATE state.agent_state_head AS h
    SET {assigned_head}
    WHERE h.project_id = %(project_id)s AND h.agent_id = %(agent_id)s AND coalesce(h.status, 'idle') = 'idle'
        AND (NOT %(makes_box)s OR EXISTS (SELECT FROM box))
        AND NOT EXISTS ({active_turn_of_other} AND h.output_box_id = %(output_box_id)s::uuid)
    RETURNING h.turn_epoch
), promoted AS (
    UPDATE state.agent_inbox AS i
    SET status = 'pending', turn_epoch = assigned.turn_epoch, next_retry_at = %(now)s::timestamptz,
        processed_at = NULL, archived_at = NULL
    FROM assigned
    WHERE i.project_id = %(project_id)s AND i.inbox_id = %(inbox_id)s AND i.status = 'queued'
    RETURNING i.*
)

-- name: promote_turn
-- Assigns an idle agent to a queued turn, whose row becomes pending. Returns the inbox row. No row if the decision no
-- longer holds, or if the id of the new output box is taken.
WITH {promoted_rows}, record AS (
    INSERT INTO cbx.turns AS t (project_id, agent_turn_id, agent_id, output_start, created_at)
    SELECT %(project_id)s, %(agent_turn_id)s, %(agent_id)s, %(output_start)s, %(now)s::timestamptz
    FROM promoted
    {or_complete_record}
)
SELECT {inbox_json} FROM promoted AS i

-- name: promote_turn_without_record
-- `promote_turn` for a database without a table of records.
WITH {promoted_rows}
SELECT {inbox_json} FROM promoted AS i
