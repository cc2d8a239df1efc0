-- Chats: their transcripts, contexts, runs and steps.

-- makes: cbx.chats
-- The chats, each by its key. entries: how long its transcript is, a chain of boxes of 1,000 cards of which
-- transcript_box_id is the newest. Entries from window_start on are what a run without context sees; those of users
-- from answered on are unanswered. context_box_id: the active context, null where it is empty; context_id is that of
-- a snapshot while it is as loaded from there. version: how often new, load and clear replaced it, by reset_by last.
-- epoch, run_id, owner, lease_expires_at: the run that goes on, if one does.
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
-- Whether another project has a chat of this key.
CREATE INDEX IF NOT EXISTS idx_chats_key ON cbx.chats (chat_key, project_id);

-- makes: cbx.chat_contexts
-- The archived contexts of chats, each a box. terms: what a search finds it by, hashes of its words and of pieces of
-- them, each made with project and chat; search_text: what a search ranks it by. layout: what the file that it was
-- imported from says besides.
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
-- Without a list of what is pending, which every search would go through.
CREATE INDEX IF NOT EXISTS idx_chat_contexts_terms ON cbx.chat_contexts USING gin (terms) WITH (fastupdate = off);

-- makes: cbx.chat_runs
-- The runs of chats. user_card_ids: the messages that it answers, the last with what corrected it. position: that of
-- the last in the transcript; merged: the entries up to which messages are taken in. version: that of the chat's
-- context which its boxes were made of. reply_card_ids: what its command has sent.
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

-- makes: cbx.chat_steps
-- The steps of the runs of chats, as state.agent_steps has those of turns.
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
