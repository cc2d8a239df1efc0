"""The parts that all pages share: environment, filters, headers, scripts, styles, and error pages.

Jinja escapes text; this module also escapes invisible characters. A page runs in one snapshot. Its route is a
`PageRoute`, which answers errors as pages.
"""

import hashlib
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from http import HTTPStatus
from importlib import resources
from typing import Any

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse
from jinja2 import Environment, PackageLoader, StrictUndefined, pass_context
from jinja2.runtime import Context
from markupsafe import Markup
from starlette.exceptions import HTTPException

from cardbox_cli import __version__
from cardbox_cli.context.diff import Extent
from cardbox_cli.errors import CbxError, NotFound
from cardbox_cli.inspect.turns import Event
from cardbox_cli.model.cards import ROLES
from cardbox_cli.model.execution.turns import Step
from cardbox_cli.model.ids import short_id
from cardbox_cli.pictures.page_elements import Element, drawing_style, markup
from cardbox_cli.serve.addresses import request_address
from cardbox_cli.serve.http.errors import error_parts, headers_for, log_error
from cardbox_cli.serve.http.routing import ReadingRoute
from cardbox_cli.serve.page.links import PREFIX, Links
from cardbox_cli.serve.project_view import ProjectView
from cardbox_cli.text.command_lines import command_line
from cardbox_cli.text.escaping import escape_invisible, excerpt, truncate
from cardbox_cli.text.quantities import format_bytes, format_count
from cardbox_cli.text.times import format_age, format_duration, format_infinity, format_time

# --- static files: scripts, styles, the icon. An address has the hash of the file's content

STATIC = f"{PREFIX}/-/files"

_KINDS = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_NAMES = ("page.css", "page.js", "icon.svg", "vendor/htmx.min.js")
_DRAWINGS = "drawing.css"


def static_file(name: str) -> tuple[bytes, str]:
    """Return the content and the media type of a static file. Raises NotFound."""
    if name not in (*_NAMES, _DRAWINGS):
        raise NotFound(f"no file {name!r}")
    return _static(name), next(kind for ending, kind in _KINDS.items() if name.endswith(ending))


@cache
def static_address(name: str) -> str:
    return f"{STATIC}/{name}?v={hashlib.sha256(_static(name)).hexdigest()[:12]}"


@cache
def _static(name: str) -> bytes:
    if name == _DRAWINGS:
        return drawing_style().encode()
    return resources.files(__package__).joinpath("static").joinpath(*name.split("/")).read_bytes()


# --- filters

_COLOURS = {
    "bad": ("stuck", "unknown", "failed", "timeout", "error", "dropped", "expired", "lost"),
    "warn": ("waiting", "suspended", "partial", "canceled", "deferred"),
    "good": ("healthy", "success", "completed", "received", "applied"),
    "runs": ("running", "dispatched", "processing", "active"),
}
_COLOUR_OF = {word: colour for colour, words in _COLOURS.items() for word in words}
# Ids of at least this length are shortened to their ends.
_LONG_ID = 28


def colour(word: str | None) -> str:
    """Return the CSS class of a state: bad, warn, good, runs or quiet."""
    return _COLOUR_OF.get(word or "", "quiet")


def instant(moment: datetime) -> str:
    return format_infinity(moment) or moment.astimezone(UTC).isoformat()


@pass_context
def age(context: Context, moment: datetime) -> str:
    """Format the distance of an instant from the page's time."""
    now: datetime = context["now"]
    if moment > now + timedelta(seconds=1):
        return format_infinity(moment) or f"in {format_duration(moment - now)}"
    return format_infinity(moment) or f"{format_age(moment, now)} ago"


def clock(moment: datetime, first: datetime) -> str:
    """Format the time since the first instant of a series: in seconds, or rounded if it is long."""
    passed = (moment - first).total_seconds()
    return f"+{max(passed, 0):.2f}s" if passed < 100 else f"+{format_duration(moment - first)}"


def took(step: Step) -> str:
    """Format the duration of a step, or return "–" if it is still running."""
    if step.started_at is None or step.ended_at is None:
        return "–"
    passed = (step.ended_at - step.started_at).total_seconds()
    return f"{passed:.1f}s" if passed < 100 else format_duration(step.ended_at - step.started_at)


def shortish(text: str) -> str:
    """Shorten a long id. Return any other text unchanged."""
    return short_id(text) if len(text) >= _LONG_ID and " " not in text else text


def tokens(number: int, exact: bool = True) -> str:
    """Format a number of tokens, with a `~` before an estimate."""
    return f"{'' if exact else '~'}{number:,}"


def extent(of: Extent) -> str:
    unknown = f" and those of {format_count(of.uncounted, 'unknown text')}" if of.uncounted else ""
    return f"{format_count(of.messages, 'message')}, {tokens(of.tokens, of.tokens_exact)} tokens{unknown}"


def role(name: Any) -> str:
    return name if name in ROLES else ""


def event(of: Event) -> str:
    is_wrong = of.event == "ended" and "success" not in of.text
    return f"{of.event} wrong" if is_wrong or (of.event == "step-end" and "failed" in of.text) else of.event


def capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def cut(text: str, most: int) -> tuple[str, bool]:
    """Return the first `most` characters of a text, and whether it was cut."""
    return text[:most], len(text) > most


@pass_context
def command(context: Context, words: Sequence[str]) -> str:
    return command_line(words, *context["project_option"])


FILTERS: dict[str, Any] = {
    "age": age,
    "bytes": format_bytes,
    "capital": capital,
    "clock": clock,
    "colour": colour,
    "command": command,
    "count": format_count,
    "event": event,
    "extent": extent,
    "instant": instant,
    "line": excerpt,
    "role": role,
    "short": short_id,
    "shortened": truncate,
    "shortish": shortish,
    "time": format_time,
    "tokens": tokens,
    "took": took,
}


# --- pages

# Only the server's own scripts, styles, images and forms; no frames, and nothing from other hosts.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}


_TEMPLATES = PackageLoader("cardbox_cli.serve.page")


@cache
def environment() -> Environment:
    templates = Environment(
        loader=_TEMPLATES,
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
        finalize=_visible,
    )
    templates.filters.update(FILTERS)
    templates.globals.update(static=static_address, version=__version__)
    return templates


@cache
def _is_fresh(name: str) -> bool:
    """Return True if a page updates itself."""
    return "data-fresh" in _TEMPLATES.get_source(environment(), name)[0]


def drawing_markup(element: Element | None) -> Markup:
    return Markup("" if element is None else markup(element))  # `markup` escapes texts


def _visible(value: Any) -> Any:
    # Markup is a subclass of str, and its texts were escaped here already.
    return escape_invisible(value) if type(value) is str else value


# Values of every template. `view` is the page's entry in the navigation.
_DEFAULTS = {"can_leave": False, "is_fresh": False, "view": "", "asked": None}


def page(read: ProjectView, template: str, /, **values: Any) -> HTMLResponse:
    """Render a page about a project with these values."""
    context = {
        "links": read.links,
        "here": read.here,
        "now": read.now,
        "project_option": read.project_option,
        "can_leave": read.asks_for_tokens,
        "is_fresh": _is_fresh(template),
        **values,
    }
    return _response(template, context)


def plain_page(
    request: Request,
    template: str,
    /,
    *,
    code: int = 200,
    headers: Mapping[str, str] | None = None,
    **values: Any,
) -> HTMLResponse:
    """Render a page without a project, or about a project that cannot be read."""
    project_id = request.path_params.get("project")
    links = None if project_id is None else Links(project_id)
    return _response(template, {"links": links, **values}, code, headers)


def _response(
    template: str, context: Mapping[str, Any], code: int = 200, headers: Mapping[str, str] | None = None
) -> HTMLResponse:
    text = environment().get_template(template).render({**_DEFAULTS, **context})
    return HTMLResponse(text, status_code=code, headers={**HEADERS, **(headers or {})})


# --- error pages: the error and a hint, without details of the server

_TITLES = {
    400: "The address is invalid",
    401: "A token is required",
    403: "Access denied",
    404: "Not found",
    409: "The id is ambiguous",
    503: "The database cannot be read",
}


class PageRoute(ReadingRoute):
    """A route that answers errors as pages."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        answer = super().get_route_handler()

        async def answer_or_explain(request: Request) -> Response:
            try:
                return await answer(request)
            except Exception as exc:
                return error_page(request, exc)

        return answer_or_explain


def error_page(request: Request, exc: Exception) -> Response:
    """Return the page for an error. Unexpected errors are logged, and their message is not shown."""
    if isinstance(exc, RequestValidationError):
        status, message = 400, "; ".join(f"{each['loc'][-1]}: {each['msg']}" for each in exc.errors()[:3])
    elif isinstance(exc, HTTPException):
        status, message = exc.status_code, str(exc.detail)
    else:
        status, _, message = error_parts(exc)
    if status >= 500:
        log_error(request.scope, exc)
    return plain_page(
        request,
        "login.html" if status == 401 else "error.html",
        code=status,
        headers=headers_for(exc),
        status=status,
        title=_TITLES.get(status) or HTTPStatus(status).phrase,
        message=message,
        # The hint of an outage would reveal the address of the database.
        hint=exc.hint if isinstance(exc, CbxError) and status < 500 else None,
        trouble=None,
        here=request_address(request.scope),
    )
