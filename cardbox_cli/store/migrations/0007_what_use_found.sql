-- What a worker cannot do, what its commands wrote on stderr, and two settings of projects.

-- changes: cbx.workers
ALTER TABLE cbx.workers
    ADD COLUMN IF NOT EXISTS last_error text,
    ADD COLUMN IF NOT EXISTS last_error_at timestamptz;

-- changes: cbx.project_settings
ALTER TABLE cbx.project_settings
    ADD COLUMN IF NOT EXISTS allow_incomplete_context boolean NOT NULL DEFAULT false,
    ADD COLUMN IF NOT EXISTS knowledge_scope text NOT NULL DEFAULT 'project'
        CHECK (knowledge_scope IN ('project', 'boxes', 'none'));

-- makes: cbx.logs
-- What the commands of a turn wrote on stderr, bounded: its last bytes. tool_call_id: null for the model's command.
-- stderr_bytes: how many it wrote. exit_code: negative where a signal ended it, null where cbx did.
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
