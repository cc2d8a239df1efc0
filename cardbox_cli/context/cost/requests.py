"""Rules about whole requests: tools that nobody calls, cards that take much of the room, broken prefixes."""

from collections.abc import Iterator, Sequence

from cardbox_cli.context.cost.account import StepCost
from cardbox_cli.context.cost.finding import CostRules, Hit
from cardbox_cli.context.cost.mending import Mend
from cardbox_cli.context.cost.subject import Subject
from cardbox_cli.model.cards import SYSTEM_ROLES
from cardbox_cli.model.ids import short_id
from cardbox_cli.model.layers import CHECKPOINT
from cardbox_cli.text import format_count

RULES = CostRules()

# From which share of the greatest request a card is large, and from how many tokens.
_SHARE, _LEAST = 0.25, 1_000


@RULES.rule("tool-never-called", remedy="leave it out of the profile's allowed_tools, and import that again")
def _never_called(subject: Subject) -> Iterator[Hit]:
    """The definition of a tool that was sent with every request, and that no answer in them called.
    Those that every chat has are none."""
    called = {name for part in subject.parts for name in part.tool.split(", ")}
    always = frozenset() if subject.chat is None else subject.chat.tools
    for tool in subject.account.tools:
        if tool.name not in called | always and tool.sends > 1:
            yield Hit(
                message=f"the tool {tool.name} was sent {tool.sends} times, and never called",
                tokens=tool.tokens * tool.sends,
                mend=None if subject.profile is None else Mend(how="profile", name=subject.profile),
            )


@RULES.rule("large-card", remedy="hand over the part that is needed, or put a summary in its place")
def _large(subject: Subject) -> Iterator[Hit]:
    """A card that takes a quarter of the greatest request or more, and a thousand tokens at least. The system
    text that a conversation begins with is none."""
    most = max((step.tokens for step in subject.account.steps), default=0)
    for part in subject.parts:
        is_said = part.layer == CHECKPOINT and part.message.body.get("role") not in SYSTEM_ROLES
        if is_said and part.tokens >= max(_LEAST, most * _SHARE):
            yield Hit(
                message=f"card {short_id(part.message.card_id or '')} takes {part.tokens / most:.0%} of the "
                f"greatest request, and was sent {part.sends} times",
                tokens=part.again,
                parts=[part],
                mend=subject.compress(part),
            )


@RULES.rule("cache-broken", remedy="say last what changes with each call: `layout: cache` in the profile")
def _broken(subject: Subject) -> Iterator[Hit]:
    """A request that does not go on from the one before, so that a prefix cache reads it anew. The runs of a
    chat, each of which begins with its own id, are found apart from what breaks within them."""
    steps = subject.account.steps
    broken = [place for place, step in enumerate(steps) if step.breaks]
    begun = [
        place
        for place in broken
        if subject.chat is not None and steps[place].agent_turn_id != steps[place - 1].agent_turn_id
    ]
    if begun:
        yield _lost(
            subject,
            begun,
            f"{format_count(len(begun), 'run')} of the chat did not go on from the one before: "
            "a chat's requests begin with the id of the run",
            remedy="nothing of the chat changes that: its prompt, persona and memory are read anew for each "
            "run; `cbx chat new` leaves less to be read",
        )
    within = [place for place in broken if place not in begun]
    if within:
        yield _lost(
            subject,
            within,
            f"{len(within)} of {len(steps)} requests do not go on from the one before; the first is step "
            f"{steps[within[0]].number}",
        )


def _lost(subject: Subject, broken: Sequence[int], message: str, remedy: str | None = None) -> Hit:
    """What is read anew at these places of the series."""
    steps = subject.account.steps
    return Hit(
        message=message,
        tokens=sum(max(steps[place - 1].tokens - steps[place].kept, 0) for place in broken),
        steps=[place + 1 for place in broken],
        mend=_compared(subject, steps[broken[0] - 1], steps[broken[0]]),
        remedy=remedy,
    )


def _compared(subject: Subject, one: StepCost, other: StepCost) -> Mend | None:
    """How to see the break; None where the steps are no two of one turn or chat."""
    steps = one.step_id or "", other.step_id or ""
    if subject.chat is not None:
        return Mend(how="compare-chat", name=subject.chat.key, steps=steps) if all(steps) else None
    turn_id = other.agent_turn_id
    is_of_one = turn_id is not None and one.agent_turn_id == turn_id
    return Mend(how="compare", name=turn_id or "", steps=steps) if is_of_one else None
