-- fragment: inbox_matches
    i.project_id = %(project_id)s
    AND (%(agent_id)s::text IS NULL OR i.agent_id = %(agent_id)s)
    AND (%(status)s::text IS NULL OR i.status = %(status)s)
    AND (%(message_type)s::text IS NULL OR i.message_type = %(message_type)s)
    AND (%(after_time)s::timestamptz IS NULL
         OR (i.created_at, i.inbox_id) < (%(after_time)s::timestamptz, %(after_id)s::text))

-- fragment: inbox_is_open
i.status IN ('queued', 'pending', 'deferred', 'processing')

-- name: list_inbox
-- A page of the project's inbox rows, newest first, after the place (created_at, inbox_id) if one is given.
SELECT {inbox_json} FROM state.agent_inbox AS i WHERE {inbox_matches}
ORDER BY i.created_at DESC, i.inbox_id DESC LIMIT %(limit)s

-- name: list_open_inbox
-- `list_inbox` of a status that few rows have.
SELECT {inbox_json} FROM state.agent_inbox AS i WHERE {inbox_is_open} AND {inbox_matches}
ORDER BY i.created_at DESC, i.inbox_id DESC LIMIT %(limit)s

-- name: list_dead_inbox
-- `list_inbox` of the dead letters.
SELECT {inbox_json} FROM state.agent_inbox AS i WHERE i.status = 'error' AND {inbox_matches}
ORDER BY i.created_at DESC, i.inbox_id DESC LIMIT %(limit)s

-- name: list_skipped_inbox
-- `list_inbox` of what was skipped.
SELECT {inbox_json} FROM state.agent_inbox AS i WHERE i.status = 'skipped' AND {inbox_matches}
ORDER BY i.created_at DESC, i.inbox_id DESC LIMIT %(limit)s

-- name: count_further_inbox
-- How many rows there are after a place, up to a limit.
SELECT count(*) FROM (SELECT 1 FROM state.agent_inbox AS i WHERE {inbox_matches} LIMIT %(limit)s) AS further

-- name: inbox_id_exists
-- Whether there is a row of this id.
SELECT true FROM state.agent_inbox AS i WHERE i.project_id = %(project_id)s AND i.inbox_id = %(wanted)s

-- name: find_inbox_ids
-- Up to six ids of each kind: that begin with what was typed, with or without their first word, or end with it;
-- and whose last 8 characters begin with it.
(SELECT i.inbox_id FROM state.agent_inbox AS i
 WHERE i.project_id = %(project_id)s AND i.inbox_id LIKE %(beginning)s LIMIT 6)
UNION
(SELECT i.inbox_id FROM state.agent_inbox AS i
 WHERE i.project_id = %(project_id)s AND i.inbox_id LIKE 'inbox\_' || %(beginning)s LIMIT 6)
UNION
(SELECT i.inbox_id FROM state.agent_inbox AS i
 WHERE i.project_id = %(project_id)s AND i.inbox_id LIKE 'turn\_' || %(beginning)s LIMIT 6)
UNION
(SELECT i.inbox_id FROM state.agent_inbox AS i
 WHERE i.project_id = %(project_id)s AND i.inbox_id LIKE %(end)s LIMIT 6)
UNION
(SELECT i.inbox_id FROM state.agent_inbox AS i
 WHERE i.project_id = %(project_id)s AND right(i.inbox_id, 8) LIKE %(beginning)s LIMIT 6)
