-- Writes down every change of a head, an inbox row, a lease, the record of a turn and a box: as the database made
-- it, whatever the program says of it. What a transaction takes back is not written down either. The writer is
-- who the setting `history.writer` of a connection says, which a process is given by PGOPTIONS.
--
-- Who changes a turn holds the head of its agent, so that the numbers of an agent's events are in the order in
-- which they were committed. Where they are not, two transactions had one agent at once, which `history.py` sees.
CREATE SCHEMA history;

CREATE TABLE history.events (
    number      bigserial PRIMARY KEY,
    transaction xid8 NOT NULL DEFAULT pg_current_xact_id(),
    at          timestamptz NOT NULL DEFAULT clock_timestamp(),
    writer      text DEFAULT nullif(current_setting('history.writer', true), ''),
    source      text NOT NULL,
    before      jsonb,
    after       jsonb
);

CREATE FUNCTION history.picked(entry jsonb, columns text[]) RETURNS jsonb LANGUAGE sql IMMUTABLE STRICT AS
    'SELECT jsonb_object_agg(key, value) FROM jsonb_each(entry) WHERE key = ANY (columns)';

-- Its arguments are the columns that matter; a change of others is none.
CREATE FUNCTION history.record() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    earlier jsonb := history.picked(to_jsonb(OLD), TG_ARGV);
    later jsonb := history.picked(to_jsonb(NEW), TG_ARGV);
BEGIN
    IF earlier IS DISTINCT FROM later THEN
        INSERT INTO history.events (source, before, after) VALUES (TG_TABLE_NAME, earlier, later);
    END IF;
    RETURN NULL;
END
$$;

CREATE TRIGGER history AFTER INSERT OR UPDATE OR DELETE ON state.agent_state_head FOR EACH ROW
    EXECUTE FUNCTION history.record('agent_id', 'status', 'active_agent_turn_id', 'turn_epoch', 'output_box_id');
CREATE TRIGGER history AFTER INSERT OR UPDATE OR DELETE ON state.agent_inbox FOR EACH ROW
    EXECUTE FUNCTION history.record('agent_id', 'inbox_id', 'message_type', 'agent_turn_id', 'status', 'turn_epoch');
CREATE TRIGGER history AFTER INSERT OR UPDATE OR DELETE ON cbx.leases FOR EACH ROW
    EXECUTE FUNCTION history.record('agent_id', 'inbox_id', 'agent_turn_id', 'turn_epoch', 'owner', 'claimed_at');
CREATE TRIGGER history AFTER INSERT OR UPDATE OR DELETE ON cbx.turns FOR EACH ROW
    EXECUTE FUNCTION history.record('agent_id', 'agent_turn_id', 'end_status', 'end_epoch', 'deliverable_card_id');

-- Boxes grow: their length is enough.
CREATE FUNCTION history.record_box() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO history.events (source, before, after)
    VALUES (TG_TABLE_NAME, jsonb_build_object('box_id', OLD.box_id, 'cards', jsonb_array_length(to_jsonb(OLD.card_ids))),
        jsonb_build_object('box_id', NEW.box_id, 'cards', jsonb_array_length(to_jsonb(NEW.card_ids))));
    RETURN NULL;
END
$$;

CREATE TRIGGER history AFTER UPDATE ON public.card_boxes FOR EACH ROW EXECUTE FUNCTION history.record_box();
