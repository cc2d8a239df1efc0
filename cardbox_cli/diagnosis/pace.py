"""How long a turn's step and its calls take as a rule: read beside the snapshot, for single turns alone."""

import msgspec

from cardbox_cli.diagnosis.snapshot import Snapshot
from cardbox_cli.store.views.diagnosis import DiagnosisStore


def with_paces(store: DiagnosisStore, s: Snapshot) -> Snapshot:
    """The snapshot with what ended steps of its profile, or ended calls of its tools, took.

    Joins the transaction.
    """
    if s.running and s.steps and s.steps[-1].ended_at is None:
        pace = store.step_pace(s.agent_id, s.steps[-1].profile_box_id)
        return msgspec.structs.replace(s, step_pace=pace)
    if s.suspended and s.open_calls:
        tools = sorted({call.tool_name for call in s.open_calls})
        return msgspec.structs.replace(s, call_paces=store.call_paces(s.agent_id, tools))
    return s
