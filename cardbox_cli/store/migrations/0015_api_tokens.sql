-- Tokens that let programs and browsers read a project over HTTP.

-- makes: cbx.api_tokens
-- token_sha256: SHA-256 of a token, which is shown once and never kept. created_by: the account that made it, as in
-- the audit. A token that is revoked, or has expired, opens nothing.
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
