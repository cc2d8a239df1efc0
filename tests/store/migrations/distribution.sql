-- distribute public.cards
BEGIN;
DROP INDEX IF EXISTS public.uniq_cards_card_id;
SELECT create_distributed_table('public.cards', 'tenant_id', colocate_with => 'none');
SELECT truncate_local_data_after_distributing_table('public.cards');
COMMIT;

-- distribute public.projects
BEGIN;
SELECT create_distributed_table('public.projects', 'project_id', colocate_with => 'public.cards');
SELECT truncate_local_data_after_distributing_table('public.projects');
COMMIT;

-- distribute public.card_boxes
BEGIN;
SELECT create_distributed_table('public.card_boxes', 'tenant_id', colocate_with => 'public.cards');
SELECT truncate_local_data_after_distributing_table('public.card_boxes');
COMMIT;

-- distribute resource.profiles
BEGIN;
SELECT create_distributed_table('resource.profiles', 'project_id', colocate_with => 'public.cards');
SELECT truncate_local_data_after_distributing_table('resource.profiles');
COMMIT;

-- distribute resource.project_agents
BEGIN;
SELECT create_distributed_table('resource.project_agents', 'project_id', colocate_with => 'public.cards');
SELECT truncate_local_data_after_distributing_table('resource.project_agents');
COMMIT;

-- distribute resource.tools
BEGIN;
SELECT create_distributed_table('resource.tools', 'project_id', colocate_with => 'public.cards');
SELECT truncate_local_data_after_distributing_table('resource.tools');
COMMIT;

-- distribute state.agent_state_head
BEGIN;
SELECT create_distributed_table('state.agent_state_head', 'project_id', colocate_with => 'public.cards');
SELECT truncate_local_data_after_distributing_table('state.agent_state_head');
COMMIT;

-- distribute state.agent_state_pointers
BEGIN;
SELECT create_distributed_table('state.agent_state_pointers', 'project_id', colocate_with => 'public.cards');
SELECT truncate_local_data_after_distributing_table('state.agent_state_pointers');
COMMIT;

-- distribute state.agent_inbox
BEGIN;
SELECT create_distributed_table('state.agent_inbox', 'project_id', colocate_with => 'public.cards');
SELECT truncate_local_data_after_distributing_table('state.agent_inbox');
COMMIT;

-- distribute state.execution_edges
BEGIN;
SELECT create_distributed_table('state.execution_edges', 'project_id', colocate_with => 'public.cards');
SELECT truncate_local_data_after_distributing_table('state.execution_edges');
COMMIT;

-- distribute state.identity_edges
BEGIN;
SELECT create_distributed_table('state.identity_edges', 'project_id', colocate_with => 'public.cards');
SELECT truncate_local_data_after_distributing_table('state.identity_edges');
COMMIT;

-- distribute state.agent_steps
BEGIN;
SELECT create_distributed_table('state.agent_steps', 'project_id', colocate_with => 'public.cards');
SELECT truncate_local_data_after_distributing_table('state.agent_steps');
COMMIT;

-- distribute state.turn_waiting_tools
BEGIN;
SELECT create_distributed_table('state.turn_waiting_tools', 'project_id', colocate_with => 'public.cards');
SELECT truncate_local_data_after_distributing_table('state.turn_waiting_tools');
COMMIT;

-- distribute cbx.box_info
BEGIN;
SELECT create_distributed_table('cbx.box_info', 'project_id', colocate_with => 'public.cards');
SELECT truncate_local_data_after_distributing_table('cbx.box_info');
COMMIT;

-- distribute cbx.turns
BEGIN;
SELECT create_distributed_table('cbx.turns', 'project_id', colocate_with => 'public.cards');
SELECT truncate_local_data_after_distributing_table('cbx.turns');
COMMIT;

-- distribute cbx.leases
BEGIN;
SELECT create_distributed_table('cbx.leases', 'project_id', colocate_with => 'public.cards');
SELECT truncate_local_data_after_distributing_table('cbx.leases');
COMMIT;

-- distribute cbx.logs
BEGIN;
SELECT create_distributed_table('cbx.logs', 'project_id', colocate_with => 'public.cards');
SELECT truncate_local_data_after_distributing_table('cbx.logs');
COMMIT;

-- distribute cbx.batches
BEGIN;
SELECT create_distributed_table('cbx.batches', 'project_id', colocate_with => 'public.cards');
SELECT truncate_local_data_after_distributing_table('cbx.batches');
COMMIT;

-- distribute cbx.batch_tasks
BEGIN;
SELECT create_distributed_table('cbx.batch_tasks', 'project_id', colocate_with => 'public.cards');
SELECT truncate_local_data_after_distributing_table('cbx.batch_tasks');
COMMIT;

-- distribute cbx.audit
BEGIN;
SET LOCAL citus.enable_unsafe_triggers = on;
SELECT create_distributed_table('cbx.audit', 'project_id', colocate_with => 'public.cards');
ALTER TABLE cbx.audit DISABLE TRIGGER append_only;
SELECT truncate_local_data_after_distributing_table('cbx.audit');
ALTER TABLE cbx.audit ENABLE TRIGGER append_only;
COMMIT;

-- distribute cbx.project_settings
BEGIN;
SELECT create_distributed_table('cbx.project_settings', 'project_id', colocate_with => 'public.cards');
SELECT truncate_local_data_after_distributing_table('cbx.project_settings');
COMMIT;

-- distribute cbx.chats
BEGIN;
SELECT create_distributed_table('cbx.chats', 'project_id', colocate_with => 'public.cards');
SELECT truncate_local_data_after_distributing_table('cbx.chats');
COMMIT;

-- distribute cbx.chat_contexts
BEGIN;
SELECT create_distributed_table('cbx.chat_contexts', 'project_id', colocate_with => 'public.cards');
SELECT truncate_local_data_after_distributing_table('cbx.chat_contexts');
COMMIT;

-- distribute cbx.chat_runs
BEGIN;
SELECT create_distributed_table('cbx.chat_runs', 'project_id', colocate_with => 'public.cards');
SELECT truncate_local_data_after_distributing_table('cbx.chat_runs');
COMMIT;

-- distribute cbx.chat_steps
BEGIN;
SELECT create_distributed_table('cbx.chat_steps', 'project_id', colocate_with => 'public.cards');
SELECT truncate_local_data_after_distributing_table('cbx.chat_steps');
COMMIT;

-- distribute cbx.api_tokens
BEGIN;
SELECT create_distributed_table('cbx.api_tokens', 'project_id', colocate_with => 'public.cards');
SELECT truncate_local_data_after_distributing_table('cbx.api_tokens');
COMMIT;
