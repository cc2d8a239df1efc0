-- fragment: agent_pairs
{fields:Agent r},
    'tags', CASE WHEN jsonb_typeof(r.tags) = 'array' THEN r.tags ELSE '[]' END,
    'metadata', CASE WHEN jsonb_typeof(r.metadata) = 'object' THEN r.metadata ELSE '{}' END

-- fragment: agent_json
json_build_object({agent_pairs})::text

-- fragment: roster_entry_json
json_build_object({agent_pairs},
    'head', CASE WHEN h.agent_id IS NOT NULL THEN ({head_json})::json END)::text

-- fragment: roster_with_heads
resource.project_agents AS r
    LEFT JOIN state.agent_state_head AS h ON h.project_id = r.project_id AND h.agent_id = r.agent_id

-- name: agent_by_id
-- The agent with this id.
SELECT {agent_json}
FROM resource.project_agents AS r
WHERE r.project_id = %(project_id)s AND r.agent_id = %(agent_id)s

-- name: lock_agent
-- The agent, locked.
SELECT {agent_json}
FROM resource.project_agents AS r
WHERE r.project_id = %(project_id)s AND r.agent_id = %(agent_id)s
FOR UPDATE

-- name: roster_entry
-- The agent with this id and its head.
SELECT {roster_entry_json}
FROM {roster_with_heads}
WHERE r.project_id = %(project_id)s AND r.agent_id = %(agent_id)s

-- name: agent_places
-- An agent, its active turn, and its boxes. The boxes of a turn appear only while the turn is active.
SELECT json_build_object(
    'agent', ({agent_json})::json,
    'status', coalesce(h.status, 'idle'),
    'active_agent_turn_id', h.active_agent_turn_id,
    'active_channel_id', h.active_channel_id,
    'profile_box_id', coalesce(h.profile_box_id::text, r.profile_box_id::text),
    'context_box_id', h.context_box_id,
    'output_box_id', h.output_box_id,
    'memory_context_box_id', p.memory_context_box_id,
    'last_output_box_id', p.last_output_box_id)::text
FROM resource.project_agents AS r
    LEFT JOIN state.agent_state_head AS h ON h.project_id = r.project_id AND h.agent_id = r.agent_id
        AND coalesce(h.status, 'idle') <> 'idle'
    LEFT JOIN state.agent_state_pointers AS p ON p.project_id = r.project_id AND p.agent_id = r.agent_id
WHERE r.project_id = %(project_id)s AND r.agent_id = %(agent_id)s

-- fragment: agent_is_in_range
    r.project_id = %(project_id)s
    AND (%(after)s::text IS NULL OR r.agent_id > %(after)s)
    AND (%(worker_target)s::text IS NULL OR r.worker_target = %(worker_target)s)
    AND (%(tag)s::text IS NULL OR r.tags @> to_jsonb(%(tag)s::text))

-- name: list_agents
-- A page of the project's agents and their heads by id, after the given id if there is one.
SELECT {roster_entry_json}
FROM {roster_with_heads}
WHERE {agent_is_in_range}
ORDER BY r.agent_id
LIMIT %(limit)s

-- name: count_further_agents
-- The number of agents in a list after an id, up to a limit.
SELECT count(*)
FROM (SELECT 1 FROM resource.project_agents AS r WHERE {agent_is_in_range} LIMIT %(limit)s) AS further

-- name: insert_agent
-- Writes the agent unless it exists. Returns it if it was written.
WITH r AS (
    INSERT INTO resource.project_agents AS r
        (project_id, agent_id, profile_box_id, worker_target, tags, display_name, owner_agent_id, status,
         metadata, created_at)
    VALUES (%(project_id)s, %(agent_id)s, %(profile_box_id)s, %(worker_target)s, %(tags)s, %(display_name)s,
        %(owner_agent_id)s, 'active', %(metadata)s, {now})
    ON CONFLICT DO NOTHING
    RETURNING r.*
)
SELECT {agent_json} FROM r

-- name: update_agent
-- Changes a locked agent. As in other programs, its status and all other metadata stay.
WITH r AS (
    UPDATE resource.project_agents AS r
    SET profile_box_id = %(profile_box_id)s, worker_target = %(worker_target)s, tags = %(tags)s,
        display_name = %(display_name)s, owner_agent_id = %(owner_agent_id)s,
        metadata = CASE WHEN jsonb_typeof(r.metadata) = 'object' THEN r.metadata ELSE '{}' END || %(metadata)s
    WHERE r.project_id = %(project_id)s AND r.agent_id = %(agent_id)s
    RETURNING r.*
)
SELECT {agent_json} FROM r

-- fragment: never_did_anything
NOT EXISTS (
    SELECT FROM state.agent_inbox AS i
    WHERE i.project_id = %(project_id)s AND i.agent_id = %(agent_id)s
        AND i.status IN {open_statuses})
AND NOT EXISTS (
    SELECT FROM state.agent_steps AS s
    WHERE s.project_id = %(project_id)s AND s.agent_id = %(agent_id)s)

-- name: never_did_anything
-- Returns whether an agent has neither open rows nor steps, so that it never had a head.
SELECT {never_did_anything}

-- name: insert_first_head
-- Writes the idle head of an agent that never did anything. A lost head must be rebuilt instead.
INSERT INTO state.agent_state_head AS h (project_id, agent_id, status, turn_epoch, profile_box_id, updated_at)
SELECT r.project_id, r.agent_id, 'idle', 0, %(profile_box_id)s::uuid, {now}
FROM resource.project_agents AS r
WHERE r.project_id = %(project_id)s AND r.agent_id = %(agent_id)s
    AND {never_did_anything}
ON CONFLICT DO NOTHING

-- name: insert_identity_edge
-- Records the agent or person that created or changed an agent.
INSERT INTO state.identity_edges AS e
    (edge_id, project_id, action, source_agent_id, target_agent_id, metadata, created_at)
VALUES (%(edge_id)s, %(project_id)s, %(action)s, %(source_agent_id)s, %(agent_id)s, %(metadata)s, {now})

-- name: agent_ids_beginning
-- The project's agents whose ids begin with `beginning`, each with its worker target.
SELECT r.agent_id, r.worker_target
FROM resource.project_agents AS r
WHERE r.project_id = %(project_id)s AND starts_with(r.agent_id, %(beginning)s)
ORDER BY r.agent_id
LIMIT %(limit)s

-- name: agent_ids_like
-- The ids of the project's agents of about the same length, those with the same first letter first.
SELECT r.agent_id
FROM resource.project_agents AS r
WHERE r.project_id = %(project_id)s AND abs(length(r.agent_id) - length(%(name)s::text)) <= 4
ORDER BY left(r.agent_id, 1) = left(%(name)s::text, 1) DESC, r.agent_id
LIMIT %(limit)s
