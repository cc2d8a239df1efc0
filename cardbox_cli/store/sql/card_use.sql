-- name: turns_seeing_cards
-- The turns that wait or run and see one of these cards, the active ones first: the card, the box that has it and its
-- use (none for a result that is reported and not applied), turn, agent, epoch, and whether the turn is active.
WITH unfinished AS MATERIALIZED (
    SELECT pointer.use, pointer.box_id, h.active_agent_turn_id AS turn_id, h.agent_id, h.turn_epoch, true AS active
    FROM state.agent_state_head AS h
    {head_pointers}
    WHERE h.project_id = %(project_id)s AND h.status <> 'idle' AND h.active_agent_turn_id IS NOT NULL
    UNION ALL
    SELECT pointer.use, CASE WHEN pointer.box_id ~* {uuid_pattern} THEN pointer.box_id::uuid END, {turn_of_row},
        i.agent_id, i.turn_epoch, false
    FROM state.agent_inbox AS i
    {box_pointers}
    WHERE i.project_id = %(project_id)s AND i.message_type = 'turn' AND i.status IN {open_statuses}
        AND NOT EXISTS (
            SELECT FROM state.agent_state_head AS h
            WHERE h.project_id = %(project_id)s AND h.agent_id = i.agent_id AND h.status <> 'idle'
                AND h.active_agent_turn_id = {turn_of_row})
), held AS MATERIALIZED (
    SELECT b.box_id, slot.card_id
    FROM public.card_boxes AS b
    CROSS JOIN LATERAL jsonb_array_elements_text({ids}) AS slot (card_id)
    WHERE b.tenant_id = %(project_id)s AND b.box_id IN (SELECT u.box_id FROM unfinished AS u)
        AND b.card_ids ?| %(card_ids)s::text[] AND slot.card_id = ANY(%(card_ids)s)
    GROUP BY b.box_id, slot.card_id
)
SELECT held.card_id, held.box_id::text, u.use, u.turn_id, u.agent_id, u.turn_epoch, u.active
FROM unfinished AS u
JOIN held ON held.box_id = u.box_id
UNION ALL
SELECT i.payload ->> 'tool_result_card_id', NULL, 'report', {turn_of_row}, i.agent_id, i.turn_epoch, true
FROM state.agent_inbox AS i
WHERE i.project_id = %(project_id)s AND i.message_type IN {report_types} AND i.status IN {open_statuses}
    AND i.payload ->> 'tool_result_card_id' = ANY(%(card_ids)s)
ORDER BY active DESC, turn_id, card_id, use
