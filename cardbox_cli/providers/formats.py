"""The formats of requests: the formats of the providers, and plain text.

In plain text, a heading names the speaker of each message. The content is indented, so that none of its lines
looks like a heading. Plain text belongs to no provider. It is made of messages in the chat form, and the
rules of the default provider lint and compare it.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from cardbox_cli.model import exact_json
from cardbox_cli.providers import registry
from cardbox_cli.text.escaping import INDENT, indent_lines, join_lines

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cardbox_cli.context.lint.rule import LintFinding
    from cardbox_cli.context.provider import Members, Provider
    from cardbox_cli.context.request import Encode, Request, RequestEntry

TEXT = "text"


def format_names() -> tuple[str, ...]:
    return (*registry.PROVIDERS, TEXT)


def provider_of(format: str) -> "Provider":
    """Return the provider of a format. Plain text uses the messages of the default provider."""
    return registry.provider_named(registry.DEFAULT if format == TEXT else format)


def other_provider_note(model: str | None, format: str) -> str | None:
    """Return a note if a request in the default format is for another provider's model, or None.

    A host may serve models of many providers, so a name such as `anthropic/claude-opus-4-5` causes no note.
    """
    name = registry.provider_for_model(model)
    if format != registry.DEFAULT or name == registry.DEFAULT or "/" in (model or ""):
        return None
    title = registry.provider_named(name).title
    note = f"the model {model!r} is {title}'s, and this body is in the format {format}"
    return f"{note}: --format {name} makes its own"


def encoder_of(format: str) -> "Encode":
    return provider_of(format).encode


def body_of(request: "Request", format: str) -> dict[str, Any]:
    return provider_of(format).body(request)


def members_of(request: "Request", format: str) -> "Members":
    """Yield the members of `body_of` in their order. A list may be given as an iterator."""
    return provider_of(format).members(request)


def sent(request: "Request", format: str) -> bytes:
    """Return the bytes of a request that a command reads on stdin: the JSON body or the plain text."""
    return text(request).encode() if format == TEXT else exact_json.encode(body_of(request, format)) + b"\n"


def sent_by_any(request: "Request", format: str) -> list[bytes]:
    """Return the bytes of `sent`, and for plain text also those of an older cbx, without indented content."""
    older = [text(request, indent="").encode()] if format == TEXT else []
    return [sent(request, format), *older]


def lint_entries(entries: "Sequence[RequestEntry]", model: str | None = None) -> "list[LintFinding]":
    """Return the lint's findings for the request of these cards. `model` defaults to the profile's model."""
    # The rules load slowly.
    from cardbox_cli.context.lint.rule import lint
    from cardbox_cli.context.request import ComposeOptions, request_of

    provider = registry.provider_named(registry.provider_for(entries, model))
    request = request_of(entries, ComposeOptions(model=model), encode=provider.encode)
    return lint(entries, request, provider)


def text(request: "Request", *, indent: str = INDENT) -> str:
    """Return the whole request as text, with its tools at the end. The text is empty or ends in a newline."""
    sections = list(text_sections(request, indent=indent))
    return "\n\n".join(sections) + "\n" if sections else ""


def text_sections(request: "Request", *, indent: str = INDENT) -> Iterator[str]:
    """Yield the sections of `text`: each message, then each tool."""
    write = _Writer(indent)
    for number, message in enumerate(request.messages, 1):
        yield write.message(number, message.body)
    yield from map(write.tool, request.tools)


_OWN_LINES = frozenset({"role", "content", "tool_calls", "tool_call_id"})


class _Writer:
    """A writer of messages and tools under headings. Their content is indented by `indent`."""

    def __init__(self, indent: str) -> None:
        self._indent = indent

    def message(self, number: int, body: dict[str, Any]) -> str:
        answers = f" for {body['tool_call_id']}" if body.get("tool_call_id") else ""
        lines = [_heading(f"{number} {body.get('role')}{answers}")]
        content = body.get("content")
        if isinstance(content, str) and content:
            lines.append(self._text(content))
        elif isinstance(content, list):
            lines += [self._part(part) for part in content]
        calls = body.get("tool_calls") or []
        lines += [self._below(_call(call)) for call in (calls if isinstance(calls, list) else [calls])]
        others = [key for key in body if key not in _OWN_LINES and body[key] is not None]
        lines += [self._below(f"{key}: {_plain(body[key])}") for key in others]
        return "\n".join(lines)

    def tool(self, tool: dict[str, Any]) -> str:
        function = tool.get("function")
        definition = function if isinstance(function, dict) else tool
        name = f"tool {definition.get('name')}"
        return f"{_heading(name)}\n{self._text(str(definition.get('description') or _plain(tool)))}"

    def _text(self, text: str) -> str:
        return indent_lines(text, self._indent)

    def _below(self, line: str) -> str:
        """Return `line` with all but its first line indented."""
        return self._text(line).removeprefix(self._indent)

    def _part(self, part: Any) -> str:
        if isinstance(part, dict) and isinstance(part.get("text"), str):
            return self._text(part["text"])
        return self._below(f"[{_plain(part)}]")


def _heading(text: str) -> str:
    return f"── {join_lines(text)} ──"


def _call(call: Any) -> str:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        return f"→ {_plain(call)}"
    return f"→ {function.get('name')}({_plain(function.get('arguments'))})  [{call.get('id')}]"


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else exact_json.encode(value).decode()
