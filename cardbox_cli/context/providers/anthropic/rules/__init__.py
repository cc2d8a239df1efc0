"""The rules of Anthropic's Messages: those that all providers share, and its own."""

from cardbox_cli.context.lint import contents, economy, exchanges, shape
from cardbox_cli.context.lint import parameters as shared_parameters
from cardbox_cli.context.providers.anthropic.rules import logged, messages, models, parameters, thinking

RULES = (
    *exchanges.RULES.by("Anthropic docs, Handle tool calls: formatting requirements"),
    *contents.RULES.by("Anthropic API reference, Create a Message: messages"),
    *shape.RULES,
    *messages.RULES,
    *thinking.RULES,
    *shared_parameters.RULES.by("Anthropic API reference, Create a Message: temperature, tool_choice"),
    *parameters.RULES,
    *models.RULES,
    *logged.RULES,
    *economy.LIMITS.by("Anthropic docs, Models overview: context window"),
    *economy.CACHING.by("Anthropic docs, Prompt caching"),
)
