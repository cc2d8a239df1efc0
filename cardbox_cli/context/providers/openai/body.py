"""The OpenAI chat-completions request body.

Source: OpenAI API reference, "Create chat completion".
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from typing import Any

from cardbox_cli.context.messages import Message
from cardbox_cli.context.providers.provider import Body, SentMessage
from cardbox_cli.context.request import Request

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
TOOL_PARAMETERS = ("tool_choice", "parallel_tool_calls")


def body(request: Request) -> Body:
    """The JSON body of `request`; without a model when none is known."""
    parts: Body = {} if request.model is None else {"model": request.model}
    is_whole = {message.group for message in request.messages} <= {None}
    parts["messages"] = (
        [message.body for message in request.messages] if is_whole else list(joined(request.messages))
    )
    if request.tools:
        parts["tools"] = [_tool(tool) for tool in request.tools]
    names = (*PARAMETERS, *(TOOL_PARAMETERS if request.tools else ()))
    return {**parts, **{name: request.config[name] for name in names if name in request.config}}


def joined(messages: Iterable[Message]) -> Iterator[Body]:
    """The messages, those parts of one assistant message that stand side by side made into one.

    OpenAI wants all calls of an answer in one message, followed by their results.
    """
    for first, *others in runs(messages):
        yield reduce(_joined, (part.body for part in others), first.body) if others else first.body


def sent(request: Request) -> Iterator[SentMessage]:
    """The messages as a prefix cache finds them: system text is among them."""
    end = 0
    for number, run in enumerate(runs(request.messages), 1):
        [body] = joined(run)
        start, end = end, end + len(run)
        yield SentMessage("messages", number, body, list(range(start, end)))


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
    """A tool definition; one that is stored as Anthropic writes it, with an input_schema, is translated."""
    if "input_schema" not in tool:
        return tool
    function = {key: tool[key] for key in ("name", "description", "strict") if key in tool}
    return {"type": "function", "function": {**function, "parameters": tool["input_schema"]}}
