"""The end of an active turn, and a profile's rule that a turn must end with a call of certain tools.

`end_held` handles every end of an active turn in one transaction. It makes the deliverable, frees the agent
and closes open rows. Then it promotes the next turn, reports to the waiting call and calls the followers.
`stopping.py` ends turns from outside their run.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from cardbox_cli.context.request import TURN, profile_of
from cardbox_cli.execution.queue.promotion import (
    announce_end,
    deliver,
    fallback_deliverable,
    promote_next,
    recorded_end,
)
from cardbox_cli.execution.runtime import Runtime
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
from cardbox_cli.model.execution.result_fields import (
    MISSING,
    REQUIRED,
    missing_fields,
    missing_fields_message,
    required_fields,
)
from cardbox_cli.model.execution.situations import EndMove, decide_end
from cardbox_cli.model.execution.turns import EndStatus, Fence, Head, TurnEnd
from cardbox_cli.model.ids import derived_id
from cardbox_cli.store.boxes import cards_of_type

# The profile key of the rule, and the error code of a turn whose model is not offered any of the named tools.
MUST_END_WITH_KEY = "must_end_with"
NOT_OFFERED = "must_end_with_not_offered"


class EndRule(msgspec.Struct, frozen=True):
    """The rule that a turn must end with a successful call of a tool in `named`.

    If `named` is empty, any answer may end the turn. `offered` lists the named tools that the model can call.
    """

    named: tuple[str, ...]
    offered: tuple[str, ...]

    def allows_end(self, own: Sequence[Card | CardDraft]) -> bool:
        """Return whether a turn that has written the cards `own` may end with an answer without tool calls.

        If tools are named, the turn's last calls must include a successful call of such a tool.
        """
        return not self.named or self.ending_call(own) is not None

    def ending_call(self, own: Sequence[Card | CardDraft]) -> ToolCall | None:
        """Return a successful call of a named tool among the turn's last calls, or None."""
        good = {card.tool_call_id for card in own if _is_success(card)}
        calls = (call for call in last_calls(own) if call.tool_name in self.named)
        return next((call for call in calls if call.tool_call_id in good), None)

    def problem(self, own: Sequence[Card | CardDraft]) -> str | None:
        """Return a sentence if the model has no tool that could end the turn, or None if the turn can end."""
        if self.offered or self.allows_end(own):
            return None
        return (
            f"its profile requires a turn to end with a call of {_one_of(self.named)} ({MUST_END_WITH_KEY}), "
            "but the agent is not offered that tool: register it with `cbx tool add` and list it in "
            "allowed_tools, or list a handler in allowed_internal_tools"
        )

    @property
    def unfinished(self) -> str:
        """A clause for the message that a turn has no steps left. It names the missing call, or is empty."""
        return f": no call of {_one_of(self.named)} has succeeded ({MUST_END_WITH_KEY})" if self.named else ""

    def reminder(self, project_id: str, author: Author) -> CardDraft:
        """Draft the card that asks the model for the missing call. The card's id is derived from the step."""
        text = f"The task is not finished by this answer. Finish it with a call of {_one_of(self.offered)}."
        return draft_card(
            MUST_END_WITH,
            text,
            author_id=author.agent_id,
            card_id=derived_id(project_id, MUST_END_WITH, author.step_id).hex,
            metadata=author.metadata,
        )

    def deliverable(self, project_id: str, fence: Fence, own: Sequence[Card | CardDraft]) -> CardDraft | None:
        """Draft the ending call's arguments, if any, as a deliverable. Its id is derived from the call."""
        call = self.ending_call(own)
        if call is None or not call.input:
            return None
        result = next(card for card in own if card.tool_call_id == call.tool_call_id and _is_success(card))
        origin: dict[str, Any] = {
            name: result.metadata[name] for name in ("step_id", "trace_id") if name in result.metadata
        }
        return draft_card(
            DELIVERABLE,
            JsonContent(call.input),
            author_id=fence.agent_id,
            card_id=derived_id(project_id, DELIVERABLE, call.tool_call_id).hex,
            metadata={"agent_turn_id": fence.agent_turn_id, **origin},
        )


def end_rule(profile: Mapping[str, Any], tools: Iterable[Mapping[str, Any]] = ()) -> EndRule:
    """Return the rule of a profile. `tools` are the definitions of the tools that the model is offered.

    A profile of another program may have any value there. A value that is not a list means no rule.
    """
    given = profile.get(MUST_END_WITH_KEY)
    named = [name for name in given if isinstance(name, str) and name] if isinstance(given, list) else []
    offered = {tool.get("function", {}).get("name") for tool in tools}
    return EndRule(tuple(named), tuple(name for name in named if name in offered))


def drop_deliverable(cards: Sequence[CardDraft]) -> list[CardDraft]:
    """Return the cards of an answer that must not end its turn. The deliverable becomes a thought."""
    thoughts = {card_text(card.content) for card in cards if card.type == THOUGHT}
    return [
        msgspec.structs.replace(card, metadata={**card.metadata, "type": THOUGHT})
        if card.type == DELIVERABLE
        else card
        for card in cards
        if card.type != DELIVERABLE or card_text(card.content) not in thoughts
    ]


def _is_success(card: Card | CardDraft) -> bool:
    if card.type != TOOL_RESULT or not isinstance(card.content, ToolResultContent):
        return False
    return card.content.status == "success"


def _one_of(names: Collection[str]) -> str:
    return " or ".join(map(repr, names))


def end_turn(
    runtime: Runtime,
    fence: Fence,
    end_status: EndStatus,
    *,
    move: EndMove = "end",
    error_code: str | None = None,
    message: str | None = None,
    details: dict[str, Any] | None = None,
) -> TurnEnd:
    """End the active turn at `fence`. The move `stop` increments the epoch, and the move `end` does not.

    If the turn made no deliverable, `message` and `details` go into a fallback deliverable. If the turn had
    already ended and another program ran it again, only the agent becomes idle. The recorded end stays.
    Raises StaleEpoch, and writes nothing, if the turn is not at that epoch.
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
) -> TurnEnd:
    """End the turn of a locked head in the caller's transaction, as `end_turn` does."""
    runtime.database.require_execution()
    fence = head.fence
    found = runtime.ends.situation(fence)
    plan = decide_end(
        found, end_status, move=move, output_box_id=head.output_box_id, error_code=error_code, message=message
    )
    deliverable = found.deliverable
    if plan.needs_deliverable:
        text = message or "the turn ended without a deliverable of its own"
        draft = fallback_deliverable(fence, end_status, error_code, text, details)
        deliverable = deliver(runtime, draft, output_box_id=head.output_box_id, head=head)
    after = runtime.ends.write(fence, plan, deliverable, found.now)
    if after is None:
        raise runtime.heads.stale_error(fence, runtime.heads.get(fence.agent_id))
    if plan.is_repeated:
        runtime.publish_state(head, "idle", after)
        assert found.record is not None
        return recorded_end(found.record, promote_next(runtime, fence.agent_id))
    assert deliverable is not None
    error = message if error_code else None
    runtime.publish_end(head, end_status, deliverable, error=error, error_code=error_code)
    runtime.publish_state(head, "idle", after)
    return announce_end(
        runtime,
        fence,
        found.record,
        end_status,
        deliverable,
        error_code=error_code,
        message=message,
        promoted=promote_next(runtime, fence.agent_id),
    )


BY_RESULT = "a tool's result ended the turn"


def finish(runtime: Runtime, fence: Fence, *, message: str | None = None) -> TurnEnd:
    """End the active turn at `fence` in success, or as partial if its deliverable lacks a required field.

    If the turn has no deliverable and its profile has the rule `must_end_with`, the arguments of the ending
    call become the deliverable. Raises StaleEpoch.
    """
    with runtime.transaction(savepoint=False):
        return finish_held(runtime, runtime.heads.hold(fence), message=message)


def finish_held(
    runtime: Runtime, head: Head, *, profile: dict[str, Any] | None = None, message: str | None = None
) -> TurnEnd:
    """Finish the turn of a locked head in the caller's transaction. Reads the profile if it is None."""
    if profile is None:
        profile = profile_of(cards_of_type(runtime.boxes, head.profile_box_id, PROFILE))
    rule = end_rule(profile)
    if rule.named:
        _deliver_arguments(runtime, head, rule)
    missing = _missing_fields(runtime, head) if profile.get(REQUIRED) is True else []
    if not missing:
        return end_held(runtime, head, "success", message=message)
    return end_held(runtime, head, "partial", error_code=MISSING, message=missing_fields_message(missing))


def _deliver_arguments(runtime: Runtime, head: Head, rule: EndRule) -> None:
    """Store the arguments of the ending call as the deliverable, unless the turn has one."""
    own = _own_cards(runtime, head)
    draft = rule.deliverable(runtime.project_id, head.fence, own)
    if draft is None or head.output_box_id is None or turn_deliverables(head, own):
        return
    runtime.cards.add(draft)
    runtime.boxes.append(head.output_box_id, [draft.card_id], held=head)


def _missing_fields(runtime: Runtime, head: Head) -> list[str]:
    asked = required_fields(cards_of_type(runtime.boxes, head.context_box_id, RESULT_FIELDS))
    results = turn_deliverables(head, _own_cards(runtime, head)) if asked else []
    return missing_fields(asked, results[-1].content if results else None)


def turn_deliverables(head: Head, own: Sequence[Card]) -> list[Card]:
    turn_id = head.fence.agent_turn_id
    return [card for card in own if card.type == DELIVERABLE and card.metadata.get(TURN, turn_id) == turn_id]


def _own_cards(runtime: Runtime, head: Head) -> list[Card]:
    record = runtime.turns.record(head.fence.agent_turn_id)
    start = 0 if record is None else record.output_start or 0
    slots = [] if head.output_box_id is None else runtime.boxes.slots(head.output_box_id)
    return [slot.card for slot in slots[start:] if slot.card is not None and slot.state == "present"]
