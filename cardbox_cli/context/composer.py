"""The ContextComposer: from layers to the list of messages, in one order that stands here and nowhere else.

Pure: the same input gives the same output; it reads nothing, writes nothing, knows no clock and holds no
prompt text. Which texts the layers get is the collector's business.
"""

from collections.abc import Container, Mapping, Sequence
from typing import Literal

from cardbox_cli.context.messages import Message
from cardbox_cli.context.packed_messages import PackedMessages
from cardbox_cli.context.parts import text_of
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

_Messages = Sequence[Message]


def compose(
    *,
    system_prompt: str | None,
    checkpoint_messages: Sequence[Message],
    contexts: Mapping[str, str],
    query: str | None,
    layout: Layout = "default",
    compression: Literal["before", "after"] = "before",
) -> _Messages:
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
    layers = {name: _message(name, "system", text) for name, text in contexts.items() if text}
    prompt = [_message(SYSTEM_PROMPT, "system", system_prompt)] if system_prompt else []
    asked = [_message(QUERY, "user", query)] if query else []
    behind = {*(PER_CALL if layout == "cache" else ()), *([COMPRESSION] if compression == "after" else ())}
    return _in_order(prompt, layers, checkpoint_messages, asked, behind)


def with_layers(messages: _Messages, contexts: Mapping[str, str], layout: Layout) -> _Messages:
    """Composed messages with layers that they lack, each where `compose` puts it."""
    parts: dict[str, list[Message]] = {SYSTEM_PROMPT: [], CHECKPOINT: [], QUERY: []}
    layers = {name: _message(name, "system", text) for name, text in contexts.items()}
    for message in messages:
        if message.layer in parts:
            parts[message.layer].append(message)
        else:
            layers[message.layer] = message
    behind = PER_CALL if layout == "cache" else ()
    return _in_order(parts[SYSTEM_PROMPT], layers, parts[CHECKPOINT], parts[QUERY], behind)


def _in_order(
    prompt: _Messages,
    layers: Mapping[str, Message],
    history: _Messages,
    query: _Messages,
    behind: Container[str],
) -> _Messages:
    """The one order; the layers of `behind` stand behind the history."""
    known = [name for name in CONTEXT_LAYERS if name in layers]
    names = [*known, *sorted(layers.keys() - set(CONTEXT_LAYERS))]
    before = [*prompt, *(layers[name] for name in names if name not in behind)]
    after = [*(layers[name] for name in names if name in behind), *query]
    if isinstance(history, PackedMessages):
        return history.between(before, after)
    return [*before, *history, *after]


def _message(layer: str, role: str, text: str) -> Message:
    return Message(layer=layer, body={"role": role, "content": text})


def _ends_with(history: Sequence[Message], query: str) -> bool:
    if not history or history[-1].body.get("role") != "user":
        return False
    content = history[-1].body.get("content")
    text = content if isinstance(content, str) else text_of(content if isinstance(content, list) else [])
    return text.strip() == query.strip()
