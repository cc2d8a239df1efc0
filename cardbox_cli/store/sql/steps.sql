-- fragment: at_fence
h.project_id = %(project_id)s AND h.agent_id = %(agent_id)s
    AND h.active_agent_turn_id = %(agent_turn_id)s AND coalesce(h.turn_epoch, 0) = %(turn_epoch)s

-- fragment: cards_of_turn
-- New cards, which nobody writes unless {1} holds: those that the project has already, and those that are written
-- now. `stored` are the ids of all that are there then; one is missing where another card has its id, or where
-- somebody else wrote it just now, whom this does not see.
wanted AS MATERIALIZED (
    SELECT n.card_id, n.content, n.tool_calls, n.tool_call_id, n.ttl_seconds, n.metadata
    FROM jsonb_to_recordset(%(cards)s::jsonb) AS n (card_id text, content jsonb, tool_calls jsonb,
        tool_call_id text, ttl_seconds integer, metadata jsonb)
), known AS MATERIALIZED (
    SELECT c.card_id
    FROM public.cards AS c
    JOIN wanted AS n ON n.card_id = c.card_id
    WHERE c.tenant_id = %(project_id)s AND {same_payload}
), inserted AS (
    INSERT INTO public.cards AS c
        (tenant_id, card_id, content, tool_calls, tool_call_id, ttl_seconds, expires_at, metadata, created_at)
    SELECT %(project_id)s::text, n.card_id, n.content, n.tool_calls, n.tool_call_id, n.ttl_seconds,
        {now} + make_interval(secs => n.ttl_seconds), {stored_metadata}, {now}
    FROM wanted AS n
    WHERE {1}
    ON CONFLICT DO NOTHING
    RETURNING c.card_id
), stored AS MATERIALIZED (
    SELECT k.card_id FROM known AS k
    UNION
    SELECT i.card_id FROM inserted AS i
), ready AS MATERIALIZED (
    SELECT h.*
    FROM head AS h
    WHERE (SELECT count(*) FROM stored) = (SELECT count(*) FROM wanted)
)

-- fragment: held_head
head AS MATERIALIZED (
    SELECT h.* FROM state.agent_state_head AS h WHERE {at_fence} FOR UPDATE
)

-- fragment: entered
-- A claimed turn runs from now on, where it did not yet: steps that others left open have failed.
entered AS (
    UPDATE state.agent_state_head AS h
    SET status = 'running', updated_at = {now}, waiting_tool_count = 0, resume_deadline = NULL
    FROM {1} AS held
    WHERE {at_fence} AND h.status = 'dispatched'
    RETURNING h.agent_id
), record AS (
    INSERT INTO cbx.turns AS t (project_id, agent_turn_id, agent_id, output_start, created_at)
    SELECT %(project_id)s, %(agent_turn_id)s, %(agent_id)s, %(output_start)s, {now}
    FROM entered
    ON CONFLICT (project_id, agent_turn_id) DO UPDATE
    SET output_start = coalesce(t.output_start, excluded.output_start)
), lost AS (
    UPDATE state.agent_steps AS s
    SET status = 'failed', error = coalesce(s.error, %(lost)s), ended_at = {moment}
    FROM entered
    WHERE s.project_id = %(project_id)s AND s.agent_turn_id = %(agent_turn_id)s
        AND s.status NOT IN ('completed', 'failed', 'suspended')
)

-- name: enter_turn
-- Whether the turn is at its fence; it runs from now on.
WITH {held_head}, {entered(head)}
SELECT EXISTS (SELECT FROM head)

-- fragment: begun_step
{held_head}, {cards_of_turn((SELECT count(*) FROM head) > 0)}, {entered(ready)}, box AS (
    INSERT INTO public.card_boxes (tenant_id, box_id, card_ids, parent_ids, updated_at)
    SELECT %(project_id)s, %(request_box_id)s::uuid, %(box_card_ids)s::jsonb, NULL, {moment}
    FROM ready
), step AS (
    INSERT INTO state.agent_steps
        (project_id, agent_id, step_id, agent_turn_id, channel_id, parent_step_id, trace_id, status,
         profile_box_id, context_box_id, output_box_id, request_box_id, metadata, started_at)
    SELECT %(project_id)s, h.agent_id, %(step_id)s, h.active_agent_turn_id, h.active_channel_id,
        h.parent_step_id, h.trace_id, %(status)s, h.profile_box_id, h.context_box_id, h.output_box_id,
        %(request_box_id)s::uuid, %(metadata)s::jsonb, {moment}
    FROM ready AS h
)

-- fragment: what_is_stored
SELECT EXISTS (SELECT FROM head), EXISTS (SELECT FROM ready), ARRAY(SELECT s.card_id FROM stored AS s)

-- name: begin_step
-- Every row of the beginning of a step: the cards and the box of its request, the box's title, and the state of its
-- turn. Whether the turn is at its fence, whether all cards could be stored, without which no more is written than
-- the others of them, and which those are.
WITH {begun_step}, info AS (
    INSERT INTO cbx.box_info (project_id, box_id, title, created_at)
    SELECT %(project_id)s, %(request_box_id)s::uuid, %(title)s, {now}
    FROM ready
)
{what_is_stored}

-- name: begin_step_without_title
-- The same where boxes have no titles.
WITH {begun_step}
{what_is_stored}
