-- People type the last characters of a box id. Version 2 had it, too; a file builds one index.
-- no-transaction: public.idx_boxes_suffix

-- changes: public.card_boxes
CREATE INDEX CONCURRENTLY IF NOT EXISTS idx_boxes_suffix ON public.card_boxes
    (tenant_id, reverse(replace(box_id::text, '-', '')) text_pattern_ops);
