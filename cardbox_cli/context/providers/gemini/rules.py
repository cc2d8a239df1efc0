"""The rules of Gemini: those that all providers share, and its own."""

import re
from collections.abc import Iterator

from cardbox_cli.context.lint import contents, economy, exchanges, parameters, shape
from cardbox_cli.context.lint.rule import Hit, Rules
from cardbox_cli.context.lint.subject import Subject
from cardbox_cli.context.parts import tool_name
from cardbox_cli.context.providers.gemini import request_rules
from cardbox_cli.context.providers.gemini.parts import at, kind_of
from cardbox_cli.context.tool_calls import arguments_of

_CONTENT = "Gemini API reference, Content: parts"
_CALLING = "Gemini API docs, Function calling"
_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,127}")

_OWN = Rules(_CONTENT)


@_OWN.error(
    "tool-name-invalid",
    source="Gemini API reference, FunctionDeclaration: name",
    remedy="rename the tool in its definition and its calls",
)
def _names(subject: Subject) -> Iterator[Hit]:
    """A function, called or defined, whose name is not a letter or `_` and up to 127 letters, digits and
    `_.:-`."""
    wanted = "not a letter or _ and then up to 127 letters, digits and _.:-"
    for call in subject.history.calls:
        if call.function is not None and not _NAME.fullmatch(call.name or ""):
            yield call.entry, f"the name {call.name!r} of the called tool is {wanted}"
    for number, tool in enumerate(subject.offered):
        name = tool_name(tool)
        if name is not None and not _NAME.fullmatch(name):
            yield None, f"the name {name!r} of tool {number} is {wanted}"


@_OWN.error("content-malformed", remedy="give the part one of the kinds that Content has")
def _malformed_parts(subject: Subject) -> Iterator[Hit]:
    """A part that is none of the kinds that the API has, or two of them."""
    for entry, _, message in subject.history.not_text:
        for part in message.body["content"]:
            if not isinstance(part, dict):
                yield entry, "a part is no object"
            elif not kind_of(part) and at(part, "thoughtSignature") is None:
                keys = ", ".join(repr(key) for key in sorted(part)[:4]) or "none"
                yield entry, f"a part has no kind that Gemini knows; its keys: {keys}"


@_OWN.warning("thought-signature-missing", source="Gemini API docs, Thought signatures")
def _unsigned_calls(subject: Subject) -> Iterator[Hit]:
    """A call of a function without the signature of its thought, which Gemini 3 refuses in the current turn,
    where other calls have one."""
    unsigned, is_signed = [], False
    for entry, _, message in subject.history.not_text:
        calls = [part for part in message.body["content"] if kind_of(part) == "functionCall"]
        signed = [at(part, "thoughtSignature") is not None for part in calls]
        is_signed = is_signed or any(signed)
        if calls and not signed[0]:
            unsigned.append(entry)
    for entry in unsigned if is_signed else ():
        yield entry, "a function is called without a thought signature"


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
    *exchanges.RULES.by(_CALLING),
    *contents.RULES.by(_CONTENT),
    *shape.RULES,
    *_OWN,
    *request_rules.RULES,
    *(each for each in parameters.RULES.by("Gemini API reference, GenerationConfig") if each.id in _SHARED),
    *economy.LIMITS.by("Gemini API docs, Gemini models: token limits"),
    *economy.CACHING.by("Gemini API docs, Context caching"),
)
