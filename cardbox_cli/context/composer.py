"""The ContextComposer: from layers to the list of messages, in one order that stands here and nowhere else.

Pure: the same input gives the same output; it reads nothing, writes nothing, knows no clock and holds no
prompt text. Which texts the layers get is the collector's business.
"""

from collections.abc import Mapping, Sequence
from typing import Literal

from cardbox_cli.context.blocks import text_of
from cardbox_cli.context.messages import Message
from cardbox_cli.errors import DuplicateQuery
from cardbox_cli.model.layers import (
    CHECKPOINT,
    COMPRESSION,
    CONTEXT_LAYERS,
    EXPERIENCE,
    KNOWLEDGE,
    QUERY,
    SYSTEM_PROMPT,
    TODO,
    Layout,
    check_layer,
)

# What changes with each call, and in the layout for caches comes after what does not.
PER_CALL = (EXPERIENCE, KNOWLEDGE, TODO)


def compose(
    *,
    system_prompt: str | None,
    checkpoint_messages: Sequence[Message],
    contexts: Mapping[str, str],
    query: str | None,
    layout: Layout = "default",
    compression: Literal["before", "after"] = "before",
) -> list[Message]:
    """The messages of one LLM call. Empty layers make none; unknown ones follow the known, sorted.

    The layout for caches puts what changes with each call behind the history, beside the query, so that the
    provider finds the longest beginning again; `compression` says where the summary stands to the history.

    Raises InvalidInput for a layer whose name does not end in `__context`, and DuplicateQuery for a query
    that the history ends with: it is asked once.
    """
    for name in contexts:
        check_layer(name)
    if query and _ends_with(checkpoint_messages, query):
        raise DuplicateQuery(
            "the query is the last user message of the history, and would be asked twice",
            hint="leave the query out: the history asks it",
        )
    behind = {*(PER_CALL if layout == "cache" else ()), *([COMPRESSION] if compression == "after" else ())}
    ordered = [name for name in _ordered(contexts) if contexts[name]]
    return [
        *([_message(SYSTEM_PROMPT, "system", system_prompt)] if system_prompt else []),
        *(_message(name, "system", contexts[name]) for name in ordered if name not in behind),
        *checkpoint_messages,
        *(_message(name, "system", contexts[name]) for name in ordered if name in behind),
        *([_message(QUERY, "user", query)] if query else []),
    ]


def with_layers(messages: Sequence[Message], contexts: Mapping[str, str], layout: Layout) -> list[Message]:
    """Composed messages with layers that they lack, each where `compose` would have put it."""
    behind = PER_CALL if layout == "cache" else ()

    def place(message: Message) -> tuple[int, int, str]:
        layer = message.layer
        if layer in _PLACES:
            return _PLACES[layer], 0, ""
        known = CONTEXT_LAYERS.index(layer) if layer in CONTEXT_LAYERS else len(CONTEXT_LAYERS)
        return 3 if layer in behind else 1, known, layer

    return sorted([*messages, *(_message(name, "system", contexts[name]) for name in contexts)], key=place)


# The places of what is no layer: layers stand ahead of the history or behind it.
_PLACES = {SYSTEM_PROMPT: 0, CHECKPOINT: 2, QUERY: 4}


def _ordered(contexts: Mapping[str, str]) -> list[str]:
    known = [name for name in CONTEXT_LAYERS if name in contexts]
    return known + sorted(name for name in contexts if name not in CONTEXT_LAYERS)


def _message(layer: str, role: str, text: str) -> Message:
    return Message(layer=layer, body={"role": role, "content": text})


def _ends_with(history: Sequence[Message], query: str) -> bool:
    if not history or history[-1].body.get("role") != "user":
        return False
    content = history[-1].body.get("content")
    said = content if isinstance(content, str) else text_of(content if isinstance(content, list) else [])
    return said.strip() == query.strip()
