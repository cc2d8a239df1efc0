-- fragment: at_fence
h.project_id = %(project_id)s AND h.agent_id = %(agent_id)s
    AND h.active_agent_turn_id = %(agent_turn_id)s AND coalesce(h.turn_epoch, 0) = %(turn_epoch)s

-- fragment: cards_of_turn
-- Writes new cards if {1} has a row. `stored` has the ids of those cards that exist afterwards. A card is missing if
-- another card has its id, or if another transaction wrote it so recently that this statement does not see it. `ready`
-- has the rows of {2} if no card is missing.
wanted AS MATERIALIZED (
    SELECT n.card_id, n.content, n.tool_calls, n.tool_call_id, n.ttl_seconds, n.metadata
    FROM jsonb_to_recordset(%(cards)s::jsonb) AS n (card_id text, content jsonb, tool_calls jsonb,
        tool_call_id text, ttl_seconds integer, metadata jsonb)
), known AS MATERIALIZED (
    SELECT same.card_id
    FROM wanted AS n
    -- OFFSET forces one lookup per id: the planner assumes a hundred, and would read all cards of the project.
    CROSS JOIN LATERAL (
        SELECT c.card_id
        FROM public.cards AS c
        WHERE c.tenant_id = %(project_id)s AND c.card_id = n.card_id AND {same_payload}
        OFFSET 0
    ) AS same
), inserted AS (
    INSERT INTO public.cards AS c
        (tenant_id, card_id, content, tool_calls, tool_call_id, ttl_seconds, expires_at, metadata, created_at)
    SELECT %(project_id)s::text, n.card_id, n.content, n.tool_calls, n.tool_call_id, n.ttl_seconds,
        {now} + make_interval(secs => n.ttl_seconds), {stored_metadata}, {now}
    FROM wanted AS n
    WHERE (SELECT count(*) FROM {1}) > 0
    ON CONFLICT DO NOTHING
    RETURNING c.card_id
), stored AS MATERIALIZED (
    SELECT k.card_id FROM known AS k
    UNION
    SELECT i.card_id FROM inserted AS i
), ready AS MATERIALIZED (
    SELECT h.*
    FROM {2} AS h
    WHERE (SELECT count(*) FROM stored) = (SELECT count(DISTINCT n.card_id) FROM wanted AS n)
)

-- fragment: held_head
head AS MATERIALIZED (
    SELECT h.* FROM state.agent_state_head AS h WHERE {at_fence} FOR UPDATE
)

-- fragment: entered
-- Sets the head of `ready` to running. If it was not running before, its open steps have failed.
entered AS (
    UPDATE state.agent_state_head AS h
    SET status = %(entered_target)s, updated_at = {now}, waiting_tool_count = 0, resume_deadline = NULL
    FROM ready
    WHERE {at_fence} AND h.status = ANY(%(entered_sources)s)
    RETURNING h.agent_id
), record AS (
    INSERT INTO cbx.turns AS t (project_id, agent_turn_id, agent_id, output_start, created_at)
    SELECT %(project_id)s, %(agent_turn_id)s, %(agent_id)s, %(output_start)s, {now}
    FROM entered
    {or_complete_record}
), lost AS (
    UPDATE state.agent_steps AS s
    SET status = 'failed', error = coalesce(s.error, %(lost)s), ended_at = {moment}
    FROM entered
    WHERE s.project_id = %(project_id)s AND s.agent_turn_id = %(agent_turn_id)s
        AND s.status NOT IN ('completed', 'failed', 'suspended')
)

-- name: enter_turn
-- Lets the turn run if it is at its fence. Returns whether it is.
WITH {held_head}, ready AS (SELECT h.agent_id FROM head AS h), {entered}
SELECT EXISTS (SELECT FROM head)

-- fragment: begun_step
{held_head}, {cards_of_turn(head; head)}, {entered}, box AS (
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
-- Writes all rows of a new step: the cards and the box of its request, the title of the box, and the state of its
-- turn. Returns whether the turn is at its fence, whether all cards could be stored, and which cards are stored. If a
-- card is missing, only the other cards are written.
WITH {begun_step}, info AS (
    INSERT INTO cbx.box_info (project_id, box_id, title, created_at)
    SELECT %(project_id)s, %(request_box_id)s::uuid, %(title)s, {now}
    FROM ready
)
{what_is_stored}

-- name: begin_step_without_title
-- `begin_step` for a database without a table of titles.
WITH {begun_step}
{what_is_stored}

-- fragment: held_output
-- The output box of the turn, locked after its head.
output AS MATERIALIZED (
    SELECT b.box_id, b.card_ids
    FROM public.card_boxes AS b
    WHERE b.tenant_id = %(project_id)s AND b.box_id = (SELECT h.output_box_id FROM head AS h)
    FOR UPDATE
)

-- fragment: own_ids
-- The ids of the output box, from the turn's first own card on.
jsonb_path_query_array({ids}, '$[$start to last]', jsonb_build_object('start', %(output_start)s::integer))

-- name: hold_output
-- The head of a turn and its output box, both locked. The first row has the head, and whether the box exists. The
-- other rows are the turn's own positions of the box. No row if the turn has moved on. The statement does not see a
-- card that was written while it waited for a lock.
WITH {held_head}, {held_output}
SELECT -1 AS place, NULL AS card_id, CASE WHEN EXISTS (SELECT FROM output) THEN 'present' ELSE 'gone' END AS state,
    {head_json} AS found
FROM head AS h
UNION ALL
SELECT (slot.place - 1)::integer, coalesce(slot.card_id, 'null'),
    {card_state}, {card_json}
FROM output AS b
CROSS JOIN LATERAL jsonb_array_elements_text({own_ids}) WITH ORDINALITY AS slot (card_id, place)
LEFT JOIN {card_of_slot} ON true
ORDER BY place

-- fragment: own_cards_written
{held_head}, {held_output}, {cards_of_turn(output; head)}, appended AS (
    UPDATE public.card_boxes AS b
    SET card_ids = ({ids}) || %(card_ids)s::jsonb, updated_at = {moment}
    WHERE b.tenant_id = %(project_id)s AND b.box_id = (SELECT h.output_box_id FROM ready AS h)
        AND NOT {own_ids} @> %(card_ids)s::jsonb
)

-- name: write_own_cards
-- Writes cards of a turn and appends them to its output box, unless the box has all of them. Returns whether the turn
-- is at its fence, whether all cards could be stored, and which cards are stored. If a card is missing, nothing is
-- appended.
WITH {own_cards_written}
{what_is_stored}

-- name: write_answer
-- `write_own_cards`, and the state of the step after the answer.
WITH {own_cards_written}, step AS (
    UPDATE state.agent_steps AS s
    SET status = %(status)s, tool_call_ids = coalesce(%(tool_call_ids)s::jsonb, s.tool_call_ids),
        metadata = s.metadata || %(metadata)s::jsonb,
        ended_at = CASE WHEN %(status)s IN ('completed', 'failed') THEN {moment} END
    FROM ready
    WHERE s.project_id = %(project_id)s AND s.agent_id = %(agent_id)s AND s.step_id = %(step_id)s
)
{what_is_stored}

-- name: suspend_turn
-- Suspends a running turn until calls are answered, and consumes its claimed row. Returns the deadline. No row if the
-- turn has moved on.
WITH moved AS (
    UPDATE state.agent_state_head AS h
    SET status = %(target)s, updated_at = {now}, waiting_tool_count = cardinality(%(tool_call_ids)s::text[]),
        resume_deadline = {later}
    WHERE {at_fence} AND h.status = ANY(%(sources)s)
    RETURNING h.resume_deadline
), calls AS (
    INSERT INTO state.turn_waiting_tools
        (project_id, agent_id, agent_turn_id, turn_epoch, tool_call_id, step_id, tool_name, wait_status,
         created_at, updated_at)
    SELECT %(project_id)s, %(agent_id)s, %(agent_turn_id)s, %(turn_epoch)s, c.tool_call_id, %(step_id)s,
        c.tool_name, 'waiting', {now}, {now}
    FROM moved
    CROSS JOIN unnest(%(tool_call_ids)s::text[], %(tool_names)s::text[]) AS c (tool_call_id, tool_name)
    ON CONFLICT DO NOTHING
), done AS (
    UPDATE state.agent_inbox AS i
    SET status = %(row_target)s, processed_at = coalesce(i.processed_at, {now}),
        archived_at = coalesce(i.archived_at, {now})
    FROM moved
    WHERE i.project_id = %(project_id)s AND i.inbox_id = %(inbox_id)s AND i.status = ANY(%(row_sources)s)
), lease AS (
    DELETE FROM cbx.leases AS l
    USING moved
    WHERE l.project_id = %(project_id)s AND l.inbox_id = %(inbox_id)s
), step AS (
    UPDATE state.agent_steps AS s
    SET status = 'suspended', ended_at = NULL
    FROM moved
    WHERE s.project_id = %(project_id)s AND s.agent_id = %(agent_id)s AND s.step_id = %(step_id)s
)
SELECT moved.resume_deadline FROM moved
