"""The OpenAI chat-completions request body.

Source: OpenAI API reference, "Create chat completion".
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from cardbox_cli.context.messages import Message
from cardbox_cli.context.parts import kind, text_at
from cardbox_cli.context.providers.copied import copied
from cardbox_cli.context.providers.provider import Body, Exchanged, Members, SentMessage
from cardbox_cli.context.providers.tools import (
    chat_tool,
    choice_for,
    choice_mode,
    choice_of,
    custom_tool,
    function_of,
    is_custom,
    is_parallel,
    stops_of,
    tools_for,
)
from cardbox_cli.context.request import Request

NAME = "openai"
# Keys of a profile's llm_config that are parameters of a request. Not `stream` and `stream_options`: whether
# an answer comes in pieces is decided by the command that sends the request.
PARAMETERS = (
    *("temperature", "top_p", "max_tokens", "max_completion_tokens", "stop", "seed", "n"),
    *("presence_penalty", "frequency_penalty", "logit_bias", "logprobs", "top_logprobs"),
    *("response_format", "reasoning_effort", "verbosity", "modalities", "audio", "prediction"),
    *("web_search_options", "functions", "function_call", "user", "safety_identifier", "moderation"),
    *("metadata", "store", "service_tier"),
    *("prompt_cache_key", "prompt_cache_options", "prompt_cache_retention"),
)
MOST_STOPS = 4
TOOL_PARAMETERS = ("tool_choice", "parallel_tool_calls")


def members(request: Request) -> Members:
    """The JSON body of `request`; without a model when none is known."""
    if request.model is not None:
        yield "model", request.model
    yield "messages", joined(request.messages)
    tools = tools_for(request, NAME)
    if tools:
        yield "tools", [_tool(tool) for tool in tools]
    config = _in_own_words(request.config, choice_for(request, tools))
    names = (*PARAMETERS, *(TOOL_PARAMETERS if tools else ()))
    yield from copied({name: config[name] for name in names if name in config}, NAME).items()


def _in_own_words(given: dict[str, Any], choice: Any) -> dict[str, Any]:
    """The llm_config with what others say of stops and of the choice of a tool as OpenAI has it."""
    said = {"tool_choice": _choice(choice), "parallel_tool_calls": is_parallel(given)}
    config = {key: value for key, value in given.items() if key not in TOOL_PARAMETERS}
    config |= {key: value for key, value in said.items() if value is not None}
    stops = stops_of(config, MOST_STOPS)
    return config if stops is None or "stop" in config else {**config, "stop": stops}


def _choice(choice: Any) -> Any:
    """The choice of a tool in the words of the chat completions."""
    if isinstance(choice, dict) and isinstance(allowed := choice.get("allowed_tools"), dict):
        tools = allowed.get("tools")
        named = [_chosen(each) for each in tools] if isinstance(tools, list) else tools
        return {**choice, "allowed_tools": {**allowed, "tools": named}}
    if kind(choice) == "tool" and (name := choice_of(choice)):
        return {"type": "function", "function": {"name": name}}
    return choice_mode(choice) or _chosen(choice)


def _chosen(tool: Any) -> Any:
    """A tool that is chosen, its name in an object as its type is called."""
    sort, name = kind(tool), text_at(tool, "name")
    return {"type": sort, sort: {"name": name}} if sort in ("function", "custom") and name else tool


def joined(messages: Iterable[Message]) -> Iterator[Body]:
    """The messages, those parts of one assistant message that stand side by side made into one.

    OpenAI wants all calls of an answer in one message, followed by their results.
    """
    before: Message | None = None
    for message in messages:
        if before is None:
            before = message
        elif message.group is not None and are_one(before, message):
            body = _joined(before.body, message.body)
            before = Message(before.layer, body, before.card_id, before.group)
        else:
            yield before.body
            before = message
    if before is not None:
        yield before.body


def sent(request: Request) -> Iterator[SentMessage]:
    """The messages as a prefix cache finds them: system text is among them."""
    end = 0
    for number, run in enumerate(runs(request.messages), 1):
        [body] = joined(run)
        start, end = end, end + len(run)
        yield SentMessage("messages", number, body, list(range(start, end)))


def exchanged(body: Body) -> Exchanged:
    """The calls that a message makes and answers, by their ids."""
    calls, answered = body.get("tool_calls"), text_at(body, "tool_call_id")
    made = [text_at(call, "id") or "" for call in calls] if isinstance(calls, list) else []
    return Exchanged(made, [] if answered is None else [answered])


def steps(messages: Sequence[Message]) -> list[int]:
    """The step of each message: one as it is sent, neighbouring results of tools together."""
    numbers: list[int] = []
    number, before = 0, None
    for message in messages:
        are_results = before is not None and message.body["role"] == before.body["role"] == "tool"
        number += before is None or not (are_results or are_one(before, message))
        numbers.append(number)
        before = message
    return numbers


def runs(messages: Iterable[Message]) -> Iterator[list[Message]]:
    """The messages, in lists of those that are sent as one."""
    run: list[Message] = []
    for message in messages:
        if run and not are_one(run[-1], message):
            yield run
            run = []
        run.append(message)
    if run:
        yield run


def are_one(one: Message, other: Message) -> bool:
    """Whether two neighbours are parts of one assistant message."""
    return one.group is not None and one.group == other.group and _is_plain(one) and _is_plain(other)


def _is_plain(message: Message) -> bool:
    content = message.body.get("content")
    return message.body["role"] == "assistant" and (content is None or isinstance(content, str))


def _joined(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    texts = [part["content"] for part in (one, other) if part.get("content")]
    calls = [call for part in (one, other) for call in part.get("tool_calls") or []]
    content = "\n".join(texts) or (None if calls else "")
    return {"role": "assistant", "content": content, **({"tool_calls": calls} if calls else {})}


def _tool(tool: dict[str, Any]) -> dict[str, Any]:
    """A tool definition; one that stands in no `function` is translated."""
    if is_custom(tool):
        return {**tool, "custom": custom_tool(tool, nested=True)}
    function = None if isinstance(tool.get("function"), dict) else function_of(tool)
    return tool if function is None else chat_tool(function._replace(others={}))
