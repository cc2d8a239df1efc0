"""Tool calls as cards hold them: a list of functions with an id and arguments, which are JSON in a text.

Pure. Owns what arguments mean, and one form for the calls that models and their gateways write in many.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from cardbox_cli.model import exact_json

# Where the input of a call has arguments that are no JSON object.
RAW = "_raw"


class MalformedAnswer(ValueError):
    """What a model answered that is no message, or holds a tool call that is none."""


def arguments_of(arguments: Any) -> dict[str, Any] | None:
    """The object that a call's arguments are, {} where there are none; None for what is no JSON object."""
    if arguments is None or (isinstance(arguments, str) and not arguments.strip()):
        return {}
    try:
        value = exact_json.read_soon(arguments) if isinstance(arguments, str) else arguments
        exact_json.check_storable(value)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def input_of(arguments: Any) -> dict[str, Any]:
    """The input that a call's arguments are; those that are no JSON object stand in it as `_raw`."""
    value = arguments_of(arguments)
    return {RAW: arguments_text(arguments)} if value is None else value


def arguments_text(arguments: Any) -> str:
    """Arguments as text, as cards hold them."""
    if isinstance(arguments, str):
        return arguments
    return "{}" if arguments is None else exact_json.encode(arguments).decode()


def are_functions(calls: Any) -> bool:
    """Whether no tool call is another thing than one of a function."""
    for call in calls if isinstance(calls, list) else ():
        if not isinstance(call, dict) or not isinstance(call.get("function"), dict):
            return False
    return True


def other_calls(calls: Any) -> Iterator[Any]:
    """The tool calls that are no function's."""
    return (call for call in (calls if isinstance(calls, list) else ()) if not are_functions([call]))


def normalized_calls(calls: Sequence[Any]) -> list[dict[str, Any]]:
    """Calls as cards hold them: each with an id, maybe "", and arguments as text.

    Raises MalformedAnswer for one that names no function.
    """
    return [_normalized(call, index) for index, call in enumerate(calls)]


def _normalized(call: Any, index: int) -> dict[str, Any]:
    function = call.get("function") if isinstance(call, dict) else None
    name = function.get("name") if isinstance(function, dict) else None
    if not isinstance(function, dict) or not isinstance(name, str) or not name:
        raise MalformedAnswer(f"tool_calls[{index}] names no function")
    call_id = call.get("id")
    return {
        **call,
        "id": call_id if isinstance(call_id, str) else "",
        "type": "function",
        "function": {**function, "arguments": arguments_text(function.get("arguments"))},
    }
