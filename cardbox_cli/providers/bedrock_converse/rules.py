"""The rules of Bedrock Converse: those that all providers share, and its own.

Bounds and patterns of parameters, names and ids are in its service model (`request_schema.json`).
"""

import re
from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Any

from cardbox_cli.context.lint import card_rules
from cardbox_cli.context.lint import request_rules as shared
from cardbox_cli.context.lint.rule import Hit, Rules, Subject
from cardbox_cli.context.parts import dict_at, list_at, text_at
from cardbox_cli.context.request import RequestEntry
from cardbox_cli.providers.bedrock_converse.cards import kind_of

_MESSAGES = "Amazon Bedrock API reference, Message"
_TOOLS = "Amazon Bedrock user guide, Call a tool with the Converse API"
_DOCUMENT = "Amazon Bedrock API reference, DocumentBlock: name"

_OWN = Rules(_MESSAGES)

_NAMES = shared.NamePattern.up_to(64)
_BYTES = ("image", "document", "video", "audio")
_OF_TOOLS = frozenset(("toolUse", "toolResult"))
_SIDES = dict.fromkeys(("toolResult", *_BYTES), "user")
_SIDES |= {"toolUse": "assistant", "reasoningContent": "assistant"}
# Letters, digits, hyphens, parentheses, brackets, and single blanks between them.
_DOCUMENT_NAME = re.compile(r"[a-zA-Z0-9()\[\]-]+(?:\s[a-zA-Z0-9()\[\]-]+)*")


@_OWN.error(
    "first-not-user",
    source="Amazon Bedrock user guide, Converse: messages begin with the user's",
    remedy="begin the box with what the user said",
)
def _first_speaker(subject: Subject) -> Iterator[Hit]:
    """A conversation that does not begin with the user."""
    for entry, _, message in subject.history.messages:
        if message.body["role"] != "system":
            if message.body["role"] != "user":
                yield entry, "the first message is the assistant's"
            return


_OWN.error(
    "tool-name-invalid",
    finds=_NAMES.finds,
    source="Amazon Bedrock API reference, ToolSpecification: name",
    remedy=shared.RENAME,
)(partial(shared.invalid_names, allowed=_NAMES))


@_OWN.error(
    "tool-id-invalid",
    source="Amazon Bedrock API reference, ToolUseBlock: toolUseId",
    remedy="import with --remap-tool-ids, which gives others",
)
def _ids(subject: Subject) -> Iterator[Hit]:
    """A tool-call id that is not 1 to 64 letters, digits, `_` and `-`."""
    for call in subject.history.calls:
        if call.id and not _NAMES.fits(call.id):
            yield call.entry, f"the id {call.id!r} is not 1 to 64 letters, digits, _ and -"


@_OWN.error("content-malformed", remedy="give the block one of the kinds that ContentBlock has")
def _malformed_blocks(subject: Subject) -> Iterator[Hit]:
    """A block of a type that the API does not have."""
    for entry, _, block in subject.parts:
        if not kind_of(block):
            keys = ", ".join(map(repr, sorted(block)[:4])) if isinstance(block, dict) else "none"
            yield entry, f"a block has no kind that Bedrock knows; its keys: {keys}"


_OWN.warning(
    "arguments-invalid",
    finds='A tool call whose arguments are not a JSON object: the model sees them as `{"_raw": text}`.',
)(shared.arguments_sent_as_text)


def _messages(subject: Subject) -> Iterator[tuple[RequestEntry, str, list[Any]]]:
    for entry, message in subject.logged_messages:
        yield entry, text_at(message, "role") or "", list_at(message, "content")


@_OWN.error("content-blank", remedy="leave the message out, or say something")
def _blank(subject: Subject) -> Iterator[Hit]:
    """A logged message without blocks, or with an empty text."""
    for entry, _, blocks in _messages(subject):
        if not blocks:
            yield entry, "the message has no blocks"
        if any(kind_of(block) == "text" and block["text"] == "" for block in blocks):
            yield entry, "a text is empty"


@_OWN.error("block-on-wrong-side", remedy="put it into a message of the other's")
def _sides(subject: Subject) -> Iterator[Hit]:
    """A logged call or thought of the user's, or a logged result or file of the assistant's."""
    for entry, role, blocks in _messages(subject):
        for name in dict.fromkeys(map(kind_of, blocks)):
            if role in ("user", "assistant") and _SIDES.get(name, role) != role:
                yield entry, f"a {name} block is in a message of the {role}"


@_OWN.error("document-without-text", source=_MESSAGES, remedy="add a text that says what to do with it")
def _documents(subject: Subject) -> Iterator[Hit]:
    """A logged message with a document and no text."""
    for entry, _, blocks in _messages(subject):
        kinds = set(map(kind_of, blocks))
        if "document" in kinds and "text" not in kinds:
            yield entry, "a document is in a message without a text"


@_OWN.error("document-name-invalid", source=_DOCUMENT, remedy="name it by letters, digits and single blanks")
def _document_names(subject: Subject) -> Iterator[Hit]:
    """A logged document whose name has other characters than letters, digits, single blanks, hyphens,
    parentheses and brackets, or is the name of another in its message."""
    for entry, _, blocks in _messages(subject):
        names = Counter(filter(None, (text_at(dict_at(block, "document"), "name") for block in blocks)))
        for name, number in names.items():
            if not _DOCUMENT_NAME.fullmatch(name):
                yield entry, f"the name {name!r} of a document has other characters than it may"
            if number > 1:
                yield entry, f"{number} documents have the name {name!r}"


@_OWN.error("bytes-invalid", remedy="write the bytes in base64")
def _bytes(subject: Subject) -> Iterator[Hit]:
    """A logged file whose bytes are not in base64."""
    for entry, _, blocks in _messages(subject):
        for name in _BYTES:
            for block in blocks:
                data = text_at(shared.value_at(block, f"{name}.source"), "bytes")
                if data is not None and not shared.is_base64(data):
                    yield entry, f"the bytes of the {name} are not in base64"


@_OWN.error("tools-missing", source=_TOOLS, remedy="add the toolConfig with the tools that were called")
def _tool_blocks_without_config(subject: Subject) -> Iterator[Hit]:
    """A logged request with blocks of tools and without `toolConfig`."""
    is_request = subject.logged is not None and subject.logged.is_request
    if not is_request or subject.body_without_messages.get("toolConfig"):
        return
    for entry, _, blocks in _messages(subject):
        if not _OF_TOOLS.isdisjoint(map(kind_of, blocks)):
            yield entry, "tools were called, but toolConfig is missing"
            return


def _specs(subject: Subject) -> list[Any]:
    return [
        shared.value_at(tool, "toolSpec")
        for tool in list_at(dict_at(subject.body_without_messages, "toolConfig"), "tools")
    ]


@_OWN.error("tool-repeated", source=_TOOLS, remedy="keep one of the definitions")
def _repeated_tools(subject: Subject) -> Iterator[Hit]:
    """Two tools of one name."""
    return shared.repeated_tools(text_at(spec, "name") for spec in _specs(subject))


@_OWN.error("tool-malformed", source=_TOOLS, remedy="write the schema as that of an object")
def _malformed_tools(subject: Subject) -> Iterator[Hit]:
    """A tool whose `inputSchema` is not a schema of an object."""
    for number, spec in enumerate(_specs(subject)):
        schema = shared.value_at(spec, "inputSchema.json")
        if schema is not None and text_at(schema, "type") != "object":
            yield None, f"the inputSchema of tool {number} is not a schema of an object"


@_OWN.error("tool-wanted-unknown", source=_TOOLS, remedy="add the tool's definition, or choose another")
def _unknown_choice(subject: Subject) -> Iterator[Hit]:
    """A `toolChoice` that names a tool which is not among the tools."""
    choice = text_at(shared.value_at(subject.body_without_messages, "toolConfig.toolChoice.tool"), "name")
    if choice is not None and choice not in {text_at(spec, "name") for spec in _specs(subject)}:
        yield None, f"toolChoice wants {choice!r}, which is not among the tools"


RULES = (
    *card_rules.EXCHANGES.cite(_TOOLS),
    *card_rules.CARDS.cite(_MESSAGES),
    *shared.SHAPE,
    *_OWN,
    *shared.TEMPERATURE.cite("Amazon Bedrock API reference, InferenceConfiguration"),
    *shared.LIMITS.cite("Amazon Nova user guide, What is Amazon Nova"),
    *shared.CACHING.cite("Amazon Bedrock user guide, Prompt caching"),
)
