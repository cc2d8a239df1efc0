"""The body of a request to OpenAI's Responses: instructions, then items in one list.

Source: OpenAI API reference, "Create a model response".
"""

from collections.abc import Iterator, Sequence
from typing import Any

from cardbox_cli.context.messages import Message, NoMessage
from cardbox_cli.context.parts import kind, text_at, tool_name
from cardbox_cli.context.providers.copied import copied, misfitting_keys
from cardbox_cli.context.providers.openai_responses.items import NAME, PARTING
from cardbox_cli.context.providers.parted import Part, encode, own_parts
from cardbox_cli.context.providers.provider import Body, Members, SentMessage
from cardbox_cli.context.providers.tools import (
    choice_for,
    choice_mode,
    choice_of,
    custom_tool,
    function_of,
    is_custom,
    is_parallel,
    tools_for,
)
from cardbox_cli.context.providers.turns import placed
from cardbox_cli.context.request import Request
from cardbox_cli.model.cards import SYSTEM_ROLES, Card, card_text
from cardbox_cli.model.layers import CHECKPOINT

# Keys of the body that an llm_config has as they are. Not `stream`: that is up to who sends the request.
SAME_PARAMETERS = (
    *("temperature", "top_p", "top_logprobs", "truncation", "include", "store", "metadata", "service_tier"),
    *("conversation", "previous_response_id", "context_management", "prompt", "background", "user"),
    *("safety_identifier", "prompt_cache_key", "prompt_cache_retention", "prompt_cache_options"),
    *("max_tool_calls", "moderation"),
)
_OBJECT = {"type": "object", "properties": {}}


def encode_card(card: Card) -> Body | NoMessage:
    """The items that `card` is, or the reason why it is none. System text of no item is text alone."""
    body = encode(PARTING, card)
    if isinstance(body, dict) and body["role"] == "system" and own_parts(PARTING, card) is None:
        texts = [text for part in body["content"] if (text := _text(part))]
        return {"role": "system", "content": "\n".join(texts) or card_text(card.content)}
    return body


def _text(item: Part) -> str:
    content = item.get("content")
    parts = content if isinstance(content, list) else []
    return content if isinstance(content, str) else "\n".join(text_at(part, "text") or "" for part in parts)


def members(request: Request) -> Members:
    """The JSON body of `request`; without a model when none is known.

    System text before the history makes the `instructions`; what stands in it stays there, as items.
    """
    if request.model is not None:
        yield "model", request.model
    if instructions := [each for each in _each(request.messages) if isinstance(each, str)]:
        yield "instructions", "\n\n".join(instructions)
    yield "input", (item for each in _each(request.messages) if not isinstance(each, str) for item in each)
    if tools := tools_for(request, NAME):
        yield "tools", [_tool(tool) for tool in tools]
        yield from _of_tools(request.config, choice_for(request, tools)).items()
    yield from _limited(request.config).items()
    yield from _nested(request.config).items()
    same = {key: request.config[key] for key in SAME_PARAMETERS if request.config.get(key) is not None}
    yield from copied(same, NAME).items()


def _each(messages: Sequence[Message]) -> Iterator[str | list[Part]]:
    """What each message is sent as: a text of the instructions, or items."""
    is_begun = False
    for message in placed(messages):
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


def sent(request: Request) -> Iterator[SentMessage]:
    """The messages as a prefix cache finds them: instructions first, then the items."""
    messages = request.messages
    made = list(_each(messages))
    instructions = [place for place, each in enumerate(made) if isinstance(each, str)]
    for number, place in enumerate(instructions, 1):
        yield SentMessage("system", number, {"role": "system", "content": made[place]}, [place])
    others = (place for place, each in enumerate(made) if not isinstance(each, str))
    for number, place in enumerate(others, 1):
        yield SentMessage("messages", number, {**messages[place].body, "content": made[place]}, [place])


def steps(messages: Sequence[Message]) -> list[int]:
    """The step of each message; calls and results need not be neighbours here, so all are one step on."""
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


def _tool(tool: dict[str, Any]) -> Body:
    """A tool definition; OpenAI's own are sent as they are."""
    function = function_of(tool)
    if is_custom(tool):
        return {**custom_tool(tool, nested=False), "type": "custom"}
    if function is None:
        return tool
    described = {} if function.description is None else {"description": function.description}
    own: dict[str, Any] = {
        key: function.others[key] for key in ("defer_loading", "allowed_callers") if key in function.others
    }
    made = {
        "type": "function",
        "name": function.name,
        **described,
        "parameters": function.schema or _OBJECT,
        "strict": bool(function.strict),
        **own,
    }
    unfit = misfitting_keys(made, NAME) & own.keys() if own else ()
    return {key: value for key, value in made.items() if key not in unfit}


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
