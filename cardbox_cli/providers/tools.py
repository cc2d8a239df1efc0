"""Tool definitions and parameters, as requests store and send them. This module is pure.

A request stores tools in their original form: OpenAI's function objects, flat functions, or Anthropic's tools
with an `input_schema`.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from cardbox_cli.context.parts import kind, text_at, tool_name
from cardbox_cli.context.provider import Provider
from cardbox_cli.context.request import Request
from cardbox_cli.context.request_schema import Schema

# The schema of a function without arguments, for formats that require a schema.
NO_ARGUMENTS = {"type": "object", "properties": {}}
_KEYS = frozenset({"name", "description", "parameters", "input_schema", "strict"})


class Function(NamedTuple):
    """A tool as a model sees it. `schema` describes its arguments. `others` has the other keys."""

    name: str
    description: str | None
    schema: Any
    strict: Any
    others: dict[str, Any]


def function_of(tool: Mapping[str, Any]) -> Function | None:
    """Return the function that a tool defines, or None for a tool of another type."""
    inner = tool.get("function")
    is_wrapped = isinstance(inner, dict)
    value = inner if is_wrapped and isinstance(inner, dict) else tool
    name, sort = text_at(value, "name"), tool.get("type", "function")
    is_flat = "input_schema" in tool or tool.get("type") == "function" or "parameters" in tool
    if name is None or not (sort in ("function", "custom") if is_wrapped else is_flat):
        return None
    around = {key: each for key, each in tool.items() if is_wrapped and key not in ("type", "function")}
    others = {key: each for key, each in value.items() if key not in (*_KEYS, "type")}
    schema = value.get("parameters", value.get("input_schema"))
    return Function(name, text_at(value, "description"), schema, value.get("strict"), {**others, **around})


def is_custom(tool: Mapping[str, Any]) -> bool:
    """Return whether a tool is a custom tool, which takes any text. Only OpenAI's formats have such tools."""
    return tool.get("type") == "custom" and isinstance(tool.get("custom"), dict)


def custom_tool(tool: Mapping[str, Any], *, nested: bool) -> dict[str, Any]:
    """Return the definition of a custom tool. `nested` puts the grammar of its format into an object."""
    custom: dict[str, Any] = tool["custom"]
    format = custom.get("format")
    if not isinstance(format, dict) or kind(format) != "grammar":
        return custom
    grammar = format.get("grammar")
    if not isinstance(grammar, dict):
        grammar = {key: each for key, each in format.items() if key != "type"}
    return {**custom, "format": {"type": "grammar", **({"grammar": grammar} if nested else grammar)}}


def chat_tool(function: Function) -> dict[str, Any]:
    """Return the definition for OpenAI's chat completions, or a flat one if they lack one of its keys."""
    schema, strict = function.schema, function.strict
    inner = compact(name=function.name, description=function.description, parameters=schema, strict=strict)
    if function.others:
        return {"type": "function", **inner, **function.others}
    return {"type": "function", "function": inner}


def compact(**values: Any) -> dict[str, Any]:
    """Return the values that are not None, by their names."""
    return {name: value for name, value in values.items() if value is not None}


def token_limit(
    config: Mapping[str, Any], names: Sequence[str] = ("max_tokens", "max_completion_tokens")
) -> Any:
    """Return the maximum tokens of an answer under the first of `names` that is set, or None."""
    return next((config[name] for name in names if config.get(name)), None)


def stops_of(config: Mapping[str, Any], most: int | None = None) -> Any:
    """Return the texts that end an answer. None if there are none, or more than `most` `stop_sequences`."""
    stops = config.get("stop_sequences")
    are_too_many = most is not None and isinstance(stops, list) and len(stops) > most
    return config.get("stop") or (None if are_too_many else stops) or None


def choice_for(request: Request, tools: Sequence[Mapping[str, Any]]) -> Any:
    """Return the `tool_choice` of a request that sends `tools`, or None if its tool is not among them."""
    choice = request.config.get("tool_choice")
    if not tools:
        return None
    unsent = {_tool_name(tool) for tool in request.tools} - {_tool_name(tool) for tool in tools}
    return None if isinstance(choice, dict) and _tool_name(choice) in unsent else choice


def _tool_name(tool: Mapping[str, Any]) -> str:
    """Return the name of a tool or of a tool choice, or its type if it has no name."""
    return tool_name(tool) or kind(tool)


def is_parallel(config: Mapping[str, Any]) -> Any:
    """Return whether a model may call several tools at once, by OpenAI's or Anthropic's key, or None."""
    choice = config.get("tool_choice")
    is_off = isinstance(choice, dict) and choice.get("disable_parallel_tool_use") is True
    return config.get("parallel_tool_calls", False if is_off else None)


def choice_of(value: Any) -> str | None:
    """Return the name of the function that a `tool_choice` of OpenAI or Anthropic requires, or None."""
    return tool_name(value) if kind(value) in ("function", "tool") else None


def choice_mode(value: Any) -> str | None:
    """Return the mode that a `tool_choice` names (auto, required or none), or None for another value."""
    mode = text_at(value, "type") if isinstance(value, dict) else value
    mode = "required" if mode == "any" else mode
    return mode if mode in ("auto", "required", "none") else None


def copy_parameters(
    config: Mapping[str, Any], names: Iterable[str], provider: Provider, *, nulls: bool = False
) -> dict[str, Any]:
    """Return the parameters of these names that are set, except values that only another provider takes.

    Providers may give one name different meanings. For example, `metadata` has any strings or a user's id. A
    parameter that no provider takes is copied, so that the lint reports it.
    """
    given = {name: config[name] for name in names if name in config and (nulls or config[name] is not None)}
    own = provider.schema
    unfit = [key for key, value in given.items() if own is not None and not _fits(own, key, value)]
    others = [each.schema for each in provider.peers() if each.schema is not None] if unfit else []
    anothers = {key for key in unfit for each in others if key in each.names and _fits(each, key, given[key])}
    return {key: value for key, value in given.items() if key not in anothers}


def _fits(schema: Schema, key: str, value: Any) -> bool:
    return key not in schema.keys or not any(schema.misfits_of_value(key, value))


def misfitting_keys(tool: Mapping[str, Any], provider: Provider) -> set[str]:
    misfits = () if provider.schema is None else provider.schema.misfits_of_item("tools", 0, tool)
    return {str(misfit.place[2]) for misfit in misfits if len(misfit.place) > 2}
