"""The files of pages: scripts, styles, the picture in the tab. An address bears the hash of what is there."""

import hashlib
from functools import cache
from importlib import resources

from cardbox_cli.errors import NotFound
from cardbox_cli.pictures.page_elements import drawing_style
from cardbox_cli.serve.page.links import PREFIX

ROOT = f"{PREFIX}/-/files"

_KINDS = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_NAMES = ("page.css", "page.js", "icon.svg", "vendor/htmx.min.js")
_DRAWINGS = "drawing.css"


def file(name: str) -> tuple[bytes, str]:
    """A file of the package, and its media type. Raises NotFound."""
    if name not in (*_NAMES, _DRAWINGS):
        raise NotFound(f"no file {name!r}")
    return _text(name), next(kind for ending, kind in _KINDS.items() if name.endswith(ending))


@cache
def address_of(name: str) -> str:
    """The address of a file of the package."""
    return f"{ROOT}/{name}?v={hashlib.sha256(_text(name)).hexdigest()[:12]}"


@cache
def _text(name: str) -> bytes:
    if name == _DRAWINGS:
        return drawing_style().encode()
    return resources.files(__package__).joinpath("static").joinpath(*name.split("/")).read_bytes()
