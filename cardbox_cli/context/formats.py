"""The formats that a request can be sent in: those of the providers, and a plain text.

The text has each message under a line that names its speaker. It is no provider's: it is made of messages in
the chat form, and linted and compared by the default provider's rules.
"""

from typing import TYPE_CHECKING, Any

from cardbox_cli.context.providers.registry import DEFAULT, PROVIDERS, provider_named
from cardbox_cli.model import exact_json

if TYPE_CHECKING:
    from cardbox_cli.context.request import Encode, Request

TEXT = "text"


def format_names() -> tuple[str, ...]:
    """The names of all formats."""
    return (*PROVIDERS, TEXT)


def provider_of(format: str) -> str:
    """The provider whose messages a format is made of."""
    return DEFAULT if format == TEXT else format


def encoder_of(format: str) -> "Encode":
    """What makes cards messages in a format."""
    return provider_named(provider_of(format)).encode


def body_of(request: "Request", format: str) -> dict[str, Any]:
    """The JSON body of a request, in the format of its provider."""
    return provider_named(provider_of(format)).body(request)


def sent(request: "Request", format: str) -> bytes:
    """A request as a command reads it: its body, or the text."""
    return text(request).encode() if format == TEXT else exact_json.encode(body_of(request, format)) + b"\n"


def text(request: "Request") -> str:
    """The whole request, tools last, ended by a newline if there is anything to show."""
    sections = [_message(number, message.body) for number, message in enumerate(request.messages, 1)]
    sections += [_tool(tool) for tool in request.tools]
    return "\n\n".join(sections) + "\n" if sections else ""


def _message(number: int, body: dict[str, Any]) -> str:
    answers = f" for {body['tool_call_id']}" if body.get("tool_call_id") else ""
    lines = [f"── {number} {body.get('role')}{answers} ──"]
    content = body.get("content")
    if isinstance(content, str) and content:
        lines.append(content)
    elif isinstance(content, list):
        lines += [_part(part) for part in content]
    calls = body.get("tool_calls") or []
    lines += [_call(call) for call in (calls if isinstance(calls, list) else [calls])]
    extra = {key: value for key, value in body.items() if key not in _SHOWN and value is not None}
    lines += [f"{key}: {_plain(value)}" for key, value in extra.items()]
    return "\n".join(lines)


_SHOWN = frozenset({"role", "content", "tool_calls", "tool_call_id"})


def _part(part: Any) -> str:
    if isinstance(part, dict) and isinstance(part.get("text"), str):
        return str(part["text"])
    return f"[{_plain(part)}]"


def _call(call: Any) -> str:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        return f"→ {_plain(call)}"
    return f"→ {function.get('name')}({_plain(function.get('arguments'))})  [{call.get('id')}]"


def _tool(tool: dict[str, Any]) -> str:
    function = tool.get("function")
    shown = function if isinstance(function, dict) else tool
    return f"── tool {shown.get('name')} ──\n{shown.get('description') or _plain(tool)}"


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else exact_json.encode(value).decode()
