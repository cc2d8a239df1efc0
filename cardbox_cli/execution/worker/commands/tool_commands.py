"""Which command answers the calls of a tool: the worker's own, or the stored one where that is trusted.

A stored command is a row that others can write: it is obeyed only where the operator says so. Pure.
"""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import msgspec

from cardbox_cli.model.identity import Tool


class ToolCommand(msgspec.Struct, frozen=True, kw_only=True):
    """A command, how many seconds it may take (None: what the tool or the worker says), and what its
    environment has besides that of every command.

    `checks_arguments`: it gets only arguments that fit the tool's stored schema.
    """

    command: str
    timeout: float | None = None
    environment: Mapping[str, str] = {}
    checks_arguments: bool = False


class ToolCommands(msgspec.Struct, frozen=True):
    """The worker's own commands, by the names of tools, and whether stored ones are obeyed beside them."""

    own: Mapping[str, ToolCommand] = {}
    trusts_stored: bool = False

    def of(self, tool: Tool) -> ToolCommand | None:
        """What answers a call of the tool here; None where somebody has to report the result."""
        own = self.own.get(tool.tool_name)
        if own is not None or not self.trusts_stored or tool.command is None:
            return own
        return ToolCommand(command=tool.command)


def mismatch(value: Any, schema: Any, place: str = "the arguments") -> str | None:
    """Why a JSON value does not fit a schema: its types, enums, required and further properties.

    Other keywords of JSON Schema are the tool's own to check. None where it fits, and for what is no schema.
    """
    if not isinstance(schema, dict):
        return None
    kinds = schema.get("type")
    named = [kinds] if isinstance(kinds, str) else kinds if isinstance(kinds, list) else []
    if named and not any(_is_of(value, kind) for kind in named):
        return f"{place}: not of type {' or '.join(map(str, named))}"
    choices = schema.get("enum")
    if isinstance(choices, list) and value not in choices:
        return f"{place}: none of the values that the schema lists"
    if isinstance(value, dict):
        return _mismatch_of_object(value, schema, place)
    if isinstance(value, list):
        found = (mismatch(item, schema.get("items"), f"{place}[{i}]") for i, item in enumerate(value))
        return next((each for each in found if each), None)
    return None


def _mismatch_of_object(value: dict[str, Any], schema: dict[str, Any], place: str) -> str | None:
    properties = schema.get("properties")
    known: dict[str, Any] = properties if isinstance(properties, dict) else {}
    required = schema.get("required")
    for name in required if isinstance(required, list) else ():
        if isinstance(name, str) and name not in value:
            return f"{place}: {name!r} is missing"
    for name, item in value.items():
        if name not in known and schema.get("additionalProperties") is False:
            return f"{place}: {name[:80]!r} is no property of the schema"
        found = mismatch(item, known.get(name), f"{place}.{name[:80]}")
        if found:
            return found
    return None


_KINDS: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "null": (type(None),),
}


def _is_of(value: Any, kind: Any) -> bool:
    if kind in ("number", "integer"):
        is_number = isinstance(value, int | float | Decimal) and not isinstance(value, bool)
        return is_number and (kind == "number" or _is_whole(value))
    return isinstance(value, _KINDS[kind]) if isinstance(kind, str) and kind in _KINDS else True


def _is_whole(value: float | Decimal) -> bool:
    # Of numbers of any size: a remainder of a large Decimal cannot be had.
    return value == value.to_integral_value() if isinstance(value, Decimal) else value % 1 == 0
