-- What keeps lists as fast as they are however long a project's history is, and what an index of texts in Chinese,
-- Japanese and Korean is made of.
-- no-transaction: public.idx_cards_step public.idx_cards_trace public.idx_cards_author
-- no-transaction: state.idx_inbox_agent state.idx_inbox_skipped

-- changes: public.cards
CREATE INDEX CONCURRENTLY IF NOT EXISTS idx_cards_step ON public.cards (tenant_id, (metadata ->> 'step_id'))
    WHERE metadata ->> 'step_id' IS NOT NULL;
CREATE INDEX CONCURRENTLY IF NOT EXISTS idx_cards_trace ON public.cards (tenant_id, (metadata ->> 'trace_id'))
    WHERE metadata ->> 'trace_id' IS NOT NULL;
CREATE INDEX CONCURRENTLY IF NOT EXISTS idx_cards_author ON public.cards (tenant_id, (metadata ->> 'author_id'));

-- changes: state.agent_inbox
CREATE INDEX CONCURRENTLY IF NOT EXISTS idx_inbox_agent ON state.agent_inbox
    (project_id, agent_id, created_at, inbox_id) INCLUDE (message_type);
CREATE INDEX CONCURRENTLY IF NOT EXISTS idx_inbox_skipped ON state.agent_inbox (project_id, created_at, inbox_id)
    WHERE status = 'skipped';

-- changes: cbx.schema_version
-- The characters and the pairs of characters of a text that is written without spaces: Han, kana, Hangul; nothing of
-- the rest. A character is its code point, a pair the first one's times 2^21 and the second's.
CREATE OR REPLACE FUNCTION cbx.bigrams(written text) RETURNS bigint[]
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
SELECT CASE WHEN written ~ '[\u1100-\u11ff\u2e80-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\uff66-\uffdc\U00020000-\U0003ffff]'
THEN (
    SELECT array_agg(DISTINCT gram.code)
    FROM (SELECT string_to_array(regexp_replace(written,
        '[^\u1100-\u11ff\u2e80-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\uff66-\uffdc\U00020000-\U0003ffff]+',
        ' ', 'g'), NULL) AS characters) AS spelled,
    unnest(characters, characters[2:]) AS pair (one, other),
    LATERAL (VALUES (ascii(one)::bigint), (ascii(one)::bigint << 21 | ascii(nullif(other, ' ')))) AS gram (code)
    WHERE one <> ' ' AND gram.code IS NOT NULL)
END $$;
