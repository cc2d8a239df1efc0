-- What running turns needs.

-- makes: resource.project_agents
CREATE TABLE IF NOT EXISTS resource.project_agents (
    project_id     text COLLATE "C" NOT NULL,
    agent_id       text COLLATE "C" NOT NULL,
    profile_box_id uuid NOT NULL,
    worker_target  text NOT NULL,
    tags           jsonb NOT NULL DEFAULT '[]',
    display_name   text,
    owner_agent_id text COLLATE "C",
    status         text NOT NULL DEFAULT 'active',
    metadata       jsonb NOT NULL DEFAULT '{}',
    created_at     timestamptz DEFAULT now(),
    last_seen_at   timestamptz,
    PRIMARY KEY (project_id, agent_id)
);
-- Who may have work for a target, in the order in which a claim asks them.
CREATE INDEX IF NOT EXISTS idx_agents_target ON resource.project_agents (project_id, worker_target, agent_id);

-- makes: resource.tools
-- options of cbx: {exec, timeout_seconds}. What has no exec waits for a report.
CREATE TABLE IF NOT EXISTS resource.tools (
    project_id      text COLLATE "C" NOT NULL,
    tool_name       text COLLATE "C" NOT NULL,
    description     text,
    parameters      jsonb NOT NULL DEFAULT '{}',
    target_subject  text,
    after_execution text,
    options         jsonb NOT NULL DEFAULT '{}',
    PRIMARY KEY (project_id, tool_name)
);

-- makes: state.agent_state_head
CREATE SCHEMA IF NOT EXISTS state;
CREATE TABLE IF NOT EXISTS state.agent_state_head (
    project_id               text COLLATE "C" NOT NULL,
    agent_id                 text COLLATE "C" NOT NULL,
    status                   text DEFAULT 'idle',
    active_agent_turn_id     text COLLATE "C",
    active_channel_id        text,
    turn_epoch               bigint DEFAULT 0,
    active_recursion_depth   integer DEFAULT 0,
    updated_at               timestamptz DEFAULT now(),
    parent_step_id           text COLLATE "C",
    trace_id                 text COLLATE "C",
    profile_box_id           uuid,
    context_box_id           uuid,
    output_box_id            uuid,
    expecting_correlation_id text,
    waiting_tool_count       integer NOT NULL DEFAULT 0,
    resume_deadline          timestamptz,
    PRIMARY KEY (project_id, agent_id)
);
-- Few agents are active at a time: this finds them among all.
CREATE INDEX IF NOT EXISTS idx_head_active ON state.agent_state_head (project_id, status) WHERE status <> 'idle';

-- makes: state.agent_state_pointers
CREATE TABLE IF NOT EXISTS state.agent_state_pointers (
    project_id            text COLLATE "C" NOT NULL,
    agent_id              text COLLATE "C" NOT NULL,
    memory_context_box_id uuid,
    last_output_box_id    uuid,
    updated_at            timestamptz DEFAULT now(),
    PRIMARY KEY (project_id, agent_id)
);

-- makes: state.agent_inbox
CREATE TABLE IF NOT EXISTS state.agent_inbox (
    project_id      text COLLATE "C" NOT NULL,
    inbox_id        text COLLATE "C" NOT NULL,
    agent_id        text COLLATE "C" NOT NULL,
    channel_id      text NOT NULL DEFAULT 'public',
    message_type    text NOT NULL,
    enqueue_mode    text,
    correlation_id  text COLLATE "C",
    agent_turn_id   text COLLATE "C",
    turn_epoch      bigint NOT NULL DEFAULT 0,
    context_headers jsonb NOT NULL DEFAULT '{}',
    payload         jsonb NOT NULL DEFAULT '{}',
    status          text NOT NULL DEFAULT 'pending',
    retry_count     integer NOT NULL DEFAULT 0,
    next_retry_at   timestamptz NOT NULL DEFAULT now(),
    last_error      text,
    defer_reason    text,
    processed_at    timestamptz,
    archived_at     timestamptz,
    created_at      timestamptz DEFAULT now(),
    PRIMARY KEY (project_id, inbox_id)
);
CREATE UNIQUE INDEX IF NOT EXISTS idx_agent_inbox_unique ON state.agent_inbox
    (project_id, message_type, md5(correlation_id));
-- What a claim reads: as long as it is short, claims stay fast however much is finished.
CREATE INDEX IF NOT EXISTS idx_inbox_due ON state.agent_inbox (project_id, next_retry_at, created_at, inbox_id)
    WHERE status IN ('pending', 'deferred');
-- What an agent still has before it.
CREATE INDEX IF NOT EXISTS idx_inbox_open ON state.agent_inbox
    (project_id, agent_id, status, created_at, inbox_id)
    WHERE status IN ('queued', 'pending', 'deferred', 'processing');
CREATE INDEX IF NOT EXISTS idx_inbox_dead ON state.agent_inbox (project_id, created_at, inbox_id)
    WHERE status = 'error';
CREATE INDEX IF NOT EXISTS idx_inbox_turn ON state.agent_inbox (project_id, agent_turn_id);
CREATE INDEX IF NOT EXISTS idx_inbox_created ON state.agent_inbox (project_id, created_at, inbox_id);

-- makes: state.execution_edges
CREATE TABLE IF NOT EXISTS state.execution_edges (
    project_id           text COLLATE "C" NOT NULL,
    edge_id              text COLLATE "C" NOT NULL,
    channel_id           text,
    primitive            text NOT NULL,
    edge_phase           text NOT NULL,
    source_agent_id      text COLLATE "C",
    source_agent_turn_id text COLLATE "C",
    source_step_id       text COLLATE "C",
    target_agent_id      text COLLATE "C",
    target_agent_turn_id text COLLATE "C",
    correlation_id       text COLLATE "C",
    enqueue_mode         text,
    recursion_depth      integer NOT NULL CHECK (recursion_depth >= 0),
    trace_id             text COLLATE "C",
    parent_step_id       text COLLATE "C",
    metadata             jsonb NOT NULL DEFAULT '{}',
    created_at           timestamptz DEFAULT now(),
    PRIMARY KEY (project_id, edge_id)
);
CREATE UNIQUE INDEX IF NOT EXISTS idx_execution_edges_unique ON state.execution_edges
    (project_id, md5(correlation_id), primitive, edge_phase);
CREATE INDEX IF NOT EXISTS idx_execution_edges_trace ON state.execution_edges (project_id, trace_id);
CREATE INDEX IF NOT EXISTS idx_edges_target_turn ON state.execution_edges (project_id, target_agent_turn_id);
CREATE INDEX IF NOT EXISTS idx_edges_source_turn ON state.execution_edges (project_id, source_agent_turn_id);

-- makes: state.identity_edges
CREATE TABLE IF NOT EXISTS state.identity_edges (
    project_id      text COLLATE "C" NOT NULL,
    edge_id         text COLLATE "C" NOT NULL,
    channel_id      text,
    action          text NOT NULL,
    source_agent_id text COLLATE "C",
    target_agent_id text COLLATE "C" NOT NULL,
    trace_id        text COLLATE "C",
    parent_step_id  text COLLATE "C",
    metadata        jsonb NOT NULL DEFAULT '{}',
    created_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (project_id, edge_id)
);
CREATE INDEX IF NOT EXISTS idx_identity_edges_target ON state.identity_edges
    (project_id, target_agent_id, created_at);

-- makes: state.agent_steps
CREATE TABLE IF NOT EXISTS state.agent_steps (
    project_id     text COLLATE "C" NOT NULL,
    agent_id       text COLLATE "C" NOT NULL,
    step_id        text COLLATE "C" NOT NULL,
    agent_turn_id  text COLLATE "C" NOT NULL,
    channel_id     text,
    parent_step_id text COLLATE "C",
    trace_id       text COLLATE "C",
    status         text NOT NULL,
    profile_box_id uuid,
    context_box_id uuid,
    output_box_id  uuid,
    request_box_id uuid,
    api_log_id     bigint,
    tool_call_ids  jsonb,
    error          text,
    metadata       jsonb NOT NULL DEFAULT '{}',
    started_at     timestamptz DEFAULT now(),
    ended_at       timestamptz,
    PRIMARY KEY (project_id, agent_id, step_id)
);
CREATE INDEX IF NOT EXISTS idx_steps_turn ON state.agent_steps (project_id, agent_turn_id, started_at);

-- makes: state.turn_waiting_tools
CREATE TABLE IF NOT EXISTS state.turn_waiting_tools (
    project_id          text COLLATE "C" NOT NULL,
    agent_id            text COLLATE "C" NOT NULL,
    agent_turn_id       text COLLATE "C" NOT NULL,
    turn_epoch          bigint NOT NULL,
    tool_call_id        text COLLATE "C" NOT NULL,
    step_id             text COLLATE "C" NOT NULL,
    tool_name           text NOT NULL,
    wait_status         text NOT NULL
        CHECK (wait_status IN ('waiting', 'received', 'applied', 'expired', 'dropped')),
    tool_result_card_id text COLLATE "C",
    received_at         timestamptz,
    applied_at          timestamptz,
    created_at          timestamptz NOT NULL DEFAULT now(),
    updated_at          timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (project_id, agent_id, agent_turn_id, turn_epoch, tool_call_id)
);
CREATE INDEX IF NOT EXISTS idx_waiting_turn ON state.turn_waiting_tools (project_id, agent_turn_id);

-- makes: cbx.turns
-- What the tables of agents have no place for. output_start: how many cards the output box held at the lease.
-- report_to: {agent_id, agent_turn_id, tool_call_id} of the call that waits for this turn's end.
CREATE TABLE IF NOT EXISTS cbx.turns (
    project_id          text COLLATE "C" NOT NULL,
    agent_turn_id       text COLLATE "C" NOT NULL,
    agent_id            text COLLATE "C" NOT NULL,
    output_start        integer,
    report_to           jsonb,
    end_status          text CHECK (end_status IN ('success', 'failed', 'canceled', 'timeout', 'partial')),
    end_epoch           bigint,
    deliverable_card_id text COLLATE "C",
    error_code          text,
    error               text,
    created_at          timestamptz NOT NULL DEFAULT now(),
    ended_at            timestamptz,
    PRIMARY KEY (project_id, agent_turn_id)
);
-- People type the last characters of an id.
CREATE INDEX IF NOT EXISTS idx_turns_suffix ON cbx.turns (project_id, reverse(agent_turn_id));
CREATE INDEX IF NOT EXISTS idx_turns_unended ON cbx.turns (project_id, agent_turn_id) WHERE end_status IS NULL;

-- makes: cbx.leases
-- Who works on a claimed inbox row, and until when. One row for each that is 'processing', gone with the claim.
CREATE TABLE IF NOT EXISTS cbx.leases (
    project_id    text COLLATE "C" NOT NULL,
    inbox_id      text COLLATE "C" NOT NULL,
    agent_id      text COLLATE "C" NOT NULL,
    agent_turn_id text COLLATE "C",
    turn_epoch    bigint NOT NULL,
    owner         text COLLATE "C" NOT NULL,
    claimed_at    timestamptz NOT NULL,
    heartbeat_at  timestamptz NOT NULL,
    expires_at    timestamptz NOT NULL,
    PRIMARY KEY (project_id, inbox_id)
);

-- makes: cbx.workers
-- Who would serve a target. Workers are no tenant's: project_id is null for one that serves all projects.
CREATE TABLE IF NOT EXISTS cbx.workers (
    worker_id     text COLLATE "C" PRIMARY KEY,
    project_id    text COLLATE "C",
    worker_target text NOT NULL,
    host          text NOT NULL,
    pid           integer NOT NULL,
    concurrency   integer NOT NULL,
    started_at    timestamptz NOT NULL,
    heartbeat_at  timestamptz NOT NULL,
    expires_at    timestamptz NOT NULL
);

-- makes: cbx.audit
-- What was done to a turn from outside its run, by whom and why; append-only.
CREATE TABLE IF NOT EXISTS cbx.audit (
    project_id    text COLLATE "C" NOT NULL,
    audit_id      text COLLATE "C" NOT NULL,
    agent_id      text COLLATE "C" NOT NULL,
    agent_turn_id text COLLATE "C",
    action        text NOT NULL,
    actor         text NOT NULL,
    reason        text,
    epoch_before  bigint,
    epoch_after   bigint,
    detail        jsonb NOT NULL DEFAULT '{}',
    created_at    timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (project_id, audit_id)
);
CREATE INDEX IF NOT EXISTS idx_audit_turn ON cbx.audit (project_id, agent_turn_id, created_at);
