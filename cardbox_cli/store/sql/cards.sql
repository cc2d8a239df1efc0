-- fragment: visible
c.deleted_at IS NULL AND (c.expires_at IS NULL OR c.expires_at > {now})

-- fragment: utc
'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'

-- fragment: instant
to_char(
    CASE WHEN {1} IS NOT NULL
         THEN least(greatest({1}, '0002-01-01Z'), '9998-12-31 23:59:59.999999Z') END
    AT TIME ZONE 'UTC', {utc})

-- fragment: card_type
coalesce(c.metadata ->> 'type', c.metadata ->> 'semantic_type', 'unknown')

-- fragment: card_json
row_to_json((SELECT card FROM (SELECT
    c.card_id,
    c.tenant_id AS project_id,
    {card_type} AS type,
    c.metadata ->> 'role' AS role,
    coalesce(c.metadata ->> 'author_id', c.metadata #>> '{producer,id}') AS author_id,
    c.content,
    c.tool_calls,
    c.tool_call_id,
    c.ttl_seconds,
    CASE WHEN jsonb_typeof(c.metadata) = 'object' THEN c.metadata ELSE '{}' END AS metadata,
    {instant(c.created_at)} AS created_at,
    {instant(c.expires_at)} AS expires_at,
    {instant(c.deleted_at)} AS deleted_at
) AS card))::text

-- fragment: stored_metadata
n.metadata || jsonb_build_object(
    'project_id', %(project_id)s::text,
    'created_at', to_char({now} AT TIME ZONE 'UTC', {utc})
)

-- fragment: same_values
c.content IS NOT DISTINCT FROM n.content
    AND c.tool_calls IS NOT DISTINCT FROM n.tool_calls
    AND c.tool_call_id IS NOT DISTINCT FROM n.tool_call_id
    AND c.ttl_seconds IS NOT DISTINCT FROM n.ttl_seconds
    AND c.metadata - 'created_at'
        = (n.metadata || jsonb_build_object('project_id', %(project_id)s::text)) - 'created_at'

-- fragment: same_payload
c.deleted_at IS NULL AND {same_values}

-- fragment: new_card
(SELECT %(card_id)s::text AS card_id, %(content)s::jsonb AS content, %(tool_calls)s::jsonb AS tool_calls,
        %(tool_call_id)s::text AS tool_call_id, %(ttl_seconds)s::integer AS ttl_seconds,
        %(metadata)s::jsonb AS metadata) AS n

-- name: insert_card
-- Writes the card. Returns no row if another card prevents it.
WITH c AS (
    INSERT INTO public.cards AS c
        (tenant_id, card_id, content, tool_calls, tool_call_id, ttl_seconds, expires_at, metadata, created_at)
    SELECT %(project_id)s::text, n.card_id, n.content, n.tool_calls, n.tool_call_id, n.ttl_seconds,
           {now} + make_interval(secs => n.ttl_seconds), {stored_metadata}, {now}
    FROM {new_card}
    ON CONFLICT DO NOTHING
    RETURNING c.*
)
SELECT {card_json} FROM c

-- name: compare_card
-- Compares the project's card with this id: whether the payload is the same, the card, and whether it is deleted.
SELECT {same_values}, {card_json}, c.deleted_at IS NOT NULL
FROM public.cards AS c, {new_card}
WHERE c.tenant_id = %(project_id)s AND c.card_id = n.card_id

-- name: repair_card
-- Overwrites the project's card with this id, and restores it if it was deleted.
WITH c AS (
    UPDATE public.cards AS c
    SET content = n.content, tool_calls = n.tool_calls, tool_call_id = n.tool_call_id,
        ttl_seconds = n.ttl_seconds, expires_at = n.expires_at, metadata = n.stored_metadata, deleted_at = NULL
    FROM (
        SELECT n.*, {now} + make_interval(secs => n.ttl_seconds) AS expires_at, {stored_metadata} AS stored_metadata
        FROM {new_card}
    ) AS n
    WHERE c.tenant_id = %(project_id)s AND c.card_id = n.card_id
    RETURNING c.*
)
SELECT {card_json} FROM c

-- name: make_incoming
-- Creates the table into which COPY writes cards. `label` groups them for counting.
CREATE TEMP TABLE IF NOT EXISTS cbx_incoming (
    place bigint GENERATED ALWAYS AS IDENTITY, label integer, card_id text COLLATE "C", content jsonb,
    tool_calls jsonb, tool_call_id text, ttl_seconds integer, metadata jsonb, created_at timestamptz
) ON COMMIT DROP

-- name: empty_incoming
-- Empties the table for a second bulk write in one transaction. Positions continue, so that the new cards are younger.
TRUNCATE cbx_incoming

-- name: copy_incoming
-- Reads the stream of cards.
COPY cbx_incoming (label, card_id, content, tool_calls, tool_call_id, ttl_seconds, metadata, created_at) FROM STDIN

-- name: insert_incoming
-- Writes the incoming cards and returns the number of rows for each label. The order by id makes two writers of the
-- same cards wait instead of deadlocking. A card keeps the time of its original, if it has one. Otherwise each card is
-- a microsecond younger than its predecessor, so that lists keep their order.
WITH inserted AS (
    INSERT INTO public.cards
        (tenant_id, card_id, content, tool_calls, tool_call_id, ttl_seconds, expires_at, metadata, created_at)
    SELECT %(project_id)s::text, n.card_id, n.content, n.tool_calls, n.tool_call_id, n.ttl_seconds,
           {now} + make_interval(secs => n.ttl_seconds), {stored_metadata},
           least({now}, n.created_at) + n.place * interval '1 microsecond'
    FROM (SELECT DISTINCT ON (card_id) * FROM cbx_incoming ORDER BY card_id, place) AS n
    ORDER BY n.card_id
    ON CONFLICT DO NOTHING
    RETURNING card_id
)
SELECT n.label, count(*)
FROM inserted JOIN (SELECT DISTINCT ON (card_id) card_id, label FROM cbx_incoming ORDER BY card_id, place) AS n
    USING (card_id)
GROUP BY n.label

-- name: incoming_conflict
-- The first incoming card that differs from the stored card with its id, or that is not stored. Also returns whether
-- the project has its id, and whether that card is deleted.
SELECT n.card_id, n.tool_call_id, c.card_id IS NOT NULL, c.deleted_at IS NOT NULL
FROM cbx_incoming AS n
LEFT JOIN public.cards AS c ON c.tenant_id = %(project_id)s AND c.card_id = n.card_id
WHERE ({same_payload}) IS NOT TRUE
ORDER BY n.place
LIMIT 1

-- name: result_card_of_call
-- The project's tool result for a tool-call id.
SELECT c.card_id
FROM public.cards AS c
WHERE c.tenant_id = %(project_id)s AND c.tool_call_id = %(tool_call_id)s
    AND c.metadata ->> 'type' = 'tool.result'
LIMIT 1

-- name: cards_by_ids
-- The project's cards with these ids, in no order.
SELECT {card_json}
FROM public.cards AS c
WHERE c.tenant_id = %(project_id)s AND c.card_id = ANY(%(card_ids)s)
    AND (%(include_deleted)s OR {visible})

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

-- name: api_cards
-- The visible cards with these ids, in no order: the id, and the card's JSON. Stops after the card that exceeds `most`
-- bytes in total.
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
-- The stored size of each of these cards in bytes, for which the cards need not be decompressed.
SELECT c.card_id, greatest(pg_column_size(c.content), 0) + greatest(pg_column_size(c.metadata), 0)
    + greatest(pg_column_size(c.tool_calls), 0)
FROM public.cards AS c
WHERE c.tenant_id = %(project_id)s AND c.card_id = ANY(%(card_ids)s::text[])

-- name: absent_card_ids
-- The given ids that are not cards of the project, in the given order. NOT IN is hashed; NOT EXISTS becomes a nested
-- loop over cards that were never analyzed: 5 s for 10,000.
SELECT given.card_id
FROM unnest(%(card_ids)s::text[]) WITH ORDINALITY AS given (card_id, place)
WHERE given.card_id NOT IN (
    SELECT c.card_id
    FROM public.cards AS c
    WHERE c.tenant_id = %(project_id)s AND c.card_id = ANY(%(card_ids)s) AND c.deleted_at IS NULL)
ORDER BY given.place

-- fragment: card_matches
    (%(include_deleted)s OR {visible})
    AND (%(types)s::text[] IS NULL OR c.metadata ->> 'type' = ANY(%(types)s))
    AND (%(role)s::text IS NULL OR c.metadata ->> 'role' = %(role)s)
    AND (%(author_id)s::text IS NULL OR c.metadata ->> 'author_id' = %(author_id)s)
    AND (%(agent_turn_id)s::text IS NULL OR c.metadata ->> 'agent_turn_id' = %(agent_turn_id)s)
    AND (%(step_id)s::text IS NULL OR c.metadata ->> 'step_id' = %(step_id)s)
    AND (%(trace_id)s::text IS NULL OR c.metadata ->> 'trace_id' = %(trace_id)s)
    AND (%(tool_call_id)s::text IS NULL OR c.tool_call_id = %(tool_call_id)s)
    AND (%(card_ids)s::text[] IS NULL OR c.card_id = ANY(%(card_ids)s))
    AND (%(words)s::text IS NULL OR ({text_vector}) @@ websearch_to_tsquery('simple', %(words)s))
    AND (%(patterns)s::text[] IS NULL OR ({text_contains}))

-- fragment: card_is_in_range
    (%(since)s::timestamptz IS NULL OR c.created_at >= %(since)s)
    AND (%(until)s::timestamptz IS NULL OR c.created_at < %(until)s)
    AND (%(after_time)s::timestamptz IS NULL
         OR (c.created_at, c.card_id) < (%(after_time)s::timestamptz, %(after_id)s::text))

-- name: list_cards
-- A page of the project's cards, newest first, after the position (created_at, card_id) if one is given.
SELECT {card_json}
FROM public.cards AS c
WHERE c.tenant_id = %(project_id)s AND {card_matches} AND {card_is_in_range}
ORDER BY c.created_at DESC, c.card_id DESC
LIMIT %(limit)s

-- name: list_cards_of_boxes
-- The newest cards of these types in these boxes that contain a text. Finds the ids in the boxes first.
WITH held AS MATERIALIZED (
    SELECT DISTINCT slot.card_id
    FROM public.card_boxes AS b
    CROSS JOIN LATERAL jsonb_array_elements_text({ids}) AS slot (card_id)
    WHERE b.tenant_id = %(project_id)s AND b.box_id = ANY(%(box_ids)s::uuid[])
)
SELECT {card_json}
FROM public.cards AS c
WHERE c.tenant_id = %(project_id)s AND c.card_id IN (SELECT h.card_id FROM held AS h)
    AND c.deleted_at IS NULL AND (c.expires_at IS NULL OR c.expires_at > %(now)s)
    AND c.metadata ->> 'type' = ANY(%(types)s)
    AND (%(words)s::text IS NULL OR ({text_vector}) @@ websearch_to_tsquery('simple', %(words)s))
    AND (%(patterns)s::text[] IS NULL OR ({text_contains}))
ORDER BY c.created_at DESC, c.card_id DESC
LIMIT %(limit)s

-- name: plan_for_few
-- Settings for `list_few_cards`. With this memory, the bitmap of a frequent word has exact rows, so that a page need
-- not search each card again. Starting parallel workers would take longer than reading a few cards.
SELECT set_config('work_mem', '64MB', true), set_config('max_parallel_workers_per_gather', '0', true)

-- name: list_few_cards
-- The page of `list_cards`, and the number of matches, if not more than `few` cards match. It finds all matches before
-- it sorts them. The planner cannot estimate rare words and turns, and would search all cards, newest first.
WITH found AS MATERIALIZED (
    SELECT c.created_at, c.card_id
    FROM public.cards AS c
    WHERE c.tenant_id = %(project_id)s AND {card_matches} AND {card_is_in_range}
    LIMIT %(few)s::integer + 1
), {page_of_found}

-- fragment: page_of_found
page AS (
    SELECT f.card_id FROM found AS f ORDER BY f.created_at DESC, f.card_id DESC LIMIT %(limit)s
)
SELECT {card_json}, (SELECT count(*) FROM found)
FROM page
JOIN public.cards AS c ON c.tenant_id = %(project_id)s AND c.card_id = page.card_id
ORDER BY c.created_at DESC, c.card_id DESC

-- name: list_few_cards_by_bigrams
-- `list_few_cards` for substrings in a script without spaces. Examines cards that have all pairs of characters.
WITH found AS MATERIALIZED (
    SELECT c.created_at, c.card_id
    FROM public.cards AS c
    WHERE c.tenant_id = %(project_id)s AND {text_bigrams} @> cbx.bigrams(%(text)s)
        AND {card_matches} AND {card_is_in_range}
    LIMIT %(few)s::integer + 1
), {page_of_found}

-- name: count_further_cards
-- Reads the next `limit` cards after a position. Returns the number of matching cards, and of cards that were read.
SELECT count(*) FILTER (WHERE {card_matches}), count(*)
FROM (SELECT * FROM public.cards AS c
      WHERE c.tenant_id = %(project_id)s AND {card_is_in_range}
      ORDER BY c.created_at DESC, c.card_id DESC
      LIMIT %(limit)s) AS c

-- fragment: text_vector
-- A tsvector holds 1 MB. Only the beginning of a very long text counts, so that one card cannot break a search.
CASE WHEN jsonb_typeof(content) IS DISTINCT FROM 'object' THEN ''
     WHEN octet_length(content::text) < 300000 THEN to_tsvector('simple', content - '__type__')
     ELSE to_tsvector('simple', left(
         jsonb_path_query_array(content - '__type__', 'strict $.** ? (@.type() == "string")')::text, 100000))
END
|| CASE WHEN octet_length(tool_calls::text) < 300000 THEN to_tsvector('simple', tool_calls) ELSE '' END

-- fragment: text_contains
-- Comparing the JSON text excludes most cards, at a quarter of the cost of comparing each string.
concat(c.content, c.tool_calls) ILIKE ALL (%(json_patterns)s::text[])
AND (SELECT bool_and(EXISTS (
    SELECT FROM jsonb_path_query(
        jsonb_build_array(CASE WHEN jsonb_typeof(c.content) = 'object' THEN c.content - '__type__' END, c.tool_calls),
        'strict $.**') AS found
    WHERE jsonb_typeof(found) = 'string' AND found #>> '{}' ILIKE pattern))
 FROM unnest(%(patterns)s::text[]) AS pattern)

-- name: index_text
-- Builds the opt-in index for a search by words. It runs outside a transaction, so that writers continue.
-- across-projects: an index is of a whole table
CREATE INDEX CONCURRENTLY IF NOT EXISTS idx_cards_text ON public.cards USING gin (({text_vector}));

-- fragment: text_bigrams
cbx.bigrams(coalesce(content::text, '') || ' ' || coalesce(tool_calls::text, ''))

-- name: knows_bigrams
-- Returns whether the function exists that the index for a search by substrings needs.
SELECT to_regprocedure('cbx.bigrams(text)') IS NOT NULL

-- name: index_bigrams
-- Builds the opt-in index for a search in a script without spaces, in the same way.
-- across-projects: an index is of a whole table
CREATE INDEX CONCURRENTLY IF NOT EXISTS idx_cards_bigrams ON public.cards USING gin (({text_bigrams}));

-- name: known_size
-- The number of cards that the planner assumes, or -1 before the first ANALYZE.
SELECT c.reltuples FROM pg_class AS c WHERE c.oid = 'public.cards'::regclass

-- name: analyze_cards
-- Updates the planner's statistics of cards and boxes. Postgres only warns if our role may not do that.
-- across-projects: statistics are of whole tables
ANALYZE public.cards, public.card_boxes

-- name: find_card_ids
-- The id `wanted` itself, and up to six ids for each match. The id begins or ends with `wanted`, or its last 8
-- characters match `shown`, unless that is null.
(SELECT c.card_id, true AS whole FROM public.cards AS c
 WHERE c.tenant_id = %(project_id)s AND c.card_id = %(wanted)s)
UNION ALL
(SELECT c.card_id, false FROM public.cards AS c
 WHERE c.tenant_id = %(project_id)s AND c.card_id LIKE %(pattern)s AND c.card_id <> %(wanted)s LIMIT 6)
UNION ALL
(SELECT c.card_id, false FROM public.cards AS c
 WHERE c.tenant_id = %(project_id)s AND reverse(c.card_id) LIKE %(reversed_pattern)s AND c.card_id <> %(wanted)s
    AND c.card_id NOT LIKE %(pattern)s
 LIMIT 6)
UNION ALL
(SELECT c.card_id, false FROM public.cards AS c
 WHERE c.tenant_id = %(project_id)s AND right(c.card_id, 8) LIKE %(shown)s AND c.card_id <> %(wanted)s
    AND c.card_id NOT LIKE %(pattern)s AND reverse(c.card_id) NOT LIKE %(reversed_pattern)s
 LIMIT 6)

-- name: delete_cards
-- Hides the project's cards with these ids. Nothing is purged.
UPDATE public.cards AS c
SET deleted_at = {now}
WHERE c.tenant_id = %(project_id)s AND c.card_id = ANY(%(card_ids)s) AND c.deleted_at IS NULL
RETURNING c.card_id

-- name: recent_cards
-- The project's cards, newest first: id, type and the beginning of the text.
SELECT c.card_id, coalesce(c.metadata ->> 'type', c.metadata ->> 'semantic_type', 'unknown'),
    left(coalesce(c.content ->> 'text', ''), 200)
FROM public.cards AS c
WHERE c.tenant_id = %(project_id)s AND {visible}
ORDER BY c.created_at DESC, c.card_id DESC
LIMIT %(limit)s
