-- Settings of projects.

-- makes: cbx.project_settings
-- What public.projects has no column for. enable_share_context: null leaves it to each kind of process.
CREATE TABLE IF NOT EXISTS cbx.project_settings (
    project_id           text COLLATE "C" PRIMARY KEY,
    enable_share_context boolean,
    reproducible_layers  jsonb NOT NULL DEFAULT '[]'
);
