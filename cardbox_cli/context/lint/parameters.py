"""Rules about the parameters of a request that every provider has.

They look at the body as it is sent, so that what a format leaves out is no matter here.
"""

import math
from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import Any, NamedTuple

from cardbox_cli.context.lint.rule import Hit, Rules
from cardbox_cli.context.lint.subject import Subject
from cardbox_cli.context.parts import text_at, tool_name

RULES = Rules()


class Range(NamedTuple):
    """The least and the highest value of a parameter, both included. A nested one has a dotted name."""

    name: str
    least: int | float
    most: int | float = math.inf


def out_of_range(subject: Subject, ranges: Iterable[Range]) -> Iterator[Hit]:
    """The parameters of a request that are outside of their ranges."""
    for name, least, most in ranges:
        value = number_of(value_at(subject.beside, name))
        if value is not None and not least <= value <= most:
            bounds = f"{least} or more" if most == math.inf else f"from {least} to {most}"
            yield None, f"{name} is {value}, not {bounds}"


def value_at(value: Any, name: str) -> Any:
    """What stands at a dotted name in an object; None where nothing does."""
    for key in name.split("."):
        value = value.get(key) if isinstance(value, dict) else None
    return value


@RULES.error("temperature-out-of-range", remedy="set another temperature in the profile's llm_config")
def _temperature(subject: Subject) -> Iterator[Hit]:
    """A temperature below 0 or above the highest that the provider takes."""
    if not subject.request.config:
        return
    heat = number_of(value_at(subject.beside, subject.provider.temperature_at))
    most = subject.provider.hottest
    if heat is not None and not 0 <= heat <= most:
        yield None, f"the temperature is {heat}, not from 0 to {most}"


@RULES.error(
    "tool-choice-unknown", remedy="add the tool's definition (a `sys.tools` card), or choose another"
)
def _tool_choice(subject: Subject) -> Iterator[Hit]:
    """A `tool_choice` that names a tool which is not among the request's tools."""
    if "tool_choice" not in subject.request.config:
        return
    choice = subject.beside.get("tool_choice")
    wanted = tool_name(choice) if text_at(choice, "type") in ("function", "tool") else None
    if wanted is not None and wanted not in {tool_name(tool) for tool in subject.tools}:
        yield None, f"tool_choice wants {wanted!r}, which is not among the request's tools"


def number_of(value: Any) -> int | float | Decimal | None:
    """A parameter that is a number; None for any other value."""
    return value if isinstance(value, int | float | Decimal) and not isinstance(value, bool) else None
