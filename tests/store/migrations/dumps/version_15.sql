-- What `cbx db init` of schema version 15 made, as pg_dump tells it.

CREATE SCHEMA cbx;

CREATE SCHEMA resource;

CREATE SCHEMA state;

CREATE FUNCTION cbx.refuse_audit_change() RETURNS trigger
    LANGUAGE plpgsql
    AS $$ BEGIN
    RAISE EXCEPTION 'cbx.audit is append-only: no %', TG_OP USING ERRCODE = 'insufficient_privilege'; END $$;

CREATE TABLE cbx.api_tokens (
    project_id text NOT NULL COLLATE pg_catalog."C",
    token_id text NOT NULL COLLATE pg_catalog."C",
    label text NOT NULL,
    token_sha256 bytea NOT NULL,
    created_by text NOT NULL,
    created_at timestamp with time zone NOT NULL,
    expires_at timestamp with time zone,
    revoked_at timestamp with time zone,
    CONSTRAINT api_tokens_token_sha256_check CHECK ((length(token_sha256) = 32))
);

CREATE TABLE cbx.audit (
    project_id text NOT NULL COLLATE pg_catalog."C",
    audit_id text NOT NULL COLLATE pg_catalog."C",
    agent_id text NOT NULL COLLATE pg_catalog."C",
    agent_turn_id text COLLATE pg_catalog."C",
    action text NOT NULL,
    actor text NOT NULL,
    reason text,
    epoch_before bigint,
    epoch_after bigint,
    detail jsonb DEFAULT '{}'::jsonb NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL
);

CREATE TABLE cbx.batch_tasks (
    project_id text NOT NULL COLLATE pg_catalog."C",
    batch_id text NOT NULL COLLATE pg_catalog."C",
    task_index integer NOT NULL,
    status text NOT NULL,
    target_strategy text NOT NULL,
    target_ref text NOT NULL,
    agent_id text NOT NULL COLLATE pg_catalog."C",
    context_box_id uuid NOT NULL,
    output_box_id uuid,
    agent_turn_id text COLLATE pg_catalog."C",
    deliverable_card_id text COLLATE pg_catalog."C",
    error_code text,
    error text,
    attempts integer DEFAULT 0 NOT NULL,
    next_try_at timestamp with time zone NOT NULL,
    stop_due boolean DEFAULT false NOT NULL,
    dispatched_at timestamp with time zone,
    ended_at timestamp with time zone,
    CONSTRAINT batch_tasks_status_check CHECK ((status = ANY (ARRAY['pending'::text, 'dispatched'::text, 'success'::text, 'failed'::text, 'canceled'::text, 'timeout'::text, 'partial'::text])))
);

CREATE TABLE cbx.batches (
    project_id text NOT NULL COLLATE pg_catalog."C",
    batch_id text NOT NULL COLLATE pg_catalog."C",
    status text NOT NULL,
    error_code text,
    error text,
    fail_fast boolean NOT NULL,
    task_count integer NOT NULL,
    request_sha256 text NOT NULL,
    source_agent_id text NOT NULL COLLATE pg_catalog."C",
    parent_turn_id text COLLATE pg_catalog."C",
    parent_step_id text COLLATE pg_catalog."C",
    parent_tool_call_id text COLLATE pg_catalog."C",
    channel_id text NOT NULL,
    recursion_depth integer NOT NULL,
    trace_id text NOT NULL COLLATE pg_catalog."C",
    deadline_at timestamp with time zone NOT NULL,
    report_due boolean DEFAULT false NOT NULL,
    join_box_id uuid,
    created_at timestamp with time zone NOT NULL,
    ended_at timestamp with time zone,
    CONSTRAINT batches_status_check CHECK ((status = ANY (ARRAY['running'::text, 'success'::text, 'failed'::text, 'timeout'::text, 'partial'::text])))
);

CREATE TABLE cbx.box_info (
    project_id text NOT NULL COLLATE pg_catalog."C",
    box_id uuid NOT NULL,
    title text,
    provenance jsonb,
    created_at timestamp with time zone DEFAULT now() NOT NULL
);

CREATE TABLE cbx.chat_contexts (
    project_id text NOT NULL COLLATE pg_catalog."C",
    chat_key text NOT NULL COLLATE pg_catalog."C",
    context_id text NOT NULL COLLATE pg_catalog."C",
    box_id uuid NOT NULL,
    title text,
    reason text,
    checkpoint_index integer,
    checkpoint_preview text,
    messages integer NOT NULL,
    search_text text NOT NULL,
    terms integer[] NOT NULL,
    layout jsonb,
    created_at timestamp with time zone NOT NULL,
    archived_at timestamp with time zone NOT NULL
);

CREATE TABLE cbx.chat_runs (
    project_id text NOT NULL COLLATE pg_catalog."C",
    chat_key text NOT NULL COLLATE pg_catalog."C",
    run_id text NOT NULL COLLATE pg_catalog."C",
    epoch bigint NOT NULL,
    owner text NOT NULL COLLATE pg_catalog."C",
    status text NOT NULL,
    "position" bigint NOT NULL,
    merged bigint NOT NULL,
    version bigint NOT NULL,
    user_card_ids jsonb NOT NULL,
    reply_card_ids jsonb DEFAULT '[]'::jsonb NOT NULL,
    answer_card_id text COLLATE pg_catalog."C",
    profile_box_id uuid NOT NULL,
    context_box_id uuid NOT NULL,
    output_box_id uuid NOT NULL,
    error_code text,
    error text,
    started_at timestamp with time zone NOT NULL,
    ended_at timestamp with time zone,
    CONSTRAINT chat_runs_status_check CHECK ((status = ANY (ARRAY['running'::text, 'success'::text, 'failed'::text, 'canceled'::text, 'timeout'::text, 'lost'::text])))
);

CREATE TABLE cbx.chat_steps (
    project_id text NOT NULL COLLATE pg_catalog."C",
    chat_key text NOT NULL COLLATE pg_catalog."C",
    step_id text NOT NULL COLLATE pg_catalog."C",
    run_id text NOT NULL COLLATE pg_catalog."C",
    status text NOT NULL,
    profile_box_id uuid,
    context_box_id uuid,
    output_box_id uuid,
    request_box_id uuid,
    tool_call_ids jsonb,
    error text,
    metadata jsonb DEFAULT '{}'::jsonb NOT NULL,
    started_at timestamp with time zone NOT NULL,
    ended_at timestamp with time zone
);

CREATE TABLE cbx.chats (
    project_id text NOT NULL COLLATE pg_catalog."C",
    chat_key text NOT NULL COLLATE pg_catalog."C",
    entries bigint DEFAULT 0 NOT NULL,
    transcript_box_id uuid,
    window_start bigint DEFAULT 0 NOT NULL,
    answered bigint DEFAULT 0 NOT NULL,
    context_id text COLLATE pg_catalog."C",
    context_box_id uuid,
    context_created_at timestamp with time zone,
    loaded_from text COLLATE pg_catalog."C",
    version bigint DEFAULT 0 NOT NULL,
    reset_by text,
    reset_at timestamp with time zone,
    epoch bigint DEFAULT 0 NOT NULL,
    run_id text COLLATE pg_catalog."C",
    owner text COLLATE pg_catalog."C",
    lease_expires_at timestamp with time zone,
    created_at timestamp with time zone NOT NULL,
    updated_at timestamp with time zone NOT NULL,
    CONSTRAINT chats_reset_by_check CHECK ((reset_by = ANY (ARRAY['new'::text, 'load'::text, 'clear'::text])))
);

CREATE TABLE cbx.leases (
    project_id text NOT NULL COLLATE pg_catalog."C",
    inbox_id text NOT NULL COLLATE pg_catalog."C",
    agent_id text NOT NULL COLLATE pg_catalog."C",
    agent_turn_id text COLLATE pg_catalog."C",
    turn_epoch bigint NOT NULL,
    owner text NOT NULL COLLATE pg_catalog."C",
    claimed_at timestamp with time zone NOT NULL,
    heartbeat_at timestamp with time zone NOT NULL,
    expires_at timestamp with time zone NOT NULL
);

CREATE TABLE cbx.logs (
    project_id text NOT NULL COLLATE pg_catalog."C",
    agent_turn_id text NOT NULL COLLATE pg_catalog."C",
    log_id text NOT NULL COLLATE pg_catalog."C",
    step_id text NOT NULL COLLATE pg_catalog."C",
    tool_call_id text COLLATE pg_catalog."C",
    tool_name text,
    turn_epoch bigint NOT NULL,
    worker_id text NOT NULL COLLATE pg_catalog."C",
    exit_code integer,
    stderr text NOT NULL,
    stderr_bytes bigint NOT NULL,
    started_at timestamp with time zone NOT NULL,
    ended_at timestamp with time zone NOT NULL
);

CREATE TABLE cbx.project_settings (
    project_id text NOT NULL COLLATE pg_catalog."C",
    enable_share_context boolean,
    reproducible_layers jsonb DEFAULT '[]'::jsonb NOT NULL,
    allow_incomplete_context boolean DEFAULT false NOT NULL,
    knowledge_scope text DEFAULT 'project'::text NOT NULL,
    CONSTRAINT project_settings_knowledge_scope_check CHECK ((knowledge_scope = ANY (ARRAY['project'::text, 'boxes'::text, 'none'::text])))
);

CREATE TABLE cbx.schema_version (
    version integer NOT NULL,
    applied_at timestamp with time zone DEFAULT now() NOT NULL
);

CREATE TABLE cbx.turns (
    project_id text NOT NULL COLLATE pg_catalog."C",
    agent_turn_id text NOT NULL COLLATE pg_catalog."C",
    agent_id text NOT NULL COLLATE pg_catalog."C",
    output_start integer,
    report_to jsonb,
    end_status text,
    end_epoch bigint,
    deliverable_card_id text COLLATE pg_catalog."C",
    error_code text,
    error text,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    ended_at timestamp with time zone,
    CONSTRAINT turns_end_status_check CHECK ((end_status = ANY (ARRAY['success'::text, 'failed'::text, 'canceled'::text, 'timeout'::text, 'partial'::text])))
);

CREATE TABLE cbx.workers (
    worker_id text NOT NULL COLLATE pg_catalog."C",
    project_id text COLLATE pg_catalog."C",
    worker_target text NOT NULL,
    host text NOT NULL,
    pid integer NOT NULL,
    concurrency integer NOT NULL,
    started_at timestamp with time zone NOT NULL,
    heartbeat_at timestamp with time zone NOT NULL,
    expires_at timestamp with time zone NOT NULL,
    last_error text,
    last_error_at timestamp with time zone
);

CREATE TABLE public.card_boxes (
    tenant_id text NOT NULL COLLATE pg_catalog."C",
    box_id uuid NOT NULL,
    card_ids jsonb,
    parent_ids jsonb,
    updated_at timestamp with time zone DEFAULT CURRENT_TIMESTAMP
);
ALTER TABLE ONLY public.card_boxes ALTER COLUMN card_ids SET STORAGE EXTERNAL;

CREATE TABLE public.cards (
    tenant_id text NOT NULL COLLATE pg_catalog."C",
    card_id text NOT NULL COLLATE pg_catalog."C",
    content jsonb,
    tool_calls jsonb,
    tool_call_id text COLLATE pg_catalog."C",
    ttl_seconds integer,
    expires_at timestamp with time zone,
    deleted_at timestamp with time zone,
    metadata jsonb,
    created_at timestamp with time zone DEFAULT CURRENT_TIMESTAMP
);

CREATE TABLE public.projects (
    project_id text NOT NULL COLLATE pg_catalog."C",
    title text NOT NULL,
    status text DEFAULT 'active'::text NOT NULL,
    owner_id text NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT projects_status_check CHECK ((status = ANY (ARRAY['active'::text, 'inactive'::text, 'archived'::text])))
);

CREATE TABLE resource.profiles (
    project_id text NOT NULL COLLATE pg_catalog."C",
    profile_box_id text NOT NULL,
    name text NOT NULL,
    worker_target text NOT NULL,
    tags jsonb DEFAULT '[]'::jsonb NOT NULL,
    system_prompt_compiled text,
    updated_at timestamp with time zone DEFAULT now() NOT NULL
);

CREATE TABLE resource.project_agents (
    project_id text NOT NULL COLLATE pg_catalog."C",
    agent_id text NOT NULL COLLATE pg_catalog."C",
    profile_box_id uuid NOT NULL,
    worker_target text NOT NULL,
    tags jsonb DEFAULT '[]'::jsonb NOT NULL,
    display_name text,
    owner_agent_id text COLLATE pg_catalog."C",
    status text DEFAULT 'active'::text NOT NULL,
    metadata jsonb DEFAULT '{}'::jsonb NOT NULL,
    created_at timestamp with time zone DEFAULT now(),
    last_seen_at timestamp with time zone
);

CREATE TABLE resource.tools (
    project_id text NOT NULL COLLATE pg_catalog."C",
    tool_name text NOT NULL COLLATE pg_catalog."C",
    description text,
    parameters jsonb DEFAULT '{}'::jsonb NOT NULL,
    target_subject text,
    after_execution text,
    options jsonb DEFAULT '{}'::jsonb NOT NULL
);

CREATE TABLE state.agent_inbox (
    project_id text NOT NULL COLLATE pg_catalog."C",
    inbox_id text NOT NULL COLLATE pg_catalog."C",
    agent_id text NOT NULL COLLATE pg_catalog."C",
    channel_id text DEFAULT 'public'::text NOT NULL,
    message_type text NOT NULL,
    enqueue_mode text,
    correlation_id text COLLATE pg_catalog."C",
    agent_turn_id text COLLATE pg_catalog."C",
    turn_epoch bigint DEFAULT 0 NOT NULL,
    context_headers jsonb DEFAULT '{}'::jsonb NOT NULL,
    payload jsonb DEFAULT '{}'::jsonb NOT NULL,
    status text DEFAULT 'pending'::text NOT NULL,
    retry_count integer DEFAULT 0 NOT NULL,
    next_retry_at timestamp with time zone DEFAULT now() NOT NULL,
    last_error text,
    defer_reason text,
    processed_at timestamp with time zone,
    archived_at timestamp with time zone,
    created_at timestamp with time zone DEFAULT now()
);

CREATE TABLE state.agent_state_head (
    project_id text NOT NULL COLLATE pg_catalog."C",
    agent_id text NOT NULL COLLATE pg_catalog."C",
    status text DEFAULT 'idle'::text,
    active_agent_turn_id text COLLATE pg_catalog."C",
    active_channel_id text,
    turn_epoch bigint DEFAULT 0,
    active_recursion_depth integer DEFAULT 0,
    updated_at timestamp with time zone DEFAULT now(),
    parent_step_id text COLLATE pg_catalog."C",
    trace_id text COLLATE pg_catalog."C",
    profile_box_id uuid,
    context_box_id uuid,
    output_box_id uuid,
    expecting_correlation_id text,
    waiting_tool_count integer DEFAULT 0 NOT NULL,
    resume_deadline timestamp with time zone
);

CREATE TABLE state.agent_state_pointers (
    project_id text NOT NULL COLLATE pg_catalog."C",
    agent_id text NOT NULL COLLATE pg_catalog."C",
    memory_context_box_id uuid,
    last_output_box_id uuid,
    updated_at timestamp with time zone DEFAULT now()
);

CREATE TABLE state.agent_steps (
    project_id text NOT NULL COLLATE pg_catalog."C",
    agent_id text NOT NULL COLLATE pg_catalog."C",
    step_id text NOT NULL COLLATE pg_catalog."C",
    agent_turn_id text NOT NULL COLLATE pg_catalog."C",
    channel_id text,
    parent_step_id text COLLATE pg_catalog."C",
    trace_id text COLLATE pg_catalog."C",
    status text NOT NULL,
    profile_box_id uuid,
    context_box_id uuid,
    output_box_id uuid,
    request_box_id uuid,
    api_log_id bigint,
    tool_call_ids jsonb,
    error text,
    metadata jsonb DEFAULT '{}'::jsonb NOT NULL,
    started_at timestamp with time zone DEFAULT now(),
    ended_at timestamp with time zone
);

CREATE TABLE state.execution_edges (
    project_id text NOT NULL COLLATE pg_catalog."C",
    edge_id text NOT NULL COLLATE pg_catalog."C",
    channel_id text,
    primitive text NOT NULL,
    edge_phase text NOT NULL,
    source_agent_id text COLLATE pg_catalog."C",
    source_agent_turn_id text COLLATE pg_catalog."C",
    source_step_id text COLLATE pg_catalog."C",
    target_agent_id text COLLATE pg_catalog."C",
    target_agent_turn_id text COLLATE pg_catalog."C",
    correlation_id text COLLATE pg_catalog."C",
    enqueue_mode text,
    recursion_depth integer NOT NULL,
    trace_id text COLLATE pg_catalog."C",
    parent_step_id text COLLATE pg_catalog."C",
    metadata jsonb DEFAULT '{}'::jsonb NOT NULL,
    created_at timestamp with time zone DEFAULT now(),
    CONSTRAINT execution_edges_recursion_depth_check CHECK ((recursion_depth >= 0))
);

CREATE TABLE state.identity_edges (
    project_id text NOT NULL COLLATE pg_catalog."C",
    edge_id text NOT NULL COLLATE pg_catalog."C",
    channel_id text,
    action text NOT NULL,
    source_agent_id text COLLATE pg_catalog."C",
    target_agent_id text NOT NULL COLLATE pg_catalog."C",
    trace_id text COLLATE pg_catalog."C",
    parent_step_id text COLLATE pg_catalog."C",
    metadata jsonb DEFAULT '{}'::jsonb NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL
);

CREATE TABLE state.turn_waiting_tools (
    project_id text NOT NULL COLLATE pg_catalog."C",
    agent_id text NOT NULL COLLATE pg_catalog."C",
    agent_turn_id text NOT NULL COLLATE pg_catalog."C",
    turn_epoch bigint NOT NULL,
    tool_call_id text NOT NULL COLLATE pg_catalog."C",
    step_id text NOT NULL COLLATE pg_catalog."C",
    tool_name text NOT NULL,
    wait_status text NOT NULL,
    tool_result_card_id text COLLATE pg_catalog."C",
    received_at timestamp with time zone,
    applied_at timestamp with time zone,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT turn_waiting_tools_wait_status_check CHECK ((wait_status = ANY (ARRAY['waiting'::text, 'received'::text, 'applied'::text, 'expired'::text, 'dropped'::text])))
);

ALTER TABLE ONLY cbx.api_tokens
    ADD CONSTRAINT api_tokens_pkey PRIMARY KEY (project_id, token_id);

ALTER TABLE ONLY cbx.audit
    ADD CONSTRAINT audit_pkey PRIMARY KEY (project_id, audit_id);

ALTER TABLE ONLY cbx.batch_tasks
    ADD CONSTRAINT batch_tasks_pkey PRIMARY KEY (project_id, batch_id, task_index);

ALTER TABLE ONLY cbx.batches
    ADD CONSTRAINT batches_pkey PRIMARY KEY (project_id, batch_id);

ALTER TABLE ONLY cbx.box_info
    ADD CONSTRAINT box_info_pkey PRIMARY KEY (project_id, box_id);

ALTER TABLE ONLY cbx.chat_contexts
    ADD CONSTRAINT chat_contexts_pkey PRIMARY KEY (project_id, chat_key, context_id);

ALTER TABLE ONLY cbx.chat_runs
    ADD CONSTRAINT chat_runs_pkey PRIMARY KEY (project_id, chat_key, run_id);

ALTER TABLE ONLY cbx.chat_steps
    ADD CONSTRAINT chat_steps_pkey PRIMARY KEY (project_id, chat_key, step_id);

ALTER TABLE ONLY cbx.chats
    ADD CONSTRAINT chats_pkey PRIMARY KEY (project_id, chat_key);

ALTER TABLE ONLY cbx.leases
    ADD CONSTRAINT leases_pkey PRIMARY KEY (project_id, inbox_id);

ALTER TABLE ONLY cbx.logs
    ADD CONSTRAINT logs_pkey PRIMARY KEY (project_id, agent_turn_id, log_id);

ALTER TABLE ONLY cbx.project_settings
    ADD CONSTRAINT project_settings_pkey PRIMARY KEY (project_id);

ALTER TABLE ONLY cbx.schema_version
    ADD CONSTRAINT schema_version_pkey PRIMARY KEY (version);

ALTER TABLE ONLY cbx.turns
    ADD CONSTRAINT turns_pkey PRIMARY KEY (project_id, agent_turn_id);

ALTER TABLE ONLY cbx.workers
    ADD CONSTRAINT workers_pkey PRIMARY KEY (worker_id);

ALTER TABLE ONLY public.card_boxes
    ADD CONSTRAINT card_boxes_pkey PRIMARY KEY (tenant_id, box_id);

ALTER TABLE ONLY public.cards
    ADD CONSTRAINT cards_pkey PRIMARY KEY (tenant_id, card_id);

ALTER TABLE ONLY public.projects
    ADD CONSTRAINT projects_pkey PRIMARY KEY (project_id);

ALTER TABLE ONLY resource.profiles
    ADD CONSTRAINT profiles_pkey PRIMARY KEY (project_id, profile_box_id);

ALTER TABLE ONLY resource.project_agents
    ADD CONSTRAINT project_agents_pkey PRIMARY KEY (project_id, agent_id);

ALTER TABLE ONLY resource.tools
    ADD CONSTRAINT tools_pkey PRIMARY KEY (project_id, tool_name);

ALTER TABLE ONLY state.agent_inbox
    ADD CONSTRAINT agent_inbox_pkey PRIMARY KEY (project_id, inbox_id);

ALTER TABLE ONLY state.agent_state_head
    ADD CONSTRAINT agent_state_head_pkey PRIMARY KEY (project_id, agent_id);

ALTER TABLE ONLY state.agent_state_pointers
    ADD CONSTRAINT agent_state_pointers_pkey PRIMARY KEY (project_id, agent_id);

ALTER TABLE ONLY state.agent_steps
    ADD CONSTRAINT agent_steps_pkey PRIMARY KEY (project_id, agent_id, step_id);

ALTER TABLE ONLY state.execution_edges
    ADD CONSTRAINT execution_edges_pkey PRIMARY KEY (project_id, edge_id);

ALTER TABLE ONLY state.identity_edges
    ADD CONSTRAINT identity_edges_pkey PRIMARY KEY (project_id, edge_id);

ALTER TABLE ONLY state.turn_waiting_tools
    ADD CONSTRAINT turn_waiting_tools_pkey PRIMARY KEY (project_id, agent_id, agent_turn_id, turn_epoch, tool_call_id);

CREATE INDEX idx_audit_newest ON cbx.audit USING btree (project_id, created_at, audit_id);

CREATE INDEX idx_audit_turn ON cbx.audit USING btree (project_id, agent_turn_id, created_at);

CREATE INDEX idx_batch_tasks_due ON cbx.batch_tasks USING btree (project_id, next_try_at, batch_id, task_index) WHERE (status = 'pending'::text);

CREATE INDEX idx_batch_tasks_running ON cbx.batch_tasks USING btree (project_id, batch_id, task_index) WHERE (status = 'dispatched'::text);

CREATE INDEX idx_batch_tasks_stop_due ON cbx.batch_tasks USING btree (project_id, batch_id, task_index) WHERE stop_due;

CREATE INDEX idx_batches_newest ON cbx.batches USING btree (project_id, created_at, batch_id);

CREATE INDEX idx_batches_open ON cbx.batches USING btree (project_id, deadline_at, batch_id) WHERE (status = 'running'::text);

CREATE INDEX idx_batches_parent ON cbx.batches USING btree (project_id, parent_turn_id) WHERE (parent_turn_id IS NOT NULL);

CREATE INDEX idx_batches_report_due ON cbx.batches USING btree (project_id, batch_id) WHERE report_due;

CREATE INDEX idx_batches_shown ON cbx.batches USING btree (project_id, "right"(batch_id, 8));

CREATE INDEX idx_batches_suffix ON cbx.batches USING btree (project_id, reverse(batch_id));

CREATE INDEX idx_chat_contexts_archived ON cbx.chat_contexts USING btree (project_id, chat_key, archived_at, context_id);

CREATE INDEX idx_chat_contexts_terms ON cbx.chat_contexts USING gin (terms) WITH (fastupdate=off);

CREATE INDEX idx_chat_steps_run ON cbx.chat_steps USING btree (project_id, chat_key, run_id, step_id);

CREATE INDEX idx_chats_key ON cbx.chats USING btree (chat_key, project_id);

CREATE INDEX idx_turns_shown ON cbx.turns USING btree (project_id, "right"(agent_turn_id, 8));

CREATE INDEX idx_turns_suffix ON cbx.turns USING btree (project_id, reverse(agent_turn_id));

CREATE INDEX idx_turns_unended ON cbx.turns USING btree (project_id, agent_turn_id) WHERE (end_status IS NULL);

CREATE UNIQUE INDEX uniq_batch_tasks_turn ON cbx.batch_tasks USING btree (project_id, agent_turn_id) WHERE (agent_turn_id IS NOT NULL);

CREATE UNIQUE INDEX uniq_chat_runs_epoch ON cbx.chat_runs USING btree (project_id, chat_key, epoch);

CREATE INDEX idx_boxes_shown ON public.card_boxes USING btree (tenant_id, "right"((box_id)::text, 8) text_pattern_ops);

CREATE INDEX idx_boxes_suffix ON public.card_boxes USING btree (tenant_id, reverse(replace((box_id)::text, '-'::text, ''::text)) text_pattern_ops);

CREATE INDEX idx_boxes_updated ON public.card_boxes USING btree (tenant_id, updated_at, box_id);

CREATE INDEX idx_cards_created ON public.cards USING btree (tenant_id, created_at, card_id);

CREATE INDEX idx_cards_expiry ON public.cards USING btree (tenant_id, expires_at) WHERE (expires_at IS NOT NULL);

CREATE INDEX idx_cards_shown ON public.cards USING btree (tenant_id, "right"(card_id, 8));

CREATE INDEX idx_cards_suffix ON public.cards USING btree (tenant_id, reverse(card_id));

CREATE INDEX idx_cards_tool_call ON public.cards USING btree (tenant_id, tool_call_id) WHERE (tool_call_id IS NOT NULL);

CREATE INDEX idx_cards_turn ON public.cards USING btree (tenant_id, ((metadata ->> 'agent_turn_id'::text))) WHERE ((metadata ->> 'agent_turn_id'::text) IS NOT NULL);

CREATE INDEX idx_cards_type ON public.cards USING btree (tenant_id, ((metadata ->> 'type'::text)));

CREATE UNIQUE INDEX uniq_cards_card_id ON public.cards USING btree (card_id);

CREATE INDEX idx_agents_target ON resource.project_agents USING btree (project_id, worker_target, agent_id);

CREATE UNIQUE INDEX idx_resource_profiles_project_name ON resource.profiles USING btree (project_id, name);

CREATE UNIQUE INDEX uniq_profiles_name_any_case ON resource.profiles USING btree (project_id, lower(name));

CREATE UNIQUE INDEX idx_agent_inbox_unique ON state.agent_inbox USING btree (project_id, message_type, md5(correlation_id));

CREATE INDEX idx_edges_source_turn ON state.execution_edges USING btree (project_id, source_agent_turn_id);

CREATE INDEX idx_edges_target_turn ON state.execution_edges USING btree (project_id, target_agent_turn_id);

CREATE INDEX idx_execution_edges_trace ON state.execution_edges USING btree (project_id, trace_id);

CREATE UNIQUE INDEX idx_execution_edges_unique ON state.execution_edges USING btree (project_id, md5(correlation_id), primitive, edge_phase);

CREATE INDEX idx_head_active ON state.agent_state_head USING btree (project_id, status) WHERE (status <> 'idle'::text);

CREATE INDEX idx_identity_edges_target ON state.identity_edges USING btree (project_id, target_agent_id, created_at);

CREATE INDEX idx_inbox_created ON state.agent_inbox USING btree (project_id, created_at, inbox_id);

CREATE INDEX idx_inbox_dead ON state.agent_inbox USING btree (project_id, created_at, inbox_id) WHERE (status = 'error'::text);

CREATE INDEX idx_inbox_due ON state.agent_inbox USING btree (project_id, next_retry_at, created_at, inbox_id) WHERE (status = ANY (ARRAY['pending'::text, 'deferred'::text]));

CREATE INDEX idx_inbox_open ON state.agent_inbox USING btree (project_id, agent_id, status, created_at, inbox_id) WHERE (status = ANY (ARRAY['queued'::text, 'pending'::text, 'deferred'::text, 'processing'::text]));

CREATE INDEX idx_inbox_turn ON state.agent_inbox USING btree (project_id, agent_turn_id);

CREATE INDEX idx_steps_turn ON state.agent_steps USING btree (project_id, agent_turn_id, started_at);

CREATE INDEX idx_waiting_turn ON state.turn_waiting_tools USING btree (project_id, agent_turn_id);

CREATE TRIGGER append_only BEFORE DELETE OR UPDATE OR TRUNCATE ON cbx.audit FOR EACH STATEMENT EXECUTE FUNCTION cbx.refuse_audit_change();

INSERT INTO cbx.schema_version VALUES (15, '2026-11-23 00:00:00+00');
