"""Findings about costs, the subject of their rules, and commands that help. None changes a card or a box."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property, lru_cache
from typing import Literal

import msgspec

from cardbox_cli.context.cost.account import Account, SentPart
from cardbox_cli.context.explain import TokenCosts
from cardbox_cli.context.messages import is_user
from cardbox_cli.context.parts import arguments_of, arguments_text, called_function, list_of, text_at
from cardbox_cli.model import exact_json
from cardbox_cli.model.card_types import TOOL_RESULT
from cardbox_cli.model.cards import card_text
from cardbox_cli.model.pairing import pair_calls
from cardbox_cli.text.command_lines import quote_argument, quote_word, split_comment

# --- commands


# The strategies of `cbx render --fit`.
Strategy = Literal["oldest", "largest-results", "duplicates"]


class FixCommand(msgspec.Struct, frozen=True, kw_only=True):
    """A command that reduces waste in a box, a turn or a chat, or that shows it.

    - `without`: take `card_ids` out of the box. `without-results`: also the calls in cards that stay.
    - `fit`, `fit-turn`: fit the box, or a turn's next request, into `tokens`; `first` is the strategy.
    - `compress`: summarize all but the last `keep` messages of the box.
    - `compare`, `compare-chat`: compare two `steps` of a turn or a chat.
    - `afresh`: begin a new context of a chat.
    - `profile`: show a profile, to edit and import it.
    """

    how: Literal[
        "without",
        "without-results",
        "fit",
        "fit-turn",
        "compress",
        "compare",
        "compare-chat",
        "afresh",
        "profile",
    ]
    name: str
    card_ids: Sequence[str] = ()
    tokens: int = 0
    keep: int = 0
    first: Strategy = "oldest"
    steps: tuple[str, str] = ("", "")

    def line(self, *options: str) -> str:
        """Return the command line to copy; `options` are added to each command of cbx."""
        plain, comment = split_comment(options)
        line = _LINES[self.how].format(
            mend=self,
            name=quote_word(self.name),
            key=quote_argument(self.name),
            unwanted=" ".join(f"-e {quote_word(card_id)}" for card_id in self.card_ids),
            steps=" ".join(map(quote_word, self.steps)),
            options=" ".join(map(quote_word, plain)),
        )
        return " ".join(line.split()) + comment


_FITTED = "--max-tokens {mend.tokens} --fit {mend.first} {options}"
_WITHOUT = (
    "cbx box show {name} -o csv --columns full-id --no-header {options} | grep -vxF {unwanted} | "
    "cbx box edit {name} --file - {options}"
)
_LINES = {
    "without": _WITHOUT,
    "without-results": f"{_WITHOUT} -o id | xargs cbx box repair --drop-orphans -o id {{options}}",
    "fit": f"cbx render --box {{name}} {_FITTED}",
    "fit-turn": f"cbx render --turn {{name}} --at next {_FITTED}",
    "compress": "cbx box compress {name} --keep {mend.keep} --summary @summary.md {options}",
    "compare": "cbx render --turn {name} --diff {steps} {options}",
    # The key of a chat may begin with a dash, like an option.
    "compare-chat": "cbx render --chat={name} --diff {steps} {options}",
    "afresh": "cbx chat new {options} {key}",
    "profile": "cbx profile show {name} -o yaml {options}",
}


# --- findings


class CostHit(msgspec.Struct, frozen=True, kw_only=True):
    """A hit of a rule: a message, the messages that prove it, and the wasted `tokens`. `mend` is a command
    that helps, `steps` are numbers from 1, `remedy` replaces the rule's own."""

    message: str
    tokens: int
    parts: Sequence[SentPart] = ()
    steps: Sequence[int] = ()
    mend: FixCommand | None = None
    remedy: str | None = None


Find = Callable[["CostSubject"], Iterable[CostHit]]


class CostRule(msgspec.Struct, frozen=True, kw_only=True):
    """One type of waste: its code, a sentence that describes it, and a general remedy."""

    code: str
    finds: str
    remedy: str
    find: Find


class CostRules:
    """The rules of a module. `@RULES.rule("a-code", remedy=…)` adds a function as a rule. The docstring of
    the function describes the waste that it finds."""

    def __init__(self) -> None:
        self._rules: list[CostRule] = []

    def __iter__(self) -> Iterator[CostRule]:
        return iter(self._rules)

    def rule(self, code: str, *, remedy: str) -> Callable[[Find], Find]:
        def enter(find: Find) -> Find:
            finds = " ".join((find.__doc__ or "").split())
            self._rules.append(CostRule(code=code, finds=finds, remedy=remedy, find=find))
            return find

        return enter


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    card_id: str | None
    box_id: str | None
    position: int | None
    type: str
    tool: str
    tokens: int
    sends: int


class CostFinding(msgspec.Struct, frozen=True, kw_only=True):
    """A finding of a rule. `tokens` were wasted, `share` is their fraction of all sent tokens."""

    code: str
    message: str
    tokens: int
    share: float
    evidence: list[Evidence]
    steps: list[int]
    remedy: str
    mend: FixCommand | None


# --- what rules look at: an account, and the calls of tools in it with their results


# Words, parts of names, and numbers that are long enough to distinguish a text from others.
_WORD = re.compile(r"[^\W_]{3,}|\d{2}")

# A note that replaces a result never has more tokens.
_MAX_NOTE_TOKENS = 60


class ToolUse(msgspec.Struct, frozen=True, kw_only=True):
    """A call of a tool and its result. `text` is the tool's answer. `arguments` is a canonical string. If
    `is_alone`, the calling card has no other call and no text."""

    caller: SentPart
    result: SentPart
    name: str
    arguments: str
    text: str
    failed: bool
    is_alone: bool

    @property
    def spare(self) -> list[SentPart]:
        """The messages that can be left out: the result, and the calling card if it has nothing else."""
        return [self.caller, self.result] if self.is_alone else [self.result]


def part_text(part: SentPart) -> str:
    return "" if part.card is None else card_text(part.card.content)


class ChatSubject(msgspec.Struct, frozen=True, kw_only=True):
    """A chat: its key, the box of its active context, and the tools that each run is offered."""

    key: str
    box_id: str | None
    tools: frozenset[str]


class CostSubject:
    """An account of requests, with the name of the turn's `profile`, or the `chat` that sent them.

    `read_only` are the tools whose calls change nothing, as they are registered.
    """

    def __init__(
        self,
        account: Account,
        *,
        profile: str | None = None,
        chat: ChatSubject | None = None,
        read_only: frozenset[str] = frozenset(),
    ) -> None:
        self.read_only = read_only
        self.account = account
        self.profile = profile
        self.chat = chat

    @cached_property
    def parts(self) -> list[SentPart]:
        """The messages of cards, each once, in the order in which they were first sent."""
        parts: dict[str, SentPart] = {}
        for part in self.account.parts:
            if part.message.card_id is not None and part.card is not None:
                parts.setdefault(part.message.card_id, part)
        return list(parts.values())

    @cached_property
    def uses(self) -> list[ToolUse]:
        """The answered calls with their results, in the order of the results."""
        results = pair_calls([part.card for part in self.parts]).results
        uses = [self._use(self.parts[call], self.parts[result]) for result, call in results.items()]
        return [use for use in uses if use is not None]

    def _use(self, caller: SentPart, answer: SentPart) -> ToolUse | None:
        assert answer.card is not None
        assert caller.card is not None
        call_id = answer.card.tool_call_id
        calls = [call for call in list_of(caller.card.tool_calls) if text_at(call, "id") == call_id]
        function = called_function(calls[-1]) if call_id else None
        if function is None or not isinstance(function.get("name"), str):
            return None
        text, provider = part_text(answer), self.account.series[0].provider
        # Many imported results report a failure only in their text.
        failed = provider.is_failed(answer.card) or text.lstrip()[:5].lower() == "error"
        return ToolUse(
            caller=caller,
            result=answer,
            name=function["name"],
            arguments=_normalized_arguments(arguments_text(function.get("arguments"))),
            text=text,
            failed=failed,
            is_alone=len(caller.card.tool_calls or ()) == 1 and not part_text(caller).strip(),
        )

    @cached_property
    def written_words(self) -> dict[str, tuple[int, int]]:
        """The words in the model's texts and arguments, each with its first and last place in `parts`."""
        places: dict[str, tuple[int, int]] = {}
        for place, part in enumerate(self.parts):
            if part.message.body.get("role") == "assistant" and part.card is not None:
                calls = exact_json.encode(part.card.tool_calls).decode() if part.card.tool_calls else ""
                for word in words(f"{part_text(part)} {calls}"):
                    places[word] = (places[word][0] if word in places else place, place)
        return places

    def mend(
        self, uses_or_parts: Sequence[ToolUse | SentPart], first: Strategy = "oldest"
    ) -> FixCommand | None:
        """Return a command to continue without these messages. It takes them out of their box, or else fits
        the request with the strategy `first`. Text and other calls of a calling card stay."""
        uses = [each for each in uses_or_parts if isinstance(each, ToolUse)]
        parts = [each for each in uses_or_parts if isinstance(each, SentPart)]
        parts += [part for use in uses for part in use.spare]
        if self.chat is not None:
            return self.afresh(self.chat, parts)
        boxes = {part.box_id for part in parts} | {use.caller.box_id for use in uses}
        box_id = next(iter(boxes), None)
        if not box_id or len(boxes) > 1:
            return self.fit(parts, first)
        ids = [part.message.card_id for part in parts if part.message.card_id]
        whole = all(use.is_alone for use in uses)
        return FixCommand(how="without" if whole else "without-results", name=box_id, card_ids=ids)

    def afresh(self, chat: ChatSubject, parts: Sequence[SentPart]) -> FixCommand | None:
        """Return a command to continue a chat without these messages, if they are in its active context."""
        if chat.box_id is None or all(part.box_id != chat.box_id for part in parts):
            return None
        return FixCommand(how="afresh", name=chat.key)

    def compress(self, part: SentPart) -> FixCommand | None:
        """Return the command to continue with a summary of a long message and all before it. If the user said
        nothing since, a note replaces the message: after a summary the user must begin."""
        if self.chat is not None:
            return self.afresh(self.chat, [part])
        if not part.box_id or not self.account.series:
            return None
        later = [each for each in self.parts[self.parts.index(part) + 1 :] if each.box_id == part.box_id]
        asked = next(
            (place for place, each in enumerate(later) if each.card is not None and is_user(each.card)), None
        )
        if asked is not None:
            keep = len(later) - asked + len(self.account.series[-1].behind)
            return FixCommand(how="compress", name=part.box_id, keep=keep)
        is_result = part.card is not None and part.card.type == TOOL_RESULT
        return self.fit([part], "largest-results") if is_result and later else None

    def fit(self, parts: Sequence[SentPart], first: Strategy = "oldest") -> FixCommand | None:
        """Return a command to fit the next request into its size with notes instead of these messages."""
        if self.chat is not None:
            return self.afresh(self.chat, parts)
        box_id = next((part.box_id for part in parts if part.box_id), None)
        if box_id is None or not self.account.steps:
            return None
        last, sent = self.account.steps[-1], self.account.series[-1]
        costs = TokenCosts(sent.provider.facts(sent.request.model))
        now = last.tokens + sum(costs.message_cost(message).tokens for message in sent.behind)
        spared = sum(
            max(part.tokens - _MAX_NOTE_TOKENS, 0) for part in {id(part): part for part in parts}.values()
        )
        tokens = max(now - spared, 1)
        if last.agent_turn_id is None:
            return FixCommand(how="fit", name=box_id, tokens=tokens, first=first)
        return FixCommand(how="fit-turn", name=last.agent_turn_id, tokens=tokens, first=first)


def words(text: str) -> set[str]:
    """Return the words and numbers of a text that are long enough to be distinctive, in lower case."""
    return set(_WORD.findall(text.lower()))


@lru_cache
def _normalized_arguments(arguments: str) -> str:
    """Return arguments as canonical JSON. Arguments that are not a JSON object do not change."""
    value = arguments_of(arguments)
    return arguments if value is None else exact_json.canonical(exact_json.encode(value)).decode()
