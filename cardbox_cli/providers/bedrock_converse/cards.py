"""Bedrock Converse's messages as cards, and back without loss; and the other keys of a request.

A block is an object with one key, its type. Sources: the model of `bedrock-runtime` in the package
`botocore`; Amazon Bedrock API reference, "ContentBlock" and "Converse".
"""

from collections.abc import Mapping
from typing import Any

from cardbox_cli.context.parts import dict_at, kind, list_at, text_at
from cardbox_cli.context.provider import MessageShape
from cardbox_cli.model.cards import CardDraft
from cardbox_cli.providers.parts import PartsFiles
from cardbox_cli.providers.tools import Function, chat_tool

NAME = "bedrock-converse"
# The types of blocks. The type of a block is its only key.
KINDS = (
    *("text", "image", "document", "video", "audio", "toolUse", "toolResult", "guardContent"),
    *("cachePoint", "reasoningContent", "citationsContent", "searchResult"),
)
# Maps the modes of `tool_choice` to their names in Converse.
MODES = {"auto": "auto", "required": "any"}
_MODES_READ = {name: mode for mode, name in MODES.items()}
# Maps parameters in `inferenceConfig` to their other names in an llm_config.
_NAMES = {"maxTokens": "max_tokens", "stopSequences": "stop", "topP": "top_p"}
_SYSTEM = "system"
_ROLES = ("user", "assistant")
# Keys that only a request to Bedrock has.
_OWN_KEYS = ("inferenceConfig", "additionalModelRequestFields", "guardrailConfig", "performanceConfig")


def kind_of(block: Any) -> str:
    """Return the type of a block, one of KINDS, or "" if it has none of them."""
    return next((name for name in KINDS if isinstance(block, dict) and name in block), "")


def _is_block(value: Any) -> bool:
    return isinstance(value, dict) and "type" not in value and any(key in KINDS for key in value)


def _is_message(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("role"), str) and "parts" not in value


class BedrockFiles(PartsFiles):
    shape = MessageShape("messages", _is_message, is_own=True)
    roles = _ROLES
    system_keys = (_SYSTEM,)
    endpoints = ("/converse", "/converse-stream")
    request_keys = (*_OWN_KEYS, "toolConfig")
    parameters = ("inferenceConfig", "toolConfig", "guardrailConfig", "additionalModelRequestFields")
    parts_key = "content"

    def marks_beside(self, beside: Mapping[str, Any]) -> str | None:
        own_key = next((key for key in _OWN_KEYS if key in beside), None)
        return None if own_key is None else f"{own_key!r} is next to the messages"

    def marks_message(self, message: Any) -> str | None:
        content = message.get("content") if isinstance(message, dict) else None
        if not isinstance(content, list) or not content or not _is_message(message):
            return None
        if not all(map(_is_block, content)):
            return None
        return f"a block has {next(key for key in content[0] if key in KINDS)!r} and no 'type'"

    def is_exchange(self, part: Any) -> bool:
        return _is_block(part) and ("toolUse" in part or "toolResult" in part)

    def problem(self, message: Any) -> str | None:
        if text_at(message, "role") not in _ROLES:
            role = message.get("role") if isinstance(message, dict) else None
            return f"the role {role!r} is none of Bedrock's: roles are {', '.join(_ROLES)}"
        content = message.get("content")
        if isinstance(content, str):
            return "the content of a message is a list of blocks, not a text"
        other = next(filter(None, map(kind, content)), None) if isinstance(content, list) else None
        return None if other is None else f"a block is of type {other!r}, and Bedrock's have no type"

    def draft(self, message: Any) -> list[CardDraft]:
        cards = self.provider.draft_parts(message["role"], list_at(message, "content"))
        return self.keep_around(message, message["role"], cards)

    def read_request(self, beside: Mapping[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        config: dict[str, Any] = {}
        tools: list[dict[str, Any]] = []
        for key, value in beside.items():
            if key == "inferenceConfig" and isinstance(value, dict):
                config |= {_NAMES.get(name) or name: each for name, each in value.items()}
            elif key == "toolConfig" and isinstance(value, dict):
                tools = [_read_tool(tool) for tool in list_at(value, "tools") if isinstance(tool, dict)]
                if (choice := _read_choice(value.get("toolChoice"))) is not None:
                    config["tool_choice"] = choice
            else:
                config["model" if key == "modelId" else key] = value
        return config, tools


def _read_tool(tool: dict[str, Any]) -> dict[str, Any]:
    spec = dict_at(tool, "toolSpec")
    name = text_at(spec, "name")
    if name is None:
        return tool
    schema = dict_at(spec, "inputSchema").get("json")
    known = ("name", "description", "inputSchema", "strict")
    others = {key: value for key, value in spec.items() if key not in known}
    return chat_tool(Function(name, text_at(spec, "description"), schema, spec.get("strict"), others))


def _read_choice(choice: Any) -> Any:
    if not isinstance(choice, dict) or len(choice) != 1:
        return None
    [(mode, value)] = choice.items()
    if mode == "tool":
        return {"type": "function", "function": {"name": text_at(value, "name") or ""}}
    return _MODES_READ.get(mode)
