"""Who may ask: by a token, by a cookie that a token was exchanged for, or from this machine.

A token or a cookie opens one project. If no tokens are asked for, as on an address that only this machine
reaches, everybody who reaches it may read. What can be refused without the database does not ask it, and
clients that try tokens have one connection at most.
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
from cardbox_cli.model.identity import hash_of, project_of
from cardbox_cli.serve.http.errors import Refused, answer
from cardbox_cli.store.api_tokens import ApiTokenStore
from cardbox_cli.store.connection.database import Database

# --- wrong tokens: a few are answered at once, then one a second, whoever shows them

_AT_ONCE = 20.0
_EACH_SECOND = 1.0


class Attempts:
    """A bucket of attempts that fills again."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._left = _AT_ONCE
        self._at = time.monotonic()

    def failed(self) -> bool:
        """Count a failure; False where there have been too many."""
        with self._lock:
            self._fill()
            if self._left < 1:
                return False
            self._left -= 1
            return True

    @property
    def are_spent(self) -> bool:
        """Whether the next failure is one too many."""
        with self._lock:
            self._fill()
            return self._left < 1

    def _fill(self) -> None:
        now = time.monotonic()
        self._left = min(_AT_ONCE, self._left + (now - self._at) * _EACH_SECOND)
        self._at = now


# --- cookies: the id of a token, signed, for a day and one project; never the token. A new server, a new key

_LASTS = 24 * 3600


class Cookies:
    """Makes and reads the cookies of a server. `is_secure`: only over TLS do browsers send them back."""

    def __init__(self, *, is_secure: bool) -> None:
        self._key = secrets.token_bytes(32)
        self._is_secure = is_secure

    def made(self, project_id: str, token_id: str) -> str:
        """The value of a cookie that stands for a token."""
        said = f"{token_id}.{int(time.time()) + _LASTS}"
        return f"{said}.{self._signature(project_id, said)}"

    def token_of(self, request: Request, project_id: str) -> str | None:
        """The id of the token that a request's cookie stands for; None without one, or for one of others."""
        said, _, signature = request.cookies.get(name_of(project_id), "").rpartition(".")
        expected = self._signature(project_id, said)
        if not said or not hmac.compare_digest(signature.encode(), expected.encode()):
            return None
        token_id, _, until = said.rpartition(".")
        return token_id if int(until) > time.time() else None

    def set(self, response: Response, project_id: str, value: str) -> None:
        """Have a browser keep a cookie."""
        response.set_cookie(
            name_of(project_id),
            value,
            max_age=_LASTS,
            httponly=True,
            samesite="strict",
            secure=self._is_secure,
        )

    def forget(self, response: Response, project_id: str) -> None:
        """Have a browser forget it."""
        response.delete_cookie(name_of(project_id), httponly=True, samesite="strict", secure=self._is_secure)

    def _signature(self, project_id: str, said: str) -> str:
        text = f"{len(project_id)}:{project_id}{said}".encode("utf-8", "surrogatepass")
        return base64.urlsafe_b64encode(hmac.digest(self._key, text, "sha256")).rstrip(b"=").decode()


def name_of(project_id: str) -> str:
    """What the cookie of a project is called: projects may have any name, cookies not."""
    return f"cbx_{hashlib.sha256(project_id.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"


# --- names of the server: a page of others cannot have its own name lead here, and read

# A name or an address, that of IPv6 in brackets, as a request names it; a star for all below one, or for any.
_NAME = re.compile(r"(?:\*\.)?[^\s:@/\[\]*?#]+|\[[0-9A-Fa-f:.]+\]|\*")
# As browsers send it: in small letters, without a path, and without the port that its scheme has anyway.
_ORIGIN = re.compile(
    r"(?!http://.*:80$|https://.*:443$)[a-z][a-z0-9+.-]*://(?:[^\s:@/\[\]*?#A-Z]+|\[[0-9a-f:.]+\])(?::[0-9]+)?"
)
# A name or an address, that of IPv6 in brackets; and a port.
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\s:@/\[\]]+)(?::[0-9]*)?")


def check_names(hosts: Sequence[str], origins: Sequence[str]) -> None:
    """Raise UsageError for what no request can name: a host, or the origin of a page."""
    for host in hosts:
        if not (host.isascii() and _NAME.fullmatch(host)):
            raise UsageError(
                f"--allowed-host: {host!r} is no name of a host",
                hint="a name or an address, without scheme, port and path: cbx.example.org, [::1]",
            )
    for origin in origins:
        if origin not in ("*", "null") and not (origin.isascii() and _ORIGIN.fullmatch(origin)):
            raise UsageError(
                f"--cors-origin: {origin!r} is no origin of a page",
                hint="a scheme and a host as browsers send them, without a path: https://app.example.org",
            )


class Hosts:
    """Refuses requests to other names than these. `*.example.org` stands for all below it, `*` for any."""

    def __init__(self, app: ASGIApp, names: Sequence[str]) -> None:
        self._app = app
        self._names = {name.lower() for name in names}
        self._domains = tuple(name[1:] for name in self._names if name.startswith("*."))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hand a request on."""
        if scope["type"] != "http" or self._is_known(Headers(scope=scope).get("host", "")):
            await self._app(scope, receive, send)
            return
        refusal = answer(
            400, "bad_request", "the server is not asked by this name: --allowed-host adds names"
        )
        await refusal(scope, receive, send)

    def _is_known(self, host: str) -> bool:
        found = _HOST.fullmatch(host)
        name = found[1].lower() if found else ""
        return "*" in self._names or name in self._names or name.endswith(self._domains)


# --- tokens

# Tokens that were good once and are remembered as such; they are looked up all the same.
_REMEMBERED = 1000
_ASKS = {"WWW-Authenticate": 'Bearer realm="cbx"'}


class Doorkeeper:
    """Admits requests, or raises Refused. May be asked by many threads at once."""

    def __init__(self, cookies: Cookies, *, asks_for_tokens: bool) -> None:
        self.cookies = cookies
        self.asks_for_tokens = asks_for_tokens
        self._attempts = Attempts()
        self._good: set[bytes] = set()
        self._lane = Lock()

    @contextmanager
    def at_the_door(self, request: Request, project_id: str) -> Iterator[None]:
        """Around `admit`, and the loan of its connection. Raises Refused where no database needs to be asked.

        401 where nothing is shown, 403 for another project's token, 429 where too many are being tried.
        """
        if not self.asks_for_tokens:
            yield
            return
        given = _bearer(request)
        if given is None:
            if self.cookies.token_of(request, project_id) is None:
                raise Refused(401, f"a token of project {project_id!r} is required", headers=_ASKS)
            yield
            return
        said = project_of(given)
        if said is not None and said != project_id:
            raise Refused(403, f"the token is not of project {project_id!r}")
        with self.trying(given):
            yield

    @contextmanager
    def trying(self, token: str) -> Iterator[None]:
        """Around the look-up of a token, and the loan of its connection. Raises Refused.

        Once there were too many wrong ones, tokens that were never good are looked up one at a time.
        """
        if project_of(token) is None:
            raise self._wrong()
        if hash_of(token) in self._good or not self._attempts.are_spent:
            yield
            return
        if not self._lane.acquire(blocking=False):
            raise _too_many()
        try:
            yield
        finally:
            self._lane.release()

    def admit(self, request: Request, database: Database, project_id: str) -> None:
        """Raise Refused with 401 for what is not in force. To be asked `at_the_door`."""
        if not self.asks_for_tokens:
            return
        given = _bearer(request)
        if given is not None:
            self._opened(database, project_id, given)
            return
        token_id = self.cookies.token_of(request, project_id)
        if token_id is None or not ApiTokenStore(database, project_id).is_in_force(token_id):
            raise Refused(401, "the token that you logged in with is no longer in force", headers=_ASKS)

    def exchange(self, database: Database, token: str) -> tuple[str, str]:
        """The project of a token, and the cookie that opens it in a browser. Raises Refused.

        To be asked while `trying`.
        """
        project_id = project_of(token) or ""
        return project_id, self.cookies.made(project_id, self._opened(database, project_id, token))

    def _opened(self, database: Database, project_id: str, token: str) -> str:
        token_id = ApiTokenStore(database, project_id).opens(token)
        if token_id is None:
            raise self._wrong()
        if len(self._good) >= _REMEMBERED:
            self._good = set()
        self._good.add(hash_of(token))
        return token_id

    def _wrong(self) -> Refused:
        if not self._attempts.failed():
            return _too_many()
        return Refused(401, "the token is not in force", headers=_ASKS)


def _too_many() -> Refused:
    return Refused(429, "too many wrong tokens", headers={"Retry-After": "10"})


def _bearer(request: Request) -> str | None:
    kind, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() if kind.lower() == "bearer" else None
