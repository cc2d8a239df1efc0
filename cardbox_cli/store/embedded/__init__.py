"""The Postgres that comes with cbx: made and started on first use, then left running.

Owns the server of one CBX_HOME: its files, its process, the way to it. Refuses to know what is inside the
database: no schema, no cards. Others use `server`; the rest of the modules is for it alone.
"""

from cardbox_cli.store.embedded.server import EmbeddedServer, ServerStatus

__all__ = ["EmbeddedServer", "ServerStatus"]
