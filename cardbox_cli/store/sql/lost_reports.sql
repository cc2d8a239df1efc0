-- name: lost_reports
-- Calls of suspended turns, of this one (null: of any), that have no report although their result is stored for so
-- long; and those that the turn that was last asked for is to answer, where its agent is not at it.
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
