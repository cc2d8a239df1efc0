"""Pages outside of projects: the start page, the list of projects, the login, static files, unknown pages."""

from itertools import islice
from typing import Annotated
from urllib.parse import urlsplit

from fastapi import APIRouter, Form, Request
from fastapi.responses import RedirectResponse, Response

from cardbox_cli.errors import NotFound
from cardbox_cli.serve.access import Authenticator
from cardbox_cli.serve.addresses import request_path
from cardbox_cli.serve.http.errors import RequestRejected
from cardbox_cli.serve.page.links import PREFIX, Links
from cardbox_cli.serve.page.templating import STATIC, PageRoute, plain_page, static_file
from cardbox_cli.serve.serve_options import ServeOptions
from cardbox_cli.store.connection.connection_pool import ConnectionPool
from cardbox_cli.store.projects import ProjectsStore

login_routes = APIRouter(include_in_schema=False)


@login_routes.get("/login")
def form(request: Request, next: str = "/") -> Response:
    return _login_form(request, next)


@login_routes.post("/login")
def log_in(request: Request, token: Annotated[str, Form()], next: Annotated[str, Form()] = "/") -> Response:
    """Exchange a token for a cookie, and redirect to the page that required it."""
    _check_origin(request)
    authenticator: Authenticator = request.app.state.authenticator
    connections: ConnectionPool = request.app.state.connections
    try:
        with authenticator.limit_lookups(token.strip()), connections.snapshot() as database:
            project_id, cookie = authenticator.exchange(database, token.strip())
    except RequestRejected as exc:
        return _login_form(request, next, trouble=exc.message, status=exc.status)
    response = RedirectResponse(_local(next) or "/", status_code=303)
    authenticator.cookies.set(response, project_id, cookie)
    return response


@login_routes.post("/logout")
def log_out(request: Request, project: Annotated[str, Form()]) -> Response:
    _check_origin(request)
    authenticator: Authenticator = request.app.state.authenticator
    response = RedirectResponse("/login", status_code=303)
    authenticator.cookies.forget(response, project)
    return response


def _login_form(request: Request, next: str, *, trouble: str | None = None, status: int = 200) -> Response:
    return plain_page(
        request,
        "login.html",
        code=status,
        title="Log in",
        message="a token for the project grants access to its pages",
        trouble=trouble,
        here=_local(next) or "/",
    )


def _local(address: str) -> str | None:
    """Return the address if it is on this server, or None otherwise."""
    is_path = address.startswith("/") and not address.startswith(("//", "/\\"))
    return address if is_path and address.isprintable() else None


def _check_origin(request: Request) -> None:
    """Raise RequestRejected for a form from another site."""
    origin = request.headers.get("origin")
    try:
        host = origin and urlsplit(origin).netloc
    except ValueError:
        host = None
    if origin is not None and host != request.headers.get("host"):
        raise RequestRejected(403, "the form was sent from another site")


site_routes = APIRouter(route_class=PageRoute)

_PROJECTS = 500
# The address of a file contains the hash of its content, so the content behind it never changes.
_CACHE_FOREVER = {"Cache-Control": "public, max-age=31536000, immutable"}


@site_routes.get("/")
def begin(request: Request) -> Response:
    options: ServeOptions = request.app.state.options
    return RedirectResponse(Links(options.project or options.usual_project).start(), status_code=303)


@site_routes.get(PREFIX)
def projects(request: Request) -> Response:
    """List the projects of the database. If tokens are required, redirect: a token is for one project."""
    options: ServeOptions = request.app.state.options
    if options.asks_for_tokens:
        return begin(request)
    connections: ConnectionPool = request.app.state.connections
    with connections.snapshot() as database:
        listing = list(islice(ProjectsStore(database).list(), _PROJECTS))
    rows = [{"address": Links(each.project_id).start(), "project": each} for each in listing]
    return plain_page(request, "projects.html", rows=rows)


@site_routes.get(STATIC + "/{name:path}")
def files(name: str) -> Response:
    body, kind = static_file(name)
    return Response(body, media_type=kind, headers=_CACHE_FOREVER)


@site_routes.get(PREFIX + "/{path:path}")
def nothing(request: Request, path: str) -> Response:
    """Answer 404, or redirect an address with a trailing slash to the one without."""
    address = request_path(request.scope)
    if address.endswith("/") and not address.endswith("//"):
        query = request.url.query
        return RedirectResponse(f"{address[:-1]}{'?' if query else ''}{query}", status_code=307)
    raise NotFound(f"no page {path!r}")
