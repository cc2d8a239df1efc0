-- fragment: worker_json
json_build_object({fields:WorkerEntry w},
    'live', w.expires_at > {now},
    'last_error', w.last_error,
    'last_error_at', {instant(w.last_error_at)}
)::text

-- name: announce_worker
-- Records that a worker is alive, and until when it counts as alive.
INSERT INTO cbx.workers AS w
    (worker_id, project_id, worker_target, host, pid, concurrency, started_at, heartbeat_at, expires_at)
VALUES (%(worker_id)s, %(served_project_id)s, %(worker_target)s, %(host)s, %(pid)s, %(concurrency)s, {now}, {now},
    {now} + %(lease)s::interval)
ON CONFLICT (worker_id) DO UPDATE SET heartbeat_at = excluded.heartbeat_at, expires_at = excluded.expires_at

-- name: note_worker_error
-- Records why a worker cannot work, and since when. Null means that it can work.
UPDATE cbx.workers AS w SET last_error = %(error)s, last_error_at = %(now)s::timestamptz
WHERE w.worker_id = %(worker_id)s

-- name: dismiss_worker
-- Deletes a worker that leaves.
DELETE FROM cbx.workers AS w WHERE w.worker_id = %(worker_id)s

-- name: forget_dead_workers
-- Deletes workers that have not announced themselves for a day.
DELETE FROM cbx.workers AS w WHERE w.expires_at < {now} - interval '1 day'

-- name: workers
-- The workers that serve this project, or all projects; only those of one target if it is named.
SELECT {worker_json}
FROM cbx.workers AS w
WHERE (w.project_id = %(project_id)s OR w.project_id IS NULL)
    AND (%(target)s::text IS NULL OR w.worker_target = %(target)s)
ORDER BY w.worker_target, w.started_at, w.worker_id
