"""The rules of OpenAI's chat completions: those that all providers share, and its own."""

import re
from collections.abc import Iterator
from functools import partial
from typing import Any

from cardbox_cli.context.lint import card_rules
from cardbox_cli.context.lint import request_rules as shared
from cardbox_cli.context.lint.rule import HistoryCall, Hit, Rules, Subject
from cardbox_cli.context.parts import dict_at, kind, list_at, text_at, texts_in
from cardbox_cli.providers.openai import model_rules
from cardbox_cli.providers.openai.cards import runs
from cardbox_cli.text.error_messages import json_type

_MAX_ID = 40
_MAX_TOOLS = 128
_MAX_DESCRIPTION = 1024
_NAMES = shared.NamePattern.up_to(64)
_SPEAKER = re.compile(r"[^\s<|\\/>]+")
# The types of content parts that a role may have. A role that is not listed may only have text.
_PARTS = {"user": ("text", "image_url", "input_audio", "file"), "assistant": ("text", "refusal")}
# Maps the type of a part, which is also the key of its value, to keys of the value. One must have a string.
_VALUES = {"image_url": ("url",), "input_audio": ("data",), "file": ("file_id", "file_data")}
_TOOL_TYPES = ("function", "custom")

_CONTENT = "OpenAI API reference, Create chat completion: messages, content"
_ASSISTANT = "OpenAI API reference, Create chat completion: messages, assistant message, tool_calls"
_TOOLS = "OpenAI API reference, Create chat completion: tools"

_OWN = Rules(_CONTENT)


def _function_calls(subject: Subject) -> Iterator[HistoryCall]:
    for call in subject.history.calls:
        if isinstance(call.value, dict) and call.value.get("type", "function") == "function":
            yield call


@_OWN.error(
    "tool-id-too-long",
    source=_ASSISTANT,
    remedy="import with --remap-tool-ids, which gives shorter ones",
    finds=f"A tool-call id of more than {_MAX_ID} characters.",
)
def _long_ids(subject: Subject) -> Iterator[Hit]:
    for call in _function_calls(subject):
        if call.id is not None and len(call.id) > _MAX_ID:
            yield call.entry, f"the id {call.id!r} has {len(call.id)} characters, not up to {_MAX_ID}"


_OWN.error("tool-name-invalid", finds=_NAMES.finds, source=_TOOLS, remedy=shared.RENAME)(
    partial(
        shared.invalid_names,
        allowed=_NAMES,
        calls=_function_calls,
        is_named=lambda tool: tool.get("type") == "function" or "input_schema" in tool,
    )
)


@_OWN.error(
    "too-many-tools",
    source=_TOOLS,
    remedy="narrow the profile's allowed_tools",
    finds=f"More than {_MAX_TOOLS} tools.",
)
def _too_many_tools(subject: Subject) -> Iterator[Hit]:
    number = len(subject.offered)
    if number > _MAX_TOOLS:
        yield None, f"the request has {number} tools, not up to {_MAX_TOOLS}"


_OWN.error(
    "arguments-invalid",
    finds="A tool call whose `arguments` are not a JSON object in a string.",
    source=_ASSISTANT,
    remedy="edit the card so that the arguments are a string such as '{}'",
)(partial(shared.malformed_arguments, calls=_function_calls))


@_OWN.warning("nothing-asked", remedy="render a box that holds the conversation, too")
def _nothing_asked(subject: Subject) -> Iterator[Hit]:
    """Nothing but system text, which OpenAI accepts."""
    if subject.request.messages and subject.is_system_alone:
        yield None, "the request has no message except system text"


@_OWN.error("content-null", remedy="leave the message out, or give it a text")
def _null_contents(subject: Subject) -> Iterator[Hit]:
    """A message whose content is null, and that calls no tool either."""
    for entry, card, message in subject.history.not_text:
        body = message.body
        if body.get("content") is None and not card.tool_calls and not any(body.get(key) for key in _INSTEAD):
            yield entry, f"the {body['role']} message has no content (null)"


# The keys that an assistant's message may have instead of content.
_INSTEAD = ("tool_calls", "function_call", "refusal", "audio")


@_OWN.error("content-malformed", remedy="edit the card so that its content is a text")
def _malformed_contents(subject: Subject) -> Iterator[Hit]:
    """Content that is neither a text nor a list of parts; a part of an unknown type or without its value."""
    for entry, _, message in subject.history.not_text:
        content = message.body.get("content")
        if content is None:
            continue
        if not isinstance(content, list):
            yield entry, f"the content is {json_type(content)}, and neither a text nor a list of parts"
        elif not content:
            yield entry, "the content is a list without parts"
        else:
            yield from ((entry, problem) for part in content if (problem := _part_problem(part)))


def _part_problem(part: Any) -> str | None:
    name = kind(part)
    if not name:
        return "a part of the content is not an object with a type"
    if name in ("text", "refusal"):
        is_whole = text_at(part, name) is not None
    elif name in _VALUES:
        is_whole = any(text_at(part.get(name), key) for key in _VALUES[name])
    else:
        return f"no provider of this format knows a part of type {name!r}"
    return None if is_whole else f"a part of type {name!r} does not hold what it should"


@_OWN.error("part-on-wrong-side", remedy="say it in a message of the user's")
def _misplaced_parts(subject: Subject) -> Iterator[Hit]:
    """An image, audio or a file in a message that is not the user's, or a refusal in one that is not the
    assistant's."""
    for entry, role, part in subject.parts:
        name = kind(part)
        if name in (*_VALUES, "refusal") and name not in _PARTS.get(role, ()):
            yield entry, f"a part of type {name!r} is in a message of the role {role!r}"


@_OWN.error(
    "speaker-name-invalid",
    source="OpenAI API reference, Create chat completion: messages, name",
    remedy="write the name with letters, digits, `_` and `-`",
)
def _speakers(subject: Subject) -> Iterator[Hit]:
    r"""A `name` of who speaks with white space or one of `< \ / >` or a bar in it; a function's message
    without one."""
    for entry, _, message in subject.history.named:
        name = message.body["name"]
        if name is not None and not (isinstance(name, str) and _SPEAKER.fullmatch(name)):
            yield entry, f"the name {name!r} is not a text, or has a space or one of <|\\/> in it"
    for entry, _, message in subject.history.messages if "function" in subject.history.roles else ():
        if message.body["role"] == "function" and message.body.get("name") is None:
            yield entry, "the message of a function does not name it"


@_OWN.error(
    "tool-malformed",
    source=_TOOLS,
    remedy="write calls and tools as functions, parameters as an object's schema",
)
def _malformed_tools(subject: Subject) -> Iterator[Hit]:
    """A `tool_calls` that is not a list of calls, a call of an unknown type or without its value, parameters
    that are not a schema of an object."""
    history = subject.history
    others = (call for call in history.calls if call.function is None or call.value.get("type") != "function")
    if history.with_other_calls or any(others):
        yield from _malformed_calls(subject)
    for number, function in functions(subject):
        schema = function.get("parameters")
        if schema not in (None, {}) and (problem := shared.schema_problem(schema, "parameters")) is not None:
            yield None, f"tool {number} {problem}"


def _malformed_calls(subject: Subject) -> Iterator[Hit]:
    for entry, _, message in subject.history.messages:
        calls = message.body.get("tool_calls")
        if calls is None:
            continue
        if not isinstance(calls, list) or not calls:
            yield entry, f"tool_calls is {'empty' if calls == [] else json_type(calls)}, not a list of calls"
            continue
        for call in calls:
            name = call.get("type") if isinstance(call, dict) else None
            if name not in _TOOL_TYPES:
                yield entry, f"a tool call is of type {name!r}, not 'function' or 'custom'"
            elif not isinstance(call.get(name), dict):
                yield entry, f"a tool call has no {name!r}"


def functions(subject: Subject) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the functions among the sent tools, each after the index of the tool."""
    for number, tool in enumerate(subject.tools):
        if kind(tool) == "function":
            yield number, dict_at(tool, "function")


@_OWN.error(
    "tool-schema-invalid",
    source="what the API answers: Invalid schema for function",
    remedy="write items for each array, and types that JSON Schema has",
)
def _schemas(subject: Subject) -> Iterator[Hit]:
    """Parameters of a function with an array that has no items, or a type that JSON Schema does not have."""
    schemas = ((f"the parameters of tool {at}", each.get("parameters")) for at, each in functions(subject))
    return shared.schema_hits(schemas, shared.types_unknown, shared.items_missing)


@_OWN.error(
    "description-too-long",
    source="what the API answers: tools[].function.description, string too long",
    remedy="say the rest in the system prompt",
    finds=f"A function described by more than {_MAX_DESCRIPTION} characters.",
)
def _long_descriptions(subject: Subject) -> Iterator[Hit]:
    for number, function in functions(subject):
        length = len(text_at(function, "description") or "")
        if length > _MAX_DESCRIPTION:
            words = f"{length} characters, not up to {_MAX_DESCRIPTION}"
            yield None, f"the description of tool {number} has {words}"


@_OWN.error(
    "tool-id-repeated",
    source=_ASSISTANT,
    remedy="give each call an id of its own, and its result the same one",
)
def _repeated_ids(subject: Subject) -> Iterator[Hit]:
    """Two tool calls of one message with the same id."""
    ids = [call.id for call in subject.history.calls if call.id]
    if len(set(ids)) == len(ids):
        return
    for run in runs(message for _, _, message in subject.history.messages):
        seen: set[str] = set()
        for message in run:
            for call in list_at(message.body, "tool_calls"):
                call_id = text_at(call, "id")
                if call_id and call_id in seen:
                    yield subject.place(message), f"two calls of one message have the id {call_id!r}"
                seen.add(call_id or "")


@_OWN.error(
    "json-unsaid",
    source="OpenAI docs, Structured model outputs: JSON mode",
    remedy="tell the model in the system prompt to answer in JSON",
)
def _json_not_asked_for(subject: Subject) -> Iterator[Hit]:
    """`response_format: json_object` if no message contains the word JSON."""
    if text_at(subject.request.config.get("response_format"), "type") != "json_object":
        return
    texts = (texts_in(message.body.get("content")) for message in subject.request.messages)
    yield from shared.json_unsaid(texts, "response_format")


@_OWN.error(
    "image-invalid",
    source="OpenAI docs, Images and vision: image input requirements",
    remedy="send a PNG, JPEG, WebP or GIF: by its address, or as a data URL in base64",
)
def _images(subject: Subject) -> Iterator[Hit]:
    """An image whose URL is neither a web address nor base64, or whose bytes are not PNG, JPEG, GIF or
    WebP."""
    for entry, _, part in subject.parts:
        url = text_at(part.get("image_url"), "url") if kind(part) == "image_url" else None
        if url is not None and (problem := url_problem(url)) is not None:
            yield entry, f"an image cannot be read: {problem}"


def url_problem(url: str) -> str | None:
    """Return why OpenAI cannot read the URL of an image, or None."""
    if url.startswith(("http://", "https://")):
        return None
    head, comma, data = url.partition(",")
    if not head.startswith("data:"):
        return f"the URL {url[:40]!r} begins with none of https:, http: and data:"
    if not comma or not head.endswith(";base64"):
        return "the data URL is not in base64"
    media_type = head.removeprefix("data:").partition(";")[0]
    if media_type not in (*shared.IMAGE_FORMATS, "image/jpg"):
        return f"it is of type {media_type!r}, none of {', '.join(shared.IMAGE_FORMATS)}"
    return shared.image_problem(data)


RULES = (
    *card_rules.EXCHANGES.cite("OpenAI API reference, Create chat completion: messages, tool message"),
    *card_rules.CARDS.cite("OpenAI API reference, Create chat completion: messages"),
    *shared.SHAPE,
    *_OWN,
    *model_rules.PARAMETERS,
    *model_rules.RULES,
    *shared.TEMPERATURE.cite("OpenAI API reference, Create chat completion: temperature, tool_choice"),
    *shared.TOOL_CHOICE.cite("OpenAI API reference, Create chat completion: temperature, tool_choice"),
    *shared.LIMITS.cite("OpenAI docs, Models: context window"),
    *shared.CACHING.cite("OpenAI docs, Prompt caching"),
)

# The rules that only apply to OpenAI itself: its limits, its values, and what its models refuse.
_OPENAIS = {
    *("parameter-unknown", "key-unknown", "value-unknown", "parameter-out-of-range"),
    *("tool-id-too-long", "too-many-tools", "speaker-name-invalid", "json-unsaid", "list-empty"),
    *("image-invalid", "schema-name-invalid", "strict-schema-invalid", "parameters-exclusive"),
    "parameter-without-other",
    *("tool-schema-invalid", "description-too-long", "answer-too-long"),
    *("role-refused", "image-refused", "input-audio-refused", "parameter-refused", "reasoning-parameters"),
}

# The rules for other hosts that take this format.
COMPATIBLE = tuple(rule for rule in RULES if rule.id not in _OPENAIS)
