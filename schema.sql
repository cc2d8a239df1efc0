-- The tables of cbx, and their only definition. Idempotent: it creates what is missing and changes nothing that
-- exists. Each part between two "-- part:" lines is one table with its indexes. `cbx db init` only runs the parts of
-- missing tables, so it never alters a table that another program made.
--
-- Rules: every primary and unique key begins with the project, except the index on card_id that other card-box
-- clients need, and cbx.workers, which belong to no tenant. Ids sort by code point; foreign keys have the project.

-- part: public.projects
CREATE TABLE IF NOT EXISTS public.projects (
    project_id text COLLATE "C" PRIMARY KEY,
    title      text NOT NULL,
    status     text NOT NULL DEFAULT 'active' CHECK (status IN ('active', 'inactive', 'archived')),
    owner_id   text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now()
);

-- part: public.cards
CREATE TABLE IF NOT EXISTS public.cards (
    tenant_id    text COLLATE "C" NOT NULL,
    card_id      text COLLATE "C" NOT NULL,
    content      jsonb,
    tool_calls   jsonb,
    tool_call_id text COLLATE "C",
    ttl_seconds  integer,
    expires_at   timestamptz,
    deleted_at   timestamptz,
    metadata     jsonb,
    created_at   timestamptz DEFAULT current_timestamp,
    PRIMARY KEY (tenant_id, card_id)
);
-- Card ids are global, and card-box clients upsert ON CONFLICT (card_id).
CREATE UNIQUE INDEX IF NOT EXISTS uniq_cards_card_id ON public.cards (card_id);
CREATE INDEX IF NOT EXISTS idx_cards_created ON public.cards (tenant_id, created_at, card_id);
-- People type the last characters of an id,
CREATE INDEX IF NOT EXISTS idx_cards_suffix ON public.cards (tenant_id, reverse(card_id));
-- or the beginning of the last 8, which tables show.
CREATE INDEX IF NOT EXISTS idx_cards_shown ON public.cards (tenant_id, right(card_id, 8));
CREATE INDEX IF NOT EXISTS idx_cards_tool_call ON public.cards (tenant_id, tool_call_id)
    WHERE tool_call_id IS NOT NULL;
CREATE INDEX IF NOT EXISTS idx_cards_turn ON public.cards (tenant_id, (metadata ->> 'agent_turn_id'))
    WHERE metadata ->> 'agent_turn_id' IS NOT NULL;
-- Cheap, because equal keys are deduplicated. Without it, a search for a rare type scans all cards.
CREATE INDEX IF NOT EXISTS idx_cards_type ON public.cards (tenant_id, (metadata ->> 'type'));
-- Cards of a step, a trace or an author.
CREATE INDEX IF NOT EXISTS idx_cards_step ON public.cards (tenant_id, (metadata ->> 'step_id'))
    WHERE metadata ->> 'step_id' IS NOT NULL;
CREATE INDEX IF NOT EXISTS idx_cards_trace ON public.cards (tenant_id, (metadata ->> 'trace_id'))
    WHERE metadata ->> 'trace_id' IS NOT NULL;
CREATE INDEX IF NOT EXISTS idx_cards_author ON public.cards (tenant_id, (metadata ->> 'author_id'));
CREATE INDEX IF NOT EXISTS idx_cards_expiry ON public.cards (tenant_id, expires_at) WHERE expires_at IS NOT NULL;

-- part: public.card_boxes
CREATE TABLE IF NOT EXISTS public.card_boxes (
    tenant_id  text COLLATE "C" NOT NULL,
    box_id     uuid NOT NULL,
    card_ids   jsonb,
    parent_ids jsonb,
    updated_at timestamptz DEFAULT current_timestamp,
    PRIMARY KEY (tenant_id, box_id)
);
-- Ids do not compress, and trying takes most of the time of an append.
ALTER TABLE public.card_boxes ALTER COLUMN card_ids SET STORAGE EXTERNAL;
CREATE INDEX IF NOT EXISTS idx_boxes_updated ON public.card_boxes (tenant_id, updated_at, box_id);
CREATE INDEX IF NOT EXISTS idx_boxes_suffix ON public.card_boxes
    (tenant_id, reverse(replace(box_id::text, '-', '')) text_pattern_ops);
CREATE INDEX IF NOT EXISTS idx_boxes_shown ON public.card_boxes (tenant_id, right(box_id::text, 8) text_pattern_ops);

-- part: resource.profiles
CREATE SCHEMA IF NOT EXISTS resource;
CREATE TABLE IF NOT EXISTS resource.profiles (
    project_id             text COLLATE "C" NOT NULL,
    profile_box_id         text NOT NULL,
    name                   text NOT NULL,
    worker_target          text NOT NULL,
    tags                   jsonb NOT NULL DEFAULT '[]',
    system_prompt_compiled text,
    updated_at             timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (project_id, profile_box_id)
);
CREATE UNIQUE INDEX IF NOT EXISTS idx_resource_profiles_project_name ON resource.profiles (project_id, name);
CREATE UNIQUE INDEX IF NOT EXISTS uniq_profiles_name_any_case ON resource.profiles (project_id, lower(name));

-- part: resource.project_agents
CREATE SCHEMA IF NOT EXISTS resource;
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
-- Agents that may have work for a target, in the order in which a claim examines them.
CREATE INDEX IF NOT EXISTS idx_agents_target ON resource.project_agents (project_id, worker_target, agent_id);

-- part: resource.tools
CREATE SCHEMA IF NOT EXISTS resource;
-- Options of cbx: {exec, timeout_seconds, read_only}. A tool without exec waits for a report.
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

-- part: state.agent_state_head
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
-- Finds the few active agents among all.
CREATE INDEX IF NOT EXISTS idx_head_active ON state.agent_state_head (project_id, status) WHERE status <> 'idle';

-- part: state.agent_state_pointers
CREATE SCHEMA IF NOT EXISTS state;
CREATE TABLE IF NOT EXISTS state.agent_state_pointers (
    project_id            text COLLATE "C" NOT NULL,
    agent_id              text COLLATE "C" NOT NULL,
    memory_context_box_id uuid,
    last_output_box_id    uuid,
    updated_at            timestamptz DEFAULT now(),
    PRIMARY KEY (project_id, agent_id)
);

-- part: state.agent_inbox
CREATE SCHEMA IF NOT EXISTS state;
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
-- Rows for a claim: only due ones, so that claims stay fast however many rows are finished.
CREATE INDEX IF NOT EXISTS idx_inbox_due ON state.agent_inbox (project_id, next_retry_at, created_at, inbox_id)
    WHERE status IN ('pending', 'deferred');
-- Open rows of an agent.
CREATE INDEX IF NOT EXISTS idx_inbox_open ON state.agent_inbox
    (project_id, agent_id, status, created_at, inbox_id)
    WHERE status IN ('queued', 'pending', 'deferred', 'processing');
CREATE INDEX IF NOT EXISTS idx_inbox_dead ON state.agent_inbox (project_id, created_at, inbox_id)
    WHERE status = 'error';
CREATE INDEX IF NOT EXISTS idx_inbox_skipped ON state.agent_inbox (project_id, created_at, inbox_id)
    WHERE status = 'skipped';
-- All rows of an agent; with the type, an index-only scan counts turns.
CREATE INDEX IF NOT EXISTS idx_inbox_agent ON state.agent_inbox
    (project_id, agent_id, created_at, inbox_id) INCLUDE (message_type);
CREATE INDEX IF NOT EXISTS idx_inbox_turn ON state.agent_inbox (project_id, agent_turn_id);
CREATE INDEX IF NOT EXISTS idx_inbox_created ON state.agent_inbox (project_id, created_at, inbox_id);

-- part: state.execution_edges
CREATE SCHEMA IF NOT EXISTS state;
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

-- part: state.identity_edges
CREATE SCHEMA IF NOT EXISTS state;
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

-- part: state.agent_steps
CREATE SCHEMA IF NOT EXISTS state;
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

-- part: state.turn_waiting_tools
CREATE SCHEMA IF NOT EXISTS state;
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

-- part: cbx.box_info
CREATE SCHEMA IF NOT EXISTS cbx;
-- Values that card_boxes has no columns for. provenance: {recipe, recipe_digest, digest, rules: [{rule, cards}]}.
CREATE TABLE IF NOT EXISTS cbx.box_info (
    project_id text COLLATE "C" NOT NULL,
    box_id     uuid NOT NULL,
    title      text,
    provenance jsonb,
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (project_id, box_id)
);

-- part: cbx.turns
CREATE SCHEMA IF NOT EXISTS cbx;
-- Values that the tables of agents have no columns for. `output_start` is the length of the output box at the
-- assignment. `report_to` is {agent_id, agent_turn_id, tool_call_id} of the call that waits for this turn's end.
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
CREATE INDEX IF NOT EXISTS idx_turns_shown ON cbx.turns (project_id, right(agent_turn_id, 8));
CREATE INDEX IF NOT EXISTS idx_turns_unended ON cbx.turns (project_id, agent_turn_id) WHERE end_status IS NULL;

-- part: cbx.leases
CREATE SCHEMA IF NOT EXISTS cbx;
-- Owner and end of each claim. One row for each inbox row that is 'processing', deleted with the claim.
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

-- part: cbx.workers
CREATE SCHEMA IF NOT EXISTS cbx;
-- Workers by target. They belong to no tenant: project_id is null for one that serves all projects.
CREATE TABLE IF NOT EXISTS cbx.workers (
    worker_id     text COLLATE "C" PRIMARY KEY,
    project_id    text COLLATE "C",
    worker_target text NOT NULL,
    host          text NOT NULL,
    pid           integer NOT NULL,
    concurrency   integer NOT NULL,
    started_at    timestamptz NOT NULL,
    heartbeat_at  timestamptz NOT NULL,
    expires_at    timestamptz NOT NULL,
    last_error    text,
    last_error_at timestamptz
);

-- part: cbx.logs
CREATE SCHEMA IF NOT EXISTS cbx;
-- The last bytes of the stderr of a turn's commands; `stderr_bytes` is their total number. `tool_call_id` is null for
-- the model's command. `exit_code` is negative after a signal, null if cbx stopped the command.
CREATE TABLE IF NOT EXISTS cbx.logs (
    project_id    text COLLATE "C" NOT NULL,
    agent_turn_id text COLLATE "C" NOT NULL,
    log_id        text COLLATE "C" NOT NULL,
    step_id       text COLLATE "C" NOT NULL,
    tool_call_id  text COLLATE "C",
    tool_name     text,
    turn_epoch    bigint NOT NULL,
    worker_id     text COLLATE "C" NOT NULL,
    exit_code     integer,
    stderr        text NOT NULL,
    stderr_bytes  bigint NOT NULL,
    started_at    timestamptz NOT NULL,
    ended_at      timestamptz NOT NULL,
    PRIMARY KEY (project_id, agent_turn_id, log_id)
);

-- part: cbx.batches
CREATE SCHEMA IF NOT EXISTS cbx;
-- parent_* is the call that waits for the end, null for a batch that no turn created. With `report_due`, that call
-- still needs a report of the end. `join_box_id` is the box of the children's deliverables.
CREATE TABLE IF NOT EXISTS cbx.batches (
    project_id          text COLLATE "C" NOT NULL,
    batch_id            text COLLATE "C" NOT NULL,
    status              text NOT NULL CHECK (status IN ('running', 'success', 'failed', 'timeout', 'partial')),
    error_code          text,
    error               text,
    fail_fast           boolean NOT NULL,
    task_count          integer NOT NULL,
    request_sha256      text NOT NULL,
    source_agent_id     text COLLATE "C" NOT NULL,
    parent_turn_id      text COLLATE "C",
    parent_step_id      text COLLATE "C",
    parent_tool_call_id text COLLATE "C",
    channel_id          text NOT NULL,
    recursion_depth     integer NOT NULL,
    trace_id            text COLLATE "C" NOT NULL,
    deadline_at         timestamptz NOT NULL,
    report_due          boolean NOT NULL DEFAULT false,
    join_box_id         uuid,
    created_at          timestamptz NOT NULL,
    ended_at            timestamptz,
    PRIMARY KEY (project_id, batch_id)
);
CREATE INDEX IF NOT EXISTS idx_batches_newest ON cbx.batches (project_id, created_at, batch_id);
-- People type the last characters of an id.
CREATE INDEX IF NOT EXISTS idx_batches_suffix ON cbx.batches (project_id, reverse(batch_id));
CREATE INDEX IF NOT EXISTS idx_batches_shown ON cbx.batches (project_id, right(batch_id, 8));
CREATE INDEX IF NOT EXISTS idx_batches_open ON cbx.batches (project_id, deadline_at, batch_id)
    WHERE status = 'running';
CREATE INDEX IF NOT EXISTS idx_batches_report_due ON cbx.batches (project_id, batch_id) WHERE report_due;
CREATE INDEX IF NOT EXISTS idx_batches_parent ON cbx.batches (project_id, parent_turn_id)
    WHERE parent_turn_id IS NOT NULL;

-- part: cbx.batch_tasks
CREATE SCHEMA IF NOT EXISTS cbx;
-- The children of batches. With stop_due, the batch has ended, but the child's turn must still be stopped.
CREATE TABLE IF NOT EXISTS cbx.batch_tasks (
    project_id          text COLLATE "C" NOT NULL,
    batch_id            text COLLATE "C" NOT NULL,
    task_index          integer NOT NULL,
    status              text NOT NULL
        CHECK (status IN ('pending', 'dispatched', 'success', 'failed', 'canceled', 'timeout', 'partial')),
    target_strategy     text NOT NULL,
    target_ref          text NOT NULL,
    agent_id            text COLLATE "C" NOT NULL,
    context_box_id      uuid NOT NULL,
    output_box_id       uuid,
    agent_turn_id       text COLLATE "C",
    deliverable_card_id text COLLATE "C",
    error_code          text,
    error               text,
    attempts            integer NOT NULL DEFAULT 0,
    next_try_at         timestamptz NOT NULL,
    stop_due            boolean NOT NULL DEFAULT false,
    dispatched_at       timestamptz,
    ended_at            timestamptz,
    PRIMARY KEY (project_id, batch_id, task_index)
);
CREATE UNIQUE INDEX IF NOT EXISTS uniq_batch_tasks_turn ON cbx.batch_tasks (project_id, agent_turn_id)
    WHERE agent_turn_id IS NOT NULL;
CREATE INDEX IF NOT EXISTS idx_batch_tasks_due ON cbx.batch_tasks (project_id, next_try_at, batch_id, task_index)
    WHERE status = 'pending';
CREATE INDEX IF NOT EXISTS idx_batch_tasks_running ON cbx.batch_tasks (project_id, batch_id, task_index)
    WHERE status = 'dispatched';
CREATE INDEX IF NOT EXISTS idx_batch_tasks_stop_due ON cbx.batch_tasks (project_id, batch_id, task_index)
    WHERE stop_due;

-- part: cbx.audit
CREATE SCHEMA IF NOT EXISTS cbx;
-- Actions on a turn from outside its run, and changes of people to stored data; append-only. `agent_id` is empty if
-- the action concerns no agent.
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
CREATE INDEX IF NOT EXISTS idx_audit_newest ON cbx.audit (project_id, created_at, audit_id);
CREATE OR REPLACE FUNCTION cbx.refuse_audit_change() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    RAISE EXCEPTION 'cbx.audit is append-only: no %', TG_OP USING ERRCODE = 'insufficient_privilege'; END $$;
CREATE OR REPLACE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON cbx.audit
    FOR EACH STATEMENT EXECUTE FUNCTION cbx.refuse_audit_change();

-- part: cbx.project_settings
CREATE SCHEMA IF NOT EXISTS cbx;
-- Values that public.projects has no columns for. enable_share_context: null is the default of the process.
CREATE TABLE IF NOT EXISTS cbx.project_settings (
    project_id               text COLLATE "C" PRIMARY KEY,
    enable_share_context     boolean,
    reproducible_layers      jsonb NOT NULL DEFAULT '[]',
    allow_incomplete_context boolean NOT NULL DEFAULT false,
    knowledge_scope          text NOT NULL DEFAULT 'project'
        CHECK (knowledge_scope IN ('project', 'boxes', 'none'))
);

-- part: cbx.chats
CREATE SCHEMA IF NOT EXISTS cbx;
-- Chats by key. The transcript is a chain of boxes of 1,000 cards: `entries` is its length, `transcript_box_id` the
-- newest box. A run without context sees entries from `window_start` on. Users' entries from `answered` on have no
-- answer. `context_box_id` is the active context, null if it is empty. `context_id` is that of the snapshot
-- `loaded_from`, until the context changes. `version` counts how often new, load or clear (last: `reset_by`) replaced
-- it. `epoch`, `run_id`, `owner` and `lease_expires_at` are those of the current run, if there is one.
CREATE TABLE IF NOT EXISTS cbx.chats (
    project_id         text COLLATE "C" NOT NULL,
    chat_key           text COLLATE "C" NOT NULL,
    entries            bigint NOT NULL DEFAULT 0,
    transcript_box_id  uuid,
    window_start       bigint NOT NULL DEFAULT 0,
    answered           bigint NOT NULL DEFAULT 0,
    context_id         text COLLATE "C",
    context_box_id     uuid,
    context_created_at timestamptz,
    loaded_from        text COLLATE "C",
    version            bigint NOT NULL DEFAULT 0,
    reset_by           text CHECK (reset_by IN ('new', 'load', 'clear')),
    reset_at           timestamptz,
    epoch              bigint NOT NULL DEFAULT 0,
    run_id             text COLLATE "C",
    owner              text COLLATE "C",
    lease_expires_at   timestamptz,
    created_at         timestamptz NOT NULL,
    updated_at         timestamptz NOT NULL,
    PRIMARY KEY (project_id, chat_key)
);
-- Finds a chat's key in other projects.
CREATE INDEX IF NOT EXISTS idx_chats_key ON cbx.chats (chat_key, project_id);

-- part: cbx.chat_contexts
CREATE SCHEMA IF NOT EXISTS cbx;
-- Archived contexts of chats, each a box. A search finds it by terms, hashes of words and their parts with project
-- and chat, and ranks it by search_text. `layout` has the other fields of the imported file.
CREATE TABLE IF NOT EXISTS cbx.chat_contexts (
    project_id         text COLLATE "C" NOT NULL,
    chat_key           text COLLATE "C" NOT NULL,
    context_id         text COLLATE "C" NOT NULL,
    box_id             uuid NOT NULL,
    title              text,
    reason             text,
    checkpoint_index   integer,
    checkpoint_preview text,
    messages           integer NOT NULL,
    search_text        text NOT NULL,
    terms              integer[] NOT NULL,
    layout             jsonb,
    created_at         timestamptz NOT NULL,
    archived_at        timestamptz NOT NULL,
    PRIMARY KEY (project_id, chat_key, context_id)
);
CREATE INDEX IF NOT EXISTS idx_chat_contexts_archived ON cbx.chat_contexts
    (project_id, chat_key, archived_at, context_id);
-- Without the list of pending entries, which every search would scan.
CREATE INDEX IF NOT EXISTS idx_chat_contexts_terms ON cbx.chat_contexts USING gin (terms) WITH (fastupdate = off);

-- part: cbx.chat_runs
CREATE SCHEMA IF NOT EXISTS cbx;
-- Runs of chats. `user_card_ids` are the messages that it answers, the last one with its corrections. `position` is
-- that of the last one in the transcript, `merged` that up to which messages are included. `version` is that of the
-- chat's context in its boxes. `reply_card_ids` are the replies of its command.
CREATE TABLE IF NOT EXISTS cbx.chat_runs (
    project_id     text COLLATE "C" NOT NULL,
    chat_key       text COLLATE "C" NOT NULL,
    run_id         text COLLATE "C" NOT NULL,
    epoch          bigint NOT NULL,
    owner          text COLLATE "C" NOT NULL,
    status         text NOT NULL CHECK (status IN ('running', 'success', 'failed', 'canceled', 'timeout', 'lost')),
    position       bigint NOT NULL,
    merged         bigint NOT NULL,
    version        bigint NOT NULL,
    user_card_ids  jsonb NOT NULL,
    reply_card_ids jsonb NOT NULL DEFAULT '[]',
    answer_card_id text COLLATE "C",
    profile_box_id uuid NOT NULL,
    context_box_id uuid NOT NULL,
    output_box_id  uuid NOT NULL,
    error_code     text,
    error          text,
    started_at     timestamptz NOT NULL,
    ended_at       timestamptz,
    PRIMARY KEY (project_id, chat_key, run_id)
);
CREATE UNIQUE INDEX IF NOT EXISTS uniq_chat_runs_epoch ON cbx.chat_runs (project_id, chat_key, epoch);

-- part: cbx.chat_steps
CREATE SCHEMA IF NOT EXISTS cbx;
-- Steps of the runs of chats, like state.agent_steps for turns.
CREATE TABLE IF NOT EXISTS cbx.chat_steps (
    project_id     text COLLATE "C" NOT NULL,
    chat_key       text COLLATE "C" NOT NULL,
    step_id        text COLLATE "C" NOT NULL,
    run_id         text COLLATE "C" NOT NULL,
    status         text NOT NULL,
    profile_box_id uuid,
    context_box_id uuid,
    output_box_id  uuid,
    request_box_id uuid,
    tool_call_ids  jsonb,
    error          text,
    metadata       jsonb NOT NULL DEFAULT '{}',
    started_at     timestamptz NOT NULL,
    ended_at       timestamptz,
    PRIMARY KEY (project_id, chat_key, step_id)
);
CREATE INDEX IF NOT EXISTS idx_chat_steps_run ON cbx.chat_steps (project_id, chat_key, run_id, step_id);

-- part: cbx.api_tokens
CREATE SCHEMA IF NOT EXISTS cbx;
-- Tokens with which programs and browsers read a project over HTTP. `token_sha256` is the SHA-256 of a token, which
-- is shown once and never stored. `created_by` is the account that created it, as in the audit. A revoked or expired
-- token gives no access.
CREATE TABLE IF NOT EXISTS cbx.api_tokens (
    project_id   text COLLATE "C" NOT NULL,
    token_id     text COLLATE "C" NOT NULL,
    label        text NOT NULL,
    token_sha256 bytea NOT NULL CHECK (length(token_sha256) = 32),
    created_by   text NOT NULL,
    created_at   timestamptz NOT NULL,
    expires_at   timestamptz,
    revoked_at   timestamptz,
    PRIMARY KEY (project_id, token_id)
);

-- part: cbx.schema_version
CREATE SCHEMA IF NOT EXISTS cbx;
CREATE TABLE IF NOT EXISTS cbx.schema_version (
    version    integer PRIMARY KEY,
    applied_at timestamptz NOT NULL DEFAULT now()
);
-- The characters and character pairs of text in scripts without spaces (Han, kana, Hangul); ignores other text. The
-- code of a character is its code point, that of a pair the first one's times 2^21 plus the second's.
CREATE OR REPLACE FUNCTION cbx.bigrams(written text) RETURNS bigint[]
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
SELECT CASE WHEN written ~ '[\u1100-\u11ff\u2e80-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\uff66-\uffdc\U00020000-\U0003ffff]'
THEN (
    SELECT array_agg(DISTINCT gram.code)
    FROM (SELECT string_to_array(regexp_replace(written,
        '[^\u1100-\u11ff\u2e80-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\uff66-\uffdc\U00020000-\U0003ffff]+',
        ' ', 'g'), NULL) AS characters) AS spelled,
    unnest(characters, characters[2:]) AS pair (one, other),
    LATERAL (VALUES (ascii(one)::bigint), (ascii(one)::bigint << 21 | ascii(nullif(other, ' ')))) AS gram (code)
    WHERE one <> ' ' AND gram.code IS NOT NULL)
END $$;
INSERT INTO cbx.schema_version (version) VALUES (17) ON CONFLICT DO NOTHING;
