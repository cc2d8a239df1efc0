"""What OpenAI's models answer, as cards: chat completions, Responses, and what gateways make of them."""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from cardbox_cli.context.parts import kind
from cardbox_cli.context.providers.openai.cards import card_of_message
from cardbox_cli.context.providers.provider import Answers, Body
from cardbox_cli.context.tool_calls import MalformedAnswer, normalized_calls
from cardbox_cli.model.cards import CardDraft, card_text
from cardbox_cli.model.content import TextContent

# Where a message has what a model thought, as text.
_REASONING = ("reasoning_content", "reasoning")
# What ended a chat completion in the middle of what the model said.
_CUT_OFF = ("length", "content_filter")


def _unwrap(value: Body) -> Body | None:
    if isinstance(value.get("choices"), list):
        return _chosen(value["choices"])
    if value.get("object") == "response" and isinstance(value.get("output"), list):
        return _message_of_items(value["output"])
    return None


def _cut_off(value: Body) -> str | None:
    choices = value.get("choices")
    if isinstance(choices, list):
        reason = choices[0].get("finish_reason") if choices and isinstance(choices[0], dict) else None
        return reason if reason in _CUT_OFF else None
    status = value.get("status") if value.get("object") == "response" else None
    return str(status) if status not in (None, "completed") else None


def _chosen(choices: list[Any]) -> Body:
    message = choices[0].get("message") if choices and isinstance(choices[0], dict) else None
    if not isinstance(message, dict):
        raise MalformedAnswer("the response has no choices[0].message")
    return {**message, "role": "assistant"}


def _message_of_items(items: list[Any]) -> Body:
    """The message that the items of a Responses object are together."""
    texts, thoughts, calls = [], [], []
    for item in items:
        if kind(item) == "message":
            texts += [part.get("text") or part.get("refusal") for part in _dicts(item.get("content"))]
        elif kind(item) == "reasoning":
            thoughts += [part.get("text") for part in _dicts(item.get("summary"))]
        elif kind(item) == "function_call":
            function = {"name": item.get("name"), "arguments": item.get("arguments")}
            calls.append({"id": item.get("call_id"), "type": "function", "function": function})
    return {
        "role": "assistant",
        "content": "\n".join(text for text in texts if isinstance(text, str)),
        "tool_calls": calls,
        "reasoning_content": "\n".join(text for text in thoughts if isinstance(text, str)),
    }


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _draft(message: Body, own_ids: Callable[[Sequence[str]], list[str]]) -> list[CardDraft]:
    message = _tidied(message)
    calls = message.get("tool_calls")
    if calls:
        ids = own_ids([call["id"] for call in calls])
        renamed = [{**call, "id": call_id} for call, call_id in zip(calls, ids, strict=True)]
        message = {**message, "tool_calls": renamed}
    card = card_of_message(message)
    refusal = message.get("refusal")
    if isinstance(refusal, str) and not card_text(card.content):
        card = msgspec.structs.replace(card, content=TextContent(refusal))
    reasoning = next((message[key] for key in _REASONING if isinstance(message.get(key), str)), None)
    if reasoning is None:
        return [card]
    return [msgspec.structs.replace(card, metadata={**card.metadata, "reasoning_content": reasoning})]


def _tidied(message: Body) -> Body:
    """A message as it is sent back: its calls normalized, and without the keys that hold nothing."""
    calls = message.get("tool_calls") or []
    if not calls and isinstance(message.get("function_call"), dict):
        calls = [{"function": message["function_call"]}]
    if not isinstance(calls, list):
        raise MalformedAnswer("tool_calls is no list")
    content = message.get("content")
    if content is not None and not isinstance(content, str | list):
        raise MalformedAnswer("the content of the message is neither text nor a list")
    apart = ("role", "content", "tool_calls", "function_call")
    rest = {key: value for key, value in message.items() if key not in apart and value not in (None, "", [])}
    normalized = {"tool_calls": normalized_calls(calls)} if calls else {}
    return {"role": "assistant", "content": content or (None if calls else ""), **normalized, **rest}


ANSWERS = Answers(unwrap=_unwrap, cut_off=_cut_off, is_own=lambda _: True, draft=_draft)
