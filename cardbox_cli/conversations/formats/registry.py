"""The registry of the formats of conversation files.

Each provider's messages are a format, which its class defines. Add a line to `OTHER_FORMATS` for any other.
"""

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

from cardbox_cli.providers.registry import DEFAULT, PROVIDERS, provider_named

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from cardbox_cli.conversations.conversation import Format
    from cardbox_cli.conversations.json_documents import JsonDocuments
    from cardbox_cli.conversations.recognition import RecognizedFormat
    from cardbox_cli.model.cards import Card


class OtherFormat(NamedTuple):
    """A format other than a provider's messages: `module` defines it as `FORMAT`.

    A box cannot be exported to a `read_only` format.
    """

    module: str
    read_only: bool = True


OTHER_FORMATS = {
    "codex": OtherFormat("cardbox_cli.conversations.containers.codex"),
    "inspect": OtherFormat("cardbox_cli.conversations.containers.inspect_logs"),
    "letta": OtherFormat("cardbox_cli.conversations.containers.letta"),
    "openhands": OtherFormat("cardbox_cli.conversations.containers.openhands"),
    "pi": OtherFormat("cardbox_cli.conversations.containers.pi"),
    "swe-agent": OtherFormat("cardbox_cli.conversations.containers.swe_agent"),
    "claude-code": OtherFormat("cardbox_cli.conversations.formats.claude_code", read_only=False),
    "langchain": OtherFormat("cardbox_cli.conversations.formats.langchain", read_only=False),
    "sharegpt": OtherFormat("cardbox_cli.conversations.formats.sharegpt"),
    "otel": OtherFormat("cardbox_cli.conversations.formats.otel"),
    "http": OtherFormat("cardbox_cli.conversations.formats.http_logs"),
}


def format_names() -> tuple[str, ...]:
    return (*PROVIDERS, *OTHER_FORMATS)


@cache
def find_format(name: str) -> "Format":
    if name in OTHER_FORMATS:
        other: Format = import_module(OTHER_FORMATS[name].module).FORMAT
        return other
    from cardbox_cli.conversations.provider_messages import messages_format

    return messages_format(provider_named(name))


def export_format_names() -> tuple[str, ...]:
    return (*PROVIDERS, *(name for name, other in OTHER_FORMATS.items() if not other.read_only))


def find_exporter(name: str) -> "Callable[[Iterable[Card]], Iterator[str]]":
    """Return the export function of this format, one of `export_format_names`."""
    export = find_format(name).export
    assert export is not None, name
    return export


def choose_format(name: str | None, documents: "JsonDocuments") -> "RecognizedFormat":
    """Return the format of this name, or recognize the file's format if `name` is None.

    The providers' formats come last, in their order. Messages without evidence are the default provider's.
    Raises InvalidConversation for a file of several formats, or of another format than `name`.
    """
    from cardbox_cli.conversations.recognition import RecognizedFormat, check_format, recognize_format

    formats = [find_format(each) for each in (*OTHER_FORMATS, *PROVIDERS)]
    if name is None:
        return recognize_format(documents, formats, find_format(DEFAULT))
    check_format(documents, find_format(name), formats, find_format(DEFAULT))
    return RecognizedFormat(find_format(name))
