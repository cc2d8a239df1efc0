"""A desk at which one worker works through the inbox by hand, and a watch on what the states really do."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import psycopg

from cardbox_cli.execution.queue.claims import ClaimedWork, begin, claim
from cardbox_cli.execution.queue.reports import WrittenReport, report_result
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.model.content import ToolResultContent
from cardbox_cli.model.execution.turns import HEAD_MOVES, INBOX_MOVES, Head, InboxRow
from cardbox_cli.store.connection.database import Database
from tests.execution.by_hand import begin_step
from tests.execution.by_hand import enter as enter_turn

Connection = psycopg.Connection[Any]


class Desk:
    """A worker called `owner`, on one connection."""

    def __init__(self, runtime: Runtime, owner: str = "w1") -> None:
        self.runtime = runtime
        self.owner = owner

    # --- what a worker does

    def take(self) -> ClaimedWork:
        """Claim what is due, and find out what it asks for."""
        [claimed] = claim(self.runtime, target=None, owner=self.owner)
        return begin(self.runtime, claimed.row, owner=self.owner)

    def enter(self) -> ClaimedWork:
        """Take up a turn and begin its first step."""
        task = self.take()
        assert task.kind == "run", task.outcome
        enter_turn(self.runtime, task.fence)
        return task

    def suspend(
        self, task: ClaimedWork, *calls: str, seconds: float = 300, step_id: str | None = None
    ) -> None:
        """Let a running turn wait for these calls."""
        runtime = self.runtime
        with runtime.transaction():
            assert runtime.steps.suspend(
                task.fence,
                step_id or begin_step(runtime, task.fence),
                dict.fromkeys(calls, "look"),
                inbox_id=task.row.inbox_id,
                wait=timedelta(seconds=seconds),
            )
            runtime.follow_suspension(task.fence)

    def waiting(self, *calls: str, seconds: float = 300) -> ClaimedWork:
        """Take up a turn, and let it wait for these calls."""
        task = self.enter()
        self.suspend(task, *calls, seconds=seconds)
        return task

    # --- what others do

    def report(self, turn_id: str, call: str, result: Any = "done", **given: Any) -> WrittenReport:
        """Report the result of a call."""
        return report_result(
            self.runtime, turn_id, call, result_of(result, **given), source_agent_id="tool.look"
        )

    def later(self, seconds: float) -> None:
        """So much time passes for this connection, as it sees it."""
        self.runtime.database.connection.execute(
            "SELECT set_config('cbx.clock_offset', (coalesce(nullif(current_setting('cbx.clock_offset', true), ''),"
            " '0')::interval + make_interval(secs => %s))::text, false)",
            [seconds],
        )

    # --- what is there

    def head(self, agent_id: str = "clerk") -> Head:
        head = self.runtime.heads.get(agent_id)
        assert head is not None
        return head

    def standing(self, agent_id: str = "clerk") -> tuple[str, int]:
        """The status and epoch of an agent."""
        head = self.head(agent_id)
        return head.status, head.turn_epoch

    def row(self, inbox_id: str) -> InboxRow:
        return self.runtime.inbox.get(inbox_id)

    def end_of(self, turn_id: str) -> str | None:
        """How a turn ended."""
        record = self.runtime.turns.record(turn_id)
        return None if record is None else record.end_status

    def waits(self, turn_id: str) -> dict[str, str]:
        """The calls of a turn, and what became of each."""
        return {tool.tool_call_id: tool.wait_status for tool in self.runtime.turns.waiting_tools(turn_id)}

    def audited(self, turn_id: str) -> list[str]:
        """What was done to a turn from outside."""
        return [entry.action for entry in self.runtime.audit.list_by_turn(turn_id)]

    def output(self, turn_id: str) -> list[str]:
        """The types of the cards in a turn's output box."""
        box_id = self.row(turn_id).pointer("output_box_id") or ""
        cards = self.runtime.boxes.view(box_id).cards
        return [card.type for card in cards]


def result_of(
    result: Any = "done", *, status: str = "success", after_execution: Any = "suspend"
) -> ToolResultContent:
    """The result of a call."""
    error = None if status == "success" else {"code": "broken", "message": "it broke"}
    return ToolResultContent(status=status, after_execution=after_execution, result=result, error=error)


def second_runtime(database: Database, first: Runtime, **settings: Any) -> Runtime:
    """The same project on another connection."""
    return Runtime(database, first.project_id, settings=first.settings, **settings)


# --- the watch

_WATCH = """
CREATE SCHEMA watch;
CREATE TABLE watch.seen (kind text, before text, after text, epochs bigint);
CREATE FUNCTION watch.head() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF (OLD.status, OLD.turn_epoch) IS DISTINCT FROM (NEW.status, NEW.turn_epoch) THEN
        INSERT INTO watch.seen VALUES ('head', OLD.status, NEW.status, NEW.turn_epoch - OLD.turn_epoch);
    END IF;
    RETURN NEW;
END $$;
CREATE FUNCTION watch.inbox() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.status IS DISTINCT FROM NEW.status THEN
        INSERT INTO watch.seen VALUES ('inbox', OLD.status, NEW.status, 0);
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER watch AFTER UPDATE ON state.agent_state_head FOR EACH ROW EXECUTE FUNCTION watch.head();
CREATE TRIGGER watch AFTER UPDATE ON state.agent_inbox FOR EACH ROW EXECUTE FUNCTION watch.inbox();
"""

HEAD_CHANGES = {
    (source, move.target, move.epoch): name for name, move in HEAD_MOVES.items() for source in move.sources
}
INBOX_CHANGES = {(source, move.target): name for name, move in INBOX_MOVES.items() for source in move.sources}


def watch(connection: Connection) -> Callable[[], None]:
    """Watch every change of a state from now on; the function returned checks that all were known moves."""
    connection.execute(_WATCH)

    def check() -> None:
        seen = connection.execute("SELECT DISTINCT kind, before, after, epochs FROM watch.seen").fetchall()
        heads = {(before, after, epochs) for kind, before, after, epochs in seen if kind == "head"}
        rows = {(before, after) for kind, before, after, _ in seen if kind == "inbox"}
        assert heads <= HEAD_CHANGES.keys()
        assert rows <= INBOX_CHANGES.keys()

    return check


@contextmanager
def unwatched(connection: Connection) -> Iterator[Connection]:
    """What is done inside is done by another program, or by chance: no move of ours."""
    connection.execute("SET session_replication_role = replica")
    yield connection
    connection.execute("SET session_replication_role = origin")
