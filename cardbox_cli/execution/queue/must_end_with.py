"""Whether a turn may end: a profile may name tools, by a call of one of which the turns of its agents end.

Pure. Owns what counts as such a call, what a model that ends without one is told, and what is left of the
answer by which it would have ended.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from cardbox_cli.execution.tool_calls import Author, ToolCall, last_calls
from cardbox_cli.model.card_types import DELIVERABLE, MUST_END_WITH, THOUGHT, TOOL_RESULT
from cardbox_cli.model.cards import Card, CardDraft, card_text, draft_card
from cardbox_cli.model.content import JsonContent, ToolResultContent
from cardbox_cli.model.execution.turns import Fence
from cardbox_cli.model.ids import derived_id

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
