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
