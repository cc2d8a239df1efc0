"""Profile files: the static configuration of an agent, stored in a `sys.profile` card.

This module checks and normalizes the file. It preserves unknown keys, because other workers may read them. It
needs pydantic, which loads slowly, so import it only to read a profile.
"""

from collections.abc import Container, Iterator, Mapping
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    StrictBool,
    StrictInt,
    StrictStr,
    ValidationInfo,
    field_validator,
)

from cardbox_cli.errors import InvalidInput
from cardbox_cli.model.handwritten.validation import Name, Section, Trimmed, fit, refuse
from cardbox_cli.model.handwritten.yaml_files import read_yaml
from cardbox_cli.model.identity import token_fault
from cardbox_cli.model.ids import canonical_box_id, new_id_fault
from cardbox_cli.model.layers import (
    COLLECTIBLE_LAYERS,
    KNOWLEDGE,
    SUFFIX,
    Layout,
    ProcessName,
    find_process,
    is_layer,
)
from cardbox_cli.text.error_messages import describe_value, did_you_mean, short_repr

DEFAULT_WORKER_TARGET = "worker_generic"


def _check_name(name: str) -> str:
    fault = new_id_fault(name)
    return name if fault is None else refuse(f"{fault}: {short_repr(name)}")


def _check_subject_token(target: str) -> str:
    fault = token_fault(target)
    return target if fault is None else refuse(f"{fault}, found the string {short_repr(target)}")


def _split_tags(tags: object) -> object:
    return [tag for tag in map(str.strip, tags.split(",")) if tag] if isinstance(tags, str) else tags


def _check_layers(layers: object) -> object:
    requests = layers.items() if isinstance(layers, dict) else ()
    problems = [(str(name), _problem_of_layer(str(name), value)) for name, value in requests]
    wrong = [f"{short_repr(name)} {problem}" for name, problem in problems if problem]
    return refuse("; ".join(wrong)) if wrong else layers


def _problem_of_layer(layer: str, value: object) -> str | None:
    """Return the problem of a layer's value, or None. A message puts it after the name of the layer."""
    if not is_layer(layer):
        return f"does not end in {SUFFIX!r}"
    if isinstance(value, str):
        return None if value.strip() else "is blank; set a text or remove the key"
    if layer == KNOWLEDGE:
        return _problem_of_search(value)
    if layer not in COLLECTIBLE_LAYERS:
        return f"must be a string, because cbx cannot collect it; found {describe_value(value)}"
    wrong = f"must be a string, or true to collect it; found {describe_value(value)}"
    return None if value is True else wrong


def _problem_of_search(value: object) -> str | None:
    if not isinstance(value, dict):
        return f"must be a string or {{query: WORDS}}; found {describe_value(value)}"
    unknown = [str(key) for key in value if key not in ("query", "boxes")]
    if unknown:
        return f"has the unknown key {short_repr(unknown[0])}; known here: query, boxes"
    boxes = value.get("boxes", [])
    if not isinstance(boxes, list):
        return f"needs a list of box ids as its 'boxes'; found {describe_value(boxes)}"
    odd = [each for each in boxes if not isinstance(each, str) or canonical_box_id(each) is None]
    if odd:
        return f"needs box ids in its 'boxes'; found {describe_value(odd[0])}"
    words = value.get("query")
    if not isinstance(words, str) or not words.strip():
        return f"needs words to search for as its 'query'; found {describe_value(words)}"
    return None


class DelegationPolicy(Section, extra="allow"):
    """The agents that an agent may ask: with target_profiles null or absent any, with [] none."""

    may_be_null = frozenset({"target_profiles"})

    target_profiles: list[Name] | None = Field(
        default=None, description="Names of the profiles that it may ask."
    )
    target_tags: list[Name] = Field(
        default=[], description="If not empty, the asked profile must have one of these tags."
    )


class RetrySection(Section):
    """The tries of a step with transient failures. The defaults are those of `RetryPolicy`."""

    attempts: Annotated[StrictInt, Field(ge=1, le=100)] = Field(
        default=3, description="The number of tries, with the first one; 1 means no other try."
    )
    max_elapsed_seconds: Annotated[float, Field(ge=0, le=86400)] = Field(
        default=600, description="The seconds after the first try in which another one may begin."
    )


class Profile(Section, extra="allow"):
    """The static configuration of an agent. Any other key is preserved."""

    may_be_null = frozenset({"allowed_tools"})

    name: Annotated[Trimmed, AfterValidator(_check_name)] = Field(
        description="The name, unique in its project."
    )
    worker_target: Annotated[StrictStr, AfterValidator(_check_subject_token)] = Field(
        default=DEFAULT_WORKER_TARGET,
        description="The pool of workers that serves it; one token of a NATS subject.",
    )
    tags: Annotated[list[Trimmed], BeforeValidator(_split_tags)] = Field(
        default=[], description="Tags: a list, or one string with commas."
    )
    description: StrictStr = Field(default="", description="What the agent is good at.")
    system_prompt: StrictStr = Field(default="", description="The system prompt of the agent.")
    system_prompt_template: StrictStr = Field(default="", description="Another name of system_prompt.")
    delegation_policy: DelegationPolicy | None = Field(
        default=None, description="The agents that it may ask; absent: none."
    )
    allowed_tools: list[Name] | None = Field(
        default=[], description="The tools that it may call; absent: none, null: all."
    )
    allowed_internal_tools: list[Name] = Field(
        default=[], description="The internal handlers that it may call."
    )
    must_end_with: list[Name] = Field(
        default=[], description="A turn ends only with a call of one of these tools."
    )
    require_result_fields: StrictBool = Field(
        default=False,
        description="If true, a turn whose deliverable lacks a required field ends as partial.",
    )
    process: ProcessName = Field(
        default="react", description="The process of its turns; mapreduce ones have no history."
    )
    layers: Annotated[dict[str, Any], BeforeValidator(_check_layers)] = Field(
        default={},
        description="The requested layers: a string, true to collect one, or {query: WORDS} for knowledge; "
        "boxes: [ID] are the boxes to search if the project's knowledge_scope is boxes.",
    )
    layout: Layout = Field(
        default="default", description="`cache` puts layers that change with each call after the history."
    )
    llm_config: dict[str, Any] = Field(default={}, description="The model and its settings.")
    retry: RetrySection | None = Field(
        default=None, description="When a step with a transient failure, such as HTTP 429, is tried again."
    )

    @field_validator("system_prompt_template")
    @classmethod
    def _is_the_only_prompt(cls, template: str, info: ValidationInfo) -> str:
        if info.data.get("system_prompt"):
            refuse("is another name of system_prompt; keep only one of them")
        return template

    @field_validator("layers")
    @classmethod
    def _may_have_them(cls, layers: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        process = find_process(info.data.get("process"))
        refused = [name for name in layers if not process.allows(name)]
        if refused:
            refuse(f"a {process.name} cannot have {', '.join(refused)}")
        return layers


def parse_profile(text: str, source: str) -> dict[str, Any]:
    """Return the profile in `text` as the JSON object to store, with the defaults of worker target and tags.

    Raises InvalidInput with all problems. Messages name the file `source`.
    """
    profile = fit(Profile, read_yaml(text, source), refuse_with=InvalidInput)
    normal = {"worker_target": profile.worker_target, "tags": profile.tags}
    return {**profile.model_dump(exclude_unset=True), **normal}


def profile_warnings(profile: Mapping[str, Any], registered: Container[str]) -> list[str]:
    """Return warnings about a valid profile with probable mistakes. `registered` has the project's tools."""
    return [*_warn_of_unknown_keys(profile), *_warn_of_missing_ends(profile, registered)]


def _warn_of_missing_ends(profile: Mapping[str, Any], registered: Container[str]) -> Iterator[str]:
    """Yield a warning for each tool of must_end_with that a model can never call."""
    allowed, internal = profile.get("allowed_tools", []), profile.get("allowed_internal_tools", [])
    for name in profile.get("must_end_with", []):
        if name in internal:
            continue
        if allowed is not None and name not in allowed:
            yield f"must_end_with names {name!r}, but allowed_tools does not: no turn can end with its call"
        elif name not in registered:
            yield f"must_end_with names an unknown tool {name!r}; register it with `cbx tool add`"


def _warn_of_unknown_keys(profile: Mapping[str, Any]) -> list[str]:
    known = Profile.model_fields
    unknown = {key: did_you_mean(key, known) for key in profile if key not in known}
    return [f"cbx ignores the unknown key {key!r}, but stores it{hint}" for key, hint in unknown.items()]
