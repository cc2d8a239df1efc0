"""Rules of OpenAI's chat completions about parameters, and about what some of its models refuse.

They check the request as it is sent or was logged. Unknown models are not checked.
"""

import re
from collections.abc import Iterator
from typing import Any

from cardbox_cli.context.lint import request_rules as shared
from cardbox_cli.context.lint.rule import Hit, Rules, Subject
from cardbox_cli.context.parts import dict_at, kind, list_at, text_at
from cardbox_cli.model.cards import SYSTEM_ROLES
from cardbox_cli.providers.openai.cards import MAX_STOPS

_REFERENCE = "OpenAI API reference, Create chat completion"
_STRUCTURED = "OpenAI docs, Structured model outputs"

PARAMETERS = Rules(_REFERENCE)
RULES = Rules("OpenAI docs, Models")

# The bounds of parameters in OpenAI's API reference. The bounds of `n` are from its OpenAPI document.
_RANGES = (
    shared.Range("n", 1, 128),
    shared.Range("max_tokens", 1),
    shared.Range("max_completion_tokens", 1),
    shared.Range("top_p", 0, 1),
    shared.Range("top_logprobs", 0, 20),
    shared.Range("frequency_penalty", -2, 2),
    shared.Range("presence_penalty", -2, 2),
)
_MAX_METADATA = 16
# The maximum characters of a metadata key, a metadata value and a user id.
_MAX_KEY, _MAX_VALUE, _MAX_USER = 64, 512, 128
_SCHEMA_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


@PARAMETERS.error("parameter-out-of-range", remedy="set another value in the profile's llm_config")
def _ranges(subject: Subject) -> Iterator[Hit]:
    """A parameter outside of its bounds: `n`, `max_tokens`, `top_p`, penalties, `top_logprobs`, tokens and
    values of `logit_bias`; more than 4 `stop` texts; more or longer `metadata` than allowed."""
    sent = subject.body_without_messages
    yield from shared.out_of_range(sent, _RANGES)
    for token, bias in dict_at(sent, "logit_bias").items():
        if not token.isdecimal():
            yield None, f"the logit_bias of {token!r} does not name a token, which is a number"
        if (number := shared.number_of(bias)) is not None and not -100 <= number <= 100:
            yield None, f"the logit_bias of {token!r} is {number}, not from -100 to 100"
    yield from shared.too_many(sent.get("stop"), MAX_STOPS, "stop texts")
    yield from metadata_hits(sent.get("metadata"))
    user = text_at(sent, "safety_identifier")
    if user is not None and len(user) > _MAX_USER:
        yield None, f"safety_identifier has {len(user)} characters, not up to {_MAX_USER}"


def metadata_hits(pairs: Any) -> Iterator[Hit]:
    if not isinstance(pairs, dict):
        return
    if len(pairs) > _MAX_METADATA:
        yield None, f"metadata has {len(pairs)} pairs, not up to {_MAX_METADATA}"
    for key, value in pairs.items():
        if len(key) > _MAX_KEY or (isinstance(value, str) and len(value) > _MAX_VALUE):
            yield None, f"metadata at {key!r} is longer than {_MAX_KEY} (key) or {_MAX_VALUE} (value)"


# Each parameter with the other parameter that it needs.
_NEEDS = (
    ("tool_choice", "tools"),
    ("parallel_tool_calls", "tools"),
    ("function_call", "functions"),
    ("top_logprobs", "logprobs"),
    ("stream_options", "stream"),
)


@PARAMETERS.error("parameter-without-other", remedy="add what it needs, or leave it out")
def _alone(subject: Subject) -> Iterator[Hit]:
    """A parameter without the one that it is about: `tool_choice` or `parallel_tool_calls` without tools,
    `function_call` without functions, `top_logprobs` without `logprobs: true`, `stream_options` without
    `stream: true`, `modalities` with audio without `audio`."""
    sent = subject.body_without_messages
    yield from shared.find_lonely_parameters(sent, _NEEDS)
    if "audio" in list_at(sent, "modalities") and not sent.get("audio"):
        yield None, "modalities asks for audio, but audio with a voice and a format is missing"


@PARAMETERS.error("parameters-exclusive", remedy="leave one of them out")
def _exclusive(subject: Subject) -> Iterator[Hit]:
    """`max_tokens` together with `max_completion_tokens`, which replaced it."""
    return shared.both_set(subject.body_without_messages, [("max_tokens", "max_completion_tokens")])


@PARAMETERS.error("list-empty", remedy="leave the key out")
def _empty_lists(subject: Subject) -> Iterator[Hit]:
    """`tools` or `functions` without any in it."""
    for name in ("tools", "functions"):
        if subject.body_without_messages.get(name) == []:
            yield None, f"{name} is an empty list"


@PARAMETERS.error("schema-name-invalid", source=f"{_REFERENCE}: response_format", remedy="name the schema")
def _schema_names(subject: Subject) -> Iterator[Hit]:
    """A `json_schema` whose name is not 1 to 64 letters, digits, `_` and `-`."""
    return schema_name_hits(_answer_schema(subject))


def schema_name_hits(schema: Any) -> Iterator[Hit]:
    name = text_at(schema, "name")
    if name is not None and not _SCHEMA_NAME.fullmatch(name):
        yield None, f"the name {name!r} of the json_schema is not 1 to 64 letters, digits, _ and -"


@PARAMETERS.error(
    "strict-schema-invalid",
    source=f"{_STRUCTURED}: supported schemas",
    remedy="write additionalProperties: false and every property under required, or leave strict out",
)
def _strict_schemas(subject: Subject) -> Iterator[Hit]:
    """A `strict` schema, of a tool or of the answer, that is not an object at the top, or has an object that
    is open or has optional properties."""
    answer = _answer_schema(subject)
    strict = [("the json_schema", answer.get("schema"))] if answer.get("strict") is True else []
    strict += [
        (f"tool {number}", dict_at(tool, "function").get("parameters"))
        for number, tool in enumerate(subject.tools)
        if kind(tool) == "function" and dict_at(tool, "function").get("strict") is True
    ]
    return shared.not_strict(strict)


def _answer_schema(subject: Subject) -> dict[str, Any]:
    return dict_at(dict_at(subject.body_without_messages, "response_format"), "json_schema")


# The parameters that reasoning models refuse.
_SAMPLING = ("temperature", "top_p")
_OF_TOKENS = ("frequency_penalty", "presence_penalty", "logit_bias", "logprobs", "top_logprobs")


@RULES.error(
    "role-refused",
    source="what the API answers: 'messages[0].role' does not support 'system' with this model",
    remedy="write it in a user message, or choose another model",
)
def _roles(subject: Subject) -> Iterator[Hit]:
    """A system or developer message for o1-mini or o1-preview."""
    if subject.facts.system is not False:
        return
    for message in subject.request.messages:
        if (role := message.body.get("role")) in SYSTEM_ROLES:
            yield subject.place(message), f"{subject.request.model} does not accept a {role} message"


@RULES.error(
    "input-audio-refused",
    source="what the API answers: Content blocks are expected to be either text or image_url type",
    remedy="choose a model that accepts audio, such as gpt-audio",
)
def _audio(subject: Subject) -> Iterator[Hit]:
    """Audio for a model that does not hear."""
    yield from _refused_parts(subject, "input_audio", "audio", subject.facts.audio)


@RULES.error("image-refused", remedy="choose a model that accepts images, or describe the image as text")
def _images(subject: Subject) -> Iterator[Hit]:
    """An image for a model that does not see."""
    yield from _refused_parts(subject, "image_url", "images", subject.facts.vision)


def _refused_parts(subject: Subject, part_type: str, what: str, is_taken: bool | None) -> Iterator[Hit]:
    if is_taken is False:
        entries = {id(entry): entry for entry, _, part in subject.parts if kind(part) == part_type}
        yield from ((entry, f"{subject.request.model} does not accept {what}") for entry in entries.values())


@RULES.error(
    "parameter-refused",
    source="OpenAI docs, Models and Web search; what the API answers: Web search options not supported",
    remedy="leave the parameter out, or choose another model",
)
def _parameters(subject: Subject) -> Iterator[Hit]:
    """A parameter that the model does not take: `web_search_options`, `audio` or audio among `modalities`,
    tools, a `json_schema`, a `reasoning_effort` or one of this level."""
    model, facts, sent = subject.request.model, subject.facts, subject.body_without_messages
    if sent.get("web_search_options") is not None and facts.web_search is False:
        yield None, f"{model} does not search: it does not accept web_search_options"
    speaks = sent.get("audio") or "audio" in list_at(sent, "modalities")
    if speaks and facts.audio is False:
        yield None, f"{model} does not speak: it does not accept audio or this modality"
    if subject.tools and facts.tools is False:
        yield None, f"{model} does not accept tools"
    if kind(sent.get("response_format")) == "json_schema" and facts.json_schema is False:
        yield None, f"{model} does not accept a response_format of type json_schema"
    yield from shared.refused_effort(subject, sent.get("reasoning_effort"), parameter="reasoning_effort")


@RULES.error(
    "answer-too-long",
    source="OpenAI docs, Models: max output tokens; what the API answers: max_tokens is too large",
    remedy="ask for fewer tokens",
)
def _too_long(subject: Subject) -> Iterator[Hit]:
    """A `max_tokens` or `max_completion_tokens` above what the model's answers may have."""
    return shared.too_long_answer(subject, ("max_tokens", "max_completion_tokens"), subject.facts.max_output)


@RULES.error(
    "reasoning-parameters",
    source="OpenAI docs, Using the latest model: parameter compatibility",
    remedy="use max_completion_tokens, and leave the others out",
)
def _refused_by_reasoning(subject: Subject) -> Iterator[Hit]:
    """A `max_tokens`, a `temperature` or `top_p` other than 1, penalties other than 0, `logprobs` or
    `logit_bias` for a model that reasons (o1, o3, o4, GPT-5). A `stop` for o3, o4-mini and GPT-5. From
    GPT-5.1 on, all but `max_tokens` is found only with a `reasoning_effort`."""
    model, facts, sent = subject.request.model, subject.facts, subject.body_without_messages
    if facts.reasoning not in ("always", "optional"):
        return
    if sent.get("max_tokens") is not None:
        yield None, f"{model} accepts max_completion_tokens, not max_tokens"
    if not facts.reasons(sent.get("reasoning_effort")):
        return
    for name in _SAMPLING:
        value = shared.number_of(sent.get(name))
        if value not in (None, 1):
            yield None, f"{model} accepts only 1 for {name} when it reasons, and it is {value}"
    for name in _OF_TOKENS:
        if sent.get(name):
            yield None, f"{model} does not accept {name} when it reasons"
    if sent.get("stop") and facts.stop is False:
        yield None, f"{model} does not accept stop"
