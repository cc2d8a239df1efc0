"""OpenAI's chat completions. Cards are near to this format: the chat form is its messages."""

from cardbox_cli.context.providers.chat import chat_message
from cardbox_cli.context.providers.openai import answers, body, cards, models
from cardbox_cli.context.providers.provider import Provider
from cardbox_cli.context.providers.tools import is_custom

PROVIDER = Provider(
    name=body.NAME,
    title="OpenAI",
    sends="a chat-completions body",
    encode=chat_message,
    chat_original=cards.original,
    members=body.members,
    exchanged=body.exchanged,
    steps=body.steps,
    sent=body.sent,
    # OpenAI docs, "Prompt caching": tools and a schema for the answer stand before the messages.
    message_keys=("messages",),
    cached_parameters=("response_format",),
    runs_tool=is_custom,
    models=models.MODELS,
    rules="cardbox_cli.context.providers.openai.rules",
    schema="cardbox_cli.context.providers.openai",
    files=cards.FILES,
    answers=answers.ANSWERS,
)
