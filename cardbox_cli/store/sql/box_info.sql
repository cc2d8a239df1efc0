-- name: insert_box_info
-- What card_boxes has no column for.
INSERT INTO cbx.box_info (project_id, box_id, title, provenance, created_at)
VALUES (%(project_id)s, %(box_id)s, %(title)s, %(provenance)s, {now})
ON CONFLICT (project_id, box_id) DO UPDATE SET title = EXCLUDED.title, provenance = EXCLUDED.provenance

-- name: insert_box_titles
-- The titles of new boxes.
INSERT INTO cbx.box_info (project_id, box_id, title, created_at)
SELECT %(project_id)s, t.box_id, t.title, {now}
FROM unnest(%(box_ids)s::uuid[], %(titles)s::text[]) AS t (box_id, title)
ON CONFLICT (project_id, box_id) DO UPDATE SET title = EXCLUDED.title, provenance = NULL

-- name: box_titles
-- The titles of these boxes.
SELECT i.box_id::text, i.title
FROM cbx.box_info AS i
WHERE i.project_id = %(project_id)s AND i.box_id = ANY(%(box_ids)s::uuid[]) AND i.title IS NOT NULL

-- name: provenance_of_box
-- How the box was packed, if it was.
SELECT i.provenance::text
FROM cbx.box_info AS i
WHERE i.project_id = %(project_id)s AND i.box_id = %(box_id)s AND i.provenance IS NOT NULL

-- name: delete_box_info
-- Goes with its box.
DELETE FROM cbx.box_info AS i WHERE i.project_id = %(project_id)s AND i.box_id = %(box_id)s
