"""What a turn lacks and waits for: boxes, calls and their answers, other turns."""

from functools import cached_property

from cardbox_cli.diagnosis.snapshot.work import Work
from cardbox_cli.execution.queue.messages import is_report
from cardbox_cli.execution.requests.completeness import Lack, lacks
from cardbox_cli.model.execution.diagnosis import (
    Child,
    Place,
)
from cardbox_cli.model.execution.turns import (
    IDLE,
    WAITING,
    InboxRow,
    WaitingTool,
)


class Waits(Work, frozen=True, kw_only=True, dict=True):
    """The facts of a turn, asked what it waits for."""

    @cached_property
    def lacking(self) -> tuple[Lack, ...]:
        """What is gone of its context and profile, for which a worker would not run it."""
        return tuple(lacks(self.boxes))

    @cached_property
    def open_calls(self) -> tuple[WaitingTool, ...]:
        """The calls whose results are not applied, of the head's epoch."""
        return tuple(tool for tool in self.waiting if tool.is_open and tool.turn_epoch == self.epoch)

    @cached_property
    def calls_of_other_epochs(self) -> tuple[WaitingTool, ...]:
        """The calls whose results are not applied, of other epochs than the head's."""
        return tuple(tool for tool in self.waiting if tool.is_open and tool.turn_epoch != self.epoch)

    def reports_of(self, call: WaitingTool) -> tuple[InboxRow, ...]:
        """The reports of a call, whatever became of them."""
        return tuple(row for row in self.rows if is_report(row) and row.correlation_id == call.tool_call_id)

    @cached_property
    def unanswered(self) -> tuple[WaitingTool, ...]:
        """The open calls that wait for a result of which nothing is on its way."""
        waiting = (call for call in self.open_calls if call.wait_status == WAITING)
        return tuple(call for call in waiting if not self.reports_of(call))

    @cached_property
    def unattended(self) -> tuple[WaitingTool, ...]:
        """The unanswered calls of which no result is stored, and which no turn was asked to answer."""
        stored = {card.tool_call_id for card in self.results}
        joined = {batch.tool_call_id for batch in self.batches}
        calls = (call for call in self.unanswered if call.tool_call_id not in stored | joined)
        return tuple(call for call in calls if not self.children_of(call))

    @cached_property
    def waits_for(self) -> tuple[Place, ...]:
        """The turns that must go on before this one can: its agent's, or those that answer its calls."""
        if self.suspended:
            # The one that was asked last answers the call; those of a batch answer it together.
            asked = [*(self.children_of(call)[-1:] for call in self.unanswered)]
            asked += (self.children_of(call, beside=True) for call in self.unanswered)
            children = (child for some in asked for child in some if child.end_status is None)
            return tuple(Place(child.agent_turn_id, child.agent_id) for child in children)
        if self.queued and self.head is not None and self.head.status != IDLE:
            at = self.head.active_agent_turn_id
            return () if at is None else (Place(at, self.agent_id),)
        return ()

    def children_of(self, call: WaitingTool, *, beside: bool = False) -> tuple[Child, ...]:
        """The turns whose end answers a call, or that answer it together, `beside` each other."""
        children = (child for child in self.children if child.tool_call_id == call.tool_call_id)
        return tuple(child for child in children if child.beside == beside)
