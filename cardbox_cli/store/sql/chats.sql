-- fragment: chat_json
json_build_object({fields:Chat h})::text

-- name: ensure_chat
-- Writes the head of a chat that has none.
INSERT INTO cbx.chats (project_id, chat_key, created_at, updated_at)
VALUES (%(project_id)s, %(chat_key)s, %(now)s, %(now)s)
ON CONFLICT DO NOTHING

-- name: chat
-- The head of a chat.
SELECT {chat_json}
FROM cbx.chats AS h
WHERE h.project_id = %(project_id)s AND h.chat_key = %(chat_key)s

-- name: lock_chat
-- The head of a chat, locked: the first lock of any change of a chat.
SELECT {chat_json}
FROM cbx.chats AS h
WHERE h.project_id = %(project_id)s AND h.chat_key = %(chat_key)s
FOR UPDATE

-- name: write_chat
-- Writes the head. The caller has locked it.
UPDATE cbx.chats AS h
SET entries = %(entries)s, transcript_box_id = %(transcript_box_id)s, window_start = %(window_start)s,
    answered = %(answered)s, context_id = %(context_id)s, context_box_id = %(context_box_id)s,
    context_created_at = %(context_created_at)s, loaded_from = %(loaded_from)s, version = %(version)s,
    reset_by = %(reset_by)s, reset_at = %(reset_at)s, epoch = %(epoch)s, run_id = %(run_id)s, owner = %(owner)s,
    lease_expires_at = %(lease_expires_at)s, updated_at = %(updated_at)s
WHERE h.project_id = %(project_id)s AND h.chat_key = %(chat_key)s

-- name: extend_chat_lease
-- Extends the lease of a run that still has the chat.
UPDATE cbx.chats AS h
SET lease_expires_at = %(expires_at)s
WHERE h.project_id = %(project_id)s AND h.chat_key = %(chat_key)s AND h.run_id = %(run_id)s AND h.epoch = %(epoch)s

-- name: list_chats
-- A page of the project's chats in the order of their keys, after a key.
SELECT {chat_json}
FROM cbx.chats AS h
WHERE h.project_id = %(project_id)s AND h.chat_key > %(after)s
ORDER BY h.chat_key
LIMIT %(limit)s

-- name: chats_between
-- The chats with keys from `first` to before `last`, the last used first.
SELECT {chat_json}
FROM cbx.chats AS h
WHERE h.project_id = %(project_id)s AND h.chat_key >= %(first)s AND h.chat_key < %(last)s
ORDER BY h.updated_at DESC, h.chat_key
LIMIT %(limit)s

-- name: projects_with_chat
-- The projects that have a chat of this key.
-- across-projects: it looks for the project that has the chat
SELECT h.project_id FROM cbx.chats AS h WHERE h.chat_key = %(chat_key)s ORDER BY h.project_id LIMIT %(limit)s

-- fragment: archive_json
json_build_object({fields:Archive a})::text

-- name: insert_chat_context
-- Writes an archived context unless it exists.
INSERT INTO cbx.chat_contexts
    (project_id, chat_key, context_id, box_id, title, reason, checkpoint_index, checkpoint_preview, messages,
     search_text, terms, layout, created_at, archived_at)
VALUES (%(project_id)s, %(chat_key)s, %(context_id)s, %(box_id)s, %(title)s, %(reason)s, %(checkpoint_index)s,
    %(checkpoint_preview)s, %(messages)s, %(search_text)s, %(terms)s, %(layout)s, %(created_at)s, %(archived_at)s)
ON CONFLICT DO NOTHING

-- name: chat_context
-- An archived context of a chat.
SELECT {archive_json}
FROM cbx.chat_contexts AS a
WHERE a.project_id = %(project_id)s AND a.chat_key = %(chat_key)s AND a.context_id = %(context_id)s

-- name: chat_context_layouts
-- The other fields of the files from which archived contexts of a chat were imported.
SELECT a.context_id, a.layout::text
FROM cbx.chat_contexts AS a
WHERE a.project_id = %(project_id)s AND a.chat_key = %(chat_key)s AND a.layout IS NOT NULL

-- name: find_chat_contexts
-- Up to six ids of archived contexts of a chat that match a beginning or an end.
SELECT a.context_id
FROM cbx.chat_contexts AS a
WHERE a.project_id = %(project_id)s AND a.chat_key = %(chat_key)s
    AND (a.context_id LIKE %(beginning)s OR a.context_id LIKE %(ending)s)
ORDER BY a.context_id
LIMIT 6

-- name: list_chat_contexts
-- A page of the archived contexts of a chat, newest first, after the place (archived_at, context_id) if one is given.
SELECT {archive_json}
FROM cbx.chat_contexts AS a
WHERE a.project_id = %(project_id)s AND a.chat_key = %(chat_key)s
    AND (%(after_time)s::timestamptz IS NULL
         OR (a.archived_at, a.context_id) < (%(after_time)s::timestamptz, %(after_id)s))
ORDER BY a.archived_at DESC, a.context_id DESC
LIMIT %(limit)s

-- name: newest_with_terms
-- The newest archived contexts that have all of these terms.
SELECT a.context_id
FROM cbx.chat_contexts AS a
WHERE a.project_id = %(project_id)s AND a.chat_key = %(chat_key)s AND a.terms @> %(all_of)s::integer[]
ORDER BY a.archived_at DESC, a.context_id DESC
LIMIT %(limit)s

-- name: findable_chat_contexts
-- The texts by which a search ranks these archived contexts.
SELECT json_build_object({fields:SearchCandidate a})::text
FROM cbx.chat_contexts AS a
WHERE a.project_id = %(project_id)s AND a.chat_key = %(chat_key)s AND a.context_id = ANY(%(context_ids)s)
ORDER BY a.archived_at DESC, a.context_id DESC

-- name: count_chat_contexts
-- The number of archived contexts of a chat, up to a limit.
SELECT count(*)
FROM (SELECT a.context_id FROM cbx.chat_contexts AS a
      WHERE a.project_id = %(project_id)s AND a.chat_key = %(chat_key)s
      LIMIT %(limit)s) AS counted
