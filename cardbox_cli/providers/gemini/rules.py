"""The rules of Gemini: those that all providers share, and its own.

They check the request as it is sent or was logged, with keys in camelCase or snake_case.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from cardbox_cli.context.lint import card_rules
from cardbox_cli.context.lint import request_rules as shared
from cardbox_cli.context.lint.rule import Hit, Rules, Subject
from cardbox_cli.context.parts import list_at, text_at
from cardbox_cli.providers.gemini.cards import KINDS, MAX_STOPS, camel_key, get_either_case, kind_of

_CONTENT = "Gemini API reference, Content: parts"
_CALLING = "Gemini API docs, Function calling"
_GENERATION = "Gemini API reference, GenerationConfig"
_TOOLS = "Gemini API reference, Tool and FunctionDeclaration"
_CONTENTS = "Gemini API reference, Content"
_NAMES = shared.NamePattern(
    r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,127}", "a letter or _ and then up to 127 letters, digits and _.:-"
)

_OWN = Rules(_CONTENT)
_REQUESTS = Rules(_GENERATION)

_RANGES = (
    shared.Range("temperature", 0, 2),
    shared.Range("topP", 0, 1),
    shared.Range("topK", 1),
    shared.Range("candidateCount", 1, 8),
    shared.Range("maxOutputTokens", 1),
    shared.Range("presencePenalty", -2, 2),
    shared.Range("frequencyPenalty", -2, 2),
    shared.Range("logprobs", 0, 20),
)
# Gemini API docs, Thinking: with -1, the model decides.
_MIN_BUDGET = -1
_SCHEMAS = ("responseSchema", "responseJsonSchema")
_ENUM, _JSON = "text/x.enum", "application/json"

_OWN.error(
    "tool-name-invalid",
    finds="A function, called or defined, whose name is not a letter or `_` and up to 127 letters, digits "
    "and `_.:-`.",
    source="Gemini API reference, FunctionDeclaration: name",
    remedy=shared.RENAME,
)(partial(shared.invalid_names, allowed=_NAMES, label="tool"))


@_OWN.error("content-malformed", remedy="give the part one of the kinds that Content has")
def _malformed_parts(subject: Subject) -> Iterator[Hit]:
    """A part of a type that the API does not have."""
    for entry, _, part in subject.parts:
        if not isinstance(part, dict):
            yield entry, "a part is not an object"
        elif not kind_of(part) and get_either_case(part, "thoughtSignature") is None:
            keys = ", ".join(map(repr, sorted(part)[:4])) or "none"
            yield entry, f"a part has no kind that Gemini knows; its keys: {keys}"


@_OWN.warning("thought-signature-missing", source="Gemini API docs, Thought signatures")
def _unsigned_calls(subject: Subject) -> Iterator[Hit]:
    """A function call without the signature of its thought, if other calls have one: Gemini 3 refuses it in
    the current turn."""
    unsigned, is_signed = [], False
    for entry, _, message in subject.history.not_text:
        calls = [part for part in message.body["content"] if kind_of(part) == "functionCall"]
        signed = [get_either_case(part, "thoughtSignature") is not None for part in calls]
        is_signed = is_signed or any(signed)
        if calls and not signed[0]:
            unsigned.append(entry)
    for entry in unsigned if is_signed else ():
        yield entry, "a function is called without a thought signature"


_OWN.warning(
    "arguments-invalid",
    finds='A tool call whose arguments are not a JSON object: the model sees them as `{"_raw": text}`.',
)(shared.arguments_sent_as_text)


def _camel(value: Any) -> dict[str, Any]:
    """Return an object with its keys in camelCase, or {} for any other value."""
    if not isinstance(value, Mapping):
        return {}
    return {camel_key(key): each for key, each in value.items()}


def _generation(subject: Subject) -> dict[str, Any]:
    return _camel(_camel(subject.body_without_messages).get("generationConfig"))


@_REQUESTS.error("parameter-out-of-range", remedy="set another value")
def _ranges(subject: Subject) -> Iterator[Hit]:
    """A parameter of `generationConfig` outside of its bounds, such as a `temperature` above 2, a
    `thinkingBudget` below -1, or more than 5 `stopSequences`."""
    config = _generation(subject)
    yield from shared.out_of_range(config, _RANGES)
    budget = shared.number_of(_camel(config.get("thinkingConfig")).get("thinkingBudget"))
    if budget is not None and budget < _MIN_BUDGET:
        yield None, f"thinkingBudget is {budget}, not {_MIN_BUDGET} (the model decides) or more"
    yield from shared.too_many(config.get("stopSequences"), MAX_STOPS, "stopSequences")


@_REQUESTS.error("parameter-without-other", remedy="add what it needs, or leave it out")
def _alone(subject: Subject) -> Iterator[Hit]:
    """`logprobs` without `responseLogprobs`, a schema of the answer without a `responseMimeType` that fits
    it, names of allowed functions if the mode is neither ANY nor VALIDATED."""
    config = _generation(subject)
    if config.get("logprobs") is not None and not config.get("responseLogprobs"):
        yield None, "logprobs is set, and responseLogprobs is not"
    if any(config.get(key) for key in _SCHEMAS) and config.get("responseMimeType") not in (_JSON, _ENUM):
        yield None, "the answer has a schema, and its responseMimeType is not application/json"
    calling = _calling(subject)
    if calling.get("allowedFunctionNames") and calling.get("mode") not in ("ANY", "VALIDATED"):
        yield None, f"functions are allowed by name, and the mode is {calling.get('mode')!r}, not ANY"


@_REQUESTS.error("parameters-exclusive", remedy="leave one of them out")
def _exclusive(subject: Subject) -> Iterator[Hit]:
    """`responseSchema` with `responseJsonSchema`; a `thinkingLevel` with a `thinkingBudget`; `cachedContent`
    with a system instruction, tools or their choice, which the cache contains."""
    config, sent = _generation(subject), _camel(subject.body_without_messages)
    yield from shared.both_set(config, [_SCHEMAS])
    yield from shared.both_set(_camel(config.get("thinkingConfig")), [("thinkingLevel", "thinkingBudget")])
    cached = [("cachedContent", name) for name in ("systemInstruction", "tools", "toolConfig")]
    yield from shared.both_set(sent, cached, is_set=bool)


@_REQUESTS.error("setting-repeated", source="Gemini API reference, SafetySetting", remedy="keep one of them")
def _repeated_settings(subject: Subject) -> Iterator[Hit]:
    """Two safety settings of one category."""
    settings = list_at(_camel(subject.body_without_messages), "safetySettings")
    for name, number in Counter(text_at(each, "category") for each in settings).items():
        if name is not None and number > 1:
            yield None, f"there are {number} safety settings of the category {name}"


def _calling(subject: Subject) -> dict[str, Any]:
    config = _camel(_camel(subject.body_without_messages).get("toolConfig"))
    return _camel(config.get("functionCallingConfig"))


def _declared(subject: Subject) -> list[Any]:
    return [each for tool in subject.tools for each in list_at(_camel(tool), "functionDeclarations")]


@_REQUESTS.error("tool-repeated", source=_TOOLS, remedy="keep one of the declarations")
def _repeated_tools(subject: Subject) -> Iterator[Hit]:
    """Two functions of one name."""
    names = (text_at(each, "name") for each in _declared(subject))
    return shared.repeated_tools(names, "the function {} is declared {} times")


@_REQUESTS.error("tool-malformed", source=_TOOLS, remedy="write the parameters as an object's schema")
def _malformed_tools(subject: Subject) -> Iterator[Hit]:
    """A function without a name, with parameters that are not a schema of an object, or with two schemas; an
    empty tool."""
    for number, tool in enumerate(subject.tools):
        if tool == {}:
            yield None, f"tool {number} is empty"
    for each in _declared(subject):
        declared = _camel(each)
        name, schema = declared.get("name"), declared.get("parameters")
        if not isinstance(name, str) or not name:
            yield None, "a function that is declared has no name"
        kinds = schema.get("type") if isinstance(schema, dict) else None
        if isinstance(kinds, str) and kinds.upper() != "OBJECT":
            yield None, f"the parameters of {name!r} are of the type {kinds!r}, not OBJECT"
        if schema is not None and declared.get("parametersJsonSchema") is not None:
            yield None, f"{name!r} has parameters and parametersJsonSchema"


@_REQUESTS.error(
    "tool-schema-invalid",
    source="what the API answers: function_declarations[].parameters.properties[].items: missing field",
    remedy="write items for each array",
)
def _arrays(subject: Subject) -> Iterator[Hit]:
    """Parameters of a function, as OpenAPI has them, with an array that has no items."""
    named = ((text_at(each, "name"), _camel(each).get("parameters")) for each in _declared(subject))
    schemas = ((f"the parameters of {name!r}", schema) for name, schema in named)
    return shared.schema_hits(schemas, shared.items_missing)


@_REQUESTS.error("allowed-function-unknown", source=_TOOLS, remedy="declare the function, or allow another")
def _unknown_allowed(subject: Subject) -> Iterator[Hit]:
    """A function that is allowed by its name and not declared."""
    known = [text_at(each, "name") for each in _declared(subject)]
    for name in list_at(_calling(subject), "allowedFunctionNames"):
        if name not in known:
            yield None, f"the function {name!r} is allowed, and not declared"


@_REQUESTS.error(
    "content-empty-or-mixed", source=_CONTENTS, remedy="give each part one kind, and each content one part"
)
def _parts(subject: Subject) -> Iterator[Hit]:
    """A logged content without parts, a part of two types, bytes that are missing, not in base64 or without a
    type."""
    for entry, content in subject.logged_messages:
        if isinstance(content, dict) and content.get("parts") == []:
            yield entry, "the content has no parts"
        for part in list_at(content, "parts"):
            kinds = [name for name in KINDS if get_either_case(part, name) is not None]
            if len(kinds) > 1:
                yield entry, f"a part is {' and '.join(kinds)} at once"
            if (problem := _data_problem(get_either_case(part, "inlineData"))) is not None:
                yield entry, problem


def _data_problem(inline: Any) -> str | None:
    if not isinstance(inline, dict):
        return None
    if not get_either_case(inline, "mimeType"):
        return "bytes have no mimeType"
    data = text_at(inline, "data") or ""
    # The API accepts the standard and the URL-safe alphabet of base64.
    if not shared.is_base64(data.replace("-", "+").replace("_", "/") + "=" * (-len(data) % 4)):
        return "bytes are not in base64"
    return None if data else "there are no bytes"


@_REQUESTS.error(
    "call-first", source="Gemini API docs, Function calling", remedy="begin with what the user said"
)
def _first_call(subject: Subject) -> Iterator[Hit]:
    """A logged conversation that begins with a function call: a call follows the user."""
    for entry, content in subject.logged_messages[:1]:
        calls = (get_either_case(part, "functionCall") for part in list_at(content, "parts"))
        if text_at(content, "role") == "model" and any(call is not None for call in calls):
            yield entry, "a function is called before the user has said anything"


RULES = (
    *card_rules.EXCHANGES.cite(_CALLING),
    *card_rules.CARDS.cite(_CONTENT),
    *shared.SHAPE,
    *_OWN,
    *_REQUESTS,
    *shared.TEMPERATURE.cite(_GENERATION),
    *shared.LIMITS.cite("Gemini API docs, Gemini models: token limits"),
    *shared.CACHING.cite("Gemini API docs, Context caching"),
)
