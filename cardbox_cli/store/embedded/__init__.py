"""The Postgres that comes with cbx: created and started on first use, then left running.

Owns the server of one CBX_HOME: its files, its process, its connections. Knows nothing about the contents of
the database: no schema, no cards. The modules are private.
"""

from cardbox_cli.store.embedded.lifecycle import EmbeddedServer, ServerStatus

__all__ = ["EmbeddedServer", "ServerStatus"]
