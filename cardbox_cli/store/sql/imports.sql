-- name: lock_import
-- Lets a project have one import at a time, because two could deadlock on common cards.
SELECT pg_advisory_xact_lock(hashtext('cbx import'), hashtext(%(project_id)s))

-- name: make_import_ids
-- Creates the table of the card ids of the imported conversations.
CREATE TEMP TABLE IF NOT EXISTS cbx_import_ids (label integer, place bigint, card_id text COLLATE "C")
ON COMMIT DROP

-- name: empty_import_ids
-- Empties the table for a second import in one transaction.
TRUNCATE cbx_import_ids

-- name: note_import_ids
-- Adds the ids of the last incoming cards.
INSERT INTO cbx_import_ids SELECT n.label, n.place, n.card_id FROM cbx_incoming AS n

-- name: make_import_lists
-- Creates the table of the id list of each conversation.
CREATE TEMP TABLE IF NOT EXISTS cbx_import_lists (label integer PRIMARY KEY, card_ids jsonb) ON COMMIT DROP

-- name: empty_import_lists
-- Empties the table for a second import in one transaction.
TRUNCATE cbx_import_lists

-- name: fill_import_lists
-- Writes one row for each label. A conversation without cards has none.
INSERT INTO cbx_import_lists
SELECT i.label, jsonb_agg(i.card_id ORDER BY i.place) FROM cbx_import_ids AS i GROUP BY i.label

-- fragment: wanted_boxes
w AS MATERIALIZED (
    SELECT w.label, w.box_id, w.parent_ids, coalesce(l.card_ids, '[]') AS card_ids
    FROM unnest(%(labels)s::integer[], %(box_ids)s::uuid[], %(parent_ids)s::jsonb[]) AS w (label, box_id, parent_ids)
    LEFT JOIN cbx_import_lists AS l ON l.label = w.label
    ORDER BY w.label
)

-- fragment: stored_begins_wanted
starts_with(w.card_ids::text, left(({ids})::text, -1))

-- name: insert_import_boxes
-- Creates the boxes whose ids are free.
WITH {wanted_boxes}
INSERT INTO public.card_boxes AS b (tenant_id, box_id, card_ids, parent_ids, updated_at)
SELECT %(project_id)s, w.box_id, w.card_ids, w.parent_ids, {moment}
FROM w
ON CONFLICT DO NOTHING
RETURNING b.box_id::text

-- name: grow_import_boxes
-- Appends the new ends of conversations that continue their boxes.
WITH {wanted_boxes}
UPDATE public.card_boxes AS b
SET card_ids = w.card_ids, updated_at = {moment}
FROM w
WHERE b.tenant_id = %(project_id)s AND b.box_id = w.box_id
    AND jsonb_array_length(w.card_ids) > jsonb_array_length({ids}) AND {stored_begins_wanted}
RETURNING b.box_id::text

-- name: import_boxes_in_place
-- The boxes that already begin with their conversations.
WITH {wanted_boxes}
SELECT b.box_id::text
FROM public.card_boxes AS b
JOIN w ON b.box_id = w.box_id
WHERE b.tenant_id = %(project_id)s AND starts_with(({ids})::text, left(w.card_ids::text, -1))
