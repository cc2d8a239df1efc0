"""The layers of a request: the ContextCollector finds their texts, the ContextComposer orders the messages.

The collector takes the cards of boxes and the providers that search for more, gives texts under names that
end in `__context`, and says why some have none; it asks a provider only for what was asked for by name. The
composer knows the one order of messages. Neither writes anything; without providers both are pure.
"""

import hashlib
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence, Set
from typing import Literal, Protocol

import msgspec

from cardbox_cli.context.messages import Message, PackedMessages
from cardbox_cli.context.parts import called_function, list_of, text_of
from cardbox_cli.errors import DuplicateQuery, InvalidInput
from cardbox_cli.model import exact_json, layers
from cardbox_cli.model.boxes import Slot
from cardbox_cli.model.card_types import CARD_TYPES, CHAT_MEMORY, CHAT_PERSONA, STORED_LAYER, SUMMARY
from cardbox_cli.model.cards import Card, card_text
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
from cardbox_cli.model.todo import TodoItem, todo_items
from cardbox_cli.text.escaping import indent_lines

# --- the texts of layers, as a model reads them


# Of one card a layer has so many characters at most: it is a hint, and the request holds more than it.
MAX_LAYER_CARD = 2000


def todo_text(items: Sequence[TodoItem]) -> str:
    """A todo list, a line for each item and further lines of it indented."""
    lines = [_entry(f"- [{'x' if item.done else ' '}] ", item.text) for item in items]
    return "\n".join(["Todo list:", *lines]) if lines else ""


def knowledge_text(query: str, cards: Sequence[Card]) -> str:
    """Return what was found for the words of `query`, each card's text cut at MAX_LAYER_CARD characters."""
    return _list_section(f"What this project knows about {exact_json.encode(query).decode()}:", cards)


def experience_text(cards: Sequence[Card]) -> str:
    """Return the results of earlier turns, each cut at MAX_LAYER_CARD characters."""
    return _list_section("Results of your earlier work, the newest first:", cards)


def _list_section(heading: str, cards: Iterable[Card]) -> str:
    # A last thought and the deliverable that was made of it have one text.
    texts = dict.fromkeys(text for text in map(_layer_text, cards) if text)
    entries = [_entry(f"[{number}] ", text) for number, text in enumerate(map(_bounded, texts), 1)]
    return "\n\n".join([heading, *entries]) if entries else ""


def _entry(mark: str, text: str) -> str:
    """`text` behind its mark, further lines below it: no line of it passes for one of another's."""
    return mark + indent_lines(text, " " * len(mark)).removeprefix(" " * len(mark))


def _layer_text(card: Card) -> str:
    functions = map(called_function, list_of(card.tool_calls))
    calls = (
        f"called {each.get('name')} with {each.get('arguments')}" for each in functions if each is not None
    )
    return "\n".join(filter(None, (card_text(card.content).strip(), *calls)))


def _bounded(text: str) -> str:
    more = len(text) - MAX_LAYER_CARD
    return text if more <= 0 else f"{text[:MAX_LAYER_CARD]}… (and {more:,} more characters)"


# --- the ContextCollector


# The key in the metadata of a stored layer that names it.
LAYER_KEY = "layer"

# The layers that boxes make without being asked, by the type of the cards that make them.
_MAKERS = {name: known.layer for name, known in CARD_TYPES.items() if known.layer is not None}

# Layers that are the texts of cards of one type, in their order.
_JOINED = {layers.PERSONA: CHAT_PERSONA, layers.MEMORY: CHAT_MEMORY, layers.COMPRESSION: SUMMARY}

# How many cards a search brings, and how many that the request holds anyway are passed over for them.
_FOUND, _PASSED_OVER = 5, 100


class KnowledgeProvider(Protocol):
    """Finds cards by words."""

    @property
    def refusal(self) -> str | None:
        """Why nothing may be looked for at all; None where it may."""

    def knowledge(self, query: str, limit: int, boxes: Sequence[str]) -> Sequence[Card]:
        """Cards of the project that fit the words, the newest first.

        `boxes` are those that are named for it: all that is looked at where the project wants that.
        """


class ExperienceProvider(Protocol):
    """Finds what came of earlier turns."""

    def experience(self, profile_box_id: str, limit: int) -> Sequence[Card]:
        """Deliverables of earlier turns with the same profile, the newest first."""


class Layer(msgspec.Struct, frozen=True, kw_only=True):
    """The text of a layer, and the cards that it was made of, if any."""

    name: str
    text: str
    card_ids: list[str] = []

    @property
    def sha256(self) -> str:
        """The hash of its text: what is kept of a layer that lives for one call."""
        return hashlib.sha256(self.text.encode("utf-8", "surrogatepass")).hexdigest()


class LayerLeftOut(msgspec.Struct, frozen=True, kw_only=True):
    """A layer that could have been, and why it is not."""

    layer: str
    reason: str


class Collected(msgspec.Struct, frozen=True, kw_only=True):
    """What was collected, in no particular order, and what was not."""

    layers: list[Layer]
    left_out: list[LayerLeftOut]

    @property
    def contexts(self) -> dict[str, str]:
        return {layer.name: layer.text for layer in self.layers}


class Collecting(msgspec.Struct, frozen=True, kw_only=True):
    """What layers are collected for.

    The places of items of todo lists, the `makers`, which are cards that layers are made of, the ids of all
    cards that are `held`, their types, and the box of the profile; who asks for which; the kind of process;
    and the one switch of sharing, None where nobody set it.
    """

    todo: Sequence[Slot]
    makers: Sequence[Card]
    held: Set[str]
    types: Set[str]
    profile_box_id: str | None
    here: layers.LayerRequest
    by_profile: layers.LayerRequest
    process: layers.Process
    share: bool | None


class ContextCollector:
    """Collects layers. A provider that is None finds nothing."""

    def __init__(
        self, *, knowledge: KnowledgeProvider | None = None, experience: ExperienceProvider | None = None
    ) -> None:
        self._knowledge = knowledge
        self._experience = experience

    def collect(self, wanted: Collecting) -> Collected:
        """The layers that are wanted and may be had.

        Raises InvalidInput for a name that is no layer's, and for one that the process cannot have.
        """
        found: list[Layer] = []
        left_out: list[LayerLeftOut] = []
        for name in _candidates(wanted):
            reason = _refusal(wanted, name) or self._closed(wanted, name)
            layer = Layer(name=name, text="") if reason else self._layer(wanted, name)
            if layer.text:
                found.append(layer)
            else:
                left_out.append(LayerLeftOut(layer=name, reason=reason or "nothing was found"))
        return Collected(layers=found, left_out=left_out)

    def _layer(self, wanted: Collecting, name: str) -> Layer:
        """The layer from whoever is nearest: the caller, the profile, an earlier request, the cards."""
        for asked in (wanted.here, wanted.by_profile):
            if name in asked.texts:
                return Layer(name=name, text=asked.texts[name])
            if name in asked.names and name in layers.COLLECTIBLE_LAYERS:
                return self._collected(wanted, name, asked.knowledge)
        return _stored_layer(wanted.makers, name) or self._collected(wanted, name, None)

    def _closed(self, wanted: Collecting, name: str) -> str | None:
        """Why knowledge may not be looked for, where nobody gives its text."""
        if name != layers.KNOWLEDGE or self._knowledge is None:
            return None
        is_given = name in wanted.here.texts or name in wanted.by_profile.texts
        return None if is_given else self._knowledge.refusal

    def _collected(self, wanted: Collecting, name: str, words: str | None) -> Layer:
        cards: Sequence[Card] = []
        text = ""
        if name == layers.KNOWLEDGE and words is not None and self._knowledge is not None:
            named = [*wanted.here.knowledge_boxes, *wanted.by_profile.knowledge_boxes]
            cards = _new(self._knowledge.knowledge(words, _asked_of(wanted), named), wanted)
            text = knowledge_text(words, cards)
        elif name == layers.EXPERIENCE and wanted.profile_box_id is not None and self._experience is not None:
            cards = _new(self._experience.experience(wanted.profile_box_id, _asked_of(wanted)), wanted)
            text = experience_text(cards)
        elif name == layers.TODO:
            items = todo_items(wanted.todo)
            return Layer(name=name, text=todo_text(items), card_ids=[item.card_id for item in items])
        elif name in _JOINED:
            cards = _cards_by_type(wanted.makers, _JOINED[name])
            text = "\n\n".join(card_text(card.content) for card in cards)
        return Layer(name=name, text=text, card_ids=[card.card_id for card in cards])


# Collects from the cards of the boxes, and searches nowhere.
WITHOUT_PROVIDERS = ContextCollector()


def _candidates(wanted: Collecting) -> Iterator[str]:
    """The layers that somebody asks for, or that the cards themselves bring, in order."""
    asked = wanted.here.names | wanted.by_profile.names
    kept = _cards_by_type(wanted.makers, STORED_LAYER) if STORED_LAYER in wanted.types else []
    brought = {name for card in kept if (name := kept_layer(card)) is not None}
    brought.update(layer for card_type, layer in _MAKERS.items() if card_type in wanted.types)
    for name in sorted(asked):
        layers.check_layer(name)
    known = [name for name in layers.CONTEXT_LAYERS if name in asked or name in brought]
    yield from (*known, *sorted((asked | brought).difference(layers.CONTEXT_LAYERS)))


def _refusal(wanted: Collecting, name: str) -> str | None:
    """Why `name` may not be had; None for one that may. Raises InvalidInput where it was asked for here."""
    process = wanted.process
    if not process.allows(name):
        if name in wanted.here.names:
            may_have = " and ".join((layers.FRAMEWORK, *(process.on_request or ())))
            raise InvalidInput(
                f"the layer {name!r} is asked for, and a {process.name} cannot have it",
                hint=f"leave it out, or name another --process; it may have {may_have}",
            )
        return f"the process {process.name} cannot have it"
    if name in layers.ALWAYS_INCLUDED or name in wanted.here.names:
        return None
    shares = process.shares if wanted.share is None else wanted.share
    is_requested = wanted.share is None and name in wanted.by_profile.names
    return None if shares or is_requested else "layers are not shared"


def _stored_layer(cards: Sequence[Card], name: str) -> Layer | None:
    """The layer as an earlier request had it, where the boxes keep that."""
    card = next((card for card in reversed(cards) if kept_layer(card) == name), None)
    if card is None:
        return None
    return Layer(name=name, text=card_text(card.content), card_ids=[card.card_id])


def kept_layer(card: Card) -> str | None:
    """The layer of an earlier request that a card keeps, as far as it names one."""
    name = card.metadata.get(LAYER_KEY) if card.type == STORED_LAYER else None
    return name if isinstance(name, str) and layers.is_layer(name) else None


def _asked_of(wanted: Collecting) -> int:
    return _FOUND + min(len(wanted.held), _PASSED_OVER)


def _new(found: Sequence[Card], wanted: Collecting) -> list[Card]:
    """What was found and is not in the request anyway."""
    return [card for card in found if card.card_id not in wanted.held][:_FOUND]


def _cards_by_type(cards: Sequence[Card], card_type: str) -> list[Card]:
    return [card for card in cards if card.type == card_type]


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
    layers = {name: _layer_message(name, "system", text) for name, text in contexts.items() if text}
    prompt = [_layer_message(SYSTEM_PROMPT, "system", system_prompt)] if system_prompt else []
    asked = [_layer_message(QUERY, "user", query)] if query else []
    behind = {*(PER_CALL if layout == "cache" else ()), *([COMPRESSION] if compression == "after" else ())}
    return _arrange(prompt, layers, checkpoint_messages, asked, behind)


def add_missing_layers(messages: _Messages, contexts: Mapping[str, str], layout: Layout) -> _Messages:
    """Composed messages with layers that they lack, each where `compose` puts it."""
    parts: dict[str, list[Message]] = {SYSTEM_PROMPT: [], CHECKPOINT: [], QUERY: []}
    layers = {name: _layer_message(name, "system", text) for name, text in contexts.items()}
    for message in messages:
        if message.layer in parts:
            parts[message.layer].append(message)
        else:
            layers[message.layer] = message
    behind = PER_CALL if layout == "cache" else ()
    return _arrange(parts[SYSTEM_PROMPT], layers, parts[CHECKPOINT], parts[QUERY], behind)


def _arrange(
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
        return history.surround(before, after)
    return [*before, *history, *after]


def _layer_message(layer: str, role: str, text: str) -> Message:
    return Message(layer=layer, body={"role": role, "content": text})


def _ends_with(history: Sequence[Message], query: str) -> bool:
    if not history or history[-1].body.get("role") != "user":
        return False
    content = history[-1].body.get("content")
    text = content if isinstance(content, str) else text_of(list_of(content))
    return text.strip() == query.strip()
