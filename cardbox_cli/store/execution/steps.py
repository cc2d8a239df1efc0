"""The steps of active turns in Postgres: one statement writes every row of a beginning.

A statement locks the head first, then boxes, then what it writes; where the fence has fallen it writes
nothing. Alone, each is its own transaction.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from cardbox_cli.model.cards import CardDraft, stored_draft
from cardbox_cli.model.execution.turns import Fence
from cardbox_cli.store.connection.database import jsonb
from cardbox_cli.store.connection.project_store import ProjectStore


class NewStep(msgspec.Struct, frozen=True, kw_only=True):
    """A step that begins, its request kept as a box of these ids, `cards` the new ones among them."""

    step_id: str
    status: str
    request_box_id: str
    title: str
    box_card_ids: Sequence[str]
    cards: Sequence[CardDraft]
    metadata: Mapping[str, Any]


class Entering(msgspec.Struct, frozen=True, kw_only=True):
    """What is noted of a turn that is taken up: where its own cards begin, the error of steps left open."""

    output_start: int
    lost: str


class StepWritten(msgspec.Struct, frozen=True):
    """What became of a write: whether the turn is `at_fence`, and whether it is `written`.

    It is not where a card could not be stored: `stored` are the ids of those that are there now.
    """

    at_fence: bool
    written: bool
    stored: list[str]


class StepStore(ProjectStore):
    """The steps of one project's active turns."""

    def enter(self, fence: Fence, entering: Entering) -> bool:
        """The claimed turn at `fence` runs from now on; False where it is elsewhere."""
        found = self._value("enter_turn", **msgspec.structs.asdict(fence), **msgspec.structs.asdict(entering))
        return bool(found)

    def begin(self, fence: Fence, entering: Entering, step: NewStep) -> StepWritten:
        """Write every row of the step of the turn at `fence`, which runs from now on."""
        named = {"title": step.title} if self.database.keeps_box_info else {}
        row = self._row(
            "begin_step" if named else "begin_step_without_title",
            **msgspec.structs.asdict(fence),
            **msgspec.structs.asdict(entering),
            **named,
            step_id=step.step_id,
            status=step.status,
            request_box_id=step.request_box_id,
            box_card_ids=jsonb(list(step.box_card_ids)),
            cards=_columns(step.cards),
            metadata=jsonb(step.metadata),
        )
        assert row is not None
        return StepWritten(*row)


def _columns(drafts: Sequence[CardDraft]) -> Any:
    """New cards as a parameter, each the object of its columns."""
    return jsonb(
        [
            {
                "card_id": draft.card_id,
                "content": draft.content,
                "tool_calls": draft.tool_calls,
                "tool_call_id": draft.tool_call_id,
                "ttl_seconds": draft.ttl_seconds,
                "metadata": draft.metadata,
            }
            for draft in map(stored_draft, drafts)
        ]
    )
