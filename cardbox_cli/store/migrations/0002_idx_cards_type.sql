-- Without it a rare type is looked for everywhere.
-- no-transaction: public.idx_cards_type

-- changes: public.cards
CREATE INDEX CONCURRENTLY IF NOT EXISTS idx_cards_type ON public.cards (tenant_id, (metadata ->> 'type'));
