"""Translation of errors of the database driver into errors of cbx, by SQLSTATE and constraint name."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from cardbox_cli import errors
from cardbox_cli.errors import CbxError, Conflict, DatabaseUnavailable
from cardbox_cli.text.escaping import redact_credentials

_SCHEMA_HINT = "run `cbx db upgrade`, or `cbx db init --yes` for a database that cbx has never changed"
_PATH_HINT = (
    "qualify the names in the function, or run `ALTER FUNCTION … SET search_path = public`: "
    "connections of cbx only find pg_catalog without a schema"
)
_RETRY_HINT = "run the command again; nothing was written"
_ROOM_HINT = "free disk space there, then run the command again; nothing was written"


@contextmanager
def translate_errors() -> Iterator[None]:
    """Raise driver errors of the block as errors of cbx."""
    try:
        yield
    except psycopg.Error as exc:
        raise translate_error(exc) from exc


def translate_error(exc: psycopg.Error) -> CbxError:
    """Return the error of cbx for `exc`. An unexpected one becomes a plain CbxError (exit 1)."""
    state = exc.sqlstate or ""
    text = _first_line(exc)
    if state == "23505":
        return _duplicate_error(exc.diag.constraint_name or "")
    if state in ("42P01", "3F000", "42703", "42883"):
        if (routine := _routine(exc)) is not None:
            what = f"the function {routine} of another program failed: {text}"
            return errors.SchemaMissing(what, hint=_PATH_HINT)
        what = f"the database lacks an object that this command needs: {text}"
        return errors.SchemaMissing(what, hint=_SCHEMA_HINT)
    if state == "42501":
        hint = "GRANT the right, or connect as another role"
        return errors.MissingRight(f"the database role may not do this: {text}", hint=hint)
    if state == "25006":
        hint = "pass the primary's address as --database-url"
        return DatabaseUnavailable("the database is read-only (a replica?)", hint=hint)
    if state in ("40001", "40P01", "55P03"):
        return Conflict(f"conflict with another transaction: {text}", hint=_RETRY_HINT)
    if state == "53100":
        return DatabaseUnavailable(f"the disk of the database is full: {text}", hint=_ROOM_HINT)
    if state == "57014":
        hint = "raise its `statement_timeout`"
        return DatabaseUnavailable(f"the database cancelled the statement: {text}", hint=hint)
    if state[:2] in ("22", "54") or (isinstance(exc, psycopg.DataError) and not state):
        return errors.InvalidInput(f"the database refused a value: {text}")
    is_lost = isinstance(exc, psycopg.OperationalError | psycopg.InterfaceError)
    # 25P03: the server ended a connection whose transaction was idle for too long. XX000: the coordinator of
    # shards lost a node within a transaction.
    if is_lost or state[:2] in ("08", "53", "57", "58") or state in ("25P03", "XX000"):
        hint = "check with `cbx db status` whether it runs, then run the command again"
        return DatabaseUnavailable(f"the connection to the database was lost: {text}", hint=hint)
    return CbxError(f"the database reported {state or type(exc).__name__}: {text}")


def is_refusal(exc: CbxError) -> bool:
    """Return whether the server refused a statement: missing right, full disk, timeout, or read-only."""
    cause = exc.__cause__
    return isinstance(cause, psycopg.Error) and cause.sqlstate in ("42501", "25006", "53100", "57014")


def is_cancelled(exc: CbxError) -> bool:
    """Return whether the server cancelled a statement that took too long."""
    cause = exc.__cause__
    return isinstance(cause, psycopg.Error) and cause.sqlstate == "57014"


def is_collision(exc: CbxError) -> bool:
    """Return whether another transaction caused the failure, so that a retry may succeed."""
    cause = exc.__cause__
    return isinstance(cause, psycopg.Error) and cause.sqlstate in ("40001", "40P01", "55P03")


def connect_error(exc: psycopg.Error, where: str) -> DatabaseUnavailable:
    """Return the error for a failed connection. `where` must not contain secrets."""
    hint = "check that the server runs, and that its address, database and role are correct"
    return DatabaseUnavailable(f"cannot connect ({where}): {_first_line(exc)}", hint=hint)


def _duplicate_error(constraint: str) -> CbxError:
    if "cards" in constraint:
        return errors.CardConflict("a card id is taken", hint=_RETRY_HINT)
    if constraint.startswith(("card_boxes", "box_info")):
        return errors.BoxConflict("a box id is taken", hint=_RETRY_HINT)
    if "profile" in constraint:
        return Conflict("a profile with that name was created at the same time", hint=_RETRY_HINT)
    return Conflict(f"the row already exists (constraint {constraint!r})", hint=_RETRY_HINT)


# The context of an error names the function that failed, such as a trigger's.
_CONTEXT = re.compile(r'^(?:PL/pgSQL function (.+\)) line \d+|SQL function "([^"\n]+)")', re.MULTILINE)


def _routine(exc: psycopg.Error) -> str | None:
    """Return the function in which our statement failed, or None. It belongs to another program."""
    match = _CONTEXT.search(exc.diag.context or "")
    return None if match is None else match[1] or match[2]


def _first_line(exc: psycopg.Error) -> str:
    text = exc.diag.message_primary or str(exc) or type(exc).__name__
    return redact_credentials(text.strip().splitlines()[0])
