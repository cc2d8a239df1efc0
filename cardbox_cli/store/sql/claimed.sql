-- fragment: held_claim
-- Locks the head, then the lease, then the row.
head AS MATERIALIZED (
    SELECT h.*, h.xmin AS version
    FROM state.agent_state_head AS h
    WHERE h.project_id = %(project_id)s AND h.agent_id = (
        SELECT i.agent_id
        FROM state.agent_inbox AS i
        WHERE i.project_id = %(project_id)s AND i.inbox_id = %(inbox_id)s)
    FOR UPDATE
), lease AS MATERIALIZED (
    SELECT l.*
    FROM cbx.leases AS l
    WHERE l.project_id = %(project_id)s AND l.inbox_id = %(inbox_id)s AND (SELECT count(*) FROM head) >= 0
    FOR UPDATE
), claimed AS MATERIALIZED (
    SELECT i.*
    FROM state.agent_inbox AS i
    WHERE i.project_id = %(project_id)s AND i.inbox_id = %(inbox_id)s AND (SELECT count(*) FROM lease) >= 0
    FOR UPDATE
)

-- fragment: awaited_calls
calls AS (
    SELECT w.*
    FROM state.turn_waiting_tools AS w
    WHERE w.project_id = %(project_id)s AND w.agent_turn_id = (
        SELECT {turn_of_row} FROM claimed AS i WHERE i.message_type IN {report_types})
)

-- fragment: claim_facts
'row', ({inbox_json})::json,
    'head', (SELECT ({head_json})::json FROM head AS h),
    'lease', (SELECT ({lease_json})::json FROM lease AS l),
    'output_start', (
        SELECT t.output_start
        FROM cbx.turns AS t
        WHERE t.project_id = %(project_id)s AND t.agent_turn_id = (SELECT {turn_of_row} FROM claimed AS i))

-- fragment: call_facts
'calls', (
        SELECT json_agg(({waiting_json})::json ORDER BY w.created_at, w.turn_epoch, w.tool_call_id)
        FROM calls AS w)

-- name: claimed_turn
-- The facts that decide on a claimed row that is not a report. These are the row, the head of its agent, its lease,
-- and the position of its turn's first own card. Does not see a lease that was created while it waited for the head.
WITH {held_claim}
SELECT json_build_object({claim_facts})::text
FROM claimed AS i

-- name: claimed_situation
-- `claimed_turn` for any row. For a report, it adds the calls of the turn.
WITH {held_claim}, {awaited_calls}
SELECT json_build_object({claim_facts}, {call_facts})::text
FROM claimed AS i

-- name: claimed_report
-- `claimed_situation` for a report to apply. `is_old` is true if the head changed while this statement waited for it.
-- Then the calls may be outdated. The cards are the results that the report and the other calls of its step name.
WITH {held_claim}, {awaited_calls}, named AS (
    SELECT i.payload ->> 'tool_result_card_id' AS card_id
    FROM claimed AS i
    UNION
    SELECT w.tool_result_card_id
    FROM calls AS w
    WHERE w.step_id IN (
        SELECT o.step_id FROM calls AS o WHERE o.tool_call_id = (SELECT i.correlation_id FROM claimed AS i))
)
SELECT json_build_object({claim_facts}, {call_facts},
    'is_old', (SELECT h.version FROM head AS h) IS DISTINCT FROM (
        SELECT o.xmin
        FROM state.agent_state_head AS o
        WHERE o.project_id = %(project_id)s AND o.agent_id = i.agent_id))::text,
    ARRAY(SELECT {card_json} FROM named AS slot CROSS JOIN {card_of_slot} WHERE {visible})
FROM claimed AS i

-- name: write_applied
-- Applies a result to a suspended turn. The caller has locked the head, the lease and the row. Appends the card to the
-- output box, if the turn has one, and sets the call to applied. The claimed row resumes the turn, or is consumed.
-- Returns the epoch of the turn and the row. No row if the turn has moved on or its box is gone.
WITH box AS MATERIALIZED (
    SELECT b.box_id
    FROM public.card_boxes AS b
    WHERE b.tenant_id = %(project_id)s AND b.box_id = %(output_box_id)s::uuid
    FOR UPDATE
), moved AS (
    UPDATE state.agent_state_head AS h
    SET status = %(target)s, turn_epoch = h.turn_epoch + %(epoch)s, updated_at = {now},
        waiting_tool_count = %(waiting)s,
        resume_deadline = CASE WHEN %(resumes)s THEN NULL ELSE h.resume_deadline END
    WHERE {head_is_at} AND (%(output_box_id)s::uuid IS NULL OR EXISTS (SELECT FROM box))
    RETURNING h.turn_epoch
), put AS (
    UPDATE public.card_boxes AS b
    SET card_ids = ({ids}) || %(card_ids)s::jsonb, updated_at = {moment}
    FROM moved
    WHERE b.tenant_id = %(project_id)s AND b.box_id = %(output_box_id)s::uuid AND NOT ({ids}) @> %(card_ids)s::jsonb
), answered AS (
    UPDATE state.turn_waiting_tools AS w
    SET wait_status = 'applied', tool_result_card_id = %(card_id)s, received_at = coalesce(w.received_at, {now}),
        applied_at = {now}, updated_at = {now}
    FROM moved
    WHERE w.project_id = %(project_id)s AND w.agent_turn_id = %(agent_turn_id)s
        AND w.tool_call_id = %(tool_call_id)s AND w.wait_status IN ('waiting', 'received')
), i AS (
    UPDATE state.agent_inbox AS i
    SET turn_epoch = CASE WHEN %(resumes)s THEN moved.turn_epoch ELSE i.turn_epoch END,
        status = coalesce(%(row_target)s, i.status),
        processed_at = CASE WHEN %(is_done)s THEN coalesce(i.processed_at, {now}) ELSE i.processed_at END,
        archived_at = CASE WHEN %(is_done)s THEN coalesce(i.archived_at, {now}) ELSE i.archived_at END
    FROM moved
    WHERE i.project_id = %(project_id)s AND i.inbox_id = %(inbox_id)s
        AND (NOT %(is_done)s OR i.status = ANY(%(row_sources)s))
    RETURNING i.*
), carried AS (
    UPDATE cbx.leases AS l
    SET turn_epoch = moved.turn_epoch
    FROM moved
    WHERE l.project_id = %(project_id)s AND l.inbox_id = ANY(%(carried_ids)s)
), over AS (
    DELETE FROM cbx.leases AS l
    USING moved
    WHERE l.project_id = %(project_id)s AND l.inbox_id = ANY(%(done_ids)s)
)
SELECT moved.turn_epoch, (SELECT {inbox_json} FROM i) FROM moved

-- name: give_back
-- Returns a claimed row to the inbox for another attempt, and ends its lease. The turn that it carries waits for
-- another claim at its next epoch. Its head gets the time of the next attempt, because other systems enqueue a turn
-- again if its head has been dispatched for some seconds. Returns the row. No row if the turn or the row has changed.
-- For a row that carries no turn, the list of source states is empty, because shards cannot run a statement with a
-- condition that is constantly false.
WITH moved AS (
    UPDATE state.agent_state_head AS h
    SET status = %(target)s, turn_epoch = h.turn_epoch + %(epoch)s, updated_at = {later}, waiting_tool_count = 0,
        resume_deadline = NULL
    WHERE {head_is_at}
    RETURNING h.turn_epoch
), i AS (
    UPDATE state.agent_inbox AS i
    SET status = %(row_target)s, turn_epoch = coalesce((SELECT m.turn_epoch FROM moved AS m), i.turn_epoch),
        retry_count = i.retry_count + %(attempts)s, next_retry_at = {later},
        last_error = coalesce(%(error)s, i.last_error),
        defer_reason = CASE WHEN %(is_deferred)s THEN %(error)s ELSE i.defer_reason END,
        processed_at = NULL, archived_at = NULL
    WHERE i.project_id = %(project_id)s AND i.inbox_id = %(inbox_id)s AND i.status = ANY(%(row_sources)s)
        AND (NOT %(carries)s OR EXISTS (SELECT FROM moved))
    RETURNING i.*
), over AS (
    DELETE FROM cbx.leases AS l
    WHERE l.project_id = %(project_id)s AND l.inbox_id = %(inbox_id)s
)
SELECT {inbox_json} FROM i
