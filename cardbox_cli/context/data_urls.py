"""Files as `data:` URLs, the form in which the chat form holds their bytes, and what names their kind.

Pure functions of single values.
"""

import re
from typing import Any

from cardbox_cli.context.parts import kind, text_at

_MEDIA_TYPE = re.compile(r"data:([\w.+-]+/[\w.+-]+)")
_PARAMETER = re.compile(r"[\w.+-]+=[^,]*")
_AUDIO = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/mp3": "mp3", "audio/mpeg": "mp3"}


def data_url(media_type: str, data: str) -> str:
    """The URL that holds these bytes, which are base64."""
    return f"data:{media_type};base64,{data}"


def media_of(url: Any) -> tuple[str, str] | None:
    """The media type and the bytes, as base64, that a URL holds; None for one that holds none."""
    if not isinstance(url, str):
        return None
    head, marked, data = url.partition(";base64,")
    first, *parameters = head.split(";")
    media_type = _MEDIA_TYPE.fullmatch(first)
    if not marked or media_type is None or not all(map(_PARAMETER.fullmatch, parameters)):
        return None
    return media_type[1], data


def file_part(media_type: str, data: str, name: str | None = None) -> dict[str, Any]:
    """The content part in the chat form that holds a file."""
    if media_type.startswith("image/"):
        return {"type": "image_url", "image_url": {"url": data_url(media_type, data)}}
    if media_type in _AUDIO:
        return {"type": "input_audio", "input_audio": {"data": data, "format": _AUDIO[media_type]}}
    filename = name or f"file.{media_type.rpartition('/')[2]}"
    return {"type": "file", "file": {"filename": filename, "file_data": data_url(media_type, data)}}


def file_of(part: Any) -> tuple[str, str, str | None] | None:
    """The media type, the bytes and the name of the file that a content part in the chat form holds."""
    value = part.get(kind(part)) if isinstance(part, dict) and kind(part) else None
    if kind(part) == "image_url":
        media = media_of(address_of(part))
        return None if media is None else (*media, None)
    if kind(part) == "input_audio":
        data, sort = text_at(value, "data"), text_at(value, "format")
        return None if data is None or sort is None else (f"audio/{sort}", data, None)
    media = media_of(text_at(value, "file_data")) if kind(part) == "file" else None
    return None if media is None else (*media, text_at(value, "filename"))


def address_of(part: Any) -> str | None:
    """The URL of an image in the chat form."""
    value = part.get("image_url") if kind(part) == "image_url" else None
    return value if isinstance(value, str) else text_at(value, "url")
