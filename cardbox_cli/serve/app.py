"""The ASGI app of `cbx serve`: routes, middleware, errors. Knows neither the server nor the command line."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from importlib.metadata import version

from fastapi import APIRouter, FastAPI
from starlette.middleware.cors import CORSMiddleware

from cardbox_cli.serve.access import AllowedHosts, Authenticator, Cookies, check_hosts_and_origins
from cardbox_cli.serve.addresses import EncodedSlashes
from cardbox_cli.serve.api import context_routes, execution_routes
from cardbox_cli.serve.api.responses import error_docs, openapi_document
from cardbox_cli.serve.change_feed import ChangeFeed
from cardbox_cli.serve.http.errors import OutageLog, add_error_handlers
from cardbox_cli.serve.http.middleware import AccessLog, RequestLimits
from cardbox_cli.serve.http.routing import StreamLimit
from cardbox_cli.serve.page import box_pages, request_pages, site_pages, turn_pages
from cardbox_cli.serve.page.links import PREFIX
from cardbox_cli.serve.serve_options import ServeOptions, is_loopback
from cardbox_cli.store.connection.connection_pool import ConnectionPool
from cardbox_cli.store.connection.target import find_listen_target

_LOCAL = ("localhost", "127.0.0.1", "[::1]")

API = (
    *(context_routes.box_routes, context_routes.card_routes, execution_routes.turn_routes),
    *(context_routes.request_routes, execution_routes.batch_routes, execution_routes.chat_routes),
    *(context_routes.search_routes, execution_routes.event_routes),
)
"""The routes of the API, in the order of the document."""
PAGES = (turn_pages.routes, box_pages.routes, request_pages.routes)
"""The routes of a project's pages."""


def make_app(options: ServeOptions) -> FastAPI:
    """Return the app for these options. It connects to the database at the first request.

    Raises UsageError for an invalid CBX_LISTEN_URL, host name or origin.
    """
    check_hosts_and_origins(options.hosts, options.origins)
    app = FastAPI(
        title="cbx",
        version=version("cardbox-cli"),
        lifespan=_lifespan,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.options = options
    app.state.streams = StreamLimit(options.streams)
    app.state.outages = OutageLog()
    app.state.feed = ChangeFeed(find_listen_target(options.target), pause=options.pause)
    cookies = Cookies(is_secure=options.behind_tls)
    app.state.authenticator = Authenticator(cookies, asks_for_tokens=options.asks_for_tokens)
    longest = timedelta(seconds=options.statement_timeout)
    app.state.connections = ConnectionPool(options.target, most=options.connections, longest=longest)
    app.include_router(_health)
    app.include_router(site_pages.login_routes)
    for each in API:
        app.include_router(each, prefix="/projects/{project}")
    for each in PAGES:
        app.include_router(each, prefix=f"{PREFIX}/{{project}}", include_in_schema=False)
    # Last, because it answers 404 to everything that no other route matches.
    app.include_router(site_pages.site_routes, include_in_schema=False)
    add_error_handlers(app)
    app.openapi = lambda: openapi_document(app, options)  # type: ignore[method-assign]  # as FastAPI documents
    _guard(app, options)
    return app


_health = APIRouter()


@_health.get("/health", responses=error_docs(400, 408, 413))
async def health() -> dict[str, str]:
    """Report that the server is running."""
    return {"status": "ok"}


def _guard(app: FastAPI, options: ServeOptions) -> None:
    """Add the middleware. The last one added runs first."""
    app.add_middleware(EncodedSlashes)
    if options.origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(options.origins),
            allow_methods=["GET", "POST"],
            allow_headers=["Authorization", "Content-Type", "If-None-Match"],
            expose_headers=["ETag", "Link"],
        )
    hosts = [*options.hosts] or ([*_LOCAL] if is_loopback(options.host) else [])
    if hosts:
        app.add_middleware(AllowedHosts, names=hosts)
    app.add_middleware(RequestLimits)
    if options.log is not None:
        app.add_middleware(AccessLog, write=options.log)


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    yield
    app.state.feed.close()
    app.state.connections.close()
