"""The ledger of one claimed turn: what its loop does to the tables, under the fence of the claim."""

from collections.abc import Sequence
from typing import Any

from cardbox_cli.context.request import ComposeOptions
from cardbox_cli.execution.queue.claims import ClaimedWork, hand_back
from cardbox_cli.execution.queue.ending import end_turn
from cardbox_cli.execution.runtime import Runtime
from cardbox_cli.execution.tool_calls import Author, ToolCall
from cardbox_cli.execution.worker.answers.step_answers import Answer, AnswerRules, BadAnswer
from cardbox_cli.execution.worker.commands.command import Ran
from cardbox_cli.execution.worker.logs import keep_log
from cardbox_cli.execution.worker.runs import beginning, storing, suspending, turn_state
from cardbox_cli.execution.worker.runs.handler_calls import answer_handlers
from cardbox_cli.execution.worker.runs.ledger import BegunStep
from cardbox_cli.execution.worker.runs.turn_state import TurnState
from cardbox_cli.model.cards import CardDraft
from cardbox_cli.model.execution.turns import End, EndStatus
from cardbox_cli.settings import AGENT, CONTEXT_BOX, OUTPUT_BOX, PROJECT, TURN_EPOCH, TURN_ID


class TurnLedger:
    """One claimed turn; `owner` has its lease."""

    noun = "turn"

    def __init__(self, work: ClaimedWork, *, owner: str) -> None:
        self._work = work
        self._fence = work.fence
        self._owner = owner
        self.name = f"turn {work.fence.agent_turn_id}"
        self.agent_id = work.fence.agent_id
        self.agent_turn_id = work.fence.agent_turn_id

    def read(self, runtime: Runtime) -> TurnState:
        """The turn, at its fence."""
        return turn_state.read_turn(runtime, self._fence)

    def enter(self, runtime: Runtime, state: TurnState) -> None:
        """A claimed turn runs from now on."""
        beginning.enter(runtime, state)

    def begin_step(
        self, runtime: Runtime, state: TurnState, *, format: str, options: ComposeOptions
    ) -> BegunStep:
        """Begin a step."""
        return beginning.begin_step(runtime, state, format=format, options=options)

    def understand(
        self, runtime: Runtime, state: TurnState, step: BegunStep, stdout: bytes, rules: AnswerRules
    ) -> Answer | BadAnswer:
        """The cards that the command printed, if it has not appended any itself."""
        return storing.understand(runtime, state, step, stdout, rules)

    def store_answer(self, runtime: Runtime, state: TurnState, step: BegunStep, answer: Answer) -> End | None:
        """Append the answer to the output box."""
        return storing.store_answer(runtime, state, step, answer)

    def answers(self, call: ToolCall) -> bool:
        """No call of a turn."""
        return False

    def answer(self, runtime: Runtime, state: TurnState, call: ToolCall) -> CardDraft:
        """Never: `answers` says of no call that it is for this."""
        raise AssertionError(f"a turn answers no call by itself: {call.tool_name}")

    def add_result(self, runtime: Runtime, state: TurnState, draft: CardDraft) -> None:
        """Append a result to the output box."""
        storing.add_result(runtime, state, draft)

    def complete_step(self, runtime: Runtime, state: TurnState) -> End | None:
        """The last step is done."""
        return storing.complete_step(runtime, state)

    def answer_handlers(
        self, runtime: Runtime, state: TurnState, calls: Sequence[ToolCall], others: Sequence[ToolCall]
    ) -> list[ToolCall]:
        """Have them answer, in one transaction with what comes of it."""
        return answer_handlers(runtime, state, self._work.row, calls, others)

    def suspend(self, runtime: Runtime, state: TurnState, calls: Sequence[ToolCall]) -> None:
        """Let the turn wait; its claimed row is done."""
        suspending.suspend(runtime, state, self._work.row, calls)

    def fail(
        self,
        runtime: Runtime,
        status: EndStatus,
        *,
        error_code: str,
        message: str,
        details: dict[str, Any],
    ) -> End:
        """End the turn."""
        return end_turn(runtime, self._fence, status, error_code=error_code, message=message, details=details)

    def hand_back(self, runtime: Runtime, reason: str) -> None:
        """Give the claimed row back."""
        hand_back(runtime, self._work.row, owner=self._owner, reason=reason)

    def keep_log(
        self,
        runtime: Runtime,
        *,
        ran: Ran,
        log_id: str,
        step_id: str,
        call: ToolCall | None,
        kept: int,
    ) -> None:
        """Keep it in `cbx.logs`."""
        keep_log(
            runtime,
            lambda: runtime.heads.hold(self._fence),
            fence=self._fence,
            ran=ran,
            log_id=log_id,
            step_id=step_id,
            call=call,
            worker_id=self._owner,
            kept=kept,
        )

    def author(self, state: TurnState) -> Author:
        """The agent, in the last step."""
        return turn_state.author_of(state)

    def variables(self, state: TurnState) -> dict[str, str]:
        """The turn, its fence and its boxes."""
        return {
            PROJECT.name: self._work.row.project_id,
            AGENT.name: self._fence.agent_id,
            TURN_ID.name: self._fence.agent_turn_id,
            TURN_EPOCH.name: str(self._fence.turn_epoch),
            CONTEXT_BOX.name: state.boxes.context.box_id,
            OUTPUT_BOX.name: state.boxes.output.box_id,
        }
