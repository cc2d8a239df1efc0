-- fragment: record_json
json_build_object({fields:TurnRecord t},
    'report_to', CASE
        WHEN jsonb_typeof(t.report_to) = 'object'
            AND NOT jsonb_path_exists(t.report_to, 'strict $.* ? (@.type() != "string")')
        THEN t.report_to END
)::text

-- fragment: step_json
json_build_object({fields:Step s})::text

-- fragment: waiting_json
json_build_object({fields:WaitingTool w})::text

-- fragment: edge_json
json_build_object({fields:Edge e})::text

-- fragment: or_complete_record
ON CONFLICT (project_id, agent_turn_id) DO UPDATE
SET output_start = coalesce(t.output_start, excluded.output_start)

-- name: insert_turn_record
-- Writes the record of a turn, or sets its `output_start` if it has none.
INSERT INTO cbx.turns AS t (project_id, agent_turn_id, agent_id, output_start, report_to, created_at)
VALUES (%(project_id)s, %(agent_turn_id)s, %(agent_id)s, %(output_start)s, %(report_to)s, {now})
{or_complete_record}

-- name: turn_record
-- The record of a turn.
SELECT {record_json}
FROM cbx.turns AS t
WHERE t.project_id = %(project_id)s AND t.agent_turn_id = %(agent_turn_id)s

-- name: end_turn_record
-- Records the end of a turn. Returns no row if its end is recorded already.
WITH t AS (
    UPDATE cbx.turns AS t
    SET end_status = %(end_status)s, end_epoch = %(end_epoch)s, deliverable_card_id = %(deliverable_card_id)s,
        error_code = %(error_code)s, error = %(error)s, ended_at = {moment}
    WHERE t.project_id = %(project_id)s AND t.agent_turn_id = %(agent_turn_id)s AND t.end_status IS NULL
    RETURNING t.*
)
SELECT {record_json} FROM t

-- name: reset_output_start
-- Sets the position of the turn's first own card in its new output box.
UPDATE cbx.turns AS t
SET output_start = %(output_start)s
WHERE t.project_id = %(project_id)s AND t.agent_turn_id = %(agent_turn_id)s

-- name: box_length
-- The number of cards of a box. No row for an unknown box.
SELECT jsonb_array_length({ids})
FROM public.card_boxes AS b
WHERE b.tenant_id = %(project_id)s AND b.box_id = %(box_id)s

-- name: output_start
-- The position of the first card in a box that names the turn as its author, or the end of the box if none does.
SELECT coalesce(min(slot.place) FILTER (WHERE slot.card_id IN (
    SELECT c.card_id FROM public.cards AS c
    WHERE c.tenant_id = %(project_id)s AND c.metadata ->> 'agent_turn_id' = %(agent_turn_id)s)) - 1, count(*))
FROM public.card_boxes AS b
CROSS JOIN LATERAL jsonb_array_elements_text({ids}) WITH ORDINALITY AS slot (card_id, place)
WHERE b.tenant_id = %(project_id)s AND b.box_id = %(box_id)s

-- name: lock_box_row
-- Locks the box. Returns whether it exists.
SELECT true FROM public.card_boxes AS b WHERE b.tenant_id = %(project_id)s AND b.box_id = %(box_id)s FOR UPDATE

-- name: move_step
-- Writes the next state of a step, and its calls, error and usage if they are given.
UPDATE state.agent_steps AS s
SET status = %(status)s, tool_call_ids = coalesce(%(tool_call_ids)s, s.tool_call_ids),
    error = coalesce(%(error)s, s.error), metadata = s.metadata || %(metadata)s,
    ended_at = CASE WHEN %(status)s IN ('completed', 'failed') THEN {moment} END
WHERE s.project_id = %(project_id)s AND s.agent_id = %(agent_id)s AND s.step_id = %(step_id)s

-- name: note_step_failure
-- Adds the failure of a step that is tried again.
UPDATE state.agent_steps AS s
SET error = %(error)s, metadata = s.metadata || %(metadata)s
WHERE s.project_id = %(project_id)s AND s.agent_id = %(agent_id)s AND s.step_id = %(step_id)s

-- name: close_steps
-- Ends the open steps of a turn.
UPDATE state.agent_steps AS s
SET status = %(status)s, error = coalesce(s.error, %(error)s), ended_at = {moment}
WHERE s.project_id = %(project_id)s AND s.agent_turn_id = %(agent_turn_id)s
    AND s.status NOT IN ('completed', 'failed', 'suspended')

-- name: steps_of_turn
-- The steps of a turn in order.
SELECT {step_json}
FROM state.agent_steps AS s
WHERE s.project_id = %(project_id)s AND s.agent_turn_id = %(agent_turn_id)s
ORDER BY s.started_at, s.step_id

-- name: waiting_tools
-- The calls for which a turn waits or waited, in order.
SELECT {waiting_json}
FROM state.turn_waiting_tools AS w
WHERE w.project_id = %(project_id)s AND w.agent_turn_id = %(agent_turn_id)s
ORDER BY w.created_at, w.turn_epoch, w.tool_call_id

-- name: open_waiting_of_agent
-- The open calls of the agent's last turn that has open calls.
SELECT {waiting_json}
FROM state.turn_waiting_tools AS w
WHERE w.project_id = %(project_id)s AND w.agent_id = %(agent_id)s AND w.wait_status IN ('waiting', 'received')
    AND (w.agent_turn_id, w.turn_epoch) = (
        SELECT last.agent_turn_id, last.turn_epoch
        FROM state.turn_waiting_tools AS last
        WHERE last.project_id = %(project_id)s AND last.agent_id = %(agent_id)s
            AND last.wait_status IN ('waiting', 'received')
        ORDER BY last.turn_epoch DESC, last.created_at DESC
        LIMIT 1)
ORDER BY w.created_at, w.tool_call_id

-- name: receive_waiting_tool
-- Records that the result of a call has arrived. Returns no row if no turn waits for it.
WITH w AS (
    UPDATE state.turn_waiting_tools AS w
    SET wait_status = 'received', tool_result_card_id = %(card_id)s, received_at = {now}, updated_at = {now}
    WHERE w.project_id = %(project_id)s AND w.agent_turn_id = %(agent_turn_id)s
        AND w.tool_call_id = %(tool_call_id)s AND w.wait_status = 'waiting'
    RETURNING w.*
)
SELECT {waiting_json} FROM w

-- name: drop_waiting_tools
-- Cancels the waits of a turn for its open calls. Returns them.
WITH w AS (
    UPDATE state.turn_waiting_tools AS w
    SET wait_status = 'dropped', updated_at = {now}
    WHERE w.project_id = %(project_id)s AND w.agent_turn_id = %(agent_turn_id)s
        AND w.wait_status IN ('waiting', 'received')
    RETURNING w.*
)
SELECT {waiting_json} FROM w

-- name: lock_waiting_tool
-- The last call with this id that a turn waited for, locked.
SELECT {waiting_json}
FROM state.turn_waiting_tools AS w
WHERE w.project_id = %(project_id)s AND w.agent_turn_id = %(agent_turn_id)s
    AND w.tool_call_id = %(tool_call_id)s
ORDER BY w.turn_epoch DESC
LIMIT 1
FOR UPDATE

-- name: move_waiting_tools
-- Moves the calls of a suspended turn to its new epoch.
UPDATE state.turn_waiting_tools AS w
SET turn_epoch = %(turn_epoch)s, updated_at = {now}
WHERE w.project_id = %(project_id)s AND w.agent_turn_id = %(agent_turn_id)s
    AND w.wait_status IN ('waiting', 'received')

-- name: overdue_heads
-- The suspended turns whose deadline has passed.
SELECT {head_json}
FROM state.agent_state_head AS h
WHERE h.project_id = %(project_id)s AND h.status = 'suspended' AND h.resume_deadline <= {now}

-- name: held_tool_call_ids
-- The given tool-call ids that the project has already, as calls or as results.
SELECT c.tool_call_id
FROM public.cards AS c
WHERE c.tenant_id = %(project_id)s AND c.tool_call_id = ANY(%(tool_call_ids)s)

-- name: lock_tool_call_ids
-- Lets one transaction at a time write calls with these ids. All transactions lock the ids in the same order.
SELECT pg_advisory_xact_lock(hashtext(%(project_id)s), k.lock)
FROM (
    SELECT DISTINCT hashtext('call ' || g.tool_call_id) AS lock
    FROM unnest(%(tool_call_ids)s::text[]) AS g (tool_call_id)
    ORDER BY lock
) AS k

-- name: insert_edge
-- Records a dispatch or a report between agents, once for each correlation id, primitive and phase.
INSERT INTO state.execution_edges AS e
    (project_id, edge_id, channel_id, primitive, edge_phase, source_agent_id, source_agent_turn_id,
     source_step_id, target_agent_id, target_agent_turn_id, correlation_id, enqueue_mode, recursion_depth,
     trace_id, parent_step_id, metadata, created_at)
VALUES (%(project_id)s, %(edge_id)s, %(channel_id)s, %(primitive)s, %(edge_phase)s, %(source_agent_id)s,
    %(source_agent_turn_id)s, %(source_step_id)s, %(target_agent_id)s, %(target_agent_turn_id)s,
    %(correlation_id)s, %(enqueue_mode)s, %(recursion_depth)s, %(trace_id)s, %(parent_step_id)s, %(metadata)s,
    {moment})
ON CONFLICT DO NOTHING

-- name: enqueue_edge
-- The edge that dispatched the turn.
SELECT {edge_json}
FROM state.execution_edges AS e
WHERE e.project_id = %(project_id)s AND e.target_agent_turn_id = %(agent_turn_id)s
    AND e.primitive = 'enqueue' AND e.edge_phase = 'request'
ORDER BY e.created_at, e.edge_id
LIMIT 1

-- name: edges_of_turn
-- The edges that begin or end at a turn, in order.
SELECT {edge_json}
FROM state.execution_edges AS e
WHERE e.project_id = %(project_id)s
    AND (e.target_agent_turn_id = %(agent_turn_id)s OR e.source_agent_turn_id = %(agent_turn_id)s)
ORDER BY e.created_at, e.edge_id

-- name: head_of_turn
-- The head whose active turn this is.
SELECT {head_json}
FROM state.agent_state_head AS h
WHERE h.project_id = %(project_id)s AND h.status <> 'idle' AND h.active_agent_turn_id = %(agent_turn_id)s
