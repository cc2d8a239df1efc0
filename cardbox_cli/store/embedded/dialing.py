"""The way to the running server: connection parameters that the user's environment cannot bend, and what it
means when no connection comes about. Starts nothing; the server's messages are English, whatever LANG says.
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

# libpq names no default for these, and takes no empty value.
_UNNAMED_DEFAULTS = {"sslcertmode": "disable", "min_protocol_version": "3.0", "max_protocol_version": "3.0"}

# What libpq takes from the environment and no parameter overrules: it can only be out of the way.
_UNANSWERABLE = ("PGSERVICE", "PGDATESTYLE", "PGTZ", "PGGEQO")


class Answer(Enum):
    """What an attempt to connect learned about the server."""

    READY = "it took the connection"
    NO_DATABASE = "it runs, and does not have that database"
    REFUSED = "it runs, and refused the connection for a reason of its own"
    NOT_YET = "it is starting, recovering or stopping"
    NOBODY = "nobody answered"

    @property
    def is_up(self) -> bool:
        """Whether the server runs, and takes connections or refuses them for good."""
        return self in (Answer.READY, Answer.NO_DATABASE, Answer.REFUSED)


def parameters(location: Location, dbname: str) -> dict[str, str]:
    """libpq's parameters for `dbname`, none of them left to the environment but the service."""
    ours = {
        "host": str(location.socket),
        "port": str(PORT),
        "user": SUPERUSER,
        "dbname": dbname,
        # Never asked for; but without one libpq looks into ~/.pgpass, and complains about its mode.
        "password": "unused",
        "sslmode": "disable",
        "gssencmode": "disable",
        "connect_timeout": "10",
        "client_encoding": "UTF8",
        "application_name": "cbx",
    }
    if location.account is not None:
        # Somebody else's process on a socket in a shared temporary folder is not our server.
        ours["requirepeer"] = location.account
    return {**_neutral(), **ours}


def dial(location: Location, dbname: str, **options: Any) -> psycopg.Connection[Any]:
    """Connect, or raise what psycopg raises."""
    with _without_the_unanswerable():
        return psycopg.connect(**{**parameters(location, dbname), **options})


def ask(location: Location, dbname: str = DATABASE) -> tuple[Answer, str]:
    """Try a connection and close it again: the answer, and the server's version, or why there is none."""
    try:
        with dial(location, dbname) as connection:
            return Answer.READY, connection.info.parameter_status("server_version") or ""
    except psycopg.OperationalError as exc:
        return _meaning(exc), _words(exc)


def _meaning(exc: psycopg.OperationalError) -> Answer:
    """What a failed connection says. By its text: libpq hands out no SQLSTATE before there is a session."""
    text = str(exc)
    if "FATAL:" not in text:
        return Answer.NOBODY
    if "the database system is " in text:
        return Answer.NOT_YET
    if re.search(r'database ".*" does not exist', text):
        return Answer.NO_DATABASE
    return Answer.REFUSED


def refusal(exc: psycopg.OperationalError) -> DatabaseUnavailable:
    """The error to raise for a connection to a server that was brought up, or that may be down."""
    if _meaning(exc) is Answer.NOBODY or "the database system is shutting down" in str(exc):
        return not_running()
    hint = "`cbx db status` shows where its log is"
    return DatabaseUnavailable(f"the embedded Postgres refuses the connection: {_words(exc)}", hint=hint)


def not_running() -> DatabaseUnavailable:
    """The error to raise where no server answers, and none is to be started."""
    return DatabaseUnavailable("the embedded Postgres does not run: `cbx db start` starts it")


def create_database(location: Location) -> None:
    """Make the database of cbx; harmless when it is there."""
    try:
        with dial(location, MAINTENANCE_DATABASE, autocommit=True) as connection:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(DATABASE)))
    except (psycopg.errors.DuplicateDatabase, psycopg.errors.UniqueViolation):
        pass  # the latter from the session of a killed command that was just making it
    except psycopg.Error as exc:
        raise DatabaseUnavailable(
            f"the embedded Postgres cannot make the database {DATABASE!r}: {exc}",
            hint=f"its log is in {str(location.log)!r}",
        ) from exc


def _words(exc: psycopg.OperationalError) -> str:
    """The message of the server or of libpq, without how libpq came by it."""
    return re.split(r"FATAL:|failed: ", str(exc))[-1].strip()


def _neutral() -> dict[str, str]:
    """libpq's own default for each parameter that the environment sets, whichever this libpq knows."""
    overruled = {
        option.keyword.decode(): (option.compiled or b"").decode()
        for option in pq.Conninfo.get_defaults()
        if option.envvar and option.keyword != b"service" and option.envvar.decode() in os.environ
    }
    return {name: default or _UNNAMED_DEFAULTS.get(name, "") for name, default in overruled.items()}


@contextmanager
def _without_the_unanswerable() -> Iterator[None]:
    found = {name: os.environ.pop(name) for name in _UNANSWERABLE if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(found)
