"""What decides on the end of an active turn, as one read finds it, and what is written then.

Does no I/O.
"""

from datetime import datetime
from typing import Literal

import msgspec

from cardbox_cli.limits import EARLIEST
from cardbox_cli.model.execution.turns import COMPLETED, FAILED, EndStatus, TurnRecord

EndMove = Literal["end", "stop"]


class Delivered(msgspec.Struct, frozen=True, kw_only=True):
    """A deliverable that is not deleted."""

    card_id: str
    expires_at: datetime | None


class EndSituation(msgspec.Struct, frozen=True, kw_only=True):
    """An active turn, whose head is held, at `now`. `record` is None for one that cbx has not met.

    `delivered` are the deliverables of its own that its output box holds, the last first; None for none.
    """

    now: datetime = EARLIEST
    record: TurnRecord | None
    delivered: list[Delivered] | None

    @property
    def deliverable(self) -> str | None:
        """The last one that has not expired."""
        valid = (
            each for each in self.delivered or () if each.expires_at is None or each.expires_at > self.now
        )
        return next((each.card_id for each in valid), None)


class EndPlan(msgspec.Struct, frozen=True, kw_only=True):
    """How a turn ends, by this move of its head. `step_status` is what its open steps become.

    `is_repeated`: it had ended before, and that end stays; it leaves its agent only. `needs_deliverable`: it
    has none of its own. `remembered_box_id` is the box that its agent wrote last from then on, if it did.
    """

    move: EndMove
    end_status: EndStatus
    step_status: Literal["completed", "failed"]
    error_code: str | None
    message: str | None
    is_repeated: bool
    needs_deliverable: bool
    remembered_box_id: str | None


_REPEATED = "its turn had ended before"


def decide_end(
    found: EndSituation,
    end_status: EndStatus,
    *,
    move: EndMove,
    output_box_id: str | None,
    error_code: str | None = None,
    message: str | None = None,
) -> EndPlan:
    """What is to be written where a turn with this output box is to end so."""
    repeated = found.record is not None and found.record.end_status is not None
    is_success = end_status == "success" and not repeated
    return EndPlan(
        move=move,
        end_status=end_status,
        step_status=COMPLETED if is_success else FAILED,
        error_code=error_code,
        message=_REPEATED if repeated else message,
        is_repeated=repeated,
        needs_deliverable=not repeated and found.deliverable is None,
        remembered_box_id=None if repeated else output_box_id,
    )
