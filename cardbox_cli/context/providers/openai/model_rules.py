"""Rules of OpenAI's chat completions about what some of its models refuse, and others take.

Of models that are not known by their names nothing is claimed.
"""

from collections.abc import Iterator

from cardbox_cli.context.lint.parameters import number_of
from cardbox_cli.context.lint.rule import Hit, Rules
from cardbox_cli.context.lint.subject import Subject
from cardbox_cli.context.parts import kind
from cardbox_cli.context.providers.openai.models import (
    MODELS,
    efforts,
    is_blind,
    is_deaf,
    is_reasoning,
    longest_answer,
    reasons,
    searches_not,
    takes_schemas,
    takes_system,
    takes_tools,
)
from cardbox_cli.context.request import RequestEntry
from cardbox_cli.model.cards import SYSTEM_ROLES

_REASONING = "OpenAI docs, Reasoning models"

RULES = Rules("OpenAI docs, Models")

# What models that reason have no use for. `stop` is refused by the two the reference names, and by GPT-5:
# "Unsupported parameter: 'stop' is not supported with this model".
_SAMPLING = ("temperature", "top_p")
_OF_TOKENS = ("frequency_penalty", "presence_penalty", "logit_bias", "logprobs", "top_logprobs")
_WITHOUT_STOP = ("o3", "o4-mini", "gpt-5", "gpt-5-mini", "gpt-5-nano")
_LIMITS = ("max_tokens", "max_completion_tokens")


@RULES.error(
    "role-refused",
    source="what the API answers: 'messages[0].role' does not support 'system' with this model",
    remedy="say it in a message of the user's, or choose another model",
)
def _roles(subject: Subject) -> Iterator[Hit]:
    """A system or developer message for o1-mini or o1-preview."""
    if takes_system(subject.request.model):
        return
    for message in subject.request.messages:
        if (role := message.body.get("role")) in SYSTEM_ROLES:
            yield subject.place(message), f"{subject.request.model} takes no {role} message"


@RULES.error(
    "input-audio-refused",
    source="what the API answers: Content blocks are expected to be either text or image_url type",
    remedy="choose a model that hears, such as gpt-audio",
)
def _audio(subject: Subject) -> Iterator[Hit]:
    """Audio for a model that does not hear."""
    for hit in _parts(subject, "input_audio") if is_deaf(subject.request.model) else ():
        yield hit, f"{subject.request.model} takes no audio"


@RULES.error("image-refused", remedy="choose a model that sees, or say in words what is to be seen")
def _images(subject: Subject) -> Iterator[Hit]:
    """An image for a model that does not see."""
    for hit in _parts(subject, "image_url") if is_blind(subject.request.model) else ():
        yield hit, f"{subject.request.model} takes no images"


def _parts(subject: Subject, wanted: str) -> Iterator[RequestEntry]:
    for entry, _, message in subject.history.not_text:
        content = message.body.get("content")
        if isinstance(content, list) and any(kind(part) == wanted for part in content):
            yield entry


@RULES.error(
    "parameter-refused",
    source="OpenAI docs, Models and Web search; what the API answers: Web search options not supported",
    remedy="leave the parameter out, or choose another model",
)
def _parameters(subject: Subject) -> Iterator[Hit]:
    """A parameter that the model does not take: `web_search_options` where it does not search, `audio` or
    audio among `modalities` where it does not speak, tools or a `json_schema` where it is too old for them, a
    `reasoning_effort` where it cannot be asked for, or not for that much."""
    model, sent = subject.request.model, subject.beside
    if sent.get("web_search_options") is not None and searches_not(model):
        yield None, f"{model} does not search: it takes no web_search_options"
    modalities = sent.get("modalities")
    if is_deaf(model) and (sent.get("audio") or (isinstance(modalities, list) and "audio" in modalities)):
        yield None, f"{model} does not speak: it takes no audio and no such modality"
    if subject.tools and not takes_tools(model):
        yield None, f"{model} takes no tools"
    if kind(sent.get("response_format")) == "json_schema" and not takes_schemas(model):
        yield None, f"{model} takes no response_format of type json_schema"
    known, effort = efforts(model), sent.get("reasoning_effort")
    if effort is not None and known is not None and effort not in known:
        words = f"knows the efforts {', '.join(known)}" if known else "takes no reasoning_effort"
        yield None, f"{model} {words}; it is {effort!r}"


@RULES.error(
    "answer-too-long",
    source="OpenAI docs, Models: max output tokens; what the API answers: max_tokens is too large",
    remedy="ask for fewer tokens",
)
def _too_long(subject: Subject) -> Iterator[Hit]:
    """A `max_tokens` or `max_completion_tokens` above what the model's answers may have."""
    model = subject.request.model
    most = longest_answer(model)
    for name in _LIMITS if most is not None else ():
        wanted = number_of(subject.beside.get(name))
        if wanted is not None and most is not None and wanted > most:
            yield None, f"{name} is {wanted}, and an answer of {model} has at most {most}"


@RULES.error(
    "reasoning-parameters",
    source="OpenAI docs, Using the latest model: parameter compatibility",
    remedy="use max_completion_tokens, and leave the others out",
)
def _refused_by_reasoning(subject: Subject) -> Iterator[Hit]:
    """For a model that reasons (o1, o3, o4, GPT-5): `max_tokens`; a `temperature` or `top_p` other than 1,
    penalties other than 0, `logprobs`, `logit_bias`; `stop` for o3, o4-mini and GPT-5. From GPT-5.1 on, all
    but `max_tokens` is found where a `reasoning_effort` is set."""
    model = subject.request.model
    if not is_reasoning(model):
        return
    sent = subject.beside
    if sent.get("max_tokens") is not None:
        yield None, f"{model} takes no max_tokens, but max_completion_tokens"
    if not reasons(model, sent.get("reasoning_effort")):
        return
    for name in _SAMPLING:
        value = number_of(sent.get(name))
        if value not in (None, 1):
            yield None, f"{model} takes no other {name} than 1 when it reasons, and it is {value}"
    for name in _OF_TOKENS:
        if sent.get(name):
            yield None, f"{model} takes no {name} when it reasons"
    if sent.get("stop") and MODELS.plain_name(model or "") in _WITHOUT_STOP:
        yield None, f"{model} takes no stop"
