"""What a task may say that one agent hands to another, in the arguments of a tool call and in files of tasks.

Loads pydantic: import this module only where a task is read.
"""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, StrictBool, StrictStr

from cardbox_cli.model.handwritten.validation import Name, Section, Trimmed, refuse
from cardbox_cli.text import found


def _said(text: str) -> str:
    return text if text.strip() else refuse("is blank; say what to do")


Strategy = Literal["new", "reuse", "clone"]
Instruction = Annotated[StrictStr, AfterValidator(_said)]
"""What to do: a text that is not blank, as it is."""


class Task(Section):
    """What another agent shall do, and which agent that is."""

    may_be_null = frozenset({"context_box_id"})

    target_strategy: Strategy = Field(
        description="new: a fresh agent of a profile; reuse: an agent that exists; clone: a fresh agent that "
        "knows what an existing one has written."
    )
    target_ref: Trimmed = Field(description="The profile's name for new, the agent's id for reuse and clone.")
    instruction: Instruction = Field(description="What to do.")
    context_box_id: Trimmed | None = Field(
        default=None, description="A box whose cards the agent reads before the instruction."
    )


# What may be asked of a batch: by the arguments of a tool call, and in files of tasks.
#
# A file may have a matrix besides: `orchestration/tasks_file.py` makes the tasks of it. Loads
# pydantic:
# import this module only where a batch is asked for.


LONGEST_DEADLINE = 365 * 24 * 3600
"""In seconds."""


def _seconds(value: Any) -> Any:
    """A number of seconds that a deadline can be."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not (is_number and 0 < value <= LONGEST_DEADLINE):
        refuse(f"must be a number of seconds above 0, at most {LONGEST_DEADLINE}; found {found(value)}")
    return value


Seconds = Annotated[float, BeforeValidator(_seconds)]


class ForkJoin(Section):
    """Tasks that run beside each other, and whose results come back together."""

    may_be_null = frozenset({"deadline_seconds"})

    tasks: Annotated[list[Task], Field(min_length=1)] = Field(description="What the children shall do.")
    fail_fast: StrictBool = Field(
        default=False, description="Whether the first child that fails ends all of them."
    )
    deadline_seconds: Seconds | None = Field(
        default=None, description="After how many seconds all that still run are stopped."
    )


class TasksFile(ForkJoin):
    """The tasks of a file, with the variables that they are made for."""

    matrix: dict[Name, Any] = Field(
        default={},
        description="Variables, each with a list of values or {glob: PATTERN} for files: each task is made "
        "once for each combination.",
    )
