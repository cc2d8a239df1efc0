"""The end of a turn as a function of values: what it makes of what is found."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from cardbox_cli.model.execution.situations import EndPlan, EndSituation, LatestDeliverable, decide_end
from cardbox_cli.model.execution.turns import EndStatus, TurnRecord

NOW = datetime(2026, 1, 1, tzinfo=UTC)
BOX = "00000000-0000-7000-8000-000000000001"
VALID = LatestDeliverable(card_id="valid", expires_at=NOW + timedelta(seconds=1))
EXPIRED = LatestDeliverable(card_id="expired", expires_at=NOW)


def record(end_status: EndStatus | None = None) -> TurnRecord:
    return TurnRecord(
        agent_turn_id="turn_a",
        agent_id="clerk",
        output_start=0,
        report_to=None,
        end_status=end_status,
        end_epoch=None,
        deliverable_card_id=None,
        error_code=None,
        error=None,
        created_at=NOW,
        ended_at=None,
    )


def decided(end_status: EndStatus, **found: Any) -> EndPlan:
    situation = EndSituation(now=NOW, **{"record": record(), "delivered": [VALID], **found})
    return decide_end(situation, end_status, move="end", output_box_id=BOX, message="It is so.")


@pytest.mark.parametrize("end_status", ["success", "partial", "failed"])
@pytest.mark.parametrize("known", [record(), None])
def test_open_steps_end_with_the_status_of_the_turn(end_status: EndStatus, known: TurnRecord | None) -> None:
    plan = decided(end_status, record=known)
    assert plan.step_status == ("completed" if end_status == "success" else "failed")
    assert (plan.is_repeated, plan.remembered_box_id, plan.message) == (False, BOX, "It is so.")


@pytest.mark.parametrize(
    ("delivered", "deliverable"),
    [
        (None, None),
        ([VALID], "valid"),
        ([EXPIRED], None),
        ([EXPIRED, VALID], "valid"),
        ([LatestDeliverable(card_id="last", expires_at=None), VALID], "last"),
    ],
    ids=["none", "one", "expired", "the one before", "the last"],
)
def test_the_last_unexpired_deliverable_counts(
    delivered: list[LatestDeliverable] | None, deliverable: str | None
) -> None:
    assert EndSituation(now=NOW, record=None, delivered=delivered).deliverable == deliverable
    assert decided("success", delivered=delivered).needs_deliverable == (deliverable is None)


def test_a_turn_that_had_already_ended_only_frees_its_agent() -> None:
    plan = decided("success", record=record("canceled"), delivered=None)
    assert plan.is_repeated
    assert plan.step_status == "failed"
    assert not plan.needs_deliverable
    assert plan.remembered_box_id is None
    assert plan.message == "its turn had already ended"
