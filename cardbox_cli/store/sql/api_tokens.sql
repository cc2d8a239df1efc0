-- fragment: api_token_json
json_build_object({fields:ApiToken t})::text

-- name: insert_api_token
-- Writes the token unless its id is taken. Returns it if it was written.
WITH t AS (
    INSERT INTO cbx.api_tokens
        (project_id, token_id, label, token_sha256, created_by, created_at, expires_at)
    VALUES (%(project_id)s, %(token_id)s, %(label)s, %(token_sha256)s, %(actor)s, %(now)s,
        %(now)s::timestamptz + %(lasts)s::interval)
    ON CONFLICT DO NOTHING
    RETURNING *
)
SELECT {api_token_json} FROM t

-- name: api_tokens
-- All tokens of the project, oldest first.
SELECT {api_token_json} FROM cbx.api_tokens AS t
WHERE t.project_id = %(project_id)s
ORDER BY t.created_at, t.token_id

-- name: api_tokens_not_revoked
-- The tokens that are not revoked: id, hash and end.
SELECT t.token_id, t.token_sha256, t.expires_at FROM cbx.api_tokens AS t
WHERE t.project_id = %(project_id)s AND t.revoked_at IS NULL

-- name: revoke_api_token
-- Revokes a token once. Returns it.
WITH t AS (
    UPDATE cbx.api_tokens AS o SET revoked_at = coalesce(o.revoked_at, %(now)s)
    WHERE o.project_id = %(project_id)s AND o.token_id = %(token_id)s
    RETURNING o.*
)
SELECT {api_token_json} FROM t
