-- No statement changes what the audit says.

-- changes: cbx.audit
CREATE OR REPLACE FUNCTION cbx.refuse_audit_change() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    RAISE EXCEPTION 'cbx.audit is append-only: no %', TG_OP USING ERRCODE = 'insufficient_privilege'; END $$;
CREATE OR REPLACE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON cbx.audit
    FOR EACH STATEMENT EXECUTE FUNCTION cbx.refuse_audit_change();
