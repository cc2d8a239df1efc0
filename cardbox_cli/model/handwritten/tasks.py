"""Tasks that one agent gives to another, and batches of them, in tool calls and task files.

This module needs pydantic, which loads slowly, so import it only to read a task.
"""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, StrictBool, StrictStr

from cardbox_cli.model.handwritten.validation import Name, Section, Trimmed, refuse
from cardbox_cli.text.error_messages import describe_value


def _check_text(text: str) -> str:
    return text if text.strip() else refuse("is blank; describe the task")


Strategy = Literal["new", "reuse", "clone"]
Instruction = Annotated[StrictStr, AfterValidator(_check_text)]
"""A non-blank text, unchanged."""


class Task(Section):
    """A task for another agent, and the choice of that agent."""

    may_be_null = frozenset({"context_box_id"})

    target_strategy: Strategy = Field(
        description="new: a new agent with a profile; reuse: an existing agent; clone: a new agent that "
        "reads the output of an existing agent."
    )
    target_ref: Trimmed = Field(description="The profile's name for new, the agent's id for reuse and clone.")
    instruction: Instruction = Field(description="What to do.")
    context_box_id: Trimmed | None = Field(
        default=None, description="A box whose cards the agent reads before the instruction."
    )


MAX_DEADLINE_SECONDS = 365 * 24 * 3600
"""In seconds."""


def _check_seconds(value: Any) -> Any:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not (is_number and 0 < value <= MAX_DEADLINE_SECONDS):
        allowed = f"a number of seconds above 0, at most {MAX_DEADLINE_SECONDS}"
        refuse(f"must be {allowed}; found {describe_value(value)}")
    return value


Seconds = Annotated[float, BeforeValidator(_check_seconds)]


class ForkJoin(Section):
    """Tasks that run in parallel and return their results together."""

    may_be_null = frozenset({"deadline_seconds"})

    tasks: Annotated[list[Task], Field(min_length=1)] = Field(description="The tasks of the children.")
    fail_fast: StrictBool = Field(
        default=False, description="Whether the first failed child ends all others."
    )
    deadline_seconds: Seconds | None = Field(
        default=None, description="Seconds after which cbx stops all children that still run."
    )


class TasksFile(ForkJoin):
    """The tasks of a file, and variables to expand them with."""

    matrix: dict[Name, Any] = Field(
        default={},
        description="Variables, each with a list of values or {glob: PATTERN} for files: cbx creates each "
        "task once per combination.",
    )
