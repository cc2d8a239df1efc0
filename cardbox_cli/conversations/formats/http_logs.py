"""Recorded HTTP: HAR files, and objects or lines that contain the body of a request as a string. Read only.

Each request with messages in its body is a conversation in its provider's format, with parameters and tools.
Other requests are left out, and so are headers, which contain secrets. Source: HAR 1.2, `entries`.
"""

import json
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

from cardbox_cli.context.parts import dict_at, text_at
from cardbox_cli.conversations.conversation import Conversation, FileEntry, Format
from cardbox_cli.conversations.formats.registry import find_format
from cardbox_cli.conversations.json_documents import (
    JsonDocument,
    JsonDocuments,
    MemoryDocuments,
    load_lazy_lists,
)
from cardbox_cli.conversations.message_lists import is_list, list_items
from cardbox_cli.conversations.recognition import recognize_format
from cardbox_cli.errors import InvalidConversation, UsageError
from cardbox_cli.model import exact_json
from cardbox_cli.model.cards import CardDraft
from cardbox_cli.providers.registry import DEFAULT, PROVIDERS, providers

NAME = "http"
# The keys of a request's body, and of the objects that contain the request.
_BODIES = ("body", "request_body", "requestBody", "http_body", "httpBody", "payload", "text")
_HOLDERS = ("request", "http_request", "httpRequest", "postData")


class _RecordedRequest(NamedTuple):
    """A recorded request: the path of keys to its body, its URL, and the text of its body."""

    key: str
    url: str
    text: str


def _find_request(value: Any, url: str = "", key: str = "") -> _RecordedRequest | None:
    """Return the request in an entry of a log if the text of its body may be a JSON object."""
    if not isinstance(value, dict):
        return None
    url = text_at(value, "url") or text_at(value, "uri") or text_at(value, "path") or url
    for name in _BODIES:
        text = text_at(value, name)
        if text is not None and text.lstrip()[:1] == "{":
            return _RecordedRequest(f"{key}{name}", url, text)
    return next(
        filter(None, (_find_request(value.get(name), url, f"{key}{name}.") for name in _HOLDERS)), None
    )


def _format_of(sent: _RecordedRequest, documents: JsonDocuments) -> Format | None:
    """Return the format of a body by its URL, otherwise by its evidence. None for a body without messages."""
    [(_, body)] = documents
    formats = [find_format(name) for name in PROVIDERS]
    path = sent.url.partition("?")[0].rstrip("/")
    for each in providers():
        if any(path.endswith(end) for end in each.files.endpoints):
            own = find_format(each.name)
            return own if own.fits(body) or own.marks(body) else None
    marked = any(each.marks(body) is not None for each in formats)
    if not marked and not find_format(DEFAULT).fits(body):
        return None
    return recognize_format(documents, formats, find_format(DEFAULT)).format


def _body(sent: _RecordedRequest, place: str) -> JsonDocuments | None:
    """Parse the body of a request as a document, None if it is not a JSON object."""
    where = f"{place}: {sent.key}"
    try:
        value = exact_json.read(sent.text, exact_json.strict_reader)
    except exact_json.Malformed:
        return None
    except ValueError as exc:
        raise InvalidConversation(f"{where}: {exc}") from exc
    return MemoryDocuments(where, [JsonDocument(where, value)]) if isinstance(value, dict) else None


def _marks(value: Any) -> str | None:
    if not isinstance(value, dict):
        return None
    if is_list(dict_at(value, "log").get("entries")):
        return "'log' has 'entries', as in a HAR file"
    if "role" in value or (sent := _find_request(value)) is None:
        return None
    try:
        body = json.loads(sent.text)
    except (ValueError, RecursionError):
        return None
    is_one = _has_messages(body) and not _has_messages(value)
    return f"{sent.key!r} is the body of a request" if is_one else None


def _has_messages(value: Any) -> bool:
    return any(find_format(name).fits(value) for name in PROVIDERS)


def _fits(value: Any) -> bool:
    """Return whether a value may be an entry of a log, with any body."""
    if any(text_at(value, key) is not None for key in ("url", "uri", "method")):
        return True
    return isinstance(value, dict) and any(isinstance(value.get(key), dict) for key in _HOLDERS)


def _read(documents: JsonDocuments, *, at: str | None = None) -> Iterator[Conversation]:
    if at is not None:
        raise UsageError(f"--at {at}: the format {NAME} has a fixed key for messages", hint="omit --at")
    total = matches = 0
    for place, value in _entries(documents):
        total += 1
        sent = _find_request(value)
        body = None if sent is None else _body(sent, place)
        if sent is None or body is None or (source := _format_of(sent, body)) is None:
            continue
        for each in source.read(body):
            matches += 1
            yield each
    if not matches:
        raise InvalidConversation(
            f"{documents.name}: none of {total} requests has a body with messages",
            hint="pass a log of requests to a model",
        )


def _entries(documents: JsonDocuments) -> Iterator[JsonDocument]:
    """Yield the entries of a log: those of a HAR file, the items of a list, or the lines."""
    for place, value in documents:
        log = value.get("log") if isinstance(value, dict) else None
        listed, where = (log.get("entries"), f"{place}: entries") if isinstance(log, dict) else (value, place)
        if is_list(listed):
            for index, each in enumerate(list_items(listed)):
                yield JsonDocument(f"{where}[{index}]", load_lazy_lists(each))
        else:
            yield JsonDocument(place, load_lazy_lists(value))


def _no_cards(_: FileEntry) -> list[CardDraft]:
    raise AssertionError("the entries of a log are in other formats")


def _check_first(mark: Any, value: Any) -> Any:
    """Apply `mark` to a value, or to the first item of a list."""
    return mark(next(iter(list_items(value)), None) if is_list(value) else value)


FORMAT = Format(
    name=NAME,
    provider=DEFAULT,
    keyspace=(NAME,),
    marks=partial(_check_first, _marks),
    fits=partial(_check_first, _fits),
    read=_read,
    draft=_no_cards,
)
