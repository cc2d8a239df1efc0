"""Columns of batches and of the results of their tasks."""

from typing import TYPE_CHECKING

from cardbox_cli.cli.terminal.columns.shared import aged, short_or_nothing
from cardbox_cli.cli.terminal.tables.layout import NOTHING, Column
from cardbox_cli.cli.terminal.tables.shown import Columns
from cardbox_cli.model.ids import short_id
from cardbox_cli.model.pairing import PREVIEW
from cardbox_cli.text import format_time, one_line

if TYPE_CHECKING:
    from cardbox_cli.orchestration.batch_progress import BatchResult
    from cardbox_cli.store.views.batch_views import BatchRow


def _done(batch: "BatchRow") -> str:
    return f"{batch.ended_count}/{batch.task_count}"


BATCH: Columns = (
    Column("ID", lambda batch: short_id(batch.batch_id)),
    Column("FULL ID", lambda batch: batch.batch_id, extra=True),
    Column("STATUS", lambda batch: batch.status),
    Column("ENDED", _done, right=True),
    aged("created_at"),
    Column("CREATED", lambda batch: format_time(batch.created_at) or NOTHING, extra=True),
    Column("DEADLINE", lambda batch: format_time(batch.deadline_at) or NOTHING, spare=2),
    Column("PARENT", lambda batch: short_or_nothing(batch.parent_turn_id), spare=1),
    Column("MANAGER", lambda batch: batch.manager, spare=3),
)


def _said(result: "BatchResult") -> str:
    error = f"({result.error['code']}) {result.error['message']}" if result.error else ""
    return one_line(" ".join(filter(None, [result.summary, error])), PREVIEW) or NOTHING


BATCH_RESULT: Columns = (
    Column("#", lambda result: str(result.task_index), right=True),
    Column("STATUS", lambda result: result.status),
    Column("TURN", lambda result: short_or_nothing(result.agent_turn_id)),
    Column("OUTPUT", lambda result: short_or_nothing(result.output_box_id), spare=1),
    Column("SUMMARY", _said, overflow="cut"),
)
