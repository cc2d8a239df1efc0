-- People type the beginning of the 8 characters of an id that tables show. Equal keys share their place in a page.
-- no-transaction: public.idx_cards_shown

-- changes: public.cards
CREATE INDEX CONCURRENTLY IF NOT EXISTS idx_cards_shown ON public.cards (tenant_id, left(right(card_id, 8), 4));
