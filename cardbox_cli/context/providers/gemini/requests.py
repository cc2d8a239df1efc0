"""What stands beside the contents of a request to Gemini, as the parameters and the tools that cbx keeps.

The reverse of `body`: what has a name that every format knows gets it, and the rest stays as it is.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from cardbox_cli.context.parts import text_at
from cardbox_cli.context.providers.gemini.body import GENERATION
from cardbox_cli.context.providers.gemini.parts import at, camel_key
from cardbox_cli.context.providers.tools import Function, chat_tool

_OWN_TOOLS = (
    *("googleSearch", "google_search", "googleSearchRetrieval", "google_search_retrieval"),
    *("codeExecution", "code_execution", "urlContext", "url_context", "computerUse", "computer_use"),
    *("fileSearch", "file_search", "googleMaps", "google_maps", "enterpriseWebSearch", "retrieval"),
    *("mcpServers", "mcp_servers"),
)
_DECLARATIONS = ("functionDeclarations", "function_declarations")
_NAMES = {"maxOutputTokens": "max_tokens", "stopSequences": "stop"} | {
    name: key for key, name in GENERATION.items()
}
_MODES = {"AUTO": "auto", "ANY": "required", "NONE": "none"}
# The types of a schema, which may also be written as their numbers from 1.
_TYPES = ("STRING", "NUMBER", "INTEGER", "BOOLEAN", "ARRAY", "OBJECT", "NULL")


def runs_tool(tool: Mapping[str, Any]) -> bool:
    """Whether it is a tool that Gemini runs itself."""
    return "type" not in tool and any(name in tool for name in _OWN_TOOLS)


def read_request(beside: Mapping[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The llm_config and the tools of a request."""
    config: dict[str, Any] = {}
    for key, value in beside.items():
        if key in ("generationConfig", "generation_config") and isinstance(value, dict):
            config |= _generation(value)
        elif key in ("toolConfig", "tool_config") and (choice := _choice(value)) is not None:
            config["tool_choice"] = choice
        elif key != "tools":
            config[key] = value
    tools = beside.get("tools")
    return config, [each for tool in tools if isinstance(tool, dict) for each in _tools(tool)] if isinstance(
        tools, list
    ) else []


def _generation(given: Mapping[str, Any]) -> dict[str, Any]:
    named = {key: _NAMES.get(camel_key(key)) for key in given}
    config = {name: given[key] for key, name in named.items() if name is not None}
    rest = {key: given[key] for key, name in named.items() if name is None}
    return {**config, **({"generationConfig": rest} if rest else {})}


def _choice(value: Any) -> Any:
    """The choice of a tool as every format has it; None for what says more."""
    if not isinstance(value, dict):
        return None
    calling = at(value, "functionCallingConfig") or value.get("function_calling_config")
    if not isinstance(calling, dict) or len(value) > 1:
        return None
    mode, names = _MODES.get(text_at(calling, "mode") or ""), calling.get("allowedFunctionNames")
    if mode == "required" and isinstance(names, list) and len(names) == 1 and len(calling) == 2:
        return {"type": "function", "function": {"name": names[0]}}
    return mode if len(calling) == 1 else None


def _tools(tool: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The functions that a tool declares, each as one, and what else it is."""
    for key in _DECLARATIONS:
        declared = tool.get(key)
        for each in declared if isinstance(declared, list) else ():
            if isinstance(each, dict) and text_at(each, "name"):
                yield chat_tool(_function(each))
    rest = {key: value for key, value in tool.items() if key not in _DECLARATIONS}
    if rest:
        yield rest


def _function(declared: dict[str, Any]) -> Function:
    schema = declared.get("parametersJsonSchema", declared.get("parameters_json_schema"))
    if schema is None:
        schema = _json_schema(declared.get("parameters"))
    known = ("name", "description", "parameters", "parametersJsonSchema", "parameters_json_schema")
    others = {key: value for key, value in declared.items() if key not in known}
    return Function(declared["name"], text_at(declared, "description"), schema, None, others)


def _json_schema(schema: Any) -> Any:
    """A schema as OpenAPI's subset writes it, its types named as JSON Schema does."""
    if isinstance(schema, list):
        return [_json_schema(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: _json_schema(value) for key, value in schema.items()}
    sort = schema.get("type")
    if type(sort) is int and 0 < sort <= len(_TYPES):
        sort = _TYPES[sort - 1]
    return {**made, "type": sort.lower()} if isinstance(sort, str) and sort in _TYPES else made
