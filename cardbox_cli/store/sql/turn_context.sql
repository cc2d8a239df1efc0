-- fragment: turn_boxes
-- The boxes of a turn by their pointers: the given ones, or else those of its agent's head.
head AS (
    SELECT h.*
    FROM state.agent_state_head AS h
    WHERE h.project_id = %(project_id)s AND h.agent_id = %(agent_id)s
), pointers AS MATERIALIZED (
    SELECT 'profile' AS pointer,
        coalesce(%(profile_box_id)s::uuid, (SELECT h.profile_box_id FROM head AS h)) AS box_id
    UNION ALL
    SELECT 'context', coalesce(%(context_box_id)s::uuid, (SELECT h.context_box_id FROM head AS h))
    UNION ALL
    SELECT 'output', coalesce(%(output_box_id)s::uuid, (SELECT h.output_box_id FROM head AS h))
), slots AS MATERIALIZED (
    SELECT p.pointer, slot.place, slot.card_id
    FROM pointers AS p
    JOIN public.card_boxes AS b ON b.tenant_id = %(project_id)s AND b.box_id = p.box_id
    CROSS JOIN LATERAL jsonb_array_elements_text({ids}) WITH ORDINALITY AS slot (card_id, place)
), placed AS (
    SELECT c.*
    FROM public.cards AS c
    WHERE c.tenant_id = %(project_id)s AND c.card_id = ANY(ARRAY(SELECT slot.card_id FROM slots AS slot))
)

-- fragment: turn_slots
-- The positions of these boxes in order: the id, the state of its card, and the card, which is empty if it dangles. The
-- ids are looked up together as an array, because a join would read all cards of the project.
SELECT slot.pointer, (slot.place - 1)::integer AS place, coalesce(slot.card_id, 'null'),
    {card_state}, {card_json}
FROM slots AS slot
LEFT JOIN placed AS c ON c.card_id = slot.card_id

-- fragment: turn_facts
'head', (SELECT ({head_json})::json FROM head AS h),
    'boxes', (
        SELECT json_object_agg(p.pointer, b.box_id)
        FROM pointers AS p
        JOIN public.card_boxes AS b ON b.tenant_id = %(project_id)s AND b.box_id = p.box_id),
    'answered', (
        SELECT json_agg(s.step_id ORDER BY s.started_at, s.step_id)
        FROM state.agent_steps AS s
        WHERE s.project_id = %(project_id)s AND s.agent_turn_id = %(agent_turn_id)s
            AND s.status = ANY(%(answered)s)),
    'config', (
        SELECT i.payload -> 'runtime_config'
        FROM state.agent_inbox AS i
        WHERE i.project_id = %(project_id)s AND i.agent_turn_id = %(agent_turn_id)s AND i.message_type = 'turn'
        ORDER BY i.created_at, i.inbox_id
        LIMIT 1)

-- name: turn_context
-- The content of the next request of a turn: a row of facts, followed by the positions of the turn's boxes.
WITH {turn_boxes}
SELECT '' AS pointer, 0 AS place, NULL AS card_id, NULL AS state, json_build_object(
    {turn_facts},
    'provenance', (
        SELECT n.provenance
        FROM cbx.box_info AS n
        WHERE n.project_id = %(project_id)s
            AND n.box_id = (SELECT p.box_id FROM pointers AS p WHERE p.pointer = 'context')),
    'output_start', (
        SELECT t.output_start
        FROM cbx.turns AS t
        WHERE t.project_id = %(project_id)s AND t.agent_turn_id = %(agent_turn_id)s),
    'tools', (
        SELECT json_agg(({tool_json})::json ORDER BY o.tool_name)
        FROM resource.tools AS o
        WHERE o.project_id = %(project_id)s)
)::text AS found
UNION ALL
({turn_slots})
ORDER BY pointer, place

-- name: turn_context_of_others
-- `turn_context` for a database without some tables of cbx.
WITH {turn_boxes}
SELECT '' AS pointer, 0 AS place, NULL AS card_id, NULL AS state, json_build_object({turn_facts})::text AS found
UNION ALL
({turn_slots})
ORDER BY pointer, place
