"""The rules of OpenAI's Responses: those that all providers share, and its own."""

import re
from collections.abc import Iterator

from msgspec.structs import replace

from cardbox_cli.context.lint import contents, economy, exchanges, parameters, shape
from cardbox_cli.context.lint.rule import Hit, LintRule, Rules
from cardbox_cli.context.lint.subject import Subject
from cardbox_cli.context.lint.tools import arguments_problem, name_problem
from cardbox_cli.context.parts import tool_name
from cardbox_cli.context.providers.openai_responses import request_rules
from cardbox_cli.context.providers.openai_responses.items import kind_of

_INPUT = "OpenAI API reference, Create a model response: input"
_CONVERSATION = "OpenAI docs, Conversation state"
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
# What says that the conversation began elsewhere, where its calls may stand.
_CONTINUING = ("previous_response_id", "conversation")
# A result may stand anywhere behind its call here.
_NO_RULES = ("result-not-after-call",)

_OWN = Rules(_INPUT)


@_OWN.error("tool-name-invalid", remedy="rename the tool in its definition and its calls")
def _names(subject: Subject) -> Iterator[Hit]:
    """A tool, called or defined, whose name is not 1 to 128 letters, digits, `_` and `-`."""
    for call in subject.history.calls:
        if call.function is not None and (problem := name_problem(call.name, "called tool", _NAME, 128)):
            yield call.entry, problem
    for number, tool in enumerate(subject.offered):
        name = tool_name(tool)
        if name is not None and (problem := name_problem(name, f"tool {number}", _NAME, 128)):
            yield None, problem


@_OWN.warning("arguments-invalid")
def _bad_arguments(subject: Subject) -> Iterator[Hit]:
    """A call whose `arguments` are not a JSON object in a string, which the model reads as its own."""
    for call in subject.history.calls:
        problem = None if call.function is None else arguments_problem(call.function.get("arguments"))
        if problem is not None:
            yield call.entry, f"the arguments of {call.name!r} are {problem}"


@_OWN.error("reasoning-last", source=_CONVERSATION, remedy="add the item that followed the reasoning")
def _dangling_reasoning(subject: Subject) -> Iterator[Hit]:
    """Reasoning without the item that followed it, as the last one of the input."""
    for entry, _, message in subject.history.messages[-1:]:
        content = message.body["content"]
        if isinstance(content, list) and content and kind_of(content[-1]) == "reasoning":
            yield entry, "the last item is reasoning, without what followed it"


def _unless_continued(rule: LintRule) -> LintRule:
    """The rule for requests that hold their whole conversation."""

    def find(subject: Subject) -> Iterator[Hit]:
        if not any(subject.request.config.get(key) for key in _CONTINUING):
            yield from rule.find(subject)

    return replace(rule, find=find)


RULES = (
    *(_unless_continued(each) for each in exchanges.RULES.by(_INPUT) if each.id not in _NO_RULES),
    *contents.RULES.by(_INPUT),
    *shape.RULES,
    *_OWN,
    *request_rules.RULES,
    *parameters.RULES.by("OpenAI API reference, Create a model response: temperature, tool_choice"),
    *economy.LIMITS.by("OpenAI docs, Models: context window"),
    *economy.CACHING.by("OpenAI docs, Prompt caching"),
)
