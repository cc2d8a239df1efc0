-- name: limit_pause
-- How long a transaction may lie idle: this one once, or every one of the session.
SELECT set_config('idle_in_transaction_session_timeout',
    ceil(extract(epoch FROM %(pause)s::interval) * 1000)::bigint::text, %(once)s)

-- name: limit_statement
-- How long a statement may take: each of this transaction, or of the session.
SELECT set_config('statement_timeout',
    ceil(extract(epoch FROM %(longest)s::interval) * 1000)::bigint::text, %(once)s)

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

-- name: our_role
-- Whose rights this session has.
SELECT current_user

-- name: login_role
-- Who logged in here, whatever role was set since.
SELECT session_user

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

-- name: give_way
-- Writers queue up behind who waits for a table; and no deadlock lasts until Postgres ends one of its parties.
SELECT set_config('lock_timeout', '200ms', true)

-- name: lock_import
-- One import into a project at a time, until the end of the transaction: two would deadlock on common cards.
SELECT pg_advisory_xact_lock(hashtext('cbx import'), hashtext(%(project_id)s))

-- name: unique_tool_results
-- Whether this database allows one tool result per tool-call id only, as card-box libraries do.
SELECT to_regclass('public.uniq_cards_tool_result_call') IS NOT NULL

-- name: keep_plans
-- What is prepared is planned once, whatever its parameters are.
SET plan_cache_mode = 'force_generic_plan'

-- name: only_read
-- Every transaction of the session can only read, unless it says otherwise.
SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY
