"""What a provider's format is: one record of all that cbx must know to send, check, compare and read it.

The record is a value; what fills it stands in one folder for each provider, `providers/<name>/`, and is
found by `registry`. The form between cards and formats is the chat form (`context/messages`).
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec

from cardbox_cli.context.messages import Message, NoMessage
from cardbox_cli.context.request import Request
from cardbox_cli.model.cards import Card, CardDraft
from cardbox_cli.model.tokens import ESTIMATE, Tokenizer, bare_name

Body: TypeAlias = dict[str, Any]
# The keys of a body with their values, of which an iterator makes a list.
Members: TypeAlias = Iterable[tuple[str, Any]]
AnyCard: TypeAlias = Card | CardDraft
# Makes of the ids that the calls of a message have, "" for none, those that they are stored under.
OwnIds: TypeAlias = Callable[[Sequence[str]], list[str]]
# `-2024-08-06`, `@20250514`, `-0613`, `-latest`; behind it a gateway's own version, as in `-v1:0`.
_SNAPSHOT = re.compile(r"(?:[-@](?:\d{4}-\d\d-\d\d|\d{8}|\d{4}|latest))?(?:-v\d+(?::\d+)?)?$")


class RenamedCall(msgspec.Struct, frozen=True, kw_only=True):
    """A tool call that is sent under another id than its message has, and the card that makes it."""

    card_id: str | None
    old: str
    new: str


class SentMessage(NamedTuple):
    """A message, or a part of one, as it is sent: in which section of the body, its number there from 1, and
    the places of the messages that make it."""

    section: Literal["system", "messages"]
    number: int
    body: Body
    places: list[int]


class Exchanged(NamedTuple):
    """The ids of the calls that a message makes as it is sent, and of those that it answers; "" for none."""

    calls: Sequence[str] = ()
    answers: Sequence[str] = ()


class Models(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a provider's models, by their names as profiles have them.

    `holding` lists models by the tokens that they hold, as `bare_name` makes their names. `documents_costs`:
    whether the provider says what a plain message of the model costs beside its text.
    `keeps_system`: whether system text within a history is what the model is made for.
    """

    recognises: Callable[[str], bool]
    holding: Mapping[int, Collection[str]]
    bare_name: Callable[[str], str] = bare_name
    tokenizer: Callable[[str], Tokenizer] = lambda _: ESTIMATE
    documents_costs: Callable[[str], bool] = lambda _: False
    keeps_system: Callable[[str | None], bool] = lambda _: False

    def window(self, model: str) -> int | None:
        """How many tokens a model holds, None where that is not known.

        By the whole name but for the mark of a snapshot: what goes on in another way is another model.
        """
        names = (self.bare_name(model), self.plain_name(model))
        return next(
            (tokens for each in names for tokens, known in self.holding.items() if each in known), None
        )

    def plain_name(self, model: str) -> str:
        """A model's name without what a gateway puts before it, and without the mark of a snapshot."""
        return _SNAPSHOT.sub("", self.bare_name(model), count=1)


def plain_request(beside: Mapping[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The parameters and the tools of a request that has them by the names that an llm_config has."""
    tools = beside.get("tools")
    config = {key: value for key, value in beside.items() if key != "tools"}
    return config, [tool for tool in tools if isinstance(tool, dict)] if isinstance(tools, list) else []


def plain_tools(body: Body) -> tuple[list[Any], Body]:
    """The tools of a body that has them as a list of their own, and the body without them."""
    return body.get("tools", []), {key: value for key, value in body.items() if key != "tools"}


class MessageShape(msgspec.Struct, frozen=True):
    """How a provider's messages are told from other values: the key that they stand at in a request, and what
    one of them is like.

    `is_own`: no other provider's look like that, so that one of them tells the format whatever else is there.
    `takes_text`: in the place of the messages there may be one text. `takes_one`: there may be one message,
    which is an object of their key and it wherever messages are asked for.
    """

    key: str
    is_message: Callable[[Any], bool]
    is_own: bool = False
    takes_text: bool = False
    takes_one: bool = False

    def alone(self, key: str, value: Any) -> list[Any] | None:
        """The messages where in their place stands one text, or one message; None where neither does."""
        if key != self.key:
            return None
        if self.takes_text and isinstance(value, str):
            return [value]
        return (
            [{key: value}] if self.takes_one and isinstance(value, dict) and self.is_message(value) else None
        )


def has_role(value: Any) -> bool:
    """Whether it is a message of most formats: an object that says who speaks."""
    return isinstance(value, dict) and isinstance(value.get("role"), str)


def no_problem(_: Any) -> str | None:
    """Nothing but its role keeps a value from being a message."""
    return None


def no_calls(_: Any) -> bool:
    """No part of a message's content calls a tool, or answers."""
    return False


CHAT_SHAPE = MessageShape("messages", has_role)


class MessageFiles(msgspec.Struct, frozen=True, kw_only=True):
    """How files with a list of the provider's messages are read as cards, and written.

    `roles` are those that messages may have, `shape` is what these are like. `marks_beside` and
    `marks_message` say, in words, by what the things beside the messages, or a message, are of no other
    format; None for what bears no mark. `system_keys` are where a system prompt stands beside the messages,
    the first one being usual, and `draft_system` makes its card of the key and the value. `gather` joins
    messages that are stored as one, each with the number of its first, and `gathered` gives those of such a
    one. `calls` tells a part of a message's content that calls a tool, or answers, as nobody else writes it.
    `problem` says what keeps a value from
    being a message, where more than the role can.

    `draft` makes the cards of a message, ids left open; `keep_original` gives the first card what `export`
    needs to give back the second. `export` gives what stands beside the messages, and these. `read_request`
    makes an llm_config and tools, as every provider's `body` takes them, of what else a request holds; of the
    parameters that are `taken_apart` it leaves what no other format has.

    `keyspace` begins the keys of conversations, so that one file taken as two formats makes two boxes.
    `request_keys` stand only beside the messages of a request to this provider; `parameters` are those of a
    request that the lint looks at; `endpoints` are the ends of the addresses that requests are sent to.
    """

    keyspace: tuple[str, ...]
    roles: Sequence[str]
    marks_message: Callable[[Any], str | None]
    draft: Callable[[Any], list[CardDraft]]
    keep_original: Callable[[CardDraft, CardDraft], CardDraft]
    export: Callable[[Iterable[Card]], tuple[Body, Iterator[Any]]]
    shape: MessageShape = CHAT_SHAPE
    marks_beside: Callable[[Mapping[str, Any]], str | None] = lambda _: None
    system_keys: Sequence[str] = ()
    draft_system: Callable[[str, Any], CardDraft] | None = None
    gather: Callable[[Iterable[Any]], Iterator[tuple[int, Any]]] = enumerate
    gathered: Callable[[Any], Sequence[Any]] = lambda message: (message,)
    calls: Callable[[Any], bool] = no_calls
    problem: Callable[[Any], str | None] = no_problem
    read_request: Callable[[Mapping[str, Any]], tuple[dict[str, Any], list[dict[str, Any]]]] = plain_request
    taken_apart: Sequence[str] = ()
    request_keys: Sequence[str] = ()
    endpoints: Sequence[str] = ()
    parameters: Sequence[str] = ()


class Answers(msgspec.Struct, frozen=True, kw_only=True):
    """How what a model answered is read as cards.

    `is_response` tells a response of this provider from any other value, those of other providers too. Of a
    response `unwrap` gives the message, `cut_off` why it is not whole, None for one that is, and `usage` what
    was counted; `limits` are those reasons that are a limit of tokens. `error` says what went wrong where a
    value says so in the provider's own way, None for any other: `{"error": …}` is everybody's.

    `is_own` tells whether a message without its response is in this format and no other. `parts` are those of
    a message's content; `draft` makes its cards, the ids of its calls put through the function that it is
    given. The two that make something raise MalformedAnswer.
    """

    is_response: Callable[[Body], bool]
    unwrap: Callable[[Body], Body]
    cut_off: Callable[[Body], str | None]
    limits: Collection[str]
    usage: Callable[[Body], Any] = lambda response: response.get("usage")
    error: Callable[[Body], str | None] = lambda _: None
    is_own: Callable[[Body], bool] = lambda _: False
    parts: Callable[[Body], Any] = lambda message: message.get("content")
    draft: Callable[[Body, OwnIds], list[CardDraft]]


class Provider(msgspec.Struct, frozen=True, kw_only=True):
    """A provider's format. `title` is the provider's name in sentences, `sends` what a request's body is.

    Cards: `encode` makes a card the message that is sent, or says why it is none. `chat_original` is the
    message in the chat form that a card imported from this format keeps, None for any other card; `failed`
    tells one that is the result of a tool that failed, `has_failures` whether results here say so;
    `lost_in_chat` what of such a card the chat form leaves out, `lost_of_chat` what this format leaves out of
    a card in the chat form, both in words; `lost_in_request` what is lost of a request's messages besides,
    with the cards they come from.

    Requests: `members` makes the JSON body of a request whose messages `encode` made, key by key, without a
    model where none is known; an iterator among the values makes a list, the messages, as it is asked for,
    and goes through those of the request as often as it must. `renamed_calls` are the tool calls that get
    other ids in it. `exchanged` gives the calls that a message makes and answers. `steps` numbers the steps
    of a conversation that messages belong to, which calls and results must be neighbours in; -1 for one that
    is in none. `sent` lists the messages of a request as a prefix cache finds them; `message_keys` are the
    keys of the body that hold them, the list last, `cached_parameters` those that stand before them in the
    cache. `split_tools` gives the tools of a body, one for each of the request that is sent, and the body
    without them. `runs_tool` tells the tools that the provider runs itself, or alone knows.

    `rules` names the module whose RULES are the lint's, `schema` the package that holds the table of what a
    request may hold (`request_schema.json`), empty where none is published; `hottest` is the highest
    temperature, `temperature_at` the dotted name that it is sent under. `answers` is None for a provider
    whose answers are in another's format.
    """

    name: str
    title: str
    sends: str

    encode: Callable[[Card], Body | NoMessage]
    chat_original: Callable[[AnyCard], Body | None] = lambda _: None
    failed: Callable[[AnyCard], bool] = lambda _: False
    has_failures: bool = False
    lost_in_chat: Callable[[Card], Iterable[str]] = lambda _: ()
    lost_of_chat: Callable[[Card], Iterable[str]] = lambda _: ()
    lost_in_request: Callable[[Request], Iterable[tuple[str | None, str]]] = lambda _: ()

    members: Callable[[Request], Members]
    renamed_calls: Callable[[Sequence[Message]], Sequence[RenamedCall]] = lambda _: ()
    exchanged: Callable[[Body], Exchanged] = lambda _: Exchanged()
    steps: Callable[[Sequence[Message]], list[int]]
    sent: Callable[[Request], Iterable[SentMessage]]
    message_keys: Sequence[str] = ("system", "messages")
    cached_parameters: Sequence[str] = ()
    split_tools: Callable[[Body], tuple[list[Any], Body]] = plain_tools
    runs_tool: Callable[[Mapping[str, Any]], bool] = lambda _: False

    models: Models
    hottest: int = 2
    temperature_at: str = "temperature"
    rules: str
    schema: str = ""
    files: MessageFiles
    answers: Answers | None = None

    def body(self, request: Request) -> Body:
        """The JSON body of `request`."""
        return {
            key: list(value) if isinstance(value, Iterator) else value for key, value in self.members(request)
        }
