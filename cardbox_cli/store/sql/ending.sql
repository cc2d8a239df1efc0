-- name: end_situation
-- Returns the time and the facts that decide on the end of an active turn. These are its record, and its own
-- deliverables in its output box, newest first. The caller has locked the head.
WITH head AS MATERIALIZED (
    SELECT h.output_box_id
    FROM state.agent_state_head AS h
    WHERE h.project_id = %(project_id)s AND h.agent_id = %(agent_id)s
    FOR UPDATE
), record AS MATERIALIZED (
    SELECT t.*
    FROM cbx.turns AS t
    WHERE t.project_id = %(project_id)s AND t.agent_turn_id = %(agent_turn_id)s
), found AS MATERIALIZED (
    SELECT json_build_object(
        'record', (SELECT ({record_json})::json FROM record AS t),
        'delivered', (
            SELECT json_agg(
                json_build_object('card_id', c.card_id, 'expires_at', {instant(c.expires_at)})
                ORDER BY slot.place DESC)
            FROM public.card_boxes AS b
            CROSS JOIN LATERAL jsonb_array_elements_text({ids}) WITH ORDINALITY AS slot (card_id, place)
            CROSS JOIN {card_of_slot}
            WHERE b.tenant_id = %(project_id)s AND b.box_id = (SELECT h.output_box_id FROM head AS h)
                AND slot.place > coalesce((SELECT t.output_start FROM record AS t), 0)
                AND c.metadata ->> 'type' = 'task.deliverable' AND c.deleted_at IS NULL
                AND coalesce(c.metadata ->> 'agent_turn_id', %(agent_turn_id)s) = %(agent_turn_id)s)
    )::text AS situation
)
SELECT {moment}, found.situation FROM found

-- name: write_end
-- Writes all rows of the end of an active turn, by compare-and-set on its head. Makes the agent idle, cancels the
-- turn's waits, closes its open steps, consumes its inbox rows and ends their leases. Does not change a recorded end.
-- Returns the epoch after the end. No row if the turn has moved on.
WITH freed AS (
    UPDATE state.agent_state_head AS h
    SET {freed_head}
    WHERE {head_is_at}
    RETURNING h.turn_epoch
), dropped AS (
    UPDATE state.turn_waiting_tools AS w
    SET wait_status = 'dropped', updated_at = %(now)s::timestamptz
    FROM freed
    WHERE w.project_id = %(project_id)s AND w.agent_turn_id = %(agent_turn_id)s
        AND w.wait_status IN ('waiting', 'received')
), steps AS (
    UPDATE state.agent_steps AS s
    SET status = %(step_status)s, error = coalesce(s.error, %(error)s), ended_at = %(now)s::timestamptz
    FROM freed
    WHERE s.project_id = %(project_id)s AND s.agent_turn_id = %(agent_turn_id)s
        AND s.status NOT IN ('completed', 'failed', 'suspended')
), record AS (
    INSERT INTO cbx.turns AS t
        (project_id, agent_turn_id, agent_id, output_start, created_at, end_status, end_epoch,
         deliverable_card_id, error_code, error, ended_at)
    SELECT %(project_id)s, %(agent_turn_id)s, %(agent_id)s, 0, %(now)s::timestamptz, %(end_status)s,
        freed.turn_epoch, %(deliverable_card_id)s, %(error_code)s, %(error)s, %(now)s::timestamptz
    FROM freed
    ON CONFLICT (project_id, agent_turn_id) DO UPDATE
    SET output_start = coalesce(t.output_start, excluded.output_start), end_status = excluded.end_status,
        end_epoch = excluded.end_epoch, deliverable_card_id = excluded.deliverable_card_id,
        error_code = excluded.error_code, error = excluded.error, ended_at = excluded.ended_at
    WHERE t.end_status IS NULL
), closed AS (
    UPDATE state.agent_inbox AS i
    SET status = 'consumed', processed_at = coalesce(i.processed_at, %(now)s::timestamptz),
        archived_at = coalesce(i.archived_at, %(now)s::timestamptz)
    FROM freed
    WHERE i.project_id = %(project_id)s AND i.agent_turn_id = %(agent_turn_id)s
        AND i.status IN ('pending', 'deferred', 'processing')
    RETURNING i.inbox_id
), leases AS (
    DELETE FROM cbx.leases AS l
    WHERE l.project_id = %(project_id)s AND l.inbox_id IN (SELECT closed.inbox_id FROM closed)
), pointer AS (
    INSERT INTO state.agent_state_pointers AS p (project_id, agent_id, last_output_box_id, updated_at)
    SELECT %(project_id)s, %(agent_id)s, %(output_box_id)s::uuid, %(now)s::timestamptz
    FROM freed
    WHERE %(output_box_id)s::uuid IS NOT NULL
    ON CONFLICT (project_id, agent_id)
    DO UPDATE SET last_output_box_id = excluded.last_output_box_id, updated_at = excluded.updated_at
)
SELECT freed.turn_epoch FROM freed
