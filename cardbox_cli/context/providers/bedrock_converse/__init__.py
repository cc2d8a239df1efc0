"""Amazon Bedrock's Converse: content in blocks, system text apart, the model in the URL."""

from functools import partial

from cardbox_cli.context.providers import parted, parted_bodies
from cardbox_cli.context.providers.bedrock_converse import answers, body, cards, models
from cardbox_cli.context.providers.bedrock_converse.blocks import NAME, PARTING
from cardbox_cli.context.providers.provider import Provider
from cardbox_cli.context.providers.turns import steps

PROVIDER = Provider(
    name=NAME,
    title="Bedrock",
    sends="a Converse body",
    encode=partial(parted.encode, PARTING),
    chat_original=partial(parted.chat_original, PARTING),
    failed=partial(parted.kept_failure, PARTING),
    has_failures=True,
    lost_in_chat=partial(parted.lost_in_chat, PARTING),
    lost_of_chat=partial(parted.lost_of_chat, PARTING),
    lost_in_request=partial(parted_bodies.lost_in_request, PARTING),
    members=body.members,
    exchanged=partial(parted.exchanged, PARTING),
    steps=steps,
    sent=partial(parted_bodies.sent, PARTING),
    message_keys=("system", "messages"),
    cached_parameters=("toolConfig",),
    split_tools=body.split_tools,
    runs_tool=body.runs_tool,
    models=models.MODELS,
    hottest=1,
    temperature_at="inferenceConfig.temperature",
    rules="cardbox_cli.context.providers.bedrock_converse.rules",
    schema="cardbox_cli.context.providers.bedrock_converse",
    files=cards.FILES,
    answers=answers.ANSWERS,
)
