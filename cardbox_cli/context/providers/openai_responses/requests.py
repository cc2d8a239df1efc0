"""What stands beside the input of a request to OpenAI's Responses, as the parameters and the tools that cbx
keeps.

The reverse of `body`: what has a name that every format knows gets it, and the rest stays as it is.
"""

from collections.abc import Mapping
from typing import Any

from cardbox_cli.context.parts import kind, text_at
from cardbox_cli.context.providers.tools import chat_tool, function_of, is_custom

# The tools that OpenAI runs for the Responses alone, and those that are asked for in its words.
_OWN_TOOLS = frozenset(
    {"web_search", "web_search_preview", "web_search_2025_08_26", "web_search_preview_2025_03_11"}
    | {"file_search", "mcp", "code_interpreter", "image_generation", "local_shell", "shell", "apply_patch"}
    | {
        "computer",
        "computer_use",
        "computer_use_preview",
        "tool_search",
        "namespace",
        "programmatic_tool_calling",
    }
)


def runs_tool(tool: Mapping[str, Any]) -> bool:
    """Whether it is a tool that only the Responses have."""
    return kind(tool) in _OWN_TOOLS or is_custom(tool)


def read_request(beside: Mapping[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The llm_config and the tools of a request."""
    config: dict[str, Any] = {}
    for key, value in beside.items():
        if key == "max_output_tokens":
            config["max_completion_tokens"] = value
        elif key == "reasoning" and isinstance(value, dict):
            config |= _reasoning(value)
        elif key == "text" and isinstance(value, dict):
            config |= _text(value)
        elif key == "tool_choice":
            config[key] = _choice(value)
        elif key != "tools":
            config[key] = value
    tools = beside.get("tools")
    return config, [_tool(each) for each in tools if isinstance(each, dict)] if isinstance(
        tools, list
    ) else []


def _reasoning(value: dict[str, Any]) -> dict[str, Any]:
    rest = {key: each for key, each in value.items() if key != "effort"}
    effort = {"reasoning_effort": value["effort"]} if "effort" in value else {}
    return {**effort, **({"reasoning": rest} if rest else {})}


def _text(value: dict[str, Any]) -> dict[str, Any]:
    config: dict[str, Any] = {}
    rest = dict(value)
    wanted = rest.pop("format", None)
    if text_at(wanted, "type") == "json_schema":
        schema = {key: each for key, each in wanted.items() if key != "type"}
        config["response_format"] = {"type": "json_schema", "json_schema": schema}
    elif wanted is not None:
        config["response_format"] = wanted
    if "verbosity" in rest:
        config["verbosity"] = rest.pop("verbosity")
    return {**config, **({"text": rest} if rest else {})}


def _choice(value: Any) -> Any:
    if kind(value) == "allowed_tools":
        tools = value.get("tools")
        named = [_choice(each) for each in tools] if isinstance(tools, list) else tools
        allowed = {key: each for key, each in value.items() if key != "type"}
        return {"type": "allowed_tools", "allowed_tools": {**allowed, "tools": named}}
    name = text_at(value, "name")
    return {"type": "function", "function": {"name": name}} if kind(value) == "function" and name else value


def _tool(tool: dict[str, Any]) -> dict[str, Any]:
    if kind(tool) == "custom" and "custom" not in tool:
        return {"type": "custom", "custom": {key: value for key, value in tool.items() if key != "type"}}
    function = function_of(tool) if kind(tool) == "function" else None
    return tool if function is None else chat_tool(function)
