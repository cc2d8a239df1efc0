-- name: give_up_after
-- No later statement of this transaction runs longer.
SELECT set_config('statement_timeout', %(limit)s, true)

-- name: recent_boxes
-- The project's boxes, the last changed first, without what is in them.
SELECT b.box_id::text, b.updated_at
FROM public.card_boxes AS b
WHERE b.tenant_id = %(project_id)s
ORDER BY b.updated_at DESC, b.box_id DESC
LIMIT %(limit)s

-- name: recent_cards
-- The project's cards, newest first: id, type and the beginning of a text.
SELECT c.card_id, coalesce(c.metadata ->> 'type', c.metadata ->> 'semantic_type', 'unknown'),
    left(coalesce(c.content ->> 'text', ''), 200)
FROM public.cards AS c
WHERE c.tenant_id = %(project_id)s AND {visible}
ORDER BY c.created_at DESC, c.card_id DESC
LIMIT %(limit)s
