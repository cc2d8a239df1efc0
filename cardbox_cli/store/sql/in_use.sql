-- fragment: box_pointers
CROSS JOIN LATERAL (VALUES
    ('context', i.payload ->> 'context_box_id'),
    ('output', i.payload ->> 'output_box_id'),
    ('profile', i.payload ->> 'profile_box_id')) AS pointer (use, box_id)

-- fragment: head_pointers
CROSS JOIN LATERAL (VALUES
    ('context', h.context_box_id), ('output', h.output_box_id), ('profile', h.profile_box_id)
) AS pointer (use, box_id)

-- name: turns_using_boxes
-- The turns that wait or run and name one of these boxes: box, use, turn, agent, and whether the turn is active.
SELECT pointer.box_id::text, pointer.use, h.active_agent_turn_id, h.agent_id, true AS active
FROM state.agent_state_head AS h
{head_pointers}
WHERE h.project_id = %(project_id)s AND h.status <> 'idle' AND pointer.box_id = ANY(%(box_ids)s::text[]::uuid[])
UNION ALL
SELECT pointer.box_id, pointer.use, {turn_of_row}, i.agent_id, false
FROM state.agent_inbox AS i
{box_pointers}
WHERE i.project_id = %(project_id)s AND i.message_type = 'turn'
    AND i.status IN {open_statuses} AND pointer.box_id = ANY(%(box_ids)s::text[])
ORDER BY active DESC

-- name: agents_using_box
-- An agent that names a box apart from its turns: the use, and the agent.
SELECT pointer.use, p.agent_id
FROM state.agent_state_pointers AS p
CROSS JOIN LATERAL (VALUES
    ('last output box', p.last_output_box_id), ('memory', p.memory_context_box_id)) AS pointer (use, box_id)
WHERE p.project_id = %(project_id)s AND pointer.box_id = %(box_id)s
UNION ALL
SELECT 'profile', a.agent_id
FROM resource.project_agents AS a
WHERE a.project_id = %(project_id)s AND a.profile_box_id = %(box_id)s
UNION ALL
SELECT 'profile', h.agent_id
FROM state.agent_state_head AS h
WHERE h.project_id = %(project_id)s AND h.profile_box_id = %(box_id)s
LIMIT 1

-- name: turns_of_boxes
-- The turns that name one of these boxes, newest first: box, use, turn and agent. Examines turns that wait or run, and
-- the newest inbox rows.
SELECT pointer.box_id, pointer.use, {turn_of_row}, i.agent_id
FROM state.agent_inbox AS i
LEFT JOIN {active_head}
CROSS JOIN LATERAL (VALUES
    ('context', coalesce(h.context_box_id::text, i.payload ->> 'context_box_id')),
    ('output', coalesce(h.output_box_id::text, i.payload ->> 'output_box_id'))) AS pointer (use, box_id)
WHERE i.project_id = %(project_id)s AND i.message_type = 'turn' AND pointer.box_id = ANY(%(box_ids)s::text[])
    AND i.inbox_id IN ({unfinished_rows}
        UNION ALL
        (SELECT latest.inbox_id FROM state.agent_inbox AS latest
         WHERE latest.project_id = %(project_id)s
         ORDER BY latest.created_at DESC, latest.inbox_id DESC LIMIT %(latest)s))
ORDER BY i.created_at DESC, i.inbox_id DESC, pointer.use

-- name: chats_using_box
-- A chat that has a box as its active context or as a snapshot: the use, and the chat's key.
SELECT 'active context' AS use, h.chat_key
FROM cbx.chats AS h
WHERE h.project_id = %(project_id)s AND h.context_box_id = %(box_id)s
UNION ALL
SELECT 'archived context ' || a.context_id, a.chat_key
FROM cbx.chat_contexts AS a
WHERE a.project_id = %(project_id)s AND a.box_id = %(box_id)s
LIMIT 1

-- name: chat_of_first_card
-- The chat that the first card of a box names, and the number of its entries.
SELECT h.chat_key, h.entries
FROM public.card_boxes AS b
JOIN public.cards AS c ON c.tenant_id = %(project_id)s AND c.card_id = b.card_ids ->> 0
JOIN cbx.chats AS h ON h.project_id = %(project_id)s AND h.chat_key = c.metadata -> 'chat' ->> 'key'
WHERE b.tenant_id = %(project_id)s AND b.box_id = %(box_id)s

-- name: turns_seeing_cards
-- The unfinished turns that see one of these cards, active ones first. Returns the card, its box and the box's use, the
-- turn, agent and epoch, and whether the turn is active. A reported result that is not applied yet has no box.
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
