"""Anthropic's Messages: system text apart, content in blocks, neighbours of one role merged."""

from cardbox_cli.context.providers.anthropic import answers, body, cards, encoding, losses, models
from cardbox_cli.context.providers.provider import Provider
from cardbox_cli.context.providers.turns import steps

PROVIDER = Provider(
    name=encoding.NAME,
    title="Anthropic",
    sends="a Messages body",
    encode=encoding.encode,
    chat_original=encoding.chat_original,
    failed=encoding.kept_failure,
    has_failures=True,
    lost_in_chat=losses.in_chat,
    lost_of_chat=losses.of_chat,
    lost_in_request=losses.in_request,
    members=body.members,
    renamed_calls=body.renamed_calls,
    exchanged=encoding.exchanged,
    steps=steps,
    sent=body.sent,
    # Anthropic docs, "Prompt caching": another choice of tools or way of thinking loses the messages.
    cached_parameters=("tool_choice", "thinking"),
    runs_tool=body.runs_tool,
    models=models.MODELS,
    hottest=1,
    rules="cardbox_cli.context.providers.anthropic.rules",
    schema="cardbox_cli.context.providers.anthropic",
    files=cards.FILES,
    answers=answers.ANSWERS,
)
