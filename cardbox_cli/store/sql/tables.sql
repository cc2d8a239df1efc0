-- fragment: named_tables
-- By the index of their names, whatever else is in the database. (to_regclass would fail in a schema that is closed.)
pg_catalog.unnest(%(names)s::pg_catalog.text[]) AS named (name)
    JOIN pg_catalog.pg_class AS c
        ON c.relname OPERATOR(pg_catalog.=) pg_catalog.split_part(named.name, '.', 2)::pg_catalog.name
    JOIN pg_catalog.pg_namespace AS n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace
        AND n.nspname OPERATOR(pg_catalog.=) pg_catalog.split_part(named.name, '.', 1)::pg_catalog.name

-- name: existing_tables
-- Which of these tables exist and may be read.
-- The first statement of a connection: from now on names without a schema are Postgres' own, and no function or
-- operator that somebody made in `public`, or in a schema called after our role, is taken for one of these. Here
-- they are named in full. Behind a pooler the connection is not ours alone, and stays as it is.
WITH ours AS MATERIALIZED (
    SELECT pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', false)
    WHERE pg_catalog.pg_backend_pid() OPERATOR(pg_catalog.=) %(process)s::pg_catalog.int4
)
SELECT named.name
FROM {named_tables}
LEFT JOIN ours ON true
WHERE pg_catalog.has_schema_privilege(n.oid, 'USAGE') AND pg_catalog.has_table_privilege(c.oid, 'SELECT')

-- name: closed_tables
-- Which of these tables exist and may not be read.
SELECT named.name
FROM {named_tables}
WHERE NOT (has_schema_privilege(n.oid, 'USAGE') AND has_table_privilege(c.oid, 'SELECT'))

-- name: table_makers
-- Those of these tables that exist, and whether cbx made them: only cbx declares that a project sorts by code point.
SELECT n.nspname || '.' || c.relname, n.nspname = 'cbx' OR EXISTS (
    SELECT FROM pg_attribute AS a
    WHERE a.attrelid = c.oid AND a.attname IN ('project_id', 'tenant_id')
        AND a.attcollation = 'pg_catalog."C"'::regcollation)
FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE n.nspname || '.' || c.relname = ANY(%(names)s)

-- name: built_indexes
-- Those of these indexes that there are, and whether each is whole: not if its building was interrupted.
SELECT named.name, i.indisvalid
FROM unnest(%(names)s::text[]) AS named (name)
JOIN pg_index AS i ON i.indexrelid = to_regclass(named.name)

-- name: schema_version
-- The version that this database was brought to.
SELECT max(version) FROM cbx.schema_version

-- name: try_lock_schema
-- One maker of tables at a time, until the end of the transaction.
SELECT pg_try_advisory_xact_lock(hashtext('cbx'), hashtext('schema'))

-- name: try_hold_schema
-- The same lock for several transactions.
SELECT pg_try_advisory_lock(hashtext('cbx'), hashtext('schema'))

-- name: release_schema
-- Its end.
SELECT pg_advisory_unlock(hashtext('cbx'), hashtext('schema'))

-- name: unique_tool_results
-- Whether this database allows one tool result per tool-call id only, as card-box libraries do.
SELECT to_regclass('public.uniq_cards_tool_result_call') IS NOT NULL

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
