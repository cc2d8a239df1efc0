-- fragment: known_types
('turn', 'tool_result', 'timeout', 'stop')

-- fragment: report_types
('tool_result', 'timeout')

-- fragment: head_json
-- Other programs leave these null in the head of an agent that was never at a turn.
json_build_object({fields:Head h},
    'status', coalesce(h.status, 'idle'),
    'turn_epoch', coalesce(h.turn_epoch, 0),
    'active_recursion_depth', coalesce(h.active_recursion_depth, 0)
)::text

-- fragment: inbox_json
json_build_object({fields:InboxRow i})::text

-- fragment: step_json
json_build_object({fields:Step s})::text

-- fragment: waiting_json
json_build_object({fields:WaitingTool w})::text

-- fragment: edge_json
json_build_object({fields:Edge e})::text

-- fragment: lease_json
json_build_object({fields:Lease l})::text

-- fragment: record_json
json_build_object({fields:TurnRecord t},
    'report_to', CASE
        WHEN jsonb_typeof(t.report_to) = 'object'
            AND NOT jsonb_path_exists(t.report_to, 'strict $.* ? (@.type() != "string")')
        THEN t.report_to END
)::text

-- fragment: workers
cbx.workers AS w
    CROSS JOIN LATERAL (
        SELECT to_jsonb(w) ->> 'last_error' AS last_error,
            (to_jsonb(w) ->> 'last_error_at')::timestamptz AS last_error_at) AS e

-- fragment: worker_json
json_build_object({fields:WorkerEntry w},
    'live', w.expires_at > {now},
    'last_error', e.last_error,
    'last_error_at', {instant(e.last_error_at)}
)::text
