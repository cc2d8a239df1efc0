-- Versions 3 and 4 were made in several shapes: some lacked indexes, one index had other columns, two are no
-- longer of use. From here on every table that cbx made has each of its columns and indexes.

-- changes: public.cards
CREATE UNIQUE INDEX IF NOT EXISTS uniq_cards_card_id ON public.cards (card_id);
CREATE INDEX IF NOT EXISTS idx_cards_created ON public.cards (tenant_id, created_at, card_id);
CREATE INDEX IF NOT EXISTS idx_cards_suffix ON public.cards (tenant_id, reverse(card_id));
CREATE INDEX IF NOT EXISTS idx_cards_tool_call ON public.cards (tenant_id, tool_call_id)
    WHERE tool_call_id IS NOT NULL;
CREATE INDEX IF NOT EXISTS idx_cards_turn ON public.cards (tenant_id, (metadata ->> 'agent_turn_id'))
    WHERE metadata ->> 'agent_turn_id' IS NOT NULL;
CREATE INDEX IF NOT EXISTS idx_cards_type ON public.cards (tenant_id, (metadata ->> 'type'));
CREATE INDEX IF NOT EXISTS idx_cards_expiry ON public.cards (tenant_id, expires_at) WHERE expires_at IS NOT NULL;

-- changes: public.card_boxes
CREATE INDEX IF NOT EXISTS idx_boxes_updated ON public.card_boxes (tenant_id, updated_at, box_id);
CREATE INDEX IF NOT EXISTS idx_boxes_suffix ON public.card_boxes
    (tenant_id, reverse(replace(box_id::text, '-', '')) text_pattern_ops);

-- changes: resource.profiles
CREATE UNIQUE INDEX IF NOT EXISTS idx_resource_profiles_project_name ON resource.profiles (project_id, name);
CREATE UNIQUE INDEX IF NOT EXISTS uniq_profiles_name_any_case ON resource.profiles (project_id, lower(name));

-- changes: resource.project_agents
ALTER TABLE resource.project_agents
    ADD COLUMN IF NOT EXISTS profile_box_id uuid NOT NULL,
    ADD COLUMN IF NOT EXISTS worker_target text NOT NULL,
    ADD COLUMN IF NOT EXISTS tags jsonb NOT NULL DEFAULT '[]',
    ADD COLUMN IF NOT EXISTS display_name text,
    ADD COLUMN IF NOT EXISTS owner_agent_id text COLLATE "C",
    ADD COLUMN IF NOT EXISTS status text NOT NULL DEFAULT 'active',
    ADD COLUMN IF NOT EXISTS metadata jsonb NOT NULL DEFAULT '{}',
    ADD COLUMN IF NOT EXISTS created_at timestamptz DEFAULT now(),
    ADD COLUMN IF NOT EXISTS last_seen_at timestamptz;
CREATE INDEX IF NOT EXISTS idx_agents_target ON resource.project_agents (project_id, worker_target, agent_id);

-- changes: resource.tools
ALTER TABLE resource.tools
    ADD COLUMN IF NOT EXISTS description text,
    ADD COLUMN IF NOT EXISTS parameters jsonb NOT NULL DEFAULT '{}',
    ADD COLUMN IF NOT EXISTS target_subject text,
    ADD COLUMN IF NOT EXISTS after_execution text,
    ADD COLUMN IF NOT EXISTS options jsonb NOT NULL DEFAULT '{}';

-- changes: state.agent_state_head
ALTER TABLE state.agent_state_head
    ADD COLUMN IF NOT EXISTS status text DEFAULT 'idle',
    ADD COLUMN IF NOT EXISTS active_agent_turn_id text COLLATE "C",
    ADD COLUMN IF NOT EXISTS active_channel_id text,
    ADD COLUMN IF NOT EXISTS turn_epoch bigint DEFAULT 0,
    ADD COLUMN IF NOT EXISTS active_recursion_depth integer DEFAULT 0,
    ADD COLUMN IF NOT EXISTS updated_at timestamptz DEFAULT now(),
    ADD COLUMN IF NOT EXISTS parent_step_id text COLLATE "C",
    ADD COLUMN IF NOT EXISTS trace_id text COLLATE "C",
    ADD COLUMN IF NOT EXISTS profile_box_id uuid,
    ADD COLUMN IF NOT EXISTS context_box_id uuid,
    ADD COLUMN IF NOT EXISTS output_box_id uuid,
    ADD COLUMN IF NOT EXISTS expecting_correlation_id text,
    ADD COLUMN IF NOT EXISTS waiting_tool_count integer NOT NULL DEFAULT 0,
    ADD COLUMN IF NOT EXISTS resume_deadline timestamptz;
CREATE INDEX IF NOT EXISTS idx_head_active ON state.agent_state_head (project_id, status) WHERE status <> 'idle';

-- changes: state.agent_state_pointers
ALTER TABLE state.agent_state_pointers
    ADD COLUMN IF NOT EXISTS memory_context_box_id uuid,
    ADD COLUMN IF NOT EXISTS last_output_box_id uuid,
    ADD COLUMN IF NOT EXISTS updated_at timestamptz DEFAULT now();

-- changes: state.agent_inbox
DO $$ BEGIN
    IF pg_get_indexdef(to_regclass('state.idx_inbox_open')) NOT LIKE '%agent_id, status,%' THEN
        DROP INDEX state.idx_inbox_open; END IF; END $$;
ALTER TABLE state.agent_inbox
    ADD COLUMN IF NOT EXISTS agent_id text COLLATE "C" NOT NULL,
    ADD COLUMN IF NOT EXISTS channel_id text NOT NULL DEFAULT 'public',
    ADD COLUMN IF NOT EXISTS message_type text NOT NULL,
    ADD COLUMN IF NOT EXISTS enqueue_mode text,
    ADD COLUMN IF NOT EXISTS correlation_id text COLLATE "C",
    ADD COLUMN IF NOT EXISTS agent_turn_id text COLLATE "C",
    ADD COLUMN IF NOT EXISTS turn_epoch bigint NOT NULL DEFAULT 0,
    ADD COLUMN IF NOT EXISTS context_headers jsonb NOT NULL DEFAULT '{}',
    ADD COLUMN IF NOT EXISTS payload jsonb NOT NULL DEFAULT '{}',
    ADD COLUMN IF NOT EXISTS status text NOT NULL DEFAULT 'pending',
    ADD COLUMN IF NOT EXISTS retry_count integer NOT NULL DEFAULT 0,
    ADD COLUMN IF NOT EXISTS next_retry_at timestamptz NOT NULL DEFAULT now(),
    ADD COLUMN IF NOT EXISTS last_error text,
    ADD COLUMN IF NOT EXISTS defer_reason text,
    ADD COLUMN IF NOT EXISTS processed_at timestamptz,
    ADD COLUMN IF NOT EXISTS archived_at timestamptz,
    ADD COLUMN IF NOT EXISTS created_at timestamptz DEFAULT now();
CREATE UNIQUE INDEX IF NOT EXISTS idx_agent_inbox_unique ON state.agent_inbox
    (project_id, message_type, md5(correlation_id));
CREATE INDEX IF NOT EXISTS idx_inbox_due ON state.agent_inbox (project_id, next_retry_at, created_at, inbox_id)
    WHERE status IN ('pending', 'deferred');
CREATE INDEX IF NOT EXISTS idx_inbox_open ON state.agent_inbox
    (project_id, agent_id, status, created_at, inbox_id)
    WHERE status IN ('queued', 'pending', 'deferred', 'processing');
CREATE INDEX IF NOT EXISTS idx_inbox_dead ON state.agent_inbox (project_id, created_at, inbox_id)
    WHERE status = 'error';
CREATE INDEX IF NOT EXISTS idx_inbox_turn ON state.agent_inbox (project_id, agent_turn_id);
CREATE INDEX IF NOT EXISTS idx_inbox_created ON state.agent_inbox (project_id, created_at, inbox_id);

-- changes: state.execution_edges
ALTER TABLE state.execution_edges
    ADD COLUMN IF NOT EXISTS channel_id text,
    ADD COLUMN IF NOT EXISTS primitive text NOT NULL,
    ADD COLUMN IF NOT EXISTS edge_phase text NOT NULL,
    ADD COLUMN IF NOT EXISTS source_agent_id text COLLATE "C",
    ADD COLUMN IF NOT EXISTS source_agent_turn_id text COLLATE "C",
    ADD COLUMN IF NOT EXISTS source_step_id text COLLATE "C",
    ADD COLUMN IF NOT EXISTS target_agent_id text COLLATE "C",
    ADD COLUMN IF NOT EXISTS target_agent_turn_id text COLLATE "C",
    ADD COLUMN IF NOT EXISTS correlation_id text COLLATE "C",
    ADD COLUMN IF NOT EXISTS enqueue_mode text,
    ADD COLUMN IF NOT EXISTS recursion_depth integer NOT NULL CHECK (recursion_depth >= 0),
    ADD COLUMN IF NOT EXISTS trace_id text COLLATE "C",
    ADD COLUMN IF NOT EXISTS parent_step_id text COLLATE "C",
    ADD COLUMN IF NOT EXISTS metadata jsonb NOT NULL DEFAULT '{}',
    ADD COLUMN IF NOT EXISTS created_at timestamptz DEFAULT now();
CREATE UNIQUE INDEX IF NOT EXISTS idx_execution_edges_unique ON state.execution_edges
    (project_id, md5(correlation_id), primitive, edge_phase);
CREATE INDEX IF NOT EXISTS idx_execution_edges_trace ON state.execution_edges (project_id, trace_id);
CREATE INDEX IF NOT EXISTS idx_edges_target_turn ON state.execution_edges (project_id, target_agent_turn_id);
CREATE INDEX IF NOT EXISTS idx_edges_source_turn ON state.execution_edges (project_id, source_agent_turn_id);

-- changes: state.identity_edges
ALTER TABLE state.identity_edges
    ADD COLUMN IF NOT EXISTS channel_id text,
    ADD COLUMN IF NOT EXISTS action text NOT NULL,
    ADD COLUMN IF NOT EXISTS source_agent_id text COLLATE "C",
    ADD COLUMN IF NOT EXISTS target_agent_id text COLLATE "C" NOT NULL,
    ADD COLUMN IF NOT EXISTS trace_id text COLLATE "C",
    ADD COLUMN IF NOT EXISTS parent_step_id text COLLATE "C",
    ADD COLUMN IF NOT EXISTS metadata jsonb NOT NULL DEFAULT '{}',
    ADD COLUMN IF NOT EXISTS created_at timestamptz NOT NULL DEFAULT now();
CREATE INDEX IF NOT EXISTS idx_identity_edges_target ON state.identity_edges
    (project_id, target_agent_id, created_at);

-- changes: state.agent_steps
ALTER TABLE state.agent_steps
    ADD COLUMN IF NOT EXISTS agent_turn_id text COLLATE "C" NOT NULL,
    ADD COLUMN IF NOT EXISTS channel_id text,
    ADD COLUMN IF NOT EXISTS parent_step_id text COLLATE "C",
    ADD COLUMN IF NOT EXISTS trace_id text COLLATE "C",
    ADD COLUMN IF NOT EXISTS status text NOT NULL,
    ADD COLUMN IF NOT EXISTS profile_box_id uuid,
    ADD COLUMN IF NOT EXISTS context_box_id uuid,
    ADD COLUMN IF NOT EXISTS output_box_id uuid,
    ADD COLUMN IF NOT EXISTS request_box_id uuid,
    ADD COLUMN IF NOT EXISTS api_log_id bigint,
    ADD COLUMN IF NOT EXISTS tool_call_ids jsonb,
    ADD COLUMN IF NOT EXISTS error text,
    ADD COLUMN IF NOT EXISTS metadata jsonb NOT NULL DEFAULT '{}',
    ADD COLUMN IF NOT EXISTS started_at timestamptz DEFAULT now(),
    ADD COLUMN IF NOT EXISTS ended_at timestamptz;
CREATE INDEX IF NOT EXISTS idx_steps_turn ON state.agent_steps (project_id, agent_turn_id, started_at);

-- changes: state.turn_waiting_tools
ALTER TABLE state.turn_waiting_tools
    ADD COLUMN IF NOT EXISTS step_id text COLLATE "C" NOT NULL,
    ADD COLUMN IF NOT EXISTS tool_name text NOT NULL,
    ADD COLUMN IF NOT EXISTS wait_status text NOT NULL CHECK (wait_status IN ('waiting', 'received', 'applied', 'expired', 'dropped')),
    ADD COLUMN IF NOT EXISTS tool_result_card_id text COLLATE "C",
    ADD COLUMN IF NOT EXISTS received_at timestamptz,
    ADD COLUMN IF NOT EXISTS applied_at timestamptz,
    ADD COLUMN IF NOT EXISTS created_at timestamptz NOT NULL DEFAULT now(),
    ADD COLUMN IF NOT EXISTS updated_at timestamptz NOT NULL DEFAULT now();
CREATE INDEX IF NOT EXISTS idx_waiting_turn ON state.turn_waiting_tools (project_id, agent_turn_id);

-- changes: cbx.box_info
ALTER TABLE cbx.box_info
    ADD COLUMN IF NOT EXISTS title text,
    ADD COLUMN IF NOT EXISTS provenance jsonb,
    ADD COLUMN IF NOT EXISTS created_at timestamptz NOT NULL DEFAULT now();

-- changes: cbx.turns
DROP INDEX IF EXISTS cbx.idx_turns_report_to;
ALTER TABLE cbx.turns
    ADD COLUMN IF NOT EXISTS agent_id text COLLATE "C" NOT NULL,
    ADD COLUMN IF NOT EXISTS output_start integer,
    ADD COLUMN IF NOT EXISTS report_to jsonb,
    ADD COLUMN IF NOT EXISTS end_status text CHECK (end_status IN ('success', 'failed', 'canceled', 'timeout', 'partial')),
    ADD COLUMN IF NOT EXISTS end_epoch bigint,
    ADD COLUMN IF NOT EXISTS deliverable_card_id text COLLATE "C",
    ADD COLUMN IF NOT EXISTS error_code text,
    ADD COLUMN IF NOT EXISTS error text,
    ADD COLUMN IF NOT EXISTS created_at timestamptz NOT NULL DEFAULT now(),
    ADD COLUMN IF NOT EXISTS ended_at timestamptz;
CREATE INDEX IF NOT EXISTS idx_turns_suffix ON cbx.turns (project_id, reverse(agent_turn_id));
CREATE INDEX IF NOT EXISTS idx_turns_unended ON cbx.turns (project_id, agent_turn_id) WHERE end_status IS NULL;
ANALYZE cbx.turns;

-- changes: cbx.leases
DROP INDEX IF EXISTS cbx.idx_leases_agent;
ALTER TABLE cbx.leases
    ADD COLUMN IF NOT EXISTS agent_id text COLLATE "C" NOT NULL,
    ADD COLUMN IF NOT EXISTS agent_turn_id text COLLATE "C",
    ADD COLUMN IF NOT EXISTS turn_epoch bigint NOT NULL,
    ADD COLUMN IF NOT EXISTS owner text COLLATE "C" NOT NULL,
    ADD COLUMN IF NOT EXISTS claimed_at timestamptz NOT NULL,
    ADD COLUMN IF NOT EXISTS heartbeat_at timestamptz NOT NULL,
    ADD COLUMN IF NOT EXISTS expires_at timestamptz NOT NULL;

-- changes: cbx.workers
ALTER TABLE cbx.workers
    ADD COLUMN IF NOT EXISTS project_id text COLLATE "C",
    ADD COLUMN IF NOT EXISTS worker_target text NOT NULL,
    ADD COLUMN IF NOT EXISTS host text NOT NULL,
    ADD COLUMN IF NOT EXISTS pid integer NOT NULL,
    ADD COLUMN IF NOT EXISTS concurrency integer NOT NULL,
    ADD COLUMN IF NOT EXISTS started_at timestamptz NOT NULL,
    ADD COLUMN IF NOT EXISTS heartbeat_at timestamptz NOT NULL,
    ADD COLUMN IF NOT EXISTS expires_at timestamptz NOT NULL;

-- changes: cbx.audit
ALTER TABLE cbx.audit
    ADD COLUMN IF NOT EXISTS agent_id text COLLATE "C" NOT NULL,
    ADD COLUMN IF NOT EXISTS agent_turn_id text COLLATE "C",
    ADD COLUMN IF NOT EXISTS action text NOT NULL,
    ADD COLUMN IF NOT EXISTS actor text NOT NULL,
    ADD COLUMN IF NOT EXISTS reason text,
    ADD COLUMN IF NOT EXISTS epoch_before bigint,
    ADD COLUMN IF NOT EXISTS epoch_after bigint,
    ADD COLUMN IF NOT EXISTS detail jsonb NOT NULL DEFAULT '{}',
    ADD COLUMN IF NOT EXISTS created_at timestamptz NOT NULL DEFAULT now();
CREATE INDEX IF NOT EXISTS idx_audit_turn ON cbx.audit (project_id, agent_turn_id, created_at);

-- changes: cbx.project_settings
ALTER TABLE cbx.project_settings
    ADD COLUMN IF NOT EXISTS enable_share_context boolean,
    ADD COLUMN IF NOT EXISTS reproducible_layers jsonb NOT NULL DEFAULT '[]';
