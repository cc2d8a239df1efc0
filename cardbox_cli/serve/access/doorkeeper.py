"""Who may read a project: whoever shows a token of it that is in force, or a cookie made of one.

Where no tokens are asked for, as on an address that only this machine reaches, everybody who reaches it.
"""

from fastapi import Request

from cardbox_cli.model.api_tokens import project_of
from cardbox_cli.serve.access.attempts import Attempts
from cardbox_cli.serve.access.cookies import Cookies
from cardbox_cli.serve.errors import Refused
from cardbox_cli.store.api_tokens import ApiTokenStore
from cardbox_cli.store.connection.database import Database

_ASKS = {"WWW-Authenticate": 'Bearer realm="cbx"'}


class Doorkeeper:
    """Admits requests, or raises Refused. May be asked by many threads at once."""

    def __init__(self, cookies: Cookies, *, asks_for_tokens: bool) -> None:
        self.cookies = cookies
        self.asks_for_tokens = asks_for_tokens
        self._attempts = Attempts()

    def admit(self, request: Request, database: Database, project_id: str) -> None:
        """Raise Refused with 401 where nothing is shown, or nothing in force, 403 for another project's."""
        if not self.asks_for_tokens:
            return
        tokens = ApiTokenStore(database, project_id)
        given = _bearer(request)
        if given is not None:
            self._check_token(tokens, given, project_id)
            return
        token_id = self.cookies.token_of(request, project_id)
        if token_id is None:
            raise Refused(401, f"a token of project {project_id!r} is required", headers=_ASKS)
        if not tokens.is_in_force(token_id):
            raise Refused(401, "the token that you logged in with is no longer in force", headers=_ASKS)

    def exchange(self, database: Database, token: str) -> tuple[str, str]:
        """The project of a token, and the cookie that opens it in a browser. Raises Refused."""
        project_id = project_of(token)
        if project_id is None:
            raise self._wrong()
        token_id = ApiTokenStore(database, project_id).opens(token)
        if token_id is None:
            raise self._wrong()
        return project_id, self.cookies.made(project_id, token_id)

    def _check_token(self, tokens: ApiTokenStore, given: str, project_id: str) -> None:
        said = project_of(given)
        if said is not None and said != project_id:
            raise Refused(403, f"the token is not of project {project_id!r}")
        if tokens.opens(given) is None:
            raise self._wrong()

    def _wrong(self) -> Refused:
        if not self._attempts.failed():
            return Refused(429, "too many wrong tokens", headers={"Retry-After": "10"})
        return Refused(401, "the token is not in force", headers=_ASKS)


def _bearer(request: Request) -> str | None:
    kind, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() if kind.lower() == "bearer" else None
