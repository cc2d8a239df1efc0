"""`submit_result`: hand in the result of the turn, field by field, which ends it."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from pydantic import Field, StrictStr

from cardbox_cli.errors import BadRequest
from cardbox_cli.execution.handlers import Ending, Handler
from cardbox_cli.model.card_types import RESULT_FIELDS
from cardbox_cli.model.content import FieldSchema
from cardbox_cli.model.execution.result_fields import described_fields
from cardbox_cli.model.handwritten.validation import Section
from cardbox_cli.orchestration.handlers.arguments import Arguments, read_arguments
from cardbox_cli.store.box_cards import cards_of_type

if TYPE_CHECKING:
    from cardbox_cli.execution.dispatch.caller import Caller
    from cardbox_cli.execution.runtime import Runtime

_NAME = "submit_result"


class _Field(Section):
    name: StrictStr = Field(min_length=1, description="The name of the field.")
    value: Any = Field(description="What it holds: a text, or any JSON.")

    may_be_null = frozenset({"value"})


class _Arguments(Arguments):
    fields: list[_Field] = Field(min_length=1, description="The fields of the result, each once.")


def _fitted(asked: Sequence[FieldSchema]) -> dict[str, Any]:
    """The schema of the arguments, which tells the fields that the turn is asked for."""
    schema = _Arguments.parameters()
    if asked:
        told = "; ".join(f"{each.name}: {each.description}".rstrip(": ") for each in asked)
        schema["properties"]["fields"]["description"] = (
            f"The fields of the result, each once. Asked for: {told}"
        )
    return schema


def _handle(runtime: "Runtime", caller: "Caller", arguments: dict[str, Any]) -> Ending:
    given = read_arguments(_Arguments, _NAME, _written_out(arguments)).fields
    head = runtime.heads.get(caller.agent_id)
    context = None if head is None else head.context_box_id
    asked = [each.name for each in described_fields(cards_of_type(runtime.boxes, context, RESULT_FIELDS))]
    _check_names(asked, [each.name for each in given])
    order = {name: place for place, name in enumerate(asked)}
    fields = sorted(given, key=lambda each: order.get(each.name, len(order)))
    result = {"fields": [{"name": each.name, "value": each.value} for each in fields]}
    return Ending({"status": "accepted"}, result)


def _written_out(arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments with fields as name and value, where a model wrote {NAME: VALUE}."""
    given = arguments.get("fields")
    if isinstance(given, dict):
        return {**arguments, "fields": _pairs(given)}
    if isinstance(given, list):
        return {**arguments, "fields": [field for each in given for field in _fields_of(each)]}
    return arguments


def _fields_of(item: Any) -> Iterable[Any]:
    return _pairs(item) if isinstance(item, dict) and not {"name", "value"} & item.keys() else [item]


def _pairs(given: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"name": name, "value": value} for name, value in given.items()]


def _check_names(asked: Sequence[str], given: Sequence[str]) -> None:
    """Raise BadRequest for a field that is asked for and not there, and for one that is there twice."""
    missing = [name for name in asked if name not in given]
    twice = [name for name, times in Counter(given).items() if times > 1]
    problems = [
        f"{what} {', '.join(map(repr, names))}"
        for what, names in (("missing", missing), ("more than once", twice))
        if names
    ]
    if problems:
        raise BadRequest(f"{_NAME}: fields: {'; '.join(problems)}")


HANDLER = Handler(
    name=_NAME,
    description="Hand in the result of your task and finish. Call it alone, once everything is done.",
    parameters=_fitted(()),
    function=_handle,
    fitted=_fitted,
    ends_turn=True,
)
