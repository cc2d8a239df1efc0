-- fragment: project_json
json_build_object({fields:Project p})::text

-- name: insert_project
-- Writes the project unless it exists. Returns it if it was written.
WITH p AS (
    INSERT INTO public.projects AS p (project_id, title, status, owner_id, created_at, updated_at)
    VALUES (%(project_id)s, %(title)s, %(status)s, %(owner_id)s, {now}, {now})
    ON CONFLICT DO NOTHING
    RETURNING p.*
)
SELECT {project_json} FROM p

-- name: project_by_id
-- The project with this id.
SELECT {project_json} FROM public.projects AS p WHERE p.project_id = %(project_id)s

-- name: project_ids
-- The ids and titles of the projects that changed last.
-- across-projects: it lists projects
SELECT p.project_id, p.title FROM public.projects AS p
ORDER BY p.updated_at DESC, p.project_id
LIMIT %(limit)s

-- name: update_project
-- Sets the given values. Returns the project if that changes anything.
WITH p AS (
    UPDATE public.projects AS p
    SET title = coalesce(%(title)s, p.title), status = coalesce(%(status)s, p.status),
        owner_id = coalesce(%(owner_id)s, p.owner_id), updated_at = {now}
    WHERE p.project_id = %(project_id)s
        AND (p.title, p.status, p.owner_id) IS DISTINCT FROM
            (coalesce(%(title)s, p.title), coalesce(%(status)s, p.status), coalesce(%(owner_id)s, p.owner_id))
    RETURNING p.*
)
SELECT {project_json} FROM p

-- name: project_settings
-- The stored settings of the project. No row if none was ever set.
SELECT json_strip_nulls(json_build_object(
    'enable_share_context', s.enable_share_context,
    'reproducible_layers', CASE
        WHEN jsonb_typeof(s.reproducible_layers) = 'array'
            AND NOT jsonb_path_exists(s.reproducible_layers, 'strict $[*] ? (@.type() != "string")')
        THEN s.reproducible_layers ELSE '[]' END,
    'allow_incomplete_context', s.allow_incomplete_context,
    'knowledge_scope', s.knowledge_scope
))::text
FROM cbx.project_settings AS s
WHERE s.project_id = %(project_id)s

-- name: lock_project
-- Locks the project.
SELECT true FROM public.projects AS p WHERE p.project_id = %(project_id)s FOR UPDATE

-- name: save_project_settings
-- Sets all settings of the project.
INSERT INTO cbx.project_settings AS s
    (project_id, enable_share_context, reproducible_layers, allow_incomplete_context, knowledge_scope)
VALUES (%(project_id)s, %(enable_share_context)s, %(reproducible_layers)s, %(allow_incomplete_context)s,
    %(knowledge_scope)s)
ON CONFLICT (project_id) DO UPDATE
SET enable_share_context = EXCLUDED.enable_share_context, reproducible_layers = EXCLUDED.reproducible_layers,
    allow_incomplete_context = EXCLUDED.allow_incomplete_context, knowledge_scope = EXCLUDED.knowledge_scope

-- name: list_projects
-- A page of the projects by id, after the given id if there is one.
-- across-projects: it lists projects
SELECT {project_json}
FROM public.projects AS p
WHERE %(after)s::text IS NULL OR p.project_id > %(after)s
ORDER BY p.project_id
LIMIT %(limit)s

-- name: count_further_projects
-- The number of projects after an id, up to a limit.
-- across-projects: it counts projects
SELECT count(*)
FROM (SELECT 1 FROM public.projects AS p WHERE p.project_id > %(after)s LIMIT %(limit)s) AS further

-- name: project_has_rows
-- Returns whether the project has a card or a box.
SELECT EXISTS (SELECT FROM public.cards AS c WHERE c.tenant_id = %(project_id)s)
    OR EXISTS (SELECT FROM public.card_boxes AS b WHERE b.tenant_id = %(project_id)s)
