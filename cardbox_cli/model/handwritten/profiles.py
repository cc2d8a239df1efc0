"""What a profile file may say: the static configuration of an agent, as it is stored in a `sys.profile` card.

Owns the checks and the normal form of the file. Keys that cbx does not know are kept, since workers of
other makes read them. Loads pydantic: import this module only where a profile is read.
"""

from collections.abc import Container, Iterator, Mapping
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    StrictBool,
    StrictStr,
    ValidationInfo,
    field_validator,
)

from cardbox_cli.errors import InvalidInput
from cardbox_cli.model.handwritten.validation import Name, Section, Trimmed, fit, refuse
from cardbox_cli.model.handwritten.yaml_files import read_yaml
from cardbox_cli.model.identity import fault_of_token
from cardbox_cli.model.ids import as_box_id, fault_of_new_id
from cardbox_cli.model.layers import COLLECTED, KNOWLEDGE, SUFFIX, Layout, ProcessName, is_layer, process_of
from cardbox_cli.text import did_you_mean, found, shown

DEFAULT_WORKER_TARGET = "worker_generic"


def _good_name(name: str) -> str:
    fault = fault_of_new_id(name)
    return name if fault is None else refuse(f"{fault}: {shown(name)}")


def _subject_token(target: str) -> str:
    fault = fault_of_token(target)
    return target if fault is None else refuse(f"{fault}, found the string {shown(target)}")


def _listed(tags: object) -> object:
    """Tags that are written as one string, as a list."""
    return [tag for tag in map(str.strip, tags.split(",")) if tag] if isinstance(tags, str) else tags


def _known_layers(layers: object) -> object:
    """The layers that a profile asks for; what is wrong with any of them is reported at once."""
    asked = layers.items() if isinstance(layers, dict) else ()
    wrong = [f"{shown(str(name))} {why}" for name, value in asked if (why := _wrong_layer(str(name), value))]
    return refuse("; ".join(wrong)) if wrong else layers


def _wrong_layer(layer: str, value: object) -> str | None:
    """What is wrong with what a profile says of a layer, to be read after its name."""
    if not is_layer(layer):
        return f"does not end in {SUFFIX!r}"
    if isinstance(value, str):
        return None if value.strip() else "is blank; give it a text or remove the key"
    if layer == KNOWLEDGE:
        return _wrong_search(value)
    if layer not in COLLECTED:
        return f"must be a text, for nothing collects it; found {found(value)}"
    return None if value is True else f"must be a text, or true to collect it; found {found(value)}"


def _wrong_search(value: object) -> str | None:
    if not isinstance(value, dict):
        return f"must be a text or {{query: WORDS}}; found {found(value)}"
    unknown = [str(key) for key in value if key not in ("query", "boxes")]
    if unknown:
        return f"has a key that is not known: {shown(unknown[0])}; there are 'query' and 'boxes'"
    boxes = value.get("boxes", [])
    if not isinstance(boxes, list):
        return f"needs a list of box ids as its 'boxes'; found {found(boxes)}"
    odd = [each for each in boxes if not isinstance(each, str) or as_box_id(each) is None]
    if odd:
        return f"names in its 'boxes' what is no box id: {found(odd[0])}"
    words = value.get("query")
    if not isinstance(words, str) or not words.strip():
        return f"needs words to search for as its 'query'; found {found(words)}"
    return None


class DelegationPolicy(Section, extra="allow"):
    """Whom an agent may ask: with target_profiles null or absent everybody, with [] nobody."""

    may_be_null = frozenset({"target_profiles"})

    target_profiles: list[Name] | None = Field(
        default=None, description="The names of the profiles it may ask."
    )
    target_tags: list[Name] = Field(
        default=[], description="If any: the asked profile must have one of these."
    )


class Profile(Section, extra="allow"):
    """The static configuration of an agent. Any other key is kept as it is."""

    may_be_null = frozenset({"allowed_tools"})

    name: Annotated[Trimmed, AfterValidator(_good_name)] = Field(description="Unique in its project.")
    worker_target: Annotated[StrictStr, AfterValidator(_subject_token)] = Field(
        default=DEFAULT_WORKER_TARGET,
        description="The pool of workers that serve it; one token of a NATS subject.",
    )
    tags: Annotated[list[Trimmed], BeforeValidator(_listed)] = Field(
        default=[], description="A list, or one string with commas."
    )
    description: StrictStr = Field(default="", description="What it is good at.")
    system_prompt: StrictStr = Field(default="", description="What it is told first.")
    system_prompt_template: StrictStr = Field(default="", description="Another name of system_prompt.")
    delegation_policy: DelegationPolicy | None = Field(
        default=None, description="Whom it may ask; absent: nobody."
    )
    allowed_tools: list[Name] | None = Field(
        default=[], description="The tools it may call; absent: none, null: all."
    )
    allowed_internal_tools: list[Name] = Field(default=[], description="The internal handlers it may call.")
    must_end_with: list[Name] = Field(
        default=[], description="A turn ends only with a call of one of these tools."
    )
    require_result_fields: StrictBool = Field(
        default=False,
        description="A turn whose deliverable lacks a field that it was asked for ends as partial.",
    )
    process: ProcessName = Field(
        default="react", description="The kind of its turns; those of mapreduce take no history."
    )
    layers: Annotated[dict[str, Any], BeforeValidator(_known_layers)] = Field(
        default={},
        description="The layers it asks for: a text, true to collect one, {query: WORDS} for knowledge, "
        "with boxes: [ID] to name those that may be searched where the project's knowledge_scope is boxes.",
    )
    layout: Layout = Field(
        default="default", description="cache puts layers that change with each call behind the history."
    )
    llm_config: dict[str, Any] = Field(default={}, description="The model and its settings.")

    @field_validator("system_prompt_template")
    @classmethod
    def _is_the_only_prompt(cls, template: str, info: ValidationInfo) -> str:
        if info.data.get("system_prompt"):
            refuse("another name of system_prompt, which is there too; keep one")
        return template

    @field_validator("layers")
    @classmethod
    def _may_have_them(cls, layers: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        process = process_of(info.data.get("process"))
        refused = [name for name in layers if not process.may_take(name)]
        if refused:
            refuse(f"a {process.name} cannot have {', '.join(refused)}")
        return layers


def parse_profile(text: str, source: str) -> dict[str, Any]:
    """The profile in `text` as a JSON object to store: as it is written, with its worker target and its tags.

    Raises InvalidInput with all that is wrong; `source` names the file in it.
    """
    profile = fit(Profile, read_yaml(text, source), refuse_with=InvalidInput)
    normal = {"worker_target": profile.worker_target, "tags": profile.tags}
    return {**profile.model_dump(exclude_unset=True), **normal}


def doubts(profile: Mapping[str, Any], registered: Container[str]) -> list[str]:
    """What to say of a checked profile that may not be what its author means; `registered` are tools."""
    return [*_unknown_keys(profile), *_missing_ends(profile, registered)]


def _missing_ends(profile: Mapping[str, Any], registered: Container[str]) -> Iterator[str]:
    """The tools by a call of which turns shall end, and that nobody offers to a model."""
    allowed, internal = profile.get("allowed_tools", []), profile.get("allowed_internal_tools", [])
    for name in profile.get("must_end_with", []):
        if name in internal:
            continue
        if allowed is not None and name not in allowed:
            yield f"must_end_with names {name!r}, and allowed_tools does not: no turn can end with its call"
        elif name not in registered:
            yield f"must_end_with names {name!r}, and there is no such tool: `cbx tool add` registers it"


def _unknown_keys(profile: Mapping[str, Any]) -> list[str]:
    """What to say of the keys that are kept, though cbx knows none of that name."""
    known = Profile.model_fields
    unknown = [key for key in profile if key not in known]
    return [f"{key!r} is no key that cbx knows; it is kept{did_you_mean(key, known)}" for key in unknown]
