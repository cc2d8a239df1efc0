"""Authentication of requests: by a token, or by a cookie that a token was exchanged for.

A token or a cookie grants access to one project. If the server requires no tokens, for example on a loopback
address, everyone who can reach it may read. If possible, the server rejects a request without a database
connection. It uses at most one connection to look up tokens that were never valid.
"""

import base64
import hashlib
import hmac
import re
import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Lock

from fastapi import Request, Response
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from cardbox_cli.errors import UsageError
from cardbox_cli.model.identity import token_hash, token_project
from cardbox_cli.serve.http.errors import RequestRejected, error_response
from cardbox_cli.store.api_tokens import ApiTokenStore
from cardbox_cli.store.connection.database import Database
from cardbox_cli.text.error_messages import invalid_message

# --- wrong tokens: a limit for all clients together

_MAX_ATTEMPTS = 20.0
_ATTEMPTS_PER_SECOND = 1.0


class RateLimiter:
    """A token bucket: limits the rate of failed attempts."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._left = _MAX_ATTEMPTS
        self._at = time.monotonic()

    def count_failure(self) -> bool:
        """Count a failure. Return False if there have been too many."""
        with self._lock:
            self._fill()
            has_left = self._left >= 1
            self._left -= has_left
            return has_left

    @property
    def is_exhausted(self) -> bool:
        with self._lock:
            self._fill()
            return self._left < 1

    def _fill(self) -> None:
        now = time.monotonic()
        self._left = min(_MAX_ATTEMPTS, self._left + (now - self._at) * _ATTEMPTS_PER_SECOND)
        self._at = now


# --- cookies: each has the signed id of a token, not the token, for one project. Each server has its own key

_LIFETIME_SECONDS = 24 * 3600


class Cookies:
    """Makes and reads the cookies of a server. If `is_secure`, browsers return them only over TLS."""

    def __init__(self, *, is_secure: bool) -> None:
        self._key = secrets.token_bytes(32)
        self._is_secure = is_secure

    def make(self, project_id: str, token_id: str) -> str:
        content = f"{token_id}.{int(time.time()) + _LIFETIME_SECONDS}"
        return f"{content}.{self._signature(project_id, content)}"

    def token_of(self, request: Request, project_id: str) -> str | None:
        """Return the id of the token in a request's cookie, or None if there is no valid cookie."""
        content, _, signature = request.cookies.get(cookie_name(project_id), "").rpartition(".")
        expected = self._signature(project_id, content)
        if not content or not hmac.compare_digest(signature.encode(), expected.encode()):
            return None
        token_id, _, until = content.rpartition(".")
        return token_id if int(until) > time.time() else None

    def set(self, response: Response, project_id: str, value: str) -> None:
        response.set_cookie(
            cookie_name(project_id),
            value,
            max_age=_LIFETIME_SECONDS,
            httponly=True,
            samesite="strict",
            secure=self._is_secure,
        )

    def forget(self, response: Response, project_id: str) -> None:
        response.delete_cookie(
            cookie_name(project_id), httponly=True, samesite="strict", secure=self._is_secure
        )

    def _signature(self, project_id: str, content: str) -> str:
        text = f"{len(project_id)}:{project_id}{content}".encode("utf-8", "surrogatepass")
        return base64.urlsafe_b64encode(hmac.digest(self._key, text, "sha256")).rstrip(b"=").decode()


def cookie_name(project_id: str) -> str:
    """Return the cookie name of a project. It has a hash, because cookie names allow few characters."""
    return f"cbx_{hashlib.sha256(project_id.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"


# --- host names: without this check, another site could resolve its own name to this server and read from it

# A host name, an IPv4 address, or an IPv6 address in brackets; `*.` in front for all subdomains, `*` for any.
_NAME = re.compile(r"(?:\*\.)?[^\s:@/\[\]*?#]+|\[[0-9A-Fa-f:.]+\]|\*")
# An origin as browsers send it: in lower case, without a path and without the default port of its scheme.
_ORIGIN = re.compile(
    r"(?!http://.*:80$|https://.*:443$)[a-z][a-z0-9+.-]*://(?:[^\s:@/\[\]*?#A-Z]+|\[[0-9a-f:.]+\])(?::[0-9]+)?"
)
# The Host header: a host name, an IPv4 address, or an IPv6 address in brackets; and optionally a port.
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\s:@/\[\]]+)(?::[0-9]*)?")


def check_hosts_and_origins(hosts: Sequence[str], origins: Sequence[str]) -> None:
    """Raise UsageError for an invalid host name or origin."""
    for host in hosts:
        if not (host.isascii() and _NAME.fullmatch(host)):
            raise UsageError(
                f"--allowed-host: {invalid_message('host name', host)}",
                hint="pass a name or an address without scheme, port and path, for example cbx.example.org",
            )
    for origin in origins:
        if origin not in ("*", "null") and not (origin.isascii() and _ORIGIN.fullmatch(origin)):
            raise UsageError(
                f"--cors-origin: {invalid_message('origin', origin)}",
                hint="pass a scheme and a host without a path, for example https://app.example.org",
            )


class AllowedHosts:
    """Rejects requests to other host names. `*.example.org` allows all subdomains, `*` every name."""

    def __init__(self, app: ASGIApp, names: Sequence[str]) -> None:
        self._app = app
        self._names = {name.lower() for name in names}
        self._domains = tuple(name[1:] for name in self._names if name.startswith("*."))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or self._is_allowed(Headers(scope=scope).get("host", "")):
            await self._app(scope, receive, send)
            return
        message = "this host name is not allowed: --allowed-host allows more names"
        await error_response(400, "bad_request", message)(scope, receive, send)

    def _is_allowed(self, host: str) -> bool:
        match = _HOST.fullmatch(host)
        name = match[1].lower() if match else ""
        return "*" in self._names or name in self._names or name.endswith(self._domains)


# --- tokens

# The rate limit does not apply to tokens that were valid before. They are still looked up each time.
_MAX_REMEMBERED = 1000


class Authenticator:
    """Admits requests, or raises RequestRejected. Safe for use by several threads."""

    def __init__(self, cookies: Cookies, *, asks_for_tokens: bool) -> None:
        self.cookies = cookies
        self.asks_for_tokens = asks_for_tokens
        self._attempts = RateLimiter()
        self._valid_hashes: set[bytes] = set()
        self._lookup_lock = Lock()

    @contextmanager
    def limit_attempts(self, request: Request, project_id: str) -> Iterator[None]:
        """Check a request before it gets a connection. Call `admit` within the context.

        Raises RequestRejected: 401 without a token, 403 for another project's token, 429 after too many wrong
        tokens.
        """
        if not self.asks_for_tokens:
            yield
            return
        bearer = _bearer(request)
        if bearer is None:
            if self.cookies.token_of(request, project_id) is None:
                raise _unauthorized(f"a token for project {project_id!r} is required")
            yield
            return
        token_project_id = token_project(bearer)
        if token_project_id is not None and token_project_id != project_id:
            raise RequestRejected(403, f"the token does not grant access to project {project_id!r}")
        with self.limit_lookups(bearer):
            yield

    @contextmanager
    def limit_lookups(self, token: str) -> Iterator[None]:
        """Check a token before it gets a connection. Look it up within the context. Raises RequestRejected.

        After too many wrong tokens, tokens that were never valid are looked up one at a time.
        """
        if token_project(token) is None:
            raise self._wrong()
        if token_hash(token) in self._valid_hashes or not self._attempts.is_exhausted:
            yield
            return
        if not self._lookup_lock.acquire(blocking=False):
            raise _too_many()
        try:
            yield
        finally:
            self._lookup_lock.release()

    def admit(self, request: Request, database: Database, project_id: str) -> None:
        """Raise RequestRejected with 401 if the token is not valid. Call it within `limit_attempts`."""
        if not self.asks_for_tokens:
            return
        if (bearer := _bearer(request)) is not None:
            self._token_id(database, project_id, bearer)
            return
        token_id = self.cookies.token_of(request, project_id)
        if token_id is None or not ApiTokenStore(database, project_id).is_valid(token_id):
            raise _unauthorized("the token that you logged in with is no longer valid")

    def exchange(self, database: Database, token: str) -> tuple[str, str]:
        """Return the project of a token, and a cookie for it. Call it within `limit_lookups`.

        Raises RequestRejected.
        """
        project_id = token_project(token) or ""
        return project_id, self.cookies.make(project_id, self._token_id(database, project_id, token))

    def _token_id(self, database: Database, project_id: str, token: str) -> str:
        token_id = ApiTokenStore(database, project_id).find_valid(token)
        if token_id is None:
            raise self._wrong()
        if len(self._valid_hashes) >= _MAX_REMEMBERED:
            self._valid_hashes = set()
        self._valid_hashes.add(token_hash(token))
        return token_id

    def _wrong(self) -> RequestRejected:
        return _unauthorized("the token is not valid") if self._attempts.count_failure() else _too_many()


def _unauthorized(message: str) -> RequestRejected:
    return RequestRejected(401, message, headers={"WWW-Authenticate": 'Bearer realm="cbx"'})


def _too_many() -> RequestRejected:
    return RequestRejected(429, "too many wrong tokens")


def _bearer(request: Request) -> str | None:
    kind, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() if kind.lower() == "bearer" else None
