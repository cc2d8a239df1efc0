"""Rules about results of tools that are sent again and again.

What a model needs of a result is not seen from outside; what it wrote afterwards is. So a result counts as
taken up by the words alone that the model has from it: ids and numbers as names of flights, orders or files
tell it best.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence

from cardbox_cli.context.cost.account import SentPart
from cardbox_cli.context.cost.finding import CostRules, Hit
from cardbox_cli.context.cost.mending import Mend
from cardbox_cli.context.cost.subject import Subject, ToolUse, said, words
from cardbox_cli.model.card_types import TOOL_RESULT
from cardbox_cli.model.ids import short_id

RULES = CostRules()

# Smaller ones are not worth a word; and what was sent again only so often may be needed yet.
_LEAST_TOKENS, _LEAST_SENDS = 100, 3
# In so many messages after a result, so many words of it are no chance.
_SOON, _SEVERAL = 4, 3
# Letters and digits, as in the number of a flight or an order.
_NAME = re.compile(r"(?=.*[^\W\d])(?=.*\d).{4,}")


@RULES.rule("unused-result", remedy="leave the call and its result out, or put a summary in their place")
def _unused(subject: Subject) -> Iterator[Hit]:
    """A tool's result that was sent again, three times in all or more, though the model took no word of
    it up: none that was new in it, and hardly any that the model had not written before. One that answers
    as the same call had answered before is such only if that answer is, too."""
    known = _Known(subject)
    places = {id(part): place for place, part in enumerate(subject.parts)}
    used: set[tuple[str, str, str]] = set()
    for use in subject.uses:
        if use.result.tokens < _LEAST_TOKENS:
            continue
        place = places[id(use.result)]
        known.read_until(place)
        answered = use.name, use.arguments, use.text
        if answered in used or _is_used(subject, words(use.text) - words(use.arguments), known, place):
            used.add(answered)
        elif use.result.sends >= _LEAST_SENDS:
            yield Hit(
                message=f"the result of {use.name} was sent {use.result.sends} times, and the model took "
                "no word of it up",
                tokens=use.result.again,
                parts=[use.result],
                mend=subject.mend([use]),
            )


class _Known:
    """The words of the messages so far: `all`, and those `asked` with, which no tool brought."""

    def __init__(self, subject: Subject) -> None:
        self._parts = subject.parts
        self._read = 0
        self.all: set[str] = set()
        self.asked: set[str] = set()

    def read_until(self, place: int) -> None:
        """Know the words of the messages before this place, too."""
        for part in self._parts[self._read : place]:
            found = words(said(part))
            self.all |= found
            is_result = part.card is not None and part.card.type == TOOL_RESULT
            if not is_result and part.message.body.get("role") != "assistant":
                self.asked |= found
        self._read = max(self._read, place)


def _is_used(subject: Subject, brought: set[str], known: _Known, place: int) -> bool:
    """Whether the model wrote a word of a result at `place` that was not known from anybody; or soon, of
    words that it had not written itself, several, or a name with a number that it was not asked with."""
    of_model = subject.written
    soon = 0
    for word in brought:
        first, last = of_model.get(word, (-1, -1))
        if last > place and word not in known.all:
            return True
        if place < first <= place + _SOON:
            soon += 1
            if word not in known.asked and _NAME.fullmatch(word):
                return True
    return soon >= _SEVERAL


@RULES.rule("read-again", remedy="keep the newest of the calls with its result, and leave the others out")
def _read_again(subject: Subject) -> Iterator[Hit]:
    """The same call of a tool with the same result as before: a file read again that had not changed."""
    for uses in _alike(use for use in subject.uses if not use.failed):
        spare = uses[:-1]
        waste = sum(_together(use.result, uses[-1].result) for use in spare)
        if waste and uses[0].result.tokens >= _LEAST_TOKENS:
            yield Hit(
                message=f"{uses[0].name} was called {len(uses)} times with the same arguments, and answered "
                "the same",
                tokens=waste,
                parts=[use.result for use in uses],
                mend=subject.mend(spare, "duplicates"),
            )


@RULES.rule("error-retried", remedy="leave all tries but the last out")
def _retried(subject: Subject) -> Iterator[Hit]:
    """A call that failed, made again word for word, and failed again in the same way."""
    for uses in _alike(use for use in subject.uses if use.failed):
        yield Hit(
            message=f"{uses[0].name} failed {len(uses)} times, called in the same way, and answered the same",
            tokens=sum(use.result.total for use in uses[1:]),
            parts=[use.result for use in uses],
            mend=subject.mend(uses[:-1]),
        )


@RULES.rule("same-content", remedy="leave all but the last out")
def _same(subject: Subject) -> Iterator[Hit]:
    """The same long text in two messages of one request, and not as the result of the same call."""
    again = {id(use.result) for uses in _alike(subject.uses) for use in uses}
    of_text: dict[str, list[SentPart]] = defaultdict(list)
    for part in subject.parts:
        if part.tokens >= _LEAST_TOKENS and id(part) not in again:
            of_text[said(part)].append(part)
    pairs = {id(use.result): use for use in subject.uses}
    for text, parts in of_text.items():
        waste = sum(_together(part, parts[-1]) for part in parts[:-1])
        if text and waste:
            names = ", ".join(short_id(part.message.card_id or "") for part in parts)
            yield Hit(
                message=f"{len(parts)} cards say the same: {names}",
                tokens=waste,
                parts=parts,
                mend=_without(subject, parts[:-1], pairs),
            )


def _without(subject: Subject, parts: Sequence[SentPart], pairs: dict[int, ToolUse]) -> Mend | None:
    """How to go on without these; a call goes with its result, and a caller is never left alone."""
    if any(part.card is not None and part.card.tool_calls for part in parts):
        return subject.fit(parts)
    return subject.mend([pairs.get(id(part), part) for part in parts], "duplicates")


def _alike(uses: Iterator[ToolUse] | Sequence[ToolUse]) -> Iterator[list[ToolUse]]:
    """Those that were called alike and answered alike, twice or more."""
    groups: dict[tuple[str, str, str], list[ToolUse]] = defaultdict(list)
    for use in uses:
        groups[use.name, use.arguments, use.text].append(use)
    yield from (group for group in groups.values() if len(group) > 1)


def _together(one: SentPart, other: SentPart) -> int:
    """The tokens of `one` in the requests that had `other`, which came later, too."""
    both = min(one.first + one.sends, other.first + other.sends) - max(one.first, other.first)
    return one.tokens * max(both, 0)
