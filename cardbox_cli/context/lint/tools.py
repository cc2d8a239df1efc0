"""What rules of several providers ask of tools: a name, and what is wrong with a name or with arguments."""

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from cardbox_cli.context.blocks import arguments_of
from cardbox_cli.context.lint.rule import Hit
from cardbox_cli.context.request import Entry


def tool_name(value: Any) -> str | None:
    """The name of a tool, in a definition or a call of either form."""
    if not isinstance(value, dict):
        return None
    function = value.get("function")
    name = (function if isinstance(function, dict) else value).get("name")
    return name if isinstance(name, str) else None


def bad_name(
    entry: Entry | None, name: str | None, what: str, allowed: re.Pattern[str], most: int
) -> Iterator[Hit]:
    """What is wrong with a tool's name."""
    if name is None:
        yield entry, f"the {what} has no name"
    elif not allowed.fullmatch(name):
        yield entry, f"the name {name!r} of the {what} is not 1 to {most} letters, digits, _ and -"


def arguments_problem(arguments: Any) -> str | None:
    """What keeps a call's `arguments` from being a JSON object in a string; None for such a one."""
    if not isinstance(arguments, str):
        return "no string that holds JSON"
    try:
        value = msgspec.json.decode(arguments)
    except (msgspec.DecodeError, ValueError) as exc:
        # It refuses numbers of very many digits, too.
        is_large = arguments.strip() != "" and arguments_of(arguments) is not None
        return None if is_large else f"not JSON ({exc})"
    return None if isinstance(value, dict) else "JSON, but no object"
