"""Rules about single cards and what they say, which hold for every provider."""

from collections.abc import Iterable, Iterator

from cardbox_cli.context.inspection.losses import FILES, losses_of, may_lose
from cardbox_cli.context.lint.history import LONG, CardMessage
from cardbox_cli.context.lint.rule import Hit, Rules
from cardbox_cli.context.lint.subject import Subject
from cardbox_cli.context.messages import OF_ONE_FORMAT, never_a_message
from cardbox_cli.context.other_calls import answering
from cardbox_cli.context.parts import tool_name
from cardbox_cli.context.request import RequestEntry, no_history
from cardbox_cli.model.card_types import CARD_TYPES, CHAT_MESSAGE, SUMMARY, TOOL_RESULT, card_type
from cardbox_cli.model.cards import ROLES, SYSTEM_ROLES, Card, card_text
from cardbox_cli.model.layers import process_of

_CARDS = "cbx, docs/concepts.md"
_LAYERS = "cbx, docs/lint.md"

# The type of a card that stands for a message of a file that none can be made of, and the key in its metadata
# that says why not.
UNREADABLE_TYPE = CHAT_MESSAGE
UNREADABLE = "unreadable"

RULES = Rules()


def _in_state(subject: Subject, state: str, words: str) -> Iterator[Hit]:
    for entry in subject.gone:
        if entry.slot.state == state:
            yield entry, f"card {entry.slot.card_id!r} {words}"


@RULES.error(
    "card-missing", source=_CARDS, remedy="take the id out of the box (`cbx box edit`), or restore the card"
)
def _missing(subject: Subject) -> Iterable[Hit]:
    """A box names a card that does not exist."""
    return _in_state(subject, "dangling", "does not exist, and is left out")


@RULES.warning("card-deleted", source=_CARDS, remedy="take the id out of the box (`cbx box edit`)")
def _deleted(subject: Subject) -> Iterable[Hit]:
    """A box names a card that was deleted."""
    return _in_state(subject, "deleted", "was deleted, and is left out")


@RULES.warning("card-expired", source=_CARDS, remedy="pack the context again, without it")
def _expired(subject: Subject) -> Iterable[Hit]:
    """A box names a card whose lifetime is over."""
    return _in_state(subject, "expired", "has expired, and is left out")


@RULES.error("role-unknown", remedy="write the card anew with a role: system, user, assistant or tool")
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


@RULES.error("message-unreadable", remedy="write it as that format has it, or name another with --from")
def _unreadable(subject: Subject) -> Iterator[Hit]:
    """A message of a file that is none of the file's format."""
    for entry, card in subject.of_type(UNREADABLE_TYPE):
        problem = card.metadata.get(UNREADABLE)
        if isinstance(problem, str) and card.role in _ROLES:
            yield entry, problem


@RULES.warning("type-unknown", source=_CARDS)
def _unknown_types(subject: Subject) -> Iterator[Hit]:
    """A card's type is none that cbx knows."""
    unknown = subject.types - CARD_TYPES.keys()
    for entry, card in subject.cards if unknown else ():
        if card.type in unknown:
            yield entry, f"cbx does not know the card type {card.type!r}, and sends it as a message"


@RULES.warning("content-unknown", source=_CARDS)
def _unknown_contents(subject: Subject) -> Iterator[Hit]:
    """A card's content is of no class that cbx knows."""
    for entry, card in subject.cards if dict in subject.classes else ():
        if isinstance(card.content, dict):
            yield entry, f"the content is of class {card.content.get('__type__')!r}, and is sent as JSON"


@RULES.warning("content-empty", remedy="leave the card out")
def _empty(subject: Subject) -> Iterator[Hit]:
    """A card that says nothing. A tool result, and a message that calls tools, may be empty."""
    without_parts = [each for each in subject.history.not_text if each[2].body.get("content") == []]
    blank = [(entry, card) for entry, card, _ in (*subject.history.blank, *without_parts)]
    for entry, card in (*blank, *subject.without_message):
        known = card_type(card.type)
        if known.becomes != "message" or known.may_be_empty or card.tool_calls:
            continue  # what never is a message, and what other rules are about
        if not card_text(card.content).strip():
            yield entry, "the card says nothing"


@RULES.warning("system-in-history", remedy="put it at the front of the box, or say it as a user")
def _late_system_text(subject: Subject) -> Iterator[Hit]:
    """System text after the first user or assistant message: a provider with one place for it gets it
    there, out of its order. Pointers to a parent and result fields are no finding, nor is any where the
    model takes it there (Claude Opus 4.8 and later)."""
    roles = subject.history.roles
    if subject.provider.keeps_late_system and subject.facts.system_in_history:
        return
    begun = next((place for place, role in enumerate(roles) if role not in SYSTEM_ROLES), len(roles))
    if not any(role in roles[begun:] for role in SYSTEM_ROLES):
        return
    for (entry, card, _), role in zip(subject.history.messages[begun:], roles[begun:], strict=True):
        if role in SYSTEM_ROLES and not card_type(card.type).is_late:
            yield entry, f"system text ({card.type}) stands within the history"


@RULES.warning("query-repeated", source=_LAYERS, remedy="drop one of the two")
def _repeated_queries(subject: Subject) -> Iterator[Hit]:
    """A user's message twice in a row: a query that the history holds already."""
    messages = subject.history.messages
    before: int | None = None
    for place, role in enumerate(subject.history.roles):
        if role == "user":
            if before is not None and _is_repeated(messages[before], messages[place]):
                first = messages[before][1].card_id
                yield messages[place][0], f"the user says again what card {first!r} said right before"
            before = place
        elif role != "system":
            before = None


def _is_repeated(one: CardMessage, other: CardMessage) -> bool:
    (_, asked, message), (_, again, repeated) = one, other
    if asked.type != again.type or asked.type == TOOL_RESULT:
        return False
    content = repeated.body.get("content")
    return bool(content) and message.body.get("content") == content


@RULES.warning(
    "content-repeated",
    source=_LAYERS,
    remedy="leave one of them out",
    finds=f"Two cards that say the same text of {LONG} characters or more.",
)
def _repeated_contents(subject: Subject) -> Iterator[Hit]:
    first: dict[str, RequestEntry] = {}
    for entry, text in subject.history.long_texts:
        slot = first.setdefault(text, entry).slot
        if slot is not entry.slot:
            yield entry, f"says the same as card {slot.card_id!r} at position {slot.position}"


@RULES.warning(
    "summary-and-raw", source=_LAYERS, remedy="leave out the cards that the summary covers, or the summary"
)
def _summaries_beside_what_they_cover(subject: Subject) -> Iterator[Hit]:
    """A summary (`context.compression`) beside cards that it covers."""
    summaries = subject.of_type(SUMMARY)
    sent = {entry.slot.card_id for entry, _, _ in subject.history.messages} if summaries else set()
    for entry, card in summaries:
        covers = card.metadata.get("covers")
        covered = [each for each in covers if isinstance(each, str)] if isinstance(covers, list) else []
        if there := sum(each in sent for each in covered):
            yield entry, f"{there} of the {len(covered)} cards that it sums up are sent as well"


@RULES.warning(
    "tool-not-offered", remedy="add the tool's definition (a `sys.tools` card), or drop the exchange"
)
def _uncallable(subject: Subject) -> Iterator[Hit]:
    """A call of a tool that is not among the request's tools, where it has any."""
    offered = {tool_name(tool) for tool in subject.offered}
    for call in subject.history.calls if offered else []:
        if call.name is not None and call.name not in offered:
            yield call.entry, f"the tool {call.name!r} is called, and is not among the request's tools"


@RULES.warning(
    "history-left-out",
    source=_LAYERS,
    remedy="pack it by a recipe if it is input, or choose another kind of process",
)
def _history_left_out(subject: Subject) -> Iterator[Hit]:
    """A card of a conversation, or of a layer, for a kind of process that takes none: it is not sent."""
    process = process_of(subject.request.process)
    if process.takes_history:
        return
    reason = no_history(process.name)
    for left in subject.request.left_out:
        if left.reason == reason:
            yield subject.request.places[left.card_id], f"is left out: {reason}"
    for entry, card in subject.without_message:
        layer = card_type(card.type).layer
        if layer is not None and not process.may_take(layer):
            yield entry, f"is left out: a {process.name} cannot have the layer {layer}"


@RULES.error(
    "no-messages",
    remedy="add the conversation: to a request in a file its messages, to boxes the one that holds it",
)
def _no_messages(subject: Subject) -> Iterator[Hit]:
    """A request without any message, or without one besides system text where that has a place of its own."""
    if not subject.request.messages:
        yield None, "the request has no message"
    elif len(subject.provider.message_keys) > 1 and subject.is_system_alone:
        yield None, "the request has no message besides system text"


@RULES.warning("not-expressible")
def _not_expressible(subject: Subject) -> Iterator[Hit]:
    """What the provider's format cannot say: it is left out, or sent as mere text."""
    if subject.logged is not None:
        return  # nothing is made of it
    for loss in losses_of(_doubtful(subject), subject.request, subject.provider):
        yield subject.request.places.get(loss.card_id or ""), loss.what


def _doubtful(subject: Subject) -> Iterable[Card]:
    """The cards that may lose something: few, unless there are kinds of which each card must be asked."""
    history = subject.history
    are_plain = not subject.types & OF_ONE_FORMAT.keys() and not subject.classes & FILES
    if are_plain and all(call.function is not None for call in history.calls):
        originals = (card for _, card, _ in history.with_originals)
        unaddressed = (card for _, card in history.unaddressed)
        kept = {card.card_id: card for card in (*originals, *history.named_results, *unaddressed)}
        return [*kept.values(), *(card for _, card in subject.without_message if may_lose(card))]
    return filter(may_lose, answering(card for _, card in subject.cards))
