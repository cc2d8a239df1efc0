"""From the cards of boxes to one LLM request: system prompt, tools, layers and history.

What each card brings is found out by `taking_in`. Which texts the layers get is the collector's business,
which order the parts take the composer's, which form messages have that of `providers/`. Pure as long as the
collector has no providers.
"""

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from cardbox_cli.context.collector import WITHOUT_PROVIDERS, Collecting, ContextCollector, Layer, LayerLeftOut
from cardbox_cli.context.composer import compose
from cardbox_cli.context.messages import Message
from cardbox_cli.context.parts import text_at
from cardbox_cli.context.taking_in import (
    OUTPUT,
    TURN,
    Conversation,
    Encode,
    EveryCard,
    Omitted,
    OnlyMessages,
    RequestEntry,
    TakenIn,
    is_packed,
    profile_in,
    take_in,
)
from cardbox_cli.model.cards import Card
from cardbox_cli.model.layers import SYSTEM_PROMPT, Asked, Layout, ProcessName, asked_by, process_of

__all__ = [
    "DEFAULT_OPTIONS",
    "OUTPUT",
    "TURN",
    "ComposeOptions",
    "Encode",
    "Omitted",
    "Request",
    "RequestEntry",
    "is_packed",
    "model_of",
    "no_history",
    "profile_of",
    "request_of",
    "request_to_send",
]


class ComposeOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a request shall be composed, as far as somebody asks for it; the profile is asked for the rest.

    `share` is the switch of sharing, as the caller or else the project sets it.
    """

    model: str | None = None
    process: ProcessName | None = None
    share: bool | None = None
    layout: Layout | None = None
    asked: Asked = Asked()
    query: str | None = None


DEFAULT_OPTIONS = ComposeOptions()


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One LLM request before a provider's body is made of it: its messages are in a format, no more.

    `tools` are as they are stored, `config` is the profile's llm_config. `layers` are the texts that were
    composed, `places` has the place of each card that was taken in, `profile_id` names that of the profile.
    A request that was made to be sent, of boxes too long to hold, keeps few of the places, and of what is
    `left_out` only what is no card.
    `lost_layers` are texts that were sent and cannot be had, by their layers: their SHA-256. No message is
    made of them.
    """

    messages: Sequence[Message]
    tools: list[dict[str, Any]]
    model: str | None
    config: dict[str, Any]
    process: ProcessName
    layout: Layout
    layers: list[Layer]
    layers_left_out: list[LayerLeftOut]
    left_out: list[Omitted]
    places: dict[str, RequestEntry]
    profile_id: str | None
    lost_layers: dict[str, str] = {}

    @property
    def makers(self) -> dict[str, list[str]]:
        """The cards that each layer, and the system prompt, was made of."""
        of_prompt = [] if self.profile_id is None else [self.profile_id]
        return {SYSTEM_PROMPT: of_prompt} | {layer.name: layer.card_ids for layer in self.layers}


def request_of(
    entries: Iterable[RequestEntry],
    options: ComposeOptions = DEFAULT_OPTIONS,
    *,
    encode: Encode,
    collector: ContextCollector = WITHOUT_PROVIDERS,
    own: Container[str] = (),
    takes_all: bool = False,
) -> Request:
    """The request that the cards of boxes make, in their order; a card counts once, at its first place.

    `encode` makes a card a message in some format. A process that takes no history gets what was packed for
    it, and the cards of `own`: what the turn has done itself; `takes_all` gives it all there is. System texts
    come from the profile, the layers and what was put into the boxes: a card that a turn wrote is the user's
    where it would be one.

    Raises InvalidInput for layers that are asked for and cannot be had, DuplicateQuery for a query that the
    history ends with.
    """
    conversation = EveryCard(encode, own)
    taken = take_in(entries, conversation, own)
    return _composed(taken, conversation, options, collector, takes_all)


def request_to_send(
    entries: Iterable[RequestEntry],
    options: ComposeOptions = DEFAULT_OPTIONS,
    *,
    encode: Encode,
    collector: ContextCollector = WITHOUT_PROVIDERS,
    keep: Callable[[Card], bool],
) -> Request:
    """`request_of` of places that are read one by one and not held: its messages are packed.

    Of its places those are left whose cards `keep` tells. Raises as `request_of`.
    """
    conversation = OnlyMessages(encode, keep)
    return _composed(take_in(entries, conversation), conversation, options, collector, takes_all=False)


def _composed(
    taken: TakenIn,
    conversation: Conversation,
    options: ComposeOptions,
    collector: ContextCollector,
    takes_all: bool,
) -> Request:
    by, profile = taken.profile or (None, {})
    process = process_of(options.process or profile.get("process"))
    collected = collector.collect(
        Collecting(
            todo=taken.todo,
            makers=taken.makers,
            held=taken.held,
            types=taken.types,
            profile_box_id=None if by is None else by.box_id,
            here=options.asked,
            by_profile=asked_by(profile),
            process=process,
            share=options.share,
        )
    )
    is_whole = takes_all or process.takes_history
    history, without_message = conversation.messages(None if is_whole else no_history(process.name))
    layout: Layout = "cache" if (options.layout or profile.get("layout")) == "cache" else "default"
    return Request(
        messages=compose(
            system_prompt=text_at(profile, "system_prompt") or text_at(profile, "system_prompt_template"),
            checkpoint_messages=history,
            contexts=collected.contexts,
            query=options.query,
            layout=layout,
        ),
        tools=taken.tools,
        model=options.model or model_of(profile),
        config=_config(profile),
        process=process.name,
        layout=layout,
        layers=collected.layers,
        layers_left_out=collected.left_out,
        left_out=taken.left_out + without_message,
        places=taken.places,
        profile_id=None if by is None else by.slot.card_id,
    )


def no_history(process: ProcessName) -> str:
    """Why a card of a conversation is left out of the request of such a process."""
    return f"history, and a {process} takes none"


# --- what the profile holds


def profile_of(cards: Iterable[Card]) -> dict[str, Any]:
    """The first profile among these cards; {} where there is none."""
    return next((data for data in map(profile_in, cards) if data is not None), {})


def model_of(profile: Mapping[str, Any]) -> str | None:
    """The model that a profile names."""
    return text_at(_config(profile), "model") or None


def _config(profile: Mapping[str, Any]) -> dict[str, Any]:
    config = profile.get("llm_config")
    return config if isinstance(config, dict) else {}
