"""The rules about costs, and the function that runs all of them. Pure.

Only later messages of the model show which results it needed. So a result counts as used if the model writes
words that only the result has. Ids and numbers, such as those of flights or files, are the best indication.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence

import msgspec

from cardbox_cli.context.cost.account import SentPart, StepCost, share_of
from cardbox_cli.context.cost.findings import (
    CostFinding,
    CostHit,
    CostRule,
    CostRules,
    CostSubject,
    Evidence,
    FixCommand,
    ToolUse,
    part_text,
    words,
)
from cardbox_cli.model.card_types import DELIVERABLE, THOUGHT, TOOL_RESULT
from cardbox_cli.model.cards import SYSTEM_ROLES
from cardbox_cli.model.ids import short_id
from cardbox_cli.model.layers import CHECKPOINT
from cardbox_cli.text.quantities import format_count

RESULTS = CostRules()

# Smaller results are not worth a finding. Results that were sent fewer times may still be needed.
_MIN_TOKENS, _MIN_SENDS = 100, 3
# A turn stores its final answer as both.
_ANSWERS = (THOUGHT, DELIVERABLE)
# If the model writes this number of a result's words within this number of messages, it used the result.
_MIN_WORDS, _MAX_MESSAGES = 3, 4
# Letters and digits, as in the number of a flight or an order.
_NAME = re.compile(r"(?=.*[^\W\d])(?=.*\d).{4,}")


@RESULTS.rule("unused-result", remedy="omit the call and its result, or replace them with a summary")
def _unused(subject: CostSubject) -> Iterator[CostHit]:
    """A tool's result that was sent at least three times although the model used no word of it. Such a word
    is new in the result, or the model had not written it before. A result that repeats the answer to the same
    call is unused only if that answer is. Only the result of a read-only tool can be left out."""
    known = _KnownWords(subject)
    places = {id(part): place for place, part in enumerate(subject.parts)}
    used: set[tuple[str, str, str]] = set()
    for use in subject.uses:
        if use.result.tokens < _MIN_TOKENS:
            continue
        place = places[id(use.result)]
        known.read_until(place)
        answered = use.name, use.arguments, use.text
        if answered in used or _is_used(subject, words(use.text) - words(use.arguments), known, place):
            used.add(answered)
        elif use.result.sends >= _MIN_SENDS:
            is_safe = use.name in subject.read_only
            yield CostHit(
                message=f"the result of {use.name} was sent {use.result.sends} times, and the model "
                "used no word of it",
                tokens=use.result.again,
                parts=[use.result],
                mend=subject.mend([use]) if is_safe else _shorten(subject, use),
                remedy=None if is_safe else _SHORTEN,
            )


def _shorten(subject: CostSubject, use: ToolUse) -> FixCommand | None:
    """Return the command that replaces a result by a note and keeps its call. A chat has none."""
    return None if subject.chat is not None else subject.fit([use.result], "largest-results")


# Without such a result, a model may repeat what the call did.
_SHORTEN = (
    "shorten the result, but keep it and its call: the tool is not registered as read-only "
    "(`cbx tool add --read-only`), so the call may have changed something"
)


class _KnownWords:
    """The words of the messages so far. `asked` has only words that are not from the model or a tool."""

    def __init__(self, subject: CostSubject) -> None:
        self._parts = subject.parts
        self._read = 0
        self.all: set[str] = set()
        self.asked: set[str] = set()

    def read_until(self, place: int) -> None:
        for part in self._parts[self._read : place]:
            found = words(part_text(part))
            self.all |= found
            is_result = part.card is not None and part.card.type == TOOL_RESULT
            if not is_result and part.message.body.get("role") != "assistant":
                self.asked |= found
        self._read = max(self._read, place)


def _is_used(subject: CostSubject, brought: set[str], known: _KnownWords, place: int) -> bool:
    """Return whether the model used the result at `place`: it later wrote a word that no earlier message has.
    It also did if it soon wrote several words, or one name with a number, that were new to it."""
    of_model = subject.written_words
    soon = 0
    for word in brought:
        first, last = of_model.get(word, (-1, -1))
        if last > place and word not in known.all:
            return True
        if place < first <= place + _MAX_MESSAGES:
            soon += 1
            if word not in known.asked and _NAME.fullmatch(word):
                return True
    return soon >= _MIN_WORDS


@RESULTS.rule("read-again", remedy="keep the newest call with its result, and omit the other calls")
def _read_again(subject: CostSubject) -> Iterator[CostHit]:
    """The same call of a tool with the same result as before: a file read again that had not changed."""
    for uses in _group_repeats(use for use in subject.uses if not use.failed):
        spare = uses[:-1]
        waste = sum(_shared_tokens(use.result, uses[-1].result) for use in spare)
        if waste and uses[0].result.tokens >= _MIN_TOKENS:
            yield CostHit(
                message=f"{uses[0].name} was called {len(uses)} times with the same arguments, and answered "
                "the same",
                tokens=waste,
                parts=[use.result for use in uses],
                mend=subject.mend(spare, "duplicates"),
            )


@RESULTS.rule("error-retried", remedy="omit all tries except the last")
def _retried(subject: CostSubject) -> Iterator[CostHit]:
    """A call that failed, made again word for word, and failed again in the same way."""
    for uses in _group_repeats(use for use in subject.uses if use.failed):
        yield CostHit(
            message=f"{uses[0].name} failed {len(uses)} times, called in the same way, and answered the same",
            tokens=sum(use.result.total for use in uses[1:]),
            parts=[use.result for use in uses],
            mend=subject.mend(uses[:-1]),
        )


@RESULTS.rule("same-content", remedy="omit all cards except the last")
def _same(subject: CostSubject) -> Iterator[CostHit]:
    """The same long text in two messages of one request, and not as the result of the same call. A
    deliverable that repeats the model's answer may be short."""
    again = {id(use.result) for uses in _group_repeats(subject.uses) for use in uses}
    of_text: dict[str, list[SentPart]] = defaultdict(list)
    for part in subject.parts:
        is_answer = part.card is not None and part.card.type in _ANSWERS
        if (part.tokens >= _MIN_TOKENS or is_answer) and id(part) not in again:
            of_text[part_text(part).strip()].append(part)
    pairs = {id(use.result): use for use in subject.uses}
    for text, parts in of_text.items():
        waste = sum(_shared_tokens(part, parts[-1]) for part in parts[:-1])
        is_short = parts[0].tokens < _MIN_TOKENS and not {*_ANSWERS} <= {_type_of(part) for part in parts}
        if text and waste and not is_short:
            names = ", ".join(short_id(part.message.card_id or "") for part in parts)
            yield CostHit(
                message=f"{len(parts)} cards say the same: {names}",
                tokens=waste,
                parts=parts,
                mend=_removal_fix(subject, parts[:-1], pairs),
            )


def _type_of(part: SentPart) -> str | None:
    return None if part.card is None else part.card.type


def _removal_fix(
    subject: CostSubject, parts: Sequence[SentPart], pairs: dict[int, ToolUse]
) -> FixCommand | None:
    # A call is removed together with its result, never alone.
    if any(part.card is not None and part.card.tool_calls for part in parts):
        return subject.fit(parts)
    return subject.mend([pairs.get(id(part), part) for part in parts], "duplicates")


def _group_repeats(uses: Iterator[ToolUse] | Sequence[ToolUse]) -> Iterator[list[ToolUse]]:
    """Yield groups of two or more calls with equal arguments and results."""
    groups: dict[tuple[str, str, str], list[ToolUse]] = defaultdict(list)
    for use in uses:
        groups[use.name, use.arguments, use.text].append(use)
    yield from (group for group in groups.values() if len(group) > 1)


def _shared_tokens(one: SentPart, other: SentPart) -> int:
    """Return the tokens of `one` in the requests that also contained the later part `other`."""
    both = min(one.first + one.sends, other.first + other.sends) - max(one.first, other.first)
    return one.tokens * max(both, 0)


# --- whole requests


REQUESTS = CostRules()

# A card is large from this share of the largest request and this number of tokens on.
_MIN_LARGE_SHARE, _MIN_LARGE_TOKENS = 0.25, 1_000


@REQUESTS.rule(
    "tool-never-called", remedy="remove it from the profile's allowed_tools, and import the profile again"
)
def _never_called(subject: CostSubject) -> Iterator[CostHit]:
    """The definition of a tool that was sent with every request, and that no answer in them called. Tools
    that every chat has do not count."""
    called = {name for part in subject.parts for name in part.tool.split(", ")}
    always = frozenset() if subject.chat is None else subject.chat.tools
    for tool in subject.account.tools:
        if tool.name not in called | always and tool.sends > 1:
            yield CostHit(
                message=f"the tool {tool.name} was sent {tool.sends} times, and never called",
                tokens=tool.tokens * tool.sends,
                mend=None if subject.profile is None else FixCommand(how="profile", name=subject.profile),
            )


@REQUESTS.rule("large-card", remedy="pass only the part that is needed, or replace it with a summary")
def _large(subject: CostSubject) -> Iterator[CostHit]:
    """A card with a quarter or more of the greatest request, and at least a thousand tokens. The system text
    at the beginning of a conversation does not count."""
    most = max((step.tokens for step in subject.account.steps), default=0)
    for part in subject.parts:
        is_said = part.layer == CHECKPOINT and part.message.body.get("role") not in SYSTEM_ROLES
        if is_said and part.tokens >= max(_MIN_LARGE_TOKENS, most * _MIN_LARGE_SHARE):
            yield CostHit(
                message=f"card {short_id(part.message.card_id or '')} takes {part.tokens / most:.0%} of the "
                f"greatest request, and was sent {part.sends} times",
                tokens=part.again,
                parts=[part],
                mend=subject.compress(part),
            )


@REQUESTS.rule("cache-broken", remedy="put last what changes with each call: `layout: cache` in the profile")
def _broken(subject: CostSubject) -> Iterator[CostHit]:
    """A request that does not continue the one before, so that a prefix cache must read it again. Each run of
    a chat begins with its own id; breaks between runs are a finding of their own."""
    steps = subject.account.steps
    broken = [place for place, step in enumerate(steps) if step.breaks]
    begun = [
        place
        for place in broken
        if subject.chat is not None and steps[place].agent_turn_id != steps[place - 1].agent_turn_id
    ]
    if begun:
        yield _break_hit(
            subject,
            begun,
            f"{format_count(len(begun), 'run')} of the chat did not continue the previous run: "
            "a chat's requests begin with the id of the run",
            remedy="the chat cannot avoid this: each run reads its prompt, persona and memory again; "
            "`cbx chat new` makes the context smaller",
        )
    within = [place for place in broken if place not in begun]
    if within:
        yield _break_hit(
            subject,
            within,
            f"{len(within)} of {len(steps)} requests do not continue the previous request; the first is step "
            f"{steps[within[0]].number}",
        )


def _break_hit(
    subject: CostSubject, broken: Sequence[int], message: str, remedy: str | None = None
) -> CostHit:
    """Return the finding about the messages that must be read again at these places of the series."""
    steps = subject.account.steps
    return CostHit(
        message=message,
        tokens=sum(max(steps[place - 1].tokens - steps[place].kept, 0) for place in broken),
        steps=[place + 1 for place in broken],
        mend=_comparison_command(subject, steps[broken[0] - 1], steps[broken[0]]),
        remedy=remedy,
    )


def _comparison_command(subject: CostSubject, one: StepCost, other: StepCost) -> FixCommand | None:
    """Return the command that shows the break, or None if the steps are not of one turn or chat."""
    steps = one.step_id or "", other.step_id or ""
    if subject.chat is not None:
        return FixCommand(how="compare-chat", name=subject.chat.key, steps=steps) if all(steps) else None
    turn_id = other.agent_turn_id
    is_of_one = turn_id is not None and one.agent_turn_id == turn_id
    return FixCommand(how="compare", name=turn_id or "", steps=steps) if is_of_one else None


# --- all rules


RULES: tuple[CostRule, ...] = (*RESULTS, *REQUESTS)


def check(subject: CostSubject) -> list[CostFinding]:
    """Return the findings of all rules, sorted by falling number of tokens."""
    of_all = subject.account.tokens
    found = [
        CostFinding(
            code=rule.code,
            message=hit.message,
            tokens=hit.tokens,
            share=share_of(hit.tokens, of_all),
            evidence=[msgspec.convert(part, Evidence, from_attributes=True) for part in hit.parts],
            steps=list(hit.steps),
            remedy=hit.remedy or rule.remedy,
            mend=hit.mend,
        )
        for rule in RULES
        for hit in rule.find(subject)
    ]
    return sorted(found, key=lambda finding: -finding.tokens)
