"""Connections to the running server, and the server states that failed ones indicate. Starts no server.
The user's environment cannot change the parameters. The server's messages are English, independent of LANG.
"""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from typing import Any

import psycopg
from psycopg import pq, sql

from cardbox_cli.errors import DatabaseUnavailable
from cardbox_cli.store.embedded.location import PORT, Location

SUPERUSER = "cbx"
DATABASE = "cbx"
MAINTENANCE_DATABASE = "postgres"

# libpq has no defaults for these parameters, and does not accept an empty value.
_MISSING_DEFAULTS = {"sslcertmode": "disable", "min_protocol_version": "3.0", "max_protocol_version": "3.0"}

# No parameter of libpq overrides these variables, so they must be unset while connecting.
_NOT_OVERRULED = ("PGSERVICE", "PGDATESTYLE", "PGTZ", "PGGEQO")


class ServerState(Enum):
    """State of the server that an attempt to connect found."""

    READY = "it took the connection"
    NO_DATABASE = "it runs, and does not have that database"
    REFUSED = "it runs, and refused the connection for a reason of its own"
    NOT_YET = "it is starting, recovering or stopping"
    NOBODY = "nobody answered"

    @property
    def is_up(self) -> bool:
        """Return whether the server runs, and either accepts connections or refuses them permanently."""
        return self in (ServerState.READY, ServerState.NO_DATABASE, ServerState.REFUSED)


def connection_parameters(location: Location, dbname: str) -> dict[str, str]:
    """Return libpq's parameters for `dbname`. Only PGSERVICE could still change them."""
    parameters = {
        "host": str(location.socket),
        "port": str(PORT),
        "user": SUPERUSER,
        "dbname": dbname,
        # The server never requests a password. Without one, libpq reads ~/.pgpass and warns about its mode.
        "password": "unused",
        "sslmode": "disable",
        "gssencmode": "disable",
        "connect_timeout": "10",
        "client_encoding": "UTF8",
        "application_name": "cbx",
    }
    if location.account is not None:
        # In a shared temporary folder, a process of another account may own the socket. It is not our server.
        parameters["requirepeer"] = location.account
    return {**_defaults(), **parameters}


def open_connection(location: Location, dbname: str, **options: Any) -> psycopg.Connection[Any]:
    """Connect. Raises the errors of psycopg."""
    with _clear_libpq_variables():
        return psycopg.connect(**{**connection_parameters(location, dbname), **options})


def probe(location: Location, dbname: str = DATABASE) -> tuple[ServerState, str]:
    """Try to connect. Returns the state, and the server's version or the reason of the failure."""
    try:
        with open_connection(location, dbname) as connection:
            return ServerState.READY, connection.info.parameter_status("server_version") or ""
    except psycopg.OperationalError as exc:
        return _state_of(exc), _reason(exc)


def _state_of(exc: psycopg.OperationalError) -> ServerState:
    """Return the server state that a failed connection indicates. Its text is parsed: it has no SQLSTATE."""
    text = str(exc)
    if "FATAL:" not in text:
        return ServerState.NOBODY
    if "the database system is " in text:
        return ServerState.NOT_YET
    if re.search(r'database ".*" does not exist', text):
        return ServerState.NO_DATABASE
    return ServerState.REFUSED


def connection_error(exc: psycopg.OperationalError) -> DatabaseUnavailable:
    """Return the error for a failed connection to a server that may be down."""
    if _state_of(exc) is ServerState.NOBODY or "the database system is shutting down" in str(exc):
        return not_running_error()
    hint = "`cbx db status` shows the path of its log"
    return DatabaseUnavailable(f"the embedded Postgres refuses the connection: {_reason(exc)}", hint=hint)


def not_running_error() -> DatabaseUnavailable:
    """Return the error for a server that does not run and must not be started."""
    return DatabaseUnavailable("the embedded Postgres is not running: start it with `cbx db start`")


def create_database(location: Location) -> None:
    """Create the database of cbx. Does nothing if it exists."""
    try:
        with open_connection(location, MAINTENANCE_DATABASE, autocommit=True) as connection:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(DATABASE)))
    except (psycopg.errors.DuplicateDatabase, psycopg.errors.UniqueViolation):
        pass  # UniqueViolation: the session of a killed command is creating it
    except psycopg.Error as exc:
        what = f"the embedded Postgres cannot create the database {DATABASE!r}: {exc}"
        raise DatabaseUnavailable(what, hint=f"its log is in {str(location.log)!r}") from exc


def _reason(exc: psycopg.OperationalError) -> str:
    """Return the message of the server or of libpq, without libpq's prefixes."""
    return re.split(r"FATAL:|failed: ", str(exc))[-1].strip()


def _defaults() -> dict[str, str]:
    """Return libpq's own default for each parameter that the environment sets."""
    overruled = {
        option.keyword.decode(): (option.compiled or b"").decode()
        for option in pq.Conninfo.get_defaults()
        if option.envvar and option.keyword != b"service" and option.envvar.decode() in os.environ
    }
    return {name: default or _MISSING_DEFAULTS.get(name, "") for name, default in overruled.items()}


@contextmanager
def _clear_libpq_variables() -> Iterator[None]:
    variables = {name: os.environ.pop(name) for name in _NOT_OVERRULED if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(variables)
