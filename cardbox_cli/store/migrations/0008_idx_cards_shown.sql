-- People type the beginning of the last 8 characters of an id, which tables show.
-- no-transaction: public.idx_cards_shown

-- changes: public.cards
CREATE INDEX CONCURRENTLY IF NOT EXISTS idx_cards_shown ON public.cards (tenant_id, right(card_id, 8));
