"""Rows of turns in Postgres, except the inbox: steps, waiting tools, edges, records, logs.

Methods run in the caller's transaction, which has locked the head. If the database lacks the tables of cbx,
records are not written, and reading one returns None.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from cardbox_cli.limits import TURN_LOGS
from cardbox_cli.model.execution.turns import (
    CommandLog,
    Edge,
    Fence,
    Head,
    LogTail,
    Step,
    TurnRecord,
    WaitingTool,
)
from cardbox_cli.store.connection.database import jsonb
from cardbox_cli.store.connection.project_store import ProjectStore


class TurnStore(ProjectStore):
    def begin_record(
        self, agent_turn_id: str, agent_id: str, *, output_start: int | None, report_to: dict[str, str] | None
    ) -> None:
        """Create the record of a turn, or set its `output_start` if it has none."""
        if self.database.keeps_turns:
            turn = {"agent_turn_id": agent_turn_id, "agent_id": agent_id, "output_start": output_start}
            call = None if report_to is None else jsonb(report_to)
            self._run("insert_turn_record", **turn, report_to=call)

    def ensure_record(self, agent_turn_id: str, agent_id: str) -> TurnRecord:
        """Return the record of a turn. Creates it if it is missing. Requires the tables of cbx."""
        self.begin_record(agent_turn_id, agent_id, output_start=None, report_to=None)
        record = self.record(agent_turn_id)
        assert record is not None
        return record

    def record(self, agent_turn_id: str) -> TurnRecord | None:
        if not self.database.keeps_turns:
            return None
        return self._one(TurnRecord, "turn_record", agent_turn_id=agent_turn_id)

    def end(
        self,
        fence: Fence,
        *,
        end_status: str,
        deliverable_card_id: str | None,
        error_code: str | None,
        error: str | None,
    ) -> bool:
        """Record the end of a turn. Returns False if it has ended already."""
        at = {"agent_turn_id": fence.agent_turn_id, "end_epoch": fence.turn_epoch}
        end = {"deliverable_card_id": deliverable_card_id, "error_code": error_code, "error": error}
        return self._value("end_turn_record", **at, **end, end_status=end_status) is not None

    def reset_output_start(self, agent_turn_id: str, output_start: int) -> None:
        """Set the position in the turn's new output box at which its own cards begin."""
        self._run("reset_output_start", agent_turn_id=agent_turn_id, output_start=output_start)

    def box_length(self, box_id: str) -> int | None:
        """Return the number of cards in a box, or None for an unknown box."""
        length: int | None = self._value("box_length", box_id=box_id)
        return length

    def output_start(self, box_id: str, agent_turn_id: str) -> int | None:
        """Return the position in a box at which the turn's own cards begin, or None for an unknown box.

        Own cards may exist if another program has run the turn before.
        """
        start = self.box_length(box_id)
        return start and self._value("output_start", box_id=box_id, agent_turn_id=agent_turn_id)

    def lock_box(self, box_id: str) -> bool:
        """Lock the box until the end of the transaction. Returns False for an unknown box."""
        return bool(self._value("lock_box_row", box_id=box_id))

    def move_step(
        self,
        agent_id: str,
        step_id: str,
        status: str,
        *,
        tool_call_ids: Sequence[str] | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> None:
        step = {"agent_id": agent_id, "step_id": step_id, "status": status, "error": None}
        calls = None if tool_call_ids is None else jsonb(list(tool_call_ids))
        self._run("move_step", **step, tool_call_ids=calls, metadata=jsonb(metadata or {}))

    def note_failure(self, agent_id: str, step_id: str, *, error: str, metadata: dict[str, Any]) -> None:
        """Record why a step was not answered. It remains open: other systems end a turn with its step."""
        step = {"agent_id": agent_id, "step_id": step_id}
        self._run("note_step_failure", **step, error=error, metadata=jsonb(metadata))

    def close_steps(self, agent_turn_id: str, status: str, error: str | None) -> None:
        self._run("close_steps", agent_turn_id=agent_turn_id, status=status, error=error)

    def steps(self, agent_turn_id: str) -> list[Step]:
        """Return the steps of a turn in order."""
        return self._all(Step, "steps_of_turn", agent_turn_id=agent_turn_id)

    def waiting_tools(self, agent_turn_id: str) -> list[WaitingTool]:
        """Return the calls that a turn waits or waited for, in order."""
        return self._all(WaitingTool, "waiting_tools", agent_turn_id=agent_turn_id)

    def open_calls(self, agent_id: str) -> list[WaitingTool]:
        """Return the open calls of the agent's last turn that has open calls."""
        return self._all(WaitingTool, "open_waiting_of_agent", agent_id=agent_id)

    def receive(self, agent_turn_id: str, tool_call_id: str, card_id: str) -> bool:
        """Record that the result of a call has arrived. Returns False if the turn does not wait for it."""
        call = {"agent_turn_id": agent_turn_id, "tool_call_id": tool_call_id}
        return self._value("receive_waiting_tool", **call, card_id=card_id) is not None

    def lock_waiting(self, agent_turn_id: str, tool_call_id: str) -> WaitingTool | None:
        """Return the last wait of a turn for this call id, locked until the end of the transaction."""
        call = {"agent_turn_id": agent_turn_id, "tool_call_id": tool_call_id}
        return self._one(WaitingTool, "lock_waiting_tool", **call)

    def drop_waiting(self, agent_turn_id: str) -> list[WaitingTool]:
        """Cancel the waits of this turn for its open calls, and return them."""
        return self._all(WaitingTool, "drop_waiting_tools", agent_turn_id=agent_turn_id)

    def move_waiting(self, fence: Fence) -> None:
        self._run("move_waiting_tools", agent_turn_id=fence.agent_turn_id, turn_epoch=fence.turn_epoch)

    def overdue(self) -> list[Head]:
        return self._all(Head, "overdue_heads")

    def held_tool_call_ids(self, tool_call_ids: Sequence[str]) -> set[str]:
        """Return the ids among these that cards of the project already have."""
        return set(self._column("held_tool_call_ids", tool_call_ids=list(tool_call_ids)))

    def lock_tool_call_ids(self, tool_call_ids: Sequence[str]) -> set[str]:
        """Lock these ids until the end of the transaction, then return `held_tool_call_ids`.

        The result stays valid until then, if all other writers lock the ids as well.
        """
        self._run("lock_tool_call_ids", tool_call_ids=list(tool_call_ids))
        return self.held_tool_call_ids(tool_call_ids)

    def insert_edge(self, edge: Edge) -> None:
        """Insert an edge, unless one with the same correlation id, primitive and phase exists."""
        self._run("insert_edge", **{**msgspec.structs.asdict(edge), "metadata": jsonb(edge.metadata)})

    def enqueue_edge(self, agent_turn_id: str) -> Edge | None:
        """Return the edge by which a turn was dispatched, or None."""
        return self._one(Edge, "enqueue_edge", agent_turn_id=agent_turn_id)

    def edges(self, agent_turn_id: str) -> list[Edge]:
        """Return the edges from or to a turn, in order."""
        return self._all(Edge, "edges_of_turn", agent_turn_id=agent_turn_id)

    def head_of(self, agent_turn_id: str) -> Head | None:
        """Return the head of this turn's agent, or None if the turn is not active."""
        return self._one(Head, "head_of_turn", agent_turn_id=agent_turn_id)


# --- stderr of the commands of turns. A database without the table stores none.


_TABLE = "cbx.logs"


class LogStore(ProjectStore):
    """The logs of one project's turns, in the order in which their commands ended."""

    @property
    def readable(self) -> bool:
        """Return whether the table of logs exists and our role may read it."""
        return _TABLE in self.database.tables and bool(self.database.value("logs_are_readable"))

    @property
    def writable(self) -> bool:
        """Return whether the table of logs exists and our role may write it."""
        return _TABLE in self.database.tables and bool(self.database.value("logs_are_writable"))

    def add(self, log: CommandLog) -> None:
        """Store a log once, and delete the turn's oldest logs above the limit of their total size."""
        self._run("insert_log", **msgspec.structs.asdict(log))
        self._run("trim_logs", agent_turn_id=log.agent_turn_id, limit=TURN_LOGS.value << 20)

    def require(self) -> None:
        self._require(_TABLE)

    def list_by_turn(self, agent_turn_id: str, *, step_id: str | None = None) -> list[CommandLog]:
        """Return the logs of a turn, or of one of its steps. Raises SchemaMissing."""
        self.require()
        return self._all(CommandLog, "logs_of_turn", agent_turn_id=agent_turn_id, step_id=step_id)

    def tails(self, agent_turn_id: str) -> list[LogTail]:
        """Return the last characters of each log of a turn. Empty if our role may not read logs."""
        if not self.readable:
            return []
        return self._all(LogTail, "log_tails", agent_turn_id=agent_turn_id)
