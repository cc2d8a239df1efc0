"""Where a turn stands, whether it has ended above all: the one judgement, which lists, pages, waits, reports
and diagnoses ask. Pure.

What its head and its row tell by themselves is `turn_status` in SQL.
"""

from cardbox_cli.model.execution.turns import (
    ACTIVE,
    ERROR,
    OPEN,
    PENDING,
    PROCESSING,
    SKIPPED,
    TurnRecord,
)

ENDED = "ended"


def standing(
    status: str, row_status: str | None, *, record: TurnRecord | None, carried: bool, finished: bool
) -> str:
    """The state of a turn; `status` is what its head and its row, at `row_status`, tell by themselves.

    `carried`: whether an open row or call makes its active agent go on with it. `finished`: whether its last
    step is over, or it left a deliverable. A recorded end holds, unless another program runs the turn again.
    """
    if record is not None and record.end_status is not None:
        return status if status in ACTIVE and carried else ENDED
    if status != ENDED:
        return status
    if row_status in OPEN:
        # Other systems end a turn first, and its claimed row later.
        return ENDED if record is None or row_status == PROCESSING else PENDING
    if row_status == SKIPPED or (row_status == ERROR and record is None):
        return ENDED
    # That its row is done with says nothing: a turn that waits, or was dropped, has no open row either.
    return ENDED if finished else PENDING
