"""Pages made of templates. Jinja escapes what is no markup; here what cannot be seen is spelled, too.

Owns what every page has in common: its environment, its headers, its looks.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from fastapi import Request
from fastapi.responses import HTMLResponse
from jinja2 import Environment, PackageLoader, StrictUndefined, pass_context
from jinja2.runtime import Context
from markupsafe import Markup

from cardbox_cli import __version__
from cardbox_cli.pictures.page_elements import Element, markup
from cardbox_cli.serve.page import wording
from cardbox_cli.serve.page.files import address_of
from cardbox_cli.serve.page.links import Links
from cardbox_cli.serve.project import Project
from cardbox_cli.text import command_line, printable

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
    made.filters.update(wording.FILTERS)
    made.filters["age"] = _age
    made.filters["command"] = _command
    made.globals.update(static=address_of, version=__version__)
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
    return wording.age(moment, context["now"])


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
