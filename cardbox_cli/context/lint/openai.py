"""Rules of OpenAI's chat completions alone."""

import re
from collections.abc import Iterator

from cardbox_cli.context.blocks import tool_name
from cardbox_cli.context.lint.rule import Hit, Rule
from cardbox_cli.context.lint.subject import Call, Subject
from cardbox_cli.context.lint.tools import arguments_problem, name_problem

_LONGEST_ID = 40
_MOST_TOOLS = 128
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")

_ASSISTANT = "OpenAI API reference, Create chat completion: messages, assistant message, tool_calls"
_TOOLS = "OpenAI API reference, Create chat completion: tools"


def _is_function(call: Call) -> bool:
    return isinstance(call.value, dict) and call.value.get("type", "function") == "function"


def _long_ids(subject: Subject) -> Iterator[Hit]:
    for call in subject.calls:
        if call.id is not None and len(call.id) > _LONGEST_ID and _is_function(call):
            size = len(call.id)
            yield call.entry, f"the id {call.id!r} has {size} characters, not up to {_LONGEST_ID}"


def _names(subject: Subject) -> Iterator[Hit]:
    for call in subject.calls:
        problem = name_problem(call.name, "called tool", _NAME, 64)
        if problem is not None and _is_function(call):
            yield call.entry, problem
    for number, tool in enumerate(subject.request.tools):
        problem = name_problem(tool_name(tool), f"tool {number}", _NAME, 64)
        if problem is not None and (tool.get("type") == "function" or "input_schema" in tool):
            yield None, problem


def _too_many_tools(subject: Subject) -> Iterator[Hit]:
    number = len(subject.request.tools)
    if number > _MOST_TOOLS:
        yield None, f"the request has {number} tools, not up to {_MOST_TOOLS}"


def _bad_arguments(subject: Subject) -> Iterator[Hit]:
    for call in subject.calls:
        function = call.value.get("function") if _is_function(call) else None
        problem = arguments_problem(function.get("arguments")) if isinstance(function, dict) else None
        if problem is not None:
            yield call.entry, f"the arguments of {call.name!r} are {problem}"


def _null_contents(subject: Subject) -> Iterator[Hit]:
    for entry, card, message in subject.history:
        body = message.body
        if body.get("content") is None and not card.tool_calls and not any(body.get(key) for key in _INSTEAD):
            yield entry, f"the {body['role']} message has no content (null)"


# What an assistant's message may have in the place of content.
_INSTEAD = ("tool_calls", "function_call", "refusal", "audio")

RULES = (
    Rule(
        id="content-null",
        severity="error",
        finds="A message whose content is null, and that calls no tool either.",
        source="OpenAI API reference, Create chat completion: messages, content",
        remedy="leave the message out, or give it a text",
        find=_null_contents,
    ),
    Rule(
        id="arguments-invalid",
        severity="error",
        finds="A tool call whose `arguments` are not a JSON object in a string.",
        source=_ASSISTANT,
        remedy="edit the card so that the arguments are a string such as '{}'",
        find=_bad_arguments,
    ),
    Rule(
        id="tool-id-too-long",
        severity="error",
        finds=f"A tool-call id of more than {_LONGEST_ID} characters.",
        source=_ASSISTANT,
        remedy="import with --remap-tool-ids, which gives shorter ones",
        find=_long_ids,
    ),
    Rule(
        id="tool-name-invalid",
        severity="error",
        finds="A tool, called or defined, whose name is not 1 to 64 letters, digits, `_` and `-`.",
        source=_TOOLS,
        remedy="rename the tool in its definition and its calls",
        find=_names,
    ),
    Rule(
        id="too-many-tools",
        severity="error",
        finds=f"More than {_MOST_TOOLS} tools.",
        source=_TOOLS,
        remedy="narrow the profile's allowed_tools",
        find=_too_many_tools,
    ),
)
