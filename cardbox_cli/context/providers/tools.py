"""Tool definitions, as requests store and send them: the function that one is, and whose tool it is.

Pure. A request keeps tools as they were written: OpenAI's function objects, flat ones, Anthropic's with an
`input_schema`. A provider's own tools, which it runs itself, are known to its record.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from cardbox_cli.context.parts import kind, text_at, tool_name
from cardbox_cli.context.providers.registry import providers
from cardbox_cli.context.request import Request

_KEYS = frozenset({"name", "description", "parameters", "input_schema", "strict"})


class Function(NamedTuple):
    """What a tool is for a model: its name, what it does, the JSON schema of its arguments if it has one, and
    `others`: what else stands in the definition."""

    name: str
    description: str | None
    schema: Any
    strict: Any
    others: dict[str, Any]


def function_of(tool: Mapping[str, Any]) -> Function | None:
    """The function that a tool is; None for a tool of another sort."""
    inner = tool.get("function")
    is_wrapped = isinstance(inner, dict)
    value = inner if is_wrapped and isinstance(inner, dict) else tool
    name, sort = text_at(value, "name"), tool.get("type", "function")
    if name is None or (sort not in ("function", "custom") if is_wrapped else not _is_flat(tool)):
        return None
    around = {key: each for key, each in tool.items() if is_wrapped and key not in ("type", "function")}
    others = {key: each for key, each in value.items() if key not in (*_KEYS, "type")}
    schema = value.get("parameters", value.get("input_schema"))
    return Function(name, text_at(value, "description"), schema, value.get("strict"), {**others, **around})


def _is_flat(tool: Mapping[str, Any]) -> bool:
    return "input_schema" in tool or tool.get("type") == "function" or "parameters" in tool


def is_custom(tool: Mapping[str, Any]) -> bool:
    """Whether it is a tool that takes any text, which OpenAI's formats alone have."""
    return tool.get("type") == "custom" and isinstance(tool.get("custom"), dict)


def custom_tool(tool: Mapping[str, Any], *, nested: bool) -> dict[str, Any]:
    """What a custom tool is: its name and the like, the grammar of its format in an object or without one."""
    custom: dict[str, Any] = tool["custom"]
    wanted = custom.get("format")
    if not isinstance(wanted, dict) or kind(wanted) != "grammar":
        return custom
    inner = wanted.get("grammar")
    grammar = (
        inner if isinstance(inner, dict) else {key: each for key, each in wanted.items() if key != "type"}
    )
    return {**custom, "format": {"type": "grammar", **({"grammar": grammar} if nested else grammar)}}


def chat_tool(function: Function) -> dict[str, Any]:
    """The definition as OpenAI's chat completions have it; flat, where it says more than these can."""
    said = {"description": function.description, "parameters": function.schema, "strict": function.strict}
    inner = {"name": function.name, **{key: value for key, value in said.items() if value is not None}}
    if function.others:
        return {"type": "function", **inner, **function.others}
    return {"type": "function", "function": inner}


def tools_for(request: Request, provider: str) -> list[dict[str, Any]]:
    """The tools of a request that are for `provider`: all but those that only another one runs."""
    others = [each for each in providers() if each.name != provider]
    own = next((each for each in providers() if each.name == provider), None)
    return [
        tool
        for tool in request.tools
        if (own is not None and own.runs_tool(tool)) or not any(each.runs_tool(tool) for each in others)
    ]


def stops_of(config: Mapping[str, Any], most: int | None = None) -> Any:
    """The texts that end an answer; None for none, or for more than `most` of `stop_sequences`."""
    stops = config.get("stop_sequences")
    are_too_many = most is not None and isinstance(stops, list) and len(stops) > most
    return config.get("stop") or (None if are_too_many else stops) or None


def choice_for(request: Request, tools: Sequence[Mapping[str, Any]]) -> Any:
    """The `tool_choice` of a request of whose tools these are sent; None where it can choose none of them."""
    choice = request.config.get("tool_choice")
    if not tools:
        return None
    unsent = {_named(tool) for tool in request.tools} - {_named(tool) for tool in tools}
    return None if isinstance(choice, dict) and _named(choice) in unsent else choice


def _named(tool: Mapping[str, Any]) -> str:
    """What a tool, or the choice of one, goes by: its name, or its type where that is all."""
    return tool_name(tool) or kind(tool)


def is_parallel(config: Mapping[str, Any]) -> Any:
    """Whether several tools may be called at once, as OpenAI or Anthropic says it; None for no word of it."""
    choice = config.get("tool_choice")
    is_off = isinstance(choice, dict) and choice.get("disable_parallel_tool_use") is True
    return config.get("parallel_tool_calls", False if is_off else None)


def choice_of(value: Any) -> str | None:
    """The name of the function that a `tool_choice` as OpenAI or Anthropic writes it wants; None for none."""
    return tool_name(value) if kind(value) in ("function", "tool") else None


def choice_mode(value: Any) -> str | None:
    """The mode that a `tool_choice` names: auto, required or none; None for another value."""
    mode = text_at(value, "type") if isinstance(value, dict) else value
    mode = "required" if mode == "any" else mode
    return mode if mode in ("auto", "required", "none") else None
