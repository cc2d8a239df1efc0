"""Rules about the parameters of a request that every provider has.

They look at the body as it is sent, so that what a format leaves out is no matter here.
"""

from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from typing import Any

from cardbox_cli.context.lint.rule import Hit, LintRule
from cardbox_cli.context.lint.subject import Subject
from cardbox_cli.context.parts import text_at, tool_name


def _temperature(most: float) -> Callable[[Subject], Iterable[Hit]]:
    def find(subject: Subject) -> Iterator[Hit]:
        if not subject.request.config:
            return
        heat = number(subject.beside.get("temperature"))
        if heat is not None and not 0 <= heat <= most:
            yield None, f"the temperature is {heat}, not from 0 to {most}"

    return find


def _tool_choice(subject: Subject) -> Iterator[Hit]:
    if "tool_choice" not in subject.request.config:
        return
    choice = subject.beside.get("tool_choice")
    wanted = tool_name(choice) if text_at(choice, "type") in ("function", "tool") else None
    if wanted is not None and wanted not in {tool_name(tool) for tool in subject.beside["tools"]}:
        yield None, f"tool_choice wants {wanted!r}, which is not among the request's tools"


def number(value: Any) -> int | float | Decimal | None:
    """A parameter that is a number; None for any other value."""
    return value if isinstance(value, int | float | Decimal) and not isinstance(value, bool) else None


def rules(source: str, *, hottest: float) -> tuple[LintRule, ...]:
    """The rules about parameters; where a provider describes them, and the highest temperature it takes."""
    return (
        LintRule(
            id="temperature-out-of-range",
            severity="error",
            finds="A temperature below 0 or above the highest that the provider takes.",
            source=f"{source}: temperature",
            remedy="set another temperature in the profile's llm_config",
            find=_temperature(hottest),
        ),
        LintRule(
            id="tool-choice-unknown",
            severity="error",
            finds="A `tool_choice` that names a tool which is not among the request's tools.",
            source=f"{source}: tool_choice",
            remedy="add the tool's definition (a `sys.tools` card), or choose another",
            find=_tool_choice,
        ),
    )
