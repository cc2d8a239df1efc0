-- name: save_profile
-- Writes a name, which points to a box.
INSERT INTO resource.profiles AS p
    (project_id, profile_box_id, name, worker_target, tags, system_prompt_compiled, updated_at)
VALUES (%(project_id)s, %(profile_box_id)s, %(name)s, %(worker_target)s, %(tags)s, %(system_prompt)s, {now})

-- name: lock_profile_name
-- Lets one transaction at a time write a name.
SELECT pg_advisory_xact_lock(hashtext(%(project_id)s), hashtext(lower(%(name)s)))

-- name: drop_profile_name
-- Deletes a name, ignoring case. Its box stays.
DELETE FROM resource.profiles AS p
WHERE p.project_id = %(project_id)s AND lower(p.name) = lower(%(name)s)

-- fragment: profile_row
SELECT p.name, p.profile_box_id, p.worker_target,
    CASE WHEN jsonb_typeof(p.tags) = 'array' THEN p.tags ELSE '[]' END,
    {instant(p.updated_at)}
FROM resource.profiles AS p

-- name: profile_by_name
-- The profile with this name, preferably in the same case, otherwise ignoring case.
{profile_row}
WHERE p.project_id = %(project_id)s AND lower(p.name) = lower(%(name)s)
ORDER BY p.name = %(name)s DESC, p.updated_at DESC
LIMIT 1

-- name: list_profiles
-- All profiles of the project by name.
{profile_row}
WHERE p.project_id = %(project_id)s
ORDER BY p.name

-- name: profile_names_like
-- The names of the project's profiles of about the same length, those with the same first letter first.
SELECT p.name
FROM resource.profiles AS p
WHERE p.project_id = %(project_id)s AND abs(length(p.name) - length(%(name)s::text)) <= 4
ORDER BY left(p.name, 1) = left(%(name)s::text, 1) DESC, p.name
LIMIT %(limit)s
