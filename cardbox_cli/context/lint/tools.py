"""Rules about the names, schemas and arguments of tools that several providers have, with arguments for each.

`NamePattern` is what a provider allows as the name of a tool.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Any

import msgspec

from cardbox_cli.context.lint.history import HistoryCall
from cardbox_cli.context.lint.rule import Hit
from cardbox_cli.context.lint.subject import Subject
from cardbox_cli.context.parts import tool_name
from cardbox_cli.context.tool_calls import arguments_of
from cardbox_cli.model.handwritten.wording import json_kind

RENAME = "rename the tool in its definition and its calls"
TOO_DEEP = "nested too deeply"
_decode = msgspec.json.Decoder().decode


class NamePattern:
    """The names that a provider allows, and how people say so; `words` may mark characters as code."""

    def __init__(self, pattern: str, words: str) -> None:
        self._pattern = re.compile(pattern)
        self.words = words.replace("`", "")
        self.finds = f"A tool, called or defined, whose name is not {words}."

    @classmethod
    def up_to(cls, most: int) -> "NamePattern":
        """Return the pattern of 1 to `most` letters, digits, `_` and `-`."""
        return cls(rf"[a-zA-Z0-9_-]{{1,{most}}}", f"1 to {most} letters, digits, `_` and `-`")

    def fits(self, name: str) -> bool:
        """Return whether a name is allowed."""
        return self._pattern.fullmatch(name) is not None

    def problem(self, name: str | None, what: str) -> str | None:
        """Say what is wrong with the name of `what`, if anything."""
        return _name_problem(self, name, what)


@lru_cache
def _name_problem(allowed: NamePattern, name: str | None, what: str) -> str | None:
    # Names are few, and called often.
    if name is None:
        return f"{what} has no name"
    return None if allowed.fits(name) else f"the name {name!r} of {what} is not {allowed.words}"


def called_functions(subject: Subject) -> Iterator[HistoryCall]:
    """Yield the calls of functions."""
    return (call for call in subject.history.calls if call.function is not None)


def has_name(tool: dict[str, Any]) -> bool:
    """Return whether a tool has a name."""
    return tool_name(tool) is not None


def invalid_names(
    subject: Subject,
    *,
    allowed: NamePattern,
    calls: Callable[[Subject], Iterable[HistoryCall]] = called_functions,
    is_named: Callable[[dict[str, Any]], bool] = has_name,
    label: str = "the tool",
) -> Iterator[Hit]:
    """Yield the calls, and the tools that must be named, whose names are not allowed."""
    for call in calls(subject):
        if (problem := allowed.problem(call.name, "the called tool")) is not None:
            yield call.entry, problem
    yield from invalid_tool_names(subject, allowed=allowed, is_named=is_named, label=label)


def invalid_tool_names(
    subject: Subject,
    *,
    allowed: NamePattern,
    is_named: Callable[[dict[str, Any]], bool] = has_name,
    label: str = "the tool",
) -> Iterator[Hit]:
    """Yield the tools that must be named and whose names are not allowed."""
    for number, tool in enumerate(subject.offered):
        problem = allowed.problem(tool_name(tool), f"{label} {number}") if is_named(tool) else None
        if problem is not None:
            yield None, problem


def repeated_tools(
    names: Iterable[str | None], what: str = "the tool {} is defined {} times"
) -> Iterator[Hit]:
    """Yield the names that several tools have."""
    for name, number in Counter(name for name in names if name is not None).items():
        if number > 1:
            yield None, what.format(repr(name), number)


def malformed_arguments(
    subject: Subject, *, calls: Callable[[Subject], Iterable[HistoryCall]] = called_functions
) -> Iterator[Hit]:
    """Yield the calls whose arguments are not a JSON object in a string."""
    for call in calls(subject):
        problem = None if call.function is None else arguments_problem(call.function.get("arguments"))
        if problem is not None:
            yield call.entry, f"the arguments of {call.name!r} are {problem}"


def arguments_sent_as_text(subject: Subject) -> Iterator[Hit]:
    """Yield the calls whose arguments are no JSON object: the model sees them as `{"_raw": text}`."""
    for call in called_functions(subject):
        if call.function is not None and arguments_of(call.function.get("arguments")) is None:
            yield call.entry, f"the arguments of {call.name!r} are sent as text: they are no JSON object"


def schema_hits(schemas: Iterable[tuple[str, Any]], *checks: Callable[[Any], Iterable[str]]) -> Iterator[Hit]:
    """Yield what is wrong within the schemas of tools, each with its name, by some checks."""
    for name, schema in schemas:
        for check in checks:
            yield from ((None, f"{name}: {problem}") for problem in check(schema))


def schema_problem(schema: Any, key: str) -> str | None:
    """Say what keeps the value under `key` of a tool from being the JSON schema of an object; None if
    nothing."""
    if not isinstance(schema, dict):
        return f"has {json_kind(schema)} as its {key}, and no JSON schema"
    if schema.get("type") == "object":
        return None
    return f"has {key} of the type {schema.get('type')!r}, not 'object'"


def arguments_problem(arguments: Any) -> str | None:
    """Say what keeps a call's `arguments` from being a JSON object in a string; None if nothing does."""
    if not isinstance(arguments, str):
        return "no string that holds JSON"
    try:
        value = _decode(arguments)
    except RecursionError:
        return TOO_DEEP
    except (msgspec.DecodeError, ValueError) as exc:
        # It refuses numbers of very many digits, too.
        is_large = arguments.strip() != "" and arguments_of(arguments) is not None
        return None if is_large else f"not JSON ({exc})"
    return None if isinstance(value, dict) else "JSON, but no object"
