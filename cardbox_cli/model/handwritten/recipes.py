"""What a handover recipe may say, and the binding of arguments to what it declares.

Owns the recipe's shape and meaning: its digest, and the arguments that it uses. Packing carries it out.
Loads pydantic: only the reading of recipes imports this module.
"""

import copy
import hashlib
import math
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, Field, StrictBool, StrictInt, StrictStr, ValidationInfo, field_validator

from cardbox_cli.errors import BadRequest
from cardbox_cli.model import exact_json
from cardbox_cli.model.card_types import CARD_TYPES, INSTRUCTION, TOOL_RESULT, card_type
from cardbox_cli.model.cards import CIRCUMSTANCES, ROLES, SYSTEM_ROLES
from cardbox_cli.model.handwritten.validation import Name, Section, Trimmed, json_schema, refuse
from cardbox_cli.model.ids import as_box_id
from cardbox_cli.text import did_you_mean, found, shown

ArgumentType: TypeAlias = Literal[
    "string", "integer", "number", "boolean", "object", "array", "box_id", "box_ids", "any"
]
Step: TypeAlias = Literal["pack_arguments", "inherit_context", "include_parent"]

_OF_BOXES: tuple[ArgumentType, ...] = ("box_id", "box_ids")
STEPS: tuple[Step, ...] = ("pack_arguments", "inherit_context", "include_parent")
PROFILE_ARGUMENT = "profile_name"
"""The argument that every recipe takes: it names the profile to pack for."""


def _sorted_set(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(sorted(set(names)))


CardTypes = Annotated[tuple[Name, ...], Field(min_length=1), AfterValidator(_sorted_set)]


class TargetProfileConfig(Section):
    """Whom the context is packed for."""

    profile_name: Trimmed = Field(description="The profile, unless the argument profile_name names another.")


class ArgumentDeclaration(Section):
    """What a recipe says of one of its arguments."""

    type: ArgumentType = Field(
        default="any", description="What the value must be. box_ids is one box id or a list."
    )
    required: StrictBool = Field(default=False, description="Whether packing fails without it.")
    default: Any = Field(default=None, description="The value when it is not given.")
    description: StrictStr = Field(default="", description="What to pass, for `cbx handover show`.")

    @field_validator("default")
    @classmethod
    def _is_usable(cls, default: object, info: ValidationInfo) -> object:
        if info.data.get("required"):
            refuse("a required argument has no default; remove one of the two")
        misfit = _misfit(default, info.data.get("type", "any"))
        return refuse(misfit) if misfit else default


class CardMetadata(Section, extra="allow"):
    """The metadata of a packed card. Any other key is kept as it is."""

    role: Name = Field(
        default="user", description="Who speaks in the LLM's eyes: system, user, assistant or tool."
    )


# The keys of a card's metadata: those that a recipe is asked for, those that packing writes itself, and those
# that cbx reads on cards of some types.
_ASKED = ("role",)
_WRITTEN = ("type", "author_id", "project_id", "created_at")
_READ = ("covers", "edited_from", "function_name", "layer")
_NOT_IN_RECIPES = ("source_message", "source_format")


def _without_originals(metadata: CardMetadata) -> CardMetadata:
    for key in _NOT_IN_RECIPES:
        if key in (metadata.model_extra or {}):
            refuse(f"{key!r} is what an import keeps; it would replace what the card says")
    return metadata


class PackArgument(Section):
    """A rule that makes one card of one argument."""

    arg_key: Name = Field(description="The argument. If it is not given, no card is made.")
    as_card_type: Trimmed = Field(default=INSTRUCTION, description="The card's type.")
    card_metadata: Annotated[CardMetadata, AfterValidator(_without_originals)] = Field(
        default_factory=CardMetadata, description="The card's metadata."
    )


class InheritContext(Section):
    """What is taken over from boxes that exist."""

    include_boxes_from_args: tuple[Name, ...] = Field(
        default=(), description="The arguments whose values are box ids, in the order of inheriting."
    )
    include_parent: StrictBool = Field(
        default=False, description="Whether a card that points to the asking agent is appended."
    )
    include_card_types: CardTypes | None = Field(
        default=None, description="Inherit cards of these types alone."
    )
    exclude_card_types: CardTypes | None = Field(default=None, description="Inherit no cards of these types.")
    answered_calls_only: StrictBool = Field(
        default=False,
        description="Leave out tool calls without a result, and what stands or falls with them: no model "
        "takes those. For boxes that a turn may be writing.",
    )
    max_cards: StrictInt | None = Field(default=None, ge=1, description="Inherit at most this many cards.")
    max_tokens: StrictInt | None = Field(default=None, ge=1, description="Inherit at most this many tokens.")

    @field_validator("exclude_card_types")
    @classmethod
    def _does_not_contradict(cls, excluded: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        both = set(excluded) & set(info.data.get("include_card_types") or ())
        return refuse(f"{min(both)!r} is in include_card_types too") if both else excluded


def _each_step_once(steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """The whole order: the steps that it leaves out follow as they stand in `STEPS`."""
    twice = [step for index, step in enumerate(steps) if step in steps[:index]]
    if twice:
        refuse(f"{twice[0]!r} stands twice; the order names some of {', '.join(STEPS)}, each once")
    return (*steps, *(step for step in STEPS if step not in steps))


class ContextPackingConfig(Section):
    """What the packed context is made of."""

    pack_arguments: tuple[PackArgument, ...] = Field(default=(), description="Which arguments become cards.")
    inherit_context: InheritContext = Field(
        default_factory=InheritContext, description="What is taken over from boxes."
    )
    order: Annotated[tuple[Step, ...], AfterValidator(_each_step_once)] = Field(
        default=STEPS,
        description="In which order the three kinds of cards stand in the context; others follow.",
        json_schema_extra={"uniqueItems": True},
    )


def _canonical_ids(ids: tuple[str, ...]) -> tuple[str, ...]:
    return _sorted_set(tuple(as_box_id(box_id) or box_id for box_id in ids))


class Recipe(Section):
    """A handover recipe: how arguments, inherited boxes and a parent pointer become a context box."""

    description: StrictStr = Field(
        default="", description="When to use the recipe; `cbx handover list` shows it."
    )
    target_profile_config: TargetProfileConfig | None = Field(
        default=None, description="Whom the context is for."
    )
    arguments: dict[Name, ArgumentDeclaration] | None = Field(
        default=None,
        description="The arguments by name. What is neither declared here nor used by a rule is refused.",
    )
    context_packing_config: ContextPackingConfig = Field(
        default_factory=ContextPackingConfig, description="What the context is made of."
    )
    authorized_inherit_box_ids: Annotated[tuple[Name, ...], AfterValidator(_canonical_ids)] | None = Field(
        default=None, description="The only boxes that may be inherited; an empty list allows none."
    )

    @property
    def used_arguments(self) -> tuple[str, ...]:
        """The arguments that some rule uses, in the order of the rules; the profile's name comes last."""
        packing = self.context_packing_config
        packed = [rule.arg_key for rule in packing.pack_arguments]
        inherited = packing.inherit_context.include_boxes_from_args
        return tuple(dict.fromkeys([*packed, *inherited, PROFILE_ARGUMENT]))

    @property
    def box_arguments(self) -> tuple[str, ...]:
        """The arguments whose values are ids of boxes: those that are inherited, and what is declared so."""
        declared = (name for name, each in (self.arguments or {}).items() if each.type in _OF_BOXES)
        inherited = self.context_packing_config.inherit_context.include_boxes_from_args
        return tuple(dict.fromkeys([*inherited, *declared]))

    def unused_arguments(self, arguments: Mapping[str, object]) -> list[str]:
        """Those of `arguments` that no rule uses, so that they leave no trace in the context."""
        return [name for name in arguments if name not in self.used_arguments]

    def warnings(self) -> list[str]:
        """What is allowed but hardly meant: declared arguments that nothing uses, types, roles and metadata
        that are unknown, or that no model sees."""
        declared = self.arguments or {}
        undeclared = [name for name in self.used_arguments if name not in declared]
        doubts = [
            f"arguments.{name}: no rule uses it{did_you_mean(name, undeclared)}"
            for name in self.unused_arguments(declared)
        ]
        for index, rule in enumerate(self.context_packing_config.pack_arguments):
            place, kind, role = f"pack_arguments[{index}]", rule.as_card_type, rule.card_metadata.role
            if kind not in CARD_TYPES:
                doubts.append(f"{place}: {kind!r} is no type that cbx knows{did_you_mean(kind, CARD_TYPES)}")
            if role not in ROLES:
                doubts.append(f"{place}: {role!r} is no role that models know{did_you_mean(role, ROLES)}")
            doubts += [f"{place}: {doubt}" for doubt in _doubts_of_role(kind, role)]
            doubts += [f"{place}: {doubt}" for doubt in _doubts_of_metadata(rule.card_metadata)]
        return doubts

    def bind(self, arguments: Mapping[str, object]) -> dict[str, object]:
        """`arguments` with the declared defaults of those that are not given.

        Raises one `BadRequest` that names every missing, ill-typed and unknown argument. A recipe without
        `arguments:` takes anything; see `unused_arguments`.
        """
        declared = self.arguments or {}
        missing, misfits = _missing(declared, arguments), _misfits(declared, arguments)
        problems = {**self._unknown(arguments), **missing, **misfits}
        if problems:
            raise _bad_arguments(problems)
        defaults = {name: each.default for name, each in declared.items() if each.default is not None}
        return {**copy.deepcopy(defaults), **arguments}

    def digest(self) -> str:
        """SHA-256 of what the recipe does, as hex: layout, defaults and descriptions make no difference."""
        described: dict[str, Any] = {"description": True, "arguments": {"__all__": {"description"}}}
        meaning = self.model_dump(exclude_defaults=True, exclude=described)
        return hashlib.sha256(exact_json.canonical(exact_json.encode(meaning))).hexdigest()

    def _unknown(self, arguments: Mapping[str, object]) -> dict[str, str]:
        if self.arguments is None:
            return {}
        known = list(dict.fromkeys([*self.arguments, *self.used_arguments]))
        unknown = [name for name in arguments if name not in known]
        return {name: f"unknown argument {shown(name)}{did_you_mean(name, known)}" for name in unknown}


def _doubts_of_role(kind: str, role: str) -> Iterator[str]:
    """What a model makes of a role that the author of a recipe may not expect."""
    known = card_type(kind)
    if known.becomes == "nothing":
        yield f"a card of type {kind!r} is no message ({known.reason}): its role makes no difference"
    elif kind == TOOL_RESULT and role != "tool":
        yield f"the role {role!r} is dropped: a {kind} is the message of its tool"
    elif role in SYSTEM_ROLES and not known.is_late:
        yield (
            f"the role {role!r} makes it system text within the history, which some models are given above "
            "all messages, away from its place; user is what asks"
        )


def _doubts_of_metadata(metadata: CardMetadata) -> Iterator[str]:
    """What becomes of the keys that cbx does not ask for."""
    for key in metadata.model_extra or {}:
        if key in _WRITTEN:
            yield f"card_metadata.{key} is dropped: packing writes it"
        elif key in CIRCUMSTANCES:
            yield f"card_metadata.{key} makes the card look as if that turn or step had written it"
        elif key not in _READ:
            hint = did_you_mean(key, _ASKED)
            yield f"card_metadata.{key} is kept with the card, and no model sees it{hint}"


def recipe_schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of a recipe, for editors."""
    return json_schema(Recipe, schema_id="urn:cbx:handover-recipe", title="cbx handover recipe")


def _missing(declared: Mapping[str, ArgumentDeclaration], given: Mapping[str, object]) -> dict[str, str]:
    missing = [name for name, each in declared.items() if each.required and name not in given]
    return {name: f"argument {name!r} is missing" for name in missing}


def _misfits(declared: Mapping[str, ArgumentDeclaration], given: Mapping[str, object]) -> dict[str, str]:
    misfits = {name: _misfit(given[name], each.type) for name, each in declared.items() if name in given}
    return {name: f"argument {name!r}: {misfit}" for name, misfit in misfits.items() if misfit}


def _bad_arguments(problems: Mapping[str, str]) -> BadRequest:
    sentences = list(problems.values())
    message = sentences[0]
    if len(sentences) > 1:
        message = "\n".join([f"{len(sentences)} problems with the arguments", *sentences])
    return BadRequest(
        message,
        hint="`cbx handover show RECIPE` lists what it takes; NAME:=JSON passes what is not text",
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


def _misfit(value: object, wanted: ArgumentType) -> str | None:
    """What is wrong with `value` as an argument of the type `wanted`, if anything."""
    expected, fits = _TYPES[wanted]
    if fits(value):
        return None
    if wanted == "box_ids" and isinstance(value, list):
        odd_one = next(item for item in value if not _is_box_id(item))
        return f"expected {expected}, found a list that holds {found(odd_one)}"
    return f"expected {expected}, found {found(value)}"
