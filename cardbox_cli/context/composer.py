"""The ContextComposer: from layers to the list of messages, in one order that stands here and nowhere else.

Pure: the same input gives the same output; it reads nothing, writes nothing, knows no clock and holds no
prompt text. Which texts the layers get is the collector's business.
"""

from collections.abc import Mapping, Sequence

from cardbox_cli.context.messages import Message
from cardbox_cli.errors import InvalidInput

SUFFIX = "__context"
SYSTEM_PROMPT = "system_prompt"
CHECKPOINT = "checkpoint_messages"

# The layers that are texts, in the order of the spec's table; all of them come before the history.
CONTEXT_LAYERS = (
    "framework__context",
    "experience__context",
    "knowledge__context",
    "todo__context",
    "compression__context",
)


def compose(
    *,
    system_prompt: str | None,
    checkpoint_messages: Sequence[Message],
    contexts: Mapping[str, str],
    query: str | None,
) -> list[Message]:
    """The messages of one LLM call. Empty layers make none; unknown ones follow the known, sorted.

    Raises InvalidInput for a layer whose name does not end in `__context`.
    """
    messages: list[Message] = []
    if system_prompt:
        messages.append(_text_message(SYSTEM_PROMPT, "system", system_prompt))
    for name in _ordered(contexts):
        if contexts[name]:
            messages.append(_text_message(name, "system", contexts[name]))
    messages += checkpoint_messages
    if query:
        messages.append(_text_message("query", "user", query))
    return messages


def _ordered(contexts: Mapping[str, str]) -> list[str]:
    for name in contexts:
        if not name.endswith(SUFFIX):
            raise InvalidInput(
                f"the layer {name!r} does not end in {SUFFIX!r}", hint=f"name it {name + SUFFIX!r}"
            )
    known = [name for name in CONTEXT_LAYERS if name in contexts]
    return known + sorted(name for name in contexts if name not in CONTEXT_LAYERS)


def _text_message(layer: str, role: str, text: str) -> Message:
    return Message(layer=layer, body={"role": role, "content": text})
