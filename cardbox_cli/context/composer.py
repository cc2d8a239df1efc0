"""The layers of a request: the ContextCollector finds their texts, `compose` orders the messages.

The collector gets the cards of boxes, and providers that search for more cards. It returns texts under names
that end in `__context`, and the reason for each layer without a text. It asks a provider only for layers that
were requested by name. Nothing here writes; without providers everything is pure.
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
from cardbox_cli.model.todo import TodoItem, todo_items
from cardbox_cli.text.escaping import indent_lines

# --- the texts of layers, as a model reads them


# The maximum of characters of one card in a layer: it is a hint, and only a part of the request.
MAX_LAYER_CARD = 2000


def todo_text(items: Sequence[TodoItem]) -> str:
    """Format a todo list with one entry per item. Further lines of an item's text are indented."""
    lines = [_entry(f"- [{'x' if item.done else ' '}] ", item.text) for item in items]
    return "\n".join(["Todo list:", *lines]) if lines else ""


def knowledge_text(query: str, cards: Sequence[Card]) -> str:
    """Format the cards found for `query`, each card's text cut at MAX_LAYER_CARD characters."""
    return _list_section(f"What this project knows about {exact_json.encode(query).decode()}:", cards)


def experience_text(cards: Sequence[Card]) -> str:
    """Format the results of earlier turns, each cut at MAX_LAYER_CARD characters."""
    return _list_section("Results of your earlier work, the newest first:", cards)


def _list_section(heading: str, cards: Iterable[Card]) -> str:
    # A deliverable often repeats the last thought of its turn; list each text once.
    texts = dict.fromkeys(text for text in map(_layer_text, cards) if text)
    entries = [_entry(f"[{number}] ", text) for number, text in enumerate(map(_cut_text, texts), 1)]
    return "\n\n".join([heading, *entries]) if entries else ""


def _entry(mark: str, text: str) -> str:
    """Put `mark` before `text`. Its further lines are indented, so that none looks like a new entry."""
    return mark + indent_lines(text, " " * len(mark)).removeprefix(" " * len(mark))


def _layer_text(card: Card) -> str:
    functions = map(called_function, list_of(card.tool_calls))
    calls = (
        f"called {each.get('name')} with {each.get('arguments')}" for each in functions if each is not None
    )
    return "\n".join(filter(None, (card_text(card.content).strip(), *calls)))


def _cut_text(text: str) -> str:
    more = len(text) - MAX_LAYER_CARD
    return text if more <= 0 else f"{text[:MAX_LAYER_CARD]}… (and {more:,} more characters)"


# --- the ContextCollector


# The metadata key that holds the name of a stored layer.
LAYER_KEY = "layer"

# Maps a card type to the layer that its cards add to a request even if nobody requests the layer.
_MAKERS = {name: known.layer for name, known in CARD_TYPES.items() if known.layer is not None}

# Maps a layer to a card type. The layer's text joins the texts of all cards of this type, in their order.
_JOINED = {layers.PERSONA: CHAT_PERSONA, layers.MEMORY: CHAT_MEMORY, layers.COMPRESSION: SUMMARY}

# A search adds at most _MAX_FOUND cards. It reads at most _MAX_SKIPPED more, to skip cards of the request.
_MAX_FOUND, _MAX_SKIPPED = 5, 100


class KnowledgeProvider(Protocol):
    @property
    def refusal(self) -> str | None:
        """The reason why searches are not allowed, or None."""

    def knowledge(self, query: str, limit: int, boxes: Sequence[str]) -> Sequence[Card]:
        """Return cards of the project that match `query`, newest first. A project can limit the search to the
        boxes that `boxes` names."""


class ExperienceProvider(Protocol):
    def experience(self, profile_box_id: str, limit: int) -> Sequence[Card]:
        """Return deliverables of earlier turns with the same profile, the newest first."""


class Layer(msgspec.Struct, frozen=True, kw_only=True):
    """The text of a layer, and the cards that made it, if any."""

    name: str
    text: str
    card_ids: list[str] = []

    @property
    def sha256(self) -> str:
        """The hash of the text. For a layer that exists for one call only, cbx stores nothing else."""
        return hashlib.sha256(self.text.encode("utf-8", "surrogatepass")).hexdigest()


class LayerLeftOut(msgspec.Struct, frozen=True, kw_only=True):
    layer: str
    reason: str


class CollectedLayers(msgspec.Struct, frozen=True, kw_only=True):
    """The collected layers and those left out, in no particular order."""

    layers: list[Layer]
    left_out: list[LayerLeftOut]

    @property
    def contexts(self) -> dict[str, str]:
        return {layer.name: layer.text for layer in self.layers}


class LayerSources(msgspec.Struct, frozen=True, kw_only=True):
    """The input of the collector.

    `todo` has the slots of todo items, `makers` the cards that make layers, and `held` the ids of all cards.
    `here` is the caller's request and `by_profile` the profile's. `share` turns sharing of layers on or off;
    None leaves it to the process and the profile.
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
    """A collector of layers. A provider that is None finds nothing."""

    def __init__(
        self, *, knowledge: KnowledgeProvider | None = None, experience: ExperienceProvider | None = None
    ) -> None:
        self._knowledge = knowledge
        self._experience = experience

    def collect(self, sources: LayerSources) -> CollectedLayers:
        """Return the requested layers that the process can have. Raises InvalidInput if a layer is unknown,
        or if the caller requests a layer that the process cannot have."""
        collected: list[Layer] = []
        left_out: list[LayerLeftOut] = []
        for name in _candidates(sources):
            reason = _refusal(sources, name) or self._closed(sources, name)
            layer = Layer(name=name, text="") if reason else self._layer(sources, name)
            if layer.text:
                collected.append(layer)
            else:
                left_out.append(LayerLeftOut(layer=name, reason=reason or "nothing was found"))
        return CollectedLayers(layers=collected, left_out=left_out)

    def _layer(self, sources: LayerSources, name: str) -> Layer:
        """Return the layer from the first source that has it: caller, profile, earlier request, cards."""
        for asked in (sources.here, sources.by_profile):
            if name in asked.texts:
                return Layer(name=name, text=asked.texts[name])
            if name in asked.names and name in layers.COLLECTIBLE_LAYERS:
                return self._collected(sources, name, asked.knowledge)
        return _stored_layer(sources.makers, name) or self._collected(sources, name, None)

    def _closed(self, sources: LayerSources, name: str) -> str | None:
        if name != layers.KNOWLEDGE or self._knowledge is None:
            return None
        is_given = name in sources.here.texts or name in sources.by_profile.texts
        return None if is_given else self._knowledge.refusal

    def _collected(self, sources: LayerSources, name: str, words: str | None) -> Layer:
        cards: Sequence[Card] = []
        text = ""
        box_id = sources.profile_box_id
        limit = _MAX_FOUND + min(len(sources.held), _MAX_SKIPPED)
        if name == layers.KNOWLEDGE and words is not None and self._knowledge is not None:
            named = [*sources.here.knowledge_boxes, *sources.by_profile.knowledge_boxes]
            cards = _drop_held(self._knowledge.knowledge(words, limit, named), sources)
            text = knowledge_text(words, cards)
        elif name == layers.EXPERIENCE and box_id is not None and self._experience is not None:
            cards = _drop_held(self._experience.experience(box_id, limit), sources)
            text = experience_text(cards)
        elif name == layers.TODO:
            items = todo_items(sources.todo)
            return Layer(name=name, text=todo_text(items), card_ids=[item.card_id for item in items])
        elif name in _JOINED:
            cards = _cards_by_type(sources.makers, _JOINED[name])
            text = "\n\n".join(card_text(card.content) for card in cards)
        return Layer(name=name, text=text, card_ids=[card.card_id for card in cards])


# A collector that uses only the cards of the boxes and never searches.
WITHOUT_PROVIDERS = ContextCollector()


def _candidates(sources: LayerSources) -> Iterator[str]:
    """Yield the names of the layers that are requested or made by cards. Known layers come first."""
    asked = sources.here.names | sources.by_profile.names
    kept = _cards_by_type(sources.makers, STORED_LAYER) if STORED_LAYER in sources.types else []
    brought = {name for card in kept if (name := kept_layer(card)) is not None}
    brought.update(layer for card_type, layer in _MAKERS.items() if card_type in sources.types)
    for name in sorted(asked):
        layers.check_layer(name)
    known = [name for name in layers.CONTEXT_LAYERS if name in asked or name in brought]
    yield from (*known, *sorted((asked | brought).difference(layers.CONTEXT_LAYERS)))


def _refusal(sources: LayerSources, name: str) -> str | None:
    """Return why the layer `name` is left out, or None. Raises InvalidInput if the caller requested it."""
    process = sources.process
    if not process.allows(name):
        if name in sources.here.names:
            may_have = " and ".join((layers.FRAMEWORK, *(process.on_request or ())))
            raise InvalidInput(
                f"the process {process.name} cannot have the requested layer {name!r}",
                hint=f"omit the layer, or pass another --process; {process.name} may have {may_have}",
            )
        return f"the process {process.name} cannot have it"
    if name in layers.ALWAYS_INCLUDED or name in sources.here.names:
        return None
    shares = process.shares if sources.share is None else sources.share
    is_requested = sources.share is None and name in sources.by_profile.names
    return None if shares or is_requested else "layers are not shared"


def _stored_layer(cards: Sequence[Card], name: str) -> Layer | None:
    """Return the layer that an earlier request stored as a card, or None if the boxes hold no such card."""
    card = next((card for card in reversed(cards) if kept_layer(card) == name), None)
    if card is None:
        return None
    return Layer(name=name, text=card_text(card.content), card_ids=[card.card_id])


def kept_layer(card: Card) -> str | None:
    """Return the name of the layer that a card stores from an earlier request, or None for other cards."""
    name = card.metadata.get(LAYER_KEY) if card.type == STORED_LAYER else None
    return name if isinstance(name, str) and layers.is_layer(name) else None


def _drop_held(cards: Sequence[Card], sources: LayerSources) -> list[Card]:
    return [card for card in cards if card.card_id not in sources.held][:_MAX_FOUND]


def _cards_by_type(cards: Sequence[Card], card_type: str) -> list[Card]:
    return [card for card in cards if card.type == card_type]


# The layers that change with each call. The layout "cache" puts them after the history.
PER_CALL = (layers.EXPERIENCE, layers.KNOWLEDGE, layers.TODO)

_Messages = Sequence[Message]


def compose(
    *,
    system_prompt: str | None,
    checkpoint_messages: Sequence[Message],
    contexts: Mapping[str, str],
    query: str | None,
    layout: layers.Layout = "default",
    compression: Literal["before", "after"] = "before",
) -> _Messages:
    """Return the messages of one LLM call. Empty layers make no message. Unknown layers follow the known
    ones, sorted by name.

    The layout "cache" puts layers that change with each call between the history and the query, to keep
    the cached prefix long. `compression` puts the summary before or after the history.

    Raises InvalidInput if a layer's name does not end in `__context`, and DuplicateQuery if the history
    already ends with the query.
    """
    for name in contexts:
        layers.check_layer(name)
    if query and _ends_with(checkpoint_messages, query):
        raise DuplicateQuery(
            "the query repeats the last user message of the history",
            hint="omit the query: the history already contains it",
        )
    by_layer = {name: _layer_message(name, "system", text) for name, text in contexts.items() if text}
    prompt = [_layer_message(layers.SYSTEM_PROMPT, "system", system_prompt)] if system_prompt else []
    last = [_layer_message(layers.QUERY, "user", query)] if query else []
    late = {
        *(PER_CALL if layout == "cache" else ()),
        *([layers.COMPRESSION] if compression == "after" else ()),
    }
    return _arrange(prompt, by_layer, checkpoint_messages, last, late)


def add_missing_layers(messages: _Messages, contexts: Mapping[str, str], layout: layers.Layout) -> _Messages:
    """Return composed messages with layers that they lack, each where `compose` puts it."""
    parts: dict[str, list[Message]] = {layers.SYSTEM_PROMPT: [], layers.CHECKPOINT: [], layers.QUERY: []}
    by_layer = {name: _layer_message(name, "system", text) for name, text in contexts.items()}
    for message in messages:
        if message.layer in parts:
            parts[message.layer].append(message)
        else:
            by_layer[message.layer] = message
    prompt, history, query = parts.values()
    return _arrange(prompt, by_layer, history, query, PER_CALL if layout == "cache" else ())


def _arrange(
    prompt: _Messages,
    by_layer: Mapping[str, Message],
    history: _Messages,
    query: _Messages,
    late: Container[str],
) -> _Messages:
    known = [name for name in layers.CONTEXT_LAYERS if name in by_layer]
    names = [*known, *sorted(by_layer.keys() - set(layers.CONTEXT_LAYERS))]
    before = [*prompt, *(by_layer[name] for name in names if name not in late)]
    after = [*(by_layer[name] for name in names if name in late), *query]
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
