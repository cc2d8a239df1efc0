"""Results that were not reported: stored, or the end of a turn, while a suspended turn still waits.

A turn may end before the one that will wait for it has suspended, and other programs lose reports. Both are
reported here: of one turn where it suspends, in the same transaction, and of all by `reap`.
"""

from cardbox_cli.errors import Conflict, NotFound
from cardbox_cli.execution.queue.reports import report_result, report_stored, result_of_end
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.execution.views.turn_page import summary
from cardbox_cli.model.execution.standing import ENDED
from cardbox_cli.model.execution.turns import Fence, TurnRecord
from cardbox_cli.store.views.lost_reports import LostReport, LostReportStore
from cardbox_cli.store.views.turns import TurnViews


def report_lost(runtime: Runtime, agent_turn_id: str | None = None) -> list[str]:
    """Report to this suspended turn (None: any) what was not; the ids of the calls that are answered now."""
    lost = LostReportStore(runtime.database, runtime.project_id).find(
        agent_turn_id, age=runtime.settings.unclaimed_time
    )
    ended = _have_ended(runtime, [each.child_turn_id for each in lost if each.child_turn_id])
    due = [each for each in lost if each.card_id is not None or each.child_turn_id in ended]
    return [each.tool_call_id for each in due if _report(runtime, each)]


def _have_ended(runtime: Runtime, turn_ids: list[str]) -> set[str]:
    turns = TurnViews(runtime.database, runtime.project_id).get_many(turn_ids) if turn_ids else []
    return {turn.agent_turn_id for turn in turns if turn.status == ENDED}


def _report(runtime: Runtime, lost: LostReport) -> bool:
    with runtime.transaction():
        head = runtime.heads.try_lock(lost.agent_id)
        if head is None or head.active_agent_turn_id != lost.agent_turn_id:
            return False
        try:
            if lost.card_id is not None:
                return report_stored(runtime, lost.agent_turn_id, lost.tool_call_id, lost.card_id).created
            return lost.child_turn_id is not None and _report_child(runtime, lost, lost.child_turn_id)
        except (NotFound, Conflict):
            # Somebody reported meanwhile, or it cannot be reported; the deadline and `cbx why` see to that.
            return False


def _report_child(runtime: Runtime, lost: LostReport, child_turn_id: str) -> bool:
    record = ended_record(runtime, child_turn_id)
    if record is None or record.end_status is None:
        return False
    content = result_of_end(
        runtime, child_turn_id, record.end_status, record.deliverable_card_id or "", record.error
    )
    return report_result(
        runtime, lost.agent_turn_id, lost.tool_call_id, content, source_agent_id=record.agent_id
    ).created


def ended_record(runtime: Runtime, agent_turn_id: str) -> TurnRecord | None:
    """The record of a turn; the end that another program gave it is written into it."""
    record = runtime.turns.record(agent_turn_id)
    if record is None or record.end_status is not None:
        return record
    for turn in TurnViews(runtime.database, runtime.project_id).get_many([agent_turn_id]):
        left = summary(turn)
        if left.end_status is not None:
            runtime.turns.end(
                Fence(record.agent_id, agent_turn_id, 0),
                end_status=left.end_status,
                deliverable_card_id=left.deliverable_card_id,
                error_code=None,
                error=None,
            )
    return runtime.turns.record(agent_turn_id)
