-- fragment: api_card
json_build_object(
    'card_id', c.card_id,
    'project_id', c.tenant_id,
    'type', {card_type},
    'content', CASE WHEN jsonb_typeof(c.content) = 'object' THEN c.content - '__type__' ELSE c.content END,
    'created_at', c.metadata -> 'created_at',
    'author_id', coalesce(c.metadata ->> 'author_id', c.metadata #>> '{producer,id}'),
    'metadata', c.metadata,
    'tool_calls', c.tool_calls,
    'tool_call_id', c.tool_call_id,
    'ttl_seconds', c.ttl_seconds
)::text

-- name: api_boxes
-- The boxes of these ids, in no order: the id, and the list of ids as JSON.
SELECT b.box_id::text, {ids}::text
FROM public.card_boxes AS b
WHERE b.tenant_id = %(project_id)s AND b.box_id = ANY(%(box_ids)s::uuid[])

-- name: api_cards
-- The cards of these ids that a reader sees, in no order: the id, and the card's JSON. Once they are more than so
-- many bytes together, no further ones.
SELECT n.card_id, n.card
FROM (
    SELECT f.card_id, f.card, sum(octet_length(f.card)) OVER (ROWS UNBOUNDED PRECEDING) - octet_length(f.card) AS before
    FROM (
        SELECT c.card_id, {api_card} AS card
        FROM public.cards AS c
        WHERE c.tenant_id = %(project_id)s AND c.card_id = ANY(%(card_ids)s::text[]) AND {visible}
        OFFSET 0
    ) AS f
) AS n
WHERE n.before <= %(most)s

-- name: api_card_sizes
-- How many bytes the cards of these ids take where they are stored, which needs no look into them.
SELECT c.card_id, greatest(pg_column_size(c.content), 0) + greatest(pg_column_size(c.metadata), 0)
    + greatest(pg_column_size(c.tool_calls), 0)
FROM public.cards AS c
WHERE c.tenant_id = %(project_id)s AND c.card_id = ANY(%(card_ids)s::text[])
