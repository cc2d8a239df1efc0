-- fragment: first_card
LEFT JOIN LATERAL (
    SELECT c.metadata ->> 'type' AS type, c.metadata ->> 'author_id' AS author, c.metadata ->> 'agent_turn_id' AS turn
    FROM public.cards AS c
    WHERE c.tenant_id = %(project_id)s AND c.card_id = b.card_ids ->> 0) AS first ON true

-- fragment: kept_info
LEFT JOIN cbx.box_info AS i ON i.project_id = %(project_id)s AND i.box_id = b.box_id

-- fragment: no_info
CROSS JOIN (SELECT NULL::text AS title, NULL::jsonb AS provenance) AS i

-- fragment: box_kind
CROSS JOIN LATERAL (SELECT
    CASE WHEN i.title LIKE 'request of step\_%%' THEN 'request'
         WHEN i.provenance IS NOT NULL THEN 'context'
         WHEN first.author = %(importer)s THEN 'conversation'
         WHEN first.type = ANY(%(snapshots)s) THEN 'request'
         WHEN first.type = %(profile)s THEN 'profile'
         WHEN first.turn IS NOT NULL THEN 'output'
         ELSE '' END) AS kind (name)

-- name: list_boxes_by_kind
-- A page of the ids and kinds of the boxes of these kinds, the last changed first; '' is that of boxes which do
-- not tell.
SELECT b.box_id::text, kind.name
FROM public.card_boxes AS b {first_card} {kept_info} {box_kind}
WHERE b.tenant_id = %(project_id)s AND kind.name = ANY(%(kinds)s) AND {box_is_in_range}
ORDER BY b.updated_at DESC, b.box_id DESC
LIMIT %(limit)s

-- name: list_boxes_by_kind_without_info
-- The same in a database that keeps no info of boxes.
SELECT b.box_id::text, kind.name
FROM public.card_boxes AS b {first_card} {no_info} {box_kind}
WHERE b.tenant_id = %(project_id)s AND kind.name = ANY(%(kinds)s) AND {box_is_in_range}
ORDER BY b.updated_at DESC, b.box_id DESC
LIMIT %(limit)s

-- fragment: next_boxes
(SELECT * FROM public.card_boxes AS b
 WHERE b.tenant_id = %(project_id)s AND {box_is_in_range}
 ORDER BY b.updated_at DESC, b.box_id DESC
 LIMIT %(limit)s) AS b

-- name: count_boxes_by_kind
-- How many of the next so many boxes after a place are of each kind.
SELECT kind.name, count(*) FROM {next_boxes} {first_card} {kept_info} {box_kind} GROUP BY kind.name

-- name: count_boxes_by_kind_without_info
-- The same in a database that keeps no info of boxes.
SELECT kind.name, count(*) FROM {next_boxes} {first_card} {no_info} {box_kind} GROUP BY kind.name
