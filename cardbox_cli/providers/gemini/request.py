"""Gemini's `generateContent`: the meaning of parts, and the body of a request. The model is in its URL.

Sources: Gemini API reference, "Content" and "Generating content".
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from cardbox_cli.context.messages import Message
from cardbox_cli.context.parts import (
    address_of,
    dict_at,
    file_of,
    file_part,
    function_call,
    input_of,
    text_at,
    texts_in,
)
from cardbox_cli.context.provider import Body, Members
from cardbox_cli.context.request import Request
from cardbox_cli.model import exact_json
from cardbox_cli.providers import tools as shared
from cardbox_cli.providers.gemini.answers import GeminiAnswers
from cardbox_cli.providers.gemini.cards import (
    GENERATION,
    MAX_STOPS,
    NAME,
    SNAKE_KEYS,
    UNNAMED,
    GeminiFiles,
    get_either_case,
    kind_of,
    named_part,
)
from cardbox_cli.providers.parts import AnsweredCall, Part, PartsProvider, text_parts

if TYPE_CHECKING:
    from cardbox_cli.context.lint.rule import LintRule

# The keys of a function's answer that is only a text: `output` for a result, and `error` for a failure.
_ANSWER, _FAILURE = "output", "error"
# The keys of an llm_config that the body has under the same name.
SAME_PARAMETERS = ("safetySettings", "cachedContent", "toolConfig", "labels", "serviceTier", "store")
_ROLES = {"assistant": "model"}
_MODES = {"auto": "AUTO", "required": "ANY", "none": "NONE"}
_JSON = "application/json"
# The keys that a declaration may have in addition to its name, description and parameters.
_DECLARED = ("behavior", "response", "responseJsonSchema")
_OWN_TOOLS = (
    *("googleSearch", "google_search", "googleSearchRetrieval", "google_search_retrieval"),
    *("codeExecution", "code_execution", "urlContext", "url_context", "computerUse", "computer_use"),
    *("fileSearch", "file_search", "googleMaps", "google_maps", "enterpriseWebSearch", "retrieval"),
    *("mcpServers", "mcp_servers"),
)


class Gemini(PartsProvider):
    name = NAME
    title = "Gemini"
    sends = "a generateContent body"
    has_failures = True
    names_results = True
    message_keys = ("systemInstruction", "contents")
    cached_parameters = ("toolConfig",)
    temperature_path = "generationConfig.temperature"
    schema_package = __package__
    files_class = GeminiFiles
    answers_class = GeminiAnswers

    def is_thought(self, part: Part) -> bool:
        return get_either_case(part, "thought") is True

    def is_plain(self, part: Part) -> bool:
        return kind_of(part) == "text" and get_either_case(part, "thought") is not True

    def words(self, part: Part) -> str:
        name = kind_of(part)
        if name == "text":
            return text_at(part, "text") or ""
        value = get_either_case(part, name) if name else None
        if name == "functionResponse":
            return _answer(get_either_case(value, "response"))
        if name == "executableCode":
            return text_at(value, "code") or ""
        if name == "codeExecutionResult":
            return text_at(value, "output") or ""
        if name in ("inlineData", "fileData"):
            return f"[{get_either_case(value, 'fileUri') or get_either_case(value, 'mimeType') or 'file'}]"
        return ""

    def call(self, part: Part) -> dict[str, Any] | None:
        value = get_either_case(part, "functionCall")
        name = text_at(value, "name")
        arguments = value.get("args") if isinstance(value, dict) else None
        if not name or not isinstance(arguments, dict | None):
            return None
        return function_call(text_at(value, "id") or "", name, exact_json.canonical_text(arguments or {}))

    def answered(self, part: Part) -> AnsweredCall | None:
        value = get_either_case(part, "functionResponse")
        name = text_at(value, "name")
        return None if name is None else AnsweredCall(text_at(value, "id") or "", name)

    def is_failed_result(self, part: Part) -> bool:
        response = get_either_case(get_either_case(part, "functionResponse"), "response")
        return isinstance(response, dict) and _FAILURE in response and _ANSWER not in response

    def chat_files(self, part: Part) -> list[dict[str, Any]]:
        inline, linked = get_either_case(part, "inlineData"), get_either_case(part, "fileData")
        media_type, data = get_either_case(inline, "mimeType"), text_at(inline, "data")
        if isinstance(media_type, str) and data is not None:
            return [file_part(media_type, data, get_either_case(inline, "displayName"))]
        address, media_type = get_either_case(linked, "fileUri"), get_either_case(linked, "mimeType")
        is_image = isinstance(media_type, str) and media_type.startswith("image/")
        if is_image and isinstance(address, str) and address.startswith(("https://", "http://")):
            return [{"type": "image_url", "image_url": {"url": address}}]
        return []

    def make(self, body: Body, *, failed: bool = False) -> list[Part]:
        if body["role"] in ("tool", "function"):
            # `_name_results` replaces UNNAMED by the name of the call.
            call_id, name = text_at(body, "tool_call_id") or None, text_at(body, "name") or UNNAMED
            answer = {_FAILURE if failed else _ANSWER: texts_in(body.get("content"))}
            return [{"functionResponse": {**shared.compact(id=call_id, name=name), "response": answer}}]
        return text_parts(body, _file, _call)

    def is_exact(self, part: Part) -> bool:
        call = part.get("functionCall") if len(part) == 1 else None
        is_whole = call is not None and len(call) == 3 and call.get("args") is not None
        return is_whole and bool(text_at(call, "id"))

    def losses_of_part(self, part: Part) -> Iterator[str]:
        name = kind_of(part)
        known = {name, SNAKE_KEYS.get(name), "thoughtSignature", "thought_signature", "thought"}
        if get_either_case(part, "thoughtSignature") is not None:
            yield "the thought's signature is not sent"
        if name in ("inlineData", "fileData") and not self.chat_files(part):
            yield f"a part of the kind {name!r} is sent as text"
        elif not name or name in ("executableCode", "codeExecutionResult", "toolCall", "toolResponse"):
            yield f"a part of the kind {name or 'unknown'!r} is left out"
        if get_either_case(get_either_case(part, "functionResponse"), "parts"):
            yield "the files in a tool result are not sent"
        for key in sorted(part.keys() - known if isinstance(part, dict) else ()):
            yield f"the key {key!r} of a part is not sent"

    def members(self, request: Request) -> Members:
        """Yield the members of a request's JSON body. All system text is in `systemInstruction`, in order."""
        if system := self.system_parts(request):
            yield "systemInstruction", {"parts": system}
        messages = self.merged(_name_results(self.split_messages(request.messages)))
        yield "contents", ({"role": _ROLES.get(role, role), "parts": parts} for role, parts in messages)
        same = shared.copy_parameters(request.config, SAME_PARAMETERS, self)
        if tools := self.offered_tools(request):
            yield "tools", _tools(tools)
            if choice := _choice(shared.choice_for(request, tools)):
                yield "toolConfig", same.pop("toolConfig", choice)
        if generation := _generation_config(request.config):
            yield "generationConfig", generation
        yield from same.items()

    def runs_tool(self, tool: Mapping[str, Any]) -> bool:
        return "type" not in tool and any(name in tool for name in _OWN_TOOLS)

    def split_tools(self, body: Body) -> tuple[list[Any], Body]:
        """Return the tools of a body one by one, its functions first, and the body without them."""
        tools, besides = super().split_tools(body)
        functions = [each for tool in tools for each in tool.get("functionDeclarations", ())]
        return [*functions, *(tool for tool in tools if "functionDeclarations" not in tool)], besides

    def rules(self) -> "Sequence[LintRule]":
        from cardbox_cli.providers.gemini.rules import RULES

        return RULES


def _answer(response: Any) -> str:
    """Return the answer of a function: a string if it is only text, and otherwise JSON."""
    if isinstance(response, dict) and len(response) == 1:
        [(key, value)] = response.items()
        if key in (_ANSWER, _FAILURE) and isinstance(value, str):
            return value
    return "" if response is None else exact_json.encode(response).decode()


def _file(part: Any) -> Part | None:
    if (file := file_of(part)) is not None:
        return {"inlineData": {"mimeType": file[0], "data": file[1]}}
    address = address_of(part) or ""
    if not address.startswith(("https://", "http://", "gs://")):
        return None
    # The API requires a media type. Only the ending of the address shows it.
    ending = address.partition("?")[0].rpartition(".")[2].lower()
    media_type = f"image/{ending if ending in ('png', 'gif', 'webp') else 'jpeg'}"
    return {"fileData": {"fileUri": address, "mimeType": media_type}}


def _call(call: Any, function: dict[str, Any]) -> Part:
    name, arguments = text_at(function, "name") or "", input_of(function.get("arguments"))
    return {
        "functionCall": {**shared.compact(id=text_at(call, "id") or None), "name": name, "args": arguments}
    }


def _name_results(messages: Iterable[Message]) -> Iterator[Message]:
    """Yield the messages, each result with the name of its call, which the API requires."""
    names: dict[str, str] = {}
    for message in messages:
        parts = [named_part(part, names) for part in message.body["content"]]
        yield msgspec.structs.replace(message, body={**message.body, "content": parts})


def _generation_config(config: dict[str, Any]) -> Body:
    made = {name: config[key] for key, name in GENERATION.items() if config.get(key) is not None}
    made |= shared.compact(maxOutputTokens=shared.token_limit(config))
    if stop := shared.stops_of(config, MAX_STOPS):
        made["stopSequences"] = [stop] if isinstance(stop, str) else stop
    return {**made, **_answer_format(config.get("response_format")), **dict_at(config, "generationConfig")}


def _answer_format(response_format: Any) -> Body:
    sort = text_at(response_format, "type")
    if sort == "json_object":
        return {"responseMimeType": _JSON}
    schema = dict_at(response_format, "json_schema").get("schema") if sort == "json_schema" else None
    return {"responseMimeType": _JSON, "responseJsonSchema": schema} if isinstance(schema, dict) else {}


def _tools(tools: list[dict[str, Any]]) -> list[Body]:
    """Return the tools in Gemini's form: one tool with all functions, and then Gemini's own tools."""
    functions = [each for each in map(shared.function_of, tools) if each is not None]
    declared = []
    for each in functions:
        schema = each.schema or None
        known = shared.compact(name=each.name, description=each.description, parametersJsonSchema=schema)
        declared.append({**known, **{key: each.others[key] for key in _DECLARED if key in each.others}})
    own = [tool for tool in tools if shared.function_of(tool) is None]
    return [*([{"functionDeclarations": declared}] if declared else []), *own]


def _choice(choice: Any) -> Body | None:
    if (name := shared.choice_of(choice)) is not None:
        return {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": [name]}}
    mode = shared.choice_mode(choice)
    return None if mode is None else {"functionCallingConfig": {"mode": _MODES[mode]}}
