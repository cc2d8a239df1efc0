"""The names of the tables that cbx knows, by what cannot be done without them, and how they are granted."""

from collections.abc import Sequence

ESSENTIAL = ("public.cards", "public.card_boxes")
"""What every command needs; the tables of cbx itself add titles, profiles and provenance."""

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
"""What running turns needs beside them, which may be another program's."""

OWN_EXECUTION = ("cbx.turns", "cbx.leases", "cbx.workers", "cbx.audit")
"""What running turns needs of cbx's own."""

BATCHES = ("cbx.batches", "cbx.batch_tasks")
"""What batches need beside all that."""

FOREIGN_BATCHES = ("state.pmo_batches", "state.pmo_batch_tasks")
"""The batches of another system's manager, which cbx only reads and never makes."""

SHARDING = "pg_catalog.pg_dist_partition"
"""Where Citus, if it is there, keeps which tables are spread over nodes."""

CHATS = ("cbx.chats", "cbx.chat_contexts", "cbx.chat_runs", "cbx.chat_steps")
"""What chats need."""

TOKENS = "cbx.api_tokens"
"""Who may read a project over HTTP."""

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
"""What a database has that this cbx made, or completed."""


def grant_of(table: str, role: str) -> str:
    """The statement that lets a role read a table."""
    quoted = _quoted(role)
    return f"GRANT USAGE ON SCHEMA {table.split('.')[0]} TO {quoted}; GRANT SELECT ON {table} TO {quoted}"


def write_grant_of(tables: Sequence[str], role: str) -> str:
    """The statement that lets a role write tables that it reads."""
    return f"GRANT SELECT, INSERT, UPDATE ON {', '.join(tables)} TO {_quoted(role)}"


def _quoted(role: str) -> str:
    return '"' + role.replace('"', '""') + '"'
