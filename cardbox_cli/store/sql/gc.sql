-- fragment: lapsed
c.expires_at <= {now} AND c.deleted_at IS NULL

-- name: projects_with_rows
-- Every project that has a card or a box.
-- across-projects: it looks for projects
SELECT c.tenant_id FROM public.cards AS c
UNION
SELECT b.tenant_id FROM public.card_boxes AS b
ORDER BY 1

-- name: projects_with_box_info
-- Every project that has titles or provenance of boxes.
-- across-projects: it looks for projects
SELECT DISTINCT i.project_id FROM cbx.box_info AS i ORDER BY 1

-- name: count_expired
-- The number of expired cards of the project that are not deleted.
SELECT count(*) FROM public.cards AS c WHERE c.tenant_id = %(project_id)s AND {lapsed}

-- name: count_deleted
-- The number of soft-deleted cards of the project.
SELECT count(*) FROM public.cards AS c WHERE c.tenant_id = %(project_id)s AND c.deleted_at IS NOT NULL

-- name: purge_expired
-- Purges expired cards in batches, the oldest expiry first and none before `after`. Skips cards that a writer holds.
-- Returns the number of purged cards, and their last expiry, with which the next batch begins.
WITH doomed AS (
    SELECT c.tenant_id, c.card_id
    FROM public.cards AS c
    WHERE c.tenant_id = %(project_id)s AND {lapsed} AND c.expires_at >= %(after)s::timestamptz
    ORDER BY c.expires_at
    LIMIT %(limit)s
    FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM public.cards AS c
    USING doomed
    WHERE c.tenant_id = %(project_id)s AND c.tenant_id = doomed.tenant_id AND c.card_id = doomed.card_id
    RETURNING c.expires_at
)
SELECT count(*), max(expires_at)::text FROM gone

-- name: purge_deleted
-- Purges soft-deleted cards in batches, in the order of their ids after `after`. Skips cards that a writer holds.
-- Returns the number of purged cards, and their last id, with which the next batch begins.
WITH doomed AS (
    SELECT c.tenant_id, c.card_id
    FROM public.cards AS c
    WHERE c.tenant_id = %(project_id)s AND c.deleted_at IS NOT NULL AND c.card_id > %(after)s
    ORDER BY c.card_id
    LIMIT %(limit)s
    FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM public.cards AS c
    USING doomed
    WHERE c.tenant_id = %(project_id)s AND c.tenant_id = doomed.tenant_id AND c.card_id = doomed.card_id
    RETURNING c.card_id
)
SELECT count(*), max(card_id) FROM gone

-- name: dangling_references
-- The boxes with references to missing cards, and the number of these references, most first. Searches the `latest`
-- last changed boxes. Expired and deleted cards count as missing on request. Each card is looked up, because otherwise
-- the planner would read all cards of the project for a few boxes.
SELECT b.box_id::text, count(*)
FROM {latest_boxes} AS b
CROSS JOIN LATERAL jsonb_array_elements_text({ids}) AS slot (card_id)
LEFT JOIN LATERAL (
    SELECT {lapsed} AS is_expired, c.deleted_at IS NOT NULL AS is_deleted
    FROM public.cards AS c
    WHERE c.tenant_id = %(project_id)s AND c.card_id = slot.card_id
    LIMIT 1) AS c ON true
WHERE c.is_deleted IS NULL OR (%(without_expired)s AND c.is_expired) OR (%(without_deleted)s AND c.is_deleted)
GROUP BY b.box_id
ORDER BY count(*) DESC, b.box_id

-- name: count_orphaned_box_info
-- The number of rows of box_info without a box, among the first `latest` rows, or all. Ids of cbx begin with their
-- time, so that the oldest come first. Each box is looked up, as above.
SELECT count(*)
FROM (SELECT eldest.box_id FROM cbx.box_info AS eldest
      WHERE eldest.project_id = %(project_id)s
      ORDER BY eldest.box_id
      LIMIT %(latest)s) AS i
WHERE (SELECT count(*) FROM public.card_boxes AS b
       WHERE b.tenant_id = %(project_id)s AND b.box_id = i.box_id) = 0

-- name: lock_orphaned_box_info
-- Locks a batch of rows of box_info that seem to have no box. Skips rows that a writer holds.
SELECT i.box_id::text
FROM cbx.box_info AS i
WHERE i.project_id = %(project_id)s AND i.box_id > %(after)s::uuid
    AND NOT EXISTS (
        SELECT FROM public.card_boxes AS b WHERE b.tenant_id = %(project_id)s AND b.box_id = i.box_id)
ORDER BY i.box_id
LIMIT %(limit)s
FOR UPDATE SKIP LOCKED

-- name: purge_box_info
-- Deletes the given rows whose box is still missing now that they are locked.
DELETE FROM cbx.box_info AS i
WHERE i.project_id = %(project_id)s AND i.box_id = ANY(%(box_ids)s::uuid[])
    AND NOT EXISTS (
        SELECT FROM public.card_boxes AS b WHERE b.tenant_id = %(project_id)s AND b.box_id = i.box_id)

-- name: count_old_logs
-- The number of logs of turns that ended before a time.
SELECT count(*) FROM cbx.logs AS l WHERE l.project_id = %(project_id)s AND l.ended_at < %(before)s

-- name: purge_old_logs
-- Deletes logs that ended before a time, in batches and in the order of their turns from `after` on. Skips logs that a
-- writer holds. Returns the number of deleted logs, and the last turn among them, with which the next batch begins.
WITH doomed AS (
    SELECT l.project_id, l.agent_turn_id, l.log_id
    FROM cbx.logs AS l
    WHERE l.project_id = %(project_id)s AND l.ended_at < %(before)s AND l.agent_turn_id >= %(after)s
    ORDER BY l.agent_turn_id, l.log_id
    LIMIT %(limit)s
    FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM cbx.logs AS l
    USING doomed
    WHERE l.project_id = %(project_id)s AND l.project_id = doomed.project_id
        AND l.agent_turn_id = doomed.agent_turn_id AND l.log_id = doomed.log_id
    RETURNING l.agent_turn_id
)
SELECT count(*), max(agent_turn_id) FROM gone
