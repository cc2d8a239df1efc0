-- name: existing_tables
-- Which of these tables exist.
SELECT given.name FROM unnest(%(names)s::text[]) AS given (name) WHERE to_regclass(given.name) IS NOT NULL

-- name: schema_version
-- The version that this database was brought to.
SELECT max(version) FROM cbx.schema_version

-- name: record_schema_version
-- Written by an upgrade.
INSERT INTO cbx.schema_version (version) VALUES (%(version)s) ON CONFLICT DO NOTHING

-- name: lock_schema
-- One maker of tables at a time, until the end of the transaction.
SELECT pg_advisory_xact_lock(hashtext('cbx'), hashtext('schema'))

-- name: unique_tool_results
-- Whether this database allows one tool result per tool-call id only, as card-box libraries do.
SELECT to_regclass('public.uniq_cards_tool_result_call') IS NOT NULL
