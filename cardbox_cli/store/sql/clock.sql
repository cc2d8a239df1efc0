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
