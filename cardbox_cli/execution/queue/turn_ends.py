"""Whether a turn may end: a profile may name tools, by a call of one of which the turns of its agents end.

Pure. Owns what counts as such a call, what a model that ends without one is told, and what is left of the
answer by which it would have ended.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from cardbox_cli.context.request import TURN, profile_of
from cardbox_cli.execution.queue.promotion import deliver, ended_before, fallback, promote_next
from cardbox_cli.execution.queue.reports import report_end
from cardbox_cli.execution.runtime import Ended, Runtime
from cardbox_cli.execution.tool_calls import Author, ToolCall, last_calls
from cardbox_cli.model.card_types import (
    DELIVERABLE,
    MUST_END_WITH,
    PROFILE,
    RESULT_FIELDS,
    THOUGHT,
    TOOL_RESULT,
)
from cardbox_cli.model.cards import Card, CardDraft, card_text, draft_card
from cardbox_cli.model.content import JsonContent, ToolResultContent
from cardbox_cli.model.execution.result_fields import MISSING, REQUIRED, asked_fields, lacking, missing_fields
from cardbox_cli.model.execution.situations import EndMove, decide_end
from cardbox_cli.model.execution.turns import End, EndStatus, Fence, Head
from cardbox_cli.model.ids import derived_id
from cardbox_cli.store.boxes import cards_of_type

# The key of a profile, and the code of a turn that no call could end.
KEY = "must_end_with"
NOT_OFFERED = "must_end_with_not_offered"


class EndRule(msgspec.Struct, frozen=True):
    """By a call of which tools a turn ends; of none, by whatever the model answers.

    `named` are those of the profile, `offered` those among them that the model is offered.
    """

    named: tuple[str, ...]
    offered: tuple[str, ...]

    def allows_end(self, own: Sequence[Card | CardDraft]) -> bool:
        """Whether a turn of these own cards may end with an answer that calls nothing.

        It may once a call of one of the tools, among the last that the turn made, was answered with success.
        """
        return not self.named or self.ending_call(own) is not None

    def ending_call(self, own: Sequence[Card | CardDraft]) -> ToolCall | None:
        """The one of the last calls by which a turn of these own cards may end."""
        good = {card.tool_call_id for card in own if _is_success(card)}
        calls = (call for call in last_calls(own) if call.tool_name in self.named)
        return next((call for call in calls if call.tool_call_id in good), None)

    def fault(self, own: Sequence[Card | CardDraft]) -> str | None:
        """Why no call that the model is offered could end the turn; None where one can, or has."""
        if self.offered or self.allows_end(own):
            return None
        return (
            f"its profile says that a turn ends with a call of {_one_of(self.named)} ({KEY}), which is not "
            "offered to the agent: register the tool with `cbx tool add`, and name it in allowed_tools; "
            "a handler is named in allowed_internal_tools"
        )

    @property
    def unfinished(self) -> str:
        """What a turn lacks that has taken all its steps, to be read after that; "" where it is free."""
        return f": no call of {_one_of(self.named)} has succeeded ({KEY})" if self.named else ""

    def reminder(self, project_id: str, author: Author) -> CardDraft:
        """What the model of a step is told that answered without such a call; of one step the same card."""
        text = f"The task is not finished by this answer. Finish it with a call of {_one_of(self.offered)}."
        return draft_card(
            MUST_END_WITH,
            text,
            author_id=author.agent_id,
            card_id=derived_id(project_id, MUST_END_WITH, author.step_id).hex,
            metadata=author.metadata,
        )

    def handed_in(self, project_id: str, fence: Fence, own: Sequence[Card | CardDraft]) -> CardDraft | None:
        """The deliverable that the arguments of the ending call are, where it has any; of a call the same."""
        call = self.ending_call(own)
        if call is None or not call.input:
            return None
        result = next(card for card in own if card.tool_call_id == call.tool_call_id and _is_success(card))
        said: dict[str, Any] = {
            name: result.metadata[name] for name in ("step_id", "trace_id") if name in result.metadata
        }
        return draft_card(
            DELIVERABLE,
            JsonContent(call.input),
            author_id=fence.agent_id,
            card_id=derived_id(project_id, DELIVERABLE, call.tool_call_id).hex,
            metadata={"agent_turn_id": fence.agent_turn_id, **said},
        )


def end_rule(profile: Mapping[str, Any], tools: Iterable[Mapping[str, Any]] = ()) -> EndRule:
    """The rule of a profile, for a model that is offered tools of these definitions.

    Profiles of other programs may hold anything there: what is no list of names asks for nothing.
    """
    given = profile.get(KEY)
    named = [name for name in given if isinstance(name, str) and name] if isinstance(given, list) else []
    offered = {tool.get("function", {}).get("name") for tool in tools}
    return EndRule(tuple(named), tuple(name for name in named if name in offered))


def without_end(cards: Sequence[CardDraft]) -> list[CardDraft]:
    """The cards of an answer that does not end its turn: what it would have delivered is a thought."""
    thoughts = {card_text(card.content) for card in cards if card.type == THOUGHT}
    kept = (card for card in cards if card.type != DELIVERABLE or card_text(card.content) not in thoughts)
    return [_as_thought(card) if card.type == DELIVERABLE else card for card in kept]


def _as_thought(card: CardDraft) -> CardDraft:
    return msgspec.structs.replace(card, metadata={**card.metadata, "type": THOUGHT})


def _is_success(card: Card | CardDraft) -> bool:
    if card.type != TOOL_RESULT or not isinstance(card.content, ToolResultContent):
        return False
    return card.content.status == "success"


def _one_of(names: Collection[str]) -> str:
    return " or ".join(map(repr, names))


# The end of an active turn: one transaction that every way to end it goes through, and that can happen once.
#
# Makes sure of the deliverable, frees the agent, closes what is open of the turn, promotes the next, reports
# to
# the call that waits for it, and tells the followers. A turn that is ended from outside its run ends by
# `stopping.py`.


def end_turn(
    runtime: Runtime,
    fence: Fence,
    end_status: EndStatus,
    *,
    move: EndMove = "end",
    error_code: str | None = None,
    message: str | None = None,
    details: dict[str, Any] | None = None,
) -> End:
    """End the active turn at `fence`, by the head's move `end`, or `stop` which adds to the epoch.

    `message` and `details` go into the fallback deliverable of a turn that has none of its own. A turn that
    has ended before, and that another program ran once more, leaves its agent, and its end stays as it was.
    Raises StaleEpoch where the turn is not at that epoch any more; nothing is written then.
    """
    with runtime.transaction(savepoint=False):
        head = runtime.heads.hold(fence)
        return end_held(
            runtime, head, end_status, move=move, error_code=error_code, message=message, details=details
        )


def end_held(
    runtime: Runtime,
    head: Head,
    end_status: EndStatus,
    *,
    move: EndMove = "end",
    error_code: str | None = None,
    message: str | None = None,
    details: dict[str, Any] | None = None,
) -> End:
    """`end_turn` for a head that the caller holds, in his transaction: read, decide, write."""
    runtime.database.require_execution()
    fence = head.fence
    found = runtime.ends.situation(fence)
    plan = decide_end(
        found,
        end_status,
        move=move,
        output_box_id=head.output_box_id,
        error_code=error_code,
        message=message,
    )
    deliverable = found.deliverable
    if plan.needs_deliverable:
        words = message or "the turn ended without a deliverable of its own"
        draft = fallback(fence, end_status, error_code, words, details)
        deliverable = deliver(runtime, draft, output_box_id=head.output_box_id, head=head)
    after = runtime.ends.write(fence, plan, deliverable, found.now)
    if after is None:
        raise runtime.heads.stale(fence, runtime.heads.get(fence.agent_id))
    if plan.is_repeated:
        runtime.publish_state(head, "idle", after)
        assert found.record is not None
        return ended_before(found.record, promote_next(runtime, fence.agent_id))
    assert deliverable is not None
    error = message if error_code else None
    runtime.publish_end(head, end_status, deliverable, error=error, error_code=error_code)
    runtime.publish_state(head, "idle", after)
    promoted = promote_next(runtime, fence.agent_id)
    if found.record is not None:
        report_end(runtime, found.record, end_status, deliverable, message)
    runtime.follow_end(
        Ended(
            agent_turn_id=fence.agent_turn_id,
            agent_id=fence.agent_id,
            end_status=end_status,
            deliverable_card_id=deliverable,
            error_code=error_code,
            message=message,
        )
    )
    return End(
        agent_turn_id=fence.agent_turn_id,
        end_status=end_status,
        deliverable_card_id=deliverable,
        promoted_turn_id=promoted.turn_id if promoted else None,
    )


# The end of a turn that has done its work: in success, or as partial where its profile asks for more.
#
# Whoever ends a turn in success does it here: a worker, a report whose result ends the turn, a script. What
# may
# end a turn is for them to know.


BY_RESULT = "a tool's result ended the turn"


def finish(
    runtime: Runtime, fence: Fence, *, profile: dict[str, Any] | None = None, message: str | None = None
) -> End:
    """End the active turn at `fence`, which has done its work, as `end_turn` does. `profile`: if at hand.

    What it handed in by the call that a profile's must_end_with names is its deliverable, unless it has
    written another. Where the profile requires result fields, a deliverable that lacks one makes the end
    partial. Raises StaleEpoch.
    """
    with runtime.transaction(savepoint=False):
        return finish_held(runtime, runtime.heads.hold(fence), profile=profile, message=message)


def finish_held(
    runtime: Runtime, head: Head, *, profile: dict[str, Any] | None = None, message: str | None = None
) -> End:
    """`finish` for a head that the caller holds, in his transaction."""
    if profile is None:
        profile = profile_of(cards_of_type(runtime.boxes, head.profile_box_id, PROFILE))
    rule = end_rule(profile)
    if rule.named:
        _hand_in(runtime, head, rule)
    missing = _missing(runtime, head) if profile.get(REQUIRED) is True else []
    if not missing:
        return end_held(runtime, head, "success", message=message)
    return end_held(runtime, head, "partial", error_code=MISSING, message=lacking(missing))


def _hand_in(runtime: Runtime, head: Head, rule: EndRule) -> None:
    """Store what the turn handed in, where it has delivered nothing else."""
    own = _own_cards(runtime, head)
    draft = rule.handed_in(runtime.project_id, head.fence, own)
    if draft is None or head.output_box_id is None or delivered(head, own):
        return
    runtime.cards.add(draft)
    runtime.boxes.append(head.output_box_id, [draft.card_id], held=head)


def _missing(runtime: Runtime, head: Head) -> list[str]:
    """The fields that the turn was asked for, and that its deliverable lacks."""
    asked = asked_fields(cards_of_type(runtime.boxes, head.context_box_id, RESULT_FIELDS))
    results = delivered(head, _own_cards(runtime, head)) if asked else []
    return missing_fields(asked, results[-1].content if results else None)


def delivered(head: Head, own: Sequence[Card]) -> list[Card]:
    """The deliverables among its own cards that are no other turn's."""
    turn_id = head.fence.agent_turn_id
    return [card for card in own if card.type == DELIVERABLE and card.metadata.get(TURN, turn_id) == turn_id]


def _own_cards(runtime: Runtime, head: Head) -> list[Card]:
    """What the turn has written, in order."""
    record = runtime.turns.record(head.fence.agent_turn_id)
    start = 0 if record is None else record.output_start or 0
    slots = [] if head.output_box_id is None else runtime.boxes.slots(head.output_box_id)
    return [slot.card for slot in slots[start:] if slot.card is not None and slot.state == "present"]
