-- name: engine
-- The version of the sharding extension, if it is installed.
SELECT e.extversion FROM pg_extension AS e WHERE e.extname = 'citus'

-- name: is_replica
-- Returns whether the server follows another one.
SELECT pg_is_in_recovery()

-- name: replica_lag
-- The delay of a replica, or null if the replica cannot determine it. No row on a primary.
SELECT CASE
    WHEN EXISTS (SELECT FROM pg_stat_wal_receiver) AND pg_last_wal_receive_lsn() = pg_last_wal_replay_lsn()
    THEN interval '0'
    ELSE clock_timestamp() - pg_last_xact_replay_timestamp()
END
WHERE pg_is_in_recovery()

-- name: database_size
-- The size of the whole database in bytes.
SELECT pg_database_size(current_database())

-- name: table_sizes
-- The size of each of these tables in bytes, with TOAST, the size of its indexes, and an estimate of its rows. The
-- estimate is the density at the last ANALYZE times the present number of pages, or null before the first ANALYZE.
SELECT named.name, pg_table_size(c.oid), pg_indexes_size(c.oid),
    CASE WHEN c.relpages > 0 AND c.reltuples >= 0 THEN (
        c.reltuples / c.relpages * pg_relation_size(c.oid) / current_setting('block_size')::integer)::bigint END
FROM unnest(%(names)s::text[]) AS named (name)
JOIN pg_namespace AS n ON n.nspname = split_part(named.name, '.', 1)
JOIN pg_class AS c ON c.relnamespace = n.oid AND c.relname = split_part(named.name, '.', 2)
ORDER BY named.name

-- name: index_exists
-- Returns whether an index exists and is complete.
SELECT coalesce((SELECT i.indisvalid FROM pg_index AS i WHERE i.indexrelid = to_regclass(%(index)s)), false)

-- name: count_cards
-- The number of cards of the project: all, the expired ones and the deleted ones.
SELECT count(*),
    count(*) FILTER (WHERE {lapsed}),
    count(*) FILTER (WHERE c.deleted_at IS NOT NULL)
FROM public.cards AS c
WHERE c.tenant_id = %(project_id)s

-- name: count_boxes
-- The number of boxes of the project.
SELECT count(*) FROM public.card_boxes AS b WHERE b.tenant_id = %(project_id)s

-- name: count_some_cards
-- The number of cards of the project up to a limit. The order keeps the planner on an index.
SELECT count(*)
FROM (
    SELECT 1 FROM public.cards AS c WHERE c.tenant_id = %(project_id)s ORDER BY c.card_id LIMIT %(limit)s
) AS found

-- name: count_some_boxes
-- The number of boxes of the project, counted in the same way.
SELECT count(*)
FROM (
    SELECT 1 FROM public.card_boxes AS b WHERE b.tenant_id = %(project_id)s ORDER BY b.box_id LIMIT %(limit)s
) AS found

-- name: plan_cards
-- The planner's estimate of the project's cards.
EXPLAIN (FORMAT json) SELECT FROM public.cards AS c WHERE c.tenant_id = %(project_id)s

-- name: plan_boxes
-- The planner's estimate of the project's boxes.
EXPLAIN (FORMAT json) SELECT FROM public.card_boxes AS b WHERE b.tenant_id = %(project_id)s
