-- Each rule of `sql_rules.py` with a statement that breaks it, and one as near as can be that keeps to all.

-- The project is no condition, one of two, another parameter's, or compared otherwise.

-- broken: project
SELECT 1 FROM public.cards AS c
-- kept
SELECT 1 FROM public.cards AS c WHERE c.tenant_id = %(project_id)s

-- broken: project
SELECT 1 FROM public.cards AS c WHERE c.tenant_id = %(project_id)s OR c.card_id = %(id)s
-- kept
SELECT 1 FROM public.cards AS c WHERE c.tenant_id = %(project_id)s AND (c.card_id = %(id)s OR true)

-- broken: project
SELECT 1 FROM public.cards AS c WHERE c.tenant_id = %(other)s
-- kept
SELECT 1 FROM public.cards AS c WHERE %(project_id)s::text = c.tenant_id

-- broken: project
SELECT 1 FROM public.cards AS c WHERE c.tenant_id >= %(project_id)s
-- kept
SELECT 1 FROM public.cards WHERE tenant_id = %(project_id)s

-- broken: project
SELECT 1 FROM public.cards AS c WHERE c.card_id = %(project_id)s
-- kept
SELECT 1 FROM public.cards AS c WHERE c.tenant_id = %(project_id)s AND c.card_id >= %(id)s

-- A join names the project by a table that is bound, however far away; not through an outer join from its other side.

-- broken: project
SELECT 1 FROM public.cards AS c, public.card_boxes AS b WHERE c.tenant_id = %(project_id)s
-- kept
SELECT 1 FROM public.cards AS c, public.card_boxes AS b WHERE c.tenant_id = %(project_id)s AND b.tenant_id = c.tenant_id

-- broken: project
SELECT 1 FROM public.card_boxes AS b LEFT JOIN public.cards AS c ON c.tenant_id = b.tenant_id AND b.tenant_id = %(project_id)s
-- kept
SELECT 1 FROM public.card_boxes AS b LEFT JOIN public.cards AS c ON c.tenant_id = b.tenant_id WHERE b.tenant_id = %(project_id)s

-- broken: project
SELECT 1 FROM public.card_boxes AS b FULL JOIN public.cards AS c ON c.tenant_id = %(project_id)s AND b.tenant_id = %(project_id)s
-- kept
SELECT 1 FROM public.card_boxes AS b JOIN public.cards AS c ON c.tenant_id = %(project_id)s AND b.tenant_id = c.tenant_id

-- broken: project
SELECT 1 FROM public.cards AS c, public.card_boxes AS b, state.agent_inbox AS i WHERE c.tenant_id = %(project_id)s AND b.tenant_id = i.project_id
-- kept
SELECT 1 FROM public.cards AS c, public.card_boxes AS b, state.agent_inbox AS i WHERE c.tenant_id = %(project_id)s AND b.tenant_id = i.project_id AND i.project_id = c.tenant_id

-- Every level for itself: subqueries, arms of a UNION, CTEs.

-- broken: project
SELECT EXISTS (SELECT FROM public.card_boxes AS b WHERE b.tenant_id = c.tenant_id) FROM public.cards AS c WHERE c.tenant_id = %(project_id)s
-- kept
SELECT EXISTS (SELECT FROM public.card_boxes AS b WHERE b.tenant_id = %(project_id)s) FROM public.cards AS c WHERE c.tenant_id = %(project_id)s

-- broken: project
SELECT 1 FROM public.cards AS c WHERE c.tenant_id = %(project_id)s UNION SELECT 2 FROM public.card_boxes AS b
-- kept
SELECT 1 FROM public.cards AS c WHERE c.tenant_id = %(project_id)s UNION SELECT 2 FROM public.card_boxes AS b WHERE b.tenant_id = %(project_id)s

-- broken: project
WITH x AS (SELECT c.tenant_id FROM public.cards AS c) SELECT 1 FROM x WHERE x.tenant_id = %(project_id)s
-- kept
WITH x AS (SELECT c.tenant_id FROM public.cards AS c WHERE c.tenant_id = %(project_id)s) SELECT 1 FROM x

-- broken: project
SELECT 1 FROM (SELECT c.tenant_id FROM public.cards AS c WHERE c.tenant_id = %(project_id)s) AS x JOIN public.card_boxes AS b ON b.tenant_id = x.tenant_id
-- kept
SELECT 1 FROM (SELECT c.tenant_id FROM public.cards AS c WHERE c.tenant_id = %(project_id)s) AS x JOIN public.card_boxes AS b ON b.tenant_id = %(project_id)s

-- broken: project
SELECT 1 FROM public.cards AS c WHERE c.tenant_id = %(project_id)s AND c.card_id IN (SELECT i.inbox_id FROM state.agent_inbox AS i)
-- kept
SELECT 1 FROM public.cards AS c WHERE c.tenant_id = %(project_id)s AND c.card_id IN (SELECT i.inbox_id FROM state.agent_inbox AS i WHERE i.project_id = %(project_id)s)

-- Writing.

-- broken: project
UPDATE public.cards AS c SET card_id = %(id)s
-- kept
UPDATE public.cards AS c SET card_id = %(id)s WHERE c.tenant_id = %(project_id)s

-- broken: project
UPDATE public.cards AS c SET card_id = %(id)s FROM public.card_boxes AS b WHERE c.tenant_id = %(project_id)s
-- kept
UPDATE public.cards AS c SET card_id = %(id)s FROM public.card_boxes AS b WHERE c.tenant_id = %(project_id)s AND b.tenant_id = c.tenant_id

-- broken: project
DELETE FROM public.cards AS c USING public.card_boxes AS b WHERE c.tenant_id = b.tenant_id
-- kept
DELETE FROM public.cards AS c USING public.card_boxes AS b WHERE c.tenant_id = b.tenant_id AND b.tenant_id = %(project_id)s

-- broken: project
INSERT INTO public.cards (card_id, tenant_id) VALUES (%(id)s, %(project_id)s), (%(id)s, %(other)s)
-- kept
INSERT INTO public.cards (card_id, tenant_id) VALUES (%(id)s, %(project_id)s), (%(other)s, %(project_id)s)

-- broken: project
INSERT INTO public.cards (card_id) VALUES (%(id)s)
-- kept
INSERT INTO public.cards (tenant_id, card_id) SELECT b.tenant_id, %(id)s FROM public.card_boxes AS b WHERE b.tenant_id = %(project_id)s

-- broken: project
INSERT INTO public.cards (tenant_id, card_id) SELECT %(other)s, c.card_id FROM public.cards AS c WHERE c.tenant_id = %(project_id)s
-- kept
INSERT INTO public.cards (tenant_id, card_id) SELECT %(project_id)s::text, c.card_id FROM public.cards AS c WHERE c.tenant_id = %(project_id)s

-- broken: project
TRUNCATE public.cards
-- kept
TRUNCATE cbx_incoming

-- Workers are no project's: their column may be null.

-- broken: project
SELECT 1 FROM cbx.leases AS w WHERE w.project_id IS NOT NULL
-- kept
SELECT 1 FROM cbx.workers AS w WHERE w.project_id IS NULL

-- broken: across
-- across-projects: it is asked for
SELECT 1 FROM public.cards AS c WHERE c.tenant_id = %(project_id)s
-- kept
-- across-projects: it is asked for
SELECT 1 FROM public.cards AS c

-- broken: across
-- across-projects: it is asked for
SELECT 1 FROM public.cards AS c FOR UPDATE SKIP LOCKED
-- kept
-- across-projects: it is asked for
SELECT 1 FROM public.cards AS c LIMIT 1

-- broken: across
-- across-projects: it is asked for
DELETE FROM public.cards AS c
-- kept
DELETE FROM public.cards AS c WHERE c.tenant_id = %(project_id)s

-- broken: project
-- across-projects:
SELECT 1 FROM public.cards AS c
-- kept
-- across-projects: it is asked for
SELECT 1 FROM public.cards AS c

-- broken: clock
SELECT 1 FROM public.cards AS c WHERE c.tenant_id = %(project_id)s AND c.expires_at > now()
-- kept
SELECT 1 FROM public.cards AS c WHERE c.tenant_id = %(project_id)s AND c.expires_at > %(now)s

-- broken: clock
SELECT clock_timestamp() FROM public.cards AS c WHERE c.tenant_id = %(project_id)s
-- kept
SELECT clock_timestamp()

-- broken: clock
SELECT CURRENT_DATE, 1 FROM public.cards AS c WHERE c.tenant_id = %(project_id)s
-- kept
SELECT date '2026-01-01', 1 FROM public.cards AS c WHERE c.tenant_id = %(project_id)s

-- broken: clock
SELECT CURRENT_TIMESTAMP, 1 FROM public.cards AS c WHERE c.tenant_id = %(project_id)s
-- kept
SELECT CURRENT_USER, 1 FROM public.cards AS c WHERE c.tenant_id = %(project_id)s

-- broken: clock
SELECT clock_timestamp() FROM public.cards AS c WHERE c.tenant_id = %(project_id)s AND c.expires_at > now() FOR SHARE
-- kept
SELECT clock_timestamp() FROM public.cards AS c WHERE c.tenant_id = %(project_id)s FOR SHARE

-- broken: clock
WITH held AS (SELECT now() FROM public.cards AS c WHERE c.tenant_id = %(project_id)s FOR SHARE) SELECT 1 FROM held
-- kept
WITH held AS (SELECT 1 FROM public.cards AS c WHERE c.tenant_id = %(project_id)s FOR SHARE) SELECT now() FROM held

-- broken: immutable
SELECT CASE WHEN c.expires_at > now() THEN 1 END FROM public.cards AS c WHERE c.tenant_id = %(project_id)s
-- kept
SELECT CASE WHEN c.expires_at > %(now)s THEN 1 END FROM public.cards AS c WHERE c.tenant_id = %(project_id)s

-- broken: immutable
SELECT 1 FROM public.cards AS c WHERE c.tenant_id = %(project_id)s AND coalesce(c.expires_at, clock_timestamp()) > %(now)s
-- kept
SELECT 1 FROM public.cards AS c WHERE c.tenant_id = %(project_id)s AND coalesce(c.expires_at, %(now)s) > %(now)s

-- broken: immutable
SELECT coalesce(c.expires_at, CURRENT_TIMESTAMP) FROM public.cards AS c WHERE c.tenant_id = %(project_id)s
-- kept
SELECT coalesce(c.expires_at, %(now)s), CURRENT_USER FROM public.cards AS c WHERE c.tenant_id = %(project_id)s

-- broken: immutable
SELECT coalesce(current_setting('a.b', true), c.card_id) FROM public.cards AS c WHERE c.tenant_id = %(project_id)s
-- kept
SELECT coalesce(lower(c.card_id), ''), current_setting('a.b', true) FROM public.cards AS c WHERE c.tenant_id = %(project_id)s

-- broken: immutable
SELECT CASE WHEN true THEN random() END FROM public.cards AS c WHERE c.tenant_id = %(project_id)s
-- kept
SELECT CASE WHEN true THEN sqrt(4) END, random() FROM public.cards AS c WHERE c.tenant_id = %(project_id)s

-- broken: immutable
SELECT coalesce(c.created_at + %(age)s::interval, %(now)s) FROM public.cards AS c WHERE c.tenant_id = %(project_id)s
-- kept
SELECT coalesce(c.created_at - %(now)s, %(age)s::interval) FROM public.cards AS c WHERE c.tenant_id = %(project_id)s

-- broken: immutable
SELECT coalesce(c.created_at::text, '') FROM public.cards AS c WHERE c.tenant_id = %(project_id)s
-- kept
SELECT coalesce(c.ttl_seconds::text, '') FROM public.cards AS c WHERE c.tenant_id = %(project_id)s

-- broken: immutable
SELECT CASE WHEN to_tsvector('a') IS NULL THEN 1 END FROM public.cards AS c WHERE c.tenant_id = %(project_id)s
-- kept
SELECT CASE WHEN to_tsvector('simple', 'a') IS NULL THEN 1 END FROM public.cards AS c WHERE c.tenant_id = %(project_id)s

-- broken: immutable
UPDATE public.cards AS c SET deleted_at = now() WHERE c.tenant_id = %(project_id)s
-- kept
UPDATE public.cards AS c SET deleted_at = %(now)s WHERE c.tenant_id = %(project_id)s AND random() < 1

-- broken: immutable
UPDATE public.cards AS c SET metadata = jsonb_build_object('a', 1) WHERE c.tenant_id = %(project_id)s
-- kept
UPDATE public.cards AS c SET metadata = c.metadata || %(more)s WHERE c.tenant_id = %(project_id)s

-- broken: immutable
DELETE FROM public.cards AS c WHERE c.tenant_id = %(project_id)s RETURNING json_build_object('id', c.card_id)
-- kept
WITH x AS (DELETE FROM public.cards AS c WHERE c.tenant_id = %(project_id)s RETURNING c.*) SELECT json_build_object('id', x.card_id) FROM x

-- broken: immutable
INSERT INTO cbx.workers (worker_id) VALUES (%(id)s) ON CONFLICT (worker_id) DO UPDATE SET heartbeat_at = now()
-- kept
INSERT INTO cbx.workers (worker_id, pid) VALUES (%(id)s, pg_backend_pid()) ON CONFLICT (worker_id) DO UPDATE SET pid = excluded.pid

-- broken: immutable
SELECT coalesce(now(), NULL) FROM public.cards AS c WHERE c.tenant_id = %(project_id)s
-- kept
SELECT coalesce(now(), NULL) FROM pg_class

-- broken: qualified
SELECT 1 FROM projects
-- kept
WITH projects AS (SELECT 1) SELECT 1 FROM projects, cbx_incoming, pg_class

-- broken: generic-plan
SET plan_cache_mode = 'force_generic_plan'
-- kept
SET plan_cache_mode = 'auto'

-- broken: generic-plan
SELECT set_config('plan_cache_mode', 'force_generic_plan', true)
-- kept
SELECT 1 AS force_generic_plan

-- broken: recursive-claim
WITH RECURSIVE x AS (SELECT 1) SELECT 1 FROM public.cards AS c WHERE c.tenant_id = %(project_id)s FOR UPDATE
-- kept
WITH RECURSIVE x AS (SELECT 1) SELECT 1 FROM public.cards AS c WHERE c.tenant_id = %(project_id)s

-- broken: recursive-claim
WITH RECURSIVE x AS (SELECT 1) DELETE FROM public.cards AS c WHERE c.tenant_id = %(project_id)s
-- kept
WITH x AS (SELECT 1) DELETE FROM public.cards AS c WHERE c.tenant_id = %(project_id)s

-- broken: lease-alone
WITH x AS (INSERT INTO cbx.leases (project_id) VALUES (%(project_id)s)) SELECT 1
-- kept
INSERT INTO cbx.leases (project_id) VALUES (%(project_id)s)

-- broken: lease-alone
WITH x AS (UPDATE state.agent_inbox AS i SET status = 'a' WHERE i.project_id = %(project_id)s) INSERT INTO cbx.leases (project_id) VALUES (%(project_id)s)
-- kept
WITH x AS (UPDATE state.agent_inbox AS i SET status = 'a' WHERE i.project_id = %(project_id)s) DELETE FROM cbx.leases AS l WHERE l.project_id = %(project_id)s

-- broken: insert-source
INSERT INTO public.card_boxes (tenant_id) SELECT %(project_id)s WHERE EXISTS (SELECT FROM public.cards AS c WHERE c.tenant_id = %(project_id)s)
-- kept
INSERT INTO public.card_boxes (tenant_id) SELECT %(project_id)s FROM public.cards AS c WHERE c.tenant_id = %(project_id)s AND EXISTS (SELECT FROM public.card_boxes AS b WHERE b.tenant_id = %(project_id)s)

-- broken: no-columns
SELECT count(*) FROM (SELECT FROM public.cards AS c WHERE c.tenant_id = %(project_id)s) AS x
-- kept
SELECT count(*) FROM (SELECT 1 FROM public.cards AS c WHERE c.tenant_id = %(project_id)s) AS x WHERE EXISTS (SELECT FROM public.cards AS c WHERE c.tenant_id = %(project_id)s)

-- broken: temporary
SELECT 1 FROM public.cards AS c JOIN (SELECT * FROM cbx_incoming) AS n ON true WHERE c.tenant_id = %(project_id)s
-- kept
SELECT 1 FROM public.cards AS c JOIN cbx_incoming AS n ON true WHERE c.tenant_id = %(project_id)s

-- broken: temporary
WITH n AS (SELECT * FROM cbx_incoming) SELECT 1 FROM public.cards AS c, n WHERE c.tenant_id = %(project_id)s
-- kept
WITH n AS MATERIALIZED (SELECT * FROM cbx_incoming) SELECT 1 FROM public.cards AS c, n WHERE c.tenant_id = %(project_id)s

-- broken: searched-case
UPDATE public.cards AS c SET deleted_at = CASE c.card_id WHEN 'a' THEN %(at)s::timestamptz END WHERE c.tenant_id = %(project_id)s
-- kept
UPDATE public.cards AS c SET deleted_at = CASE WHEN c.card_id = 'a' THEN %(at)s::timestamptz END WHERE c.tenant_id = %(project_id)s

-- broken: outer-function
SELECT (SELECT 1 FROM jsonb_array_elements_text(b.card_ids) AS s (id) JOIN public.cards AS c ON c.card_id = s.id WHERE c.tenant_id = %(project_id)s) FROM public.card_boxes AS b WHERE b.tenant_id = %(project_id)s
-- kept
SELECT (SELECT 1 FROM public.cards AS c WHERE c.tenant_id = %(project_id)s AND c.card_id IN (SELECT s.id FROM jsonb_array_elements_text(b.card_ids) AS s (id))) FROM public.card_boxes AS b WHERE b.tenant_id = %(project_id)s

-- broken: outer-function
SELECT (SELECT 1 FROM unnest(ARRAY[b.box_id]) AS s (id), public.cards AS c WHERE c.tenant_id = %(project_id)s) FROM public.card_boxes AS b WHERE b.tenant_id = %(project_id)s
-- kept
SELECT 1 FROM public.card_boxes AS b, unnest(ARRAY[b.box_id]) AS s (id), public.cards AS c WHERE c.tenant_id = %(project_id)s AND b.tenant_id = %(project_id)s
