"""What a task may say that one agent hands to another, in the arguments of a tool call and in files of tasks.

Loads pydantic: import this module only where a task is read.
"""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, StrictStr

from cardbox_cli.model.handwritten.validation import Section, Trimmed, refuse


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
