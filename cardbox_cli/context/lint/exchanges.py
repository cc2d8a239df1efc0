"""Rules about tool calls and their results: each call answered once, and right after it.

Which result answers which call is `model/pairing.py`'s business, which of them stand side by side in a
request the subject's.
"""

from collections.abc import Iterator

from cardbox_cli.context.lint.rule import Hit, Rules
from cardbox_cli.context.lint.subject import Subject
from cardbox_cli.context.parts import as_list, text_at
from cardbox_cli.context.request import RequestEntry
from cardbox_cli.context.tool_calls import are_functions
from cardbox_cli.model.card_types import TOOL_RESULT
from cardbox_cli.model.pairing import call_ids

# How packing names the rule that brings the cards of another box.
_INHERITED = "inherit_context"

RULES = Rules()


@RULES.error(
    "call-without-result",
    remedy="append the result, or a result that says that the call failed, or drop the call",
)
def _calls_without_result(subject: Subject) -> Iterator[Hit]:
    """A tool call that no later result answers."""
    for entry, call_id in _unanswered(subject):
        if not _is_inherited(entry) and call_id not in subject.awaited:
            yield entry, f"the tool call {call_id!r} has no result"


def _unanswered(subject: Subject) -> Iterator[tuple[RequestEntry, str]]:
    for place, call_id in subject.history.pairing.unanswered:
        yield subject.history.messages[place][0], call_id


@RULES.error("result-without-call", remedy="put the card that makes the call before it, or drop the result")
def _results_without_call(subject: Subject) -> Iterator[Hit]:
    """A tool result whose call is not in the request before it, or is not sent as a call."""
    for entry, call_id, is_known in _orphans(subject):
        if not is_known and not _is_inherited(entry):
            yield entry, f"no earlier call {call_id!r} waits for this result"
    for entry, call_id in _unsent(subject) if subject.logged is None else ():
        yield entry, f"the call {call_id!r}, which this is the result of, is not sent as a call"


def _unsent(subject: Subject) -> Iterator[tuple[RequestEntry, str]]:
    """The results, as they are sent, of calls that cards make and that are not sent."""
    if all(call.function is not None for call in subject.history.calls):
        return
    called: set[str] = set()
    paired = subject.history.pairing.results
    for place, (entry, card, message) in enumerate(subject.history.messages):
        if not card.tool_calls and place not in paired:
            continue
        # What calls a function is sent as a call in every format, whatever else is wrong with it.
        functions = (text_at(call, "id") for call in as_list(card.tool_calls) if are_functions([call]))
        calls, answers = subject.provider.exchanged_ids(message.body)
        called.update(calls, filter(None, functions))
        yield from ((entry, call_id) for call_id in answers if call_id and call_id not in called)


@RULES.error("result-repeated", remedy="keep one of the two results")
def _repeated_results(subject: Subject) -> Iterator[Hit]:
    """A second result of a call that has one already."""
    for entry, call_id, is_known in _orphans(subject):
        if is_known:
            yield entry, f"the tool call {call_id!r} has a result already"


def _orphans(subject: Subject) -> Iterator[tuple[RequestEntry, str | None, bool]]:
    """The results that answer no call, and whether a call before them has their id: it was answered then."""
    called: set[str] = set()
    orphans = set(subject.history.pairing.orphans)
    if not orphans:
        return
    for place, (entry, card, _) in enumerate(subject.history.messages):
        called.update(call_ids(card))
        if place in orphans:
            yield entry, card.tool_call_id, card.tool_call_id in called


@RULES.error(
    "result-not-after-call",
    remedy="move the result to right after its call, beside the other results of that message",
)
def _results_elsewhere(subject: Subject) -> Iterator[Hit]:
    """A tool result with other messages between it and its call."""
    for call, entry, call_id, where in _apart(subject):
        if call.rule == entry.rule and call.box_id == entry.box_id:
            yield entry, f"the result of {call_id!r} does not stand right after its call: {where}"


@RULES.error("exchange-split", remedy="inherit the box that holds both of them whole, or neither")
def _split_exchanges(subject: Subject) -> Iterator[Hit]:
    """A call and its result that inheritance has parted: one of them is missing, or other cards stand
    between them."""
    for entry, called in _unanswered(subject):
        if _is_inherited(entry):
            yield entry, f"the call {called!r} was inherited without its result"
    for entry, answered, is_known in _orphans(subject):
        if not is_known and _is_inherited(entry):
            yield entry, f"the result of {answered!r} was inherited without its call"
    for call, entry, call_id, where in _apart(subject):
        if call.rule != entry.rule or call.box_id != entry.box_id:
            yield entry, f"the result of {call_id!r} came from elsewhere than its call: {where}"


def _apart(subject: Subject) -> Iterator[tuple[RequestEntry, RequestEntry, str | None, str]]:
    """The places of calls and results that are a pair and no neighbours, and what is between them."""
    for call_place, place, between in subject.apart:
        where = f"{between} message{'s' * (between > 1)} between" if between > 0 else "not after it at all"
        entry, card, _ = subject.history.messages[place]
        yield subject.history.messages[call_place][0], entry, card.tool_call_id, where


def _is_inherited(entry: RequestEntry) -> bool:
    return entry.rule is not None and entry.rule.startswith(_INHERITED)


@RULES.error("tool-id-missing", remedy="give the call an id, and its result the same one")
def _missing_ids(subject: Subject) -> Iterator[Hit]:
    """A tool call without an id, or a tool result that names none."""
    for call in subject.history.calls:
        if not call.id:
            yield call.entry, "a tool call of this card has no id"
    for entry, card in subject.history.unaddressed:
        if card.role != "function":
            yield entry, _UNADDRESSED
    history = subject.history
    of_tools = history.roles.count("tool")
    if of_tools and of_tools != len(history.pairing.results) + len(history.pairing.orphans):
        for entry, card, message in history.messages:
            is_addressed = card.type == TOOL_RESULT or text_at(message.body, "tool_call_id")
            if message.body["role"] == "tool" and not is_addressed:
                yield entry, _UNADDRESSED


_UNADDRESSED = "this tool result names no call that it answers"
