"""The form in which a browser exchanges a token for a cookie, and the way out."""

from html import escape
from typing import Annotated
from urllib.parse import quote, urlsplit

from fastapi import APIRouter, Form, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from cardbox_cli.serve.access.doorkeeper import Doorkeeper
from cardbox_cli.serve.errors import Refused
from cardbox_cli.store.connection.lending import Lending

routes = APIRouter(include_in_schema=False)

_POLICY = "default-src 'none'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
_FORM = """\
<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<meta name="color-scheme" content="light dark"><title>cbx: log in</title></head>
<body><main><h1>cbx</h1>{trouble}
<form method="post" action="/login">
<input type="hidden" name="next" value="{next}">
<p><label for="token">Token, as <code>cbx token create</code> printed it</label></p>
<p><input id="token" name="token" type="password" size="50" required autofocus autocomplete="off"></p>
<p><button>Log in</button></p></form></main></body></html>
"""


@routes.get("/login")
def form(next: str = "/") -> HTMLResponse:
    """The form."""
    return _form(next)


@routes.post("/login")
def log_in(request: Request, token: Annotated[str, Form()], next: Annotated[str, Form()] = "/") -> Response:
    """Exchange a token for a cookie, and go where the browser was to go."""
    _check_origin(request)
    doorkeeper: Doorkeeper = request.app.state.doorkeeper
    lending: Lending = request.app.state.lending
    try:
        with lending.snapshot() as database:
            project_id, cookie = doorkeeper.exchange(database, token.strip())
    except Refused as exc:
        return _form(next, trouble=exc.message, status=exc.status)
    response = RedirectResponse(_local(next) or "/", status_code=303)
    doorkeeper.cookies.set(response, project_id, cookie)
    return response


@routes.post("/logout")
def log_out(request: Request, project: Annotated[str, Form()]) -> Response:
    """Forget the cookie of a project."""
    _check_origin(request)
    doorkeeper: Doorkeeper = request.app.state.doorkeeper
    response = RedirectResponse("/login", status_code=303)
    doorkeeper.cookies.forget(response, project)
    return response


def login_address(next: str) -> str:
    """Where a browser logs in, and goes on from there."""
    return f"/login?next={quote(next)}"


def _form(next: str, *, trouble: str | None = None, status: int = 200) -> HTMLResponse:
    said = f'<p role="alert">{escape(trouble)}</p>' if trouble else ""
    page = _FORM.format(trouble=said, next=escape(_local(next) or "/", quote=True))
    headers = {"Content-Security-Policy": _POLICY, "Cache-Control": "no-store"}
    return HTMLResponse(page, status_code=status, headers=headers)


def _local(address: str) -> str | None:
    """An address within this server; None for one that leads elsewhere."""
    is_path = address.startswith("/") and not address.startswith(("//", "/\\"))
    return address if is_path and address.isprintable() else None


def _check_origin(request: Request) -> None:
    """Raise Refused for a form that another page has sent."""
    origin = request.headers.get("origin")
    if origin is not None and urlsplit(origin).netloc != request.headers.get("host"):
        raise Refused(403, "the form was sent by another page")
