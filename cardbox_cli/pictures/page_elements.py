"""A page of one file: its head, its looks, and the elements that pages are made of.

Text becomes markup in one place, the standard library's serializer, which escapes it; characters that hide
or turn round what is read are spelled out before. No page has a script; its policy allows its own style and
nothing else, so that whatever a card says stays text.
"""

import hashlib
import re
from base64 import b64encode
from collections.abc import Collection, Iterable, Mapping, Sequence
from importlib import resources
from xml.etree import ElementTree as ET

from cardbox_cli.text import printable

Element = ET.Element
Child = Element | str | None

SVG = "http://www.w3.org/2000/svg"

# What neither HTML nor XML may hold, and `printable` leaves.
_NO_CHARACTER = re.compile("[\ufffe\uffff]")
# Lines of a long text that are shown at once.
_LINES = 12
_POLICY = "default-src 'none'; style-src 'sha256-{style}'; base-uri 'none'; form-action 'none'"


def element(tag: str, *children: Child, **attributes: object) -> Element:
    """An element. A `_` behind an attribute's name is dropped, others are dashes; None leaves one out."""
    named = {
        name.rstrip("_").replace("_", "-"): _shown(str(value))
        for name, value in attributes.items()
        if value is not None
    }
    made = Element(tag, named)
    for child in children:
        if isinstance(child, Element):
            made.append(child)
        elif child:
            _add_text(made, _shown(child))
    return made


def markup(made: Element) -> str:
    """The markup of an element, to stand within a page of HTML."""
    return ET.tostring(made, encoding="unicode", method="html")


def page(title: str, *content: Child) -> str:
    """The text of a page."""
    style = _style()
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
    """The text of a file that is a drawing, with its looks."""
    alone = Element("svg", {**svg.attrib, "xmlns": SVG})
    alone.extend([element("style", drawing_style()), *svg])
    return ET.tostring(alone, encoding="unicode") + "\n"


def section(title: str, *content: Child) -> Element:
    """A part of a page under its heading."""
    return element("section", element("h2", title), *content)


def facts(pairs: Mapping[str, str]) -> Element:
    """Names and what is said of each."""
    each = ((element("dt", name), element("dd", value)) for name, value in pairs.items())
    return element("dl", *(child for pair in each for child in pair))


def swatch(colour: str) -> Element:
    """A small square of a colour, before the name of what has it."""
    square = element("rect", class_=colour, width=10, height=10)
    return element("svg", square, viewBox="0 0 10 10", class_="swatch", aria_hidden="true")


def table(
    label: str, names: Sequence[str], rows: Iterable[Iterable[Child]], *, numbers: Collection[str] = ()
) -> Element:
    """A table that scrolls sideways where it is too wide; the columns in `numbers` hold numbers."""
    classes = ["number" if name in numbers else None for name in names]
    head = element(
        "tr",
        *(element("th", name, scope="col", class_=each) for name, each in zip(names, classes, strict=True)),
    )
    body = (
        element("tr", *(element("td", cell, class_=each) for cell, each in zip(row, classes, strict=True)))
        for row in rows
    )
    return scrolled(label, element("table", element("thead", head), element("tbody", *body)))


def scrolled(label: str, wide: Element) -> Element:
    """What scrolls sideways where it is too wide, by the keyboard, too."""
    return element("div", wide, class_="wide", role="region", aria_label=label, tabindex=0)


def svg(label: str, width: float, height: float, *content: Child) -> Element:
    """A drawing of so many units, as wide as the page."""
    return element(
        "svg",
        *content,
        viewBox=f"0 0 {width:g} {height:g}",
        role="img",
        aria_label=label,
        preserveAspectRatio="none",
        class_="drawing",
    )


def box(x: float, y: float, width: float, height: float, class_: str, tip: str) -> Element:
    """A rectangle that tells what it is."""
    sizes = {"x": f"{x:.2f}", "y": f"{y:.2f}", "width": f"{max(width, 0.0):.2f}", "height": f"{height:.2f}"}
    return element("rect", element("title", tip), class_=class_, **sizes)


def folded(text: str, shown: int) -> Element:
    """A text; of one longer than `shown` characters or some lines the beginning, until it is unfolded."""
    beginning = "\n".join(text[:shown].split("\n", _LINES)[:_LINES]).rstrip()
    if len(text.rstrip()) <= len(beginning):
        return element("pre", text, tabindex=0)
    summary = element("summary", element("span", beginning), f" … ({len(text):,} characters)")
    return element("details", summary, element("pre", text, tabindex=0))


def _shown(text: str) -> str:
    """The text without what hides or turns round what is read, and what no markup may hold."""
    return _NO_CHARACTER.sub(lambda found: found[0].encode("unicode_escape").decode(), printable(text))


def _add_text(to: Element, text: str) -> None:
    if len(to):
        to[-1].tail = (to[-1].tail or "") + text
    else:
        to.text = (to.text or "") + text


def _style() -> str:
    return drawing_style() + _file("page.css")


def drawing_style() -> str:
    """The looks of drawings: their colours, on light and on dark ground."""
    return _file("drawing.css")


def _file(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")
