"""OpenAI's Responses: instructions, and items in one list. Its models are known to the chat completions."""

from functools import partial

from cardbox_cli.context.providers import parted
from cardbox_cli.context.providers.openai_responses import answers, body, cards, requests
from cardbox_cli.context.providers.openai_responses.items import NAME, PARTING
from cardbox_cli.context.providers.provider import Models, Provider

PROVIDER = Provider(
    name=NAME,
    title="OpenAI's Responses",
    sends="a Responses body",
    encode=body.encode_card,
    chat_original=partial(parted.chat_original, PARTING),
    lost_in_chat=partial(parted.lost_in_chat, PARTING),
    lost_of_chat=partial(parted.lost_of_chat, PARTING),
    members=body.members,
    exchanged=partial(parted.exchanged, PARTING),
    steps=body.steps,
    sent=body.sent,
    message_keys=("instructions", "input"),
    cached_parameters=("text",),
    runs_tool=requests.runs_tool,
    # A model's name says nothing of which of the two APIs is asked.
    models=Models(recognises=lambda _: False, holding={}),
    rules="cardbox_cli.context.providers.openai_responses.rules",
    schema="cardbox_cli.context.providers.openai_responses",
    files=cards.FILES,
    answers=answers.ANSWERS,
)
