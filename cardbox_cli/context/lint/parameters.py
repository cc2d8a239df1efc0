"""Rules about parameters and tools that several providers have, with each provider's bounds as arguments.

They look at the body as it is sent, so that what a format leaves out does not matter here.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Any, NamedTuple

from cardbox_cli.context.lint.rule import Hit, Rules
from cardbox_cli.context.lint.strict_schemas import strict_problem
from cardbox_cli.context.lint.subject import Subject
from cardbox_cli.context.parts import text_at, tool_name

RULES = Rules()


class Range(NamedTuple):
    """The least and the highest value of a parameter, both included. A nested one has a dotted name."""

    name: str
    least: int | float
    most: int | float = math.inf


def out_of_range(values: Mapping[str, Any], ranges: Iterable[Range]) -> Iterator[Hit]:
    """Yield the parameters that are outside of their ranges."""
    for name, least, most in ranges:
        value = number_of(value_at(values, name))
        if value is not None and not least <= value <= most:
            bounds = f"{least} or more" if most == math.inf else f"from {least} to {most}"
            yield None, f"{name} is {value}, not {bounds}"


def too_many(values: Any, most: int, what: str) -> Iterator[Hit]:
    """Yield a list with more than `most` items; `what` names them."""
    if isinstance(values, list) and len(values) > most:
        yield None, f"there are {len(values)} {what}, not up to {most}"


def without_other(values: Mapping[str, Any], pairs: Iterable[tuple[str, str]]) -> Iterator[Hit]:
    """Yield the parameters that are set while the one that each is about is missing, false or empty."""
    for name, needed in pairs:
        if values.get(name) is not None and not values.get(needed):
            yield None, f"{name} is set, and there is no {needed}"


def both_set(
    values: Mapping[str, Any],
    pairs: Iterable[tuple[str, str]],
    *,
    is_set: Callable[[Any], bool] = lambda value: value is not None,
) -> Iterator[Hit]:
    """Yield the pairs of parameters that exclude each other and are both set."""
    for one, other in pairs:
        if is_set(values.get(one)) and is_set(values.get(other)):
            yield None, f"{one} and {other} are both set"


def too_long_answer(subject: Subject, names: Iterable[str], most: int | None) -> Iterator[Hit]:
    """Yield the limits of the answer that are above what the model's answers may have."""
    for name in names if most is not None else ():
        wanted = number_of(subject.beside.get(name))
        if wanted is not None and most is not None and wanted > most:
            yield None, f"{name} is {wanted}, and an answer of {subject.request.model} has at most {most}"


def refused_effort(subject: Subject, effort: Any, *, parameter: str = "effort") -> Iterator[Hit]:
    """Yield an effort that the model does not take, if it is known which ones it takes."""
    known, model = subject.facts.efforts, subject.request.model
    if effort is not None and known is not None and effort not in known:
        words = f"knows the efforts {', '.join(known)}" if known else f"takes no {parameter}"
        yield None, f"{model} {words}; it is {effort!r}"


def not_strict(schemas: Iterable[tuple[str, Any]]) -> Iterator[Hit]:
    """Yield what keeps schemas that are strict, each with its name, from being so."""
    for name, schema in schemas:
        if isinstance(schema, dict) and (problem := strict_problem(schema)) is not None:
            yield None, f"{name} is strict, and {problem}"


def json_unsaid(texts: Iterable[str], what: str) -> Iterator[Hit]:
    """Yield an answer that must be JSON while no text says the word; `what` names the parameter."""
    if not any("json" in text.lower() for text in texts):
        yield None, f"{what} is json_object, and no message says the word JSON"


def value_at(value: Any, name: str) -> Any:
    """Return what an object has at a dotted name; None if it has nothing there."""
    for key in name.split("."):
        value = value.get(key) if isinstance(value, dict) else None
    return value


def number_of(value: Any) -> int | float | Decimal | None:
    """Return a parameter that is a number; None for any other value."""
    return value if isinstance(value, int | float | Decimal) and not isinstance(value, bool) else None


@RULES.error("temperature-out-of-range", remedy="set another temperature in the profile's llm_config")
def _temperature(subject: Subject) -> Iterator[Hit]:
    """A temperature below 0 or above the highest that the provider takes."""
    if not subject.request.config:
        return
    heat = number_of(value_at(subject.beside, subject.provider.temperature_path))
    most = subject.provider.max_temperature
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
