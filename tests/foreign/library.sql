-- The tables of cards and boxes as a card-box library (cardbox 0.0.1) makes them: section 1 of the interop facts.

CREATE TABLE cards (
    card_id text PRIMARY KEY, tenant_id text NOT NULL, content jsonb, tool_calls jsonb, tool_call_id text,
    ttl_seconds integer, expires_at timestamptz, deleted_at timestamptz, metadata jsonb,
    created_at timestamptz DEFAULT current_timestamp
);
CREATE INDEX idx_cards_expires_at ON cards (expires_at);
CREATE INDEX idx_cards_tenant_id ON cards (tenant_id);
CREATE INDEX idx_cards_tool_call_id ON cards USING hash (tool_call_id);
CREATE INDEX idx_cards_meta_agent_turn_type
    ON cards ((metadata ->> 'agent_turn_id'), (metadata ->> 'step_id'), (metadata ->> 'type'));
CREATE UNIQUE INDEX uniq_cards_tool_result_call ON cards (tenant_id, md5(tool_call_id))
    WHERE tool_call_id IS NOT NULL AND metadata ->> 'type' = 'tool.result';
CREATE TABLE card_boxes (
    box_id uuid PRIMARY KEY, tenant_id text NOT NULL, card_ids jsonb, parent_ids jsonb,
    updated_at timestamptz DEFAULT current_timestamp
);
CREATE INDEX idx_boxes_tenant_id ON card_boxes (tenant_id, box_id);
CREATE TABLE card_operation_logs (log_id bigint PRIMARY KEY, tenant_id text NOT NULL, operation jsonb);
