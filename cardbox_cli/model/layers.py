"""The layers of an LLM request: their names in order, who may have which, and how they are asked for.

Source: the specification's page on layers. Where the texts come from is `context/collector`'s business, what
becomes of them `context/composer`'s.
"""

from collections.abc import Mapping
from typing import Any, Literal, get_args

import msgspec

from cardbox_cli.errors import InvalidInput
from cardbox_cli.text import did_you_mean

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

# The layers that are texts, in their order; whatever else ends in the suffix follows them, sorted.
CONTEXT_LAYERS = (FRAMEWORK, PERSONA, MEMORY, EXPERIENCE, KNOWLEDGE, TODO, COMPRESSION)

# Those that the switch of sharing does not leave out: the framework's, and a chat's persona and memory.
UNSHARED = frozenset({FRAMEWORK, PERSONA, MEMORY})

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

# How far a search for knowledge reaches: all cards of the project, those of boxes that the recipe or the
# profile names, or none.
KnowledgeScope = Literal["project", "boxes", "none"]
KNOWLEDGE_SCOPES: tuple[KnowledgeScope, ...] = get_args(KnowledgeScope)

# Those that can be collected; any other is given.
COLLECTED = (EXPERIENCE, KNOWLEDGE, TODO, COMPRESSION)

Layout = Literal["default", "cache"]
LAYOUTS: tuple[Layout, ...] = get_args(Layout)


class Process(msgspec.Struct, frozen=True):
    """A kind of process. `shares` is what holds where nobody switches sharing on or off.

    `on_request` are the layers besides the framework's that it can have; None for any.
    """

    name: ProcessName
    takes_history: bool = True
    shares: bool = True
    on_request: tuple[str, ...] | None = None

    def may_take(self, layer: str) -> bool:
        """Whether such a process can have `layer` at all."""
        return self.on_request is None or layer == FRAMEWORK or layer in self.on_request


_MAPREDUCE = {
    "mapreduce_worker": (KNOWLEDGE,),
    "mapreduce_planner": (EXPERIENCE, KNOWLEDGE),
    "mapreduce_reducer": (EXPERIENCE, KNOWLEDGE),
}


def process_of(named: Any) -> Process:
    """The process of this name; what is no name of one is a `react`."""
    name: ProcessName = named if named in PROCESS_NAMES else "react"
    if name not in _MAPREDUCE:
        return Process(name)
    return Process(name, takes_history=False, shares=False, on_request=_MAPREDUCE[name])


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """The layers that somebody asks for by name: with a text of their own, or to be collected.

    `knowledge` are the words to search for, `knowledge_boxes` the boxes that are named for the search.
    """

    texts: Mapping[str, str] = {}
    to_collect: frozenset[str] = frozenset()
    knowledge: str | None = None
    knowledge_boxes: tuple[str, ...] = ()

    @property
    def names(self) -> frozenset[str]:
        """Every layer that is asked for."""
        return self.to_collect.union(self.texts, [] if self.knowledge is None else [KNOWLEDGE])


def is_layer(name: str) -> bool:
    """Whether a layer can have this name."""
    return name.endswith(SUFFIX) and name != SUFFIX


def check_layer(name: str) -> None:
    """Raise InvalidInput for a name that no layer can have."""
    if not is_layer(name):
        raise InvalidInput(
            f"{name!r} is no layer: their names end in {SUFFIX!r}{did_you_mean(name, CONTEXT_LAYERS)}",
            hint=f"{', '.join(CONTEXT_LAYERS)}, or one of your own",
        )


def check_stored_layer(name: str) -> None:
    """Raise InvalidInput for a name that no layer can have, and for a layer that is never stored."""
    check_layer(name)
    if name == FRAMEWORK:
        raise InvalidInput(
            f"the layer {name!r} is never stored with steps: it belongs to the framework's version",
            hint="leave it out; the profile's `layers`, or --layer, gives its text to every call",
        )


def asked_by(profile: Mapping[str, Any]) -> Asked:
    """What a profile's `layers` ask for: a text, `true` to collect one, `{"query": words}` for knowledge, and
    in it `boxes` that may be searched.

    Profiles of other programs may hold anything there: what is not understood asks for nothing.
    """
    layers = profile.get("layers")
    named = {} if not isinstance(layers, dict) else {n: v for n, v in layers.items() if is_layer(n)}
    knowledge = named.get(KNOWLEDGE)
    words = knowledge.get("query") if isinstance(knowledge, dict) else None
    boxes = knowledge.get("boxes") if isinstance(knowledge, dict) else None
    named_boxes = boxes if isinstance(boxes, list) else []
    return Asked(
        texts={name: value for name, value in named.items() if isinstance(value, str)},
        to_collect=frozenset(name for name, value in named.items() if value is True),
        knowledge=words if isinstance(words, str) and words.strip() else None,
        knowledge_boxes=tuple(each for each in named_boxes if isinstance(each, str)),
    )
