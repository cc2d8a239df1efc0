"""Rules of OpenAI's Responses about parameters, tools and single items, and what some of its models refuse.

What the chat completions have in the same way is asked of `openai`.
"""

from collections.abc import Iterator
from typing import Any

from cardbox_cli.context.lint.parameters import Range, number_of, out_of_range, value_at
from cardbox_cli.context.lint.rule import Hit, Rules
from cardbox_cli.context.lint.strict_schemas import strict_problem
from cardbox_cli.context.lint.subject import Subject
from cardbox_cli.context.lint.tool_schemas import items_missing, types_unknown
from cardbox_cli.context.parts import as_list, kind, text_at
from cardbox_cli.context.providers.openai.models import efforts, is_blind, is_reasoning, reasons
from cardbox_cli.context.providers.openai.parameter_rules import SCHEMA_NAME, metadata_hits
from cardbox_cli.context.providers.openai.rules import url_problem
from cardbox_cli.context.providers.openai_responses.items import kind_of, role_of_item
from cardbox_cli.context.request import RequestEntry

_REFERENCE = "OpenAI API reference, Create a model response"
_STRUCTURED = "OpenAI docs, Structured model outputs"
_REASONING = "OpenAI docs, Reasoning models"

RULES = Rules(_REFERENCE)

_INPUTS = ("input_text", "input_image", "input_file")
_RANGES = (Range("top_p", 0, 1), Range("max_output_tokens", 16), Range("top_logprobs", 0, 20))


@RULES.error("parameter-out-of-range", remedy="set another value")
def _ranges(subject: Subject) -> Iterator[Hit]:
    """A `top_p` that is not from 0 to 1, `max_output_tokens` below 16, `top_logprobs` that are not from 0 to
    20, more or longer `metadata` than may be."""
    yield from out_of_range(subject, _RANGES)
    yield from metadata_hits(subject.beside.get("metadata"))


@RULES.error("parameter-without-other", remedy="add what it needs, or leave it out")
def _alone(subject: Subject) -> Iterator[Hit]:
    """A `tool_choice` that forces a tool where there are none, `stream_options` without `stream: true`,
    `background` without `store`."""
    sent = subject.beside
    choice = sent.get("tool_choice")
    tools = subject.tools or [item for item in _items(subject) if kind_of(item[1]) == "additional_tools"]
    if not tools and (choice == "required" or kind(choice) == "function"):
        yield None, "tool_choice forces a tool, and there are none"
    if sent.get("stream_options") is not None and not sent.get("stream"):
        yield None, "stream_options is set, and there is no stream"
    if sent.get("background") is True and sent.get("store") is False:
        yield None, "background is true, and store is false"


@RULES.error("parameters-exclusive", remedy="leave one of them out")
def _exclusive(subject: Subject) -> Iterator[Hit]:
    """`conversation` beside `previous_response_id`."""
    if subject.beside.get("conversation") and subject.beside.get("previous_response_id"):
        yield None, "conversation and previous_response_id are both set"


@RULES.error("schema-name-invalid", source=f"{_REFERENCE}: text", remedy="name the schema")
def _schema_names(subject: Subject) -> Iterator[Hit]:
    """A `json_schema` whose name is not 1 to 64 letters, digits, `_` and `-`."""
    name = text_at(value_at(subject.beside, "text.format"), "name")
    if name is not None and not SCHEMA_NAME.fullmatch(name):
        yield None, f"the name {name!r} of the json_schema is not 1 to 64 letters, digits, _ and -"


@RULES.error(
    "strict-schema-invalid",
    source=f"{_STRUCTURED}: supported schemas",
    remedy="write additionalProperties: false and every property under required, or leave strict out",
)
def _strict_schemas(subject: Subject) -> Iterator[Hit]:
    """A schema that is `strict`, of a function or of the answer, with an object that is open or whose
    properties are not all required."""
    answer = value_at(subject.beside, "text.format")
    schemas = [("the answer's format", answer, "schema")]
    schemas += [(f"tool {number}", tool, "parameters") for number, tool in enumerate(subject.tools)]
    for name, value, key in schemas:
        is_strict = isinstance(value, dict) and value.get("strict") is True
        schema = value.get(key) if is_strict else None
        if isinstance(schema, dict) and (problem := strict_problem(schema)) is not None:
            yield None, f"{name} is strict, and {problem}"


@RULES.error(
    "json-unsaid",
    source=f"{_STRUCTURED}: JSON mode",
    remedy="tell the model in a message of the input to answer in JSON",
)
def _json_not_asked_for(subject: Subject) -> Iterator[Hit]:
    """An answer of the format `json_object` where the input does not say the word JSON."""
    if text_at(value_at(subject.beside, "text.format"), "type") != "json_object":
        return
    said = [str(message.body.get("content")) for message in subject.request.messages]
    if not any("json" in text.lower() for text in said):
        yield None, "the format is json_object, and no message says the word JSON"


@RULES.error(
    "parameter-refused", source=_REASONING, remedy="leave the parameter out, or choose another model"
)
def _of_models(subject: Subject) -> Iterator[Hit]:
    """A parameter that the model does not take: an effort where it does not reason, or not with that much; a
    `temperature` or `top_p` other than 1, or `top_logprobs`, where it does."""
    model, sent = subject.request.model, subject.beside
    effort = value_at(sent, "reasoning.effort")
    known = efforts(model)
    if effort is not None and known is not None and effort not in known:
        words = f"knows the efforts {', '.join(known)}" if known else "takes no effort"
        yield None, f"{model} {words}; it is {effort!r}"
    if not is_reasoning(model) or not reasons(model, effort):
        return
    for name in ("temperature", "top_p"):
        if number_of(sent.get(name)) not in (None, 1):
            yield None, f"{model} takes no other {name} than 1 when it reasons"
    if sent.get("top_logprobs"):
        yield None, f"{model} takes no top_logprobs when it reasons"


@RULES.error(
    "tool-schema-invalid",
    source="what the API answers: Invalid schema for function",
    remedy="write items for each array, and types that JSON Schema has",
)
def _schemas(subject: Subject) -> Iterator[Hit]:
    """Parameters of a function with an array that has no items, or a type that JSON Schema does not have."""
    for number, tool in enumerate(subject.tools):
        schema = tool.get("parameters") if kind(tool) == "function" else None
        for problem in (*types_unknown(schema), *items_missing(schema)):
            yield None, f"the parameters of tool {number}: {problem}"


@RULES.error(
    "part-on-wrong-side",
    source="what the API answers: Invalid value: 'input_text', where 'output_text' and 'refusal' may be",
    remedy="write it as output_text",
)
def _sides(subject: Subject) -> Iterator[Hit]:
    """A part of input in a message of the assistant's."""
    for entry, _, message in subject.history.not_text:
        for item in as_list(message.body["content"]):
            is_answer = kind_of(item) == "message" and role_of_item(item) == "assistant"
            parts = as_list(item.get("content")) if is_answer else []
            for name in dict.fromkeys(map(kind, parts)):
                if name in _INPUTS:
                    yield entry, f"a part of type {name!r} stands in a message of the assistant's"


def _items(subject: Subject) -> list[tuple[RequestEntry, Any]]:
    return subject.logged.messages if subject.logged is not None else []


@RULES.error(
    "reasoning-alone",
    source="OpenAI docs, Reasoning models: keeping reasoning items in context",
    remedy="send the item that followed it, under its own id, or leave the reasoning out",
)
def _alone_thoughts(subject: Subject) -> Iterator[Hit]:
    """As logged, reasoning with an id that is not followed by what the model made of it: another item of the
    same answer, under its id."""
    items = _items(subject)
    for (entry, item), (_, after) in zip(items, [*items[1:], (None, None)], strict=False):
        if kind_of(item) != "reasoning" or not text_at(item, "id"):
            continue
        is_answer = after is not None and role_of_item(after) == "assistant"
        if not is_answer or (kind_of(after) == "message" and not text_at(after, "id")):
            yield entry, "what followed this reasoning is missing, or has no id"


@RULES.error("image-invalid", source="OpenAI docs, Images and vision: image input requirements")
def _images(subject: Subject) -> Iterator[Hit]:
    """As logged, an image that is neither at a web address nor in base64 in its URL, or that is no PNG, JPEG,
    GIF or WebP by its bytes, or an image for a model that takes none."""
    for entry, item in _items(subject):
        content = item.get("content") if isinstance(item, dict) else None
        for part in content if isinstance(content, list) else ():
            url = text_at(part, "image_url") if kind(part) == "input_image" else None
            if url is not None and (problem := url_problem(url)) is not None:
                yield entry, f"an image cannot be read: {problem}"
            elif url is not None and is_blind(subject.request.model):
                yield entry, f"{subject.request.model} takes no images"
