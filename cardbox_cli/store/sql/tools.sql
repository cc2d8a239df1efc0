-- fragment: tool_json
json_build_object({fields:Tool o},
    'parameters', CASE WHEN jsonb_typeof(o.parameters) = 'object' THEN o.parameters ELSE '{}' END,
    'options', CASE WHEN jsonb_typeof(o.options) = 'object' THEN o.options ELSE '{}' END
)::text

-- name: insert_tool
-- Writes the tool unless its name is taken. Returns it if it was written.
WITH o AS (
    INSERT INTO resource.tools AS o
        (project_id, tool_name, description, parameters, target_subject, after_execution, options)
    VALUES (%(project_id)s, %(tool_name)s, %(description)s, %(parameters)s, %(target_subject)s,
        %(after_execution)s, %(options)s)
    ON CONFLICT DO NOTHING
    RETURNING o.*
)
SELECT {tool_json} FROM o

-- name: tool_by_name
-- The tool with this name.
SELECT {tool_json}
FROM resource.tools AS o
WHERE o.project_id = %(project_id)s AND o.tool_name = %(tool_name)s

-- name: lock_tool
-- The tool, locked.
SELECT {tool_json}
FROM resource.tools AS o
WHERE o.project_id = %(project_id)s AND o.tool_name = %(tool_name)s
FOR UPDATE

-- name: update_tool
-- Changes a locked tool.
WITH o AS (
    UPDATE resource.tools AS o
    SET description = %(description)s, parameters = %(parameters)s, target_subject = %(target_subject)s,
        after_execution = %(after_execution)s, options = %(options)s
    WHERE o.project_id = %(project_id)s AND o.tool_name = %(tool_name)s
    RETURNING o.*
)
SELECT {tool_json} FROM o

-- name: delete_tool
-- Deletes a tool.
DELETE FROM resource.tools AS o WHERE o.project_id = %(project_id)s AND o.tool_name = %(tool_name)s

-- name: list_tools
-- All tools of the project by name, or those with these names.
SELECT {tool_json}
FROM resource.tools AS o
WHERE o.project_id = %(project_id)s AND (%(names)s::text[] IS NULL OR o.tool_name = ANY(%(names)s))
ORDER BY o.tool_name

-- name: tool_names_like
-- The names of the project's tools of about the same length, those with the same first letter first.
SELECT o.tool_name
FROM resource.tools AS o
WHERE o.project_id = %(project_id)s AND abs(length(o.tool_name) - length(%(name)s::text)) <= 4
ORDER BY left(o.tool_name, 1) = left(%(name)s::text, 1) DESC, o.tool_name
LIMIT %(limit)s
