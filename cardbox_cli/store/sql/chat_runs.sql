-- fragment: texts_of
-- The strings of a list of ids that another program may have written. Anything else becomes the text of its JSON.
ARRAY(SELECT coalesce(each.id, 'null')
      FROM jsonb_array_elements_text(CASE WHEN jsonb_typeof({1}) = 'array' THEN {1} ELSE '[]' END)
          WITH ORDINALITY AS each (id, place)
      ORDER BY each.place)

-- fragment: run_json
json_build_object({fields:ChatRun r},
    'user_card_ids', {texts_of(r.user_card_ids)},
    'reply_card_ids', {texts_of(r.reply_card_ids)}
)::text

-- name: insert_chat_run
-- Writes the beginning of a run.
INSERT INTO cbx.chat_runs
    (project_id, chat_key, run_id, epoch, owner, status, position, merged, version, user_card_ids, reply_card_ids,
     profile_box_id, context_box_id, output_box_id, started_at)
VALUES (%(project_id)s, %(chat_key)s, %(run_id)s, %(epoch)s, %(owner)s, %(status)s, %(position)s, %(merged)s,
    %(version)s, %(user_card_ids)s, %(reply_card_ids)s, %(profile_box_id)s, %(context_box_id)s, %(output_box_id)s,
    %(started_at)s)

-- name: write_chat_run
-- Writes a run. The caller has locked the head of its chat.
UPDATE cbx.chat_runs AS r
SET status = %(status)s, merged = %(merged)s, version = %(version)s, user_card_ids = %(user_card_ids)s,
    reply_card_ids = %(reply_card_ids)s, answer_card_id = %(answer_card_id)s, profile_box_id = %(profile_box_id)s,
    context_box_id = %(context_box_id)s, output_box_id = %(output_box_id)s, error_code = %(error_code)s,
    error = %(error)s, ended_at = %(ended_at)s
WHERE r.project_id = %(project_id)s AND r.chat_key = %(chat_key)s AND r.run_id = %(run_id)s

-- name: chat_run
-- A run of a chat.
SELECT {run_json}
FROM cbx.chat_runs AS r
WHERE r.project_id = %(project_id)s AND r.chat_key = %(chat_key)s AND r.run_id = %(run_id)s

-- name: last_chat_runs
-- The last runs of a chat that began in a period, newest first.
SELECT {run_json}
FROM cbx.chat_runs AS r
WHERE r.project_id = %(project_id)s AND r.chat_key = %(chat_key)s
    AND (%(since)s::timestamptz IS NULL OR r.started_at >= %(since)s)
    AND (%(until)s::timestamptz IS NULL OR r.started_at < %(until)s)
ORDER BY r.epoch DESC
LIMIT %(limit)s

-- fragment: chat_step_json
-- A step of a chat's run is read as a step of a turn.
json_build_object({fields:Step s},
    'agent_id', s.chat_key,
    'agent_turn_id', s.run_id,
    'trace_id', NULL,
    'parent_step_id', NULL
)::text

-- name: insert_chat_step
-- Writes the beginning of a step, with the box of the model's request.
INSERT INTO cbx.chat_steps
    (project_id, chat_key, step_id, run_id, status, profile_box_id, context_box_id, output_box_id, request_box_id,
     metadata, started_at)
VALUES (%(project_id)s, %(chat_key)s, %(step_id)s, %(run_id)s, %(status)s, %(profile_box_id)s, %(context_box_id)s,
    %(output_box_id)s, %(request_box_id)s, %(metadata)s, %(now)s)

-- name: move_chat_step
-- Writes the next state of a step, and its calls and usage if they are known.
UPDATE cbx.chat_steps AS s
SET status = %(status)s, tool_call_ids = coalesce(%(tool_call_ids)s, s.tool_call_ids),
    metadata = s.metadata || %(metadata)s, ended_at = %(ended_at)s
WHERE s.project_id = %(project_id)s AND s.chat_key = %(chat_key)s AND s.step_id = %(step_id)s

-- name: close_chat_steps
-- Ends the open steps of a run.
UPDATE cbx.chat_steps AS s
SET status = %(status)s, error = coalesce(s.error, %(error)s), ended_at = %(now)s
WHERE s.project_id = %(project_id)s AND s.chat_key = %(chat_key)s AND s.run_id = %(run_id)s
    AND s.status NOT IN ('completed', 'failed')

-- name: steps_of_chat_run
-- The steps of a run in order.
SELECT {chat_step_json}
FROM cbx.chat_steps AS s
WHERE s.project_id = %(project_id)s AND s.chat_key = %(chat_key)s AND s.run_id = %(run_id)s
ORDER BY s.step_id

-- name: find_chat_steps
-- Up to six steps of a chat whose ids match a beginning or an end, newest first.
SELECT {chat_step_json}
FROM cbx.chat_steps AS s
WHERE s.project_id = %(project_id)s AND s.chat_key = %(chat_key)s
    AND (s.step_id LIKE %(beginning)s OR s.step_id LIKE %(ending)s)
ORDER BY s.step_id DESC
LIMIT 6
