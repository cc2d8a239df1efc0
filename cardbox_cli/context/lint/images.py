"""What is wrong with the bytes of an image that a request carries, as several providers see it."""

import base64
import binascii
import re

# The formats that providers take, by how their files begin (RFC 2083; ITU T.81; GIF89a; RFC 9649).
_BEGINNINGS = {
    "image/png": re.compile(rb"\x89PNG\r\n\x1a\n"),
    "image/jpeg": re.compile(rb"\xff\xd8\xff"),
    "image/gif": re.compile(rb"GIF8[79]a"),
    "image/webp": re.compile(rb"RIFF....WEBP", re.DOTALL),
}
FORMATS = tuple(_BEGINNINGS)


def image_problem(data: str) -> str | None:
    """What keeps base64 text from being an image in one of FORMATS; None for such a one."""
    return _bytes_problem(data) or (None if image_format(data) else "the bytes are no PNG, JPEG, GIF or WebP")


def image_format(data: str) -> str | None:
    """The media type that the bytes of an image in base64 show; None for any other bytes."""
    try:
        head = base64.b64decode(data[:64])
    except (binascii.Error, ValueError):
        return None
    return next((name for name, beginning in _BEGINNINGS.items() if beginning.match(head)), None)


def _bytes_problem(data: str) -> str | None:
    if not data:
        return "there are no bytes"
    return None if is_base64(data) else "the bytes are not in base64"


def is_base64(data: str) -> bool:
    """Return whether a text is base64, with its padding."""
    try:
        base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return False
    return True
