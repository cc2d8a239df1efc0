"""The one place where errors of the database driver become errors of cbx, by SQLSTATE and constraint name."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from cardbox_cli import errors
from cardbox_cli.errors import CbxError, Conflict, DatabaseUnavailable
from cardbox_cli.text import without_credentials

_SCHEMA_HINT = "`cbx db init` adds what is missing, `cbx db upgrade` brings an older database up to date"
_PATH_HINT = (
    "on connections of cbx names without a schema are those of pg_catalog: name the schema in the function, "
    "or `ALTER FUNCTION` with `SET search_path = public`"
)
_RETRY_HINT = "run the command again; nothing was written"
_ROOM_HINT = "make room there, then run the command again; nothing was written"


@contextmanager
def translated() -> Iterator[None]:
    """Let driver errors out as errors of cbx."""
    try:
        yield
    except psycopg.Error as exc:
        raise translate(exc) from exc


def translate(exc: psycopg.Error) -> CbxError:
    """The error of cbx that `exc` means; a plain CbxError (exit 1) for what we never expect."""
    state = exc.sqlstate or ""
    text = _first_line(exc)
    if state == "23505":
        return _taken(exc.diag.constraint_name or "")
    if state in ("42P01", "3F000", "42703", "42883"):
        if (routine := _routine(exc)) is not None:
            what = f"the function {routine}, which others made in the database, failed: {text}"
            return errors.SchemaMissing(what, hint=_PATH_HINT)
        what = f"the database lacks something that this command needs: {text}"
        return errors.SchemaMissing(what, hint=_SCHEMA_HINT)
    if state == "42501":
        what, hint = f"the database role may not do this: {text}", "GRANT it, or use another role"
        return errors.MissingRight(what, hint=hint)
    if state == "25006":
        hint = "write through the primary's --database-url"
        return DatabaseUnavailable("the database is read-only (a replica?)", hint=hint)
    if state in ("40001", "40P01", "55P03"):
        return Conflict(f"another transaction was in the way: {text}", hint=_RETRY_HINT)
    if state == "53100":
        return DatabaseUnavailable(f"the disk of the database is full: {text}", hint=_ROOM_HINT)
    if state == "57014":
        hint = "raise its statement_timeout"
        return DatabaseUnavailable(f"the database cancelled the statement: {text}", hint=hint)
    if state[:2] in ("22", "54") or (isinstance(exc, psycopg.DataError) and not state):
        return errors.InvalidInput(f"the database refused a value: {text}")
    is_lost = isinstance(exc, psycopg.OperationalError | psycopg.InterfaceError)
    # 25P03: the server ended a connection whose transaction lay idle for too long. XX000: the coordinator of
    # shards lost a node amid a transaction.
    if is_lost or state[:2] in ("08", "53", "57", "58") or state in ("25P03", "XX000"):
        hint = "`cbx db status` shows whether it runs; then try again"
        return DatabaseUnavailable(f"the database went away: {text}", hint=hint)
    return CbxError(f"the database reported {state or type(exc).__name__}: {text}")


def is_refusal(exc: CbxError) -> bool:
    """Whether the database is there and would not do it: for want of a right, room or time, or read-only."""
    cause = exc.__cause__
    return isinstance(cause, psycopg.Error) and cause.sqlstate in ("42501", "25006", "53100", "57014")


def is_cancelled(exc: CbxError) -> bool:
    """Whether a statement took longer than it may."""
    cause = exc.__cause__
    return isinstance(cause, psycopg.Error) and cause.sqlstate == "57014"


def is_collision(exc: CbxError) -> bool:
    """Whether another transaction was in the way, so that the same again may succeed."""
    cause = exc.__cause__
    return isinstance(cause, psycopg.Error) and cause.sqlstate in ("40001", "40P01", "55P03")


def connect_error(exc: psycopg.Error, where: str) -> DatabaseUnavailable:
    """Why no connection came about. `where` must hold no secret."""
    hint = "check that the server runs and that the address, database and role are right"
    return DatabaseUnavailable(f"cannot connect ({where}): {_first_line(exc)}", hint=hint)


def _taken(constraint: str) -> CbxError:
    if "cards" in constraint:
        return errors.CardConflict("a card id is taken", hint=_RETRY_HINT)
    if constraint.startswith(("card_boxes", "box_info")):
        return errors.BoxConflict("a box id is taken", hint=_RETRY_HINT)
    if "profile" in constraint:
        return Conflict("a profile of that name was made at the same moment", hint=_RETRY_HINT)
    return Conflict(f"something exists already (constraint {constraint!r})", hint=_RETRY_HINT)


# Postgres names the function of a trigger, or of whatever else ran within a statement of ours.
_CONTEXT = re.compile(r'^(?:PL/pgSQL function (.+\)) line \d+|SQL function "([^"\n]+)")', re.MULTILINE)


def _routine(exc: psycopg.Error) -> str | None:
    """The function in which a statement of ours failed; none of ours is called by one."""
    found = _CONTEXT.search(exc.diag.context or "")
    return None if found is None else found[1] or found[2]


def _first_line(exc: psycopg.Error) -> str:
    text = exc.diag.message_primary or str(exc) or type(exc).__name__
    return without_credentials(text.strip().splitlines()[0])
