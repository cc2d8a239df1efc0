"""OpenAI's Responses: what items mean, and the body of a request: instructions, then items in one list.

Source: OpenAI API reference, "Create a model response".
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cardbox_cli.context.messages import Message, NoMessage, demote_late_layers
from cardbox_cli.context.parts import address_of, arguments_text, is_text, kind, text_at, texts_in, tool_name
from cardbox_cli.context.provider import Body, Members, SentMessage
from cardbox_cli.context.request import Request
from cardbox_cli.model import exact_json
from cardbox_cli.model.cards import SYSTEM_ROLES, Card, card_text
from cardbox_cli.model.layers import CHECKPOINT
from cardbox_cli.providers.openai.cards import NAME as OPENAI
from cardbox_cli.providers.openai_responses.answers import ResponsesAnswers
from cardbox_cli.providers.openai_responses.cards import NAME, RESULTS, ResponsesFiles, kind_of
from cardbox_cli.providers.parts import AnsweredCall, Part, PartsProvider
from cardbox_cli.providers.tools import (
    choice_for,
    choice_mode,
    choice_of,
    copy_parameters,
    custom_tool,
    function_of,
    is_custom,
    is_parallel,
    misfitting_keys,
)

if TYPE_CHECKING:
    from cardbox_cli.context.lint.rule import LintRule

# Keys of the body that an llm_config has as they are. Not `stream`: the sender decides that.
SAME_PARAMETERS = (
    *("temperature", "top_p", "top_logprobs", "truncation", "include", "store", "metadata", "service_tier"),
    *("conversation", "previous_response_id", "context_management", "prompt", "background", "user"),
    *("safety_identifier", "prompt_cache_key", "prompt_cache_retention", "prompt_cache_options"),
    *("max_tool_calls", "moderation"),
)
_OBJECT = {"type": "object", "properties": {}}
_TOOL_KEYS = ("defer_loading", "allowed_callers")
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


class OpenAIResponses(PartsProvider):
    """OpenAI's Responses. The facts about its models are those of the chat completions."""

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

    # --- what items mean

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
            function = {"name": name, "arguments": part["arguments"]}
            return {"id": call_id, "type": "function", "function": function}
        if sort == "custom_tool_call" and text_at(part, "input") is not None:
            return {"id": call_id, "type": "custom", "custom": {"name": name, "input": part["input"]}}
        return None

    def answered(self, part: Part) -> AnsweredCall | None:
        call_id = text_at(part, "call_id") if kind_of(part) in RESULTS else None
        return AnsweredCall(call_id) if call_id else None

    def chat_files(self, part: Part) -> list[dict[str, Any]]:
        content = part.get("content") if kind_of(part) == "message" else None
        made = [_chat_part(each) for each in content] if isinstance(content, list) else []
        return made if any(kind(each) != "text" for each in made) else []

    def make(self, body: Body, *, failed: bool = False) -> list[Part]:
        content, role = body.get("content"), body["role"]
        if role in ("tool", "function"):
            return [_output(body, texts_in(content))]
        items: list[Part] = []
        said = _content(content, role)
        said = said if not isinstance(said, str) or said.strip() else ""
        if role == "assistant":
            said = _refused(content, text_at(body, "refusal")) or said
        if said:
            items.append({"role": role, "content": said})
        calls = body.get("tool_calls")
        items += [_call(call) for call in calls] if isinstance(calls, list) else []
        old = body.get("function_call")
        if old:
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
            for each in part["output"]:
                if kind(each) != "input_text":
                    yield f"a part of type {kind(each)!r} in a tool result is sent as text"
        elif text_at(part, "namespace"):
            yield "the 'namespace' of a call is not sent"

    # --- requests

    def encode(self, card: Card) -> Body | NoMessage:
        """Return the items that a card is, or the reason why it is none. System text of no item is text
        alone."""
        body = super().encode(card)
        if isinstance(body, dict) and body["role"] == "system" and self.own_parts(card) is None:
            texts = [text for part in body["content"] if (text := _text_of(part))]
            return {"role": "system", "content": "\n".join(texts) or card_text(card.content)}
        return body

    def members(self, request: Request) -> Members:
        """Yield the JSON body of a request, without a model if none is known.

        System text before the history makes the `instructions`; within it, it stays there as items.
        """
        if request.model is not None:
            yield "model", request.model
        if instructions := [each for each in _each(request.messages) if isinstance(each, str)]:
            yield "instructions", "\n\n".join(instructions)
        yield (
            "input",
            (item for each in _each(request.messages) if not isinstance(each, str) for item in each),
        )
        if tools := self.offered_tools(request):
            yield "tools", [self._tool(tool) for tool in tools]
            yield from _of_tools(request.config, choice_for(request, tools)).items()
        yield from _limited(request.config).items()
        yield from _nested(request.config).items()
        same = {key: request.config[key] for key in SAME_PARAMETERS if request.config.get(key) is not None}
        yield from copy_parameters(same, self).items()

    def losses_in_request(self, request: Request) -> Iterator[tuple[str | None, str]]:
        """Yield nothing: the order of messages is kept."""
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
        """Return the step of each message; calls and results need not be neighbours, so all are one step
        on."""
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
        return kind(tool) in _OWN_TOOLS or is_custom(tool)

    def _tool(self, tool: dict[str, Any]) -> Body:
        """A tool definition; OpenAI's own are sent as they are."""
        function = function_of(tool)
        if is_custom(tool):
            return {**custom_tool(tool, nested=False), "type": "custom"}
        if function is None:
            return tool
        described = {} if function.description is None else {"description": function.description}
        own = {key: function.others[key] for key in _TOOL_KEYS if key in function.others}
        made: dict[str, Any] = {
            "type": "function",
            "name": function.name,
            **described,
            "parameters": function.schema or _OBJECT,
            "strict": bool(function.strict),
            **own,
        }
        unfit = misfitting_keys(made, self) & own.keys() if own else ()
        return {key: value for key, value in made.items() if key not in unfit}

    def rules(self) -> "Sequence[LintRule]":
        from cardbox_cli.providers.openai_responses.rules import RULES

        return RULES


# --- single items


def _words(content: Any) -> str:
    """The texts of content parts, and a word for what is none."""
    if isinstance(content, str):
        return content
    lines = []
    for part in content if isinstance(content, list) else []:
        text = text_at(part, "text")
        text = text_at(part, "refusal") if text is None else text
        lines.append(f"[{kind(part) or 'part'}]" if text is None else text)
    return "\n".join(filter(None, lines))


def _chat_part(part: Any) -> dict[str, Any]:
    if kind(part) == "input_image" and (address := text_at(part, "image_url")) is not None:
        detail = {"detail": part["detail"]} if text_at(part, "detail") else {}
        return {"type": "image_url", "image_url": {"url": address, **detail}}
    if kind(part) == "input_file":
        file = {key: part[key] for key in ("filename", "file_data", "file_id") if text_at(part, key)}
        if "file_data" in file or "file_id" in file:
            return {"type": "file", "file": file}
    if kind(part) == "refusal" and text_at(part, "refusal") is not None:
        return {"type": "refusal", "refusal": part["refusal"]}
    return {"type": "text", "text": _words([part])}


def _content(content: Any, role: str) -> str | list[dict[str, Any]]:
    if not isinstance(content, list):
        return content or ""
    if role == "assistant":
        return _words(content)
    return [_part(part) for part in content]


def _part(part: Any) -> dict[str, Any]:
    if is_text(part):
        return {"type": "input_text", "text": part["text"]}
    value = part.get(kind(part)) if isinstance(part, dict) and kind(part) else None
    address = address_of(part)
    if address is not None:
        detail = text_at(value, "detail") or "auto"
        return {"type": "input_image", "image_url": address, "detail": detail}
    if kind(part) == "file" and isinstance(value, dict):
        file = {key: value[key] for key in ("filename", "file_data", "file_id") if text_at(value, key)}
        if "file_data" in file or "file_id" in file:
            return {"type": "input_file", **file}
    return {"type": "input_text", "text": _words([part])}


def _refused(content: Any, refusal: Any) -> list[dict[str, Any]]:
    """What an assistant says in parts, where one is a refusal; else none."""
    parts = content if isinstance(content, list) else [{"type": "text", "text": content}] if content else []
    parts = [*parts, *([{"type": "refusal", "refusal": refusal}] if refusal else [])]
    said = [_said_part(part) for part in parts]
    return said if any(kind(part) == "refusal" for part in said) else []


def _said_part(part: Any) -> dict[str, Any]:
    if kind(part) == "refusal" and text_at(part, "refusal") is not None:
        return {"type": "refusal", "refusal": part["refusal"]}
    return {"type": "output_text", "text": _words([part])}


def _call(call: Any) -> Part:
    function, custom = (call.get(key) if isinstance(call, dict) else None for key in ("function", "custom"))
    call_id = text_at(call, "id") or ""
    if isinstance(function, dict):
        arguments = arguments_text(function.get("arguments"))
        name = text_at(function, "name") or ""
        return {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments}
    if isinstance(custom, dict) and text_at(custom, "name"):
        text = text_at(custom, "input") or ""
        return {"type": "custom_tool_call", "call_id": call_id, "name": custom["name"], "input": text}
    return {"role": "assistant", "content": f"[tool call: {exact_json.encode(call).decode()}]"}


def _output(body: Body, text: str) -> Part:
    return {"type": "function_call_output", "call_id": text_at(body, "tool_call_id") or "", "output": text}


def _losses_of_message(item: Part) -> Iterator[str]:
    content = item.get("content")
    for part in content if isinstance(content, list) else []:
        if part.get("annotations") if isinstance(part, dict) else None:
            yield "annotations are not sent"
        if kind(part) in ("input_image", "input_file") and kind(_chat_part(part)) == "text":
            yield f"a part of type {kind(part)!r} is sent as text"
    if text_at(item, "phase"):
        yield "the message's 'phase' is not sent"


# --- messages, parameters and tools


def _text_of(item: Part) -> str:
    content = item.get("content")
    parts = content if isinstance(content, list) else []
    return content if isinstance(content, str) else "\n".join(text_at(part, "text") or "" for part in parts)


def _each(messages: Sequence[Message]) -> Iterator[str | list[Part]]:
    """What each message is sent as: a text of the instructions, or items."""
    is_begun = False
    for message in demote_late_layers(messages):
        role, content = message.body["role"], message.body["content"]
        is_begun = is_begun or role not in SYSTEM_ROLES or isinstance(content, list)
        if isinstance(content, list):
            yield [_as_said(item, role) for item in content]
        elif role == "system" and not is_begun:
            yield content
        else:
            yield [{"role": "developer" if role == "system" else role, "content": content}]


def _as_said(item: Part, role: str) -> Part:
    """The item, as the user's where its card may give no instructions."""
    if role == "user" and isinstance(item, dict) and item.get("role") in SYSTEM_ROLES:
        return {**item, "role": "user"}
    return item


def _choice(choice: Any) -> Any:
    """The choice of a tool in the words of the Responses."""
    if not isinstance(choice, dict):
        return choice
    allowed = choice.get("allowed_tools")
    if isinstance(allowed, dict):
        tools = allowed.get("tools")
        named = [_chosen(each) for each in tools] if isinstance(tools, list) else tools
        return {**allowed, "type": "allowed_tools", "tools": named}
    if choice.get("type") == "tool":
        return {"type": "function", "name": choice_of(choice)}
    return choice_mode(choice) or _chosen(choice)


def _chosen(tool: Any) -> Any:
    """A tool that is chosen, by its type and name."""
    sort, name = kind(tool), tool_name(tool)
    return {"type": sort, "name": name} if sort in ("function", "custom") and name else tool


def _of_tools(config: dict[str, Any], choice: Any) -> Body:
    chosen, parallel = _choice(choice), is_parallel(config)
    return {
        **({} if chosen is None else {"tool_choice": chosen}),
        **({} if parallel is None else {"parallel_tool_calls": parallel}),
    }


def _limited(config: dict[str, Any]) -> Body:
    limit = next((config[key] for key in ("max_completion_tokens", "max_tokens") if config.get(key)), None)
    return {} if limit is None else {"max_output_tokens": limit}


def _nested(config: dict[str, Any]) -> Body:
    """The parameters of how to think and how to answer, which stand in objects of their own."""
    reasoning = config.get("reasoning") if isinstance(config.get("reasoning"), dict) else {}
    if config.get("reasoning_effort") is not None:
        reasoning = {"effort": config["reasoning_effort"], **(reasoning or {})}
    text = config.get("text") if isinstance(config.get("text"), dict) else {}
    said = {"format": _format(config.get("response_format")), "verbosity": config.get("verbosity")}
    text = {**{key: value for key, value in said.items() if value is not None}, **(text or {})}
    return {**({"reasoning": reasoning} if reasoning else {}), **({"text": text} if text else {})}


def _format(wanted: Any) -> Body | None:
    sort = text_at(wanted, "type")
    schema = wanted.get("json_schema") if sort == "json_schema" else None
    if isinstance(schema, dict):
        return {"type": "json_schema", **schema}
    return {"type": sort} if sort in ("text", "json_object") else None
