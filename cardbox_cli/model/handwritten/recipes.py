"""Recipes, and the binding of arguments to their declarations.

This module defines the shape of a recipe, its digest, and the arguments that it uses. `packing/` executes a
recipe. The module needs pydantic, which loads slowly, so import it only to read a recipe.
"""

import copy
import hashlib
import math
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import (
    AfterValidator,
    Field,
    StrictBool,
    StrictInt,
    StrictStr,
    ValidationInfo,
    field_validator,
    model_validator,
)

from cardbox_cli.errors import BadRequest
from cardbox_cli.model import exact_json
from cardbox_cli.model.card_types import CARD_TYPES, INSTRUCTION, TOOL_RESULT, card_type
from cardbox_cli.model.cards import IGNORED_METADATA, ROLES, SYSTEM_ROLES
from cardbox_cli.model.handwritten.validation import (
    Name,
    Section,
    Trimmed,
    json_schema,
    refuse,
    refuse_parts,
)
from cardbox_cli.model.ids import canonical_box_id
from cardbox_cli.text.error_messages import ValuePath, closest, describe_value, did_you_mean, short_repr

ArgumentType: TypeAlias = Literal[
    "string", "integer", "number", "boolean", "object", "array", "box_id", "box_ids", "any"
]
Step: TypeAlias = Literal["pack_arguments", "inherit_context", "include_parent"]

# The types of scalars that are not strings. On a command line, such values are text.
_SCALARS: tuple[ArgumentType, ...] = ("integer", "number", "boolean")
_BOX_TYPES: tuple[ArgumentType, ...] = ("box_id", "box_ids")
STEPS: tuple[Step, ...] = ("pack_arguments", "inherit_context", "include_parent")
PROFILE_ARGUMENT = "profile_name"
"""The argument of every recipe that names the profile to pack for."""


def _sorted_set(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(sorted(set(names)))


CardTypes = Annotated[tuple[Name, ...], Field(min_length=1), AfterValidator(_sorted_set)]


class TargetProfileConfig(Section):
    """The profile for which the context is packed."""

    profile_name: Trimmed = Field(description="The profile, unless the argument profile_name names another.")


class ArgumentDeclaration(Section):
    """Declaration of an argument of a recipe."""

    type: ArgumentType = Field(
        default="any", description="The type of the value. box_ids is one box id or a list."
    )
    required: StrictBool = Field(default=False, description="Whether packing fails without it.")
    default: Any = Field(default=None, description="The value if the argument is not given.")
    description: StrictStr = Field(default="", description="What to pass, for `cbx handover show`.")

    @field_validator("default")
    @classmethod
    def _check_default(cls, default: object, info: ValidationInfo) -> object:
        if info.data.get("required"):
            refuse("cannot be combined with required: true; remove one of the two")
        problem = _problem_of_value(default, info.data.get("type", "any"))
        return refuse(problem) if problem else default


class CardMetadata(Section, extra="allow"):
    """The metadata of a packed card. Any other key is preserved."""

    role: Name = Field(
        default="user", description="The role of the message: system, user, assistant or tool."
    )


# Metadata keys of a card: keys that a recipe sets, that packing writes, and that cbx reads on some cards.
_FIELDS_OF_RECIPES = ("role",)
_FIELDS_OF_PACKING = ("type", "author_id", "project_id", "created_at")
_FIELDS_OF_TYPES = ("covers", "edited_from", "function_name", "layer")
_FIELDS_OF_IMPORTS = ("source_message", "source_format")


def _refuse_import_fields(metadata: CardMetadata) -> CardMetadata:
    for key in _FIELDS_OF_IMPORTS:
        if key in (metadata.model_extra or {}):
            refuse(f"{key!r} is only for imported cards; it would replace the card's content")
    return metadata


class PackArgument(Section):
    """A rule that makes one card from one argument."""

    arg_key: Name = Field(description="The argument. Without it, the rule makes no card.")
    as_card_type: Trimmed = Field(default=INSTRUCTION, description="The card's type.")
    card_metadata: Annotated[CardMetadata, AfterValidator(_refuse_import_fields)] = Field(
        default_factory=CardMetadata, description="The card's metadata."
    )


class InheritContext(Section):
    """Rules for cards from existing boxes."""

    include_boxes_from_args: tuple[Name, ...] = Field(
        default=(), description="The arguments whose values are box ids, in the order of inheritance."
    )
    include_parent: StrictBool = Field(
        default=False, description="Whether to append a card that points to the parent agent."
    )
    include_card_types: CardTypes | None = Field(
        default=None, description="Inherit only cards of these types."
    )
    exclude_card_types: CardTypes | None = Field(default=None, description="Inherit no cards of these types.")
    answered_calls_only: StrictBool = Field(
        default=False,
        description="Leave out tool calls without a result, with their exchanges, because models refuse "
        "them. For boxes that a turn may be writing.",
    )
    max_cards: StrictInt | None = Field(default=None, ge=1, description="Inherit at most this many cards.")
    max_tokens: StrictInt | None = Field(default=None, ge=1, description="Inherit at most this many tokens.")

    @field_validator("exclude_card_types")
    @classmethod
    def _refuse_contradiction(cls, excluded: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        both = set(excluded) & set(info.data.get("include_card_types") or ())
        return refuse(f"{min(both)!r} is also in include_card_types") if both else excluded


def _complete_order(steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """Return `steps` followed by the steps that it omits, in the order of `STEPS`."""
    twice = [step for index, step in enumerate(steps) if step in steps[:index]]
    if twice:
        refuse(f"{twice[0]!r} appears twice; name each of {', '.join(STEPS)} at most once")
    return (*steps, *(step for step in STEPS if step not in steps))


class ContextPackingConfig(Section):
    """Contents of the packed context."""

    pack_arguments: tuple[PackArgument, ...] = Field(
        default=(), description="The arguments that become cards."
    )
    inherit_context: InheritContext = Field(
        default_factory=InheritContext, description="The cards to inherit from boxes."
    )
    order: Annotated[tuple[Step, ...], AfterValidator(_complete_order)] = Field(
        default=STEPS,
        description="The order of the three parts of the context; omitted ones follow.",
        json_schema_extra={"uniqueItems": True},
    )


def _canonical_ids(ids: tuple[str, ...]) -> tuple[str, ...]:
    return _sorted_set(tuple(canonical_box_id(box_id) or box_id for box_id in ids))


class Recipe(Section):
    """A recipe: how arguments, inherited boxes and a parent pointer become a context box."""

    description: StrictStr = Field(
        default="", description="When to use the recipe; `cbx handover list` shows it."
    )
    target_profile_config: TargetProfileConfig | None = Field(
        default=None, description="The profile that the context is for."
    )
    arguments: dict[Name, ArgumentDeclaration] | None = Field(
        default=None,
        description="The arguments by name. Packing refuses others, and rules may only use these.",
    )
    context_packing_config: ContextPackingConfig = Field(
        default_factory=ContextPackingConfig, description="The contents of the context."
    )
    authorized_inherit_box_ids: Annotated[tuple[Name, ...], AfterValidator(_canonical_ids)] | None = Field(
        default=None, description="The only boxes that may be inherited; an empty list allows none."
    )
    allow_internal_boxes: StrictBool = Field(
        default=False,
        description="Whether an argument may name the box of a profile, or a box of snapshots of a step.",
    )

    @property
    def used_arguments(self) -> tuple[str, ...]:
        """Return the arguments that rules use, in the order of the rules; the profile's name comes last."""
        return tuple(dict.fromkeys([*(name for _, name in self._uses()), PROFILE_ARGUMENT]))

    @property
    def box_arguments(self) -> tuple[str, ...]:
        """Return the arguments whose values are box ids: inherited arguments, and arguments declared so."""
        declared = (name for name, each in (self.arguments or {}).items() if each.type in _BOX_TYPES)
        inherited = self.context_packing_config.inherit_context.include_boxes_from_args
        return tuple(dict.fromkeys([*inherited, *declared]))

    @model_validator(mode="after")
    def _check_declared_arguments(self) -> "Recipe":
        refuse_parts(self._contradictions())
        return self

    def _contradictions(self) -> Iterator[tuple[ValuePath, str]]:
        """Yield each rule that uses an undeclared argument, and each required argument that no rule uses."""
        if self.arguments is None:
            return
        known = [*self.arguments, PROFILE_ARGUMENT]
        undeclared = [(where, name) for where, name in self._uses() if name not in known]
        for where, name in undeclared:
            hint = did_you_mean(name, self.arguments) or "; declare it there, or remove the rule"
            yield where, f"{short_repr(name)} is not declared under 'arguments'{hint}"
        meant = {closest(name, self.arguments) for _, name in undeclared}
        for name in self.unused_arguments(self.arguments):
            if self.arguments[name].required and name not in meant:
                yield (
                    ("arguments", name),
                    "is required, but no rule uses it; use it in a rule, or remove it",
                )

    def _uses(self) -> Iterator[tuple[ValuePath, str]]:
        """Yield the path and the name of each argument that a rule uses, in the order of the rules."""
        packing = "context_packing_config"
        for index, rule in enumerate(self.context_packing_config.pack_arguments):
            yield (packing, "pack_arguments", index, "arg_key"), rule.arg_key
        inherited = self.context_packing_config.inherit_context.include_boxes_from_args
        for index, name in enumerate(inherited):
            yield (packing, "inherit_context", "include_boxes_from_args", index), name

    def unused_arguments(self, arguments: Mapping[str, object]) -> list[str]:
        """Return the names in `arguments` that no rule uses. They have no effect on the context."""
        return [name for name in arguments if name not in self.used_arguments]

    def missing_arguments(self, arguments: Mapping[str, object]) -> list[str]:
        """Return the arguments that rules use and that have neither a value nor a default."""
        given = {*arguments, *self._defaults(), PROFILE_ARGUMENT}
        return [name for name in self.used_arguments if name not in given]

    def warnings(self) -> list[tuple[ValuePath, str]]:
        """Return warnings about valid but probably unintended parts, such as unused arguments, with paths."""
        unused = self.unused_arguments(self.arguments or {})
        warnings: list[tuple[ValuePath, str]] = [(("arguments", name), "no rule uses it") for name in unused]
        for index, rule in enumerate(self.context_packing_config.pack_arguments):
            place = ("context_packing_config", "pack_arguments", index)
            kind, role = rule.as_card_type, rule.card_metadata.role
            of_kind, of_role = (*place, "as_card_type"), (*place, "card_metadata", "role")
            if kind not in CARD_TYPES:
                warnings.append((of_kind, f"unknown card type {kind!r}{did_you_mean(kind, CARD_TYPES)}"))
            if role not in ROLES:
                warnings.append((of_role, f"unknown role {role!r}{did_you_mean(role, ROLES)}"))
            warnings += [(of_role, doubt) for doubt in _warn_of_role(kind, role)]
            warnings += [
                ((*place, "card_metadata", key), doubt)
                for key, doubt in _warn_of_metadata(rule.card_metadata)
            ]
        return warnings

    def bind(self, arguments: Mapping[str, object]) -> dict[str, object]:
        """Return `arguments` with the declared defaults of missing ones.

        Raises one `BadRequest` with every missing, ill-typed and unknown argument. A recipe without
        `arguments:` accepts any; see `unused_arguments`. `missing_arguments` are valid.
        """
        declared = self.arguments or {}
        problems = self._unknown(arguments)
        absent = [name for name, each in declared.items() if each.required and name not in arguments]
        problems |= {name: f"argument {name!r} is missing" for name in absent}
        for name, each in declared.items():
            if name in arguments and (problem := _problem_of_value(arguments[name], each.type)):
                problems[name] = f"argument {name!r}: {problem}"
        if problems:
            raise _bad_arguments(problems)
        return {**copy.deepcopy(self._defaults()), **arguments}

    def _defaults(self) -> dict[str, object]:
        declared = self.arguments or {}
        return {name: each.default for name, each in declared.items() if each.default is not None}

    def read_text(self, name: str, text: str) -> object:
        """Return the value that `text` is for this argument: a scalar of its declared type, or the text."""
        declared = (self.arguments or {}).get(name)
        if declared is None or declared.type not in _SCALARS:
            return text
        try:
            value = exact_json.read(text.strip())
        except (ValueError, RecursionError):
            return text
        return value if _problem_of_value(value, declared.type) is None else text

    def digest(self) -> str:
        """Return the SHA-256, as hex, of all that affects a context: no layout, defaults or descriptions."""
        described: dict[str, Any] = {"description": True, "arguments": {"__all__": {"description"}}}
        meaning = self.model_dump(exclude_defaults=True, exclude=described)
        return hashlib.sha256(exact_json.canonical(exact_json.encode(meaning))).hexdigest()

    def _unknown(self, arguments: Mapping[str, object]) -> dict[str, str]:
        if self.arguments is None:
            return {}
        known = list(dict.fromkeys([*self.arguments, *self.used_arguments]))
        unknown = [name for name in arguments if name not in known]
        return {name: f"unknown argument {short_repr(name)}{did_you_mean(name, known)}" for name in unknown}


def _warn_of_role(kind: str, role: str) -> Iterator[str]:
    """Yield warnings about a role that models treat in an unexpected manner."""
    known = card_type(kind)
    if known.becomes == "nothing":
        yield f"a card of type {kind!r} is not a message ({known.reason}): its role has no effect"
    elif kind == TOOL_RESULT and role != "tool":
        yield f"the role {role!r} is ignored: a {kind} is the message of its tool"
    elif role in SYSTEM_ROLES and not known.is_late:
        yield (
            f"the role {role!r} makes it system text within the history, which some providers move before "
            "all messages; use the role user for a request"
        )


def _warn_of_metadata(metadata: CardMetadata) -> Iterator[tuple[str, str]]:
    """Yield the keys of metadata that have no effect, or an unexpected one, each with a warning."""
    for key in metadata.model_extra or {}:
        if key in _FIELDS_OF_PACKING:
            yield key, "is ignored: packing writes it"
        elif key in IGNORED_METADATA:
            yield key, "makes the card look like one of that turn or step"
        elif key not in _FIELDS_OF_TYPES:
            hint = did_you_mean(key, _FIELDS_OF_RECIPES)
            yield key, f"is stored with the card, but no model sees it{hint}"


def recipe_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of a recipe, for editors."""
    return json_schema(Recipe, schema_id="urn:cbx:handover-recipe", title="cbx handover recipe")


def _bad_arguments(problems: Mapping[str, str]) -> BadRequest:
    sentences = list(problems.values())
    message = sentences[0]
    if len(sentences) > 1:
        message = "\n".join([f"{len(sentences)} problems with the arguments", *sentences])
    return BadRequest(
        message,
        hint="`cbx handover show RECIPE` lists its arguments; pass JSON values as NAME:=JSON",
        details={"problems": [{"argument": name, "message": each} for name, each in problems.items()]},
    )


def _is_box_id(value: object) -> bool:
    return bool(value) if isinstance(value, str) else isinstance(value, int) and not isinstance(value, bool)


def _are_box_ids(value: object) -> bool:
    return all(map(_is_box_id, value)) if isinstance(value, list) else _is_box_id(value)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool) and math.isfinite(value)


_TYPES: dict[ArgumentType, tuple[str, Callable[[object], bool]]] = {
    "string": ("a string", lambda value: isinstance(value, str)),
    "integer": ("an integer", lambda value: isinstance(value, int) and not isinstance(value, bool)),
    "number": ("a number", _is_number),
    "boolean": ("true or false", lambda value: isinstance(value, bool)),
    "object": ("a mapping", lambda value: isinstance(value, dict)),
    "array": ("a list", lambda value: isinstance(value, list)),
    "box_id": ("a box id", _is_box_id),
    "box_ids": ("a box id or a list of box ids", _are_box_ids),
    "any": ("anything", lambda value: True),
}


def _problem_of_value(value: object, type_name: ArgumentType) -> str | None:
    """Return the problem of `value` as an argument of this type, or None if it is valid."""
    expected, fits = _TYPES[type_name]
    if fits(value):
        return None
    if type_name == "box_ids" and isinstance(value, list):
        odd_one = next(item for item in value if not _is_box_id(item))
        return f"expected {expected}, found a list with {describe_value(odd_one)}"
    return f"expected {expected}, found {describe_value(value)}"
