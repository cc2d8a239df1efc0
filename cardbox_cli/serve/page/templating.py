"""Pages made of templates. Jinja escapes what is no markup; here what cannot be seen is spelled, too.

Owns what every page has in common: its environment, filters, headers, scripts and styles, and what it says of
a failure. Routes of pages are `PageRoute`; all others answer failures as JSON.
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
from cardbox_cli.serve.addresses import address_of
from cardbox_cli.serve.http.errors import headers_for, logged, told
from cardbox_cli.serve.http.routing import ReadingRoute
from cardbox_cli.serve.page.links import PREFIX, Links
from cardbox_cli.serve.project import Project
from cardbox_cli.text import (
    command_line,
    format_bytes,
    format_count,
    format_duration,
    format_time,
    one_line,
    printable,
    shortened,
    unbounded,
)

# --- static files: scripts, styles, the icon. An address has the hash of the file's content

STATIC = f"{PREFIX}/-/files"

_KINDS = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_NAMES = ("page.css", "page.js", "icon.svg", "vendor/htmx.min.js")
_DRAWINGS = "drawing.css"


def static_file(name: str) -> tuple[bytes, str]:
    """A file of the package, and its media type. Raises NotFound."""
    if name not in (*_NAMES, _DRAWINGS):
        raise NotFound(f"no file {name!r}")
    return _static(name), next(kind for ending, kind in _KINDS.items() if name.endswith(ending))


@cache
def static_address(name: str) -> str:
    """The address of a file of the package."""
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
# Ids that are longer say no more to people than their ends.
_LONG_ID = 28


def colour(word: str | None) -> str:
    """The class of a state: bad, warn, good, runs, or none."""
    return _COLOUR_OF.get(word or "", "quiet")


def instant(moment: datetime) -> str:
    """An instant for machines."""
    return unbounded(moment) or moment.astimezone(UTC).isoformat()


def age(moment: datetime, now: datetime) -> str:
    """How long ago an instant was, or in how long it is, in words."""
    endless = unbounded(moment)
    if endless is not None:
        return endless
    return (
        f"in {format_duration(moment - now)}"
        if moment > now + timedelta(seconds=1)
        else f"{format_duration(now - moment)} ago"
    )


def clock(moment: datetime, first: datetime) -> str:
    """When something was, behind the first of a series: the seconds, or the longer the rounder."""
    passed = (moment - first).total_seconds()
    if passed < 100:
        return f"+{max(passed, 0):.2f}s"
    return f"+{format_duration(moment - first)}"


def took(step: Step) -> str:
    """How long a step took, or that it goes on."""
    if step.started_at is None or step.ended_at is None:
        return "–"
    passed = (step.ended_at - step.started_at).total_seconds()
    return f"{passed:.1f}s" if passed < 100 else format_duration(step.ended_at - step.started_at)


def shortish(text: str) -> str:
    """The short form of a long id, and any other text as it is."""
    return short_id(text) if len(text) >= _LONG_ID and " " not in text else text


def tokens(number: int, exact: bool = True) -> str:
    """A number of tokens; an estimate is marked."""
    return f"{'' if exact else '~'}{number:,}"


def extent(of: Extent) -> str:
    """How much of a request something is."""
    unknown = f" and those of {format_count(of.uncounted, 'unknown text')}" if of.uncounted else ""
    return f"{format_count(of.messages, 'message')}, {tokens(of.tokens, of.tokens_exact)} tokens{unknown}"


def role(name: Any) -> str:
    """The class of a role that is known."""
    return name if name in ROLES else ""


def event(of: Event) -> str:
    """The classes of what happened to a turn."""
    is_wrong = of.event == "ended" and "success" not in of.text
    return f"{of.event} wrong" if is_wrong or (of.event == "step-end" and "failed" in of.text) else of.event


def capital(text: str) -> str:
    """A sentence with its first letter made a capital."""
    return text[:1].upper() + text[1:]


def cut(text: str, most: int) -> tuple[str, bool]:
    """The beginning of a text, and whether there is more."""
    return text[:most], len(text) > most


def bytes_(number: int) -> str:
    """A number of bytes in the unit that fits."""
    return format_bytes(number)


def joined(pieces: Sequence[str | None]) -> str:
    """Those of the pieces that there are."""
    return ", ".join(piece for piece in pieces if piece)


FILTERS: dict[str, Any] = {
    "bytes": bytes_,
    "capital": capital,
    "clock": clock,
    "colour": colour,
    "count": format_count,
    "event": event,
    "extent": extent,
    "instant": instant,
    "line": one_line,
    "role": role,
    "short": short_id,
    "shortened": shortened,
    "shortish": shortish,
    "time": format_time,
    "tokens": tokens,
    "took": took,
}


# --- pages

# No script, style, picture or form but our own; no frame around us, and nothing from elsewhere.
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
    """The templates, and what they may call."""
    made = Environment(
        loader=_TEMPLATES,
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
        finalize=_visible,
    )
    made.filters.update(FILTERS)
    made.filters["age"] = _age
    made.filters["command"] = _command
    made.globals.update(static=static_address, version=__version__)
    return made


@cache
def _is_fresh(name: str) -> bool:
    """Whether a page shows what changes."""
    return "data-fresh" in _TEMPLATES.get_source(environment(), name)[0]


def drawn(element: Element | None) -> Markup:
    """A drawing within a page. The standard library's serializer has escaped it."""
    return Markup("" if element is None else markup(element))  # escaped there


def _visible(value: Any) -> Any:
    # Markup is a text, too, but of another class: it was made of texts that came by here.
    return printable(value) if type(value) is str else value


@pass_context
def _age(context: Context, moment: Any) -> str:
    return age(moment, context["now"])


@pass_context
def _command(context: Context, words: Sequence[str]) -> str:
    return command_line(words, *context["project_option"])


def page(look: Project, template: str, /, *, view: str = "", **values: Any) -> HTMLResponse:
    """The page that a template makes of these values. `view` is its entry of the navigation."""
    shown = {
        "links": look.links,
        "here": look.here,
        "now": look.now,
        "project_option": look.project_option,
        "can_leave": look.asks_for_tokens,
        "is_fresh": _is_fresh(template),
        "view": view,
        "asked": None,
        **values,
    }
    return _response(template, shown)


def plain_page(
    request: Request,
    template: str,
    /,
    *,
    code: int = 200,
    headers: Mapping[str, str] | None = None,
    **values: Any,
) -> HTMLResponse:
    """A page that is about no project, or about one that cannot be read."""
    project_id = request.path_params.get("project")
    shown = {
        "links": None if project_id is None else Links(project_id),
        "can_leave": False,
        "is_fresh": False,
        "view": "",
        "asked": None,
        **values,
    }
    return _response(template, shown, code, headers)


def _response(
    template: str, shown: Mapping[str, Any], code: int = 200, headers: Mapping[str, str] | None = None
) -> HTMLResponse:
    text = environment().get_template(template).render(shown)
    return HTMLResponse(text, status_code=code, headers={**HEADERS, **(headers or {})})


# --- failures: a page that says what is wrong, and what helps. Nothing of the server itself

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
