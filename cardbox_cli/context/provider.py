"""Base classes of providers: the methods that cbx needs to send, check, compare and read a provider's format.

A provider's package (`providers/<name>/`) overrides the methods that differ. Formats are converted to each
other through the chat form (`context/messages`). This module names no provider: the registry lists them.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeAlias

import msgspec

from cardbox_cli.context.messages import NOT_IN_CHAT, Message, NoMessage, standard_body
from cardbox_cli.context.sources import BLOCKS, FAILED, MESSAGE
from cardbox_cli.model.cards import Card, CardDraft
from cardbox_cli.model.content import ToolResultContent
from cardbox_cli.model.tokens import ESTIMATING_TOKENIZER, Tokenizer, encoding_tokenizer

if TYPE_CHECKING:
    from cardbox_cli.context.lint.rule import LintRule
    from cardbox_cli.context.request import Request
    from cardbox_cli.context.request_schema import Schema

Body: TypeAlias = dict[str, Any]
# The keys of a body with their values. An iterator as a value means a list.
Members: TypeAlias = Iterable[tuple[str, Any]]
AnyCard: TypeAlias = Card | CardDraft
# Takes the ids of a message's calls ("" for a missing id), and returns the ids to store the calls under.
OwnIds: TypeAlias = Callable[[Sequence[str]], list[str]]


class RenamedCall(msgspec.Struct, frozen=True, kw_only=True):
    """A tool call that is sent with another id than its card has."""

    card_id: str | None
    old: str
    new: str


class SentMessage(NamedTuple):
    """A message, or a part of one, as it is sent. `number` counts the messages of its section from 1.
    `places` has the indexes of the request's messages that it was made of."""

    section: Literal["system", "messages"]
    number: int
    body: Body
    places: list[int]


class ExchangedIds(NamedTuple):
    """The ids of the calls that a sent message makes and that it answers. A missing id is ""."""

    calls: Sequence[str] = ()
    answers: Sequence[str] = ()


class ModelFacts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Facts about a model. None means unknown. The head of `providers/models.toml` explains each key."""

    window: int | None = None
    max_output: int | None = None
    max_output_outside_batches: int | None = None
    tokenizer: str | None = None
    documents_overhead: bool | None = None
    efforts: tuple[str, ...] | None = None
    reasoning: Literal["always", "optional", "never"] | None = None
    thinking: tuple[Literal["enabled", "adaptive"], ...] | None = None
    vision: bool | None = None
    audio: bool | None = None
    web_search: bool | None = None
    tools: bool | None = None
    json_schema: bool | None = None
    stop: bool | None = None
    system: bool | None = None
    system_in_history: bool | None = None
    user_first: bool | None = None
    prefill: bool | None = None
    sampling: bool | None = None
    temperature_and_top_p: bool | None = None

    @property
    def is_known(self) -> bool:
        return self != UNKNOWN_MODEL

    @property
    def counter(self) -> Tokenizer:
        """The model's tokenizer if it is known and installed, else an estimate."""
        return ESTIMATING_TOKENIZER if self.tokenizer is None else encoding_tokenizer(self.tokenizer)

    def reasons(self, effort: Any) -> bool:
        """Return whether the model is known to reason at `effort` (None if no effort is requested)."""
        return self.reasoning == "always" or (self.reasoning == "optional" and effort not in (None, "none"))


UNKNOWN_MODEL = ModelFacts()


class Registry(Protocol):
    def providers(self) -> Iterable["Provider"]: ...

    def facts(self, model: str | None) -> ModelFacts: ...

    def model_provider(self, model: str | None) -> str | None: ...


class Provider(ABC):
    """A provider's format.

    `title` is the provider's name in sentences, `sends` names the body of a request. `message_keys` are the
    keys of the body that hold messages; the key of the list is last. `cached_parameters` precede the messages
    in a prefix cache. `temperature_path` is the dotted name of the temperature, which is at most
    `max_temperature`. `schema_package` contains `request_schema.json`, if a schema is published. If
    `has_failures`, results have a field for the failure of a tool. If `keeps_late_system`, system text stays
    within the history if the model allows it.
    """

    name: str
    title: str
    sends: str
    has_failures = False
    keeps_late_system = False
    message_keys: Sequence[str] = ("system", "messages")
    cached_parameters: Sequence[str] = ()
    max_temperature = 2
    temperature_path = "temperature"
    schema_package: str | None = None
    files_class: "type[MessageFiles]"
    answers_class: "type[AnswerReader] | None" = None

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    @property
    def format(self) -> str:
        """The name of the request format. A host uses the format of the provider whose models it serves."""
        return self.name

    # --- cards

    @abstractmethod
    def encode(self, card: Card) -> Body | NoMessage:
        """Return the message of a card, or the reason why the card makes no message."""

    def chat_original(self, card: AnyCard) -> Body | None:
        """Return the original of a card imported from this format as a chat message, else None."""
        return None

    def keeps_failure(self, card: AnyCard) -> bool:
        """Return whether a card stores an original of this format that marks the tool's result as failed."""
        return False

    def losses_to_chat(self, card: Card) -> Iterable[str]:
        """Yield the losses of converting a card's original of this format to the chat form."""
        return ()

    def losses_from_chat(self, card: Card) -> Iterable[str]:
        """Yield the losses of converting a card's chat message to this format."""
        return ()

    # --- requests

    @abstractmethod
    def members(self, request: "Request") -> Members:
        """Yield the JSON body of a request key by key. The key of the model is missing if it is unknown.

        The messages come from `encode`. A list may be given as an iterator, so that a long history need not
        be in memory as a whole.
        """

    def body(self, request: "Request") -> Body:
        return {
            key: list(value) if isinstance(value, Iterator) else value for key, value in self.members(request)
        }

    def losses_in_request(self, request: "Request") -> Iterable[tuple[str | None, str]]:
        """Yield the losses that depend on the whole request, each with the id of its card."""
        return ()

    def renamed_calls(self, messages: Sequence[Message]) -> Sequence[RenamedCall]:
        return ()

    def exchanged_ids(self, body: Body) -> ExchangedIds:
        return ExchangedIds()

    def steps(self, messages: Sequence[Message]) -> list[int]:
        """Return the step number of each message. A result must be in the step after its call. Adjacent
        messages of one role share a step. System text may be moved, so its number is -1."""
        numbers: list[int] = []
        number, before = 0, None
        for message in messages:
            role = message.body["role"]
            if role != "system":
                number += role != before
                before = role
            numbers.append(-1 if role == "system" else number)
        return numbers

    @abstractmethod
    def sent_messages(self, request: "Request") -> Iterable[SentMessage]:
        """Yield the messages of a request as they are sent, in the order of a prefix cache."""

    # --- tools

    def runs_tool(self, tool: Mapping[str, Any]) -> bool:
        """Return whether this provider is the only one that runs or knows `tool`."""
        return False

    def offered_tools(self, request: "Request") -> list[dict[str, Any]]:
        """Return the tools of a request, without the tools that only another provider runs."""
        others = [each for each in self._registry.providers() if each.format != self.format]
        return [
            tool
            for tool in request.tools
            if self.runs_tool(tool) or not any(each.runs_tool(tool) for each in others)
        ]

    def split_tools(self, body: Body) -> tuple[list[Any], Body]:
        """Return the tools of a body, one for each offered tool, and the rest of the body."""
        return body.get("tools", []), {key: value for key, value in body.items() if key != "tools"}

    # --- what belongs to it

    @cached_property
    def files(self) -> "MessageFiles":
        """The reader and writer of files with messages of this provider."""
        return self.files_class(self)

    @cached_property
    def answers(self) -> "AnswerReader | None":
        """The reader of answers, or None if this provider answers in another provider's format."""
        return None if self.answers_class is None else self.answers_class(self)

    @abstractmethod
    def rules(self) -> "Sequence[LintRule]":
        """Return the lint rules for requests to this provider."""

    @property
    def schema(self) -> "Schema | None":
        """The table of request fields, or None if the provider has published no schema."""
        from cardbox_cli.context.request_schema import schema_of

        return None if self.schema_package is None else schema_of(self.schema_package)

    def facts(self, model: str | None) -> ModelFacts:
        return self._registry.facts(model)

    @property
    def models_of(self) -> str:
        return self.format

    def own_facts(self, model: str | None) -> ModelFacts:
        """Return the facts about a model of this provider. Returns UNKNOWN_MODEL for models of other
        providers, because a gateway may serve them differently."""
        is_own = self._registry.model_provider(model) in (None, self.models_of)
        return self.facts(model) if is_own else UNKNOWN_MODEL

    # --- the chat form of any card

    def peers(self) -> Iterable["Provider"]:
        return self._registry.providers()

    def chat_message(self, card: Card) -> Body | NoMessage:
        """Return the message of a card in the chat form, or the reason why the card makes no message."""
        return NOT_IN_CHAT.get(card.type) or self.chat_body(card)

    def chat_body(self, card: AnyCard) -> Body:
        """Return the chat message of a card: its imported original, or else a message made of its fields."""
        metadata = card.metadata
        if MESSAGE in metadata or BLOCKS in metadata:
            for each in self.peers():
                original = each.chat_original(card)
                if original is not None:
                    return original
        return standard_body(card)

    def is_failed(self, card: AnyCard) -> bool:
        content = card.content
        if type(content) is ToolResultContent:
            return content.status != "success"
        return self.is_failed_by_original(card)

    def is_failed_by_original(self, card: AnyCard) -> bool:
        """Return whether the metadata or the original of a card marks the tool's result as failed."""
        if FAILED in card.metadata:
            return card.metadata[FAILED] is True
        return BLOCKS in card.metadata and any(each.keeps_failure(card) for each in self.peers())


# --- files and answers


class MessageShape(msgspec.Struct, frozen=True):
    """A test that recognizes the messages of a format, and their key in a request.

    If `is_own`, no other format has such messages, so one message identifies the format. If `takes_text`, a
    string can replace the list of messages. If `takes_one`, one message can replace the list.
    """

    key: str
    is_message: Callable[[Any], bool]
    is_own: bool = False
    takes_text: bool = False
    takes_one: bool = False

    def alone(self, key: str, value: Any) -> list[Any] | None:
        """Return the messages if a single string or message replaces the list, else None."""
        if key != self.key:
            return None
        if self.takes_text and isinstance(value, str):
            return [value]
        is_one = self.takes_one and isinstance(value, dict) and self.is_message(value)
        return [{key: value}] if is_one else None


def has_role(value: Any) -> bool:
    """Return whether a value is an object with a role, as the messages of most formats are."""
    return isinstance(value, dict) and isinstance(value.get("role"), str)


CHAT_SHAPE = MessageShape("messages", has_role)


class MessageFiles(ABC):
    """A reader and writer of files with a list of a provider's messages.

    `roles` lists the roles of messages. `system_keys` hold a system prompt outside of the messages, the usual
    key first. `request_keys` occur only in requests to this provider. `endpoints` are the ends of request
    URLs. The lint examines the `parameters` of a request. `nested_parameters` are objects with parameters; an
    llm_config keeps only their keys that no other format has. If `checks_roles`, only `problem` decides
    whether a value is a message.
    """

    shape: MessageShape = CHAT_SHAPE
    roles: Sequence[str] = ()
    system_keys: Sequence[str] = ()
    nested_parameters: Sequence[str] = ()
    request_keys: Sequence[str] = ()
    endpoints: Sequence[str] = ()
    parameters: Sequence[str] = ()
    checks_roles = False

    def __init__(self, provider: Provider) -> None:
        self.provider = provider

    @property
    def keyspace(self) -> tuple[str, ...]:
        """The prefix of conversation keys. It makes two boxes of a file that is read in two formats."""
        return (self.provider.format,)

    # --- recognition

    def marks_beside(self, beside: Mapping[str, Any]) -> str | None:
        """Return a key of `beside` (the keys next to the messages) that only this format has, or None."""
        return None

    def marks_message(self, message: Any) -> str | None:
        """Return a property of `message` that only this format has, or None."""
        return None

    def problem(self, message: Any) -> str | None:
        """Return the reason why a value is not a message, or None if it is one. Does not check the role."""
        return None

    def is_exchange(self, part: Any) -> bool:
        """Return whether a content part is a call or a result in a form that only this provider writes."""
        return False

    # --- reading

    def gather(self, messages: Iterable[Any]) -> Iterator[tuple[int, Any]]:
        """Join messages that cbx stores as one. Yields each with the index of its first message."""
        return iter(enumerate(messages))

    def separate(self, message: Any) -> Sequence[Any]:
        """Return the messages that `gather` joined."""
        return (message,)

    @abstractmethod
    def draft(self, message: Any) -> list[CardDraft]:
        """Return the cards of a message, without ids."""

    def draft_system(self, key: str, value: Any) -> CardDraft:
        """Return the card of a system prompt that one of `system_keys` holds."""
        raise NotImplementedError

    @abstractmethod
    def keep_original(self, changed: CardDraft, original: CardDraft) -> CardDraft:
        """Return `changed` with the metadata of `original` that `export` needs to restore it."""

    def read_request(self, beside: Mapping[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """Return the llm_config and the tools of a request in the form that all providers' `members` take."""
        tools = beside.get("tools")
        config = {key: value for key, value in beside.items() if key != "tools"}
        return config, [tool for tool in tools if isinstance(tool, dict)] if isinstance(tools, list) else []

    # --- writing

    @abstractmethod
    def export(self, cards: Iterable[Card]) -> tuple[Body, Iterator[Any]]:
        """Return the other keys of the file, and the messages."""


class AnswerReader(ABC):
    """A reader of models' answers. `limits` has the finish reasons for answers that reached a token limit."""

    limits: Collection[str] = ()

    def __init__(self, provider: Provider) -> None:
        self.provider = provider

    @abstractmethod
    def is_response(self, value: Body) -> bool:
        """Return whether a value is a response that only this provider sends."""

    @abstractmethod
    def unwrap(self, response: Body) -> Body:
        """Return the message in a response. Raises MalformedAnswer if it has none."""

    @abstractmethod
    def cut_off(self, response: Body) -> str | None:
        """Return the reason why a response is incomplete, or None if it is complete."""

    def usage(self, response: Body) -> Any:
        return response.get("usage")

    def error(self, value: Body) -> str | None:
        """Return the error in a value if only this provider reports errors so. Not for `{"error": …}`."""
        return None

    def is_own(self, message: Body) -> bool:
        """Return whether `message`, without its response, can only be in this format."""
        return False

    def parts(self, message: Body) -> Any:
        return message.get("content")

    @abstractmethod
    def draft(self, message: Body, own_ids: OwnIds) -> list[CardDraft]:
        """Return the cards of a message, with the ids of `own_ids` for its calls. Raises MalformedAnswer."""
