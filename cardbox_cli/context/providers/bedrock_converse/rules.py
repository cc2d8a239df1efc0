"""The rules of Bedrock Converse: those that all providers share, and its own."""

import re
from collections.abc import Iterator

from cardbox_cli.context.lint import contents, economy, exchanges, parameters, shape
from cardbox_cli.context.lint.rule import Hit, Rules
from cardbox_cli.context.lint.subject import Subject
from cardbox_cli.context.lint.tools import name_problem
from cardbox_cli.context.parts import tool_name
from cardbox_cli.context.providers.bedrock_converse import request_rules
from cardbox_cli.context.providers.bedrock_converse.blocks import kind_of
from cardbox_cli.context.tool_calls import arguments_of

_MESSAGES = "Amazon Bedrock API reference, Message"
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")

_OWN = Rules(_MESSAGES)


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


@_OWN.error(
    "tool-name-invalid",
    source="Amazon Bedrock API reference, ToolSpecification: name",
    remedy="rename the tool in its definition and its calls",
)
def _names(subject: Subject) -> Iterator[Hit]:
    """A tool, called or defined, whose name is not 1 to 64 letters, digits, `_` and `-`."""
    for call in subject.history.calls:
        if call.function is not None and (problem := name_problem(call.name, "called tool", _NAME, 64)):
            yield call.entry, problem
    for number, tool in enumerate(subject.offered):
        name = tool_name(tool)
        if name is not None and (problem := name_problem(name, f"tool {number}", _NAME, 64)):
            yield None, problem


@_OWN.error(
    "tool-id-invalid",
    source="Amazon Bedrock API reference, ToolUseBlock: toolUseId",
    remedy="import with --remap-tool-ids, which gives others",
)
def _ids(subject: Subject) -> Iterator[Hit]:
    """A tool-call id that is not 1 to 64 letters, digits, `_` and `-`."""
    for call in subject.history.calls:
        if call.id and not _NAME.fullmatch(call.id):
            yield call.entry, f"the id {call.id!r} is not 1 to 64 letters, digits, _ and -"


@_OWN.error("content-malformed", remedy="give the block one of the kinds that ContentBlock has")
def _malformed_blocks(subject: Subject) -> Iterator[Hit]:
    """A block that is none of the kinds that the API has."""
    for entry, _, message in subject.history.not_text:
        for block in message.body["content"]:
            name = kind_of(block)
            if not name:
                keys = (
                    ", ".join(repr(key) for key in sorted(block)[:4]) if isinstance(block, dict) else "none"
                )
                yield entry, f"a block has no kind that Bedrock knows; its keys: {keys}"


@_OWN.warning("arguments-invalid")
def _raw_arguments(subject: Subject) -> Iterator[Hit]:
    """A tool call whose arguments are no JSON object: the model sees them as `{"_raw": text}`."""
    for call in subject.history.calls:
        arguments = None if call.function is None else call.function.get("arguments")
        if arguments_of(arguments) is None:
            yield call.entry, f"the arguments of {call.name!r} are sent as text: they are no JSON object"


# The choice of a tool is looked at with the other parameters of the body.
_SHARED = ("temperature-out-of-range",)

RULES = (
    *exchanges.RULES.by("Amazon Bedrock user guide, Call a tool with the Converse API"),
    *contents.RULES.by(_MESSAGES),
    *shape.RULES,
    *_OWN,
    *request_rules.RULES,
    *(
        each
        for each in parameters.RULES.by("Amazon Bedrock API reference, InferenceConfiguration")
        if each.id in _SHARED
    ),
    *economy.LIMITS.by("Amazon Nova user guide, What is Amazon Nova"),
    *economy.CACHING.by("Amazon Bedrock user guide, Prompt caching"),
)
