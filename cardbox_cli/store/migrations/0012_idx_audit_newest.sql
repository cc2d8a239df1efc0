-- People list what was done last.
-- no-transaction: cbx.idx_audit_newest

-- changes: cbx.audit
CREATE INDEX CONCURRENTLY IF NOT EXISTS idx_audit_newest ON cbx.audit (project_id, created_at, audit_id);
