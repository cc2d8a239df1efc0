-- name: distributed_tables
-- Those of these tables that the extension has, and whether they are spread over shards, not copied to every node.
SELECT n.nspname || '.' || c.relname, p.partmethod = 'h'
FROM pg_catalog.pg_dist_partition AS p
JOIN pg_class AS c ON c.oid = p.logicalrelid::oid
JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE n.nspname || '.' || c.relname = ANY(%(names)s)

-- name: distributed_sizes
-- Each of these tables, which are spread over shards: bytes of its rows and of its indexes on all nodes.
SELECT named.name, citus_table_size(to_regclass(named.name)),
    citus_total_relation_size(to_regclass(named.name)) - citus_table_size(to_regclass(named.name))
FROM unnest(%(names)s::text[]) AS named (name)
ORDER BY named.name

-- name: shards_and_nodes
-- Over how many shards a table is spread, and how many nodes hold them.
SELECT count(DISTINCT s.shardid), count(DISTINCT p.groupid)
FROM pg_catalog.pg_dist_shard AS s
JOIN pg_catalog.pg_dist_placement AS p ON p.shardid = s.shardid
WHERE s.logicalrelid = to_regclass(%(table)s)

-- name: change_shards_one_by_one
-- What changes tables in this transaction reaches their shards over one connection to each node.
SELECT set_config('citus.multi_shard_modify_mode', 'sequential', true)
