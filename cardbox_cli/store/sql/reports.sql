-- name: report_situation
-- What decides on a report to a call, and the time when its lock was had: what waits for it, held; the row that asked
-- for its turn; the target of its agent. No row where the turn never waited for it.
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
-- Every row of a report to a call that is waited for, which the caller holds: its card, the row of the inbox, the
-- edge, and that its result is there. Whether the row is written, which it is not where its correlation id is taken;
-- and which cards are stored, without all of which there is none.
WITH waiting AS MATERIALIZED (
    SELECT w.agent_id
    FROM state.turn_waiting_tools AS w
    WHERE w.project_id = %(project_id)s AND w.agent_turn_id = %(agent_turn_id)s
        AND w.turn_epoch = %(turn_epoch)s AND w.tool_call_id = %(tool_call_id)s
), {cards_of_turn(waiting; waiting)}, written AS (
    INSERT INTO state.agent_inbox AS i
        (project_id, inbox_id, agent_id, channel_id, message_type, enqueue_mode, correlation_id, agent_turn_id,
         turn_epoch, context_headers, payload, status, next_retry_at, created_at)
    SELECT %(project_id)s, %(inbox_id)s, %(agent_id)s, %(channel_id)s, %(message_type)s, %(enqueue_mode)s,
        %(correlation_id)s, %(agent_turn_id)s, %(turn_epoch)s, %(context_headers)s::jsonb, %(payload)s::jsonb,
        %(status)s, %(now)s::timestamptz, %(now)s::timestamptz
    FROM ready
    ON CONFLICT DO NOTHING
    RETURNING i.inbox_id
), edge AS (
    INSERT INTO state.execution_edges
        (project_id, edge_id, channel_id, primitive, edge_phase, source_agent_id, source_agent_turn_id,
         source_step_id, target_agent_id, target_agent_turn_id, correlation_id, enqueue_mode, recursion_depth,
         trace_id, parent_step_id, metadata, created_at)
    SELECT %(project_id)s, %(edge_id)s, %(channel_id)s, %(primitive)s, %(edge_phase)s, %(source_agent_id)s, NULL,
        NULL, %(agent_id)s, %(agent_turn_id)s, %(correlation_id)s, %(enqueue_mode)s, %(recursion_depth)s,
        %(trace_id)s, %(parent_step_id)s, %(metadata)s::jsonb, %(now)s::timestamptz
    FROM written
    ON CONFLICT DO NOTHING
), received AS (
    UPDATE state.turn_waiting_tools AS w
    SET wait_status = 'received', tool_result_card_id = %(card_id)s, received_at = %(now)s::timestamptz,
        updated_at = %(now)s::timestamptz
    FROM written
    WHERE w.project_id = %(project_id)s AND w.agent_turn_id = %(agent_turn_id)s
        AND w.tool_call_id = %(tool_call_id)s AND w.wait_status = 'waiting'
)
SELECT EXISTS (SELECT FROM ready), EXISTS (SELECT FROM written), ARRAY(SELECT s.card_id FROM stored AS s)
