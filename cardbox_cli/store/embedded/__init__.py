"""The Postgres server that comes with cbx. cbx creates and starts it on first use, and leaves it running.

Owns the files, process and connections of one server in CBX_HOME. Knows nothing about the contents of the
database: no schema, no cards. The modules are private.
"""

from cardbox_cli.store.embedded.lifecycle import EmbeddedServer, ServerStatus

__all__ = ["EmbeddedServer", "ServerStatus"]
