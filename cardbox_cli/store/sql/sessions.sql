-- fragment: now
-- The time of the transaction, which is the time of all rows that it writes.
%(now)s::timestamptz

-- fragment: moment
-- The time when the query is sent.
%(moment)s::timestamptz

-- fragment: later
-- The time of the transaction plus the parameter `delay`, or null without a delay.
%(later)s::timestamptz

-- fragment: clock_offset
-- The offset of the database's clock, for a session that runs at another time than the present.
coalesce(nullif(current_setting('cbx.clock_offset', true), ''), '0')::interval

-- fragment: server_now
(now() + {clock_offset})

-- fragment: server_moment
(clock_timestamp() + {clock_offset})

-- fragment: server_later
(now() + {clock_offset} + %(delay)s::interval)

-- name: clock
-- The time at which the transaction began.
SELECT now() + {clock_offset}

-- name: started_at
-- The time at which the server started.
SELECT pg_postmaster_start_time()

-- name: moment
-- The current time, which advances within a transaction.
SELECT clock_timestamp() + {clock_offset}

-- name: limit_pause
-- Limits how long a transaction may be idle: this one, or every one of the session.
SELECT set_config('idle_in_transaction_session_timeout',
    ceil(extract(epoch FROM %(pause)s::interval) * 1000)::bigint::text, %(once)s)

-- name: limit_statement
-- Limits how long a statement may take: each one of this transaction, or of the session.
SELECT set_config('statement_timeout',
    ceil(extract(epoch FROM %(longest)s::interval) * 1000)::bigint::text, %(once)s)

-- name: give_up_after
-- Limits how long each later statement of this transaction may take.
SELECT set_config('statement_timeout', %(limit)s, true)

-- name: give_way
-- Limits the wait for a lock. Writers queue up behind a statement that waits for a table, and a deadlock lasts until
-- Postgres cancels one of the statements.
SELECT set_config('lock_timeout', '200ms', true)

-- name: our_role
-- The role whose rights this session has.
SELECT current_user

-- name: login_role
-- The role that logged in, which SET ROLE does not change.
SELECT session_user

-- name: keep_plans
-- Plans each prepared statement once, for any parameters.
SET plan_cache_mode = 'force_generic_plan'

-- name: only_read
-- Makes every transaction of the session read-only by default.
SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY

-- name: notify
-- Sends each payload once. The statement is a transaction of its own and does not wait for the disk, because a lost
-- notification does no harm.
SELECT set_config('synchronous_commit', 'off', true), pg_notify('cbx_wakeup', payload)
FROM unnest(%(payloads)s::text[]) AS payload

-- name: listen
-- Listens for notifications.
LISTEN cbx_wakeup

-- name: serving_process
-- The process that runs this statement. Behind a pooler it is not the process that the client connected to.
SELECT pg_backend_pid()
