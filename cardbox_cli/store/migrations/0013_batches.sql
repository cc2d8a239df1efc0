-- Batches: children that were asked for together, and whose ends are one result.

-- makes: cbx.batches
-- parent_*: the call that waits for the end; null for a batch that no turn asked for. report_due: the end is still
-- to be reported to that call. join_box_id: the box of what its children delivered.
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

-- makes: cbx.batch_tasks
-- One child each. stop_due: its batch has ended, and its turn is still to be stopped.
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
