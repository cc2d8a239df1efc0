"""Who may read a project: whoever shows a token of it that is in force, or a cookie made of one.

Where no tokens are asked for, as on an address that only this machine reaches, everybody who reaches it.
What can be refused without the database does not ask it, and whoever tries tokens has one connection at most.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

from fastapi import Request

from cardbox_cli.model.identity import hash_of, project_of
from cardbox_cli.serve.access.attempts import Attempts
from cardbox_cli.serve.access.cookies import Cookies
from cardbox_cli.serve.http.errors import Refused
from cardbox_cli.store.api_tokens import ApiTokenStore
from cardbox_cli.store.connection.database import Database

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
