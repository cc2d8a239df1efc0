"""OpenAI's answers as cards: chat completions, and their variants from gateways."""

import msgspec

from cardbox_cli.context.parts import MalformedAnswer, normalized_calls
from cardbox_cli.context.provider import AnswerReader, Body, OwnIds
from cardbox_cli.model.cards import CardDraft, card_text
from cardbox_cli.model.content import TextContent
from cardbox_cli.providers.openai.cards import card_of_message

# The keys under which gateways put the model's reasoning, as text.
_REASONING = ("reasoning_content", "reasoning")
# The finish reasons of an incomplete answer.
_LIMITS = ("length",)
_CUT_OFF = (*_LIMITS, "content_filter")


class OpenAIAnswers(AnswerReader):
    """A reader of chat completions. It also reads any message that no other provider's reader recognizes."""

    limits = _LIMITS

    def is_response(self, value: Body) -> bool:
        return isinstance(value.get("choices"), list)

    def unwrap(self, response: Body) -> Body:
        choices = response["choices"]
        message = choices[0].get("message") if choices and isinstance(choices[0], dict) else None
        if not isinstance(message, dict):
            raise MalformedAnswer("the response has no choices[0].message")
        return {**message, "role": "assistant"}

    def cut_off(self, response: Body) -> str | None:
        choices = response["choices"]
        reason = choices[0].get("finish_reason") if choices and isinstance(choices[0], dict) else None
        return reason if reason in _CUT_OFF else None

    def is_own(self, message: Body) -> bool:
        """Return True, because a message without marks of another format has this format."""
        return True

    def draft(self, message: Body, own_ids: OwnIds) -> list[CardDraft]:
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
    """Return a message in the form in which it is sent back: without empty keys, with normalized calls."""
    calls = message.get("tool_calls") or []
    if not calls and isinstance(message.get("function_call"), dict):
        calls = [{"function": message["function_call"]}]
    if not isinstance(calls, list):
        raise MalformedAnswer("tool_calls is not a list")
    content = message.get("content")
    if content is not None and not isinstance(content, str | list):
        raise MalformedAnswer("the content of the message is neither text nor a list")
    apart = ("role", "content", "tool_calls", "function_call")
    rest = {key: value for key, value in message.items() if key not in apart and value not in (None, "", [])}
    normalized = {"tool_calls": normalized_calls(calls)} if calls else {}
    return {"role": "assistant", "content": content or (None if calls else ""), **normalized, **rest}
