"""PgBouncer before a server, in transaction mode, and the databases of that server through it."""

import socket
import subprocess
import tomllib
from pathlib import Path

import psycopg

from cardbox_cli.store.connection.target import Target
from cardbox_cli.store.embedded import EmbeddedServer
from tests.crash.processes import until
from tests.databases import Databases
from tests.packages import program

EXCLUSIONS: dict[str, str] = tomllib.loads(
    Path(__file__).with_name("exclusions.toml").read_text(encoding="utf-8")
)
"""The tests that do not run through a pooler, by the beginning of their ids, each with the reason."""


class Pooler:
    """PgBouncer on a port of its own, before a server that runs.

    It has `size` connections to each database, and ends a client that is idle in a transaction for `idle` seconds.
    """

    def __init__(self, server: EmbeddedServer, folder: Path, *, size: int = 20, idle: int = 0) -> None:
        self._server = server
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._port = free.getsockname()[1]
        self._config = folder / f"pgbouncer-{self._port}.ini"
        self._config.write_text(
            f"[databases]\n* = host={server.status().socket} port=5432 user=cbx\n"
            f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {self._port}\nunix_socket_dir =\n"
            # Databases of tests come and go.
            f"auth_type = any\npool_mode = transaction\ndefault_pool_size = {size}\nserver_idle_timeout = 5\n"
            f"idle_transaction_timeout = {idle}\n"
            # What a fleet's history asks for; nothing of cbx does.
            "ignore_startup_parameters = options\nmax_client_conn = 500\n"
        )
        self._process: subprocess.Popen[bytes] | None = None

    def address(self, database: str) -> str:
        return f"host=127.0.0.1 port={self._port} user=cbx dbname={database}"

    def start(self) -> None:
        """Run it as the account that the server is lent; it takes connections then."""
        account = self._server.status().account
        lent = {} if account is None else {"user": account, "extra_groups": ()}
        process = subprocess.Popen(
            [program("pgbouncer"), self._config],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            **lent,
        )
        self._process = process
        until(lambda: process.poll() is not None or self._answers())

    def stop(self) -> None:
        """End it at once, with every connection through it."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _answers(self) -> bool:
        try:
            psycopg.connect(self.address("postgres")).close()
        except psycopg.OperationalError:
            return False
        return True


class PooledDatabases(Databases):
    """Databases through a pooler; only `admin` reaches the server itself."""

    def __init__(self, server: EmbeddedServer, folder: Path, **options: int) -> None:
        # It makes the template without the pooler, because no upgrade goes through one.
        super().__init__(server)
        self.pooler = Pooler(server, folder, **options)
        try:
            self.pooler.start()
        except BaseException:
            self.close()
            raise

    def target(self, name: str) -> Target:
        return Target(self.pooler.address(name), "the test", self.server.home)

    def direct(self, pooled: Target) -> Target:
        """The same database, past the pooler: where notifications are heard."""
        return super().target(str(psycopg.conninfo.conninfo_to_dict(pooled.conninfo or "")["dbname"]))

    def close(self) -> None:
        self.pooler.stop()
        super().close()
