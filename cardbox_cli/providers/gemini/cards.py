"""Gemini's contents as cards, and back without loss; and the other keys of a request.

The API takes its keys in camelCase and in snake_case. Sources: the types of the package `google-genai`;
Gemini API reference, "Content".
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from cardbox_cli.context.parts import kind, list_at, text_at
from cardbox_cli.context.provider import Body, MessageShape
from cardbox_cli.context.sources import keep
from cardbox_cli.model.cards import Card, CardDraft
from cardbox_cli.providers.parts import Part, PartsFiles
from cardbox_cli.providers.tools import Function, chat_tool

NAME = "gemini"
# The types of parts. The type of a part is one of its keys.
KINDS = (
    *("text", "inlineData", "fileData", "functionCall", "functionResponse"),
    *("executableCode", "codeExecutionResult", "toolCall", "toolResponse"),
)
_OTHER_KEYS = (
    *("mimeType", "fileUri", "displayName", "thoughtSignature", "finishReason", "promptFeedback"),
    *("blockReason", "usageMetadata", "functionCallingConfig"),
)
# Maps keys in camelCase to the same keys in snake_case.
SNAKE_KEYS = {key: re.sub("([A-Z])", r"_\1", key).lower() for key in (*KINDS, *_OTHER_KEYS)}
_KINDS = {key: name for name in KINDS for key in (name, SNAKE_KEYS[name])}
# The name of a result until the name of its call is known. No card can contain this text.
UNNAMED = "\0"
# Maps the parameters of an llm_config to their names in `generationConfig`.
GENERATION = {
    "temperature": "temperature",
    "top_p": "topP",
    "top_k": "topK",
    "seed": "seed",
    "n": "candidateCount",
    "presence_penalty": "presencePenalty",
    "frequency_penalty": "frequencyPenalty",
    "logprobs": "responseLogprobs",
    "top_logprobs": "logprobs",
}
MAX_STOPS = 5
_KEY = "contents"
_ROLES = ("user", "model", "function")
_CALLS = frozenset(("functionCall", "functionResponse"))
_SYSTEM_KEYS = ("systemInstruction", "system_instruction")
_DECLARATIONS = ("functionDeclarations", "function_declarations")
_NAMES = {"maxOutputTokens": "max_tokens", "stopSequences": "stop"} | {
    name: key for key, name in GENERATION.items()
}
_MODES = {"AUTO": "auto", "ANY": "required", "NONE": "none"}
# The types of a schema. A number from 1 may replace the name.
_TYPES = ("STRING", "NUMBER", "INTEGER", "BOOLEAN", "ARRAY", "OBJECT", "NULL")


def camel_key(key: str) -> str:
    first, *others = key.split("_")
    return first + "".join(map(str.capitalize, others))


def get_either_case(value: Any, key: str) -> Any:
    """Return the value of a camelCase key of an object, or else of the same key in snake_case."""
    if not isinstance(value, dict):
        return None
    return value[key] if key in value else value.get(SNAKE_KEYS.get(key, key))


def kind_of(part: Any) -> str:
    """Return the type of a part, one of KINDS, or "" if it has none of them."""
    if type(part) is dict and len(part) == 1:
        [(key, value)] = part.items()
        return _KINDS.get(key, "") if value is not None else ""
    return next((name for name in KINDS if get_either_case(part, name) is not None), "")


def named_part(part: Part, names: dict[str, str]) -> Part:
    """Return a part. A result gets the name of its call. `names` maps ids of earlier calls to names."""
    if type(part) is dict and len(part) == 1 and "text" in part:
        return part
    call = get_either_case(part, "functionCall")
    answer = part.get("functionResponse") if isinstance(part, dict) else None
    call_id, name = text_at(call, "id"), text_at(call, "name")
    if call_id and name:
        names[call_id] = name
    if not isinstance(answer, dict) or answer.get("name") != UNNAMED:
        return part
    answered = text_at(answer, "id") or ""
    return {**part, "functionResponse": {**answer, "name": names.get(answered) or answered or "tool"}}


def is_content(value: Any) -> bool:
    """Return whether a value appears to be a content: no part has the key `type`, and no key is `content`."""
    if not isinstance(value, dict) or "parts" not in value or "content" in value:
        return False
    return not any(map(kind, _parts(value["parts"])))


def _parts(parts: Any) -> list[Part]:
    """Return the parts of a content. One part may replace the list, as in Google's own examples."""
    return parts if isinstance(parts, list) else [parts] if isinstance(parts, dict) else []


def _alone(message: Any) -> Any:
    """Return the single content that replaces the list of contents, or None for an item of a list."""
    return message.get(_KEY) if isinstance(message, dict) and len(message) == 1 else None


class GeminiFiles(PartsFiles):
    shape = MessageShape(_KEY, is_content, is_own=True, takes_one=True)
    roles = _ROLES
    system_keys = _SYSTEM_KEYS
    nested_parameters = ("generationConfig",)
    endpoints = (":generateContent", ":streamGenerateContent", ":countTokens")
    request_keys = (_KEY,)
    parameters = ("generationConfig", "toolConfig", "safetySettings", "cachedContent")
    parts_key = "parts"
    assistant = "model"
    alone_key = _KEY

    def system_value(self, parts: list[Part]) -> Any:
        return {"parts": parts}

    def system_parts(self, value: Any) -> list[Part]:
        """Return the parts of a system instruction, which may be a string."""
        parts = value.get("parts") if isinstance(value, dict) else value
        return [{"text": parts}] if isinstance(parts, str) else _parts(parts)

    def marks_beside(self, beside: Mapping[str, Any]) -> str | None:
        own_key = next((key for key in (*_SYSTEM_KEYS, "generationConfig") if key in beside), None)
        return None if own_key is None else f"{own_key!r} is next to the messages"

    def marks_message(self, message: Any) -> str | None:
        return "a message has 'parts'" if is_content(_alone(message) or message) else None

    def is_exchange(self, part: Any) -> bool:
        return isinstance(part, dict) and "type" not in part and not _CALLS.isdisjoint(part)

    def problem(self, message: Any) -> str | None:
        """Return a sentence if a value is not a valid content, or None. Without a role, it is the user's."""
        message = _alone(message) or message
        if not isinstance(message, dict) or message.get("role", "user") in _ROLES:
            is_one = is_content(message) and isinstance(message["parts"], list | dict)
            return None if is_one else "a content is an object with a list of parts"
        return f"the role {message['role']!r} is none of Gemini's: roles are {', '.join(_ROLES)}"

    def draft(self, message: Any) -> list[CardDraft]:
        if (alone := _alone(message)) is not None:
            first, *others = self.draft(alone)
            return [keep(first, NAME, source_message={_KEY: self.empty_parts(alone)}), *others]
        role = "assistant" if message.get("role") == "model" else "user"
        cards = self.provider.draft_parts(role, _parts(message.get("parts")))
        return self.keep_around(message, role, cards)

    def export(self, cards: Iterable[Card]) -> tuple[Body, Iterator[Body]]:
        beside, messages = super().export(cards)
        return beside, _name_results(messages)

    def read_request(self, beside: Mapping[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        config: dict[str, Any] = {}
        for key, value in beside.items():
            if key in ("generationConfig", "generation_config") and isinstance(value, dict):
                config |= _generation(value)
            elif key in ("toolConfig", "tool_config") and (choice := _choice(value)) is not None:
                config["tool_choice"] = choice
            elif key != "tools":
                config[key] = value
        tools = (tool for tool in list_at(beside, "tools") if isinstance(tool, dict))
        return config, [each for tool in tools for each in _tools(tool)]


def _name_results(messages: Iterable[Body]) -> Iterator[Body]:
    """Yield the contents. Each result gets the name of its call."""
    names: dict[str, str] = {}
    for message in messages:
        if isinstance(parts := message.get("parts"), list):
            message = {**message, "parts": [named_part(part, names) for part in parts]}
        yield message


def _generation(given: Mapping[str, Any]) -> dict[str, Any]:
    names = {key: _NAMES.get(camel_key(key)) for key in given}
    config = {name: given[key] for key, name in names.items() if name is not None}
    rest = {key: given[key] for key, name in names.items() if name is None}
    return {**config, **({"generationConfig": rest} if rest else {})}


def _choice(value: Any) -> Any:
    """Return the `tool_choice` in the chat form, or None if the chat form cannot express it."""
    if not isinstance(value, dict):
        return None
    calling = get_either_case(value, "functionCallingConfig")
    if not isinstance(calling, dict) or len(value) > 1:
        return None
    mode, names = _MODES.get(text_at(calling, "mode") or ""), calling.get("allowedFunctionNames")
    if mode == "required" and isinstance(names, list) and len(names) == 1 and len(calling) == 2:
        return {"type": "function", "function": {"name": names[0]}}
    return mode if len(calling) == 1 else None


def _tools(tool: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the functions that a tool declares, then its other keys as a tool of their own."""
    for key in _DECLARATIONS:
        yield from (chat_tool(_function(each)) for each in list_at(tool, key) if text_at(each, "name"))
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
    """Return a schema of Gemini's OpenAPI subset with the type names of JSON Schema."""
    if isinstance(schema, list):
        return [_json_schema(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: _json_schema(value) for key, value in schema.items()}
    sort = schema.get("type")
    if type(sort) is int and 0 < sort <= len(_TYPES):
        sort = _TYPES[sort - 1]
    return {**made, "type": sort.lower()} if isinstance(sort, str) and sort in _TYPES else made
