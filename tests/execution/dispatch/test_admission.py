"""Admission as a function of values: which situation refuses what, and the terms of what is accepted."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from cardbox_cli.errors import BadRequest
from cardbox_cli.execution.admission import DispatchFacts, decide, is_free
from cardbox_cli.execution.dispatch_requests import DispatchRequest, Parent, Refusal
from cardbox_cli.model.execution.headers import canonical_trace_id
from cardbox_cli.model.execution.situations import DispatchSituation, HeadState, ParentTurn, ProfileCard
from cardbox_cli.model.execution.turns import MAX_DEPTH

NOW = datetime(2026, 1, 1, tzinfo=UTC)
BOX, OTHER = "00000000-0000-7000-8000-000000000001", "00000000-0000-7000-8000-000000000002"
TRACE, THEIRS = "0af7651916cd43dd8448eb211c80319c", "4bf92f3577b34da6a3ce929d0e0e4736"
IDLE = HeadState(status="idle", turn_epoch=3, active_agent_turn_id=None)
BUSY = HeadState(status="running", turn_epoch=4, active_agent_turn_id="turn_a")

GOOD = DispatchSituation(
    now=NOW,
    worker_target="w",
    own_profile_box_id=BOX,
    head=IDLE,
    queued_turn_id=None,
    project_status="active",
    profile_box_id=BOX,
    profile_cards=[ProfileCard(name="clerk", expires_at=None)],
    is_source_known=False,
    parent=None,
    earlier_inbox_id=None,
    context_box_id=BOX,
    has_context_box=True,
    output_length=None,
    output_user=None,
)
REQUEST = DispatchRequest(target_agent_id="clerk", context_box_id=BOX)
PARENT = Parent(agent_turn_id="turn_p", step_id="step_p", tool_call_id="call_p")


def above(depth: int) -> ParentTurn:
    headers = {"traceparent": f"00-{THEIRS}-{'1' * 16}-01", "CG-Recursion-Depth": str(depth)}
    return ParentTurn(agent_id="boss", context_headers=headers)


def admit(request: DispatchRequest, found: DispatchSituation | None) -> Any:
    """Decide about a request that may not be queued."""
    known = canonical_trace_id(request.trace_id or "")
    facts = DispatchFacts(project_id="p", found=found, trace_id=known, new_trace_id=TRACE)
    return decide(request, facts, queue=False)


REFUSALS: dict[str, tuple[dict[str, Any], dict[str, Any] | None, str]] = {
    "no name": ({"target_agent_id": " "}, None, "rejected missing_agent_id"),
    "nobody": ({}, None, "rejected agent_not_found"),
    "no target": ({}, {"worker_target": " "}, "error worker_target_missing"),
    "no profile box": ({}, {"profile_box_id": None}, "rejected profile_not_found"),
    "no profile card": ({}, {"profile_cards": None}, "rejected profile_not_found"),
    "an expired profile": (
        {},
        {"profile_cards": [ProfileCard(name="clerk", expires_at=NOW)]},
        "rejected profile_not_found",
    ),
    "no parent": ({"parent": PARENT}, {}, "rejected parent_turn_not_found"),
    "no trace": ({"trace_id": "0" * 32}, {}, "rejected protocol_violation"),
    "too deep": ({"parent": PARENT}, {"parent": above(MAX_DEPTH - 1)}, "rejected recursion_depth_exceeded"),
    "a stranger": ({"source_agent_id": "x"}, {}, "rejected invalid_source_actor"),
    "an archive": ({}, {"project_status": "archived"}, "rejected project_archived"),
    "busy": ({}, {"head": BUSY}, "busy agent_busy"),
    "queued": ({}, {"queued_turn_id": "turn_q"}, "busy agent_busy"),
    "no context": ({"context_box_id": None}, {}, "rejected missing_context_box_id"),
    "a lost context": ({}, {"has_context_box": False}, "rejected context_box_not_found"),
    "an odd output": ({"output_box_id": "x"}, {}, "rejected output_box_not_found"),
    "a used output": (
        {"output_box_id": OTHER},
        {"output_box_id": OTHER, "output_length": 0, "output_user": ("turn_o", "scribe")},
        "rejected output_box_in_use",
    ),
    # What is wrong first is told.
    "no profile and no parent": ({"parent": PARENT}, {"profile_box_id": None}, "rejected profile_not_found"),
    "a stranger in an archive": (
        {"source_agent_id": "x"},
        {"project_status": "archived"},
        "rejected invalid_source_actor",
    ),
    "busy without context": ({"context_box_id": None}, {"head": BUSY}, "busy agent_busy"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_an_invalid_situation_is_refused_with_its_error_code(case: str) -> None:
    asked, changed, refusal = REFUSALS[case]
    found = None if changed is None else msgspec.structs.replace(GOOD, **changed)
    with pytest.raises(Refusal) as failure:
        admit(msgspec.structs.replace(REQUEST, **asked), found)
    assert f"{failure.value.status} {failure.value.error_code}" == refusal


@pytest.mark.parametrize(
    "changed",
    [
        {"project_status": None},
        {"head": None},
        {"profile_cards": [ProfileCard(name=7, expires_at=NOW + timedelta(seconds=1))]},
    ],
    ids=["no row of the project", "no head yet", "an odd profile that expires"],
)
def test_a_valid_request_is_accepted(changed: dict[str, Any]) -> None:
    terms = admit(REQUEST, msgspec.structs.replace(GOOD, **changed))
    assert (terms.profile_box_id, terms.report_to) == (BOX, None)
    assert (terms.lineage.depth, terms.lineage.trace_id, terms.lineage.parent_turn_id) == (0, TRACE, None)


@pytest.mark.parametrize(
    ("policy", "depth", "parent_turn"),
    [("descend", 3, "turn_p"), ("peer", 2, "turn_p"), ("root", 0, None)],
)
def test_the_depth_policy_decides_the_depth_below_a_parent(
    policy: Any, depth: int, parent_turn: str | None
) -> None:
    request = msgspec.structs.replace(REQUEST, parent=PARENT, depth_policy=policy)
    terms = admit(request, msgspec.structs.replace(GOOD, parent=above(2)))
    assert (terms.lineage.depth, terms.lineage.trace_id) == (depth, THEIRS)
    assert terms.lineage.parent_turn_id == parent_turn
    assert terms.report_to == {"agent_id": "boss", "agent_turn_id": "turn_p", "tool_call_id": "call_p"}


@pytest.mark.parametrize(
    ("correlation_id", "error"), [(None, Refusal), ("c", BadRequest)], ids=["the agent", "the plan"]
)
def test_a_plan_error_precedes_a_busy_agent_only_if_the_digest_needs_the_plan(
    correlation_id: str | None, error: type[Exception]
) -> None:
    busy = msgspec.structs.replace(GOOD, head=BUSY)
    facts = DispatchFacts(project_id="p", found=busy, plan_error=BadRequest("odd"), new_trace_id=TRACE)
    request = msgspec.structs.replace(REQUEST, correlation_id=correlation_id)
    with pytest.raises(error):
        decide(request, facts, queue=False)


def test_an_agent_that_lost_its_head_is_refused() -> None:
    found = msgspec.structs.replace(GOOD, head=None)
    facts = DispatchFacts(project_id="p", found=found, has_lost_head=True, new_trace_id=TRACE)
    with pytest.raises(Refusal) as failure:
        decide(REQUEST, facts, queue=True)
    assert (failure.value.status, failure.value.error_code) == ("error", "head_missing")


def test_only_an_idle_agent_without_a_queue_is_free() -> None:
    assert is_free(GOOD)
    assert not is_free(msgspec.structs.replace(GOOD, head=BUSY))
    assert not is_free(msgspec.structs.replace(GOOD, queued_turn_id="turn_q"))
