-- What an existing deployment has beside the tables of `library.sql`, written from section 1 of the interop facts
-- (protocol v1r4): types, defaults, keys, unique and partial indexes and CHECKs as they are stated there. Where the
-- facts state no default there is none: whoever writes such a row must name the value. Left out are the tables
-- that no turn needs, whose columns the facts do not tell (skills, artifacts, sandboxes, logs).

CREATE TABLE public.projects (
    project_id text PRIMARY KEY,
    title      text NOT NULL,
    status     text NOT NULL DEFAULT 'active' CHECK (status IN ('active', 'inactive', 'archived')),
    owner_id   text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX idx_projects_owner_id ON public.projects (owner_id);
GRANT SELECT, INSERT, UPDATE, DELETE ON public.projects TO PUBLIC;

CREATE SCHEMA application;
CREATE SCHEMA resource;
CREATE SCHEMA state;

CREATE TABLE resource.project_agents (
    project_id     text NOT NULL,
    agent_id       text NOT NULL,
    profile_box_id uuid NOT NULL,
    worker_target  text NOT NULL,
    tags           jsonb NOT NULL DEFAULT '[]',
    display_name   text,
    owner_agent_id text,
    status         text NOT NULL DEFAULT 'active',
    metadata       jsonb NOT NULL DEFAULT '{}',
    created_at     timestamptz DEFAULT now(),
    last_seen_at   timestamptz,
    PRIMARY KEY (project_id, agent_id)
);

CREATE TABLE resource.profiles (
    project_id             text NOT NULL,
    profile_box_id         text NOT NULL,
    name                   text NOT NULL,
    worker_target          text NOT NULL,
    tags                   jsonb NOT NULL DEFAULT '[]',
    system_prompt_compiled text,
    updated_at             timestamptz DEFAULT now(),
    PRIMARY KEY (project_id, profile_box_id)
);
CREATE UNIQUE INDEX idx_resource_profiles_project_name ON resource.profiles (project_id, name);

CREATE TABLE resource.tools (
    project_id      text NOT NULL,
    tool_name       text NOT NULL,
    description     text,
    parameters      jsonb NOT NULL DEFAULT '{}',
    target_subject  text,
    after_execution text,
    options         jsonb NOT NULL DEFAULT '{}',
    PRIMARY KEY (project_id, tool_name)
);

CREATE TABLE state.agent_state_head (
    project_id               text NOT NULL,
    agent_id                 text NOT NULL,
    status                   text DEFAULT 'idle',
    active_agent_turn_id     text,
    active_channel_id        text,
    turn_epoch               bigint DEFAULT 0,
    active_recursion_depth   integer DEFAULT 0,
    updated_at               timestamptz DEFAULT now(),
    parent_step_id           text,
    trace_id                 text,
    profile_box_id           uuid,
    context_box_id           uuid,
    output_box_id            uuid,
    expecting_correlation_id text,
    waiting_tool_count       integer NOT NULL DEFAULT 0,
    resume_deadline          timestamptz,
    PRIMARY KEY (project_id, agent_id)
);
CREATE INDEX idx_agent_head_status_updated ON state.agent_state_head (status, updated_at);
CREATE INDEX idx_agent_head_suspended_waiting ON state.agent_state_head (project_id, agent_id, updated_at DESC)
    WHERE status = 'suspended' AND waiting_tool_count > 0;

CREATE TABLE state.agent_state_pointers (
    project_id            text NOT NULL,
    agent_id              text NOT NULL,
    memory_context_box_id uuid,
    last_output_box_id    uuid,
    updated_at            timestamptz DEFAULT now(),
    PRIMARY KEY (project_id, agent_id)
);

CREATE TABLE state.agent_inbox (
    inbox_id        text PRIMARY KEY,
    project_id      text NOT NULL,
    agent_id        text NOT NULL,
    channel_id      text NOT NULL DEFAULT 'public',
    message_type    text NOT NULL,
    enqueue_mode    text,
    correlation_id  text,
    agent_turn_id   text,
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
    created_at      timestamptz DEFAULT now()
);
CREATE INDEX idx_agent_inbox_agent_created ON state.agent_inbox (project_id, agent_id, created_at DESC);
CREATE INDEX idx_agent_inbox_pending ON state.agent_inbox (project_id, agent_id, created_at DESC)
    WHERE status = 'pending';
CREATE INDEX idx_agent_inbox_due ON state.agent_inbox (project_id, agent_id, status, next_retry_at, created_at)
    WHERE status IN ('pending', 'deferred');
CREATE INDEX idx_agent_inbox_queued_turn ON state.agent_inbox (project_id, agent_id, created_at)
    WHERE status = 'queued' AND message_type = 'turn';
CREATE INDEX idx_agent_inbox_pending_created ON state.agent_inbox (created_at) WHERE status = 'pending';
CREATE INDEX idx_agent_inbox_correlation ON state.agent_inbox USING hash (correlation_id);
CREATE UNIQUE INDEX idx_agent_inbox_unique ON state.agent_inbox (project_id, message_type, md5(correlation_id));

CREATE TABLE state.execution_edges (
    edge_id              text PRIMARY KEY,
    project_id           text NOT NULL,
    channel_id           text,
    primitive            text NOT NULL,
    edge_phase           text NOT NULL,
    source_agent_id      text,
    source_agent_turn_id text,
    source_step_id       text,
    target_agent_id      text,
    target_agent_turn_id text,
    correlation_id       text,
    enqueue_mode         text,
    recursion_depth      integer NOT NULL CHECK (recursion_depth >= 0),
    trace_id             text,
    parent_step_id       text,
    metadata             jsonb NOT NULL DEFAULT '{}',
    created_at           timestamptz DEFAULT now()
);
CREATE INDEX idx_execution_edges_correlation ON state.execution_edges USING hash (correlation_id);
CREATE INDEX idx_execution_edges_trace ON state.execution_edges (project_id, trace_id);
CREATE UNIQUE INDEX idx_execution_edges_unique
    ON state.execution_edges (project_id, md5(correlation_id), primitive, edge_phase);

CREATE TABLE state.identity_edges (
    edge_id         text PRIMARY KEY,
    project_id      text NOT NULL,
    channel_id      text,
    action          text NOT NULL,
    source_agent_id text,
    target_agent_id text NOT NULL,
    trace_id        text,
    parent_step_id  text,
    metadata        jsonb NOT NULL DEFAULT '{}',
    created_at      timestamptz DEFAULT now()
);

CREATE TABLE state.agent_steps (
    project_id     text NOT NULL,
    agent_id       text NOT NULL,
    step_id        text NOT NULL,
    agent_turn_id  text NOT NULL,
    channel_id     text,
    parent_step_id text,
    trace_id       text,
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
CREATE INDEX idx_agent_steps_turn ON state.agent_steps (agent_turn_id);
CREATE INDEX idx_agent_steps_status ON state.agent_steps (status);
CREATE INDEX idx_agent_steps_channel ON state.agent_steps (channel_id);
CREATE INDEX idx_agent_steps_trace ON state.agent_steps (trace_id);
CREATE INDEX idx_agent_steps_parent ON state.agent_steps (parent_step_id);
CREATE INDEX idx_agent_steps_started ON state.agent_steps (project_id, started_at DESC, step_id DESC);

CREATE TABLE state.turn_waiting_tools (
    project_id          text NOT NULL,
    agent_id            text NOT NULL,
    agent_turn_id       text NOT NULL,
    turn_epoch          bigint NOT NULL,
    tool_call_id        text NOT NULL,
    step_id             text NOT NULL,
    tool_name           text NOT NULL,
    wait_status         text NOT NULL
        CHECK (wait_status IN ('waiting', 'received', 'applied', 'expired', 'dropped')),
    tool_result_card_id text,
    received_at         timestamptz,
    applied_at          timestamptz,
    created_at          timestamptz NOT NULL,
    updated_at          timestamptz NOT NULL,
    PRIMARY KEY (project_id, agent_id, agent_turn_id, turn_epoch, tool_call_id)
);
CREATE INDEX idx_turn_waiting_tools_turn ON state.turn_waiting_tools
    (project_id, agent_id, agent_turn_id, turn_epoch, wait_status, created_at);
CREATE INDEX idx_turn_waiting_tools_agent ON state.turn_waiting_tools
    (project_id, agent_id, wait_status, updated_at DESC);

CREATE TABLE state.pmo_batches (
    batch_id             text PRIMARY KEY,
    project_id           text NOT NULL,
    parent_agent_id      text NOT NULL,
    parent_agent_turn_id text NOT NULL,
    parent_tool_call_id  text NOT NULL,
    parent_turn_epoch    bigint NOT NULL,
    parent_channel_id    text,
    task_count           integer NOT NULL,
    status               text NOT NULL DEFAULT 'running'
        CHECK (status IN ('running', 'success', 'failed', 'timeout', 'partial')),
    deadline_at          timestamptz,
    metadata             jsonb NOT NULL,
    created_at           timestamptz,
    updated_at           timestamptz
);
CREATE INDEX idx_pmo_batches_running ON state.pmo_batches (status, deadline_at) WHERE status = 'running';
CREATE INDEX idx_pmo_batches_project ON state.pmo_batches (project_id, created_at DESC);

CREATE TABLE state.pmo_batch_tasks (
    batch_task_id         text PRIMARY KEY,
    batch_id              text REFERENCES state.pmo_batches ON DELETE CASCADE,
    project_id            text NOT NULL,
    agent_id              text NOT NULL,
    status                text NOT NULL DEFAULT 'pending'
        CHECK (status IN ('pending', 'dispatched', 'success', 'failed', 'canceled', 'timeout', 'partial')),
    retryable             boolean NOT NULL DEFAULT true,
    next_retry_at         timestamptz NOT NULL DEFAULT now(),
    attempt_count         integer NOT NULL DEFAULT 0,
    current_agent_turn_id text,
    current_turn_epoch    bigint,
    payload_hash          text,
    profile_box_id        uuid,
    context_box_id        uuid,
    output_box_id         uuid,
    error_box_id          uuid,
    error_detail          text,
    metadata              jsonb NOT NULL,
    created_at            timestamptz,
    updated_at            timestamptz
);
CREATE INDEX idx_pmo_batch_tasks_batch ON state.pmo_batch_tasks (batch_id, status);
CREATE INDEX idx_pmo_batch_tasks_pending ON state.pmo_batch_tasks (status, created_at) WHERE status = 'pending';
CREATE INDEX idx_pmo_batch_tasks_due ON state.pmo_batch_tasks (status, retryable, next_retry_at, created_at)
    WHERE status = 'pending' AND retryable;
CREATE INDEX idx_pmo_batch_tasks_project ON state.pmo_batch_tasks (project_id, batch_id);
