"""A world in which turns get stuck: agents, workers that come and go, a clock that can be put forward."""

import json
import shlex
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from cardbox_cli.execution.dispatch_requests import Caller, DispatchResult, Parent
from cardbox_cli.execution.queue import claims
from cardbox_cli.execution.queue.claims import ClaimedRow, begin, claim
from cardbox_cli.execution.queue.reports import report_result
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.execution.worker.ledger import read_turn
from cardbox_cli.execution.worker.runner import CancellationToken, Run, RunOutcome
from cardbox_cli.execution.worker.step_requests import enter
from cardbox_cli.execution.worker.turn_ledger import TurnLedger
from cardbox_cli.execution.worker.worker_program import Program
from cardbox_cli.model.cards import CardDraft, draft_card
from cardbox_cli.model.content import ToolResultContent
from cardbox_cli.model.execution.turns import InboxRow
from cardbox_cli.model.handwritten.tasks import ForkJoin
from cardbox_cli.model.identity import Tool
from cardbox_cli.orchestration.batch_creation import create_batch
from cardbox_cli.orchestration.batch_manager import BatchManager
from cardbox_cli.store.execution import worker_store
from cardbox_cli.store.execution.worker_store import Announcement
from cardbox_cli.store.profiles import ProfileStore
from cardbox_cli.store.tools import ToolStore
from tests.conftest import Cbx
from tests.execution.fixtures import Asked

OWNER = "worker_1"
TARGET = "worker_generic"
CALL = "call_1"
GOOD = ToolResultContent(status="success", after_execution="suspend", result="42")


# Cards of an exchange; `ANSWERED` is the result of the call that `CALLED` makes.
ASKED = draft_card("task.instruction", "How late is it?")
CALLED = draft_card(
    "agent.thought",
    "",
    tool_calls=[{"id": "c1", "type": "function", "function": {"name": "clock", "arguments": "{}"}}],
)
ANSWERED = draft_card("tool.result", "nine", tool_call_id="c1")


@dataclass
class World:
    """What tests do to a project, by the use cases where these do it, else by plain SQL as other systems do."""

    runtime: Runtime
    ask_: Asked
    cbx: Cbx
    seconds: int = 0

    # --- what happens

    def ask(self, agent_id: str = "clerk", /, **options: Any) -> str:
        """Dispatch a turn; its id."""
        return self.asked(agent_id, **options).agent_turn_id or ""

    def asked(self, agent_id: str = "clerk", /, **options: Any) -> DispatchResult:
        """Dispatch a turn that must be accepted."""
        result = self.ask_(agent_id, **options)
        assert result.status == "accepted", result
        return result

    def box(self, *drafts: CardDraft) -> str:
        """A box of these cards."""
        for draft in drafts:
            self.runtime.cards.add(draft)
        return self.runtime.boxes.create([draft.card_id for draft in drafts]).box_id

    def later(self, seconds: int) -> None:
        """Put the database's clock forward, for every connection that is made from now on, and this one."""
        self.seconds += seconds
        name = self.runtime.database.connection.info.dbname
        self.sql(f"ALTER DATABASE {name} SET cbx.clock_offset = '{self.seconds} seconds'")
        self.sql(f"SET cbx.clock_offset = '{self.seconds} seconds'")

    def sql(self, text: str, **values: Any) -> list[tuple[Any, ...]]:
        """What another program does to the database."""
        cursor = self.runtime.database.connection.execute(text.encode(), values)
        return cursor.fetchall() if cursor.description else []

    def worker(self, concurrency: int = 4) -> None:
        """A worker is alive for the next minute."""
        announcement = Announcement(
            worker_id=OWNER,
            served_project_id=None,
            worker_target=TARGET,
            host="here",
            pid=1,
            concurrency=concurrency,
        )
        worker_store.record_worker(self.runtime.database, announcement, lease=timedelta(seconds=60))

    def claim(self, owner: str = OWNER) -> ClaimedRow:
        """A worker claims one row."""
        (claimed,) = claim(self.runtime, target=TARGET, owner=owner)
        return claimed

    def enter(self, owner: str = OWNER) -> InboxRow:
        """A worker claims a row and enters its turn; the row."""
        task = begin(self.runtime, self.claim(owner).row, owner=owner)
        assert task.kind == "run", task
        enter(self.runtime, read_turn(self.runtime, task.fence))
        return task.row

    def beat(self, row: InboxRow, owner: str = OWNER) -> None:
        """The worker's heartbeat."""
        assert claims.heartbeat(self.runtime, [row.inbox_id], owner=owner)

    def suspend(self, *, deadline: bool = True, arguments: str = "{}") -> str:
        """A worker's model calls a tool that answers later; the turn's id."""
        turn, call = self.wait_for_call(arguments)
        assert call == CALL
        if not deadline:
            self.sql("UPDATE state.agent_state_head SET resume_deadline = NULL")
        return turn

    def wait_for_call(self, arguments: str = "{}") -> tuple[str, str]:
        """`suspend`; the turn's id and the call's, which is another one where the first was made before."""
        call = {"id": CALL, "type": "function", "function": {"name": "search", "arguments": arguments}}
        answer = {"role": "assistant", "content": None, "tool_calls": [call]}
        rest = self._run(self.claim().row, OWNER, f"printf %s {shlex.quote(json.dumps(answer))}")
        assert rest is not None
        assert rest.kind == "suspended"
        [call_id] = rest.waiting
        return rest.agent_turn_id, call_id

    def delegate(self, parent: str, agent_id: str = "scribe", call: str = CALL) -> str:
        """Let a turn of this agent answer a call that the parent waits for; the turn's id."""
        by = Parent(agent_turn_id=parent, tool_call_id=call)
        return self.ask(agent_id, source_agent_id="clerk", parent=by)

    def chain(self) -> tuple[str, str]:
        """A turn that waits for another one's end, which waits for a tool's answer itself."""
        self.ask()
        parent = self.suspend()
        self.delegate(parent)
        return parent, self.wait_for_call()[0]

    def fork(self, *, dispatched: bool = True, **options: Any) -> tuple[str, str]:
        """A turn that waits for a batch of two children, and the batch."""
        self.ask()
        parent = self.suspend()
        self.runtime.followers = (BatchManager(),)
        caller = Caller(agent_id="clerk", parent=Parent(agent_turn_id=parent, tool_call_id=CALL))
        given = {"target_strategy": "new", "target_ref": "clerk", "instruction": "Do it."}
        asked = ForkJoin.model_validate({"tasks": [given, given], **options})
        with self.runtime.transaction():
            batch_id = create_batch(self.runtime, caller, asked).batch.batch_id
            if not dispatched:
                self.runtime._deferred.clear()
        return parent, batch_id

    def report(self, turn: str, call: str = CALL) -> str:
        """The result of the call arrives; the report's row."""
        reported = report_result(self.runtime, turn, call, GOOD, source_agent_id="tool.search")
        return reported.inbox_id or ""

    def drain(self, command: str = "printf done") -> None:
        """A worker comes and does whatever is due until nothing is; its model is done at once."""
        while claimed := claim(self.runtime, target=TARGET, owner="drain"):
            self._run(claimed[0].row, "drain", command)

    def to_the_end(self, turn: str) -> None:
        """A worker comes; what the turn then waits for is answered, as it should be."""
        self.drain()
        if self.why(turn)["rule"] == "waiting-for-tool":
            self.report(turn)
            self.drain()

    def _run(self, row: InboxRow, owner: str, command: str) -> RunOutcome | None:
        task = begin(self.runtime, row, owner=owner)
        if task.kind != "run":
            return None
        program = Program(command=command)
        return Run(
            lambda action: action(self.runtime), TurnLedger(task, owner=owner), program, CancellationToken()
        ).run()

    # --- what can be seen

    def why(self, turn: str) -> dict[str, Any]:
        """What `cbx why` says of a turn; its exit code must fit."""
        answer = self.cbx("why", turn, "-o", "json")
        assert answer.out, answer.err
        found: dict[str, Any] = json.loads(answer.out)
        well = found["verdict"] in ("healthy", "waiting", "ended")
        assert answer.code == (0 if well else 8), answer
        return found

    def problems(self) -> dict[str, str]:
        """The rule of every turn that `cbx why --all` finds not well."""
        answer = self.cbx("why", "--all", "-o", "json")
        found = {each["turn"]: each["rule"] for each in json.loads(answer.out)}
        assert answer.code == (8 if found else 0), answer
        return found

    def fix(self, found: dict[str, Any]) -> None:
        """Run the fix exactly as it is printed."""
        program, *words = shlex.split(found["fix"], comments=True)
        assert program == "cbx"
        answer = self.cbx(*words)
        assert answer.code == 0, (found["fix"], answer.err)


@pytest.fixture
def world(runtime: Runtime, ask: Asked, cbx: Cbx) -> World:
    """The agents may call the tool `search`, which answers by reports."""
    profile: dict[str, Any] = {"name": "clerk", "worker_target": TARGET, "tags": [], "allowed_tools": None}
    entry = ProfileStore(runtime.database, runtime.project_id).save(profile, author_id="t")
    made = World(runtime, ask, cbx)
    made.sql("UPDATE resource.project_agents SET profile_box_id = %(box)s::uuid", box=entry.profile_box_id)
    search = Tool(
        tool_name="search",
        description="Searches.",
        parameters={"type": "object", "properties": {}},
        target_subject=None,
        after_execution=None,
        options={},
    )
    ToolStore(runtime.database, runtime.project_id).add(search, actor="t")
    return made
