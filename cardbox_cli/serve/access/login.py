"""The form in which a browser exchanges a token for a cookie, and the way out."""

from typing import Annotated
from urllib.parse import quote, urlsplit

from fastapi import APIRouter, Form, Request
from fastapi.responses import RedirectResponse, Response

from cardbox_cli.serve.access.doorkeeper import Doorkeeper
from cardbox_cli.serve.http.errors import Refused
from cardbox_cli.serve.page.templating import plain_page
from cardbox_cli.store.connection.connection_pool import Lending

routes = APIRouter(include_in_schema=False)


@routes.get("/login")
def form(request: Request, next: str = "/") -> Response:
    """The form."""
    return _form(request, next)


@routes.post("/login")
def log_in(request: Request, token: Annotated[str, Form()], next: Annotated[str, Form()] = "/") -> Response:
    """Exchange a token for a cookie, and go where the browser was to go."""
    _check_origin(request)
    doorkeeper: Doorkeeper = request.app.state.doorkeeper
    lending: Lending = request.app.state.lending
    try:
        with doorkeeper.trying(token.strip()), lending.snapshot() as database:
            project_id, cookie = doorkeeper.exchange(database, token.strip())
    except Refused as exc:
        return _form(request, next, trouble=exc.message, status=exc.status)
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


def _form(request: Request, next: str, *, trouble: str | None = None, status: int = 200) -> Response:
    return plain_page(
        request,
        "login.html",
        code=status,
        title="Log in",
        message="a token of the project opens its pages",
        trouble=trouble,
        here=_local(next) or "/",
    )


def _local(address: str) -> str | None:
    """An address within this server; None for one that leads elsewhere."""
    is_path = address.startswith("/") and not address.startswith(("//", "/\\"))
    return address if is_path and address.isprintable() else None


def _check_origin(request: Request) -> None:
    """Raise Refused for a form that another page has sent."""
    origin = request.headers.get("origin")
    if origin is not None and _place(origin) != request.headers.get("host"):
        raise Refused(403, "the form was sent by another page")


def _place(origin: str) -> str | None:
    """The host and the port of an origin; None of what is no address."""
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return None
