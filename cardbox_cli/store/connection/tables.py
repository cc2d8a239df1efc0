"""Names of the tables that cbx knows, by feature, and statements that grant access to them."""

from collections.abc import Sequence

ESSENTIAL = ("public.cards", "public.card_boxes")
"""Tables that every command needs."""

EXECUTION = (
    "resource.project_agents",
    "resource.tools",
    "state.agent_state_head",
    "state.agent_state_pointers",
    "state.agent_inbox",
    "state.execution_edges",
    "state.identity_edges",
    "state.agent_steps",
    "state.turn_waiting_tools",
)
"""Tables for running turns that another program may have created."""

OWN_EXECUTION = ("cbx.turns", "cbx.leases", "cbx.workers", "cbx.audit")
"""Tables for running turns that only cbx creates."""

BATCHES = ("cbx.batches", "cbx.batch_tasks")
"""Further tables for batches."""

FOREIGN_BATCHES = ("state.pmo_batches", "state.pmo_batch_tasks")
"""Batches of another system, which cbx only reads and never creates."""

SHARDING = "pg_catalog.pg_dist_partition"
"""Catalog of distributed tables, if Citus is installed."""

CHATS = ("cbx.chats", "cbx.chat_contexts", "cbx.chat_runs", "cbx.chat_steps")
"""Tables of chats."""

TOKENS = "cbx.api_tokens"
"""Tokens of HTTP clients, each for one project."""

KNOWN = (
    *ESSENTIAL,
    "public.projects",
    "resource.profiles",
    *EXECUTION,
    "cbx.box_info",
    *OWN_EXECUTION,
    "cbx.logs",
    *BATCHES,
    *FOREIGN_BATCHES,
    "cbx.project_settings",
    *CHATS,
    TOKENS,
    "cbx.schema_version",
)

OWN = frozenset(KNOWN) - frozenset(FOREIGN_BATCHES)
"""Tables of a database that this cbx created or completed."""


def read_grant(table: str, role: str) -> str:
    """Return the statement that lets a role read a table."""
    quoted = _quoted(role)
    return f"GRANT USAGE ON SCHEMA {table.split('.')[0]} TO {quoted}; GRANT SELECT ON {table} TO {quoted}"


def write_grant(tables: Sequence[str], role: str) -> str:
    """Return the statement that lets a role write tables that it can read."""
    return f"GRANT SELECT, INSERT, UPDATE ON {', '.join(tables)} TO {_quoted(role)}"


def _quoted(role: str) -> str:
    return '"' + role.replace('"', '""') + '"'
