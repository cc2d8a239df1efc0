"""What goes wrong, as people see it: a page that says so, and what helps. Nothing of the server itself.

Routes of pages are of the class below; all others answer failures as JSON.
"""

from collections.abc import Callable, Coroutine
from http import HTTPStatus
from typing import Any

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from cardbox_cli.errors import CbxError
from cardbox_cli.serve.http.addresses import address_of
from cardbox_cli.serve.http.errors import headers_for, logged, told
from cardbox_cli.serve.http.routing import ReadingRoute
from cardbox_cli.serve.page.templating import plain_page

_TITLES = {
    400: "The address says nothing that can be shown",
    401: "A token is asked for",
    403: "This is not yours to read",
    404: "There is no such thing",
    409: "Several things are meant",
    503: "The database cannot be read",
}


class PageRoute(ReadingRoute):
    """A route whose failures are pages."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        answer = super().get_route_handler()

        async def answer_or_say(request: Request) -> Response:
            try:
                return await answer(request)
            except Exception as exc:
                return error_page(request, exc)

        return answer_or_say


def error_page(request: Request, exc: Exception) -> Response:
    """The page that says what failed. What nobody expected is logged, and says nothing of itself."""
    if isinstance(exc, RequestValidationError):
        status, message = 400, "; ".join(f"{each['loc'][-1]}: {each['msg']}" for each in exc.errors()[:3])
    elif isinstance(exc, HTTPException):
        status, message = exc.status_code, str(exc.detail)
    else:
        status, _, message = told(exc)
    if status >= 500:
        logged(request.scope, exc)
    return plain_page(
        request,
        "login.html" if status == 401 else "error.html",
        code=status,
        headers=headers_for(exc),
        status=status,
        title=_TITLES.get(status) or HTTPStatus(status).phrase,
        message=message,
        # Of an outage it says where the database is.
        hint=exc.hint if isinstance(exc, CbxError) and status < 500 else None,
        trouble=None,
        here=address_of(request.scope),
    )
