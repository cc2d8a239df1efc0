-- fragment: known_types
('turn', 'tool_result', 'timeout', 'stop')

-- fragment: report_types
('tool_result', 'timeout')

-- fragment: head_json
json_build_object(
    'agent_id', h.agent_id,
    'status', coalesce(h.status, 'idle'),
    'active_agent_turn_id', h.active_agent_turn_id,
    'active_channel_id', h.active_channel_id,
    'turn_epoch', coalesce(h.turn_epoch, 0),
    'active_recursion_depth', coalesce(h.active_recursion_depth, 0),
    'parent_step_id', h.parent_step_id,
    'trace_id', h.trace_id,
    'profile_box_id', h.profile_box_id,
    'context_box_id', h.context_box_id,
    'output_box_id', h.output_box_id,
    'waiting_tool_count', h.waiting_tool_count,
    'resume_deadline', {instant(h.resume_deadline)},
    'updated_at', {instant(h.updated_at)}
)::text

-- fragment: inbox_json
json_build_object(
    'inbox_id', i.inbox_id,
    'project_id', i.project_id,
    'agent_id', i.agent_id,
    'channel_id', i.channel_id,
    'message_type', i.message_type,
    'enqueue_mode', i.enqueue_mode,
    'correlation_id', i.correlation_id,
    'agent_turn_id', i.agent_turn_id,
    'turn_epoch', i.turn_epoch,
    'context_headers', i.context_headers,
    'payload', i.payload,
    'status', i.status,
    'retry_count', i.retry_count,
    'next_retry_at', {instant(i.next_retry_at)},
    'last_error', i.last_error,
    'defer_reason', i.defer_reason,
    'processed_at', {instant(i.processed_at)},
    'archived_at', {instant(i.archived_at)},
    'created_at', {instant(i.created_at)}
)::text

-- fragment: step_json
json_build_object(
    'step_id', s.step_id,
    'agent_id', s.agent_id,
    'agent_turn_id', s.agent_turn_id,
    'status', s.status,
    'trace_id', s.trace_id,
    'parent_step_id', s.parent_step_id,
    'profile_box_id', s.profile_box_id,
    'context_box_id', s.context_box_id,
    'output_box_id', s.output_box_id,
    'request_box_id', s.request_box_id,
    'tool_call_ids', s.tool_call_ids,
    'error', s.error,
    'metadata', s.metadata,
    'started_at', {instant(s.started_at)},
    'ended_at', {instant(s.ended_at)}
)::text

-- fragment: waiting_json
json_build_object(
    'agent_id', w.agent_id,
    'agent_turn_id', w.agent_turn_id,
    'turn_epoch', w.turn_epoch,
    'tool_call_id', w.tool_call_id,
    'step_id', w.step_id,
    'tool_name', w.tool_name,
    'wait_status', w.wait_status,
    'tool_result_card_id', w.tool_result_card_id,
    'created_at', {instant(w.created_at)},
    'received_at', {instant(w.received_at)},
    'applied_at', {instant(w.applied_at)}
)::text

-- fragment: edge_json
json_build_object(
    'edge_id', e.edge_id,
    'channel_id', e.channel_id,
    'primitive', e.primitive,
    'edge_phase', e.edge_phase,
    'source_agent_id', e.source_agent_id,
    'source_agent_turn_id', e.source_agent_turn_id,
    'source_step_id', e.source_step_id,
    'target_agent_id', e.target_agent_id,
    'target_agent_turn_id', e.target_agent_turn_id,
    'correlation_id', e.correlation_id,
    'enqueue_mode', e.enqueue_mode,
    'recursion_depth', e.recursion_depth,
    'trace_id', e.trace_id,
    'parent_step_id', e.parent_step_id,
    'metadata', e.metadata,
    'created_at', {instant(e.created_at)}
)::text

-- fragment: lease_json
json_build_object(
    'inbox_id', l.inbox_id,
    'agent_id', l.agent_id,
    'agent_turn_id', l.agent_turn_id,
    'turn_epoch', l.turn_epoch,
    'owner', l.owner,
    'claimed_at', {instant(l.claimed_at)},
    'heartbeat_at', {instant(l.heartbeat_at)},
    'expires_at', {instant(l.expires_at)}
)::text

-- fragment: record_json
json_build_object(
    'agent_turn_id', t.agent_turn_id,
    'agent_id', t.agent_id,
    'output_start', t.output_start,
    'report_to', CASE
        WHEN jsonb_typeof(t.report_to) = 'object'
            AND NOT jsonb_path_exists(t.report_to, 'strict $.* ? (@.type() != "string")')
        THEN t.report_to END,
    'end_status', t.end_status,
    'end_epoch', t.end_epoch,
    'deliverable_card_id', t.deliverable_card_id,
    'error_code', t.error_code,
    'error', t.error,
    'created_at', {instant(t.created_at)},
    'ended_at', {instant(t.ended_at)}
)::text

-- fragment: worker_json
json_build_object(
    'worker_id', w.worker_id,
    'project_id', w.project_id,
    'worker_target', w.worker_target,
    'host', w.host,
    'pid', w.pid,
    'concurrency', w.concurrency,
    'started_at', {instant(w.started_at)},
    'heartbeat_at', {instant(w.heartbeat_at)},
    'expires_at', {instant(w.expires_at)},
    'live', w.expires_at > {now},
    'last_error', w.last_error,
    'last_error_at', {instant(w.last_error_at)}
)::text
