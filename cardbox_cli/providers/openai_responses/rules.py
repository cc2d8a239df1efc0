"""The rules of OpenAI's Responses: those that all providers share, and its own."""

from collections.abc import Iterator
from functools import partial

from msgspec.structs import replace

from cardbox_cli.context.lint import card_rules
from cardbox_cli.context.lint import request_rules as shared
from cardbox_cli.context.lint.rule import Hit, LintRule, Rules, Subject
from cardbox_cli.context.parts import kind, list_at, text_at
from cardbox_cli.providers.openai.model_rules import metadata_hits, schema_name_hits
from cardbox_cli.providers.openai.rules import url_problem
from cardbox_cli.providers.openai_responses.cards import kind_of, role_of_item

_REFERENCE = "OpenAI API reference, Create a model response"
_INPUT = f"{_REFERENCE}: input"
_CONVERSATION = "OpenAI docs, Conversation state"
_STRUCTURED = "OpenAI docs, Structured model outputs"
_REASONING = "OpenAI docs, Reasoning models"
# The keys of a request that continues a stored conversation, which may contain the calls of its results.
_CONTINUING = ("previous_response_id", "conversation")
# This rule does not apply, because a result may follow its call anywhere.
_NO_RULES = ("result-not-after-call",)
_NAMES = shared.NamePattern.up_to(128)

_OWN, _REQUESTS = Rules(_INPUT), Rules(_REFERENCE)

_OWN.error("tool-name-invalid", finds=_NAMES.finds, remedy=shared.RENAME)(
    partial(shared.invalid_names, allowed=_NAMES)
)

_OWN.warning(
    "arguments-invalid",
    finds="A call whose `arguments` are not a JSON object in a string, which the model reads as its own.",
)(shared.malformed_arguments)


@_OWN.error("reasoning-last", source=_CONVERSATION, remedy="add the item that followed the reasoning")
def _dangling_reasoning(subject: Subject) -> Iterator[Hit]:
    """Reasoning without the item that followed it, as the last one of the input."""
    for entry, _, message in subject.history.messages[-1:]:
        content = message.body["content"]
        if isinstance(content, list) and content and kind_of(content[-1]) == "reasoning":
            yield entry, "the last item is reasoning, without what followed it"


_INPUTS = ("input_text", "input_image", "input_file")
_RANGES = (
    shared.Range("top_p", 0, 1),
    shared.Range("max_output_tokens", 16),
    shared.Range("top_logprobs", 0, 20),
)


@_REQUESTS.error("parameter-out-of-range", remedy="set another value")
def _ranges(subject: Subject) -> Iterator[Hit]:
    """A `top_p` that is not from 0 to 1, `max_output_tokens` below 16, `top_logprobs` that are not from 0 to
    20, more or longer `metadata` than allowed."""
    yield from shared.out_of_range(subject.body_without_messages, _RANGES)
    yield from metadata_hits(subject.body_without_messages.get("metadata"))


@_REQUESTS.error("parameter-without-other", remedy="add what it needs, or leave it out")
def _alone(subject: Subject) -> Iterator[Hit]:
    """A `tool_choice` that forces a tool without any tools, `stream_options` without `stream: true`,
    `background` without `store`."""
    sent = subject.body_without_messages
    choice = sent.get("tool_choice")
    others = (item for _, item in subject.logged_messages if kind_of(item) == "additional_tools")
    tools = subject.tools or list(others)
    if not tools and (choice == "required" or kind(choice) == "function"):
        yield None, "tool_choice forces a tool, and there are none"
    yield from shared.find_lonely_parameters(sent, [("stream_options", "stream")])
    if sent.get("background") is True and sent.get("store") is False:
        yield None, "background is true, and store is false"


@_REQUESTS.error("parameters-exclusive", remedy="leave one of them out")
def _exclusive(subject: Subject) -> Iterator[Hit]:
    """`conversation` together with `previous_response_id`."""
    pairs = [("conversation", "previous_response_id")]
    return shared.both_set(subject.body_without_messages, pairs, is_set=bool)


@_REQUESTS.error("schema-name-invalid", source=f"{_REFERENCE}: text", remedy="name the schema")
def _schema_names(subject: Subject) -> Iterator[Hit]:
    """A `json_schema` whose name is not 1 to 64 letters, digits, `_` and `-`."""
    return schema_name_hits(shared.value_at(subject.body_without_messages, "text.format"))


@_REQUESTS.error(
    "strict-schema-invalid",
    source=f"{_STRUCTURED}: supported schemas",
    remedy="write additionalProperties: false and every property under required, or leave strict out",
)
def _strict_schemas(subject: Subject) -> Iterator[Hit]:
    """A `strict` schema, of a function or of the answer, with an object that is open or has optional
    properties."""
    answer = shared.value_at(subject.body_without_messages, "text.format")
    schemas = [("the answer's format", answer, "schema")]
    schemas += [(f"tool {number}", tool, "parameters") for number, tool in enumerate(subject.tools)]
    return shared.not_strict(
        (name, value.get(key))
        for name, value, key in schemas
        if isinstance(value, dict) and value.get("strict") is True
    )


@_REQUESTS.error(
    "json-unsaid",
    source=f"{_STRUCTURED}: JSON mode",
    remedy="tell the model in a message of the input to answer in JSON",
)
def _json_not_asked_for(subject: Subject) -> Iterator[Hit]:
    """An answer of the format `json_object` if the input does not contain the word JSON."""
    if text_at(shared.value_at(subject.body_without_messages, "text.format"), "type") != "json_object":
        return
    texts = (str(message.body.get("content")) for message in subject.request.messages)
    yield from shared.json_unsaid(texts, "the format")


@_REQUESTS.error(
    "parameter-refused", source=_REASONING, remedy="leave the parameter out, or choose another model"
)
def _unsupported_parameters(subject: Subject) -> Iterator[Hit]:
    """An effort that the model does not take, or not of this level; a `temperature` or `top_p` other than 1,
    or `top_logprobs`, if it reasons."""
    model, sent = subject.request.model, subject.body_without_messages
    effort = shared.value_at(sent, "reasoning.effort")
    yield from shared.refused_effort(subject, effort)
    if not subject.facts.reasons(effort):
        return
    for name in ("temperature", "top_p"):
        if shared.number_of(sent.get(name)) not in (None, 1):
            yield None, f"{model} accepts only 1 for {name} when it reasons"
    if sent.get("top_logprobs"):
        yield None, f"{model} does not accept top_logprobs when it reasons"


@_REQUESTS.error(
    "tool-schema-invalid",
    source="what the API answers: Invalid schema for function",
    remedy="write items for each array, and types that JSON Schema has",
)
def _schemas(subject: Subject) -> Iterator[Hit]:
    """Parameters of a function with an array that has no items, or a type that JSON Schema does not have."""
    schemas = (
        (f"the parameters of tool {number}", tool.get("parameters") if kind(tool) == "function" else None)
        for number, tool in enumerate(subject.tools)
    )
    return shared.schema_hits(schemas, shared.types_unknown, shared.items_missing)


@_REQUESTS.error(
    "part-on-wrong-side",
    source="what the API answers: Invalid value: 'input_text', where 'output_text' and 'refusal' may be",
    remedy="write it as output_text",
)
def _sides(subject: Subject) -> Iterator[Hit]:
    """A part of input in a message of the assistant's."""
    for entry, _, item in subject.parts:
        is_answer = kind_of(item) == "message" and role_of_item(item) == "assistant"
        for name in dict.fromkeys(map(kind, list_at(item, "content") if is_answer else ())):
            if name in _INPUTS:
                yield entry, f"a part of type {name!r} is in a message of the assistant's"


@_REQUESTS.error(
    "reasoning-alone",
    source="OpenAI docs, Reasoning models: keeping reasoning items in context",
    remedy="send the item that followed it, under its own id, or leave the reasoning out",
)
def _alone_thoughts(subject: Subject) -> Iterator[Hit]:
    """Logged reasoning with an id that another item of the same answer, under its own id, does not follow."""
    items = subject.logged_messages
    for (entry, item), (_, after) in zip(items, [*items[1:], (None, None)], strict=False):
        if kind_of(item) != "reasoning" or not text_at(item, "id"):
            continue
        is_answer = after is not None and role_of_item(after) == "assistant"
        if not is_answer or (kind_of(after) == "message" and not text_at(after, "id")):
            yield entry, "what followed this reasoning is missing, or has no id"


@_REQUESTS.error("image-invalid", source="OpenAI docs, Images and vision: image input requirements")
def _images(subject: Subject) -> Iterator[Hit]:
    """A logged image whose URL is neither a web address nor base64, whose bytes are not PNG, JPEG, GIF or
    WebP, or for a model that takes none."""
    for entry, item in subject.logged_messages:
        for part in list_at(item, "content"):
            url = text_at(part, "image_url") if kind(part) == "input_image" else None
            if url is not None and (problem := url_problem(url)) is not None:
                yield entry, f"an image cannot be read: {problem}"
            elif url is not None and subject.facts.vision is False:
                yield entry, f"{subject.request.model} does not accept images"


def _unless_continued(rule: LintRule) -> LintRule:
    """Return the rule so that it checks only requests that contain their whole conversation."""

    def find(subject: Subject) -> Iterator[Hit]:
        if not any(subject.request.config.get(key) for key in _CONTINUING):
            yield from rule.find(subject)

    return replace(rule, find=find)


RULES = (
    *(_unless_continued(each) for each in card_rules.EXCHANGES.cite(_INPUT) if each.id not in _NO_RULES),
    *card_rules.CARDS.cite(_INPUT),
    *shared.SHAPE,
    *_OWN,
    *_REQUESTS,
    *shared.TEMPERATURE.cite("OpenAI API reference, Create a model response: temperature, tool_choice"),
    *shared.TOOL_CHOICE.cite("OpenAI API reference, Create a model response: temperature, tool_choice"),
    *shared.LIMITS.cite("OpenAI docs, Models: context window"),
    *shared.CACHING.cite("OpenAI docs, Prompt caching"),
)
