"""Results that nobody was told of: stored, or the end of a turn, while a suspended turn still waits.

cbx writes a result and its report in one transaction; other programs lose reports. `reap` writes them here.
"""

from cardbox_cli.errors import Conflict, NotFound
from cardbox_cli.execution.reports import report_end, report_stored
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.execution.turn_view import summary
from cardbox_cli.model.turns import Fence
from cardbox_cli.store.lost_reports import LostReport, LostReportStore
from cardbox_cli.store.turn_views import TurnViews


def report_lost(runtime: Runtime) -> list[str]:
    """Report what was not; the ids of the calls that are answered now."""
    lost = LostReportStore(runtime.database, runtime.project_id).all(runtime.settings.unclaimed_time)
    return [each.tool_call_id for each in lost if _report(runtime, each)]


def _report(runtime: Runtime, lost: LostReport) -> bool:
    with runtime.transaction():
        head = runtime.heads.try_lock(lost.agent_id)
        if head is None or head.active_agent_turn_id != lost.agent_turn_id:
            return False
        try:
            if lost.card_id is not None:
                return report_stored(runtime, lost.agent_turn_id, lost.tool_call_id, lost.card_id).created
            return lost.child_turn_id is not None and _report_child(runtime, lost.child_turn_id)
        except (NotFound, Conflict):
            return False


def _report_child(runtime: Runtime, child_turn_id: str) -> bool:
    record = runtime.turns.record(child_turn_id)
    if record is None:
        return False
    end_status, card_id = record.end_status, record.deliverable_card_id
    if end_status is None:
        found = TurnViews(runtime.database, runtime.project_id).get_many([child_turn_id])
        end_status, card_id = (summary(found[0]).end_status, summary(found[0]).deliverable_card_id)
        if end_status is None:
            return False
        runtime.turns.end(
            Fence(record.agent_id, child_turn_id, 0),
            end_status=end_status,
            deliverable_card_id=card_id,
            error_code=None,
            error=None,
        )
    report_end(runtime, record, end_status, card_id or "", record.error)
    return True
