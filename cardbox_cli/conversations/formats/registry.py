"""The registry of the formats of conversation files.

Each provider's messages are a format, which its record defines. Add a line to `OTHERS` for any other format.
"""

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

from cardbox_cli.providers.registry import DEFAULT, PROVIDERS, provider_named

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from cardbox_cli.conversations.conversation import Format
    from cardbox_cli.conversations.json_documents import Documents
    from cardbox_cli.conversations.recognition import Recognised
    from cardbox_cli.model.cards import Card


class OtherFormat(NamedTuple):
    """A format other than a provider's messages: `module` defines it as `FORMAT`.

    A box cannot be exported to a `read_only` format.
    """

    module: str
    read_only: bool = True


OTHERS = {
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
    """Return the names of all formats."""
    return (*PROVIDERS, *OTHERS)


@cache
def format_named(name: str) -> "Format":
    """Return the format of this name, one of `format_names`."""
    if name in OTHERS:
        other: Format = import_module(OTHERS[name].module).FORMAT
        return other
    from cardbox_cli.conversations.provider_messages import messages_format

    return messages_format(provider_named(name))


def exported_names() -> tuple[str, ...]:
    """Return the names of the formats that a box can be exported to."""
    return (*PROVIDERS, *(name for name, other in OTHERS.items() if not other.read_only))


def exporter_named(name: str) -> "Callable[[Iterable[Card]], Iterator[str]]":
    """Return the export function of this format, one of `exported_names`."""
    export = format_named(name).export
    assert export is not None, name
    return export


def choose_format(name: str | None, documents: "Documents") -> "Recognised":
    """Return the format of this name, or recognize the file's format if `name` is None.

    The providers' formats come last, in their order. Messages without evidence are the default provider's.
    Raises InvalidConversation for a file of several formats, or of another format than `name`.
    """
    from cardbox_cli.conversations.recognition import Recognised, check_named, recognise

    formats = [format_named(each) for each in (*OTHERS, *PROVIDERS)]
    if name is None:
        return recognise(documents, formats, format_named(DEFAULT))
    check_named(documents, format_named(name), formats, format_named(DEFAULT))
    return Recognised(format_named(name))
