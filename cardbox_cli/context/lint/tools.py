"""What is wrong with a tool's name or schema or the arguments of a call, as several providers see it."""

import re
from functools import lru_cache
from typing import Any

import msgspec

from cardbox_cli.context.tool_calls import arguments_of
from cardbox_cli.text import json_kind

TOO_DEEP = "nested too deeply"
_decode = msgspec.json.Decoder().decode


@lru_cache
def name_problem(name: str | None, what: str, allowed: re.Pattern[str], most: int) -> str | None:
    """What is wrong with a tool's name, if anything. Names are few, and called often."""
    if name is None:
        return f"the {what} has no name"
    if not allowed.fullmatch(name):
        return f"the name {name!r} of the {what} is not 1 to {most} letters, digits, _ and -"
    return None


def schema_problem(schema: Any, key: str) -> str | None:
    """What keeps what a tool has under `key` from being the JSON schema of an object; None for such a one."""
    if not isinstance(schema, dict):
        return f"has {json_kind(schema)} as its {key}, and no JSON schema"
    if schema.get("type") == "object":
        return None
    return f"has {key} of the type {schema.get('type')!r}, not 'object'"


def arguments_problem(arguments: Any) -> str | None:
    """What keeps a call's `arguments` from being a JSON object in a string; None for such a one."""
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
