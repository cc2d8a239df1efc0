-- name: clock
-- The time by which rows are stamped.
SELECT {now}

-- name: limit_pause
-- How long a transaction may lie idle: this one once, or every one of the session.
SELECT set_config('idle_in_transaction_session_timeout',
    ceil(extract(epoch FROM %(pause)s::interval) * 1000)::bigint::text, %(once)s)

-- name: existing_tables
-- Which of these tables exist and may be read. (to_regclass would fail in a schema that is closed to us.)
SELECT n.nspname || '.' || c.relname
FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE n.nspname || '.' || c.relname = ANY(%(names)s)
    AND has_schema_privilege(n.oid, 'USAGE') AND has_table_privilege(c.oid, 'SELECT')

-- name: own_tables
-- The tables of cards and boxes that cbx made: those of a card-box library lack these indexes.
SELECT i.schemaname || '.' || i.tablename
FROM pg_indexes AS i
WHERE i.schemaname = 'public' AND i.indexname IN ('idx_cards_suffix', 'idx_boxes_updated')

-- name: schema_version
-- The version that this database was brought to.
SELECT max(version) FROM cbx.schema_version

-- name: record_schema_version
-- Written by an upgrade.
INSERT INTO cbx.schema_version (version) VALUES (%(version)s) ON CONFLICT DO NOTHING

-- name: lock_schema
-- One maker of tables at a time, until the end of the transaction.
SELECT pg_advisory_xact_lock(hashtext('cbx'), hashtext('schema'))

-- name: lock_import
-- One import into a project at a time, until the end of the transaction: two would deadlock on common cards.
SELECT pg_advisory_xact_lock(hashtext('cbx import'), hashtext(%(project_id)s))

-- name: unique_tool_results
-- Whether this database allows one tool result per tool-call id only, as card-box libraries do.
SELECT to_regclass('public.uniq_cards_tool_result_call') IS NOT NULL

-- name: keep_plans
-- What is prepared is planned once, whatever its parameters are.
SET plan_cache_mode = 'force_generic_plan'
