"""The arguments of handlers: as a schema for models, and as what a call says, with every problem told."""

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import Field, StrictStr

from cardbox_cli.errors import BadRequest
from cardbox_cli.execution.dispatch.request import DispatchResult
from cardbox_cli.model.handwritten.documents import document_of
from cardbox_cli.model.handwritten.validation import Section, fit, keys_of, tool_parameters

A = TypeVar("A", bound="Arguments")


class Arguments(Section):
    """What a call of a handler may say. Models write null for what they leave out: only that may be."""

    @classmethod
    def parameters(cls) -> dict[str, Any]:
        """The JSON Schema of the arguments, as tools have it."""
        return tool_parameters(cls)


class OfNewTurn(Arguments):
    """What all handlers take that ask for one turn."""

    agent_turn_id: StrictStr | None = Field(
        default=None,
        min_length=1,
        description="Your own id for the turn to be made: the same call with it makes no second turn.",
    )


def read_arguments(kind: type[A], name: str, arguments: Mapping[str, Any]) -> A:
    """What a call of the handler `name` says. Raises BadRequest with every problem at its path."""
    optional = {key for key, field in keys_of(kind).items() if not field.is_required()}
    given = {key: value for key, value in arguments.items() if value is not None or key not in optional}
    return fit(kind, document_of(given, name), refuse_with=BadRequest)


def answer_of(result: DispatchResult) -> dict[str, Any]:
    """What a model is told of a turn that was asked for."""
    names = ("status", "agent_id", "agent_turn_id", "turn_epoch", "context_box_id", "output_box_id")
    return {name: getattr(result, name) for name in names}
