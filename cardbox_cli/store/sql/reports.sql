-- name: report_situation
-- Returns the time when the lock was held, and the facts that decide on a report to a call. These are the waiting
-- call, locked, its turn's row, and the target of its agent. No row if the turn never waited for the call.
WITH waiting AS MATERIALIZED (
    SELECT w.*
    FROM state.turn_waiting_tools AS w
    WHERE w.project_id = %(project_id)s AND w.agent_turn_id = %(agent_turn_id)s
        AND w.tool_call_id = %(tool_call_id)s
    ORDER BY w.turn_epoch DESC
    LIMIT 1
    FOR UPDATE
), found AS MATERIALIZED (
    SELECT json_build_object(
        'waiting', ({waiting_json})::json,
        'asked', (
            SELECT ({inbox_json})::json
            FROM state.agent_inbox AS i
            WHERE i.project_id = %(project_id)s AND i.agent_turn_id = %(agent_turn_id)s
                AND i.message_type = 'turn'
            ORDER BY i.created_at, i.inbox_id
            LIMIT 1),
        'worker_target', (
            SELECT r.worker_target
            FROM resource.project_agents AS r
            WHERE r.project_id = %(project_id)s AND r.agent_id = w.agent_id)
    )::text AS situation
    FROM waiting AS w
)
SELECT {moment}, found.situation FROM found

-- name: write_report
-- Writes all rows of a report to a waiting call, which the caller has locked: cards, inbox row, edge, and the state of
-- the call. Returns whether all cards are stored, whether the inbox row is written, and the ids of the stored cards.
-- The inbox row is only written if all cards are stored and its correlation id is free.
WITH waiting AS MATERIALIZED (
    SELECT w.agent_id
    FROM state.turn_waiting_tools AS w
    WHERE w.project_id = %(project_id)s AND w.agent_turn_id = %(agent_turn_id)s
        AND w.turn_epoch = %(turn_epoch)s AND w.tool_call_id = %(tool_call_id)s
), {cards_of_turn(waiting; waiting)}, written AS (
    {new_row} FROM ready
    ON CONFLICT DO NOTHING
    RETURNING i.inbox_id
), {edge_of_row}, received AS (
    UPDATE state.turn_waiting_tools AS w
    SET wait_status = 'received', tool_result_card_id = %(card_id)s, received_at = %(now)s::timestamptz,
        updated_at = %(now)s::timestamptz
    FROM written
    WHERE w.project_id = %(project_id)s AND w.agent_turn_id = %(agent_turn_id)s
        AND w.tool_call_id = %(tool_call_id)s AND w.wait_status = 'waiting'
)
SELECT EXISTS (SELECT FROM ready), EXISTS (SELECT FROM written), ARRAY(SELECT s.card_id FROM stored AS s)

-- name: lost_reports
-- The calls of suspended turns, or of the given turn, without a report. Either their result has been stored for at
-- least `age`, or the last turn that was dispatched to answer them may have ended.
SELECT w.agent_id, w.agent_turn_id, w.tool_call_id, c.card_id, child.agent_turn_id
FROM state.agent_state_head AS h
JOIN state.turn_waiting_tools AS w ON w.project_id = %(project_id)s AND w.agent_id = h.agent_id
    AND w.agent_turn_id = h.active_agent_turn_id AND w.wait_status IN ('waiting', 'received')
LEFT JOIN LATERAL (
    SELECT c.card_id
    FROM public.cards AS c
    WHERE c.tenant_id = %(project_id)s AND c.tool_call_id = w.tool_call_id
        AND c.metadata ->> 'agent_turn_id' = w.agent_turn_id
        AND c.metadata ->> 'type' = 'tool.result' AND {visible} AND c.created_at <= {now} - %(age)s::interval
    ORDER BY c.created_at, c.card_id
    LIMIT 1
) AS c ON true
LEFT JOIN LATERAL (
    SELECT e.target_agent_turn_id AS agent_turn_id,
        t.end_status IS NOT NULL OR NOT EXISTS (
            SELECT FROM state.agent_state_head AS busy
            WHERE busy.project_id = %(project_id)s AND busy.agent_id = e.target_agent_id
                AND busy.active_agent_turn_id = e.target_agent_turn_id) AS may_have_ended
    FROM state.execution_edges AS e
    JOIN cbx.turns AS t ON t.project_id = %(project_id)s AND t.agent_turn_id = e.target_agent_turn_id
    WHERE e.project_id = %(project_id)s AND e.source_agent_turn_id = w.agent_turn_id AND e.primitive = 'enqueue'
        AND e.metadata -> 'report_to' ->> 'tool_call_id' = w.tool_call_id
    ORDER BY e.created_at DESC, e.edge_id DESC
    LIMIT 1
) AS child ON child.may_have_ended
WHERE h.project_id = %(project_id)s AND h.status <> 'idle' AND h.status = 'suspended'
    AND (%(agent_turn_id)s::text IS NULL OR h.active_agent_turn_id = %(agent_turn_id)s)
    AND (c.card_id IS NOT NULL OR child.agent_turn_id IS NOT NULL)
    AND NOT EXISTS (
        SELECT FROM state.agent_inbox AS i
        WHERE i.project_id = %(project_id)s AND i.message_type IN {report_types}
            AND md5(i.correlation_id) = md5(w.tool_call_id) AND i.correlation_id = w.tool_call_id)
ORDER BY w.created_at, w.tool_call_id
