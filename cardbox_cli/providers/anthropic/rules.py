"""The rules of Anthropic's Messages: those of all providers, and its own about messages, blocks and tools.

A problem is a warning if rendering repairs it, and an error if not. A rule with `logged="error"` is an error
for a logged request, and a warning for a rendered one.
"""

from collections.abc import Iterator
from itertools import groupby
from typing import Any

import msgspec

from cardbox_cli.context.lint import card_rules
from cardbox_cli.context.lint import request_rules as shared
from cardbox_cli.context.lint.rule import Hit, Rules, Subject
from cardbox_cli.context.messages import Message
from cardbox_cli.context.parts import RAW, arguments_of, is_text, kind, list_at, text_at, tool_name
from cardbox_cli.context.provider import RenamedCall
from cardbox_cli.context.request import RequestEntry
from cardbox_cli.providers.anthropic import model_rules
from cardbox_cli.providers.anthropic.blocks import (
    IMAGES,
    ensure_blocks,
    is_allowed,
    is_of_server,
    is_result,
    leading_system_messages,
    own_blocks,
)
from cardbox_cli.providers.anthropic.model_rules import THINKING_BLOCKS, SentMessages, is_thinking_on
from cardbox_cli.text.error_messages import json_type

_MAX_BREAKPOINTS = 4
_LONG_LIFETIME = "1h"
_NAMES = shared.NamePattern.up_to(128)
# The types of tools that have no name: `BetaMCPToolsetParam`.
_NAMELESS = ("mcp_toolset",)
# Maps the types of blocks that only one role may send to that role.
_SIDES = dict.fromkeys((*THINKING_BLOCKS, "tool_use", "server_tool_use"), "assistant")
_SIDES["tool_result"] = "user"

# The types of blocks that a message may have, including beta types, and that a tool result may have.
_BLOCKS = frozenset(
    {*_SIDES, "text", "image", "document", "search_result", "container_upload", "compaction", "fallback"}
    | {"mcp_tool_listing", "tool_addition", "tool_removal"}
    | {"mcp_tool_use", "mcp_tool_result", "advisor_tool_result", "tool_search_tool_result"}
    | {"web_search_tool_result", "web_fetch_tool_result", "code_execution_tool_result"}
    | {"bash_code_execution_tool_result", "text_editor_code_execution_tool_result"}
)
_IN_RESULTS = frozenset({"text", "image", "search_result", "document", "tool_reference", "browser_state"})

# The required keys of blocks and the types of their values. An empty id counts as missing.
_NEEDS: dict[str, dict[str, type]] = {
    "text": {"text": str},
    "tool_use": {"id": str, "name": str, "input": dict},
    "tool_result": {"tool_use_id": str},
    "image": {"source": dict},
    "document": {"source": dict},
    "thinking": {"thinking": str, "signature": str},
    "redacted_thinking": {"data": str},
}
_IDS = ("id", "tool_use_id")
_KINDS: dict[type, str] = {str: "a text", dict: "an object"}

_MESSAGES = "Anthropic API reference, Create a Message: messages"
_TOOL_USE = "Anthropic docs, Handle tool calls"
_TOOLS = "Anthropic API reference, Create a Message: tools"

_OWN = Rules(_MESSAGES)
_LOGGED = Rules(_MESSAGES)


@_OWN.error("first-message-not-user", remedy="begin the box with what the user said")
def _first_message(subject: Subject) -> Iterator[Hit]:
    """A first message, after system text, that is not the user's, if the model is older than 4.5 or
    unnamed."""
    sent = subject.view(SentMessages)
    wants_user = subject.request.model is None or subject.facts.user_first is True
    first = sent.find(0) if wants_user else None
    if first is not None and first.role != "user":
        yield sent.place_in(first, 0), "the first message is the assistant's, not the user's"


@_OWN.error(
    "prefill-refused",
    source="Anthropic docs, Migration guide: prefill removal",
    remedy="end with a user's message or with tool results",
)
def _prefill(subject: Subject) -> Iterator[Hit]:
    """A last message of the assistant, for a model that does not continue it (Claude 4.6 and later) or while
    thinking is on. One with blocks of a server's tool may be the unfinished one of a `pause_turn`."""
    sent = subject.view(SentMessages)
    last = sent.prefill
    if last is None or last.kinds[-1] == "tool_use" or any(map(is_of_server, last.kinds)):
        return
    model = subject.request.model
    if subject.facts.prefill is False:
        yield sent.place_in(last, -1), f"{model} does not continue an assistant's message, which is the last"
    elif is_thinking_on(subject):
        yield sent.place_in(last, -1), "with thinking on, the last message must not be the assistant's"


@_OWN.error("trailing-whitespace", remedy="edit the card so that its text ends in a word")
def _trailing_space(subject: Subject) -> Iterator[Hit]:
    """A last message of the assistant that ends in white space."""
    sent = subject.view(SentMessages)
    last = sent.prefill
    if last is not None and is_text(last.blocks[-1][0]):
        text = last.blocks[-1][0]["text"]
        if text != text.rstrip():
            yield sent.place_in(last, -1), f"the last message is the assistant's and ends in {text[-1]!r}"


@_OWN.error("block-on-wrong-side", remedy="write the card again with the role that its blocks have")
def _wrong_sides(subject: Subject) -> Iterator[Hit]:
    """A tool call or thinking of the user, or a tool result of the assistant."""
    for name, side in _SIDES.items():
        for _, message in subject.view(SentMessages).blocks.get(name, []):
            if message.body["role"] != side:
                role = message.body["role"]
                yield subject.place(message), f"a {name} block is in a message of the {role}"


@_OWN.error("block-unknown", remedy="take the block out, or write it as text")
def _unknown_blocks(subject: Subject) -> Iterator[Hit]:
    """A block of a type that no message has, or that a tool's result cannot have in it."""
    for name, blocks in subject.view(SentMessages).blocks.items():
        for _, message in blocks if name not in _BLOCKS else ():
            yield subject.place(message), f"no message has a block of type {name!r}"
    for inner, message in _within_results(subject):
        if kind(inner) not in _IN_RESULTS:
            yield subject.place(message), f"no tool result has a block of type {kind(inner)!r} in it"


def _within_results(subject: Subject) -> Iterator[tuple[Any, Message]]:
    for block, message in subject.view(SentMessages).blocks.get("tool_result", []):
        yield from ((each, message) for each in list_at(block, "content"))


@_OWN.error("block-malformed", remedy="take the block out, or write it again with what it lacks")
def _malformed_blocks(subject: Subject) -> Iterator[Hit]:
    """A block without a key that its type needs, such as the input of a call or the source of an image."""
    for name, needs in _NEEDS.items():
        for block, message in subject.view(SentMessages).blocks.get(name, []):
            if (problem := _block_problem(block, needs)) is not None:
                yield subject.place(message), f"a block of type {name!r} {problem}"
    parts = subject.parts if "system" in subject.history.roles else ()
    inner: list[tuple[Any, RequestEntry | None]]
    inner = [(block, entry) for entry, role, block in parts if role == "system"]
    inner += [(block, subject.place(message)) for block, message in _within_results(subject)]
    for block, place in inner:
        name = kind(block)
        if name in _IN_RESULTS and (problem := _block_problem(block, _NEEDS.get(name, {}))) is not None:
            yield place, f"a block of type {name!r} {problem}"


def _block_problem(block: dict[str, Any], needs: dict[str, type]) -> str | None:
    """Return the problem of a block whose required key is missing or has the wrong type, or None."""
    for key, value_type in needs.items():
        value = block.get(key)
        if key not in block or (value == "" and key in _IDS):
            return f"has no {key}"
        if not isinstance(value, value_type):
            return f"has {json_type(value)} as its {key}, not {_KINDS[value_type]}"
    return None


@_OWN.error("image-invalid", source="Anthropic docs, Vision: image formats", remedy="convert the image")
def _images(subject: Subject) -> Iterator[Hit]:
    """An image other than JPEG, PNG, GIF and WebP, or whose bytes are not of the type that it names."""
    images = [pair for pair in _within_results(subject) if kind(pair[0]) == "image"]
    for block, message in [*subject.view(SentMessages).blocks.get("image", []), *images]:
        source = block.get("source")
        if kind(source) == "base64" and (media_type := text_at(source, "media_type")) not in IMAGES:
            yield subject.place(message), f"an image is of type {media_type!r}, none of {', '.join(IMAGES)}"
        elif kind(source) == "base64" and (problem := _bytes_problem(source)) is not None:
            yield subject.place(message), f"an image cannot be read: {problem}"
        elif kind(source) == "url" and not (text_at(source, "url") or "").startswith(("https://", "http://")):
            yield subject.place(message), "the address of an image does not begin with https: or http:"


def _bytes_problem(source: dict[str, Any]) -> str | None:
    data, media_type = text_at(source, "data") or "", source["media_type"]
    actual = shared.image_format(data)
    return shared.image_problem(data) or (
        f"it is {actual}, and says {media_type}" if actual != media_type else None
    )


@_OWN.error("document-empty", source="Anthropic docs, PDF support", remedy="leave the document out")
def _empty_documents(subject: Subject) -> Iterator[Hit]:
    """A document in base64 without any data."""
    documents = [pair for pair in _within_results(subject) if kind(pair[0]) == "document"]
    for block, message in [*subject.view(SentMessages).blocks.get("document", []), *documents]:
        source = block.get("source")
        if kind(source) == "base64" and source.get("data") == "":
            yield subject.place(message), "a document has no data"


@_OWN.error("text-blank", remedy="take the empty text out")
def _blank_texts(subject: Subject) -> Iterator[Hit]:
    """Empty or white text in the system prompt or in a block of a tool result. Elsewhere it is left out."""
    for message in subject.request.messages:
        if message.body["role"] == "system" and any(map(_is_blank, ensure_blocks(message.body["content"]))):
            yield subject.place(message), "the system text is empty"
    for block, message in subject.view(SentMessages).blocks.get("tool_result", []):
        if any(map(_is_blank, list_at(block, "content"))):
            yield subject.place(message), "a text block of the tool result is empty"


def _is_blank(block: Any) -> bool:
    return is_text(block) and not block["text"].strip()


@_OWN.error(
    "cache-breakpoints",
    source="Anthropic docs, Prompt caching: explicit cache breakpoints",
    remedy="keep the last ones: each caches what is before it",
    finds=f"More than {_MAX_BREAKPOINTS} blocks with `cache_control`.",
)
def _breakpoints(subject: Subject) -> Iterator[Hit]:
    places: list[RequestEntry | None] = [None] * bool(subject.request.config.get("cache_control"))
    places += [place for place, _ in subject.view(_cached)]
    if len(places) > _MAX_BREAKPOINTS:
        words = f"cache breakpoint {_MAX_BREAKPOINTS + 1} of {len(places)}; there may be {_MAX_BREAKPOINTS}"
        yield places[_MAX_BREAKPOINTS], words


@_OWN.error(
    "cache-order",
    source="Anthropic docs, Prompt caching: mixing different TTLs",
    remedy="give the blocks before it an hour, too",
)
def _cache_order(subject: Subject) -> Iterator[Hit]:
    """A block that is cached for an hour after one that is cached for five minutes: tools come first, then
    the system text, then the messages."""
    is_short = False
    for place, lifetime in subject.view(_cached):
        if lifetime == _LONG_LIFETIME and is_short:
            yield place, "a block with a ttl of 1h follows one of 5m"
            return
        is_short = is_short or lifetime != _LONG_LIFETIME


def _cached(subject: Subject) -> list[tuple[RequestEntry | None, str]]:
    """Return (entry, lifetime) for each block with `cache_control`, in the order of the cache."""
    request, sent = subject.request, subject.view(SentMessages)
    lifetimes: list[tuple[RequestEntry | None, str]] = []
    for tool in subject.offered:
        lifetimes += [(None, each) for each in _lifetimes(tool)]
    for message in leading_system_messages(request, subject.facts):
        for block in list_at(message.body, "content"):
            lifetimes += [(subject.place(message), each) for each in _lifetimes(block)]
    if any(_lifetimes(block) for blocks in sent.blocks.values() for block, _ in blocks):
        for merged in sent.merged:
            for block, message in merged.blocks:
                lifetimes += [(subject.place(message), each) for each in _lifetimes(block)]
    return lifetimes


def _lifetimes(block: Any) -> list[str]:
    """Return the cache lifetimes of the blocks within a block, and then of the block itself."""
    mark = block.get("cache_control") if isinstance(block, dict) else None
    within = [each for inner in list_at(block, "content") for each in _lifetimes(inner)]
    return [*within, *([text_at(mark, "ttl") or "5m"] if mark else [])]


@_OWN.warning("tool-id-repeated", source=_TOOL_USE, logged="error")
def _repeated_ids(subject: Subject) -> Iterator[Hit]:
    """A tool-call id that repeats: it is sent as `<id>_2`, `<id>_3`, … in call and result alike."""
    for change, repeats in _renamed(subject):
        if repeats and change.card_id is not None:
            place = subject.request.places.get(change.card_id)
            yield place, f"the id {change.old!r} repeats, and is sent as {change.new!r}"


@_OWN.warning("tool-id-characters", source=_TOOL_USE, logged="error")
def _id_characters(subject: Subject) -> Iterator[Hit]:
    """A tool-call id with other characters than letters, digits, `_` and `-`: they are sent as `_`, followed
    by a number if another id is then the same."""
    for change, repeats in _renamed(subject):
        if not repeats and change.card_id is not None:
            place = subject.request.places.get(change.card_id)
            yield place, f"the id {change.old!r} is sent as {change.new!r}"


def _renamed(subject: Subject) -> Iterator[tuple[RenamedCall, bool]]:
    """Yield the renamed calls, and whether an earlier call has the same id."""
    before: set[str] = set()
    for change in subject.view(SentMessages).renamed:
        yield change, change.old in before or is_allowed(change.old)
        before.add(change.old)


@_OWN.error("tool-name-invalid", finds=_NAMES.finds, source=_TOOLS, remedy=shared.RENAME)
def _names(subject: Subject) -> Iterator[Hit]:
    for block, message in subject.view(SentMessages).blocks.get("tool_use", []):
        name = text_at(block, "name")
        # A block whose name is not a string is reported as malformed by another rule.
        if name is not None and (problem := _NAMES.problem(name, "the called tool")) is not None:
            yield subject.place(message), problem
    yield from shared.invalid_tool_names(
        subject, allowed=_NAMES, is_named=lambda tool: kind(tool) not in _NAMELESS
    )


@_OWN.error("tool-malformed", source=_TOOLS, remedy="write the input_schema as that of an object")
def _malformed_tools(subject: Subject) -> Iterator[Hit]:
    """A tool whose `input_schema` is not a schema of an object."""
    for number, tool in enumerate(subject.tools):
        if isinstance(tool, dict) and "input_schema" in tool:
            problem = shared.schema_problem(tool["input_schema"], "input_schema")
            if problem is not None:
                yield None, f"tool {number} {problem}"


@_OWN.error(
    "tool-schema-invalid",
    source="what the API answers: input_schema does not support oneOf, allOf, or anyOf at the top level; "
    "JSON schema is invalid",
    remedy="write one object at the top, and types that JSON Schema has",
)
def _schemas(subject: Subject) -> Iterator[Hit]:
    """An `input_schema` with oneOf, allOf or anyOf at its top, or a type that JSON Schema does not have."""
    schemas = (
        (f"the input_schema of tool {number}", shared.value_at(tool, "input_schema"))
        for number, tool in enumerate(subject.tools)
    )
    return shared.schema_hits(schemas, shared.alternatives_at_top, shared.types_unknown)


@_OWN.error("tool-repeated", source=_TOOLS, remedy="keep one of the definitions")
def _repeated_tools(subject: Subject) -> Iterator[Hit]:
    """Two tools of one name."""
    return shared.repeated_tools(map(tool_name, subject.offered))


@_OWN.warning(
    "arguments-invalid",
    source=_TOOL_USE,
    remedy="edit the card so that the arguments are a string such as '{}'",
)
def _raw_arguments(subject: Subject) -> Iterator[Hit]:
    """A tool call whose arguments are not a JSON object: the model sees them as `{"_raw": text}`."""
    calls = subject.view(SentMessages).blocks.get("tool_use", [])
    if all(text_at(block.get("input"), RAW) is None for block, _ in calls):
        return
    # The blocks of imported messages are sent unchanged.
    originals = (card for _, card, _ in subject.history.imported_messages)
    with_blocks = {card.card_id for card in originals if own_blocks(card) is not msgspec.UNSET}
    for call in subject.history.calls:
        if call.function is None or call.entry.slot.card_id in with_blocks:
            continue
        if arguments_of(arguments := call.function.get("arguments")) is None:
            problem = shared.arguments_problem(arguments) or shared.TOO_DEEP
            yield call.entry, f"the arguments of {call.name!r} are sent as text: they are {problem}"


def _logged_messages(subject: Subject) -> Iterator[tuple[RequestEntry, dict[str, Any], list[Any]]]:
    for entry, message in subject.logged_messages:
        if isinstance(message, dict):
            yield entry, message, list_at(message, "content")


@_LOGGED.error("content-blank", remedy="leave the message or the block out, or write something in it")
def _blank_as_logged(subject: Subject) -> Iterator[Hit]:
    """A logged message without content, except a last one of the assistant; an empty or blank text block,
    also in `system`. Next to other blocks, the assistant's may be blank. Rendering leaves them out."""
    if subject.logged is not None and any(map(_is_blank, list_at(subject.body_without_messages, "system"))):
        yield None, "a text block of system is empty, or white"
    messages = list(_logged_messages(subject))
    for number, (entry, message, blocks) in enumerate(messages, 1):
        is_last = number == len(messages) and message.get("role") == "assistant"
        content = message.get("content")
        if not is_last and (content == [] or (isinstance(content, str) and not content.strip())):
            yield entry, "the message has no content"
        texts = [block["text"] for block in blocks if is_text(block)]
        may_be_white = message.get("role") == "assistant" and len(texts) < len(blocks)
        if any(not (text if may_be_white else text.strip()) for text in texts):
            yield entry, "a text block is empty, or white"


@_LOGGED.error(
    "result-not-first",
    source="Anthropic docs, Handle tool calls: formatting requirements",
    remedy="put what the user says behind the results",
)
def _late_results(subject: Subject) -> Iterator[Hit]:
    """A logged tool result after other content of the user. Rendering puts results first."""
    for role, run in groupby(_logged_messages(subject), key=lambda each: each[1].get("role")):
        before: str | None = None
        for entry, message, blocks in run if role == "user" else ():
            if isinstance(message.get("content"), str):
                before = before or "text"
            for block in blocks:
                if not is_result(block):
                    before = before or kind(block)
                elif before is not None:
                    yield entry, f"a block of type {before!r} precedes a tool result"
                    break


RULES = (
    *card_rules.EXCHANGES.cite("Anthropic docs, Handle tool calls: formatting requirements"),
    *card_rules.CARDS.cite("Anthropic API reference, Create a Message: messages"),
    *shared.SHAPE,
    *_OWN,
    *model_rules.THINKING,
    *shared.TEMPERATURE.cite("Anthropic API reference, Create a Message: temperature, tool_choice"),
    *shared.TOOL_CHOICE.cite("Anthropic API reference, Create a Message: temperature, tool_choice"),
    *model_rules.PARAMETERS,
    *model_rules.MODELS,
    *_LOGGED,
    *shared.LIMITS.cite("Anthropic docs, Models overview: context window"),
    *shared.CACHING.cite("Anthropic docs, Prompt caching"),
)
