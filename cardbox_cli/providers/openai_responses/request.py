"""OpenAI's Responses: the meaning of items, and the body of a request: instructions, then items.

Source: OpenAI API reference, "Create a model response".
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

from cardbox_cli.context.messages import Message, NoMessage, demote_late_layers
from cardbox_cli.context.parts import (
    address_of,
    arguments_text,
    called_function,
    dict_at,
    function_call,
    is_text,
    kind,
    list_at,
    list_of,
    text_at,
    text_part,
    texts_in,
    tool_name,
)
from cardbox_cli.context.provider import Body, Members, SentMessage
from cardbox_cli.context.request import Request
from cardbox_cli.model import exact_json
from cardbox_cli.model.cards import SYSTEM_ROLES, Card, card_text
from cardbox_cli.model.layers import CHECKPOINT
from cardbox_cli.providers import tools as shared
from cardbox_cli.providers.openai.cards import NAME as OPENAI
from cardbox_cli.providers.openai_responses.answers import ResponsesAnswers
from cardbox_cli.providers.openai_responses.cards import NAME, RESULTS, ResponsesFiles, kind_of
from cardbox_cli.providers.parts import AnsweredCall, Part, PartsProvider

if TYPE_CHECKING:
    from cardbox_cli.context.lint.rule import LintRule

# The keys of an llm_config that the body has under the same name. The sender decides about `stream`.
SAME_PARAMETERS = (
    *("temperature", "top_p", "top_logprobs", "truncation", "include", "store", "metadata", "service_tier"),
    *("conversation", "previous_response_id", "context_management", "prompt", "background", "user"),
    *("safety_identifier", "prompt_cache_key", "prompt_cache_retention", "prompt_cache_options"),
    *("max_tool_calls", "moderation"),
)
_TOOL_KEYS = ("defer_loading", "allowed_callers")
# The tools that OpenAI runs only for the Responses, and tools that are defined only in this format.
_OWN_TOOLS = frozenset(
    {"web_search", "web_search_preview", "web_search_2025_08_26", "web_search_preview_2025_03_11"}
    | {"file_search", "mcp", "code_interpreter", "image_generation", "local_shell", "shell", "apply_patch"}
    | {"computer", "computer_use", "computer_use_preview", "tool_search", "namespace"}
    | {"programmatic_tool_calling"}
)


class OpenAIResponses(PartsProvider):
    """OpenAI's Responses. It uses the same facts about models as the chat completions."""

    name = NAME
    title = "OpenAI's Responses"
    sends = "a Responses body"
    message_keys = ("instructions", "input")
    cached_parameters = ("text",)
    schema_package = __package__
    files_class = ResponsesFiles
    answers_class = ResponsesAnswers
    has_detail = True
    has_refusals = True

    @property
    def parts_title(self) -> str:
        return "OpenAI"

    @property
    def models_of(self) -> str:
        return OPENAI

    def is_thought(self, part: Part) -> bool:
        return kind_of(part) == "reasoning"

    def is_plain(self, part: Part) -> bool:
        return kind_of(part) == "message"

    def words(self, part: Part) -> str:
        name = kind_of(part)
        if name == "message":
            return _words(part.get("content"))
        if name in RESULTS:
            return _words(part.get("output"))
        if name == "reasoning":
            return "\n".join(filter(None, (_words(part.get("summary")), _words(part.get("content")))))
        return "\n".join(text for key in ("code", "query") if (text := text_at(part, key)))

    def call(self, part: Part) -> dict[str, Any] | None:
        name, call_id = text_at(part, "name"), text_at(part, "call_id")
        if not name or not call_id:
            return None
        sort = kind_of(part)
        if sort == "function_call" and text_at(part, "arguments") is not None:
            return function_call(call_id, name, part["arguments"])
        if sort == "custom_tool_call" and text_at(part, "input") is not None:
            return {"id": call_id, "type": "custom", "custom": {"name": name, "input": part["input"]}}
        return None

    def answered(self, part: Part) -> AnsweredCall | None:
        call_id = text_at(part, "call_id") if kind_of(part) in RESULTS else None
        return AnsweredCall(call_id) if call_id else None

    def chat_files(self, part: Part) -> list[dict[str, Any]]:
        made = [_chat_part(each) for each in list_at(part, "content")] if kind_of(part) == "message" else []
        return made if any(kind(each) != "text" for each in made) else []

    def make(self, body: Body, *, failed: bool = False) -> list[Part]:
        content, role = body.get("content"), body["role"]
        if role in ("tool", "function"):
            call_id = text_at(body, "tool_call_id") or ""
            return [{"type": "function_call_output", "call_id": call_id, "output": texts_in(content)}]
        items: list[Part] = []
        sent: Any = content or ""
        if isinstance(content, list):
            sent = _words(content) if role == "assistant" else [_part(part) for part in content]
        if role == "assistant":
            sent = _refused(content, text_at(body, "refusal")) or sent
        if sent and not (isinstance(sent, str) and not sent.strip()):
            items.append({"role": role, "content": sent})
        items += map(_call, list_at(body, "tool_calls"))
        if old := body.get("function_call"):
            items.append({"role": role, "content": f"[call of {exact_json.encode(old).decode()}]"})
        return items

    def sends_other_call(self, call: Any) -> bool:
        return kind_of(_call(call)) == "custom_tool_call"

    def other_result(self, part: Part) -> Part:
        return {**part, "type": "custom_tool_call_output"}

    def is_exact(self, part: Part) -> bool:
        if part["type"] == "function_call":
            return len(part) == 4
        is_result = part["type"] == "function_call_output"
        return is_result and len(part) == 3 and text_at(part, "output") is not None

    def text_alone(self, role: str, part: Part) -> str | None:
        if type(part) is not dict or len(part) != 2 or part.get("role") != role:
            return None
        text = part.get("content")
        return text if type(text) is str and not text.isspace() and text else None

    def losses_of_part(self, part: Part) -> Iterator[str]:
        if kind_of(part) == "message":
            yield from _losses_of_message(part)
        elif kind_of(part) in RESULTS and isinstance(part.get("output"), list):
            others = (kind(each) for each in part["output"] if kind(each) != "input_text")
            yield from (f"a part of type {name!r} in a tool result is sent as text" for name in others)
        elif text_at(part, "namespace"):
            yield "the 'namespace' of a call is not sent"

    def encode(self, card: Card) -> Body | NoMessage:
        """Return the items of a card, or the reason for none. System text that is not an item is a string."""
        body = super().encode(card)
        if isinstance(body, dict) and body["role"] == "system" and self.own_parts(card) is None:
            texts = map(_text_of, body["content"])
            return {"role": "system", "content": "\n".join(filter(None, texts)) or card_text(card.content)}
        return body

    def members(self, request: Request) -> Members:
        """Yield the members of a request's JSON body. There is no `model` if the model is unknown.

        System text before the history becomes the `instructions`. Within the history, it remains as items.
        """
        if request.model is not None:
            yield "model", request.model
        if instructions := [each for each in _each(request.messages) if isinstance(each, str)]:
            yield "instructions", "\n\n".join(instructions)
        items = (each for each in _each(request.messages) if not isinstance(each, str))
        yield "input", chain.from_iterable(items)
        if tools := self.offered_tools(request):
            yield "tools", [self._tool(tool) for tool in tools]
            choice, parallel = _choice(shared.choice_for(request, tools)), shared.is_parallel(request.config)
            yield from shared.compact(tool_choice=choice, parallel_tool_calls=parallel).items()
        limit = shared.token_limit(request.config, ("max_completion_tokens", "max_tokens"))
        yield from shared.compact(max_output_tokens=limit).items()
        yield from _nested(request.config).items()
        yield from shared.copy_parameters(request.config, SAME_PARAMETERS, self).items()

    def losses_in_request(self, request: Request) -> Iterator[tuple[str | None, str]]:
        """Yield nothing, because the order of messages does not change."""
        yield from ()

    def sent_messages(self, request: Request) -> Iterator[SentMessage]:
        messages = request.messages
        made = list(_each(messages))
        instructions = [place for place, each in enumerate(made) if isinstance(each, str)]
        for number, place in enumerate(instructions, 1):
            yield SentMessage("system", number, {"role": "system", "content": made[place]}, [place])
        others = (place for place, each in enumerate(made) if not isinstance(each, str))
        for number, place in enumerate(others, 1):
            body = {**messages[place].body, "content": made[place]}
            yield SentMessage("messages", number, body, [place])

    def steps(self, messages: Sequence[Message]) -> list[int]:
        """Return the step of each message. Results need not follow their calls, so only roles count."""
        numbers: list[int] = []
        number, before = 0, None
        for message in messages:
            role = message.body["role"]
            is_said = message.layer == CHECKPOINT and role != "system"
            if is_said:
                number += role != before
                before = role
            numbers.append(number if is_said else -1)
        return numbers

    def runs_tool(self, tool: Mapping[str, Any]) -> bool:
        return kind(tool) in _OWN_TOOLS or shared.is_custom(tool)

    def _tool(self, tool: dict[str, Any]) -> Body:
        function = shared.function_of(tool)
        if shared.is_custom(tool):
            return {**shared.custom_tool(tool, nested=False), "type": "custom"}
        if function is None:
            return tool
        own = {key: function.others[key] for key in _TOOL_KEYS if key in function.others}
        made = {
            **shared.compact(type="function", name=function.name, description=function.description),
            "parameters": function.schema or shared.NO_ARGUMENTS,
            "strict": bool(function.strict),
            **own,
        }
        unfit = shared.misfitting_keys(made, self) & own.keys() if own else ()
        return {key: value for key, value in made.items() if key not in unfit}

    def rules(self) -> "Sequence[LintRule]":
        from cardbox_cli.providers.openai_responses.rules import RULES

        return RULES


def _words(content: Any) -> str:
    """Return the texts of content parts, and the type of each part without text."""
    if isinstance(content, str):
        return content
    lines = []
    for part in list_of(content):
        text = text_at(part, "text")
        text = text_at(part, "refusal") if text is None else text
        lines.append(f"[{kind(part) or 'part'}]" if text is None else text)
    return "\n".join(filter(None, lines))


def _chat_part(part: Any) -> dict[str, Any]:
    if kind(part) == "input_image" and (address := text_at(part, "image_url")) is not None:
        detail = text_at(part, "detail") or None
        return {"type": "image_url", "image_url": shared.compact(url=address, detail=detail)}
    if kind(part) == "input_file" and (file := _file(part)):
        return {"type": "file", "file": file}
    return _said_part(part, "text")


def _file(value: Any) -> dict[str, Any]:
    file = {key: value[key] for key in ("filename", "file_data", "file_id") if text_at(value, key)}
    return file if "file_data" in file or "file_id" in file else {}


def _part(part: Any) -> dict[str, Any]:
    if is_text(part):
        return {"type": "input_text", "text": part["text"]}
    address = address_of(part)
    if address is not None:
        detail = text_at(part.get("image_url"), "detail") or "auto"
        return {"type": "input_image", "image_url": address, "detail": detail}
    if kind(part) == "file" and (file := _file(part.get("file"))):
        return {"type": "input_file", **file}
    return {"type": "input_text", "text": _words([part])}


def _refused(content: Any, refusal: Any) -> list[dict[str, Any]]:
    """Return the parts of an assistant's message that has a refusal, or [] if it has none."""
    parts = content if isinstance(content, list) else [text_part(content)] if content else []
    parts = [*parts, *([{"type": "refusal", "refusal": refusal}] if refusal else [])]
    sent = [_said_part(part, "output_text") for part in parts]
    return sent if any(kind(part) == "refusal" for part in sent) else []


def _said_part(part: Any, type_of_text: str) -> dict[str, Any]:
    if kind(part) == "refusal" and text_at(part, "refusal") is not None:
        return {"type": "refusal", "refusal": part["refusal"]}
    return {"type": type_of_text, "text": _words([part])}


def _call(call: Any) -> Part:
    call_id, custom = text_at(call, "id") or "", dict_at(call, "custom")
    if (function := called_function(call)) is not None:
        arguments, name = arguments_text(function.get("arguments")), text_at(function, "name") or ""
        return {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments}
    if text_at(custom, "name"):
        text = text_at(custom, "input") or ""
        return {"type": "custom_tool_call", "call_id": call_id, "name": custom["name"], "input": text}
    return {"role": "assistant", "content": f"[tool call: {exact_json.encode(call).decode()}]"}


def _losses_of_message(item: Part) -> Iterator[str]:
    for part in list_at(item, "content"):
        if isinstance(part, dict) and part.get("annotations"):
            yield "annotations are not sent"
        if kind(part) in ("input_image", "input_file") and kind(_chat_part(part)) == "text":
            yield f"a part of type {kind(part)!r} is sent as text"
    if text_at(item, "phase"):
        yield "the message's 'phase' is not sent"


def _text_of(item: Part) -> str:
    content = item.get("content")
    texts = (text_at(part, "text") or "" for part in list_of(content))
    return content if isinstance(content, str) else "\n".join(texts)


def _each(messages: Sequence[Message]) -> Iterator[str | list[Part]]:
    """Yield the sent form of each message: a text of the instructions, or items."""
    is_begun = False
    for message in demote_late_layers(messages):
        role, content = message.body["role"], message.body["content"]
        is_begun = is_begun or role not in SYSTEM_ROLES or isinstance(content, list)
        if isinstance(content, list):
            # Text that must not instruct the model is sent as the user's text.
            demoted = role == "user"
            yield [{**item, "role": "user"} if demoted and _is_system(item) else item for item in content]
        elif role == "system" and not is_begun:
            yield content
        else:
            yield [{"role": "developer" if role == "system" else role, "content": content}]


def _is_system(item: Part) -> bool:
    return isinstance(item, dict) and item.get("role") in SYSTEM_ROLES


def _choice(choice: Any) -> Any:
    if not isinstance(choice, dict):
        return choice
    allowed = choice.get("allowed_tools")
    if isinstance(allowed, dict):
        tools = allowed.get("tools")
        named = [_chosen(each) for each in tools] if isinstance(tools, list) else tools
        return {**allowed, "type": "allowed_tools", "tools": named}
    if choice.get("type") == "tool":
        return {"type": "function", "name": shared.choice_of(choice)}
    return shared.choice_mode(choice) or _chosen(choice)


def _chosen(tool: Any) -> Any:
    sort, name = kind(tool), tool_name(tool)
    return {"type": sort, "name": name} if sort in ("function", "custom") and name else tool


def _nested(config: dict[str, Any]) -> Body:
    """Return the parameters that belong in the objects `reasoning` and `text`."""
    reasoning = {**shared.compact(effort=config.get("reasoning_effort")), **dict_at(config, "reasoning")}
    text = shared.compact(format=_format(config.get("response_format")), verbosity=config.get("verbosity"))
    return shared.compact(reasoning=reasoning or None, text={**text, **dict_at(config, "text")} or None)


def _format(response_format: Any) -> Body | None:
    sort = text_at(response_format, "type")
    if sort == "json_schema" and isinstance(schema := response_format.get("json_schema"), dict):
        return {"type": "json_schema", **schema}
    return {"type": sort} if sort in ("text", "json_object") else None
