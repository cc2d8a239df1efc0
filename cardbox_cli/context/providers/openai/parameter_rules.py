"""Rules of OpenAI's chat completions about parameters that models refuse."""

from collections.abc import Iterator

from cardbox_cli.context.lint.parameters import number
from cardbox_cli.context.lint.rule import Hit, Rules
from cardbox_cli.context.lint.subject import Subject
from cardbox_cli.context.parts import text_at, texts_in
from cardbox_cli.context.providers.openai.models import is_reasoning, reasons

RULES = Rules()


@RULES.error(
    "json-unsaid",
    source="OpenAI docs, Structured model outputs: JSON mode",
    remedy="tell the model in the system prompt to answer in JSON",
)
def _json_not_asked_for(subject: Subject) -> Iterator[Hit]:
    """`response_format: json_object` where no message says the word JSON."""
    if text_at(subject.request.config.get("response_format"), "type") != "json_object":
        return
    messages = subject.request.messages
    if not any("json" in texts_in(message.body.get("content")).lower() for message in messages):
        yield None, "response_format is json_object, and no message says the word JSON"


@RULES.error(
    "reasoning-parameters",
    source="OpenAI docs, Using the latest model: parameter compatibility",
    remedy="use max_completion_tokens, and leave the temperature out",
)
def _refused_by_reasoning(subject: Subject) -> Iterator[Hit]:
    """For a model that reasons (o1, o3, o4, GPT-5): `max_tokens`, or a `temperature` or `top_p` other
    than 1. From GPT-5.1 on these are found where a `reasoning_effort` is set."""
    model = subject.request.model
    if not subject.request.config or not is_reasoning(model):
        return
    sent = subject.beside
    if sent.get("max_tokens") is not None:
        yield None, f"{model} takes no max_tokens, but max_completion_tokens"
    if not reasons(model, sent.get("reasoning_effort")):
        return
    for name in ("temperature", "top_p"):
        value = number(sent.get(name))
        if value not in (None, 1):
            yield None, f"{model} takes no other {name} than 1 when it reasons, and it is {value}"
