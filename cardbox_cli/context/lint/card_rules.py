"""Rules about cards and their content, and about calls and results of tools, for every provider.

Each call has one result, right after it. `model/pairing.py` decides which result answers which call; the
subject knows which of them are neighbours in a request.
"""

from collections.abc import Iterable, Iterator
from itertools import pairwise

from cardbox_cli.context.lint.rule import MIN_LONG_TEXT, CardMessage, Hit, Rules, Subject
from cardbox_cli.context.losses import FILES, losses_of, may_lose
from cardbox_cli.context.messages import OF_ONE_FORMAT, never_a_message
from cardbox_cli.context.parts import answering, called_function, ensure_list, text_at, tool_name
from cardbox_cli.context.request import RequestEntry, no_history
from cardbox_cli.model.card_types import (
    CARD_TYPES,
    CHAT_MESSAGE,
    DELIVERABLE,
    SUMMARY,
    TOOL_RESULT,
    card_type,
)
from cardbox_cli.model.cards import ROLES, SYSTEM_ROLES, Card, card_text
from cardbox_cli.model.layers import find_process
from cardbox_cli.model.pairing import call_ids

_CARDS_DOC = "cbx, docs/concepts/cards-and-boxes.md"
_LAYERS_DOC = "cbx, docs/reference/lint.md"

# The type of a card that replaces an unreadable message of a file, and the key in its metadata that has the
# reason.
UNREADABLE_TYPE = CHAT_MESSAGE
UNREADABLE = "unreadable"

CARDS = Rules()


def _cards_in_state(subject: Subject, state: str, words: str) -> Iterator[Hit]:
    for entry in subject.gone:
        if entry.slot.state == state:
            yield entry, f"card {entry.slot.card_id!r} {words}"


@CARDS.error(
    "card-missing",
    source=_CARDS_DOC,
    remedy="take the id out of the box (`cbx box edit`), or restore the card",
)
def _missing_cards(subject: Subject) -> Iterable[Hit]:
    """A box names a card that does not exist."""
    return _cards_in_state(subject, "dangling", "does not exist, and is left out")


@CARDS.warning("card-deleted", source=_CARDS_DOC, remedy="take the id out of the box (`cbx box edit`)")
def _deleted_cards(subject: Subject) -> Iterable[Hit]:
    """A box names a card that was deleted."""
    return _cards_in_state(subject, "deleted", "was deleted, and is left out")


@CARDS.warning("card-expired", source=_CARDS_DOC, remedy="pack the context again, without it")
def _expired_cards(subject: Subject) -> Iterable[Hit]:
    """A box names a card whose lifetime is over."""
    return _cards_in_state(subject, "expired", "has expired, and is left out")


@CARDS.error("role-unknown", remedy="write the card again with a role: system, user, assistant or tool")
def _unknown_roles(subject: Subject) -> Iterator[Hit]:
    """A card that is a message has no role, or one that no provider knows."""
    if subject.roles <= _ROLES:
        return
    for entry, card in subject.cards:
        if card.role in _ROLES or never_a_message(card) or card.type == TOOL_RESULT or card.tool_calls:
            continue  # whose message it is is decided by more than the role
        problem = "the card has no role" if card.role is None else f"no provider knows the role {card.role!r}"
        yield entry, problem


_ROLES = frozenset(ROLES)


@CARDS.error("message-unreadable", remedy="write it as that format has it, or name another with --from")
def _unreadable(subject: Subject) -> Iterator[Hit]:
    """A message of a file that does not match the file's format."""
    for entry, card in subject.cards_by_type(UNREADABLE_TYPE):
        problem = card.metadata.get(UNREADABLE)
        if isinstance(problem, str) and card.role in _ROLES:
            yield entry, problem


@CARDS.warning("type-unknown", source=_CARDS_DOC)
def _unknown_types(subject: Subject) -> Iterator[Hit]:
    """A card has a type that cbx does not know."""
    unknown = subject.types - CARD_TYPES.keys()
    for entry, card in subject.cards if unknown else ():
        if card.type in unknown:
            yield entry, f"cbx does not know the card type {card.type!r}, and sends it as a message"


@CARDS.warning("content-unknown", source=_CARDS_DOC)
def _unknown_contents(subject: Subject) -> Iterator[Hit]:
    """A card's content has a class that cbx does not know."""
    for entry, card in subject.cards if dict in subject.classes else ():
        if isinstance(card.content, dict):
            yield entry, f"the content is of class {card.content.get('__type__')!r}, and is sent as JSON"


@CARDS.warning("content-empty", remedy="leave the card out")
def _empty(subject: Subject) -> Iterator[Hit]:
    """A card that says nothing. A tool result, and a message that calls tools, may be empty."""
    without_parts = [each for each in subject.history.not_text if each[2].body.get("content") == []]
    blank = [(entry, card) for entry, card, _ in (*subject.history.blank, *without_parts)]
    for entry, card in (*blank, *subject.cards_without_message):
        known = card_type(card.type)
        if known.becomes != "message" or known.may_be_empty or card.tool_calls:
            continue  # what never is a message, and what other rules are about
        if not card_text(card.content).strip():
            yield entry, "the card says nothing"


@CARDS.warning("system-in-history", remedy="move it to the front of the box, or write it as a user message")
def _late_system_text(subject: Subject) -> Iterator[Hit]:
    """System text after the first user or assistant message: a provider with one place for it gets it there,
    out of its order. Pointers to a parent and result fields are allowed, and so is system text for a model
    that takes it there (Claude Opus 4.8 and later)."""
    roles = subject.history.roles
    if subject.provider.keeps_late_system and subject.facts.system_in_history:
        return
    begun = next((place for place, role in enumerate(roles) if role not in SYSTEM_ROLES), len(roles))
    if not any(role in roles[begun:] for role in SYSTEM_ROLES):
        return
    for (entry, card, _), role in zip(subject.history.messages[begun:], roles[begun:], strict=True):
        if role in SYSTEM_ROLES and not card_type(card.type).is_late:
            yield entry, f"system text ({card.type}) is within the history"


@CARDS.warning("query-repeated", source=_LAYERS_DOC, remedy="drop one of the two")
def _repeated_queries(subject: Subject) -> Iterator[Hit]:
    """A user's message twice in a row: a query that the history already holds."""
    messages = subject.history.messages
    before: int | None = None
    for place, role in enumerate(subject.history.roles):
        if role == "user":
            if before is not None and _is_repeated(messages[before], messages[place]):
                first = messages[before][1].card_id
                yield messages[place][0], f"the user repeats what card {first!r} said right before"
            before = place
        elif role != "system":
            before = None


def _is_repeated(one: CardMessage, other: CardMessage) -> bool:
    (_, asked, message), (_, again, repeated) = one, other
    if asked.type != again.type or asked.type == TOOL_RESULT:
        return False
    content = repeated.body.get("content")
    return bool(content) and message.body.get("content") == content


@CARDS.warning(
    "content-repeated",
    source=_LAYERS_DOC,
    remedy="leave one of them out",
    finds=f"Two cards that say the same text of {MIN_LONG_TEXT} characters or more.",
)
def _repeated_contents(subject: Subject) -> Iterator[Hit]:
    first: dict[str, RequestEntry] = {}
    for entry, text in subject.history.long_texts:
        slot = first.setdefault(text, entry).slot
        if slot is not entry.slot:
            yield entry, f"says the same as card {slot.card_id!r} at position {slot.position}"


@CARDS.warning(
    "answer-repeated", source=_LAYERS_DOC, remedy="take the deliverable out of the box that is inherited"
)
def _repeated_answers(subject: Subject) -> Iterator[Hit]:
    """An earlier deliverable that says the same as the model's message right before it."""
    # The last message may be the deliverable of the turn that has just ended.
    for (_, said, _), (entry, card, _) in pairwise(subject.history.messages[:-1]):
        text = card_text(card.content).strip()
        is_pair = card.type == DELIVERABLE and said.role == card.role and not said.tool_calls
        # Longer texts are found by content-repeated.
        if is_pair and 0 < len(text) < MIN_LONG_TEXT and card_text(said.content).strip() == text:
            yield entry, f"says the same as card {said.card_id!r} right before it"


@CARDS.warning(
    "summary-and-raw",
    source=_LAYERS_DOC,
    remedy="leave out the cards that the summary covers, or the summary",
)
def _summaries_beside_what_they_cover(subject: Subject) -> Iterator[Hit]:
    """A summary (`context.compression`) in the same request as cards that it covers."""
    summaries = subject.cards_by_type(SUMMARY)
    sent = {entry.slot.card_id for entry, _, _ in subject.history.messages} if summaries else set()
    for entry, card in summaries:
        covers = card.metadata.get("covers")
        covered = [each for each in covers if isinstance(each, str)] if isinstance(covers, list) else []
        if there := sum(each in sent for each in covered):
            yield entry, f"{there} of the {len(covered)} cards that it sums up are sent as well"


@CARDS.warning(
    "tool-not-offered", remedy="add the tool's definition (a `sys.tools` card), or drop the exchange"
)
def _uncallable(subject: Subject) -> Iterator[Hit]:
    """A call of a tool that is not among the request's tools, if it has any."""
    offered = {tool_name(tool) for tool in subject.offered}
    for call in subject.history.calls if offered else []:
        if call.name is not None and call.name not in offered:
            yield call.entry, f"the tool {call.name!r} is called, and is not among the request's tools"


@CARDS.warning(
    "history-left-out",
    source=_LAYERS_DOC,
    remedy="pack it by a recipe if it is input, or choose another kind of process",
)
def _history_left_out(subject: Subject) -> Iterator[Hit]:
    """A card of a conversation, or of a layer, that is not sent because the type of process takes none."""
    process = find_process(subject.request.process)
    if process.takes_history:
        return
    reason = no_history(process.name)
    for left in subject.request.left_out:
        if left.reason == reason:
            yield subject.request.places[left.card_id], f"is left out: {reason}"
    for entry, card in subject.cards_without_message:
        layer = card_type(card.type).layer
        if layer is not None and not process.allows(layer):
            yield entry, f"is left out: a {process.name} cannot have the layer {layer}"


@CARDS.error(
    "no-messages",
    remedy="add the conversation: to a request in a file its messages, to boxes the one that holds it",
)
def _no_messages(subject: Subject) -> Iterator[Hit]:
    """A request without any message, or with only system text if that has a place of its own."""
    if not subject.request.messages:
        yield None, "the request has no message"
    elif len(subject.provider.message_keys) > 1 and subject.is_system_alone:
        yield None, "the request has no message besides system text"


@CARDS.warning("not-expressible")
def _not_expressible(subject: Subject) -> Iterator[Hit]:
    """Content that the provider's format cannot express: it is left out, or sent as mere text."""
    if subject.logged is not None:
        return  # nothing is made of it
    for loss in losses_of(_cards_that_may_lose(subject), subject.request, subject.provider):
        yield subject.request.places.get(loss.card_id or ""), loss.what


def _cards_that_may_lose(subject: Subject) -> Iterable[Card]:
    """Return the cards that may lose something: few, unless some types require a look at each card."""
    history = subject.history
    are_plain = not subject.types & OF_ONE_FORMAT.keys() and not subject.classes & FILES
    if are_plain and all(call.function is not None for call in history.calls):
        originals = (card for _, card, _ in history.imported_messages)
        unaddressed = (card for _, card in history.unaddressed)
        kept = {card.card_id: card for card in (*originals, *history.named_results, *unaddressed)}
        return [*kept.values(), *(card for _, card in subject.cards_without_message if may_lose(card))]
    return filter(may_lose, answering(card for _, card in subject.cards))


# --- calls and results


# How packing names the rule that brings the cards of another box.
_INHERITED = "inherit_context"

EXCHANGES = Rules()


@EXCHANGES.error(
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


@EXCHANGES.error(
    "result-without-call", remedy="put the card that makes the call before it, or drop the result"
)
def _results_without_call(subject: Subject) -> Iterator[Hit]:
    """A tool result whose call is not in the request before it, or is not sent as a call."""
    for entry, call_id, is_known in _orphans(subject):
        if not is_known and not _is_inherited(entry):
            yield entry, f"no earlier call {call_id!r} waits for this result"
    for entry, call_id in _unsent(subject) if subject.logged is None else ():
        yield entry, f"the call {call_id!r}, which this is the result of, is not sent as a call"


def _unsent(subject: Subject) -> Iterator[tuple[RequestEntry, str]]:
    """Yield the sent results of calls that cards make and that are not sent."""
    if all(call.function is not None for call in subject.history.calls):
        return
    called: set[str] = set()
    paired = subject.history.pairing.results
    for place, (entry, card, message) in enumerate(subject.history.messages):
        if not card.tool_calls and place not in paired:
            continue
        # The call of a function is sent as a call in every format, even if something else is wrong with it.
        functions = (
            text_at(call, "id") for call in ensure_list(card.tool_calls) if called_function(call) is not None
        )
        calls, answers = subject.provider.exchanged_ids(message.body)
        called.update(calls, filter(None, functions))
        yield from ((entry, call_id) for call_id in answers if call_id and call_id not in called)


@EXCHANGES.error("result-repeated", remedy="keep one of the two results")
def _repeated_results(subject: Subject) -> Iterator[Hit]:
    """A second result of a call that has one already."""
    for entry, call_id, is_known in _orphans(subject):
        if is_known:
            yield entry, f"the tool call {call_id!r} has a result already"


def _orphans(subject: Subject) -> Iterator[tuple[RequestEntry, str | None, bool]]:
    """Yield the results that answer no call, and whether an earlier call has their id and its answer."""
    called: set[str] = set()
    orphans = set(subject.history.pairing.orphans)
    if not orphans:
        return
    for place, (entry, card, _) in enumerate(subject.history.messages):
        called.update(call_ids(card))
        if place in orphans:
            yield entry, card.tool_call_id, card.tool_call_id in called


@EXCHANGES.error(
    "result-not-after-call",
    remedy="move the result to right after its call, next to the other results of that message",
)
def _results_elsewhere(subject: Subject) -> Iterator[Hit]:
    """A tool result with other messages between it and its call."""
    for call, entry, call_id, where in _separate_pairs(subject):
        if call.rule == entry.rule and call.box_id == entry.box_id:
            yield entry, f"the result of {call_id!r} is not right after its call: {where}"


@EXCHANGES.error("exchange-split", remedy="inherit the box with both cards completely, or neither card")
def _split_exchanges(subject: Subject) -> Iterator[Hit]:
    """A call and its result that inheritance has parted: one of them is missing, or there are other cards
    between them."""
    for entry, called in _unanswered(subject):
        if _is_inherited(entry):
            yield entry, f"the call {called!r} was inherited without its result"
    for entry, answered, is_known in _orphans(subject):
        if not is_known and _is_inherited(entry):
            yield entry, f"the result of {answered!r} was inherited without its call"
    for call, entry, call_id, where in _separate_pairs(subject):
        if call.rule != entry.rule or call.box_id != entry.box_id:
            yield entry, f"the result of {call_id!r} came from elsewhere than its call: {where}"


def _separate_pairs(subject: Subject) -> Iterator[tuple[RequestEntry, RequestEntry, str | None, str]]:
    for call_place, place, between in subject.apart:
        where = f"{between} message{'s' * (between > 1)} between" if between > 0 else "not after it at all"
        entry, card, _ = subject.history.messages[place]
        yield subject.history.messages[call_place][0], entry, card.tool_call_id, where


def _is_inherited(entry: RequestEntry) -> bool:
    return entry.rule is not None and entry.rule.startswith(_INHERITED)


@EXCHANGES.error("tool-id-missing", remedy="give the call an id, and its result the same one")
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
