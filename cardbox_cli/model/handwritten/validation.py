"""The models of what people write by hand, and the judgement of a document by them.

Owns what all such models share: an empty key is refused, every problem is reported at once and at its place,
and the JSON Schema reads well in an editor. pydantic is slow to load: import this module, and the models that
are built on it, only where such a document is read.
"""

import re
from collections.abc import Iterator
from types import NoneType
from typing import Annotated, Any, ClassVar, NoReturn, TypeGuard, TypeVar, get_args

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StrictStr,
    StringConstraints,
    ValidationError,
    ValidationInfo,
    field_validator,
)
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import ErrorDetails, PydanticCustomError, core_schema

from cardbox_cli.errors import InvalidInput
from cardbox_cli.model.handwritten.documents import Document, Problem, refusal
from cardbox_cli.text import Where, closest, did_you_mean, found

M = TypeVar("M", bound=BaseModel)

# How many problems of one document are told.
_MOST_PROBLEMS = 100
_EMPTY = "is empty; give it a value or remove the key"


def refuse(sentence: str) -> NoReturn:
    """Refuse the value that a validator is looking at. The sentence is shown as it is, after the path."""
    raise PydanticCustomError("cbx", "{sentence}", {"sentence": sentence})


Name = Annotated[StrictStr, Field(min_length=1)]
"""A string that is not empty."""

Trimmed = Annotated[str, StringConstraints(strict=True, strip_whitespace=True, min_length=1)]
"""A string without the space around it, not empty."""


class Section(BaseModel):
    """A mapping as people write it: unchangeable, without unknown keys, and with no key left empty.

    An empty key is never taken for an absent one: it says nothing, and an absent allow-list means that
    there is none.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    may_be_null: ClassVar[frozenset[str]] = frozenset()

    @field_validator("*", mode="before")
    @classmethod
    def _has_a_value(cls, value: object, info: ValidationInfo) -> object:
        return refuse(_EMPTY) if value is None and info.field_name not in cls.may_be_null else value


def fit(model: type[M], document: Document, *, refuse_with: type[InvalidInput], hint: str | None = None) -> M:
    """The `model` that `document` describes. Raises `refuse_with` with all problems of reading it, too."""
    problems = list(document.problems)
    if document.whole:
        try:
            fitted = model.model_validate(document.value)
        except ValidationError as error:
            # Documents of models have as many as they like.
            problems += _problems(error.errors(include_url=False)[:_MOST_PROBLEMS], model, document)
        if not problems:
            return fitted
    raise refusal(refuse_with, document.source, problems, hint=hint)


def _problems(found_by_pydantic: list[ErrorDetails], model: type[M], document: Document) -> Iterator[Problem]:
    """What pydantic found, in our words. A misspelt key is reported once, and not as a missing one too."""
    known = {problem.where for problem in document.problems}
    errors = {error["loc"]: error for error in found_by_pydantic if error["loc"] not in known}
    unknown = {
        where: _model_at(model, where[:-1])
        for where, error in errors.items()
        if error["type"] == "extra_forbidden"
    }
    meant = {(*where[:-1], closest(str(where[-1]), keys_of(beside))) for where, beside in unknown.items()}
    for where, error in errors.items():
        if where in unknown:
            place, sentence = where, _unknown_key(str(where[-1]), unknown[where])
        elif error["type"] != "missing":
            place, sentence = where, _problem_sentence(error)
        elif where not in meant:
            place, sentence = where[:-1], f"the key {where[-1]!r} is missing"
        else:
            continue
        yield Problem(place, sentence, document.mark(place))


def _model_at(annotation: Any, where: Where) -> type[BaseModel]:
    """The model that `where` leads to, through fields, lists, mappings and what may be absent."""
    if _is_model(annotation):
        field = keys_of(annotation)[str(where[0])] if where else None
        return _model_at(field.annotation, where[1:]) if field else annotation
    inner = [part for part in get_args(annotation) if part not in (Ellipsis, NoneType)][-1]
    return _model_at(inner, where if NoneType in get_args(annotation) else where[1:])


def _is_model(annotation: Any) -> TypeGuard[type[BaseModel]]:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def _unknown_key(key: str, beside: type[BaseModel]) -> str:
    """Where the unknown `key` belongs, what was meant by it, or what may stand in its place."""
    for name, declared in keys_of(beside).items():
        if _is_model(declared.annotation) and key in keys_of(declared.annotation):
            return f"unknown key; it belongs under {name!r}"
    known = keys_of(beside)
    return "unknown key" + (did_you_mean(key, known) or f"; known here: {', '.join(known)}")


_EXPECTED = {
    "bool_type": "true or false",
    "dict_type": "a mapping",
    "int_type": "an integer",
    "list_type": "a list",
    "model_type": "a mapping",
    "string_type": "a string",
    "tuple_type": "a list",
}


def _problem_sentence(error: ErrorDetails) -> str:
    """One finding of pydantic in our words; in pydantic's own where we have none."""
    kind, value, context = error["type"], error["input"], error.get("ctx", {})
    if value is None and isinstance((0, *error["loc"])[-1], str):
        return _EMPTY
    if kind in _EXPECTED:
        return f"expected {_EXPECTED[kind]}, found {found(value)}"
    if kind == "literal_error":
        choices = re.findall("'([^']*)'", context["expected"])
        return f"expected {context['expected']}, found {found(value)}{did_you_mean(str(value), choices)}"
    if kind == "greater_than_equal":
        return f"must be {context['ge']} or more, found {found(value)}"
    if kind in ("string_too_short", "too_short"):
        return "must not be empty"
    return error["msg"]


class _EditorsSchema(GenerateJsonSchema):
    """JSON Schema as `Section` behaves: null is never allowed, and no title repeats a key."""

    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        described = super().default_schema(schema)
        if described.get("default", ...) is None:
            del described["default"]
        return described

    def field_title_should_be_set(self, schema: object) -> bool:
        return False


def tool_parameters(model: type[BaseModel]) -> dict[str, Any]:
    """The JSON Schema of what `model` accepts, as providers take it from tools: in one piece."""
    described = model.model_json_schema(schema_generator=_EditorsSchema)
    parts = described.pop("$defs", {})
    described.pop("description", None)
    whole = _whole(described, parts)
    assert isinstance(whole, dict)
    return whole


def _whole(schema: Any, parts: dict[str, Any]) -> Any:
    """The schema without references and titles."""
    if isinstance(schema, list):
        return [_whole(item, parts) for item in schema]
    if not isinstance(schema, dict):
        return schema
    named = schema.get("$ref")
    if isinstance(named, str):
        beside = {key: value for key, value in schema.items() if key != "$ref"}
        return _whole({**parts[named.rpartition("/")[2]], **beside}, parts)
    kept = {key: value for key, value in schema.items() if key != "title" or not isinstance(value, str)}
    return {key: _whole(value, parts) for key, value in kept.items()}


def keys_of(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """The fields of a model by the keys that people write."""
    return {field.alias or name: field for name, field in model.model_fields.items()}


def json_schema(model: type[BaseModel], *, schema_id: str, title: str) -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of what `model` accepts."""
    described = model.model_json_schema(schema_generator=_EditorsSchema)
    return {"$schema": GenerateJsonSchema.schema_dialect, "$id": schema_id, **described, "title": title}
