-- The same of boxes.
-- no-transaction: public.idx_boxes_shown

-- changes: public.card_boxes
CREATE INDEX CONCURRENTLY IF NOT EXISTS idx_boxes_shown ON public.card_boxes
    (tenant_id, right(box_id::text, 8) text_pattern_ops);
