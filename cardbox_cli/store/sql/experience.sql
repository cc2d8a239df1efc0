-- fragment: profile_name
-- The name of the profile in box b, in lower case.
(SELECT lower(coalesce(c.content #>> '{data,name}', c.metadata ->> 'name'))
 FROM public.cards AS c
 WHERE c.tenant_id = %(project_id)s
    AND c.card_id IN (SELECT slot.card_id FROM jsonb_array_elements_text({ids}) AS slot (card_id))
    AND c.metadata ->> 'type' = 'sys.profile'
 LIMIT 1)

-- fragment: turns_of_profile
-- The ended turns among the last inbox rows whose profile has that name, each once, newest first.
latest AS MATERIALIZED (
    SELECT DISTINCT ON (i.agent_turn_id) i.agent_turn_id, i.status AS row_status, i.created_at, i.inbox_id,
        CASE WHEN i.payload ->> 'profile_box_id' ~ {uuid_pattern}
             THEN (i.payload ->> 'profile_box_id')::uuid END AS box_id
    FROM (SELECT * FROM state.agent_inbox AS i
          WHERE i.project_id = %(project_id)s
          ORDER BY i.created_at DESC, i.inbox_id DESC
          LIMIT %(latest)s) AS i
    LEFT JOIN {active_head}
    CROSS JOIN LATERAL (SELECT {turn_status} AS status) AS s
    WHERE i.message_type = 'turn' AND i.agent_turn_id IS NOT NULL AND s.status = 'ended'
    ORDER BY i.agent_turn_id, i.created_at DESC, i.inbox_id DESC
), profiles AS MATERIALIZED (
    SELECT b.box_id
    FROM (SELECT DISTINCT l.box_id FROM latest AS l) AS used
    JOIN public.card_boxes AS b ON b.tenant_id = %(project_id)s AND b.box_id = used.box_id
    WHERE b.box_id = %(profile_box_id)s OR {profile_name} = (
        SELECT {profile_name} FROM public.card_boxes AS b
        WHERE b.tenant_id = %(project_id)s AND b.box_id = %(profile_box_id)s)
), turns AS MATERIALIZED (
    SELECT l.* FROM latest AS l JOIN profiles USING (box_id)
)

-- fragment: left_deliverable
-- The newest deliverable of turn l, whose end was not recorded, unless its rows show that it did not succeed. The
-- planner overestimates the number of a turn's cards. The array prevents it from searching all cards, newest first. The
-- collation must be that of the index.
SELECT c.* FROM public.cards AS c
WHERE c.tenant_id = %(project_id)s AND l.row_status NOT IN ('skipped', 'error')
    AND c.card_id = (
        SELECT (array_agg(d.card_id ORDER BY d.created_at DESC, d.card_id DESC))[1] FROM public.cards AS d
        WHERE d.tenant_id = %(project_id)s AND d.metadata ->> 'agent_turn_id' = l.agent_turn_id COLLATE "default"
            AND d.metadata ->> 'type' = 'task.deliverable' AND d.deleted_at IS NULL)
    AND c.metadata ->> 'partial' IS DISTINCT FROM 'true' AND NOT c.metadata ? 'stop_reason'
    AND (SELECT s.status = 'failed' OR starts_with(s.step_id, 'step_stop_') FROM state.agent_steps AS s
         WHERE s.project_id = %(project_id)s AND s.agent_turn_id = l.agent_turn_id
         ORDER BY s.started_at DESC, s.step_id DESC
         LIMIT 1) IS NOT TRUE

-- fragment: newest_deliverables
WHERE {visible} AND c.content #>> '{data,kind}' IS DISTINCT FROM 'fallback_deliverable'
ORDER BY l.created_at DESC, l.inbox_id DESC
LIMIT %(limit)s

-- name: kept_deliverables
-- The deliverables of the successful turns of a profile, last enqueued first.
WITH {turns_of_profile}
SELECT {card_json}
FROM (SELECT * FROM turns ORDER BY created_at DESC, inbox_id DESC) AS l
CROSS JOIN LATERAL (
    SELECT c.* FROM cbx.turns AS t
    JOIN public.cards AS c ON c.tenant_id = t.project_id AND c.card_id = t.deliverable_card_id
    WHERE t.project_id = %(project_id)s AND t.agent_turn_id = l.agent_turn_id AND t.end_status = 'success'
    UNION ALL
    SELECT c.* FROM ({left_deliverable}) AS c
    WHERE NOT EXISTS (
        SELECT FROM cbx.turns AS t
        WHERE t.project_id = %(project_id)s AND t.agent_turn_id = l.agent_turn_id AND t.end_status IS NOT NULL)
) AS c
{newest_deliverables}

-- name: left_deliverables
-- `kept_deliverables` for a database without a table of records.
WITH {turns_of_profile}
SELECT {card_json}
FROM (SELECT * FROM turns ORDER BY created_at DESC, inbox_id DESC) AS l
CROSS JOIN LATERAL ({left_deliverable}) AS c
{newest_deliverables}
