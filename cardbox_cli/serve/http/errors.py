"""Error responses: `{"detail": {"error_code", "error_message"}}`, never a traceback."""

import logging
import time
from collections.abc import Mapping
from http import HTTPStatus
from threading import Lock

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.types import Scope

from cardbox_cli import errors
from cardbox_cli.errors import CbxError
from cardbox_cli.serve.addresses import logged_path
from cardbox_cli.store.connection.driver_errors import is_cancelled
from cardbox_cli.text.escaping import excerpt

_LOG = logging.getLogger("cbx.serve")

# The status and the code of each type of error, the most specific type first. Clients rely on the codes.
_STATUSES: tuple[tuple[type[CbxError], int, str], ...] = (
    (errors.NotFound, 404, "not_found"),
    (errors.UsageError, 400, "bad_request"),
    (errors.InvalidInput, 400, "bad_request"),
    (errors.Conflict, 409, "conflict"),
    (errors.DatabaseUnavailable, 503, "upstream_unavailable"),
    (errors.ServiceUnavailable, 503, "upstream_unavailable"),
)
# The messages for outages, the most specific type first. The original messages name hosts, roles and
# databases, which clients without a token must not learn.
_OUTAGES: tuple[tuple[type[CbxError], str], ...] = (
    (errors.ConnectionsBusy, "all connections to the database are in use"),
    (errors.SchemaMissing, "the database has no table for this; `cbx db init` shows what it would add"),
    (errors.SchemaTooNew, "a newer cbx has upgraded the database"),
    (errors.MissingRight, "the database role lacks the right to read this"),
    (errors.DatabaseUnavailable, "the database cannot be reached"),
    (errors.ServiceUnavailable, "a service cannot be reached"),
)
# An outage is logged again if it did not occur for this many seconds.
_QUIET_SECONDS = 60.0
_MAX_LINE = 1000
_RETRY_LATER = {"Retry-After": "10"}
# Seconds after which a client may repeat a request that was rejected with this status.
_RETRY_SECONDS = {429: 10, 503: 30}
_CODES = {400: "bad_request", 401: "auth_required", 403: "auth_failed", 422: "invalid_request"}


class RequestRejected(Exception):
    """A request cannot be answered. 429 and 503 carry Retry-After; `headers` replace this."""

    def __init__(self, status: int, message: str, *, headers: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        retry = {"Retry-After": str(_RETRY_SECONDS[status])} if status in _RETRY_SECONDS else None
        self.headers = headers or retry


class ResponseBroken(Exception):
    """The failure of a response that has begun. The cause was logged. The client gets no final chunk."""


class OutageLog:
    """Logs outages, each cause once. Safe for use by several threads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._seen: dict[str, float] = {}

    def log(self, exc: CbxError) -> None:
        """Log a cause and its hint, unless it occurred within the last minute."""
        text = excerpt(f"{exc.message}: {exc.hint}" if exc.hint else exc.message, _MAX_LINE)
        now = time.monotonic()
        with self._lock:
            self._seen = {cause: at for cause, at in self._seen.items() if now - at < _QUIET_SECONDS}
            is_new = text not in self._seen
            self._seen[text] = now
        if is_new:
            _LOG.error("%s (logged once, until it does not occur for a minute)", text)


def error_response(
    status: int, code: str, message: str, headers: Mapping[str, str] | None = None
) -> JSONResponse:
    detail = {"error_code": code, "error_message": message.encode("utf-8", "replace").decode()}
    return JSONResponse({"detail": detail}, status_code=status, headers=headers)


def error_parts(exc: Exception) -> tuple[int, str, str]:
    """Return the status, the code and the message for an error.

    The message does not reveal the text of an unexpected error or the cause of an outage.
    """
    if isinstance(exc, RequestRejected):
        return exc.status, _code(exc.status), exc.message
    for kind, status, code in _STATUSES:
        if isinstance(exc, kind):
            return status, code, _outage(exc) if status == 503 else exc.message
    return 500, "internal_error", "the server failed; its log says why"


def headers_for(exc: Exception) -> Mapping[str, str] | None:
    if isinstance(exc, RequestRejected | HTTPException):
        return exc.headers
    return _RETRY_LATER if _is_outage(exc) else None


def log_error(scope: Scope, exc: Exception) -> None:
    """Log an error for the operator. Unexpected errors are logged each time, and each outage once."""
    if isinstance(exc, CbxError) and _is_outage(exc):
        outages: OutageLog = scope["app"].state.outages
        outages.log(exc)
    elif error_parts(exc)[0] == 500:
        _LOG.error("%s %s failed", scope["method"], logged_path(scope), exc_info=exc)


def _is_outage(exc: Exception) -> bool:
    return isinstance(exc, tuple(kind for kind, _ in _OUTAGES))


def _outage(exc: CbxError) -> str:
    if is_cancelled(exc):
        return "reading this exceeds the statement timeout"
    return next(message for kind, message in _OUTAGES if isinstance(exc, kind))


def add_error_handlers(app: FastAPI) -> None:
    """Add the error handlers. The middleware `RequestLimits` handles unexpected errors."""

    async def failed(request: Request, exc: Exception) -> JSONResponse:
        log_error(request.scope, exc)
        return error_response(*error_parts(exc), headers_for(exc))

    async def invalid(_: Request, exc: Exception) -> JSONResponse:
        assert isinstance(exc, RequestValidationError)
        problems = [f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in exc.errors()[:3]]
        return error_response(422, _CODES[422], "; ".join(problems))

    async def http(_: Request, exc: Exception) -> JSONResponse:
        assert isinstance(exc, HTTPException)
        return error_response(exc.status_code, _code(exc.status_code), str(exc.detail), headers_for(exc))

    app.add_exception_handler(RequestRejected, failed)
    app.add_exception_handler(CbxError, failed)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(HTTPException, http)


def _code(status: int) -> str:
    return _CODES.get(status) or HTTPStatus(status).phrase.lower().replace(" ", "_").replace("-", "_")
