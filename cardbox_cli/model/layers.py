"""Layers of an LLM request: their order, the processes that may have them, and how profiles request them.

Source: the specification's page on layers.
"""

from collections.abc import Mapping
from typing import Any, Literal, get_args

import msgspec

from cardbox_cli.errors import InvalidInput
from cardbox_cli.text.error_messages import did_you_mean

SUFFIX = "__context"

SYSTEM_PROMPT = "system_prompt"
FRAMEWORK = "framework__context"
PERSONA = "persona__context"
MEMORY = "memory__context"
EXPERIENCE = "experience__context"
KNOWLEDGE = "knowledge__context"
TODO = "todo__context"
COMPRESSION = "compression__context"
CHECKPOINT = "checkpoint_messages"
QUERY = "query"

# The text layers, in their order in a request. Layers with other names follow them, sorted by name.
CONTEXT_LAYERS = (FRAMEWORK, PERSONA, MEMORY, EXPERIENCE, KNOWLEDGE, TODO, COMPRESSION)

# A request has these layers even if sharing is off: the framework's, and a chat's persona and memory.
ALWAYS_INCLUDED = frozenset({FRAMEWORK, PERSONA, MEMORY})

ProcessName = Literal[
    "react",
    "sequential",
    "dynamic",
    "hierarchical",
    "mapreduce_worker",
    "mapreduce_planner",
    "mapreduce_reducer",
]
PROCESS_NAMES: tuple[ProcessName, ...] = get_args(ProcessName)

# A search for knowledge reads the whole project, the boxes that the recipe or profile names, or nothing.
KnowledgeScope = Literal["project", "boxes", "none"]
KNOWLEDGE_SCOPES: tuple[KnowledgeScope, ...] = get_args(KnowledgeScope)

# The layers that cbx can collect from the database. The caller supplies all other layers.
COLLECTIBLE_LAYERS = (EXPERIENCE, KNOWLEDGE, TODO, COMPRESSION)

Layout = Literal["default", "cache"]
LAYOUTS: tuple[Layout, ...] = get_args(Layout)


class Process(msgspec.Struct, frozen=True):
    """A type of process. `shares` is the default that decides whether it gets shared layers.

    `on_request` lists the layers that may be requested in addition to the framework's. None means any layer.
    """

    name: ProcessName
    takes_history: bool = True
    shares: bool = True
    on_request: tuple[str, ...] | None = None

    def allows(self, layer: str) -> bool:
        return self.on_request is None or layer == FRAMEWORK or layer in self.on_request


_MAPREDUCE = {
    "mapreduce_worker": (KNOWLEDGE,),
    "mapreduce_planner": (EXPERIENCE, KNOWLEDGE),
    "mapreduce_reducer": (EXPERIENCE, KNOWLEDGE),
}


def find_process(named: Any) -> Process:
    """Return the process with this name, or `react` if the name is unknown."""
    name: ProcessName = named if named in PROCESS_NAMES else "react"
    if name not in _MAPREDUCE:
        return Process(name)
    return Process(name, takes_history=False, shares=False, on_request=_MAPREDUCE[name])


class LayerRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The layers that are requested by name. `knowledge` is the query for a search in `knowledge_boxes`."""

    texts: Mapping[str, str] = {}
    to_collect: frozenset[str] = frozenset()
    knowledge: str | None = None
    knowledge_boxes: tuple[str, ...] = ()

    @property
    def names(self) -> frozenset[str]:
        return self.to_collect.union(self.texts, [] if self.knowledge is None else [KNOWLEDGE])


def is_layer(name: str) -> bool:
    return name.endswith(SUFFIX) and name != SUFFIX


def check_layer(name: str) -> None:
    if not is_layer(name):
        raise InvalidInput(
            f"{name!r} is not a layer: names of layers end in {SUFFIX!r}{did_you_mean(name, CONTEXT_LAYERS)}",
            hint=f"use {', '.join(CONTEXT_LAYERS)}, or your own name",
        )


def check_stored_layer(name: str) -> None:
    """Raise InvalidInput if no layer can have this name, or if the layer is never stored."""
    check_layer(name)
    if name == FRAMEWORK:
        raise InvalidInput(
            f"the layer {name!r} is never stored with steps: it depends on the framework version",
            hint="omit the layer, and set its text with the profile's `layers` or with --layer",
        )


def requested_layers(profile: Mapping[str, Any]) -> LayerRequest:
    """Return the layers that the key `layers` of a profile requests.

    A value is a text, `true` to collect the layer, or `{"query": words}` for knowledge, with optional `boxes`
    to search. In a profile of another program, an invalid value requests nothing.
    """
    layers = profile.get("layers")
    requests = {} if not isinstance(layers, dict) else {n: v for n, v in layers.items() if is_layer(n)}
    knowledge = requests.get(KNOWLEDGE)
    words = knowledge.get("query") if isinstance(knowledge, dict) else None
    boxes = knowledge.get("boxes") if isinstance(knowledge, dict) else None
    named_boxes = boxes if isinstance(boxes, list) else []
    return LayerRequest(
        texts={name: value for name, value in requests.items() if isinstance(value, str)},
        to_collect=frozenset(name for name, value in requests.items() if value is True),
        knowledge=words if isinstance(words, str) and words.strip() else None,
        knowledge_boxes=tuple(each for each in named_boxes if isinstance(each, str)),
    )
