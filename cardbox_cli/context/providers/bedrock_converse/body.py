"""The body of a Bedrock Converse request, and how messages are joined in it. The model is in its URL.

Source: Amazon Bedrock API reference, "Converse".
"""

from collections.abc import Mapping
from typing import Any

from cardbox_cli.context.parts import text_at
from cardbox_cli.context.providers.bedrock_converse.blocks import NAME, PARTING
from cardbox_cli.context.providers.copied import copied
from cardbox_cli.context.providers.parted_bodies import in_parts, merged, system_parts
from cardbox_cli.context.providers.provider import Body, Members, plain_tools
from cardbox_cli.context.providers.tools import (
    Function,
    chat_tool,
    choice_for,
    choice_mode,
    choice_of,
    function_of,
    stops_of,
    tools_for,
)
from cardbox_cli.context.request import Request

# The parameters of an llm_config, and their names in `inferenceConfig`.
INFERENCE = {"temperature": "temperature", "top_p": "topP"}
# Keys of the body that an llm_config has as they are.
SAME_PARAMETERS = (
    *("guardrailConfig", "additionalModelRequestFields", "promptVariables", "requestMetadata"),
    *("additionalModelResponseFieldPaths", "performanceConfig", "serviceTier", "outputConfig"),
)
_MODES = {"auto": "auto", "required": "any"}
_HUB = {name: mode for mode, name in _MODES.items()}
_OBJECT = {"type": "object", "properties": {}}


def members(request: Request) -> Members:
    """The JSON body of `request`. All system text stands in `system`, in its order."""
    if system := system_parts(in_parts(PARTING, request.messages)):
        yield "system", system
    said = merged(PARTING, in_parts(PARTING, request.messages))
    yield "messages", ({"role": role, "content": blocks} for role, blocks in said)
    if inference := inference_config(request.config):
        yield "inferenceConfig", inference
    if tools := tools_for(request, NAME):
        choice = _choice(choice_for(request, tools))
        yield "toolConfig", {"tools": [_tool(tool) for tool in tools], **choice}
    same = {key: request.config[key] for key in SAME_PARAMETERS if request.config.get(key) is not None}
    yield from copied(same, NAME).items()


def split_tools(body: Body) -> tuple[list[Any], Body]:
    """The tools of a body, and the body without them."""
    tools, choice = plain_tools(body.get("toolConfig", {}))
    besides = {key: value for key, value in body.items() if key != "toolConfig"}
    return tools, {**besides, **({"toolConfig": choice} if choice else {})}


def inference_config(config: dict[str, Any]) -> Body:
    """The `inferenceConfig` that an llm_config makes."""
    found = {name: config[key] for key, name in INFERENCE.items() if config.get(key) is not None}
    limit = next((config[key] for key in ("max_tokens", "max_completion_tokens") if config.get(key)), None)
    stop = stops_of(config)
    stops = [stop] if isinstance(stop, str) else stop
    return {
        **({"maxTokens": limit} if limit is not None else {}),
        **found,
        **({"stopSequences": stops} if stops else {}),
    }


def _tool(tool: dict[str, Any]) -> Body:
    function = function_of(tool)
    if function is None:
        return tool
    described = {} if not function.description else {"description": function.description}
    strict = {} if function.strict is None else {"strict": function.strict}
    schema = {"json": function.schema or _OBJECT}
    return {"toolSpec": {"name": function.name, **described, "inputSchema": schema, **strict}}


def _choice(choice: Any) -> Body:
    if (name := choice_of(choice)) is not None:
        return {"toolChoice": {"tool": {"name": name}}}
    mode = _MODES.get(choice_mode(choice) or "")
    return {} if mode is None else {"toolChoice": {mode: {}}}


# --- the reverse: what stands beside the messages of a request


def runs_tool(tool: Mapping[str, Any]) -> bool:
    """Whether it is a tool, or a mark among tools, that only Bedrock knows."""
    return "type" not in tool and ("systemTool" in tool or "cachePoint" in tool)


_NAMES = {"maxTokens": "max_tokens", "stopSequences": "stop", "topP": "top_p"}


def read_request(beside: Mapping[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The llm_config and the tools of a request: what every format has a name for, and the rest as it is."""
    config: dict[str, Any] = {}
    tools: list[dict[str, Any]] = []
    for key, value in beside.items():
        if key == "inferenceConfig" and isinstance(value, dict):
            for name, each in value.items():
                config[_NAMES.get(name) or name] = each
        elif key == "toolConfig" and isinstance(value, dict):
            given = value.get("tools")
            tools = (
                [_read_tool(tool) for tool in given if isinstance(tool, dict)]
                if isinstance(given, list)
                else []
            )
            if (choice := _read_choice(value.get("toolChoice"))) is not None:
                config["tool_choice"] = choice
        else:
            config["model" if key == "modelId" else key] = value
    return config, tools


def _read_tool(tool: dict[str, Any]) -> dict[str, Any]:
    spec = tool.get("toolSpec")
    name = text_at(spec, "name")
    if not isinstance(spec, dict) or name is None:
        return tool
    given = spec.get("inputSchema")
    schema = given.get("json") if isinstance(given, dict) else None
    known = ("name", "description", "inputSchema", "strict")
    others = {key: value for key, value in spec.items() if key not in known}
    return chat_tool(Function(name, text_at(spec, "description"), schema, spec.get("strict"), others))


def _read_choice(choice: Any) -> Any:
    if not isinstance(choice, dict) or len(choice) != 1:
        return None
    [(mode, value)] = choice.items()
    if mode == "tool":
        return {"type": "function", "function": {"name": text_at(value, "name") or ""}}
    return _HUB.get(mode)
