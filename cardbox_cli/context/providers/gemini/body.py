"""The Gemini request body (`generateContent`), and how messages are joined in it. The model is in its URL.

Source: Gemini API reference, "Generating content".
"""

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from cardbox_cli.context.messages import Message
from cardbox_cli.context.parts import text_at
from cardbox_cli.context.providers.copied import copied
from cardbox_cli.context.providers.gemini.parts import NAME, PARTING, UNNAMED, at
from cardbox_cli.context.providers.parted import Part
from cardbox_cli.context.providers.parted_bodies import in_parts, merged, system_parts
from cardbox_cli.context.providers.provider import Body, Members, plain_tools
from cardbox_cli.context.providers.tools import (
    choice_for,
    choice_mode,
    choice_of,
    function_of,
    stops_of,
    tools_for,
)
from cardbox_cli.context.request import Request

# The parameters of an llm_config, and their names in `generationConfig`.
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
MOST_STOPS = 5
# Keys of the body that an llm_config has as they are.
SAME_PARAMETERS = ("safetySettings", "cachedContent", "toolConfig", "labels", "serviceTier", "store")
_MODES = {"auto": "AUTO", "required": "ANY", "none": "NONE"}
_JSON = "application/json"
# What else than its name, description and parameters a declaration may have.
_DECLARED = ("behavior", "response", "responseJsonSchema")


def members(request: Request) -> Members:
    """The JSON body of `request`. All system text stands in `systemInstruction`, in its order."""
    if system := system_parts(in_parts(PARTING, request.messages)):
        yield "systemInstruction", {"parts": system}
    yield "contents", _contents(request)
    given = {key: request.config[key] for key in SAME_PARAMETERS if request.config.get(key) is not None}
    same = copied(given, NAME)
    if tools := tools_for(request, NAME):
        yield "tools", _tools(tools)
        if choice := _choice(choice_for(request, tools)):
            yield "toolConfig", same.pop("toolConfig", choice)
    if generation := generation_config(request.config):
        yield "generationConfig", generation
    yield from same.items()


def _contents(request: Request) -> Iterator[Body]:
    for role, parts in merged(PARTING, named(in_parts(PARTING, request.messages))):
        yield {"role": "model" if role == "assistant" else role, "parts": parts}


def named(messages: Iterable[Message]) -> Iterator[Message]:
    """The messages, each result of a tool under the name that its call has, which the API wants."""
    names: dict[str, str] = {}
    for message in messages:
        parts = [named_part(part, names) for part in message.body["content"]]
        yield msgspec.structs.replace(message, body={**message.body, "content": parts})


def named_part(part: Part, names: dict[str, str]) -> Part:
    """The part, a result of a tool with the name of its call. `names` are those of the calls so far."""
    if type(part) is dict and len(part) == 1 and "text" in part:
        return part
    call, answer = at(part, "functionCall"), part.get("functionResponse") if isinstance(part, dict) else None
    call_id, name = text_at(call, "id"), text_at(call, "name")
    if call_id and name:
        names[call_id] = name
    if not isinstance(answer, dict) or answer.get("name") != UNNAMED:
        return part
    answered = text_at(answer, "id") or ""
    return {**part, "functionResponse": {**answer, "name": names.get(answered) or answered or "tool"}}


def generation_config(config: dict[str, Any]) -> Body:
    """The `generationConfig` that an llm_config makes: its parameters, and what it has of Gemini's own."""
    found = {name: config[key] for key, name in GENERATION.items() if config.get(key) is not None}
    limit = next((config[key] for key in ("max_tokens", "max_completion_tokens") if config.get(key)), None)
    if limit is not None:
        found["maxOutputTokens"] = limit
    if stop := stops_of(config, MOST_STOPS):
        found["stopSequences"] = [stop] if isinstance(stop, str) else stop
    own = config.get("generationConfig")
    return {
        **found,
        **_answer_format(config.get("response_format")),
        **(own if isinstance(own, dict) else {}),
    }


def _answer_format(wanted: Any) -> Body:
    sort = text_at(wanted, "type")
    if sort == "json_object":
        return {"responseMimeType": _JSON}
    schema = wanted.get("json_schema") if sort == "json_schema" else None
    if isinstance(schema, dict) and isinstance(schema.get("schema"), dict):
        return {"responseMimeType": _JSON, "responseJsonSchema": schema["schema"]}
    return {}


def _tools(tools: list[dict[str, Any]]) -> list[Body]:
    """The tools as Gemini has them: all functions in one, then its own."""
    functions = [each for each in map(function_of, tools) if each is not None]
    declared = []
    for each in functions:
        others = {key: each.others[key] for key in _DECLARED if key in each.others}
        described = {} if each.description is None else {"description": each.description}
        schema = {"parametersJsonSchema": each.schema} if each.schema else {}
        declared.append({"name": each.name, **described, **schema, **others})
    own = [tool for tool in tools if function_of(tool) is None]
    return [*([{"functionDeclarations": declared}] if declared else []), *own]


def split_tools(body: Body) -> tuple[list[Any], Body]:
    """The tools of a body one by one, its functions first, and the body without them."""
    given, besides = plain_tools(body)
    functions = [each for tool in given for each in tool.get("functionDeclarations", ())]
    return [*functions, *(tool for tool in given if "functionDeclarations" not in tool)], besides


def _choice(choice: Any) -> Body | None:
    if (name := choice_of(choice)) is not None:
        return {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": [name]}}
    mode = choice_mode(choice)
    return None if mode is None else {"functionCallingConfig": {"mode": _MODES[mode]}}
