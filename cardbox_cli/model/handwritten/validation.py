"""The base class of models of hand-written documents, and the validation of a document by a model.

A model refuses empty keys, reports all problems at once with cbx's messages, and has a readable JSON Schema.
Pydantic loads slowly, so import this module, and models based on it, only to read such a document.
"""

import re
from collections.abc import Iterable, Iterator
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
from pydantic_core import ErrorDetails, InitErrorDetails, PydanticCustomError, core_schema

from cardbox_cli.errors import InvalidInput
from cardbox_cli.model.handwritten.documents import DocumentProblem, HandwrittenDocument, document_error
from cardbox_cli.text.error_messages import ValuePath, closest, describe_value, did_you_mean

M = TypeVar("M", bound=BaseModel)

# The maximum number of reported problems of a document.
_MAX_PROBLEMS = 100
_EMPTY = "is empty; set a value or remove the key"


def refuse(sentence: str) -> NoReturn:
    """Refuse the value in a validator. The message has the path, and then the unchanged sentence."""
    raise PydanticCustomError("cbx", "{sentence}", {"sentence": sentence})


def refuse_parts(problems: Iterable[tuple[ValuePath, str]]) -> None:
    """Refuse parts of a value in its validator: each sentence is shown unchanged after the path of its part.

    Does nothing without problems.
    """
    errors = [
        InitErrorDetails(
            type=PydanticCustomError("cbx", "{sentence}", {"sentence": sentence}), loc=where, input=sentence
        )
        for where, sentence in problems
    ]
    if errors:
        raise ValidationError.from_exception_data("", errors)


Name = Annotated[StrictStr, Field(min_length=1)]
"""A non-empty string."""

Trimmed = Annotated[str, StringConstraints(strict=True, strip_whitespace=True, min_length=1)]
"""A non-empty string without surrounding space."""


class Section(BaseModel):
    """A mapping that people write: immutable, without unknown keys and without empty ones.

    An empty key is not an absent one: it is probably a mistake, and an absent allow-list allows everything.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    may_be_null: ClassVar[frozenset[str]] = frozenset()

    @field_validator("*", mode="before")
    @classmethod
    def _refuse_empty(cls, value: object, info: ValidationInfo) -> object:
        return refuse(_EMPTY) if value is None and info.field_name not in cls.may_be_null else value


def fit(
    model: type[M], document: HandwrittenDocument, *, refuse_with: type[InvalidInput], hint: str | None = None
) -> M:
    """Validate a document as a `model`. Raises `refuse_with` with all problems, including syntax errors."""
    problems = list(document.problems)
    if document.whole:
        try:
            fitted = model.model_validate(document.value)
        except ValidationError as error:
            # The document of an LLM may have any number of problems.
            problems += _problems(error.errors(include_url=False)[:_MAX_PROBLEMS], model, document)
        if not problems:
            return fitted
    raise document_error(refuse_with, document.source, problems, hint=hint)


def _problems(
    found_by_pydantic: list[ErrorDetails], model: type[M], document: HandwrittenDocument
) -> Iterator[DocumentProblem]:
    """Convert pydantic's errors to problems. A misspelled key is not also reported as missing."""
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
        yield DocumentProblem(place, sentence, document.mark(place))


def _model_at(annotation: Any, where: ValuePath) -> type[BaseModel]:
    """Return the model at the path `where`, which may lead through lists, mappings and optional fields."""
    if _is_model(annotation):
        field = keys_of(annotation)[str(where[0])] if where else None
        return _model_at(field.annotation, where[1:]) if field else annotation
    inner = [part for part in get_args(annotation) if part not in (Ellipsis, NoneType)][-1]
    return _model_at(inner, where if NoneType in get_args(annotation) else where[1:])


def _is_model(annotation: Any) -> TypeGuard[type[BaseModel]]:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def _unknown_key(key: str, beside: type[BaseModel]) -> str:
    """Describe an unknown `key`: where it belongs, which key was probably meant, or which keys exist."""
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
    """Return cbx's sentence for an error of pydantic, or else pydantic's own sentence."""
    kind, value, context = error["type"], error["input"], error.get("ctx", {})
    if value is None and isinstance((0, *error["loc"])[-1], str):
        return _EMPTY
    if kind in _EXPECTED:
        return f"expected {_EXPECTED[kind]}, found {describe_value(value)}"
    if kind == "literal_error":
        choices = re.findall("'([^']*)'", context["expected"])
        suggestion = did_you_mean(str(value), choices)
        return f"expected {context['expected']}, found {describe_value(value)}{suggestion}"
    if kind == "greater_than_equal":
        return f"must be {context['ge']} or more, found {describe_value(value)}"
    if kind in ("string_too_short", "too_short"):
        return "must not be empty"
    return error["msg"]


class _EditorsSchema(GenerateJsonSchema):
    """A generator of the JSON Schema of a `Section`, without null and without titles that repeat a key."""

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
    """Return the JSON Schema of `model` without references, which providers do not accept for tools."""
    described = model.model_json_schema(schema_generator=_EditorsSchema)
    parts = described.pop("$defs", {})
    described.pop("description", None)
    whole = _inline(described, parts)
    assert isinstance(whole, dict)
    return whole


def _inline(schema: Any, parts: dict[str, Any]) -> Any:
    if isinstance(schema, list):
        return [_inline(item, parts) for item in schema]
    if not isinstance(schema, dict):
        return schema
    reference = schema.get("$ref")
    if isinstance(reference, str):
        beside = {key: value for key, value in schema.items() if key != "$ref"}
        return _inline({**parts[reference.rpartition("/")[2]], **beside}, parts)
    described = {key: value for key, value in schema.items() if key != "title" or not isinstance(value, str)}
    return {key: _inline(value, parts) for key, value in described.items()}


def keys_of(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """Return the fields of a model by the keys that people write."""
    return {field.alias or name: field for name, field in model.model_fields.items()}


def json_schema(model: type[BaseModel], *, schema_id: str, title: str) -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of `model`."""
    described = model.model_json_schema(schema_generator=_EditorsSchema)
    return {"$schema": GenerateJsonSchema.schema_dialect, "$id": schema_id, **described, "title": title}
