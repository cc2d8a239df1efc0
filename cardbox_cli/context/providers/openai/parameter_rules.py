"""Rules of OpenAI's chat completions about parameters: their bounds, and which of them go together.

They look at the request as it is sent, or as it was logged.
"""

import re
from collections.abc import Iterator
from typing import Any

from cardbox_cli.context.lint.parameters import Range, number_of, out_of_range
from cardbox_cli.context.lint.rule import Hit, Rules
from cardbox_cli.context.lint.strict_schemas import strict_problem
from cardbox_cli.context.lint.subject import Subject
from cardbox_cli.context.parts import kind, text_at
from cardbox_cli.context.providers.openai.body import MOST_STOPS

_REFERENCE = "OpenAI API reference, Create chat completion"
_STRUCTURED = "OpenAI docs, Structured model outputs"

RULES = Rules(_REFERENCE)

# The bounds that the reference names for each; those of `n` from OpenAI's published OpenAPI document.
_RANGES = (
    Range("n", 1, 128),
    Range("max_tokens", 1),
    Range("max_completion_tokens", 1),
    Range("top_p", 0, 1),
    Range("top_logprobs", 0, 20),
    Range("frequency_penalty", -2, 2),
    Range("presence_penalty", -2, 2),
)
_MOST_METADATA = 16
# Of what may be no longer than that: metadata's keys and values, and who the user is.
_LONGEST_KEY, _LONGEST_VALUE, _LONGEST_USER = 64, 512, 128
SCHEMA_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


@RULES.error("parameter-out-of-range", remedy="set another value in the profile's llm_config")
def _ranges(subject: Subject) -> Iterator[Hit]:
    """A parameter outside of its bounds: `n`, `max_tokens`, `top_p`, penalties, `top_logprobs`, tokens and
    values of `logit_bias`; more than 4 `stop` texts; more or longer `metadata` than may be."""
    sent = subject.beside
    yield from out_of_range(subject, _RANGES)
    biases = sent.get("logit_bias")
    for token, bias in biases.items() if isinstance(biases, dict) else ():
        if not token.isdecimal():
            yield None, f"the logit_bias of {token!r} is of no token, which is a number"
        if (number := number_of(bias)) is not None and not -100 <= number <= 100:
            yield None, f"the logit_bias of {token!r} is {number}, not from -100 to 100"
    stops = sent.get("stop")
    if isinstance(stops, list) and len(stops) > MOST_STOPS:
        yield None, f"there are {len(stops)} stop texts, not up to {MOST_STOPS}"
    yield from metadata_hits(sent.get("metadata"))
    user = text_at(sent, "safety_identifier")
    if user is not None and len(user) > _LONGEST_USER:
        yield None, f"safety_identifier has {len(user)} characters, not up to {_LONGEST_USER}"


def metadata_hits(pairs: Any) -> Iterator[Hit]:
    """What is too much or too long of `metadata`."""
    if not isinstance(pairs, dict):
        return
    if len(pairs) > _MOST_METADATA:
        yield None, f"metadata has {len(pairs)} pairs, not up to {_MOST_METADATA}"
    for key, value in pairs.items():
        if len(key) > _LONGEST_KEY or (isinstance(value, str) and len(value) > _LONGEST_VALUE):
            yield None, f"metadata at {key!r} is longer than {_LONGEST_KEY} (key) or {_LONGEST_VALUE} (value)"


# A parameter, what it says nothing without, and whether a value of that is enough.
_NEEDS: tuple[tuple[str, str], ...] = (
    ("tool_choice", "tools"),
    ("parallel_tool_calls", "tools"),
    ("function_call", "functions"),
    ("top_logprobs", "logprobs"),
    ("stream_options", "stream"),
)


@RULES.error("parameter-without-other", remedy="add what it needs, or leave it out")
def _alone(subject: Subject) -> Iterator[Hit]:
    """A parameter without the one that it is about: `tool_choice` or `parallel_tool_calls` without tools,
    `function_call` without functions, `top_logprobs` without `logprobs: true`, `stream_options` without
    `stream: true`, `modalities` with audio without `audio`."""
    sent = subject.beside
    for name, needed in _NEEDS:
        if sent.get(name) is not None and not sent.get(needed):
            yield None, f"{name} is set, and there is no {needed}"
    modalities = sent.get("modalities")
    if isinstance(modalities, list) and "audio" in modalities and not sent.get("audio"):
        yield None, "modalities asks for audio, and there is no audio with a voice and a format"


@RULES.error("parameters-exclusive", remedy="leave one of them out")
def _exclusive(subject: Subject) -> Iterator[Hit]:
    """`max_tokens` beside `max_completion_tokens`, which replaced it."""
    sent = subject.beside
    if sent.get("max_tokens") is not None and sent.get("max_completion_tokens") is not None:
        yield None, "max_tokens and max_completion_tokens are both set"


@RULES.error("list-empty", remedy="leave the key out")
def _empty_lists(subject: Subject) -> Iterator[Hit]:
    """`tools` or `functions` without any in it."""
    for name in ("tools", "functions"):
        if subject.beside.get(name) == []:
            yield None, f"{name} is an empty list"


@RULES.error("schema-name-invalid", source=f"{_REFERENCE}: response_format", remedy="name the schema")
def _schema_names(subject: Subject) -> Iterator[Hit]:
    """A `json_schema` whose name is not 1 to 64 letters, digits, `_` and `-`."""
    name = text_at(_answer_schema(subject), "name")
    if name is not None and not SCHEMA_NAME.fullmatch(name):
        yield None, f"the name {name!r} of the json_schema is not 1 to 64 letters, digits, _ and -"


@RULES.error(
    "strict-schema-invalid",
    source=f"{_STRUCTURED}: supported schemas",
    remedy="write additionalProperties: false and every property under required, or leave strict out",
)
def _strict_schemas(subject: Subject) -> Iterator[Hit]:
    """A schema that is `strict`, of a tool or of the answer, with an object whose `additionalProperties` is
    not false or whose properties are not all required, or that is no object at the top."""
    answer = _answer_schema(subject)
    strict = [("the json_schema", answer.get("schema"))] if answer.get("strict") is True else []
    for number, tool in enumerate(subject.tools):
        function = tool.get("function") if kind(tool) == "function" else None
        if isinstance(function, dict) and function.get("strict") is True:
            strict.append((f"tool {number}", function.get("parameters")))
    for name, schema in strict:
        if isinstance(schema, dict) and (problem := strict_problem(schema)) is not None:
            yield None, f"{name} is strict, and {problem}"


def _answer_schema(subject: Subject) -> dict[str, Any]:
    wanted = subject.beside.get("response_format")
    schema = wanted.get("json_schema") if isinstance(wanted, dict) else None
    return schema if isinstance(schema, dict) else {}
