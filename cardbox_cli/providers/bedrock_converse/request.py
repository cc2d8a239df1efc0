"""Bedrock's Converse: the meaning of blocks, and the body of a request. The model is in its URL.

Sources: Amazon Bedrock API reference, "ContentBlock" and "Converse".
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cardbox_cli.context.parts import (
    dict_at,
    file_of,
    file_part,
    function_call,
    input_of,
    list_at,
    text_at,
    texts_in,
)
from cardbox_cli.context.provider import Body, Members
from cardbox_cli.context.request import Request
from cardbox_cli.model import exact_json
from cardbox_cli.providers import tools as shared
from cardbox_cli.providers.bedrock_converse.answers import BedrockAnswers
from cardbox_cli.providers.bedrock_converse.cards import MODES, NAME, BedrockFiles, kind_of
from cardbox_cli.providers.parts import AnsweredCall, Part, PartsProvider, text_parts

if TYPE_CHECKING:
    from cardbox_cli.context.lint.rule import LintRule

# The keys of an llm_config that the body has under the same name.
SAME_PARAMETERS = (
    *("guardrailConfig", "additionalModelRequestFields", "promptVariables", "requestMetadata"),
    *("additionalModelResponseFieldPaths", "performanceConfig", "serviceTier", "outputConfig"),
)
_DOCUMENTS = {
    "application/pdf": "pdf",
    "text/csv": "csv",
    "text/html": "html",
    "text/plain": "txt",
    "text/markdown": "md",
    "application/msword": "doc",
    "application/vnd.ms-excel": "xls",
}
_MEDIA_TYPES = {name: media_type for media_type, name in _DOCUMENTS.items()}
_IMAGES = ("png", "jpeg", "gif", "webp")
_NO_NAME_CHARACTER = re.compile(r"[^a-zA-Z0-9\s()\[\]-]+")
_BLANKS = re.compile(r"\s+")


class BedrockConverse(PartsProvider):
    name = NAME
    title = "Bedrock"
    sends = "a Converse body"
    has_failures = True
    cached_parameters = ("toolConfig",)
    max_temperature = 1
    temperature_path = "inferenceConfig.temperature"
    schema_package = __package__
    files_class = BedrockFiles
    answers_class = BedrockAnswers

    def is_thought(self, part: Part) -> bool:
        return kind_of(part) == "reasoningContent"

    def is_plain(self, part: Part) -> bool:
        return kind_of(part) in ("text", "citationsContent")

    def words(self, part: Part) -> str:
        name = kind_of(part)
        value = part[name] if name else None
        if name == "text":
            return value if isinstance(value, str) else ""
        if name in ("toolResult", "citationsContent", "searchResult"):
            return self._inner_words(value)
        if name in ("guardContent", "reasoningContent"):
            key = "text" if name == "guardContent" else "reasoningText"
            return text_at(dict_at(value, key), "text") or ""
        is_file = name in ("image", "document", "video", "audio")
        return f"[{text_at(value, 'name') or name}]" if is_file else ""

    def _inner_words(self, value: Any) -> str:
        lines = (
            exact_json.encode(inner["json"]).decode()
            if isinstance(inner, dict) and "json" in inner
            else self.words(inner)
            for inner in list_at(value, "content")
        )
        return "\n".join(filter(None, lines))

    def call(self, part: Part) -> dict[str, Any] | None:
        value = part.get("toolUse") if isinstance(part, dict) else None
        name, call_id = text_at(value, "name"), text_at(value, "toolUseId")
        if not isinstance(value, dict) or not name or not call_id or "type" in value:
            return None  # the server answers a call with a `type`
        arguments = value.get("input")
        if not isinstance(arguments, dict):
            return None
        return function_call(call_id, name, exact_json.canonical_text(arguments))

    def answered(self, part: Part) -> AnsweredCall | None:
        call_id = text_at(part.get("toolResult"), "toolUseId") if isinstance(part, dict) else None
        return AnsweredCall(call_id) if call_id else None

    def is_failed_result(self, part: Part) -> bool:
        return kind_of(part) == "toolResult" and text_at(part["toolResult"], "status") == "error"

    def chat_files(self, part: Part) -> list[dict[str, Any]]:
        name = kind_of(part)
        value = part[name] if name in ("image", "document") else None
        data, sort = text_at(dict_at(value, "source"), "bytes"), text_at(value, "format")
        media_type = f"image/{sort}" if name == "image" else _MEDIA_TYPES.get(sort or "")
        if data is None or sort is None or media_type is None:
            return []
        return [file_part(media_type, data, None if name == "image" else text_at(value, "name"))]

    def make(self, body: Body, *, failed: bool = False) -> list[Part]:
        """Return the blocks of a message in the chat form. Bedrock refuses blank text."""
        if body["role"] in ("tool", "function"):
            content = [{"text": texts_in(body.get("content"))}]
            result = {"toolUseId": text_at(body, "tool_call_id") or "", "content": content}
            return [{"toolResult": {**result, **shared.compact(status="error" if failed else None)}}]
        return text_parts(body, _file_block, _call)

    def is_exact(self, part: Part) -> bool:
        if len(part) != 1:
            return False
        if "toolUse" in part:
            return len(part["toolUse"]) == 3
        content = part["toolResult"].get("content")
        if len(part["toolResult"]) != 2 or not isinstance(content, list) or len(content) != 1:
            return False
        return text_at(content[0], "text") is not None and len(content[0]) == 1

    def losses_of_part(self, part: Part) -> Iterator[str]:
        name = kind_of(part)
        if name == "cachePoint":
            return  # a cache mark does not affect the answer
        for inner in list_at(part["toolResult"], "content") if name == "toolResult" else ():
            inner_kind = next(iter(inner), "") if isinstance(inner, dict) else ""
            if inner_kind not in ("text", "json"):
                yield f"a block of the kind {inner_kind!r} in a tool result is sent as text"
        if name not in ("", "text", "toolUse", "toolResult") and not self.chat_files(part):
            yield f"a block of the kind {name!r} is sent as text"
        elif not name:
            yield "a block of an unknown kind is left out"

    def members(self, request: Request) -> Members:
        """Yield the members of a request's JSON body. All system text is in `system`, in order."""
        if system := self.system_parts(request):
            yield "system", system
        messages = self.merged(self.split_messages(request.messages))
        yield "messages", ({"role": role, "content": blocks} for role, blocks in messages)
        if inference := _inference_config(request.config):
            yield "inferenceConfig", inference
        if tools := self.offered_tools(request):
            choice = _choice(shared.choice_for(request, tools))
            yield "toolConfig", {"tools": [_tool(tool) for tool in tools], **choice}
        yield from shared.copy_parameters(request.config, SAME_PARAMETERS, self).items()

    def runs_tool(self, tool: Mapping[str, Any]) -> bool:
        return "type" not in tool and ("systemTool" in tool or "cachePoint" in tool)

    def split_tools(self, body: Body) -> tuple[list[Any], Body]:
        tools, choice = super().split_tools(body.get("toolConfig", {}))
        besides = {key: value for key, value in body.items() if key != "toolConfig"}
        return tools, {**besides, **({"toolConfig": choice} if choice else {})}

    def rules(self) -> "Sequence[LintRule]":
        from cardbox_cli.providers.bedrock_converse.rules import RULES

        return RULES


def _file_block(part: Any) -> Part | None:
    if (file := file_of(part)) is None:
        return None
    media_type, data, name = file
    family, _, sort = media_type.partition("/")
    if family == "image" and sort in _IMAGES:
        return {"image": {"format": sort, "source": {"bytes": data}}}
    if media_type not in _DOCUMENTS:
        return None
    cleaned = _BLANKS.sub(" ", _NO_NAME_CHARACTER.sub("-", name or "")).strip()
    source = {"bytes": data}
    return {"document": {"format": _DOCUMENTS[media_type], "name": cleaned or "document", "source": source}}


def _call(call: Any, function: dict[str, Any]) -> Part:
    name, arguments = text_at(function, "name") or "", input_of(function.get("arguments"))
    return {"toolUse": {"toolUseId": text_at(call, "id") or "_", "name": name, "input": arguments}}


def _inference_config(config: dict[str, Any]) -> Body:
    stop = shared.stops_of(config)
    return shared.compact(
        maxTokens=shared.token_limit(config),
        temperature=config.get("temperature"),
        topP=config.get("top_p"),
        stopSequences=[stop] if isinstance(stop, str) else stop,
    )


def _tool(tool: dict[str, Any]) -> Body:
    function = shared.function_of(tool)
    if function is None:
        return tool
    schema = {"json": function.schema or shared.NO_ARGUMENTS}
    spec = shared.compact(name=function.name, description=function.description or None, inputSchema=schema)
    return {"toolSpec": {**spec, **shared.compact(strict=function.strict)}}


def _choice(choice: Any) -> Body:
    if (name := shared.choice_of(choice)) is not None:
        return {"toolChoice": {"tool": {"name": name}}}
    mode = MODES.get(shared.choice_mode(choice) or "")
    return {} if mode is None else {"toolChoice": {mode: {}}}
