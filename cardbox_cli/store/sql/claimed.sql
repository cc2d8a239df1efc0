-- name: claimed_situation
-- What decides on a claimed row: it, the head of its agent, its lease, and what is kept of its turn. Locks the
-- head, then the lease, then the row. A lease that was made while it waited is not seen.
WITH head AS MATERIALIZED (
    SELECT h.*
    FROM state.agent_state_head AS h
    WHERE h.project_id = %(project_id)s AND h.agent_id = (
        SELECT i.agent_id
        FROM state.agent_inbox AS i
        WHERE i.project_id = %(project_id)s AND i.inbox_id = %(inbox_id)s)
    FOR UPDATE
), lease AS MATERIALIZED (
    SELECT l.*
    FROM cbx.leases AS l
    WHERE l.project_id = %(project_id)s AND l.inbox_id = %(inbox_id)s AND (SELECT count(*) FROM head) >= 0
    FOR UPDATE
), claimed AS MATERIALIZED (
    SELECT i.*
    FROM state.agent_inbox AS i
    WHERE i.project_id = %(project_id)s AND i.inbox_id = %(inbox_id)s AND (SELECT count(*) FROM lease) >= 0
    FOR UPDATE
)
SELECT json_build_object(
    'row', ({inbox_json})::json,
    'head', (SELECT ({head_json})::json FROM head AS h),
    'lease', (SELECT ({lease_json})::json FROM lease AS l),
    'output_start', (
        SELECT t.output_start
        FROM cbx.turns AS t
        WHERE t.project_id = %(project_id)s AND t.agent_turn_id = (SELECT {turn_of_row} FROM claimed AS i))
)::text
FROM claimed AS i
