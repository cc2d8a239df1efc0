"""Reports to waiting calls in Postgres. One query reads the facts of a decision, one writes all rows.

Methods run in the caller's transaction. The read locks the waiting call, but not the head of its turn,
because writing a report does not change the state of the turn.
"""

from collections.abc import Sequence
from datetime import datetime

import msgspec

from cardbox_cli.limits import EARLIEST
from cardbox_cli.model.cards import CardDraft
from cardbox_cli.model.execution.turns import (
    HEAD_MOVES,
    INBOX_MOVES,
    SUSPENDED,
    Edge,
    Head,
    InboxRow,
    WaitingTool,
)
from cardbox_cli.store.connection.database import jsonb
from cardbox_cli.store.connection.project_store import ProjectStore
from cardbox_cli.store.connection.queries import decode_optional_row
from cardbox_cli.store.execution.inbox_store import row_parameters
from cardbox_cli.store.execution.step_store import card_columns


class ReportSituation(msgspec.Struct, frozen=True, kw_only=True):
    """A locked waiting call at the time `now`. `asked` is the row that dispatched its turn, or None if lost.

    `worker_target` is None for an agent that is not on the roster.
    """

    now: datetime = EARLIEST
    waiting: WaitingTool
    asked: InboxRow | None
    worker_target: str | None


class ReportWrite(msgspec.Struct, frozen=True):
    """Outcome of writing a report: whether all its cards are `stored`, and whether its row is `written`."""

    stored: bool
    written: bool
    stored_ids: list[str]


class AppliedReport(msgspec.Struct, frozen=True):
    """The epoch of a turn after a result was applied to it, and the claimed row after that."""

    turn_epoch: int
    row: InboxRow | None


class ReportStore(ProjectStore):
    def situation(self, agent_turn_id: str, tool_call_id: str) -> ReportSituation | None:
        """Return the facts that decide on a report to this call, or None if the turn never waited for it."""
        call = {"agent_turn_id": agent_turn_id, "tool_call_id": tool_call_id}
        return self._facts(ReportSituation, "report_situation", **call)

    def write(self, row: InboxRow, edge: Edge, cards: Sequence[CardDraft], card_id: str) -> ReportWrite:
        """Write a report: its inbox row, its edge and its new `cards`. `card_id` is the result's card."""
        report = {"tool_call_id": row.correlation_id, "cards": card_columns(cards), "card_id": card_id}
        outcome = self._row("write_report", **row_parameters(row, edge), **report)
        assert outcome is not None
        return ReportWrite(*outcome)

    def apply(
        self, head: Head, row: InboxRow, call: WaitingTool, card_id: str, *, left: int, ends: bool
    ) -> AppliedReport | None:
        """Apply a result to a suspended turn, whose head the caller has locked.

        `left` is the number of other open calls. If it is 0, the claimed row resumes the turn, unless the
        caller `ends` it. Otherwise the row is consumed. Returns None if the turn or its box has changed.
        """
        resume, consume = HEAD_MOVES["resume"], INBOX_MOVES["consume"]
        resumes, is_done = not left and not ends, left > 0
        outcome = self._row(
            "write_applied",
            **msgspec.structs.asdict(head.fence),
            sources=list(resume.sources),
            target=resume.target if resumes else SUSPENDED,
            epoch=resume.epoch if resumes else 0,
            waiting=left,
            resumes=resumes,
            is_done=is_done,
            output_box_id=head.output_box_id,
            card_id=card_id,
            card_ids=jsonb([card_id]),
            tool_call_id=call.tool_call_id,
            inbox_id=row.inbox_id,
            carried_ids=[row.inbox_id] if resumes else [],
            done_ids=[row.inbox_id] if is_done else [],
            row_sources=list(consume.sources),
            row_target=consume.target if is_done else None,
        )
        if outcome is None:
            return None
        epoch, stored = outcome
        return AppliedReport(epoch, decode_optional_row(InboxRow, stored))
