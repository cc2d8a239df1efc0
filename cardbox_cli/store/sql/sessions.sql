-- fragment: now
-- The time of the transaction, which stamps what is written.
%(now)s::timestamptz

-- fragment: moment
-- The time at which the query is sent.
%(moment)s::timestamptz

-- fragment: later
-- The time of the transaction and the parameter `delay` more; null without one.
%(later)s::timestamptz

-- fragment: clock_offset
-- What the database's clock is moved by, where somebody looks at another time than the present one.
coalesce(nullif(current_setting('cbx.clock_offset', true), ''), '0')::interval

-- fragment: server_now
(now() + {clock_offset})

-- fragment: server_moment
(clock_timestamp() + {clock_offset})

-- fragment: server_later
(now() + {clock_offset} + %(delay)s::interval)

-- name: clock
-- The time by which rows are stamped: that of the transaction's begin.
SELECT now() + {clock_offset}

-- name: moment
-- The time now, which goes on within a transaction.
SELECT clock_timestamp() + {clock_offset}

-- name: limit_pause
-- How long a transaction may lie idle: this one once, or every one of the session.
SELECT set_config('idle_in_transaction_session_timeout',
    ceil(extract(epoch FROM %(pause)s::interval) * 1000)::bigint::text, %(once)s)

-- name: limit_statement
-- How long a statement may take: each of this transaction, or of the session.
SELECT set_config('statement_timeout',
    ceil(extract(epoch FROM %(longest)s::interval) * 1000)::bigint::text, %(once)s)

-- name: give_up_after
-- No later statement of this transaction runs longer.
SELECT set_config('statement_timeout', %(limit)s, true)

-- name: give_way
-- Writers queue up behind who waits for a table; and no deadlock lasts until Postgres ends one of its parties.
SELECT set_config('lock_timeout', '200ms', true)

-- name: our_role
-- Whose rights this session has.
SELECT current_user

-- name: login_role
-- Who logged in here, whatever role was set since.
SELECT session_user

-- name: keep_plans
-- What is prepared is planned once, whatever its parameters are.
SET plan_cache_mode = 'force_generic_plan'

-- name: only_read
-- Every transaction of the session can only read, unless it says otherwise.
SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY

-- name: notify
-- A statement that is a transaction of its own, and does not wait for the disk: a lost notification is no loss.
-- Each payload goes out once.
SELECT set_config('synchronous_commit', 'off', true), pg_notify('cbx_wakeup', payload)
FROM unnest(%(payloads)s::text[]) AS payload

-- name: listen
LISTEN cbx_wakeup

-- name: serving_process
-- The process that runs this statement. Behind a pooler it is another one than the client was told.
SELECT pg_backend_pid()
