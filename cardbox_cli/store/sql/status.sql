-- name: engine
-- The version of the sharding extension, where it is installed.
SELECT e.extversion FROM pg_extension AS e WHERE e.extname = 'citus'

-- name: is_replica
-- Whether the server follows another one.
SELECT pg_is_in_recovery()

-- name: replica_lag
-- How far a replica is behind, null where it cannot know; no row on a primary.
SELECT CASE
    WHEN EXISTS (SELECT FROM pg_stat_wal_receiver) AND pg_last_wal_receive_lsn() = pg_last_wal_replay_lsn()
    THEN interval '0'
    ELSE clock_timestamp() - pg_last_xact_replay_timestamp()
END
WHERE pg_is_in_recovery()

-- name: database_size
-- The bytes of the whole database.
SELECT pg_database_size(current_database())

-- name: table_sizes
-- Each of these tables: bytes of its rows (TOAST among them) and of its indexes, and about how many rows it has:
-- as densely as the last ANALYZE saw them, on the pages of today; null before the first.
SELECT named.name, pg_table_size(c.oid), pg_indexes_size(c.oid),
    CASE WHEN c.relpages > 0 AND c.reltuples >= 0 THEN (
        c.reltuples / c.relpages * pg_relation_size(c.oid) / current_setting('block_size')::integer)::bigint END
FROM unnest(%(names)s::text[]) AS named (name)
JOIN pg_namespace AS n ON n.nspname = split_part(named.name, '.', 1)
JOIN pg_class AS c ON c.relnamespace = n.oid AND c.relname = split_part(named.name, '.', 2)
ORDER BY named.name

-- name: index_exists
-- Whether an index is there, and whole.
SELECT coalesce((SELECT i.indisvalid FROM pg_index AS i WHERE i.indexrelid = to_regclass(%(index)s)), false)

-- name: text_index_exists
-- Whether the index behind a search for words is there, and whole.
SELECT coalesce(
    (SELECT i.indisvalid FROM pg_index AS i WHERE i.indexrelid = to_regclass('public.idx_cards_text')), false)

-- name: count_cards
-- The project's cards: all, those that have expired, those that were deleted.
SELECT count(*),
    count(*) FILTER (WHERE {lapsed}),
    count(*) FILTER (WHERE c.deleted_at IS NOT NULL)
FROM public.cards AS c
WHERE c.tenant_id = %(project_id)s

-- name: count_boxes
-- The project's boxes.
SELECT count(*) FROM public.card_boxes AS b WHERE b.tenant_id = %(project_id)s

-- name: count_some_cards
-- The project's cards, counted no further than a limit; the order keeps the planner on an index.
SELECT count(*)
FROM (
    SELECT 1 FROM public.cards AS c WHERE c.tenant_id = %(project_id)s ORDER BY c.card_id LIMIT %(limit)s
) AS found

-- name: count_some_boxes
-- The project's boxes, counted likewise.
SELECT count(*)
FROM (
    SELECT 1 FROM public.card_boxes AS b WHERE b.tenant_id = %(project_id)s ORDER BY b.box_id LIMIT %(limit)s
) AS found

-- name: plan_cards
-- The planner's guess at the project's cards.
EXPLAIN (FORMAT json) SELECT FROM public.cards AS c WHERE c.tenant_id = %(project_id)s

-- name: plan_boxes
-- The planner's guess at the project's boxes.
EXPLAIN (FORMAT json) SELECT FROM public.card_boxes AS b WHERE b.tenant_id = %(project_id)s
