"""Self-contained HTML pages: their head, their style, and the elements that they consist of.

Only the standard library's serializer turns text into markup, and it escapes it. Invisible characters and
those that change the text direction are escaped before. Pages have no scripts, and their policy allows only
their own style, so the content of a card is always text.
"""

import hashlib
import re
from base64 import b64encode
from collections.abc import Collection, Iterable, Mapping, Sequence
from importlib import resources
from xml.etree import ElementTree as ET

from cardbox_cli.text.escaping import escape_invisible

Element = ET.Element
Child = Element | str | None

SVG = "http://www.w3.org/2000/svg"

# Characters that HTML and XML forbid, and that `printable` does not escape.
_FORBIDDEN = re.compile("[\ufffe\uffff]")
# The maximum number of lines of a folded text.
_MAX_LINES = 12
_POLICY = "default-src 'none'; style-src 'sha256-{style}'; base-uri 'none'; form-action 'none'"


def element(tag: str, *children: Child, **attributes: object) -> Element:
    """Make an element. A trailing `_` of an attribute name is dropped, others become `-`; None omits one."""
    named = {
        name.rstrip("_").replace("_", "-"): _escape_invisible(str(value))
        for name, value in attributes.items()
        if value is not None
    }
    parent = Element(tag, named)
    for child in children:
        if isinstance(child, Element):
            parent.append(child)
        elif child:
            _add_text(parent, _escape_invisible(child))
    return parent


def markup(root: Element) -> str:
    return ET.tostring(root, encoding="unicode", method="html")


def page(title: str, *content: Child) -> str:
    style = drawing_style() + _file("page.css")
    digest = b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = _POLICY.format(style=digest)
    html = element(
        "html",
        element(
            "head",
            element("meta", charset="utf-8"),
            element("meta", http_equiv="Content-Security-Policy", content=policy),
            element("meta", name="viewport", content="width=device-width, initial-scale=1"),
            element("meta", name="referrer", content="no-referrer"),
            element("title", title),
            element("style", style),
        ),
        element("body", element("main", element("h1", title), *content)),
        lang="en",
    )
    return "<!doctype html>\n" + markup(html) + "\n"


def drawing(svg: Element) -> str:
    alone = Element("svg", {**svg.attrib, "xmlns": SVG})
    alone.extend([element("style", drawing_style()), *svg])
    return ET.tostring(alone, encoding="unicode") + "\n"


def section(title: str, *content: Child) -> Element:
    return element("section", element("h2", title), *content)


def facts(pairs: Mapping[str, str]) -> Element:
    each = ((element("dt", name), element("dd", value)) for name, value in pairs.items())
    return element("dl", *(child for pair in each for child in pair))


def swatch(colour: str) -> Element:
    """Make a small square of a colour for a legend."""
    square = element("rect", class_=colour, width=10, height=10)
    return element("svg", square, viewBox="0 0 10 10", class_="swatch", aria_hidden="true")


def table(
    label: str, names: Sequence[str], rows: Iterable[Iterable[Child]], *, numbers: Collection[str] = ()
) -> Element:
    """Make a table that scrolls sideways if it is too wide; the columns in `numbers` hold numbers."""
    classes = ["number" if name in numbers else None for name in names]
    head = element(
        "tr",
        *(element("th", name, scope="col", class_=each) for name, each in zip(names, classes, strict=True)),
    )
    body = (
        element("tr", *(element("td", cell, class_=each) for cell, each in zip(row, classes, strict=True)))
        for row in rows
    )
    return scroll_area(label, element("table", element("thead", head), element("tbody", *body)))


def scroll_area(label: str, wide: Element) -> Element:
    """Wrap a wide element so that it scrolls sideways, also by keyboard."""
    return element("div", wide, class_="wide", role="region", aria_label=label, tabindex=0)


def svg(label: str, width: float, height: float, *content: Child, class_: str = "drawing") -> Element:
    """Make a drawing of `width` × `height` units, as wide as the page."""
    return element(
        "svg",
        *content,
        viewBox=f"0 0 {width:g} {height:g}",
        role="img",
        aria_label=label,
        preserveAspectRatio="none",
        class_=class_,
    )


def box(x: float, y: float, width: float, height: float, class_: str, tip: str) -> Element:
    sizes = {"x": f"{x:.2f}", "y": f"{y:.2f}", "width": f"{max(width, 0.0):.2f}", "height": f"{height:.2f}"}
    return element("rect", element("title", tip), class_=class_, **sizes)


def folded_text(text: str, shown: int) -> Element:
    """Make a text. If it exceeds `shown` characters or `_MAX_LINES`, fold all but its beginning."""
    beginning = "\n".join(text[:shown].split("\n", _MAX_LINES)[:_MAX_LINES]).rstrip()
    if len(text.rstrip()) <= len(beginning):
        return element("pre", text, tabindex=0)
    summary = element("summary", element("span", beginning), f" … ({len(text):,} characters)")
    return element("details", summary, element("pre", text, tabindex=0))


def _escape_invisible(text: str) -> str:
    return _FORBIDDEN.sub(lambda found: found[0].encode("unicode_escape").decode(), escape_invisible(text))


def _add_text(parent: Element, text: str) -> None:
    if len(parent):
        parent[-1].tail = (parent[-1].tail or "") + text
    else:
        parent.text = (parent.text or "") + text


def drawing_style() -> str:
    return _file("drawing.css")


def _file(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")
