-- fragment: turn_of_row
coalesce(i.agent_turn_id, i.correlation_id, i.inbox_id)

-- fragment: active_head
state.agent_state_head AS h
    ON h.project_id = %(project_id)s AND h.agent_id = i.agent_id AND h.status <> 'idle'
    AND h.active_agent_turn_id = {turn_of_row}

-- fragment: turn_status
CASE WHEN h.status IS NOT NULL THEN h.status
     WHEN i.status IN ('pending', 'deferred', 'processing') AND {last_step_status} IS DISTINCT FROM 'over'
     THEN 'pending'
     WHEN i.status IN ('pending', 'deferred', 'processing', 'consumed', 'error', 'skipped') THEN 'ended'
     ELSE i.status END

-- fragment: last_step_status
(SELECT CASE WHEN s.status IN ('completed', 'failed') THEN 'over' ELSE s.status END
 FROM state.agent_steps AS s
 WHERE s.project_id = %(project_id)s AND s.agent_turn_id = i.agent_turn_id
 ORDER BY s.started_at DESC, s.step_id DESC LIMIT 1)

-- fragment: carried
(h.status IS NOT NULL
    AND (EXISTS (
            SELECT FROM state.agent_inbox AS o
            WHERE o.project_id = %(project_id)s AND o.agent_turn_id = h.active_agent_turn_id
                AND o.status IN ('pending', 'deferred', 'processing'))
        OR EXISTS (
            SELECT FROM state.turn_waiting_tools AS w
            WHERE w.project_id = %(project_id)s AND w.agent_turn_id = h.active_agent_turn_id
                AND w.turn_epoch = h.turn_epoch AND w.wait_status IN ('waiting', 'received'))))

-- fragment: turn_json
json_build_object(
    'agent_turn_id', {turn_of_row},
    'agent_id', i.agent_id,
    'status', s.status,
    'turn_epoch', coalesce(h.turn_epoch, i.turn_epoch),
    'channel_id', i.channel_id,
    'trace_id', coalesce(h.trace_id, nullif(split_part(i.context_headers ->> 'traceparent', '-', 2), '')),
    'recursion_depth', CASE WHEN i.context_headers ->> 'CG-Recursion-Depth' ~ '^[0-9]{1,9}$'
                            THEN (i.context_headers ->> 'CG-Recursion-Depth')::integer END,
    'parent_agent_id', i.context_headers ->> 'CG-Parent-Agent-Id',
    'parent_agent_turn_id', i.context_headers ->> 'CG-Parent-Turn-Id',
    'profile_box_id', coalesce(h.profile_box_id::text, i.payload ->> 'profile_box_id'),
    'context_box_id', coalesce(h.context_box_id::text, i.payload ->> 'context_box_id'),
    'output_box_id', coalesce(h.output_box_id::text, i.payload ->> 'output_box_id'),
    'resume_deadline', {instant(h.resume_deadline)},
    'inbox_id', i.inbox_id,
    'row_status', i.status,
    'left_at', {instant(coalesce(i.archived_at, i.processed_at))},
    'carried', {carried},
    'created_at', {instant(i.created_at)}
)::text

-- fragment: turn_matches
    i.project_id = %(project_id)s AND i.message_type = 'turn'
    AND (%(agent_id)s::text IS NULL OR i.agent_id = %(agent_id)s)
    AND (%(since)s::timestamptz IS NULL OR i.created_at >= %(since)s)
    AND (%(until)s::timestamptz IS NULL OR i.created_at < %(until)s)
    AND (%(after_time)s::timestamptz IS NULL
         OR (i.created_at, i.inbox_id) < (%(after_time)s::timestamptz, %(after_id)s::text))

-- fragment: turns
state.agent_inbox AS i
LEFT JOIN {active_head}
CROSS JOIN LATERAL (SELECT {turn_status} AS status) AS s

-- fragment: is_unfinished
i.inbox_id IN ({unfinished_rows}) AND s.status <> 'ended' AND s.status = coalesce(%(status)s, s.status)

-- fragment: unfinished_rows
    SELECT o.inbox_id FROM state.agent_inbox AS o
    WHERE o.project_id = %(project_id)s AND o.status IN {open_statuses}
    UNION ALL
    SELECT o.inbox_id FROM state.agent_state_head AS a
    JOIN state.agent_inbox AS o ON o.project_id = a.project_id AND o.agent_turn_id = a.active_agent_turn_id
    WHERE a.project_id = %(project_id)s AND a.status <> 'idle'

-- name: list_turns
-- A page of the project's turns, newest first, after the position (created_at, inbox_id) if one is given.
SELECT {turn_json} FROM {turns} WHERE {turn_matches} ORDER BY i.created_at DESC, i.inbox_id DESC LIMIT %(limit)s

-- name: count_further_turns
-- The number of turns after a position, up to a limit.
SELECT count(*) FROM (SELECT 1 FROM state.agent_inbox AS i WHERE {turn_matches} LIMIT %(limit)s) AS further

-- name: list_unfinished_turns
-- `list_turns` for turns that have not ended, in any state or in this one. It searches only open rows and active turns,
-- so that the number of ended ones does not matter.
SELECT {turn_json} FROM {turns} WHERE {is_unfinished} AND {turn_matches}
ORDER BY i.created_at DESC, i.inbox_id DESC LIMIT %(limit)s

-- name: count_further_unfinished_turns
-- `count_further_turns` for turns that have not ended, in any state or in this one.
SELECT count(*) FROM (SELECT 1 FROM {turns} WHERE {is_unfinished} AND {turn_matches} LIMIT %(limit)s) AS further

-- name: turns_by_ids
-- The turns with these ids, oldest first. A turn that was enqueued twice appears once, with its last row.
SELECT turn FROM (
    SELECT DISTINCT ON ({turn_of_row}) {turn_json} AS turn, i.created_at, i.inbox_id
    FROM {turns}
    WHERE i.project_id = %(project_id)s AND i.message_type = 'turn'
        AND (i.agent_turn_id = ANY(%(turn_ids)s) OR i.inbox_id = ANY(%(turn_ids)s))
    ORDER BY {turn_of_row}, i.created_at DESC, i.inbox_id DESC) AS found
ORDER BY created_at, inbox_id

-- name: turns_by_edges
-- The turns whose inbox rows are gone, from their edges.
SELECT DISTINCT ON (e.target_agent_turn_id) json_build_object(
    'agent_turn_id', e.target_agent_turn_id,
    'agent_id', e.target_agent_id,
    'status', coalesce(h.status, 'ended'),
    'turn_epoch', coalesce(h.turn_epoch, 0),
    'channel_id', coalesce(e.channel_id, 'public'),
    'trace_id', e.trace_id,
    'recursion_depth', e.recursion_depth,
    'parent_agent_id', e.source_agent_id,
    'parent_agent_turn_id', e.source_agent_turn_id,
    'profile_box_id', h.profile_box_id,
    'context_box_id', h.context_box_id,
    'output_box_id', h.output_box_id,
    'resume_deadline', {instant(h.resume_deadline)},
    'carried', {carried},
    'created_at', {instant(e.created_at)}
)::text
FROM state.execution_edges AS e
LEFT JOIN state.agent_state_head AS h
    ON h.project_id = e.project_id AND h.agent_id = e.target_agent_id AND h.status <> 'idle'
    AND h.active_agent_turn_id = e.target_agent_turn_id
WHERE e.project_id = %(project_id)s AND e.target_agent_turn_id = ANY(%(turn_ids)s)
    AND e.primitive = 'enqueue' AND e.target_agent_id IS NOT NULL
ORDER BY e.target_agent_turn_id, e.created_at

-- name: records_of_turns
-- The records of these turns.
SELECT {record_json} FROM cbx.turns AS t
WHERE t.project_id = %(project_id)s AND t.agent_turn_id = ANY(%(turn_ids)s)

-- name: turn_remains
-- The last step and the newest deliverable of turns whose end was not recorded.
SELECT json_build_object(
    'agent_turn_id', turn.id,
    'step_id', last.step_id,
    'step_status', last.status,
    'step_ended_at', {instant(last.ended_at)},
    'card_id', card.card_id,
    'card_metadata', card.metadata,
    'card_content', card.content,
    'card_created_at', {instant(card.created_at)}
)::text
FROM unnest(%(turn_ids)s::text[]) AS turn (id)
LEFT JOIN LATERAL (
    SELECT s.step_id, s.status, s.ended_at FROM state.agent_steps AS s
    WHERE s.project_id = %(project_id)s AND s.agent_turn_id = turn.id
    ORDER BY s.started_at DESC, s.step_id DESC LIMIT 1) AS last ON true
LEFT JOIN LATERAL (
    SELECT c.card_id, c.metadata, c.content, c.created_at FROM public.cards AS c
    WHERE c.tenant_id = %(project_id)s AND c.metadata ->> 'agent_turn_id' = turn.id
        AND c.metadata ->> 'type' = 'task.deliverable' AND c.deleted_at IS NULL
    ORDER BY c.created_at DESC, c.card_id DESC LIMIT 1) AS card ON true

-- name: whole_turn_id
-- The turn with this id, or of the inbox row with this id.
(SELECT {turn_of_row} FROM state.agent_inbox AS i
 WHERE i.project_id = %(project_id)s AND i.message_type = 'turn'
    AND (i.agent_turn_id = %(wanted)s OR i.inbox_id = %(wanted)s)
 LIMIT 1)
UNION ALL
(SELECT e.target_agent_turn_id FROM state.execution_edges AS e
 WHERE e.project_id = %(project_id)s AND e.target_agent_turn_id = %(wanted)s AND e.primitive = 'enqueue'
 LIMIT 1)
UNION ALL
(SELECT h.active_agent_turn_id FROM state.agent_state_head AS h
 WHERE h.project_id = %(project_id)s AND h.active_agent_turn_id = %(wanted)s
 LIMIT 1)

-- name: find_kept_turn_ids
-- Up to six recorded turns for each match. The id begins with the wanted text, with or without "turn_", or ends with
-- it (by the reversed pattern), or its last 8 characters match `shown`, unless that is null.
(SELECT t.agent_turn_id FROM cbx.turns AS t
 WHERE t.project_id = %(project_id)s AND t.agent_turn_id LIKE %(beginning)s LIMIT 6)
UNION
(SELECT t.agent_turn_id FROM cbx.turns AS t
 WHERE t.project_id = %(project_id)s AND t.agent_turn_id LIKE 'turn\_' || %(beginning)s LIMIT 6)
UNION
(SELECT t.agent_turn_id FROM cbx.turns AS t
 WHERE t.project_id = %(project_id)s AND reverse(t.agent_turn_id) LIKE %(reversed_end)s LIMIT 6)
UNION
(SELECT t.agent_turn_id FROM cbx.turns AS t
 WHERE t.project_id = %(project_id)s AND right(t.agent_turn_id, 8) LIKE %(shown)s LIMIT 6)

-- name: find_turn_ids
-- `find_kept_turn_ids` for turns of other programs, among all inbox rows. The index has all compared columns.
(SELECT DISTINCT i.agent_turn_id FROM state.agent_inbox AS i
 WHERE i.project_id = %(project_id)s AND i.agent_turn_id LIKE %(beginning)s LIMIT 6)
UNION
(SELECT DISTINCT i.agent_turn_id FROM state.agent_inbox AS i
 WHERE i.project_id = %(project_id)s AND i.agent_turn_id LIKE 'turn\_' || %(beginning)s LIMIT 6)
UNION
(SELECT DISTINCT i.agent_turn_id FROM state.agent_inbox AS i
 WHERE i.project_id = %(project_id)s AND reverse(i.agent_turn_id) LIKE %(reversed_end)s LIMIT 6)
UNION
(SELECT DISTINCT i.agent_turn_id FROM state.agent_inbox AS i
 WHERE i.project_id = %(project_id)s AND right(i.agent_turn_id, 8) LIKE %(shown)s LIMIT 6)

-- name: turns_of_trace
-- The turns of a trace.
SELECT e.target_agent_turn_id FROM state.execution_edges AS e
WHERE e.project_id = %(project_id)s AND e.trace_id = %(trace_id)s AND e.primitive = 'enqueue'
    AND e.target_agent_turn_id IS NOT NULL

-- fragment: asking_turn
coalesce(nullif(e.source_agent_turn_id, ''), e.metadata #>> '{cg_ctx,parent_agent_turn_id}',
    e.metadata #>> '{report_to,agent_turn_id}')

-- name: turn_kin
-- The turns that dispatched these turns, and those that these turns dispatched, as (child, parent). If a service is
-- in between, other programs store the parent only in the context of the request.
SELECT e.target_agent_turn_id, {asking_turn}
FROM state.execution_edges AS e
WHERE e.project_id = %(project_id)s AND e.target_agent_turn_id = ANY(%(turn_ids)s) AND e.primitive = 'enqueue'
    AND {asking_turn} IS NOT NULL
UNION
SELECT e.target_agent_turn_id, e.source_agent_turn_id
FROM state.execution_edges AS e
WHERE e.project_id = %(project_id)s AND e.source_agent_turn_id = ANY(%(turn_ids)s) AND e.primitive = 'enqueue'
    AND e.target_agent_turn_id IS NOT NULL
UNION
SELECT e.target_agent_turn_id, e.metadata #>> '{cg_ctx,parent_agent_turn_id}'
FROM state.execution_edges AS e
WHERE e.project_id = %(project_id)s AND (e.source_agent_turn_id IS NULL OR e.source_agent_turn_id = '')
    AND e.primitive = 'enqueue'
    AND e.metadata #>> '{cg_ctx,parent_agent_turn_id}' = ANY(%(turn_ids)s) AND e.target_agent_turn_id IS NOT NULL

-- name: cards_of_turn
-- The cards that a turn wrote, and its deliverable, in order, with the beginnings of their texts.
SELECT json_build_object(
    'card_id', c.card_id,
    'type', {card_type},
    'tool_call_id', c.tool_call_id,
    'tool_name', coalesce(c.content ->> 'tool_name', c.metadata ->> 'function_name'),
    'status', c.content ->> 'status',
    'text', left(coalesce(c.content ->> 'text', c.content ->> 'data', c.content ->> 'result', ''), 200),
    'calls', (SELECT jsonb_agg(jsonb_build_array(call ->> 'id', call #>> '{function,name}'))
              FROM jsonb_path_query(c.tool_calls, '$[*]') AS call),
    'created_at', {instant(c.created_at)}
)::text
FROM public.cards AS c
WHERE c.tenant_id = %(project_id)s AND c.deleted_at IS NULL
    AND (c.metadata ->> 'agent_turn_id' = %(turn_id)s OR c.card_id = %(deliverable_card_id)s)
ORDER BY c.created_at, c.card_id

-- name: turn_of_step
-- The turn of a step.
SELECT s.agent_turn_id FROM state.agent_steps AS s
WHERE s.project_id = %(project_id)s AND s.step_id = %(step_id)s
LIMIT 1
