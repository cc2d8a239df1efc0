"""The lint: rules, the subject that they examine, and the function that runs all rules of a provider.

A subject has the cards of boxes and the request that they make for a provider. It answers questions that
several rules have, and decides nothing. Pure: the same cards give the same findings in the same order.
"""

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partialmethod
from typing import Any, Literal, TypeVar

import msgspec
from msgspec.structs import replace

from cardbox_cli.context.explain import Explanation, explain
from cardbox_cli.context.messages import Message
from cardbox_cli.context.parts import called_function, list_at, list_of, text_at
from cardbox_cli.context.provider import ModelFacts, Provider
from cardbox_cli.context.request import Request, RequestEntry
from cardbox_cli.context.sources import is_named_result
from cardbox_cli.model.card_types import TOOL_RESULT
from cardbox_cli.model.cards import SYSTEM_ROLES, Card
from cardbox_cli.model.content import StoredContent, TextContent, ToolResultContent
from cardbox_cli.model.layers import CHECKPOINT
from cardbox_cli.model.pairing import Pairer, Pairing

# --- the history: messages that cards make

# Loading the cards of a long history into the CPU cache takes longer than checking them. So a single pass
# sorts all messages by the properties that rules need, and each rule examines only a few messages.

# The entry of a card, the card, and its message.
CardMessage = tuple[RequestEntry, Card, Message]

# Shorter texts often occur twice without a mistake: "continue", "ok", an empty list.
MIN_LONG_TEXT = 400


class HistoryCall(msgspec.Struct, frozen=True, gc=False):
    """A tool call of the history as its card stores it, and the card's entry. `function`, `id` and `name` are
    None if they are missing or have the wrong type."""

    entry: RequestEntry
    value: Any
    function: dict[str, Any] | None
    id: str | None
    name: str | None


class History:
    """The messages of cards in order, their roles, and lists of the messages and cards that rules need.

    Messages in `not_text` have content other than a string, in `blank` only white space, in `named` a name.
    Messages in `with_other_calls` have other tool calls than their cards. `unaddressed` has tool results
    without a call id, `long_texts` has texts of MIN_LONG_TEXT characters or more, `calls` all tool calls.
    `types`, `roles_of_cards` and `classes` (of contents) are sets of the values that occur.
    """

    def __init__(self, request: Request) -> None:
        self.messages: list[CardMessage] = []
        self.roles: list[str] = []
        self.not_text: list[CardMessage] = []
        self.blank: list[CardMessage] = []
        self.named: list[CardMessage] = []
        self.with_other_calls: list[CardMessage] = []
        self.unaddressed: list[tuple[RequestEntry, Card]] = []
        self.imported_messages: list[CardMessage] = []
        self.named_results: list[Card] = []
        self.long_texts: list[tuple[RequestEntry, str]] = []
        self.calls: list[HistoryCall] = []
        self.types: set[str] = set()
        self.roles_of_cards: set[str | None] = set()
        self.classes: set[type] = set()
        self._pairer = Pairer()
        for message in request.messages:
            entry = request.places.get(message.card_id or "") if message.layer == CHECKPOINT else None
            if entry is not None and entry.slot.card is not None:
                self._note_card(entry, entry.slot.card)
                self._note_message((entry, entry.slot.card, message))

    def _note_card(self, entry: RequestEntry, card: Card) -> None:
        content = card.content
        self.types.add(card.type)
        self.roles_of_cards.add(card.role)
        self.classes.add(type(content))
        for value in list_of(card.tool_calls):
            call = _history_call(entry, value)
            self.calls.append(call)
            if call.id:
                self._pairer.add_call(len(self.messages), call.id)
        if card.type == TOOL_RESULT:
            if is_named_result(card):
                self.named_results.append(card)
            if card.tool_call_id:
                self._pairer.add_result(len(self.messages), card.tool_call_id)
            else:
                self.unaddressed.append((entry, card))
        text = content.text if type(content) is TextContent else _result_text(content)
        if len(text) >= MIN_LONG_TEXT:
            self.long_texts.append((entry, text))

    def _note_message(self, noted: CardMessage) -> None:
        _, card, message = noted
        body = message.body
        content = body.get("content")
        if type(content) is not str:
            self.not_text.append(noted)
        elif not content or content.isspace():
            self.blank.append(noted)
        if "name" in body:
            self.named.append(noted)
        if "source_message" in card.metadata or "source_blocks" in card.metadata:
            self.imported_messages.append(noted)
        calls = body.get("tool_calls")
        if calls is not None and (calls is not card.tool_calls or not isinstance(calls, list)):
            self.with_other_calls.append(noted)
        self.roles.append(body["role"])
        self.messages.append(noted)

    @cached_property
    def pairing(self) -> Pairing:
        """The pairs of calls and results by place in `messages`. Omits calls and results without an id."""
        return self._pairer.pairing()


def _result_text(content: StoredContent) -> str:
    """Return a tool's result if it is a string, else "", because encoding other results takes too long."""
    return content.result if type(content) is ToolResultContent and isinstance(content.result, str) else ""


def _history_call(entry: RequestEntry, value: Any) -> HistoryCall:
    function = called_function(value)
    name = text_at(value if function is None else function, "name")
    return HistoryCall(entry, value, function, text_at(value, "id"), name)


# --- the subject


_View = TypeVar("_View")


class Logged(msgspec.Struct, frozen=True, kw_only=True):
    """The messages of a file, each with the entry of its first card. `beside` has the other keys of the file.
    If `is_request`, these keys show that the file is a request and not only a list of messages."""

    messages: list[tuple[RequestEntry, Any]]
    beside: dict[str, Any]
    is_request: bool


@dataclass(eq=False)
class Subject:
    """The cards of boxes in order, and the request that they make in the format of `provider`.

    Results of the calls in `awaited` are still to come. `logged` is a request in a file of this format. If
    set, the rules check it instead of the rendered request.
    """

    provider: Provider
    entries: Sequence[RequestEntry]
    request: Request
    awaited: Container[str] = ()
    logged: Logged | None = None
    _views: dict[Any, Any] = field(default_factory=dict, init=False)

    def view(self, make: "Callable[[Subject], _View]") -> _View:
        """Return `make(subject)`, computed once. The rules of a provider share such values."""
        if make not in self._views:
            self._views[make] = make(self)
        view: _View = self._views[make]
        return view

    @cached_property
    def cards(self) -> list[tuple[RequestEntry, Card]]:
        """The readable cards of the boxes with their entries, each once."""
        places = self.request.places.values()
        return [(entry, entry.slot.card) for entry in places if entry.slot.card is not None]

    def place(self, message: Message) -> RequestEntry | None:
        """Return the entry of a message's card, or for a layer, of the first card that made it."""
        if message.card_id is not None:
            return self.request.places.get(message.card_id)
        makers = self.request.makers.get(message.layer, [])
        return next(map(self.request.places.get, makers), None)

    @cached_property
    def explained(self) -> Explanation:
        return explain(self.request, self.provider)

    @cached_property
    def facts(self) -> ModelFacts:
        return self.provider.own_facts(self.request.model)

    @cached_property
    def window(self) -> int | None:
        return self.provider.facts(self.request.model).window

    @cached_property
    def history(self) -> History:
        return History(self.request)

    @cached_property
    def cards_without_message(self) -> list[tuple[RequestEntry, Card]]:
        if len(self.request.places) == len(self.history.messages):
            return []
        sent = {card.card_id for _, card, _ in self.history.messages}
        return [pair for pair in self.cards if pair[1].card_id not in sent]

    @cached_property
    def body_without_messages(self) -> dict[str, Any]:
        """The body without messages: model, tools and parameters in the form in which they are sent."""
        if self.logged is not None:
            return self.logged.beside
        return self.provider.body(msgspec.structs.replace(self.request, messages=[]))

    @cached_property
    def offered(self) -> list[dict[str, Any]]:
        """The tools of the request that the provider can run. For a logged request, all tools."""
        return self.request.tools if self.logged is not None else self.provider.offered_tools(self.request)

    @cached_property
    def tools(self) -> list[Any]:
        return list_at(self.body_without_messages, "tools")

    @property
    def parts(self) -> Iterator[tuple[RequestEntry, str, Any]]:
        """The content parts of the history's messages, with the role of each."""
        for entry, _, message in self.history.not_text:
            for part in list_at(message.body, "content"):
                yield entry, message.body["role"], part

    @property
    def logged_messages(self) -> list[tuple[RequestEntry, Any]]:
        """The messages of a logged request. Empty for a rendered request."""
        return [] if self.logged is None else self.logged.messages

    @cached_property
    def is_system_alone(self) -> bool:
        return all(message.body.get("role") in SYSTEM_ROLES for message in self.request.messages)

    @cached_property
    def gone(self) -> list[RequestEntry]:
        return [entry for entry in self.entries if entry.slot.state != "present"]

    @cached_property
    def types(self) -> set[str]:
        return self.history.types.union(card.type for _, card in self.cards_without_message)

    @cached_property
    def roles(self) -> set[str | None]:
        return self.history.roles_of_cards.union(card.role for _, card in self.cards_without_message)

    @cached_property
    def classes(self) -> set[type]:
        return self.history.classes.union(type(card.content) for _, card in self.cards_without_message)

    def cards_by_type(self, card_type: str) -> list[tuple[RequestEntry, Card]]:
        return [pair for pair in self.cards if pair[1].type == card_type] if card_type in self.types else []

    @cached_property
    def apart(self) -> list[tuple[int, int, int]]:
        """The pairs of a call and a result that are not adjacent: both places, and the steps between them.
        The provider defines a step as one or more sent messages."""
        results, roles = self.history.pairing.results.items(), self.history.roles
        if all(
            result == call + 1 and roles[call] == "assistant" and roles[result] in ("tool", "user")
            for result, call in results
        ):
            return []  # the usual case: each result is the next message
        steps = self.provider.steps([message for _, _, message in self.history.messages])
        return [
            (call, result, steps[result] - steps[call] - 1)
            for result, call in results
            if steps[result] != steps[call] + 1
        ]


# --- rules and findings


Severity = Literal["error", "warning"]

# The entry and the message of a finding. The entry is None if the finding is about the whole request.
Hit = tuple[RequestEntry | None, str]
Find = Callable[[Subject], Iterable[Hit]]


class LintRule(msgspec.Struct, frozen=True, kw_only=True):
    """A mistake that a provider refuses (`error`), or that costs or confuses a model (`warning`).

    `finds` describes the mistake in a sentence, `source` names the section of the documentation. `remedy` is
    a general fix, if any. `logged` is the severity in a logged request if it differs, because rendering
    repairs some mistakes. A rule that `yields` ignores cards with an error of another rule.
    """

    id: str
    severity: Severity
    finds: str
    source: str
    remedy: str | None = None
    logged: Severity | None = None
    yields: bool = False
    find: Find


class Rules:
    """The rules of a module. `@RULES.error("an-id", remedy=…)` adds a function as a rule. The function's
    docstring describes the mistake. `source` is the default source of the rules."""

    def __init__(self, source: str = "") -> None:
        self._source = source
        self._rules: list[LintRule] = []

    def __iter__(self) -> Iterator[LintRule]:
        return iter(self._rules)

    def cite(self, source: str) -> Iterator[LintRule]:
        """Yield the rules for a provider. Rules without a source get `source`."""
        return (each if each.source else replace(each, source=source) for each in self._rules)

    def _entering(
        self,
        severity: Severity,
        rule_id: str,
        *,
        logged: Severity | None = None,
        yields: bool = False,
        **named: str,
    ) -> Callable[[Find], Find]:
        def enter(find: Find) -> Find:
            known = {"finds": " ".join((find.__doc__ or "").split()), "source": self._source, **named}
            rule = LintRule(id=rule_id, severity=severity, find=find, logged=logged, yields=yields, **known)
            self._rules.append(rule)
            return find

        return enter

    error = partialmethod(_entering, "error")
    warning = partialmethod(_entering, "warning")


class LintFinding(msgspec.Struct, frozen=True, kw_only=True):
    """A finding of a rule. `position` is the position of the card in its box, from 0.

    Card, box and position are None for a finding about the whole request. The box is also None if it is not
    stored, for example for a conversation in a file.
    """

    rule: str
    severity: Severity
    provider: str
    card_id: str | None
    box_id: str | None
    position: int | None
    message: str
    source: str
    remedy: str | None


class FileFinding(LintFinding, frozen=True, kw_only=True):
    file: str


# --- all rules


# The maximum number of characters of a finding's message. Ids and names have no maximum length, so a longer
# message loses its middle.
_MAX_MESSAGE = 400


def lint(
    entries: Sequence[RequestEntry],
    request: Request,
    provider: Provider,
    *,
    awaited: Container[str] = (),
    logged: Logged | None = None,
    warned: Container[str] = (),
) -> list[LintFinding]:
    """Return the findings of the rules of `provider`, in the order of the boxes.

    Findings about the whole request come last. `request` was made of the same objects `entries`, in the
    provider's format. Calls in `awaited` need no result yet. `logged` is the request in a file. Errors of the
    rules in `warned` become warnings.
    """
    subject = Subject(provider, entries, request, awaited, logged)
    hits = [(rule, entry, words) for rule in provider.rules() for entry, words in rule.find(subject)]
    if not hits:
        return []
    errors = (id(entry) for rule, entry, _ in hits if rule.severity == "error" and not rule.yields)
    blamed = set(errors) - {id(None)}
    hits = [hit for hit in hits if not (hit[0].yields and id(hit[1]) in blamed)]
    places = {id(entry): number for number, entry in enumerate(entries)}
    hits.sort(key=lambda hit: places.get(id(hit[1]), len(entries)))
    return [_finding(subject, rule, entry, words, warned) for rule, entry, words in hits]


def _finding(
    subject: Subject, rule: LintRule, entry: RequestEntry | None, message: str, warned: Container[str]
) -> LintFinding:
    severity = rule.severity if rule.logged is None or subject.logged is None else rule.logged
    is_long = len(message) > _MAX_MESSAGE
    return LintFinding(
        rule=rule.id,
        severity="warning" if rule.id in warned else severity,
        provider=subject.provider.name,
        card_id=None if entry is None else entry.slot.card_id,
        box_id=None if entry is None else entry.box_id or None,
        position=None if entry is None else entry.slot.position,
        message=f"{message[: _MAX_MESSAGE - 100]}…{message[-99:]}" if is_long else message,
        source=rule.source,
        remedy=rule.remedy,
    )
