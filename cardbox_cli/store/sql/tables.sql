-- fragment: named_tables
-- Finds tables by the index of their names, which is fast in any database. to_regclass fails in a schema without USAGE.
pg_catalog.unnest(%(names)s::pg_catalog.text[]) AS named (name)
    JOIN pg_catalog.pg_class AS c
        ON c.relname OPERATOR(pg_catalog.=) pg_catalog.split_part(named.name, '.', 2)::pg_catalog.name
    JOIN pg_catalog.pg_namespace AS n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace
        AND n.nspname OPERATOR(pg_catalog.=) pg_catalog.split_part(named.name, '.', 1)::pg_catalog.name

-- name: existing_tables
-- The given tables that exist and that our role may read. This is the first statement of a connection, and qualifies
-- all names. From then on, names without a schema are those of Postgres. A function or operator of another user, in
-- `public` or in a schema with the name of our role, cannot replace them. Behind a pooler other clients share the
-- connection, so it stays unchanged.
WITH ours AS MATERIALIZED (
    SELECT pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', false)
    WHERE pg_catalog.pg_backend_pid() OPERATOR(pg_catalog.=) %(process)s::pg_catalog.int4
)
SELECT named.name
FROM {named_tables}
LEFT JOIN ours ON true
WHERE pg_catalog.has_schema_privilege(n.oid, 'USAGE') AND pg_catalog.has_table_privilege(c.oid, 'SELECT')

-- name: closed_tables
-- The given tables that exist and that our role may not read.
SELECT named.name
FROM {named_tables}
WHERE NOT (has_schema_privilege(n.oid, 'USAGE') AND has_table_privilege(c.oid, 'SELECT'))

-- name: table_makers
-- The given tables that exist, and whether cbx created them. Only cbx declares that projects sort by code point.
SELECT n.nspname || '.' || c.relname, n.nspname = 'cbx' OR EXISTS (
    SELECT FROM pg_attribute AS a
    WHERE a.attrelid = c.oid AND a.attname IN ('project_id', 'tenant_id')
        AND a.attcollation = 'pg_catalog."C"'::regcollation)
FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE n.nspname || '.' || c.relname = ANY(%(names)s)

-- name: built_indexes
-- The given indexes that exist, and whether each is complete. An interrupted build leaves an invalid index.
SELECT named.name, i.indisvalid
FROM unnest(%(names)s::text[]) AS named (name)
JOIN pg_index AS i ON i.indexrelid = to_regclass(named.name)

-- name: schema_version
-- The schema version of this database.
SELECT max(version) FROM cbx.schema_version

-- name: try_lock_schema
-- Lets one transaction at a time create tables. Returns whether it got the lock.
SELECT pg_try_advisory_xact_lock(hashtext('cbx'), hashtext('schema'))

-- name: try_hold_schema
-- Acquires the lock of `try_lock_schema` for several transactions. Returns whether it got the lock.
SELECT pg_try_advisory_lock(hashtext('cbx'), hashtext('schema'))

-- name: release_schema
-- Releases the lock of `try_hold_schema`.
SELECT pg_advisory_unlock(hashtext('cbx'), hashtext('schema'))

-- name: unique_tool_results
-- Returns whether this database allows only one tool result for each tool-call id, as card-box libraries do.
SELECT to_regclass('public.uniq_cards_tool_result_call') IS NOT NULL

-- name: distributed_tables
-- The given tables that the extension manages, and whether they are distributed over shards instead of copied to all
-- nodes.
SELECT n.nspname || '.' || c.relname, p.partmethod = 'h'
FROM pg_catalog.pg_dist_partition AS p
JOIN pg_class AS c ON c.oid = p.logicalrelid::oid
JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE n.nspname || '.' || c.relname = ANY(%(names)s)

-- name: distributed_sizes
-- The size of each of these distributed tables and of its indexes in bytes, on all nodes.
SELECT named.name, citus_table_size(to_regclass(named.name)),
    citus_total_relation_size(to_regclass(named.name)) - citus_table_size(to_regclass(named.name))
FROM unnest(%(names)s::text[]) AS named (name)
ORDER BY named.name

-- name: shards_and_nodes
-- The number of shards of a table, and of the nodes that hold them.
SELECT count(DISTINCT s.shardid), count(DISTINCT p.groupid)
FROM pg_catalog.pg_dist_shard AS s
JOIN pg_catalog.pg_dist_placement AS p ON p.shardid = s.shardid
WHERE s.logicalrelid = to_regclass(%(table)s)

-- name: change_shards_one_by_one
-- Lets changes of tables in this transaction use one connection to each node.
SELECT set_config('citus.multi_shard_modify_mode', 'sequential', true)
